"""Forms that do something with queues, commands, schedules, lanes and consumers."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse

from djqueue.dashboard.forms import confirmation, doing, is_repeated
from djqueue.dashboard.site import Site
from djqueue.operations.targets import LONGEST_WHY, TARGET_ACTIONS, Given, TargetAction
from djqueue.wiring import queues as all_queues


@doing(TARGET_ACTIONS, "this action is not known.")
def act(site: Site, request: HttpRequest, action: TargetAction) -> HttpResponse | None:
    values = {name: request.POST.get(name, "") for name in ("name", "queue", "why", "message")}
    values["why"] = values["why"][:LONGEST_WHY]
    given = Given(**values, by=request.user.get_username())
    if action.question is not None and "confirmed" not in request.POST:
        return _confirmation(site, request, action, action.question(given))
    _do(site, request, action, given)
    return None


def _confirmation(site: Site, request: HttpRequest, action: TargetAction, question: str) -> HttpResponse:
    hidden = [(name, request.POST.get(name, "")) for name in ("action", "name", "queue", "why", "message", "next")]
    return confirmation(site, request, action, "act", {"question": question, "hidden": hidden})


def _do(site: Site, request: HttpRequest, action: TargetAction, given: Given) -> None:
    if is_repeated(request, [all_queues[alias] for alias in all_queues]):
        return
    done = action.do(given)
    site.done(request, given.name, done.text, done.changed)
