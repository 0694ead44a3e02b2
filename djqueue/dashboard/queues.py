"""The queues: what waits in each, who serves it, and whether it is paused."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse

from djqueue.dashboard.seeing import seen
from djqueue.dashboard.site import Site
from djqueue.operations import pauses
from djqueue.running.pauses import QUEUE


def page(site: Site, request: HttpRequest) -> HttpResponse:
    queues = seen()
    asked = [one.alias for one in queues if not one.problem]
    others = [one for one in (pauses(asked) if asked else []) if one.kind != QUEUE]
    return site.show(request, "queues", {"queues": queues, "pauses": others})
