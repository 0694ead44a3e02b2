"""The lanes, those first that do not run."""

from __future__ import annotations

from itertools import islice
from typing import NamedTuple

from django.http import HttpRequest, HttpResponse

from djqueue.backends.base import Entry
from djqueue.dashboard.seeing import able, left_out
from djqueue.dashboard.site import Site
from djqueue.flow.gates import LANE_SCHEDULED
from djqueue.management.tables import asking, of_each
from djqueue.operations.lanes import BUSY, EMPTY, PAUSED, RETRY, Lane, first_in, lanes_of, why_scheduled

MOST_LOOKED_AT = 1_000
"""Lanes of a queue that are looked at."""
MOST_SHOWN = 50
ORDER = (PAUSED, LANE_SCHEDULED, BUSY)
"""The states of lanes that come first."""


class Row(NamedTuple):
    """A lane, and its first message if that is known; it is looked for where the lane is held."""

    lane: Lane
    head: Entry | None
    why: str = ""
    """Why a scheduled lane waits: retry, gathers or throttled."""

    @property
    def can_be_resumed(self) -> bool:
        """Whether an operator holds it, or its first message: what a rate or a batch holds cannot be let go."""
        return self.lane.state == PAUSED or self.why == RETRY

    @property
    def can_be_skipped(self) -> bool:
        """Whether its first message holds it up."""
        return self.head is not None and self.can_be_resumed


def page(site: Site, request: HttpRequest) -> HttpResponse:
    queues, others = able("lanes")
    name = request.GET.get("name", "").strip()
    looked_at, problems = of_each(queues, lambda queue: [(queue, [*islice(lanes_of(queue), MOST_LOOKED_AT)])])
    capped = [queue.alias for queue, lanes in looked_at if len(lanes) == MOST_LOOKED_AT]
    found = sorted((one for _, lanes in looked_at for one in lanes if name in one.record.name), key=_place)
    context = {
        "name": name,
        "rows": [_row(lane) for lane in found[:MOST_SHOWN]],
        "more": max(0, len(found) - MOST_SHOWN),
        "capped": ", ".join(capped),
        "most": MOST_LOOKED_AT,
        "problems": problems,
        "left_out": left_out(others, "lanes"),
    }
    return site.show(request, "lanes", context)


def _row(lane: Lane) -> Row:
    if lane.state not in (LANE_SCHEDULED, PAUSED):
        return Row(lane, None)
    with asking(lane.queue):
        first = first_in(lane.queue, lane.record.name)
    why = why_scheduled(lane.record, first) if lane.state == LANE_SCHEDULED else ""
    return Row(lane, None if first is None else first.entry, why)


def _place(lane: Lane) -> tuple[int, int, str]:
    """Blocked ones first, then those in which most wait, then those that only remember something."""
    place = ORDER.index(lane.state) if lane.state in ORDER else len(ORDER) + (lane.state == EMPTY)
    return place, -lane.record.waiting, lane.record.name
