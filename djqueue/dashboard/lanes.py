"""The lanes; lanes that do not run come first."""

from __future__ import annotations

from itertools import islice

from django.http import HttpRequest, HttpResponse

from djqueue.dashboard.seeing import able
from djqueue.dashboard.site import Site
from djqueue.flow.gates import LANE_SCHEDULED
from djqueue.operations.lanes import BUSY, EMPTY, PAUSED, LaneRow, LaneStatus, lanes_of, with_head
from djqueue.operations.paging import MOST_CHECKED
from djqueue.operations.queues import asking, left_out, of_each

MOST_SHOWN = 50
ORDER = (PAUSED, LANE_SCHEDULED, BUSY)
"""The states of lanes that come first."""


def page(site: Site, request: HttpRequest) -> HttpResponse:
    queues, others = able("lanes")
    name = request.GET.get("name", "").strip()
    checked, problems = of_each(queues, lambda queue: [(queue, [*islice(lanes_of(queue), MOST_CHECKED)])])
    capped = [queue.alias for queue, lanes in checked if len(lanes) == MOST_CHECKED]
    found = sorted((one for _, lanes in checked for one in lanes if name in one.record.name), key=_place)
    context = {
        "name": name,
        "rows": [_row(lane) for lane in found[:MOST_SHOWN]],
        "more": max(0, len(found) - MOST_SHOWN),
        "capped": ", ".join(capped),
        "most": MOST_CHECKED,
        "problems": problems,
        "left_out": left_out(others, "lanes"),
    }
    return site.show(request, "lanes", context)


def _row(lane: LaneStatus) -> LaneRow:
    with asking(lane.queue):
        return with_head(lane)


def _place(lane: LaneStatus) -> tuple[int, int, str]:
    """Blocked lanes first, then lanes with the most waiting messages, then lanes that only remember something."""
    place = ORDER.index(lane.state) if lane.state in ORDER else len(ORDER) + (lane.state == EMPTY)
    return place, -lane.record.waiting, lane.record.name
