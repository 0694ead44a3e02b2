"""Enqueues what is due, periodic commands and schedules made at run time: each tick once, by one of all schedulers."""

from __future__ import annotations

import logging
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import count
from math import inf
from typing import Any, ClassVar, cast

from django.conf import settings
from django.utils import timezone

from djqueue import schedules
from djqueue.backends.base import BaseQueue, OnceGuard
from djqueue.backends.collections import NOTHING
from djqueue.consumer.loop import Loop, run_all
from djqueue.enqueueing import producer
from djqueue.enqueueing.command import Call, Command, PeriodicCommand
from djqueue.flow.board import Line
from djqueue.messages.codecs import Arguments
from djqueue.policies.policy import Policy
from djqueue.registry import registry
from djqueue.running.instruments import Tick, current_tick
from djqueue.schedules import Schedule
from djqueue.timetables import Interval, Rule, Ticking
from djqueue.utils import clock, log_safely
from djqueue.wiring import queues

logger = logging.getLogger(__name__)

LONGEST_PAUSE = 60.0  # seconds
LONGEST_REST = timedelta(seconds=LONGEST_PAUSE)
MARK_FOR = timedelta(days=7)  # a tick's mark outlives every tick that a scheduler could still look at
MOST_TICKS = 1000  # of one command, enqueued in one go after a long absence: the newest

OFTEN, SELDOM = 1.0, 5.0  # seconds between two reads of schedules made at run time, where there are some, and none
FRESH = 0.5  # seconds for which what was read of them is taken as current when one of them is due
KNOWN_FOR = 600.0  # seconds after which all are read again: a process may have died halfway through a change
FIRST_SEEN = b" first seen"
"""Behind the moment in the fact of a schedule that has had no tick yet: it begins then."""
NEVER, END = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
ATTENTIVE = timedelta(seconds=10)  # a scheduler that looked within this time has missed nothing
_TO_THE_MINUTE, _TO_THE_MICROSECOND = "%Y-%m-%dT%H:%MZ", "%Y-%m-%dT%H:%M:%S.%fZ"
PAUSED = timedelta(seconds=1)  # between two checks of a schedule that is paused
RACING = timedelta(minutes=10)  # by which the mark of a tick outlives what a slow scheduler may still enqueue

IsPaused = Callable[[BaseQueue, str], bool]
"""Whether operators have paused the schedule of a name in a queue."""
_numbers = count()


def last_of(kept: bytes) -> tuple[datetime, bool]:
    """The moment in the fact of a schedule, and whether it was a tick. Raises ValueError or OverflowError."""
    text = kept.removesuffix(FIRST_SEEN)
    return datetime.fromisoformat(text.decode()).astimezone(UTC), text == kept


def local(moment: datetime) -> datetime:
    """The time that a plain callable is asked about: local, and naive if the project's times are."""
    return timezone.localtime(moment) if settings.USE_TZ else timezone.make_naive(moment)


class Scheduler(Loop):
    """Enqueues due ticks. The store keeps the last tick, so that an absence of all schedulers is noticed.

    ``takes_over``: another process of the same consumer did so just before. Ticks since are late, not missed.
    """

    def __init__(
        self,
        served: Sequence[BaseQueue],
        is_paused: IsPaused = lambda queue, name: False,
        pauses_known: Callable[[], bool] = lambda: True,
        takes_over: bool = False,
    ):
        super().__init__(f"djqueue-scheduler-{served[0].alias}")
        self._pauses_known = pauses_known
        self.caught_up = inf
        """When the first tick ended that began with the pauses known (monotonic)."""
        self._boards = [ScheduleBoard(queue.alias, is_paused, self.move, takes_over) for queue in served]

    def tick(self) -> float:
        is_first = self.caught_up == inf and self._pauses_known()
        try:
            return self._all(ScheduleBoard.tick)
        finally:
            if is_first:
                self.caught_up = time.monotonic()

    def follow(self) -> float:
        """Enqueue all due ticks; seconds until one of the known schedules may have another."""
        return self._all(ScheduleBoard.follow)

    def refresh(self) -> None:
        """Read what has changed of the schedules made at run time."""
        run_all(self._boards, ScheduleBoard.refresh)

    def _all(self, do: Callable[[ScheduleBoard], float]) -> float:
        return max(0.0, min(LONGEST_PAUSE, run_all(self._boards, do)))


