"""The consumers: which are alive, what each serves, and what it has been running since when."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse

from djqueue.dashboard.seeing import able
from djqueue.dashboard.site import Site
from djqueue.operations.consumers import ConsumerRow
from djqueue.operations.counts import around
from djqueue.operations.queues import left_out
from djqueue.running.consumers import GONE, ConsumerRecord

MOST_SHOWN = 200
ORDER = ("running", "quiet", "stopping", GONE)


def page(site: Site, request: HttpRequest) -> HttpResponse:
    queues, others = able("facts")
    seen = around(queues)
    known = [*{one.name: one for one in seen.consumers}.values()]
    context = {
        "alive": sum(one.is_alive for one in known),
        "gone": sum(not one.is_alive for one in known),
        "consumers": [ConsumerRow.of(one) for one in sorted(known, key=_place)[:MOST_SHOWN]],
        "more": max(0, len(known) - MOST_SHOWN),
        "local": ", ".join(queue.alias for queue in queues if queue.store.is_local),
        "problems": seen.problems,
        "left_out": left_out(others, "facts"),
    }
    return site.show(request, "consumers", context)


def _place(one: ConsumerRecord) -> tuple[int, str, int]:
    return ORDER.index(one.state) if one.state in ORDER else 0, one.host, one.pid
