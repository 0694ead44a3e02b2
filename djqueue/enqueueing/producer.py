"""Enqueueing: from a call to an entry in a queue."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple, Protocol

from django.core.exceptions import SynchronousOnlyOperation
from django.db import connections, transaction
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
from djqueue.messages.envelope import Encoder, Message, new_id, new_ids
from djqueue.messages.metadata import carriers
from djqueue.policies.policy import Policy, placed
from djqueue.registry import Runnable
from djqueue.results import EnqueueStatus, Result
from djqueue.running.context import open_entry
from djqueue.running.executor import run_inline
from djqueue.running.instruments import instruments
from djqueue.utils import log_safely, slices
from djqueue.wiring import DESCRIBING, queues, why_no_facts

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
        if isinstance(given, dict) and all(isinstance(name, str) for name in given):
            return cls((), given)
        raise TypeError(f"enqueue_many() takes tuples (positional arguments) or dicts (by name), not {given!r}.")


class Enqueueable(Runnable, Protocol):
    """The part of a command that the producer needs; :class:`djqueue.enqueueing.command.Command` has it."""

    __name__: str
    whole: bool
    terms: Terms | None

    @property
    def declared(self) -> Enqueueable: ...
    def identity(self, call: Arguments, policy: Policy) -> tuple[dict[str, object], object]: ...
    def merged(self, merge: Callable[..., Any], waits: Arguments, new: Arguments) -> Call: ...


@dataclass(slots=True)
class PendingCall:
    """A call on its way."""

    terms: Terms
    entry: Entry
    guard: Guard | None
    sending: EnqueueStatus


SETTINGS = (
    *("QUEUE_ALWAYS_EAGER", "QUEUE_DEFAULT_PRIORITY", "QUEUE_MAX_MESSAGE_SIZE", "QUEUE_MODELS", "QUEUE_RESULT_TTL"),
    *("QUEUE_SERIALIZER", "SECRET_KEY", *DESCRIBING),
)
"""The settings that the terms of a call are made of."""


class Terms:
    """What the calls of a command with the same options have in common, prepared for as long as nothing changes.

    Raises InvalidQueueError, NotSupported, EncodeError, and what a function raises that is asked for an option.
    """

    def __init__(self, command: Enqueueable, given: Policy, version: conf.Version):
        self.given, self.version, self.command, self.name = given, version, command.declared, command.name
        self.declared = command.declared.policy
        self.alias = given.queue_name
        self.queue = queue = queues[given.queue_name]
        refuse_what_it_cannot(queue, given)
        self.policy = policy = given.resolved(queue.now)
        """The options, with the values of those that are functions."""
        self.holds = not (given.asks or (given.run_at and given.ttl is not None))
        """Whether the next call may have them too; a function, and the time, are asked again."""
        carried = {} if policy is self.declared else policy.overrides(self.declared)
        self.encoder = _encoder(command.name, queue.base_name, carried, policy)
        self.priority = conf.get("QUEUE_DEFAULT_PRIORITY") if policy.priority is None else policy.priority
        self.kept = policy.keeps_result > 0
        """Whether their results will be kept."""
        self.eager = conf.get("QUEUE_ALWAYS_EAGER")

    def pending(self, call: Arguments, id: str) -> PendingCall:
        """A call as it is put. Raises EncodeError, MessageTooLarge, and what a function for its shard or key raises."""
        policy, queue = self.policy, self.queue
        metadata = carriers.produce(queue.alias) if carriers.registered else {}
        if instruments.registered:
            metadata |= instruments.sent(queue.alias, self.name, id)
        data = self.encoder.encode(id, call[0], call[1], metadata)
        lane, gate, guard = "", "", None
        if policy.plan is not None:
            lane, gate = placed(policy.plan, self.name, self.command.as_asked(policy.plan.key, call))
        if policy.guarded:
            guard = policy.condition(self.name, *self.command.identity(call, policy))
        entry = Entry(data, id, self.priority, policy.run_at, policy.delay, lane, 0, 0, 0, 0.0, self.name, "", gate, "")
        pending_call = PendingCall(self, entry, guard, EnqueueStatus())
        if guard is not None:
            pending_call.sending.guard = guard.key
        return pending_call


def terms_of(command: Enqueueable, policy: Policy) -> Terms:
    """The terms of the calls of a command with these options: those of its last call, if nothing has changed since."""
    terms = command.terms
    version = conf.version(SETTINGS, None if terms is None else terms.version)
    if (
        terms is None
        or terms.given is not policy
        or terms.version is not version
        or terms.declared is not command.declared.policy
        or queues.made.get(terms.alias) is not terms.queue
    ):
        terms = Terms(command, policy, version)
        command.terms = terms if terms.holds else None
    return terms


def send(command: Enqueueable, calls: Sequence[tuple[Arguments, Policy]]) -> list[Result]:
    """Encode calls, each with its options, and put them, within the caller's transaction or when it commits.

    All go to the queue of the first call. Raises as :meth:`Command.enqueue` does. In eager mode they are run here.
    """
    if not calls:
        return []
    pending: list[PendingCall] = []
    results: list[Result] = []
    known: dict[int, Terms] = {}
    ids = [new_id()] if len(calls) == 1 else new_ids(len(calls))
    try:
        terms = terms_of(command, calls[0][1])
        queue = terms.queue
        for (call, policy), new in zip(calls, ids, strict=True):
            if policy is not terms.given or (pending and policy.asks):  # what is a function is asked at each call
                terms = (not policy.asks and known.get(id(policy))) or terms_of(command, policy)
                known[id(policy)] = terms
            pending.append(one := terms.pending(call, new))
            results.append(Result(new, command.name, terms.alias, terms.kept, one.sending))
        if command.whole and queue.database is None:
            _refuse_too_many(queue, command, pending)
        if terms.eager:
            _run_here(queue, pending)
            return results
        if queue.async_unsafe:
            _refuse_event_loop()
        if queue.on_commit is not None and connections[queue.on_commit].in_atomic_block:
            when_committed(queue.on_commit, _put_or_report, queue, pending)
        else:
            _put(queue, pending)
    except QueueError as error:
        error.add_note(f"In a call of {command.name}.")
        raise
    except SynchronousOnlyOperation as error:
        text = f"{command.name} is called in async code, where it would block the event loop"
        raise SynchronousOnlyOperation(f"{text}: await {command.__name__}.aenqueue(...)") from error
    return results


def _run_here(queue: BaseQueue, pending: Sequence[PendingCall]) -> None:
    for one in pending:
        run_inline(queue, one.entry, one.terms.command, one.terms.policy)
        one.sending.accepted = True


@async_unsafe("")
def _refuse_event_loop() -> None:
    """Raises SynchronousOnlyOperation in the thread of an event loop, as Django does for its databases."""


def send_once(command: Enqueueable, call: Arguments, policy: Policy, guard: OnceGuard, id: str) -> bool:
    """Put one call unless the guard's key was used; whether it was put.

    That is one atomic step, unless the call has a guard of its own. Then the key is used first, and a crash
    between the two steps loses the call.
    """
    terms = terms_of(command, policy)
    queue, pending_call = terms.queue, terms.pending(call, id)
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


def encoded(message: Message, policy: Policy) -> bytes:
    """A message, encoded by its options. Raises EncodeError, MessageTooLarge."""
    encoder = _encoder(message.command, message.queue, message.options, policy)
    return encoder.encode(message.id, message.args, message.kwargs, message.metadata)


def _encoder(command: str, queue: str, options: dict[str, Any], policy: Policy) -> Encoder:
    return Encoder(
        command,
        queue,
        options,
        serializer=policy.serializer or conf.get("QUEUE_SERIALIZER"),
        models=policy.models or conf.get("QUEUE_MODELS"),
        max_size=conf.get("QUEUE_MAX_MESSAGE_SIZE"),
    )


def refuse_what_it_cannot(queue: BaseQueue, policy: Policy) -> None:
    """Raises NotSupported if the options ask for more than the queue's backend can do."""
    if not policy.needs <= queue.features:
        lacking = policy.unsupported(queue.features) + why_no_facts(queue, policy.needs)
        raise NotSupported(f"{type(queue).__name__} ({policy.queue_name!r}) cannot do: {lacking}.")