class ScheduleBoard:
    """What is due again and again in one queue: periodic commands, and schedules that were made at run time.

    One turn asks for the time of the store once, and costs what is due in it, however many there are. While no schedule
    changes, a refresh reads one small fact.
    """

    def __init__(
        self, queue_name: str, is_paused: IsPaused, move: Callable[[], None] = lambda: None, takes_over: bool = False
    ):
        self._queue_name = queue_name
        self._is_paused = is_paused
        self._move = move
        """Called before each of those that are due, which may be many."""
        self._trackers: dict[str, Tracker] = {}
        """By the keys of their last ticks."""
        self._line = Line()
        """Their keys, in the order in which they are due."""
        self._paused: list[Tracker] = []
        """Those that were paused in the last turn: they go on in the first one in which they are not."""
        self._followed = NEVER
        """When due ticks were last enqueued, by the clock of the store."""
        self._known = NOTHING
        """The schedules made at run time, as they were read."""
        self._refreshed, self._refresh_at, self._forget_at = clock() if takes_over else -inf, -inf, -inf
        for command in registry.periodic():
            if isinstance(command, PeriodicCommand) and command.policy.queue_name == queue_name:
                self._add(PeriodicTracker(command))

    def tick(self) -> float:
        """Refresh, if it is time to, and enqueue all due ticks; seconds until either may be due again."""
        return run_all([self._refresh_in_time, self.follow], lambda step: step())

    def _refresh_in_time(self) -> float:
        if clock() >= self._refresh_at:
            self.refresh()
        return self._refresh_at - clock()

    def refresh(self) -> None:
        """Read the schedules made at run time, if one has changed. The others go on as they were."""
        queue = queues[self._queue_name]
        if "facts" in queue.features:
            self._update(queue, clock() - self._refreshed <= ATTENTIVE.total_seconds())
        self._refreshed = clock()
        self._refresh_at = self._refreshed + (OFTEN if self._known.values else SELDOM)

    def _update(self, queue: BaseQueue, was_there: bool) -> None:
        is_old = clock() >= self._forget_at
        known = schedules.collection(queue).read(NOTHING if is_old else self._known)
        if known is self._known:
            return
        was = self._known.values
        for name in was:
            if known.values.get(name) != was[name]:
                self._drop(schedules.last_key(name))
        news = {name: body for name, body in known.values.items() if was.get(name) != body}
        for schedule in schedules.opened(queue, news).values():
            self._add(ScheduleTracker(schedule, was_there))
        self._known = known
        if is_old:
            self._forget_at = clock() + KNOWN_FOR

    def follow(self) -> float:
        """Enqueue all due ticks; seconds until there may be more."""
        if not self._trackers:
            return LONGEST_PAUSE
        queue = queues[self._queue_name]
        now = datetime.fromtimestamp(queue.now(), UTC)
        # If the clock of the store was set back, what they wait for may be far away.
        self._have_due(self._trackers.values() if now < self._followed else self._paused)
        self._paused = []
        due, before, self._followed = self._take_due(now), self._followed, now
        try:
            new = [one.key for one in due if one.is_new]
            lasts = dict(zip(new, queue.store.get_many(new), strict=True)) if new else {}
            run_all(self._current(due), lambda one: self._serve(one, queue, lasts, now, before))
        finally:
            for one in due:
                if self._trackers.get(one.key) is one:
                    self._add(one)
        return min(LONGEST_PAUSE, (self._next_moment() - now).total_seconds())

    def _current(self, due: Sequence[Tracker]) -> Iterator[Tracker]:
        """Those that are due and still there: what was made at run time may have been replaced or removed since."""
        for one in sorted(due, key=lambda one: one.may_change):
            if one.may_change and clock() - self._refreshed > FRESH:
                self.refresh()  # if this fails, the others have been served
            if self._trackers.get(one.key) is one:
                yield one

    def _serve(
        self, one: Tracker, queue: BaseQueue, lasts: Mapping[str, bytes | None], now: datetime, before: datetime
    ) -> None:
        self._move()
        if one.is_new:
            one.recall(queue, lasts[one.key], now)
        if self._is_paused(queue, one.name):
            one.rest(now + PAUSED)
            self._paused.append(one)
        else:
            one.serve(queue, now, before)

    def _have_due(self, some: Iterable[Tracker]) -> None:
        """Serve some in this turn, as far as they are still there."""
        for one in some:
            if self._trackers.get(one.key) is one:
                one.upcoming = NEVER
                self._add(one)

    def _add(self, one: Tracker) -> None:
        self._trackers[one.key] = one
        self._line.add(one.key, (one.upcoming, one.number))

    def _drop(self, key: str) -> None:
        self._trackers.pop(key, None)
        self._line.drop(key)

    def _next_moment(self) -> datetime:
        """When the first of them is due; the end of time if there is none."""
        first = self._line.first()
        return END if first is None else self._line.keys[first][0]

    def _take_due(self, now: datetime) -> list[Tracker]:
        due = []
        while self._next_moment() <= now:
            due.append(self._trackers[self._line.first()])
            self._line.drop(due[-1].key)
        return due


