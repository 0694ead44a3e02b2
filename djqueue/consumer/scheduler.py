"""Enqueues periodic commands when they are due, each tick once, however many schedulers run."""

from __future__ import annotations

import logging
import time
import uuid
from collections import deque
from collections.abc import Callable, Sequence, Set
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from math import inf
from operator import attrgetter
from typing import Any, cast

from django.conf import settings
from django.utils import timezone

from djqueue import schedules
from djqueue.backends.base import BaseQueue, OnceGuard
from djqueue.backends.collections import CollectionState
from djqueue.consumer.loop import Loop, alike, run_all
from djqueue.enqueueing import producer
from djqueue.enqueueing.command import Call, Command, PeriodicCommand
from djqueue.flow.board import Line
from djqueue.policies.policy import Policy
from djqueue.registry import registry
from djqueue.running.instruments import Tick, current_tick
from djqueue.schedules import Schedule
from djqueue.timetables import Interval, Rule, Ticking
from djqueue.utils import clock, log_safely
from djqueue.wiring import queues

logger = logging.getLogger(__name__)

LONGEST_PAUSE = 60.0  # seconds
MARK_FOR = timedelta(days=7)  # a tick's mark outlives every tick that a scheduler could still look at
MOST_TICKS = 1000  # of one command, enqueued in one go after a long absence: the newest

OFTEN, SELDOM = 1.0, 5.0  # seconds between two looks for schedules made at run time, where there are some, and none
FRESH = 0.5  # seconds for which a look at the schedules is taken as current when one of them is due
FIRST_SEEN = b" first seen"
"""Behind the moment in the fact of a schedule that has had no tick yet: it begins then."""
NEVER, END = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
ATTENTIVE = timedelta(seconds=10)  # a scheduler that looked within this time has missed nothing
_TO_THE_MINUTE, _TO_THE_MICROSECOND = "%Y-%m-%dT%H:%MZ", "%Y-%m-%dT%H:%M:%S.%fZ"
PAUSED = 1.0  # seconds between two looks at a schedule that is paused
RACING = timedelta(minutes=10)  # by which the mark of a tick outlives what a slow scheduler may still enqueue

IsPaused = Callable[[BaseQueue, str], bool]
"""Whether operators have paused the schedule of a name in a queue."""
Now = Callable[[BaseQueue], datetime]
"""The time by the clock of the store of a queue, which is asked once in a tick."""


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
        aliases = {queue.alias for queue in served}
        periodic = (command for command in registry.periodic() if command.policy.queue_name in aliases)
        self._plans = [PeriodicPlan(one, is_paused) for one in periodic if isinstance(one, PeriodicCommand)]
        kept = [queue.alias for queue in served if "facts" in queue.features]
        self._boards = [ScheduleBoard(alias, is_paused, self.move, takes_over) for alias in kept]

    def tick(self) -> float:
        is_first = self.caught_up == inf and self._pauses_known()
        try:
            return self._all(ScheduleBoard.keep_up)
        finally:
            if is_first:
                self.caught_up = time.monotonic()

    def follow(self) -> float:
        """Enqueue all due ticks; seconds until one of the known schedules may have another."""
        return self._all(ScheduleBoard.follow)

    def _all(self, follow_board: Callable[[ScheduleBoard, Now], float]) -> float:
        now = cache(_now)
        plans = (partial(_follow_plans, some, now) for some in alike(self._plans, attrgetter("queue_name")))
        pause = run_all([*plans, *(partial(follow_board, board, now) for board in self._boards)], lambda step: step())
        return max(0.0, min(LONGEST_PAUSE, pause))

    def look(self) -> None:
        for board in self._boards:
            board.look()


def _now(queue: BaseQueue) -> datetime:
    """The time by the clock of the store."""
    return datetime.fromtimestamp(queue.now(), UTC)


def _follow_plans(plans: Sequence[PeriodicPlan], now: Now) -> float:
    """Enqueue what is due of plans of one queue; seconds until there may be more."""
    queue = queues[plans[0].queue_name]
    moment = now(queue)
    return run_all(plans, lambda plan: plan.serve(queue, moment))


