"""Guards and budgets where the queue and its store are two technologies: no step can be atomic over both.

The mark is written first, by compare-and-set, so that of two producers only one puts. If its put fails the mark is set
back; if its process dies in between, calls are refused for up to a window although nothing waits.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from djqueue import signals
from djqueue.backends.entries import DELAYED, Claimed, Entry, untried
from djqueue.backends.guards import AnyGuard, Debounce, Mark, Ruling, rule
from djqueue.utils import tell

if TYPE_CHECKING:
    from djqueue.backends.base import BaseQueue
    from djqueue.backends.spending import Grant
    from djqueue.backends.store import BaseStore, Budget

logger = logging.getLogger(__name__)


def put_guarded(queue: BaseQueue, entry: Entry, guard: AnyGuard, put: Callable[[Entry], bool]) -> bool:
    """Put an entry if its guard lets it; whether it did."""
    try:
        ruling, was = _decided(queue.store, entry, guard)
    except Exception as error:
        if not isinstance(guard, Debounce):
            raise
        return _put_undecided(queue, entry, put, error)
    if not ruling.accept:
        return False
    accepted = False
    try:
        accepted = put(replace(entry, run_at=0.0, delay=ruling.delay) if ruling.delay else entry)
    finally:
        if not accepted:
            _set_back(queue.store, guard.key, was, ruling)
    return accepted


def _decided(store: BaseStore, entry: Entry, guard: AnyGuard) -> tuple[Ruling, bytes | None]:
    """What the guard decides, once its mark is written, and the mark before. Nobody else came between."""
    while True:
        now, was = store.now(), store.get(guard.key)
        mark = None if was is None else Mark.read(was)
        # Nobody can tell here what became of an entry, nor postpone it: it waits until it was to be due.
        state = DELAYED if mark is not None and mark.at > now * 1e6 else None
        ruling = rule(guard, entry, mark, state, now)
        if not ruling.accept or store.swap(guard.key, was, ruling.mark.written(), ruling.ttl):
            return ruling, was


def _put_undecided(queue: BaseQueue, entry: Entry, put: Callable[[Entry], bool], error: Exception) -> bool:
    """A debounced command bears to be run too often; not to be forgotten."""
    text = "%s: the store of %s cannot say whether a debounced call counts, so it does"
    tell(logger, logging.ERROR, text, entry.label, queue.alias, exc_info=error)
    signals.emit(signals.debounce_failed, entry.label, id=entry.id, queue_name=queue.alias, exception=error)
    return put(entry)


def _set_back(store: BaseStore, key: str, was: bytes | None, ruling: Ruling) -> None:
    mark = ruling.mark.written()
    if was is None:
        store.drop(key, mark)
    else:
        store.swap(key, mark, was, ruling.ttl)


def claim_within(queue: BaseQueue, budget: Budget, limit: int, lease: float, owner: str, begin: bool) -> Claimed:
    """Spend first, claim then, hand back what was not used: a crash in between costs slots, and no entry."""
    store = queue.store.shared
    grant = store.take(budget, limit)
    if not grant.count:
        return Claimed((), grant.again, grant.why)
    claimed = Claimed()
    try:
        claimed = queue.claim(grant.count, lease, owner, begin=begin)
    finally:
        if len(claimed) < grant.count:
            store.give(budget, grant, grant.count - len(claimed))
    return _as_granted(queue, claimed, grant, budget, limit)


def _as_granted(queue: BaseQueue, claimed: Claimed, grant: Grant, budget: Budget, limit: int) -> Claimed:
    """No more than the budget allows: a run may be longer than the units asked for; and when more may come."""
    spent = grant.count
    if len(claimed) < spent or len(claimed) == spent == limit:
        return claimed
    if len(claimed) > spent:
        grant = queue.store.shared.take(budget, len(claimed) - spent)
        spent += grant.count
    if surplus := claimed[spent:]:
        queue.release([untried(lease) for lease in surplus])
    return Claimed(claimed[:spent], grant.again, grant.why)
