"""Enqueueing: from a call to an entry in a queue."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple, Protocol

from django.db import transaction
from django.dispatch import Signal
from django.utils.asyncio import async_unsafe

from djqueue import conf, signals
from djqueue.backends.base import BaseQueue, DebounceGuard, Entry, Guard, OnceGuard, UniqueGuard
from djqueue.backends.guards import DedupMark
from djqueue.enqueueing.on_commit import OnceCommitted, when_committed
from djqueue.exceptions import (
    EncodeError,
    InvalidMessage,
    MessageTooLarge,
    NotSupported,
    PartialEnqueueError,
    QueueError,
    StoreError,
)
from djqueue.messages.codecs import Arguments
from djqueue.messages.envelope import Message, encode, new_ids
from djqueue.messages.metadata import carriers
from djqueue.policies.policy import Policy
from djqueue.registry import Runnable
from djqueue.results import EnqueueStatus, Result
from djqueue.running.context import open_entry
from djqueue.running.executor import run_inline
from djqueue.running.instruments import instruments
from djqueue.utils import log_safely, slices
from djqueue.wiring import queues, why_no_facts

logger = logging.getLogger(__name__)

CHUNK = 1000
"""Entries per round trip."""
TRIES = 100
"""How often other processes may change the call that a debounced one is merged into, before it is an error."""

NEWS: dict[type, tuple[tuple[Signal, ...], tuple[Signal, ...]]] = {
    type(None): ((signals.enqueued,), ()),
    OnceGuard: ((signals.enqueued,), (signals.refused,)),
    UniqueGuard: ((signals.enqueued,), (signals.refused,)),
    DebounceGuard: ((signals.debounce_missed, signals.enqueued), (signals.debounced,)),
}
"""The signals for a call that was put, and for one that was not, by the type of its guard."""
_SIGNALS = {signal for put_or_not in NEWS.values() for sent in put_or_not for signal in sent}
_receivers_of = attrgetter("receivers")


class Call(NamedTuple):
    """The arguments of one call."""

    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = {}

    @classmethod
    def of(cls, given: object) -> Call:
        """A call from a tuple of positional arguments, a dict of keyword arguments, or a Call."""
        if isinstance(given, Call):
            return given
        if isinstance(given, tuple | list):
            return cls(tuple(given))
        if isinstance(given, dict):
            return cls((), given)
        raise TypeError(f"enqueue_many() takes tuples (positional arguments) or dicts (keywords), not {given!r}.")


class Enqueueable(Runnable, Protocol):
    """The part of a command that the producer needs; :class:`djqueue.enqueueing.command.Command` has it."""

    whole: bool

    def as_asked(self, func: object, call: Arguments) -> Arguments: ...
    def identity(self, call: Call, policy: Policy) -> tuple[dict[str, object], object]: ...
    def merged(self, merge: Callable[..., Any], waits: Arguments, new: Arguments) -> Call: ...


@dataclass(slots=True)
class PendingCall:
    """A call on its way."""

    command: Enqueueable
    policy: Policy
    entry: Entry
    sending: EnqueueStatus
    guard: Guard | None = None
    kept: bool = False
    """Whether its result will be kept."""


def send(command: Enqueueable, calls: Sequence[tuple[Call, Policy]]) -> list[Result]:
    """Encode calls, each with its options, and put them, within the caller's transaction or when it commits.

    All go to the queue of the first call.
    """
    if not calls:
        return []
    queue = queues[calls[0][1].queue_name]
    pending = _pending_calls(command, calls, queue)
    _refuse_too_many(queue, command, pending)
    is_eager = conf.get("QUEUE_ALWAYS_EAGER")
    if queue.async_unsafe and not is_eager:
        _refuse_event_loop()
    if is_eager:
        for pending_call in pending:
            run_inline(queue, pending_call.entry, command, pending_call.policy)
            pending_call.sending.accepted = True
    elif queue.on_commit is not None and transaction.get_connection(queue.on_commit).in_atomic_block:
        when_committed(queue.on_commit, _put_or_report, queue, pending)
    else:
        try:
            _put(queue, pending)
        except StoreError as error:
            raise error.of_queue(queue.alias) from None
    return [Result(one.entry.id, command.name, one.policy.queue_name, one.kept, one.sending) for one in pending]


@async_unsafe("")
def _refuse_event_loop() -> None:
    """Raises SynchronousOnlyOperation in the thread of an event loop, as Django does for its databases."""


def send_once(command: Enqueueable, call: Call, policy: Policy, guard: OnceGuard, id: str) -> bool:
    """Put one call unless the guard's key was used; whether it was put.

    That is one atomic step, unless the call has a guard of its own. Then the key is used first, and a crash
    between the two steps loses the call.
    """
    queue = queues[policy.queue_name]
    pending_call = _pending_call(command, call, _terms_of(command, policy, queue), queue, id)
    if pending_call.guard is not None:
        return _put_marked(queue, pending_call, guard)
    [accepted] = queue.put([pending_call.entry], [guard])
    if accepted:
        _emit(queue, [(signals.enqueued, pending_call.entry)])
    return accepted


def _put_marked(queue: BaseQueue, pending_call: PendingCall, guard: OnceGuard) -> bool:
    if not queue.store.add(guard.key, b"", guard.ttl):
        return False
    try:
        _put(queue, [pending_call])
    except Exception:
        queue.store.drop(guard.key)
        raise
    return bool(pending_call.sending.accepted)


class Terms(NamedTuple):
    """What calls with the same options have in common: read once, as settings may change before the next calls."""

    policy: Policy
    """The options, with the values of those that are functions."""
    carried: dict[str, Any]
    """The options that the consumer needs and that are not the command's own."""
    encoding: dict[str, Any]
    kept: bool
    """Whether their results will be kept."""
    queue_name: str


