"""The first page: is all well, and if not, what is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from django.http import HttpRequest, HttpResponse

from djqueue.dashboard.seeing import Seen, seen
from djqueue.dashboard.site import OVERVIEW, TABS, Site
from djqueue.operations import Limit, actions, health
from djqueue.operations.health import LEVELS, Problem
from djqueue.running.consumers import ConsumerRecord, Running

AGE = Limit(60.0, 600.0)
"""Seconds for which the oldest message of a queue has been ready."""
FAILED = Limit(warning=1)
MOST_RUNNING, MOST_ACTIONS = 10, 10
PAGES = {"failed": "failed", "gone": "consumers", "quiet": "consumers", "command": "messages"}
"""The page that tells more of a kind of problem; the queues tell of all others."""


class Total(NamedTuple):
    """A count over all queues that can tell it."""

    number: int | None
    """None if none can."""
    is_least: bool
    """Whether counting stopped somewhere."""


class Run(NamedTuple):
    """A message that runs, and who runs it."""

    running: Running
    consumer: ConsumerRecord


def page(site: Site, request: HttpRequest) -> HttpResponse:
    queues = seen()
    asked = [one.alias for one in queues if not one.problem]
    alive = {server.name: server for one in queues for server in one.servers}
    return site.show(request, OVERVIEW, _context(queues, [*alive.values()], asked))


def _context(queues: Sequence[Seen], alive: Sequence[ConsumerRecord], asked: Sequence[str]) -> dict[str, Any]:
    runs = [Run(run, one) for one in alive for run in one.running]
    return {
        "problems": [_shown(one) for one in _problems(asked, queues)],
        "queues": queues,
        "totals": {name: _total(queues, name) for name in ("ready", "delayed", "leased", "failed", "done")},
        "oldest": max((one.stats.oldest or 0.0 for one in queues if one.stats), default=0.0),
        "too_old": AGE.critical,
        "capacity": sum(one.threads + one.coroutines for one in alive),
        "alive": len(alive),
        "runs": sorted(runs, key=lambda run: run.running.since)[:MOST_RUNNING],
        "actions": actions(asked, MOST_ACTIONS) if asked else [],
    }


def _problems(asked: Sequence[str], queues: Sequence[Seen]) -> list[Problem]:
    away = [Problem(2, one.alias, "store", f"it cannot be asked: {one.problem}") for one in queues if one.problem]
    counts = {one.alias: one.stats for one in queues if one.stats is not None}
    return away + (health(asked, age=AGE, failed=FAILED, counts=counts) if asked else [])


def _shown(one: Problem) -> tuple[str, Problem, str, str]:
    """A problem with its level, and the address and title of the page that tells more."""
    page = PAGES.get(one.kind, "queues")
    return LEVELS[one.level], one, f"admin:djqueue_dashboard_{page}", TABS[page]


def _total(queues: Sequence[Seen], name: str) -> Total:
    counts = [(getattr(one.stats, name), one.stats.capped) for one in queues if one.stats]
    known = [(count, capped) for count, capped in counts if count is not None]
    least = any(capped is not None and count >= capped for count, capped in known) and name != "done"
    return Total(sum(count for count, _ in known) if known else None, least)
