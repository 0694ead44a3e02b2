"""The report of commands: how often each ended how, how long it took, and whether it is paused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from djqueue.backends.base import BaseQueue
from djqueue.operations.pausing import pause_of, pauses_of
from djqueue.operations.queues import of_each
from djqueue.operations.rates import DAY, HOUR, CommandRates, Point, rates_in
from djqueue.operations.reports import Kind, column, report_row
from djqueue.registry import registry
from djqueue.running.pauses import COMMAND, Pause
from djqueue.running.shared import Shared, shared_stores
from djqueue.words import number


@report_row
class CommandRow:
    """What was counted for a command in a queue: in the last hour or day, or in one span of that."""

    command: str = column("command", Kind.COMMAND, key=True)
    queue: str = column("queue", Kind.QUEUE)
    start: float | None = column("from", Kind.MOMENT, optional=True)
    """When the span of time began; None for the whole period, as in a list of commands."""
    done: int = column("done", Kind.NUMBER)
    failed: int = column("failed", Kind.NUMBER, bad=0)
    others: str = column("others", in_json=False)
    """How attempts ended that are neither done nor failed, in words."""
    other_outcomes: Mapping[str, int] = column()
    """The same as counts by outcome: retried, discarded, expired, …"""
    median_run: float | None = column("median run", Kind.DURATION)
    p95_run: float | None = column("p95 run", Kind.DURATION)
    median_wait: float | None = column("median wait", Kind.DURATION)
    p95_wait: float | None = column("p95 wait", Kind.DURATION)
    hour: CommandRates | None = column("last hour", Kind.TREND, in_json=False, default=None)
    day: CommandRates | None = column("last day", Kind.TREND, in_json=False, default=None)
    pause: Pause | None = column("paused", Kind.PAUSE, optional=True, default=None)

    @property
    def conditions(self) -> dict[str, str]:
        """The conditions that select it, if anything was counted for it."""
        return {"queue": self.queue, "command": self.command} if self.hour or self.day else {}

    @classmethod
    def of(cls, queue: str, command: str, counted: Point, start: float | None = None, **more: Any) -> CommandRow:
        outcomes = {"retried": counted.retried, **counted.others}
        others = ", ".join(f"{number(count)} {outcome}" for outcome, count in outcomes.items() if count)
        durations = (*counted.run, *counted.wait)
        return cls(command, queue, start, counted.done, counted.failed, others, outcomes, *durations, **more)


class CommandCounts(NamedTuple):
    """What is known of commands."""

    rates: Mapping[str, Mapping[tuple[str, str], CommandRates]]
    """By period, and by the queue and the name of the command."""
    pauses: Sequence[Pause]
    problems: Sequence[str]
    """What is wrong with stores that cannot be asked."""


def known_commands(queues: Sequence[BaseQueue], command: str | None = None) -> CommandCounts:
    """What was counted of all commands of these queues, or of those of a name, in the last hour and day."""
    stores = {shared.queues[0]: shared for shared in shared_stores(queues)}
    rates: dict[str, dict[tuple[str, str], CommandRates]] = {}
    paused, problems = of_each(stores, lambda queue: pauses_of(stores[queue]))
    for period in (HOUR, DAY):
        found, more = of_each(stores, partial(_counted, stores, command, period))
        rates[period] = {(one.queue, one.command): one for one in found}
        problems += more
    return CommandCounts(rates, paused, [*dict.fromkeys(problems)])


def _counted(
    stores: Mapping[BaseQueue, Shared], command: str | None, period: str, queue: BaseQueue
) -> list[CommandRates]:
    return rates_in([stores[queue]], command, period)


def command_rows(queues: Sequence[BaseQueue], known: CommandCounts, period: str) -> Iterator[CommandRow]:
    """The commands that ran, those first that did most, and those that are declared."""
    by_alias = {queue.alias: queue for queue in queues}
    declared = sorted((one.policy.queue_name, one.name) for one in registry)
    for alias, name in dict.fromkeys([*known.rates[period], *known.rates[DAY], *declared]):
        if alias in by_alias:
            hour, day, chosen = (known.rates[one].get((alias, name)) for one in (HOUR, DAY, period))
            total = Point(0.0) if chosen is None else chosen.total
            pause = pause_of(by_alias[alias], known.pauses, COMMAND, name)
            yield CommandRow.of(alias, name, total, hour=hour, day=day, pause=pause)


def point_rows(counted: CommandRates) -> list[CommandRow]:
    """What was counted in each span of time in which something ended, latest first."""
    points = [one for one in counted.points if one.done or one.failed or one.retried or one.others]
    return [CommandRow.of(counted.queue, counted.command, one, one.start) for one in reversed(points)]