def _terms_of(command: Enqueueable, given: Policy, queue: BaseQueue) -> Terms:
    refuse_what_it_cannot(queue, given)
    policy = given.resolved(queue.now)
    carried = {} if policy is command.policy else policy.overrides(command.policy)
    return Terms(policy, carried, _encoding(policy), policy.keeps_result > 0, queue.base_name)


def _pending_calls(command: Enqueueable, calls: Sequence[tuple[Call, Policy]], queue: BaseQueue) -> list[PendingCall]:
    pending, before, terms = [], None, None
    for (call, given), id in zip(calls, new_ids(len(calls)), strict=True):
        if terms is None or given is not before or given.asks:  # what is a function is asked at each call
            before, terms = given, _terms_of(command, given, queue)
        pending.append(_pending_call(command, call, terms, queue, id))
    return pending


def _pending_call(command: Enqueueable, call: Call, terms: Terms, queue: BaseQueue, id: str) -> PendingCall:
    policy, carried, encoding, kept, queue_name = terms
    metadata = carriers.produce(queue.alias) if carriers.registered else {}
    if instruments.registered:
        metadata |= instruments.sent(queue.alias, command.name, id)
    data = encode(Message(id, queue_name, command.name, *call, metadata, carried), **encoding)
    asked = call if policy.plan is None else command.as_asked(policy.plan.key, call)
    entry = policy.to_entry(data, id, command.name, asked)
    guard = policy.condition(command.name, *command.identity(call, policy)) if policy.guarded else None
    return PendingCall(command, policy, entry, EnqueueStatus("" if guard is None else guard.key), guard, kept)


def encoded(message: Message, policy: Policy) -> bytes:
    """A message, encoded by its options. Raises EncodeError, MessageTooLarge."""
    return encode(message, **_encoding(policy))


def _encoding(policy: Policy) -> dict[str, Any]:
    return {
        "serializer": policy.serializer or conf.get("QUEUE_SERIALIZER"),
        "models": policy.models or conf.get("QUEUE_MODELS"),
        "max_size": conf.get("QUEUE_MAX_MESSAGE_SIZE"),
    }


