"""Pausing and resuming a queue, a command or a schedule, for all consumers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

from djqueue import schedules
from djqueue.backends.base import BaseQueue, walk
from djqueue.backends.entries import DELAYED, READY, Entry
from djqueue.discovery import autodiscover
from djqueue.exceptions import NotSupported, QueueError
from djqueue.messages.failures import is_put_off
from djqueue.operations.actions import operator, record
from djqueue.operations.errors import InvalidInput
from djqueue.operations.messages import CHUNK
from djqueue.operations.paging import MOST_CHECKED
from djqueue.operations.queues import chosen
from djqueue.operations.reports import Kind, as_json, column, report_row
from djqueue.registry import registry
from djqueue.running import pauses as facts
from djqueue.running.pauses import COMMAND, KINDS, QUEUE, Pause, bring_up
from djqueue.running.shared import Shared, shared_stores
from djqueue.utils import near, seconds, slices
from djqueue.wiring import queues as all_queues


@report_row
class PauseRow:
    """A pause in the report of pauses."""

    kind: str = column("paused")
    """queue, command or schedule."""
    name: str = column("name", Kind.NAME, key=True)
    queue: str = column("queue", Kind.QUEUE)
    """The alias of the only queue in which a command or a schedule is paused; "" for all."""
    by: str = column("by", Kind.NAME)
    since: float = column("since", Kind.MOMENT)
    until: float | None = column("until", Kind.MOMENT)
    why: str = column("why")

    @classmethod
    def of(cls, one: Pause) -> PauseRow:
        return cls(one.kind, one.name, one.queue, one.by, one.since, one.until, one.why)


@as_json.register
def _(one: Pause) -> Any:
    return as_json(PauseRow.of(one))


def pauses(aliases: Iterable[str] | None = None) -> list[Pause]:
    """The pauses of these queues (all by default), oldest first.

    A pause of a queue has its alias as ``name``, and ``queue`` is an alias, where there is one.
    """
    return each_once(one for shared in shared_stores(chosen(aliases)) for one in pauses_of(shared))


def each_once(found: Iterable[Pause]) -> list[Pause]:
    """Pauses, oldest first; for a target paused in several stores, only the oldest pause."""
    by_key: dict[facts.Key, Pause] = {}
    for one in sorted(found, key=lambda one: one.since):
        by_key.setdefault(one.key, one)
    return [*by_key.values()]


def pauses_of(shared: Shared) -> list[Pause]:
    """The pauses of the queues of a store, with their aliases."""
    known = facts.read(shared.store)
    names = {queue.base_name: queue.alias for queue in shared.queues}
    now = shared.store.now() if known else 0.0
    return [_with_aliases(one, names) for one in known.at(now) if any(map(one.covers, shared.queues))]


def pause_of(queue: BaseQueue, known: Iterable[Pause], kind: str, name: str) -> Pause | None:
    """The known pause that holds up a queue, or a command in it; None for none."""
    return next((one for one in known if (one.kind, one.name) == (kind, name) and one.queue in ("", queue.alias)), None)


def pause(
    kind: str,
    name: str,
    queue: str | None = None,
    *,
    why: str = "",
    by: str = "",
    for_: float | timedelta | None = None,
    force: bool = False,
) -> bool:
    """Pause a queue (its alias), a command or a schedule (their names); whether it was not paused before.

    Consumers notice within about a second, and finish what they have begun. ``queue`` is the alias of the only queue
    in which a command or a schedule is paused. It ends after ``for_`` seconds, or else with :func:`resume`.
    Raises QueueError for a name that is not known, unless ``force`` is True, and NotSupported for a queue that keeps
    no facts.
    """
    _check(kind, name, queue, force)
    span = None if for_ is None else seconds(for_, "for_", least=1.0)
    paused: list[Shared] = []
    try:
        for shared in _stores(kind, name, queue):
            now = shared.store.now()
            until = None if span is None else now + span
            one = Pause(*_key(kind, name, queue), by or operator(), why, now, until)
            paused += [shared] if facts.add(shared.store, one, now) else []
    finally:
        _record("pause", paused, _words(kind, name, queue), by)
    return bool(paused)


def resume(kind: str, name: str, queue: str | None = None, *, by: str = "") -> bool:
    """Resume what :func:`pause` has paused; whether it was paused. Raises NotSupported as well."""
    _check(kind, name, queue, force=True)
    stores, resumed = _stores(kind, name, queue), []
    try:
        for shared in stores:
            resumed += [shared] if facts.drop(shared.store, _key(kind, name, queue), shared.store.now()) else []
    finally:
        _record("resume", resumed, _words(kind, name, queue), by)
    if kind == COMMAND:
        for one in (one for shared in stores for one in shared.queues):
            _bring_up(one, name)  # also if it was resumed before: a store may have failed then
    return bool(resumed)


def _record(action: str, stores: Sequence[Shared], words: str, by: str) -> None:
    """Record once what was done, even if a later store failed."""
    for shared in stores[:1]:
        record(shared.queues[0], action, words, 1, by)


def _bring_up(queue: BaseQueue, command: str) -> None:
    """Make messages of a command due now that consumers put off, even if these have died since.

    The first :data:`MOST_CHECKED` of what is delayed and of what is ready are checked, in their order.
    """
    if "inspect" not in queue.features:
        return
    delayed, ready = (_put_off(queue, command, state) for state in (DELAYED, READY))
    for ids in slices((entry.id for entry in delayed), CHUNK):
        bring_up(queue, ids, ())
    bring_up(queue, (), dict.fromkeys(entry.lane for entry in ready if entry.lane))


def _put_off(queue: BaseQueue, command: str, state: str) -> list[Entry]:
    """The messages of a command that were put off, among the first of a state."""
    found = (record.entry for record in walk(queue, state, MOST_CHECKED))
    return [one for one in found if one.command == command and is_put_off(one.errors, one.attempts)]


def _check(kind: str, name: str, queue: str | None, force: bool) -> None:
    """Raises ValueError for an unknown kind, InvalidQueueError for an unknown queue, QueueError for an unknown name."""
    if kind not in KINDS:
        raise InvalidInput(f"{kind!r} cannot be paused: {near(kind, KINDS)}")
    if kind == QUEUE and queue is not None:
        raise InvalidInput(f"pause('queue', {name!r}) takes no other queue: leave out queue={queue!r}.")
    alias = name if kind == QUEUE else queue
    chosen([alias] if alias else None)
    if kind == QUEUE or force:
        return
    autodiscover()
    names = [one.name for one in registry] if kind == COMMAND else _schedules(queue)
    if name not in names:
        raise QueueError(f"There is no {kind} {name!r}: {near(name, names) if names else 'there are none.'}")


def _schedules(queue: str | None) -> list[str]:
    """The names of all schedules: periodic commands, and schedules made at run time."""
    made = [one.name for one in schedules.list(queue)]
    return [*(one.name for one in registry.periodic()), *made]


def _stores(kind: str, name: str, queue: str | None) -> Sequence[Shared]:
    """The stores of the target queues. Raises NotSupported if one of them keeps no facts."""
    alias = name if kind == QUEUE else queue
    wanted = [all_queues[alias]] if alias else chosen(None)
    if alias and "facts" not in wanted[0].features:
        raise NotSupported(f"Queue {alias!r} cannot be paused: it has no store for facts. Give it one by STORE.")
    if not (stores := shared_stores(wanted)):
        raise NotSupported("No queue has a store for facts, so nothing can be paused. Give one a STORE in QUEUES.")
    return stores


def _key(kind: str, name: str, queue: str | None) -> tuple[str, str, str]:
    if kind == QUEUE:
        return QUEUE, all_queues[name].base_name, ""
    return kind, name, all_queues[queue].base_name if queue else ""


def _words(kind: str, name: str, queue: str | None) -> str:
    return f"{kind} {name}{f' of queue {queue}' if queue else ''}"


def _with_aliases(one: Pause, names: dict[str, str]) -> Pause:
    name = names.get(one.name, one.name) if one.kind == QUEUE else one.name
    return Pause(one.kind, name, names.get(one.queue, one.queue), one.by, one.why, one.since, one.until)