class Tracker:
    """Something that is due again and again, and how far its ticks have been served."""

    _tick_format: str
    """Names a tick, by ``name`` and ``tick``."""
    _what: tuple[Command[..., Any], Call, Policy]
    """What is sent at each tick."""
    _keep_for: float | None = None
    """Seconds for which its last tick is remembered; None: for ever."""

    def __init__(self, name: str, queue_name: str, rule: Rule, mark_for: timedelta, key: str, is_paused: IsPaused):
        self.name = name
        self._is_paused = is_paused
        self.queue_name = queue_name
        self._rule = rule
        self._mark_for = mark_for
        self.key = key
        """Under which the store has its last tick."""
        self._served: datetime | None = None
        self._told: datetime | None = None
        """What the log says of when it is due next."""

    def serve(self, queue: BaseQueue, now: datetime) -> float:
        """Enqueue what is due at a moment of the store's clock; seconds until there may be more."""
        if self._served is None:
            self._served = self._recall(queue, now)
        if self._is_paused(queue, self.name):
            return PAUSED
        try:
            due, upcoming = self._due(self._served, now)
            if due:
                self._prepare()
        except Exception as error:  # the schedule's own: the others go on
            text = "The schedule of %s failed; it is asked again in a minute"
            log_safely(logger, logging.ERROR, text, self.name, exc_info=error)
            return LONGEST_PAUSE
        if due:
            self._enqueue(queue, due, now)
        self._served = now
        self._tell_next(queue, upcoming)
        return LONGEST_PAUSE if upcoming is None else min(LONGEST_PAUSE, (upcoming - now).total_seconds())

    def _tell_next(self, queue: BaseQueue, upcoming: datetime | None) -> None:
        """Log when it is due next, or asked next, whenever that has changed."""
        if upcoming != self._told and logger.isEnabledFor(logging.DEBUG):
            self._told, about = upcoming, {"event": "looked", "queue": queue.alias}
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

    def _recall(self, queue: BaseQueue, now: datetime) -> datetime:
        raise NotImplementedError

    def _next(self, after: datetime) -> datetime | None:
        raise NotImplementedError

    def _is_due(self, tick: datetime) -> bool:
        return True

    @property
    def _timetable(self) -> object:
        """Its crontab, interval or function."""
        raise NotImplementedError

    def _prepare(self) -> None:
        """Do the steps that may fail through a schedule's own fault, before any of it is enqueued."""

    def _picked(self, due: list[datetime], now: datetime) -> list[datetime]:
        return self._rule.pick(due, now)


class PeriodicPlan(Tracker):
    def __init__(self, command: PeriodicCommand[..., Any], is_paused: IsPaused):
        rule = command.rule
        ticks_often = isinstance(command.validate_datetime, Interval)
        mark_for = rule.max_lateness + RACING if ticks_often else max(MARK_FOR, 2 * rule.max_lateness)
        self._tick_format = f"{{name}}:{{tick:{_TO_THE_MICROSECOND if ticks_often else _TO_THE_MINUTE}}}"
        super().__init__(command.name, command.policy.queue_name, rule, mark_for, f"last:{command.name}", is_paused)
        self._schedule = command.validate_datetime
        self._what = command, Call(), command.policy

    def _next(self, after: datetime) -> datetime | None:
        """The next tick. A plain callable knows none: it is asked about every minute."""
        if isinstance(self._schedule, Ticking):
            return self._schedule.next(after)
        return after.replace(second=0, microsecond=0) + timedelta(minutes=1)

    def _is_due(self, tick: datetime) -> bool:
        return isinstance(self._schedule, Ticking) or self._schedule(local(tick))

    @property
    def _timetable(self) -> object:
        return self._schedule

    def _picked(self, due: list[datetime], now: datetime) -> list[datetime]:
        """All ticks of an interval since this scheduler looked, if that was just now: they are late, and not missed."""
        is_there = self._served is not None and now - self._served <= ATTENTIVE
        return due if is_there and isinstance(self._schedule, Interval) else super()._picked(due, now)

    def _recall(self, queue: BaseQueue, now: datetime) -> datetime:
        """The last tick that was served. A schedule that is seen for the first time begins now."""
        kept = queue.store.get(self.key)
        if kept is not None:
            return self._read(kept, queue, now)
        self._remember(queue, now, FIRST_SEEN)
        return now