def refuse_what_it_cannot(queue: BaseQueue, policy: Policy) -> None:
    """Raises NotSupported if the options ask for more than the queue's backend can do."""
    if not policy.needs <= queue.features:
        lacking = policy.unsupported(queue.features) + why_no_facts(queue, policy.needs)
        raise NotSupported(f"{type(queue).__name__} ({policy.queue_name!r}) cannot do: {lacking}.")


def _refuse_too_many(queue: BaseQueue, command: Enqueueable, pending: Sequence[PendingCall]) -> None:
    if not command.whole or queue.database is not None:
        return
    if len(pending) > CHUNK:
        raise ValueError(f"{command.name}: {len(pending)} requests; this queue takes up to {CHUNK} together.")
    if _takes_several_steps(queue, pending):
        raise ValueError(
            f"{command.name}: {len(pending)} requests of {_bytes_of(pending)} bytes; this queue takes up to "
            f"{queue.bytes_at_once} bytes together. Enqueue fewer at a time, or pass references to large data."
        )


def _takes_several_steps(queue: BaseQueue, pending: Sequence[PendingCall]) -> bool:
    """Whether one ``put`` would take several steps of the store; a single entry always takes one."""
    return len(pending) > 1 and _bytes_of(pending) > queue.bytes_at_once


def _bytes_of(pending: Sequence[PendingCall]) -> int:
    return sum(len(pending_call.entry.body) for pending_call in pending)


def _put(queue: BaseQueue, pending: Sequence[PendingCall]) -> None:
    """Put calls, which a database takes together or not at all."""
    chunks = _chunks(pending)
    if queue.database is not None and len(pending) > 1 and (len(chunks) > 1 or _takes_several_steps(queue, pending)):
        with transaction.atomic(using=queue.database):
            for chunk in chunks:
                _put_chunk(queue, chunk)
    else:
        for chunk in chunks:
            _put_chunk(queue, chunk)


def _chunks(pending: Sequence[PendingCall]) -> list[Sequence[PendingCall]]:
    """The calls that are put in one step: calls that are merged go one by one."""
    size = 1 if pending[0].policy.merge else CHUNK
    return [pending] if len(pending) <= size else list(slices(pending, size))


def _put_chunk(queue: BaseQueue, chunk: Sequence[PendingCall]) -> None:
    try:
        if chunk[0].policy.merge:
            answers = [_put_or_merge(queue, chunk[0])]
        else:
            guards = [one.guard for one in chunk]
            answers = queue.put([one.entry for one in chunk], guards if any(guards) else None)
    except PartialEnqueueError as error:
        _announce(queue, _decided(chunk, error))
        raise
    for one, accepted in zip(chunk, answers, strict=True):
        one.sending.accepted = accepted
    _announce(queue, chunk)


def _decided(piece: Sequence[PendingCall], error: Exception) -> list[PendingCall]:
    """The calls that were put, or refused by their guards, before an error: none, unless the error names them."""
    if not isinstance(error, PartialEnqueueError):
        return []
    accepted, unsent = set(error.accepted), set(error.unsent)
    for pending_call in piece:
        pending_call.sending.accepted = pending_call.entry.id in accepted
    return [pending_call for pending_call in piece if pending_call.entry.id not in unsent]


def _announce(queue: BaseQueue, pending: Sequence[PendingCall]) -> None:
    if not any(map(_receivers_of, _SIGNALS)):
        return
    news = [(signal, one.entry) for one in pending for signal in _news(one) if signal.receivers]
    if news:
        _emit(queue, news)


def _news(pending_call: PendingCall) -> tuple[Signal, ...]:
    accepted, refused = NEWS[type(pending_call.guard)]
    return accepted if pending_call.sending.accepted else refused


def _emit(queue: BaseQueue, news: Sequence[tuple[Signal, Entry]]) -> None:
    """Send the signals of the calls once their result is certain: a transaction may still be rolled back."""
    if queue.database is not None and transaction.get_connection(queue.database).in_atomic_block:
        when_committed(queue.database, _emit_now, queue, news)
    else:
        _emit_now(queue, news)


