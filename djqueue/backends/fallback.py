"""How an entry travels through a queue that knows only text: one JSON line around its body."""

from __future__ import annotations

import json
import logging
from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from math import inf
from typing import Protocol

from djqueue import signals
from djqueue.backends.entries import DELAYED, Claimed, Entry, Lease, untried
from djqueue.backends.guards import AnyGuard, Debounce, Decision, DedupMark, rule
from djqueue.backends.stores import BaseStore, Budget, Grant
from djqueue.messages.envelope import new_id
from djqueue.utils import tell

logger = logging.getLogger(__name__)

_MARK = "djq:"
_FIELDS = {field.name: field.default for field in fields(Entry) if field.name not in ("body", "delay", "hold")}


def due(entry: Entry, now: float) -> Entry:
    """The entry with its delay turned into a moment."""
    return replace(entry, run_at=now + entry.delay, delay=0.0) if entry.delay else entry


def stamped(entry: Entry, now: float) -> Entry:
    """The entry as it is on arrival."""
    return replace(due(entry, now), created=now)


def pack(entry: Entry) -> str:
    """An entry as one text; what a field says by default is left out."""
    head = {name: value for name, default in _FIELDS.items() if (value := getattr(entry, name)) != default}
    return f"{_MARK}{json.dumps(head)}\n{b64encode(entry.body).decode()}"


def unpack(text: str) -> Entry:
    """The entry in a text; text that ``pack`` did not write is an entry of its own, whose body is that text."""
    try:
        mark, head, body = text[: len(_MARK)], *text[len(_MARK) :].split("\n", 1)
        if mark != _MARK:
            raise ValueError("not written by pack")
        known = {name: value for name, value in json.loads(head).items() if name in _FIELDS}
        return Entry(b64decode(body, validate=True), **known)
    except (ValueError, TypeError, AttributeError):
        return Entry(text.encode("utf-8", "surrogateescape"), new_id())


class FourVerbs(Protocol):
    """A queue of texts."""

    alias: str

    def write(self, data: str) -> None: ...
    def read(self) -> str | None: ...
    def __len__(self) -> int: ...


def read_due(queue: FourVerbs, limit: int, now: float, ready: list[Lease], early: dict[str, float]) -> None:
    """Read until ``limit`` are due or all that wait were seen; of the early ones, in how many seconds they are due.

    Those go to the end at once, so that never more than one is nowhere but here.
    """
    left = inf
    while len(ready) < limit and left > 0 and (text := queue.read()) is not None:
        entry = unpack(text)
        if entry.run_at <= now:
            ready.append(Lease(replace(entry, attempts=entry.attempts + 1), claimed=now))
        else:
            queue.write(pack(entry))
            left = 0 if entry.id in early else min(left, len(queue))
            early[entry.id] = entry.run_at - now
        left -= 1


def write_back(queue: FourVerbs, leases: Sequence[Lease], now: float) -> list[Lease]:
    """Write the entries of leases; those that were written. Raises only if that was none: a retry would repeat them."""
    written = []
    for lease in leases:
        try:
            queue.write(pack(due(lease.entry, now)))
        except Exception:
            if not written:
                raise
            extra = {"queue": queue.alias, "message_id": lease.entry.id}
            tell(logger, logging.ERROR, "An entry could not be put back and is lost.", exc_info=True, extra=extra)
        else:
            written.append(lease)
    return written


# ---- Guards and budgets where the queue and its store are two technologies: no step can be atomic over both.


logger = logging.getLogger(__name__)


class QueueWithStore(Protocol):
    """A queue whose facts are kept somewhere else."""

    alias: str
    store: BaseStore

    def claim(
        self, limit: int = 1, lease: float = 60.0, owner: str = "", ahead: int = 0, begin: bool = True
    ) -> Claimed: ...
    def release(self, leases: Sequence[Lease]) -> list[Lease]: ...


def put_guarded(queue: QueueWithStore, entry: Entry, guard: AnyGuard, put: Callable[[Entry], bool]) -> bool:
    """Put an entry if its guard lets it; whether it did."""
    try:
        decision, was = _decided(queue.store, entry, guard)
    except Exception as error:
        if not isinstance(guard, Debounce):
            raise
        return _put_undecided(queue, entry, put, error)
    if not decision.accept:
        return False
    accepted = False
    try:
        accepted = put(replace(entry, run_at=0.0, delay=decision.delay) if decision.delay else entry)
    finally:
        if not accepted:
            _set_back(queue.store, guard.key, was, decision)
    return accepted


def _decided(store: BaseStore, entry: Entry, guard: AnyGuard) -> tuple[Decision, bytes | None]:
    """What the guard decides, once its mark is written, and the mark before. Nobody else came between."""
    while True:
        now, was = store.now(), store.get(guard.key)
        mark = None if was is None else DedupMark.read(was)
        # Nobody can tell here what became of an entry, nor postpone it: it waits until it was to be due.
        state = DELAYED if mark is not None and mark.at > now * 1e6 else None
        decision = rule(guard, entry, mark, state, now)
        if not decision.accept or store.swap(guard.key, was, decision.mark.written(), decision.ttl):
            return decision, was


def _put_undecided(queue: QueueWithStore, entry: Entry, put: Callable[[Entry], bool], error: Exception) -> bool:
    """A debounced command bears to be run too often; not to be forgotten."""
    text = "%s: the store of %s cannot say whether a debounced call counts, so it does"
    tell(logger, logging.ERROR, text, entry.command, queue.alias, exc_info=error)
    signals.emit(signals.debounce_failed, entry.command, id=entry.id, queue_name=queue.alias, exception=error)
    return put(entry)


def _set_back(store: BaseStore, key: str, was: bytes | None, decision: Decision) -> None:
    mark = decision.mark.written()
    if was is None:
        store.drop(key, mark)
    else:
        store.swap(key, mark, was, decision.ttl)


def claim_within(queue: QueueWithStore, budget: Budget, limit: int, lease: float, owner: str, begin: bool) -> Claimed:
    """Spend first, claim then, hand back what was not used: a crash in between costs slots, and no entry."""
    store = queue.store.shared
    grant = store.take(budget, limit)
    if not grant.count:
        return Claimed((), grant.retry_after, grant.reason)
    claimed = Claimed()
    try:
        claimed = queue.claim(grant.count, lease, owner, begin=begin)
    finally:
        if len(claimed) < grant.count:
            store.give(budget, grant, grant.count - len(claimed))
    return _as_granted(queue, claimed, grant, budget, limit)


def _as_granted(queue: QueueWithStore, claimed: Claimed, grant: Grant, budget: Budget, limit: int) -> Claimed:
    """No more than the budget allows: a run may be longer than the units asked for; and when more may come."""
    spent = grant.count
    if len(claimed) < spent or len(claimed) == spent == limit:
        return claimed
    if len(claimed) > spent:
        grant = queue.store.shared.take(budget, len(claimed) - spent)
        spent += grant.count
    if surplus := claimed[spent:]:
        queue.release([untried(lease) for lease in surplus])
    return Claimed(claimed[:spent], grant.retry_after, grant.reason)