class ScheduleBoard:
    """The schedules that were made at run time for one queue, as far as a scheduler has seen them.

    A look costs one small fact while no schedule changes, and a turn costs what is due in it, however many there are.
    """

    def __init__(
        self,
        queue_name: str,
        is_paused: IsPaused,
        move: Callable[[], None] = lambda: None,
        takes_over: bool = False,
    ):
        self._queue_name = queue_name
        self._is_paused = is_paused
        self._move = move
        """Called before each of the schedules that are due, which may be many."""
        self._known = CollectionState()
        self._plans: dict[str, ScheduleTracker] = {}
        self._line = Line()
        """The names of the plans, in the order in which they are due."""
        self._followed = NEVER
        """When due ticks were last looked for, by the clock of the store."""
        self._looked, self._look_at = clock() if takes_over else -inf, -inf

    def keep_up(self, now_of: Now) -> float:
        """Look, if it is time to, and enqueue all due ticks; seconds until either may be due again."""
        if clock() >= self._look_at:
            self.look()
        pause = self.follow(now_of)
        return min(pause, self._look_at - clock())

    def look(self) -> None:
        """Read the schedules that have changed. The others go on as they were."""
        queue = queues[self._queue_name]
        there = clock() - self._looked <= ATTENTIVE.total_seconds()
        known, news = schedules.collection(queue).read(self._known)
        if known is not self._known:
            opened = schedules.opened(queue, news)
            lasts = queue.store.get_many([schedules.last_key(name) for name in opened])
            pairs = zip(opened.values(), lasts, strict=True)
            fresh = [ScheduleTracker(one, there, last, self._is_paused) for one, last in pairs]
            self._replace(set(known.names()), news.keys(), fresh)
            self._known = known
        self._looked = clock()
        self._look_at = self._looked + (OFTEN if self._known.parts else SELDOM)

    def _replace(self, names: Set[str], news: Set[str], fresh: Sequence[ScheduleTracker]) -> None:
        for name in [name for name in self._plans if name not in names or name in news]:
            del self._plans[name]
            self._line.drop(name)
        for plan in fresh:
            self._plans[plan.name] = plan
            self._line.add(plan.name, (plan.upcoming,))

    def follow(self, now_of: Now) -> float:
        """Enqueue all due ticks; seconds until one of the known schedules may have another."""
        if not self._plans:
            return LONGEST_PAUSE
        queue = queues[self._queue_name]
        now = now_of(queue)
        if clock() - self._looked > FRESH and self._next_moment() <= now:
            self.look()  # it may have been replaced or removed since
        due, before, self._followed = self._take_due(now), self._followed, now
        try:
            run_all(due, lambda plan: self._serve(plan, queue, now, before))
        finally:
            for plan in due:
                self._line.add(plan.name, (plan.upcoming,))
        return min(LONGEST_PAUSE, (self._next_moment() - now).total_seconds())

    def _serve(self, plan: ScheduleTracker, queue: BaseQueue, now: datetime, before: datetime) -> None:
        self._move()
        plan.serve_due(queue, now, before)

    def _next_moment(self) -> datetime:
        """When the first of them is due; the end of time if there is none."""
        first = self._line.first()
        return END if first is None else self._line.keys[first][0]

    def _take_due(self, now: datetime) -> list[ScheduleTracker]:
        due = []
        while self._next_moment() <= now:
            due.append(self._plans[self._line.first()])
            self._line.drop(due[-1].name)
        return due


class ScheduleTracker(Tracker):
    """One schedule that was made at run time, and its last tick as the store has it.

    ``was_there``: this scheduler also looked a short time before.
    """

    _tick_format = f"schedule:{{name}}:{{tick:{_TO_THE_MICROSECOND}}}"

    def __init__(self, schedule: Schedule, was_there: bool, last: bytes | None, is_paused: IsPaused):
        rule = schedule.plan.rule
        mark_for = rule.max_lateness + RACING
        key = schedules.last_key(schedule.name)
        super().__init__(schedule.name, schedule.queue_name, rule, mark_for, key, is_paused)
        self._keep_for = mark_for.total_seconds()
        self._schedule = schedule
        self._was_there = was_there
        self._last = last
        self.upcoming = NEVER
        """When it is to be served again; in the past for a new one."""
        self._there: datetime | None = None
        """When this scheduler last looked for due ticks, if it served those that it saw."""

    def serve_due(self, queue: BaseQueue, now: datetime, before: datetime) -> None:
        """Enqueue what is due. ``before`` is when due ticks were looked for the last time."""
        if self._there is not None and before < self.upcoming:
            self._there = max(self._there, before)
        self.upcoming = now + timedelta(seconds=self.serve(queue, now))
        self._there = self._served if self._served == now else None

    def _next(self, after: datetime) -> datetime | None:
        return self._schedule.timetable.next(after)

    @property
    def _timetable(self) -> object:
        return self._schedule.timetable

    def _prepare(self) -> None:
        command = cast("Command[..., Any]", registry.find(self._schedule.command))
        self._what = command, *command.prepared_anew(Call(*self._schedule.call), self._schedule.policy(command))

    def _picked(self, due: list[datetime], now: datetime) -> list[datetime]:
        """All ticks since this scheduler looked, if that was just now: then they are only late, not missed.

        A tick from before it ran was missed, unless another scheduler ran, which has enqueued it or is about to.
        """
        if self._there is None or self._served is None or now - max(self._there, self._served) > ATTENTIVE:
            return super()._picked(due, now)
        return due

    def _recall(self, queue: BaseQueue, now: datetime) -> datetime:
        """The last tick that was served, but no tick from before the schedule was made."""
        since = self._schedule.plan.since
        last = since if self._last is None else max(since, self._read(self._last, queue, now))
        self._there = last if self._was_there else None
        return last