def _emit_now(queue: BaseQueue, news: Sequence[tuple[Signal, Entry]]) -> None:
    for signal, entry in news:
        signals.emit(signal, entry.command, id=entry.id, queue_name=queue.alias)


def _put_or_report(queue: BaseQueue, pending: Sequence[PendingCall]) -> None:
    """Send calls after the commit. No caller is left to catch an error, so a failure is logged and signalled."""
    pieces, alone = _chunks(pending) if queue.database is None else [pending], pending[0].policy.merge is not None
    for number, piece in enumerate(pieces):
        try:
            _put(queue, piece)
        except Exception as error:
            lost = [piece] if alone else pieces[number:]  # a merge may fail for one call and not for the next
            decided = {pending_call.entry.id for pending_call in _decided(piece, error)}
            left = (pending_call.entry for some in lost for pending_call in some)
            _report(queue, [entry for entry in left if entry.id not in decided], error)
            if not alone:
                return


def _report(queue: BaseQueue, unsent: Sequence[Entry], error: Exception) -> None:
    first, ids = unsent[0], [entry.id for entry in unsent]
    extra = {"event": "unsent", "message_ids": ids, "count": len(ids), "command": first.command, "queue": queue.alias}
    text = "%s: %d messages were not sent although their transaction committed"
    log_safely(logger, logging.ERROR, text, first.command, len(unsent), exc_info=error, extra=extra)
    for entry in unsent:
        signals.emit(signals.enqueue_failed, entry.command, id=entry.id, queue_name=queue.alias, exception=error)


def _put_or_merge(queue: BaseQueue, pending_call: PendingCall) -> bool:
    """Put the entry, or else change the one that waits in its place; whether it was put. Nothing is lost between the
    two: a step that fails because of another process is tried again. Raises QueueError if that never ends."""
    entry, guard = pending_call.entry, pending_call.guard
    for _ in range(TRIES):
        if queue.put([entry], [guard])[0]:
            return True
        try:
            if _merged(queue, pending_call):
                return False
        except InvalidMessage as error:
            text = "%s: the waiting call cannot be read, so this one is put next to it"
            extra = {"message_id": entry.id, "command": entry.command, "queue": queue.alias}
            log_safely(logger, logging.ERROR, text, entry.command, exc_info=error, extra=extra)
            return queue.put([entry])[0]
    raise QueueError(f"{entry.command}: others changed the waiting call {TRIES} times in a row; this one was not put.")


def _merged(queue: BaseQueue, pending_call: PendingCall) -> bool:
    """Whether the waiting entry could be changed: not if it has begun meanwhile, or another process changed it."""
    command, policy, entry = pending_call.command, pending_call.policy, pending_call.entry
    mark = queue.store.get(pending_call.sending.guard)
    record = None if mark is None else queue.find(DedupMark.read(mark).id)
    if record is None or policy.merge is None:
        return False
    waits = open_entry(queue, record.entry)
    if waits.command != entry.command:  # marks are not signed: no message must become one of another command
        raise InvalidMessage(f"its mark names a call of {waits.command}")
    new = open_entry(queue, entry).arguments()  # decoded, as they were at the call
    args, kwargs = command.merged(policy.merge, waits.arguments(), new)
    message = Message(waits.id, waits.queue, waits.command, args, kwargs, waits.metadata, waits.options)
    try:
        data = encoded(message, policy)
    except (EncodeError, MessageTooLarge) as error:
        error.add_note("That is what merge= made of the waiting call and the new one.")
        raise
    return queue.amend(waits.id, record.entry.body, data)


def sent_by(callback: object) -> list[tuple[BaseQueue, Entry]]:
    """The calls that a callback sends when its transaction commits, with their queues; none if it does other things."""
    if not isinstance(callback, OnceCommitted) or callback.func is not _put_or_report:
        return []
    queue, pending = callback.args
    return [(queue, pending_call.entry) for pending_call in pending]
