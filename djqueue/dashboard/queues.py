"""The queues: what waits in each, who serves it, and whether it is paused."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse

from djqueue.dashboard.seeing import row_of
from djqueue.dashboard.site import Site
from djqueue.operations.counts import places, seen
from djqueue.operations.pausing import PauseRow
from djqueue.operations.queues import chosen
from djqueue.running.pauses import QUEUE


def page(site: Site, request: HttpRequest) -> HttpResponse:
    queues = seen(chosen(None))
    rows = [row_of(one) for one in queues]
    others = [PauseRow.of(one) for one in next((one.pauses for one in queues), ()) if one.kind != QUEUE]
    return site.show(request, "queues", {"rows": rows, "places": places(rows), "pauses": others})
