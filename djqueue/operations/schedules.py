"""Schedules for operators: when each ticks next, the result of its last tick, and what can be done with it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple, cast

from django.utils import timezone

from djqueue import schedules as made_schedules
from djqueue.backends.base import BaseQueue
from djqueue.consumer.scheduler import PeriodicTracker, ScheduleTracker, Tracker, last_of
from djqueue.discovery import autodiscover
from djqueue.enqueueing.command import Call, Command, PeriodicCommand
from djqueue.enqueueing.producer import send
from djqueue.exceptions import QueueError
from djqueue.operations.actions import record
from djqueue.operations.reports import Kind, column, report_row
from djqueue.policies.policy import Policy
from djqueue.registry import registry
from djqueue.results import UNKNOWN, Result, statuses
from djqueue.running import pauses
from djqueue.running.pauses import SCHEDULE, Pause, Pauses
from djqueue.schedules import AnyCommand
from djqueue.timetables import EPOCH, ON_TIME, Calendar, Crontab, Interval, Recurrence, Ticking, Timetable
from djqueue.utils import near
from djqueue.wiring import queues as all_queues

EVERY_MINUTE = "asked every minute"
TICKING = (Ticking, Timetable)
"""What knows its next tick."""


@report_row
class ScheduleRow:
    """A periodic command, or a schedule that was made at run time. Moments are epoch seconds by the store's clock."""

    name: str = column("schedule", Kind.COMMAND, key=True)
    queue: str = column("queue", Kind.QUEUE)
    """The alias of its queue."""
    command: str = column("command", Kind.COMMAND)
    origin: str = column("origin", in_json=False)
    """Where it comes from, in words."""
    timetable: str = column("timetable")
    """When it ticks: in words, or the five fields of a crontab."""
    made: bool = column()
    """Whether it was made at run time, by ``schedules.add``."""
    next: float | None = column("next", Kind.MOMENT)
    """Its next tick; None if there is none, or if its rule is asked every minute."""
    last: float | None = column("last", Kind.MOMENT)
    """Its last tick that was checked; None if none has come since it was first seen."""
    outcome: str = column("outcome", Kind.STATE, optional=True)
    """The status of the message of that tick, as results have it; "" if nothing is known about it."""
    overdue: float | None = column("overdue", Kind.MOMENT, optional=True)
    """The tick after that, if it was more than a minute ago and no consumer has checked it; None for a paused one."""
    zone: str = column("zone", optional=True)
    """The time zone of its wall times; "" for an interval, which has none."""
    missed: str = column("missed")
    """What happens to ticks at which no consumer ran: ``latest``, ``skip`` or ``all``."""
    pause: Pause | None = column("paused", Kind.PAUSE, optional=True)
    """By whom it is paused, since when and why; None if it is not."""


class TrackedSchedule(NamedTuple):
    """A schedule before its store is asked about its last tick."""

    queue: BaseQueue
    tracker: Tracker
    command: str
    when: object
    """Its crontab, interval, rule or function."""
    made: bool
    missed: str
    since: datetime
    """It has no ticks before this moment."""
    now: datetime
    """The time of its store, by which consumers enqueue its ticks."""

    @property
    def name(self) -> str:
        return self.tracker.name

    @property
    def next(self) -> float | None:
        """Its next tick; None if there is none, or if its rule is asked every minute."""
        return _epoch(self.tick_after(max(self.since, self.now)))

    def tick_after(self, moment: datetime) -> datetime | None:
        """The first tick after a moment, if it is known in advance."""
        return self.when.next(moment) if isinstance(self.when, TICKING) else None


def schedules(queues: Sequence[BaseQueue] | None = None) -> list[ScheduleRow]:
    """The schedules of these queues, all by default, by queue and name."""
    return seen(known_schedules(queues))


def known_schedules(queues: Sequence[BaseQueue] | None = None) -> list[TrackedSchedule]:
    """The schedules of these queues without their last ticks, in one read for each queue."""
    autodiscover()
    chosen = [all_queues[alias] for alias in all_queues] if queues is None else queues
    return [one for queue in chosen for one in sorted(_of_queue(queue), key=lambda one: one.name)]


def seen(some: Sequence[TrackedSchedule]) -> list[ScheduleRow]:
    """The results of schedules: last ticks and results are read at once, and the history of each message."""
    found: dict[tuple[str, str], ScheduleRow] = {}
    for queue in dict.fromkeys(one.queue for one in some):
        own, keeps = [one for one in some if one.queue is queue], "facts" in queue.features
        kept = queue.store.get_many([one.tracker.key for one in own]) if keeps else [None] * len(own)
        paused = pauses.read(queue.store.shared) if keeps else Pauses()
        now = queue.now() if paused else 0.0
        ticks = [_last_of(last) for last in kept]
        for one, (last, has_ticked), outcome in zip(own, ticks, _outcomes(queue, own, ticks), strict=True):
            pause = paused.find(SCHEDULE, one.name, queue, now) if paused else None
            found[queue.alias, one.tracker.key] = _seen(one, last, has_ticked, outcome, pause)
    return [found[one.queue.alias, one.tracker.key] for one in some]


