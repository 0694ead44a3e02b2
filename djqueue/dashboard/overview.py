"""The first page: whether all is well, and if not, what is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from django.http import HttpRequest, HttpResponse

from djqueue.dashboard import plots
from djqueue.dashboard.plots import COUNTS, Plot, Series
from djqueue.dashboard.seeing import advised, row_of
from djqueue.dashboard.site import OVERVIEW, Site
from djqueue.operations import Limit, actions, health
from djqueue.operations.clocks import Clocks
from djqueue.operations.consumers import RunRow
from djqueue.operations.counts import OLD, TOO_OLD, Seen, seen
from djqueue.operations.health import CRITICAL, Problem
from djqueue.operations.queues import chosen
from djqueue.operations.rates import QueueRates
from djqueue.running.consumers import ConsumerRecord
from djqueue.words import full_moment

AGE = Limit(OLD, TOO_OLD)
FAILED = Limit(warning=1)
MOST_RUNNING, MOST_ACTIONS = 10, 10


class Total(NamedTuple):
    """A count over all queues that know it."""

    number: int | None
    """None if no queue knows it."""
    is_least: bool
    """Whether counting stopped somewhere."""


class Lately(NamedTuple):
    """What came in and was done in the last minutes, over all queues where that is known."""

    enqueued: float | None
    """Messages per minute, like the next fields; None if no queue knows it."""
    done: float
    failed: float
    time_to_drain: float | None
    """Seconds until no message is ready, at this pace; None if one of the backlogs does not shrink."""
    plots: Sequence[Plot]


def page(site: Site, request: HttpRequest) -> HttpResponse:
    queues = seen(chosen(None))
    asked = [one.alias for one in queues if not one.problem]
    alive = {server.name: server for one in queues for server in one.servers}
    return site.show(request, OVERVIEW, _context(queues, [*alive.values()], asked))


def _context(queues: Sequence[Seen], alive: Sequence[ConsumerRecord], asked: Sequence[str]) -> dict[str, Any]:
    return {
        "problems": advised(_problems(asked, queues)),
        "queues": [row_of(one) for one in queues],
        "totals": {name: _total(queues, name) for name in ("ready", "delayed", "leased", "failed", "done")},
        "lately": _lately(queues),
        "oldest": max((one.stats.oldest or 0.0 for one in queues if one.stats), default=0.0),
        "too_old": AGE.critical,
        "capacity": sum(one.threads + one.coroutines for one in alive),
        "alive": len(alive),
        "silent": _silent(queues, alive),
        "runs": _runs(alive),
        "actions": actions(asked, MOST_ACTIONS) if asked else [],
    }


def _problems(asked: Sequence[str], queues: Sequence[Seen]) -> list[Problem]:
    failing = {one.alias: one.problem for one in queues if one.problem}
    away = [Problem(CRITICAL, alias, "store", why) for alias, why in failing.items()]
    counts = {one.alias: one.stats for one in queues if one.stats is not None}
    return away + (health(asked, age=AGE, failed=FAILED, counts=counts) if asked else [])


def _runs(alive: Sequence[ConsumerRecord]) -> list[RunRow]:
    """The running messages, the longest first."""
    clocks = Clocks()
    rows = []
    for one in alive:
        queue = one.queues[0] if one.queues else ""
        rows += [
            RunRow(run.id, run.command, max(0.0, clocks.now(queue) - run.since), run.since, one.name, queue)
            for run in one.running
        ]
    return sorted(rows, key=lambda row: row.since)[:MOST_RUNNING]


def _silent(queues: Sequence[Seen], alive: Sequence[ConsumerRecord]) -> str:
    """Why nothing is counted while no consumer is alive; "" while one is."""
    heard = [one for one in queues if one.keeps_facts and not one.problem]
    if alive or not heard:
        return ""
    last = max((one.at for queue in heard for one in queue.gone), default=None)
    since = "in the last day" if last is None else f"since {full_moment(last)}"
    return f"No consumer has counted {since}."


def _total(queues: Sequence[Seen], name: str) -> Total:
    counts = [(getattr(one.stats, name), one.stats.capped) for one in queues if one.stats]
    known = [(count, capped) for count, capped in counts if count is not None]
    least = any(capped is not None and count >= capped for count, capped in known) and name != "done"
    return Total(sum(count for count, _ in known) if known else None, least)


def _lately(queues: Sequence[Seen]) -> Lately | None:
    """The rates over all queues; None if no queue knows them."""
    known = [one.rates for one in queues if one.rates]
    drains = [one.rates and one.rates.time_to_drain for one in queues if one.stats and one.stats.ready]
    if not known:
        return None
    return Lately(
        _sum([one.enqueued for one in known]),
        sum(one.done for one in known),
        sum(one.failed for one in known),
        None if None in drains else max((drain for drain in drains if drain), default=0.0),
        _plots(known),
    )


def _plots(known: Sequence[QueueRates]) -> list[Plot]:
    """Plots of the last hour: how many messages ended, and how many were ready."""
    minutes = list(zip(*(one.points for one in known), strict=True))
    starts = [points[0].start for points in minutes]
    ended = [
        Series(name, [_sum([getattr(one, name) for one in points]) for points in minutes])
        for name in ("done", "failed", "retried")
    ]
    waiting = Series("ready", [_sum([one.ready for one in points]) for points in minutes])
    made = [plots.bars("Attempts a minute", starts, ended, COUNTS)]
    if any(value is not None for value in waiting.values):
        made.append(plots.lines("Messages that wait", starts, [waiting], COUNTS))
    return made


def _sum(values: Sequence[float | None]) -> float | None:
    """The sum of the known values; None if there are none."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None
