"""The commands: how often each ran in the last hour and day, how long it took, and whether it is paused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from glob import escape
from typing import NamedTuple

from django.http import HttpRequest, HttpResponse
from django.utils.safestring import SafeString

from djqueue.backends.base import BaseQueue
from djqueue.dashboard import plots
from djqueue.dashboard.plots import COUNTS, TIMES, Plot, Series
from djqueue.dashboard.seeing import able, left_out, pause_of
from djqueue.dashboard.site import Site
from djqueue.operations.pausing import pauses_of
from djqueue.operations.queues import of_each
from djqueue.operations.rates import DAY, HOUR, CommandRates, Point, rates_in
from djqueue.registry import registry
from djqueue.running.pauses import COMMAND, Pause
from djqueue.running.shared import Shared, shared_stores
from djqueue.words import number, short_names

MOST_SHOWN = 100
Known = dict[str, dict[tuple[str, str], CommandRates]]
"""What was counted of each command in each queue, by period."""


class Row(NamedTuple):
    """A command in a queue."""

    queue: BaseQueue
    command: str
    name: str
    """The command's name, as short as it can be."""
    total: Point | None
    """What was counted in the period that is chosen; None for nothing."""
    others: str
    """How attempts ended that are neither done nor failed, in words."""
    hour: SafeString
    day: SafeString
    pause: Pause | None


def page(site: Site, request: HttpRequest) -> HttpResponse:
    queues, others = able("facts")
    period = DAY if request.GET.get("period") == DAY else HOUR
    known, paused, problems = _known(queues)
    rows = [*_rows(queues, known, paused, period)]
    context = {
        "period": period,
        "periods": (HOUR, DAY),
        "rows": rows[:MOST_SHOWN],
        "more": max(0, len(rows) - MOST_SHOWN),
        "problems": problems,
        "left_out": left_out(others, "facts"),
    }
    return site.show(request, "by_command", context)


def one(site: Site, request: HttpRequest) -> HttpResponse:
    """A command in a queue, with plots of its counts, of how long it ran, and of how long its messages waited."""
    alias, name = request.GET.get("queue", ""), request.GET.get("command", "")
    known, _, problems = _known(able("facts")[0], escape(name))
    found = {period: known[period].get((alias, name)) for period in (HOUR, DAY)}
    context = {
        "queue": alias,
        "command": name,
        "periods": [(period, counted, _plots(counted)) for period, counted in found.items() if counted],
        "problems": problems,
    }
    return site.show(request, "command", context, f"Command {name}", status=200 if any(found.values()) else 404)


def _known(queues: Sequence[BaseQueue], command: str | None = None) -> tuple[Known, list[Pause], list[str]]:
    """What was counted of all commands, or of those of a name; what is paused; and what is wrong with some stores."""
    stores = {shared.queues[0]: shared for shared in shared_stores(queues)}
    known: Known = {HOUR: {}, DAY: {}}
    paused, problems = of_each(stores, lambda queue: pauses_of(stores[queue]))
    for period in known:
        found, more = of_each(stores, partial(_counted, stores, command, period))
        known[period] |= {(one.queue, one.command): one for one in found}
        problems += more
    return known, paused, [*dict.fromkeys(problems)]


def _counted(
    stores: Mapping[BaseQueue, Shared], command: str | None, period: str, queue: BaseQueue
) -> list[CommandRates]:
    return rates_in([stores[queue]], command, period)


def _rows(queues: Sequence[BaseQueue], known: Known, paused: Sequence[Pause], period: str) -> Iterator[Row]:
    """The commands that ran, those first that did most, and those that are declared."""
    by_alias = {queue.alias: queue for queue in queues}
    declared = sorted((one.policy.queue_name, one.name) for one in registry)
    keys = [key for key in dict.fromkeys([*known[period], *known[DAY], *declared]) if key[0] in by_alias]
    names = short_names({name for _, name in keys})
    for alias, name in keys:
        hour, day, chosen = (known[one].get((alias, name)) for one in (HOUR, DAY, period))
        yield Row(
            *(by_alias[alias], name, names[name], chosen.total if chosen else None, _others(chosen)),
            *(_spark(hour, "in the last hour"), _spark(day, "in the last day")),
            pause_of(by_alias[alias], paused, COMMAND, name),
        )


def _others(counted: CommandRates | None) -> str:
    if counted is None:
        return ""
    kinds = {"retried": counted.total.retried, **counted.total.others}
    return ", ".join(f"{number(count)} {outcome}" for outcome, count in kinds.items() if count)


def _spark(counted: CommandRates | None, when: str) -> SafeString:
    if counted is None:
        return SafeString("")
    total = counted.total
    title = f"{number(total.done)} done and {number(total.failed)} failed {when}"
    return plots.spark(title, _counts(counted.points)[:2])


def _counts(points: Sequence[Point]) -> list[Series]:
    return [
        Series("done", [one.done for one in points]),
        Series("failed", [one.failed for one in points]),
        Series("retried", [one.retried for one in points]),
        Series("others", [sum(one.others.values()) for one in points]),
    ]


def _plots(counted: CommandRates) -> list[Plot]:
    points, starts = counted.points, [one.start for one in counted.points]
    counts = [one for one in _counts(points) if any(one.values) or one.name == "done"]
    ran = [Series("median", [one.run.p50 for one in points]), Series("p95", [one.run.p95 for one in points])]
    waited = [Series("median", [one.wait.p50 for one in points]), Series("p95", [one.wait.p95 for one in points])]
    return [
        plots.bars("Attempts", starts, counts, COUNTS),
        plots.lines("Ran for", starts, ran, TIMES),
        plots.lines("Waited for", starts, waited, TIMES),
    ]