class Tracker:
    """Something that is due again and again, and how far its ticks have been served.

    ``was_there``: this scheduler, or one before it, also ran a short time before it saw this for the first time.
    """

    may_change: ClassVar[bool] = False
    """Whether it is replaced or removed while a consumer runs."""
    _tick_format: str
    """Names a tick, by ``name`` and ``tick``."""
    _what: tuple[Command[..., Any], Arguments, Policy]
    """What is sent at each tick."""
    _keep_for: float | None = None
    """Seconds for which its last tick is remembered; None: for ever."""

    def __init__(self, name: str, key: str, timetable: Any, rule: Rule, mark_for: timedelta, was_there: bool):
        self.name = name
        self.key = key
        """Under which the store has its last tick."""
        self.number = next(_numbers)
        """Of those that are due at one moment, the lowest is first."""
        self.upcoming = NEVER
        """When it is served again; in the past for a new one."""
        self._timetable = timetable
        """Its crontab, interval, rule or function."""
        self._rule = rule
        self._mark_for = mark_for
        self._was_there = was_there
        self._served: datetime | None = None
        self._there: datetime | None = None
        """When this scheduler last enqueued due ticks, if it served those that it saw."""
        self._logged: datetime | None = None
        """What the log says of when it is due next."""

    @property
    def is_new(self) -> bool:
        """Whether its last tick has not been recalled yet."""
        return self._served is None

    def recall(self, queue: BaseQueue, kept: bytes | None, now: datetime) -> None:
        """Begin behind the last tick as the store has it; without one, where its kind begins."""
        self._served = self._first(queue, now) if kept is None else self._read(kept, queue, now)
        self._there = self._served if self._was_there else None

    def rest(self, until: datetime) -> None:
        """Serve nothing before a moment. Ticks in between will have been missed."""
        self.upcoming, self._there = until, None

    def serve(self, queue: BaseQueue, now: datetime, before: datetime) -> None:
        """Enqueue what is due at a moment of the store's clock. ``before`` is when that was done the last time."""
        assert self._served is not None
        if self._there is not None and before < self.upcoming:
            self._there = max(self._there, before)
        try:
            due, upcoming = self._due(self._served, now)
            if due:
                self._prepare()
        except Exception as error:  # the schedule's own: the others go on
            text = "The schedule of %s failed; it is asked again in a minute"
            log_safely(logger, logging.ERROR, text, self.name, exc_info=error)
            return self.rest(now + LONGEST_REST)
        if due:
            self._enqueue(queue, due, now)
        self._served = self._there = now
        self._log_next(queue, upcoming)
        self.upcoming = now + LONGEST_REST if upcoming is None else min(now + LONGEST_REST, upcoming)

    def _log_next(self, queue: BaseQueue, upcoming: datetime | None) -> None:
        """Log when it is due next, or asked next, whenever that has changed."""
        if upcoming != self._logged and logger.isEnabledFor(logging.DEBUG):
            self._logged, about = upcoming, {"event": "looked", "queue": queue.alias}
            when = "is not due any more" if upcoming is None else f"is looked at next at {local(upcoming).isoformat()}"
            log_safely(logger, logging.DEBUG, "%s %s", self.name, when, extra=about)

    def _due(self, served: datetime, now: datetime) -> tuple[list[datetime], datetime | None]:
        """The ticks after the served ones, up to now, and the first later moment that is worth a look."""
        tick: datetime | None = max(served, now - self._rule.max_lateness - timedelta(minutes=1))
        due: deque[datetime] = deque(maxlen=MOST_TICKS)
        while tick is not None and (tick := self._next(tick)) is not None and tick <= now:
            if self._is_due(tick):
                due.append(tick)
        return list(due), tick

    def _enqueue(self, queue: BaseQueue, due: list[datetime], now: datetime) -> None:
        for tick in self._picked(due, now):
            id = self.id_of(tick)
            if self._send(OnceGuard(f"tick:{self._named(tick)}", self._mark_for.total_seconds()), id):
                about = {"event": "enqueued", "queue": queue.alias, "command": self.name, "message_id": id}
                log_safely(logger, logging.INFO, "%s is due at %s: enqueued", self.name, tick.isoformat(), extra=about)
            self._served = tick  # the next one may fail
        self._remember(queue, due[-1])

    def id_of(self, tick: datetime) -> str:
        """The id of the message that a tick enqueues."""
        return uuid.uuid5(uuid.NAMESPACE_URL, f"djqueue:{self._named(tick)}").hex

    def _named(self, tick: datetime) -> str:
        return self._tick_format.format(name=self.name, tick=tick)

    def _send(self, guard: OnceGuard, id: str) -> bool:
        token = current_tick.set(Tick(self.name, self._timetable))
        try:
            return producer.send_once(*self._what, guard, id)
        finally:
            current_tick.reset(token)

    def _read(self, kept: bytes, queue: BaseQueue, now: datetime) -> datetime:
        """The last tick as the store has it; now, and an error in the log, if that cannot be read."""
        try:
            return last_of(kept)[0]
        except (ValueError, OverflowError):
            text = "The last tick of %s cannot be read, so it begins now: %.100r"
            log_safely(logger, logging.ERROR, text, self.name, kept)
            self._remember(queue, now, FIRST_SEEN)
            return now

    def _remember(self, queue: BaseQueue, moment: datetime, mark: bytes = b"") -> None:
        """Keep the last tick, or with a mark when it was first seen."""
        queue.store.put(self.key, moment.isoformat().encode() + mark, self._keep_for)

    def _first(self, queue: BaseQueue, now: datetime) -> datetime:
        """Where it begins if it never ticked."""
        raise NotImplementedError

    def _next(self, after: datetime) -> datetime | None:
        return self._timetable.next(after)

    def _is_due(self, tick: datetime) -> bool:
        return True

    def _prepare(self) -> None:
        """Do the steps that may fail through a schedule's own fault, before any of it is enqueued."""

    def _picked(self, due: list[datetime], now: datetime) -> list[datetime]:
        """All ticks since this scheduler enqueued, if that was just now: then they are only late, not missed.

        A tick from before it ran was missed, unless another scheduler ran, which has enqueued it or is about to.
        """
        if self._there is None or self._served is None or now - max(self._there, self._served) > ATTENTIVE:
            return self._rule.pick(due, now)
        return due


