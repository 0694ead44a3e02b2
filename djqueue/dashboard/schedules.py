"""The schedules: when each ticks next, and what became of its last tick."""

from __future__ import annotations

from math import inf

from django.http import HttpRequest, HttpResponse

from djqueue.dashboard.site import Site
from djqueue.management.tables import told
from djqueue.operations.schedules import known_schedules, seen

MOST_SHOWN = 50


def page(site: Site, request: HttpRequest) -> HttpResponse:
    name = request.GET.get("name", "").strip()
    with told():
        found = [one for one in known_schedules() if name.casefold() in one.name.casefold()]
        found.sort(key=lambda one: (one.next or inf, one.name))
        shown = seen(found[:MOST_SHOWN])
    context = {"name": name, "schedules": shown, "more": max(0, len(found) - MOST_SHOWN)}
    return site.show(request, "schedules", context)