def run_now(name: str, by: str = "") -> Result:
    """Send the call of a schedule between its ticks; for a periodic command the last part of its name is enough.

    Raises QueueError for a name that is not known.
    """
    command, call, policy = _call_of(name)
    [result] = send(command, command.prepared_again(call, policy))
    record(all_queues[result.queue_name], "run schedule", name, 1, by)
    return result


def add(
    name: str,
    command: AnyCommand,
    args: Sequence[Any] = (),
    kwargs: dict[str, Any] | None = None,
    *,
    by: str = "",
    **when: Any,
) -> made_schedules.Schedule:
    """Make a schedule at run time, or replace that of this name; ``when`` is as for :func:`djqueue.schedules.add`.

    Raises what that raises, and QueueError for the name of a periodic command.
    """
    refuse_declared(name)
    is_new = made_schedules.named(name) is None
    schedule = made_schedules.add(name, command, args, kwargs, **when)
    record(all_queues[schedule.queue_name], f"{'add' if is_new else 'change'} schedule", name, 1, by)
    return schedule


def remove(name: str, by: str = "") -> bool:
    """Remove a schedule that was made at run time; whether there was one. Raises QueueError for a periodic command."""
    refuse_declared(name)
    where = next((one.queue_name for one in made_schedules.list() if one.name == name), "")
    removed = made_schedules.remove(name)
    if removed and where:
        record(all_queues[where], "remove schedule", name, 1, by)
    return removed


def refuse_declared(name: str) -> None:
    """Raises QueueError for a periodic command, which is not changed at run time."""
    autodiscover()
    if any(one.name == name for one in registry.periodic()):
        raise QueueError(f"{name} is declared in the code: change or remove it there, or pause it.")


def _call_of(name: str) -> tuple[Command[..., Any], Call, Policy]:
    """What a schedule sends. Raises QueueError for a name that is not known, UnknownCommand, InvalidMessage."""
    autodiscover()
    periodic = {one.name: cast("Command[..., Any]", one) for one in registry.periodic()}
    alike = [one for one in periodic if one.endswith(f".{name}")]
    name = alike[0] if len(alike) == 1 else name
    if name in periodic:
        return periodic[name], Call(), periodic[name].policy
    made = {one.name: one for one in made_schedules.list()}
    if name not in made:
        known = [*periodic, *made]
        raise QueueError(f"There is no schedule {name!r}: {near(name, known) if known else 'there are none.'}")
    command = cast("Command[..., Any]", registry.find(made[name].command))
    return command, Call(*made[name].call), made[name].policy(command)


def _of_queue(queue: BaseQueue) -> Iterator[TrackedSchedule]:
    own = [one for one in registry.periodic() if one.policy.queue_name == queue.alias]
    made = made_schedules.list(queue.alias) if "facts" in queue.features else []
    now = datetime.fromtimestamp(queue.now(), UTC) if own or made else EPOCH
    for command in own:
        if isinstance(command, PeriodicCommand):
            tracker: Tracker = PeriodicTracker(command)
            when, missed = command.validate_datetime, command.rule.missed
            yield TrackedSchedule(queue, tracker, command.name, when, False, missed, EPOCH, now)
    for one in made:
        tracker = ScheduleTracker(one)
        yield TrackedSchedule(
            queue, tracker, one.command, one.timetable, True, one.plan.rule.missed, one.plan.since, now
        )


def _outcomes(
    queue: BaseQueue, some: Sequence[TrackedSchedule], ticks: Sequence[tuple[datetime | None, bool]]
) -> list[str]:
    """What became of the messages of last ticks; "" where nothing is known."""
    pairs = zip(some, ticks, strict=True)
    ids = [one.tracker.id_of(last) if has_ticked and last is not None else "" for one, (last, has_ticked) in pairs]
    found = dict(zip(filter(None, ids), statuses(queue, [*filter(None, ids)]), strict=True))
    return ["" if found.get(id, UNKNOWN) == UNKNOWN else found[id] for id in ids]


def _seen(
    one: TrackedSchedule, last: datetime | None, has_ticked: bool, outcome: str, pause: Pause | None
) -> ScheduleRow:
    """``last`` is when its ticks were last checked: its last tick, or else when it was first seen."""
    alias, tick = one.queue.alias, last if has_ticked else None
    late = None if last is None or pause else one.tick_after(last)
    overdue = late if late is not None and late < one.now - ON_TIME else None
    timetable = str(one.when) if isinstance(one.when, TICKING) else EVERY_MINUTE
    origin = "made at run time" if one.made else "declared in the code"
    about = one.name, alias, one.command, origin, timetable, one.made
    ticks = one.next, _epoch(tick), outcome, _epoch(overdue)
    return ScheduleRow(*about, *ticks, _zone_of(one.when), one.missed, pause)


def _epoch(moment: datetime | None) -> float | None:
    return None if moment is None else moment.timestamp()


def _zone_of(when: object) -> str:
    if isinstance(when, Interval):
        return ""
    if isinstance(when, Recurrence):
        return when.zone
    own = when.crontab if isinstance(when, Calendar) else when
    given = own.time_zone if isinstance(own, Crontab) else None
    return str(given or timezone.get_default_timezone())


def _last_of(kept: bytes | None) -> tuple[datetime | None, bool]:
    """The moment up to which ticks were checked, if that can be read, and whether it was a tick."""
    try:
        return (None, False) if kept is None else last_of(kept)
    except (ValueError, OverflowError):  # not written by djqueue
        return None, False