def _refuse_too_many(queue: BaseQueue, command: Enqueueable, pending: Sequence[PendingCall]) -> None:
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
    """Put calls, which a database takes together or not at all, and announce them.

    Raises a StoreError that names the queue.
    """
    first, count = pending[0], len(pending)
    try:
        if count == 1 and first.guard is None:
            first.sending.accepted = queue.put_new(first.entry)
            if any(map(_receivers_of, _SIGNALS)):
                _announce(queue, pending)
        elif queue.database is not None and (count > _step_of(first) or _takes_several_steps(queue, pending)):
            with transaction.atomic(using=queue.database):
                _put_steps(queue, pending)
        else:
            _put_steps(queue, pending)
    except StoreError as error:
        raise error.of_queue(queue.alias) from None


def _step_of(first: PendingCall) -> int:
    """How many calls are put in one round trip: those that are merged go one by one."""
    return 1 if first.terms.policy.merge else CHUNK


def _put_steps(queue: BaseQueue, pending: Sequence[PendingCall]) -> None:
    for step in slices(pending, _step_of(pending[0])):
        try:
            if step[0].terms.policy.merge:
                answers = [_put_or_merge(queue, step[0])]
            else:
                guards = [one.guard for one in step]
                answers = queue.put([one.entry for one in step], guards if any(guards) else None)
        except PartialEnqueueError as error:
            _announce(queue, _decided(step, error))
            raise
        for one, accepted in zip(step, answers, strict=True):
            one.sending.accepted = accepted
        _announce(queue, step)


def _decided(step: Sequence[PendingCall], error: Exception) -> list[PendingCall]:
    """The calls that were put, or refused by their guards, before an error: none, unless the error names them."""
    if not isinstance(error, PartialEnqueueError):
        return []
    accepted, unsent = set(error.accepted), set(error.unsent)
    for pending_call in step:
        pending_call.sending.accepted = pending_call.entry.id in accepted
    return [pending_call for pending_call in step if pending_call.entry.id not in unsent]


def _announce(queue: BaseQueue, pending: Sequence[PendingCall]) -> None:
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
    alone = pending[0].terms.policy.merge is not None
    steps = [*slices(pending, _step_of(pending[0]))] if queue.database is None else [pending]
    for number, step in enumerate(steps):
        try:
            _put(queue, step)
        except Exception as error:
            lost = [step] if alone else steps[number:]  # a merge may fail for one call and not for the next
            decided = {pending_call.entry.id for pending_call in _decided(step, error)}
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
    command, policy, entry = pending_call.terms.command, pending_call.terms.policy, pending_call.entry
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