class PeriodicTracker(Tracker):
    """A periodic command. A schedule that is seen for the first time begins at that moment."""

    def __init__(self, command: PeriodicCommand[..., Any]):
        rule, timetable = command.rule, command.validate_datetime
        ticks_often = isinstance(timetable, Interval)
        mark_for = rule.max_lateness + RACING if ticks_often else max(MARK_FOR, 2 * rule.max_lateness)
        self._tick_format = f"{{name}}:{{tick:{_TO_THE_MICROSECOND if ticks_often else _TO_THE_MINUTE}}}"
        super().__init__(command.name, f"last:{command.name}", timetable, rule, mark_for, was_there=True)
        self._what = command, Call(), command.policy

    def _first(self, queue: BaseQueue, now: datetime) -> datetime:
        self._remember(queue, now, FIRST_SEEN)
        return now

    def _next(self, after: datetime) -> datetime | None:
        """The next tick. A plain callable knows none: it is asked about every minute."""
        if isinstance(self._timetable, Ticking):
            return super()._next(after)
        return after.replace(second=0, microsecond=0) + timedelta(minutes=1)

    def _is_due(self, tick: datetime) -> bool:
        return isinstance(self._timetable, Ticking) or self._timetable(local(tick))

    def _picked(self, due: list[datetime], now: datetime) -> list[datetime]:
        return super()._picked(due, now) if isinstance(self._timetable, Interval) else self._rule.pick(due, now)


class ScheduleTracker(Tracker):
    """A schedule that was made at run time. It has no tick from before it was made."""

    may_change = True
    _tick_format = f"schedule:{{name}}:{{tick:{_TO_THE_MICROSECOND}}}"

    def __init__(self, schedule: Schedule, was_there: bool = False):
        rule, key = schedule.plan.rule, schedules.last_key(schedule.name)
        mark_for = rule.max_lateness + RACING
        super().__init__(schedule.name, key, schedule.timetable, rule, mark_for, was_there)
        self._keep_for = mark_for.total_seconds()
        self._schedule = schedule

    def _first(self, queue: BaseQueue, now: datetime) -> datetime:
        return self._schedule.plan.since

    def _read(self, kept: bytes, queue: BaseQueue, now: datetime) -> datetime:
        return max(self._schedule.plan.since, super()._read(kept, queue, now))

    def _prepare(self) -> None:
        command = cast("Command[..., Any]", registry.find(self._schedule.command))
        [(call, policy)] = command.prepared_again(self._schedule.call, self._schedule.policy(command))
        self._what = command, call, policy
