"""The schedules: the next tick of each, the result of its last tick, and the form for schedules made at run time."""

from __future__ import annotations

from math import inf
from secrets import token_hex

from django.contrib import messages as notices
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect

from djqueue.dashboard.forms import is_repeated
from djqueue.dashboard.schedule_form import ScheduleForm
from djqueue.dashboard.site import Site
from djqueue.exceptions import QueueError
from djqueue.operations.queues import asking_stores, of_each
from djqueue.operations.schedules import known_schedules, refuse_declared, seen
from djqueue.registry import registry
from djqueue.schedules import Schedule, named
from djqueue.wiring import queues as all_queues

MOST_SHOWN = 50
MOST_NAMED = 500
"""Commands whose names are offered."""


def page(site: Site, request: HttpRequest) -> HttpResponse:
    name = request.GET.get("name", "").strip()
    known, problems = of_each([all_queues[alias] for alias in all_queues], lambda queue: known_schedules([queue]))
    found = [one for one in known if name.casefold() in one.name.casefold()]
    found.sort(key=lambda one: (one.next or inf, one.name))
    with asking_stores():
        shown = seen(found[:MOST_SHOWN])
    more = max(0, len(found) - MOST_SHOWN)
    context = {"name": name, "schedules": shown, "more": more, "problems": problems}
    return site.show(request, "schedules", context)


def edit(site: Site, request: HttpRequest) -> HttpResponse:
    """The form for a new schedule, or for the schedule of a name."""
    site.demand(request, "edit_schedules")
    name = request.GET.get("name", "")
    with asking_stores():
        known = _known(request, name) if name else None
        if name and known is None:
            return HttpResponseRedirect(site.url("schedules"))
        form = ScheduleForm(request.POST or None, known, site.may(request, "view_arguments"))
        if form.is_valid() and _save(site, request, form):
            return HttpResponseRedirect(site.url("schedules"))
        names = sorted(one.name for one in registry)[:MOST_NAMED]
    context = {"form": form, "known": known, "names": names, "number": token_hex(16)}
    return site.show(request, "schedule", context, f"Schedule {name}" if name else "Add a schedule")


def _known(request: HttpRequest, name: str) -> Schedule | None:
    """The schedule of a name; if it cannot be changed, None, and the user is notified."""
    try:
        refuse_declared(name)
    except QueueError as error:
        notices.error(request, str(error))
        return None
    found = named(name)
    if found is None:
        notices.error(request, f"There is no schedule {name!r} that was made at run time.")
    return found


def _save(site: Site, request: HttpRequest, form: ScheduleForm) -> bool:
    """Save what a form says, once; whether that succeeded."""
    if is_repeated(request, [all_queues[alias] for alias in all_queues]):
        return True
    schedule = form.save(request.user.get_username())
    if schedule is None:
        return False
    text = f"The schedule {schedule.name} is {'added' if form.known is None else 'changed'}."
    site.done(request, schedule.name, text, 1)
    return True
