"""Forms that do something: each action is known and allowed, done once, and confirmed first where needed."""

from __future__ import annotations

from functools import partial
from secrets import token_hex

from django.contrib import messages as notices
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed

from djqueue.dashboard import message_actions
from djqueue.dashboard.forms import Meant, is_repeated
from djqueue.dashboard.site import Site
from djqueue.exceptions import QueueError
from djqueue.messages.failures import text_of
from djqueue.operations.acting import ACTIONS, PAGE, BaseAction, MessageAction, NamedAction
from djqueue.operations.outcomes import ActionResult
from djqueue.operations.queues import asking_stores, chosen
from djqueue.operations.targets import Target
from djqueue.running.pauses import QUEUE

LONGEST_WHY = 200
"""Characters of a reason: consumers read it too."""


def act(site: Site, request: HttpRequest) -> HttpResponse:
    """Do what a form says, or ask first, and return to the page of the form."""
    if request.method != "POST":
        return HttpResponseNotAllowed(["POST"])
    action = ACTIONS.get(request.POST.get("action", ""))
    if action is None:
        notices.warning(request, "Nothing was done: choose an action.")
        return site.back(request)
    site.demand(request, action.permission)
    with asking_stores():
        meant = _meant(request, action)
        if "confirmed" not in request.POST and (question := meant.question()):
            return _confirmation(site, request, action, meant, question)
        if not is_repeated(request, meant.queues):
            _do(site, request, action.verb, meant)
    return site.back(request)


def _meant(request: HttpRequest, action: MessageAction | NamedAction) -> Meant:
    """What a form acts on: the messages that it selects, or the one thing that it names."""
    if isinstance(action, MessageAction):
        return message_actions.meant(request, action)
    name, queue, message, why = (request.POST.get(field, "") for field in ("name", "queue", "message", "why"))
    given = {"message": message, "why": why[:LONGEST_WHY], "by": request.user.get_username()}
    target = action.find(Target(name=name, queues=[queue] if queue else [], **given))
    fields = {"action": action.name, "name": target.name, "message": target.message, "why": target.why}
    repeated = [*fields.items(), *(("queue", alias) for alias in target.queues), ("next", request.POST.get("next", ""))]
    where = chosen([target.name] if action.kind == QUEUE else target.queues or None)
    return Meant(target.name, where, partial(action.act, target), partial(action.asked, target, PAGE), repeated)


def _confirmation(site: Site, request: HttpRequest, action: BaseAction, meant: Meant, question: str) -> HttpResponse:
    """The page that asks before an action is done; its form works once."""
    context = {
        "question": question,
        "button": action.title,
        "destroys": action.destroys,
        "number": token_hex(16),
        "hidden": meant.fields,
        "back": site.origin(request),
    }
    return site.show(request, "confirmation", {**context, **meant.details}, "Are you sure?")


def _do(site: Site, request: HttpRequest, verb: str, meant: Meant) -> None:
    """Do the action, and record what was done, even if an error ended it halfway."""
    outcome = ActionResult(verb, [meant.what])
    try:
        meant.do(outcome)
    except QueueError as error:
        if outcome.count:
            why = text_of(error.__cause__ or error)
            site.done(request, meant.what, f"{outcome.said}; then it failed: {why}", outcome.count)
        raise
    site.done(request, meant.what, f"{outcome.said}.", outcome.count)
