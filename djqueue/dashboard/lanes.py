"""The lanes, those first that do not run."""

from __future__ import annotations

from itertools import islice
from typing import NamedTuple

from django.http import HttpRequest, HttpResponse

from djqueue.backends.base import Entry
from djqueue.dashboard.seeing import able, left_out
from djqueue.dashboard.site import Site
from djqueue.flow.gates import LANE_SCHEDULED
from djqueue.operations.lanes import BUSY, EMPTY, MOST_LANES, PAUSED, Lane, head_of, lanes_of
from djqueue.operations.queues import asking

MOST_SHOWN = 50
ORDER = (PAUSED, LANE_SCHEDULED, BUSY)
"""The states of lanes that come first."""


class Row(NamedTuple):
    """A lane, and its first message if that is known; it is looked for where the lane is held."""

    lane: Lane
    head: Entry | None

    @property
    def is_retried(self) -> bool:
        """Whether the lane waits for the retry of its first message, and not for its throttle."""
        return self.head is not None and self.head.attempts > 0

    @property
    def can_be_skipped(self) -> bool:
        """Whether its first message holds it up, and not its throttle."""
        return self.head is not None and (self.lane.state == PAUSED or self.is_retried)


def page(site: Site, request: HttpRequest) -> HttpResponse:
    queues, others = able("lanes")
    name, found, capped = request.GET.get("name", "").strip(), [], []
    for queue in queues:
        with asking(queue):
            looked_at = list(islice(lanes_of(queue), MOST_LANES))
        capped += [queue.alias] if len(looked_at) == MOST_LANES else []
        found += [lane for lane in looked_at if name in lane.record.name]
    found.sort(key=_place)
    context = {
        "name": name,
        "rows": [_row(lane) for lane in found[:MOST_SHOWN]],
        "more": max(0, len(found) - MOST_SHOWN),
        "capped": ", ".join(capped),
        "most": MOST_LANES,
        "left_out": left_out(others, "lanes"),
    }
    return site.show(request, "lanes", context)


def _row(lane: Lane) -> Row:
    if lane.state not in (LANE_SCHEDULED, PAUSED):
        return Row(lane, None)
    with asking(lane.queue):
        return Row(lane, head_of(lane.queue, lane.record.name))


def _place(lane: Lane) -> tuple[int, int, str]:
    """Blocked ones first, then those in which most wait, then those that only remember something."""
    place = ORDER.index(lane.state) if lane.state in ORDER else len(ORDER) + (lane.state == EMPTY)
    return place, -lane.record.waiting, lane.record.name
