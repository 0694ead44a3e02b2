"""Enqueues periodic commands when they are due, each tick once, however many schedulers run."""

from __future__ import annotations

import logging
import uuid
from collections import deque
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from django.conf import settings
from django.utils import timezone

from djqueue import producer
from djqueue.backends.base import BaseQueue, Guard
from djqueue.command import PeriodicCommand
from djqueue.consumer.loop import Loop, each
from djqueue.crontab import Crontab
from djqueue.logs import tell
from djqueue.queues import queues
from djqueue.registry import registry

logger = logging.getLogger(__name__)

LONGEST_PAUSE = 60.0  # seconds
MARK_FOR = timedelta(days=7)  # a tick's mark outlives every tick that could still be looked at
MOST_TICKS = 1000  # of one command, enqueued in one go after a long absence: the newest


def local(moment: datetime) -> datetime:
    """The time that a plain callable is asked about: local, and naive if the project's times are."""
    return timezone.localtime(moment) if settings.USE_TZ else timezone.make_naive(moment)


class Scheduler(Loop):
    """Remembers in the store which tick was the last, so that an absence of all schedulers is noticed."""

    def __init__(self, served: Sequence[BaseQueue]):
        super().__init__("djqueue-scheduler")
        aliases = {queue.alias for queue in served}
        self._plans = [Plan(command) for command in registry.periodic() if command.policy.queue_name in aliases]

    def tick(self) -> float:
        return max(0.0, min(LONGEST_PAUSE, each(self._plans, Plan.follow)))


class Plan:
    """One periodic command, and how far its ticks have been served."""

    def __init__(self, command: PeriodicCommand):
        self._command = command
        self._schedule = command.validate_datetime
        self._key = f"last:{command.name}"
        self._served: datetime | None = None

    def follow(self) -> float:
        """Enqueue what is due by the store's clock; seconds until there may be more."""
        queue = queues[self._command.policy.queue_name]
        now = datetime.fromtimestamp(queue.now(), UTC)
        if self._served is None:
            self._served = self._recall(queue, now)
        try:
            due, upcoming = self._due(now)
        except Exception as error:  # the schedule's own: the others go on
            text = "The schedule of %s failed; it is asked again in a minute"
            tell(logger, logging.ERROR, text, self._command.name, exc_info=error)
            return LONGEST_PAUSE
        if due:
            self._enqueue(queue, due, now)
        self._served = now
        return LONGEST_PAUSE if upcoming is None else min(LONGEST_PAUSE, (upcoming - now).total_seconds())

    def _due(self, now: datetime) -> tuple[list[datetime], datetime | None]:
        """The ticks after those served, up to now, and the first moment behind that is worth a look."""
        tick = max(self._served, now - self._command.rule.max_lateness - timedelta(minutes=1))
        due: deque[datetime] = deque(maxlen=MOST_TICKS)
        while (tick := self._next(tick)) is not None and tick <= now:
            if isinstance(self._schedule, Crontab) or self._schedule(local(tick)):
                due.append(tick)
        return list(due), tick

    def _next(self, after: datetime) -> datetime | None:
        """A plain callable knows no next tick: it is asked about every minute."""
        if isinstance(self._schedule, Crontab):
            return self._schedule.next(after)
        return after.replace(second=0, microsecond=0) + timedelta(minutes=1)

    def _enqueue(self, queue: BaseQueue, due: list[datetime], now: datetime) -> None:
        mark_for = max(MARK_FOR, 2 * self._command.rule.max_lateness).total_seconds()
        for tick in self._command.rule.pick(due, now):
            name = f"{self._command.name}:{tick:%Y-%m-%dT%H:%MZ}"
            id = uuid.uuid5(uuid.NAMESPACE_URL, f"djqueue:{name}").hex
            if producer.send_once(self._command, Guard(f"tick:{name}", mark_for), id):
                tell(logger, logging.INFO, "%s is due at %s: enqueued", self._command.name, tick.isoformat())
        queue.store.put(self._key, due[-1].isoformat().encode())

    def _recall(self, queue: BaseQueue, now: datetime) -> datetime:
        """The last tick that was enqueued; a schedule seen for the first time begins now."""
        kept = queue.store.get(self._key)
        if kept is not None:
            return datetime.fromisoformat(kept.decode())
        queue.store.put(self._key, now.isoformat().encode())
        return now
