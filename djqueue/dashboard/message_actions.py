"""What can be done with messages: those that were selected, or all that a filter selects."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from django.contrib import messages as notices
from django.http import HttpRequest, HttpResponse
from django.utils.datastructures import MultiValueDict

from djqueue.backends.base import BaseQueue
from djqueue.dashboard.forms import confirmation, doing, is_repeated
from djqueue.dashboard.selecting import asked
from djqueue.dashboard.site import Site
from djqueue.exceptions import QueueError
from djqueue.messages.failures import text_of
from djqueue.operations import acting, paging
from djqueue.operations.acting import ACTIONS, Action
from djqueue.operations.outcomes import Outcome
from djqueue.wiring import queues as all_queues
from djqueue.words import counted, number

Chosen = dict[str, list[str]]
"""The ids of messages, by the aliases of their queues."""


def allowed(site: Site, request: HttpRequest, states: Sequence[str]) -> list[tuple[str, str]]:
    """What the user may do with messages in these states: names and titles."""
    return [
        (name, action.title)
        for name, action in ACTIONS.items()
        if site.may(request, action.permission) and {*action.states} & {*states}
    ]


@doing(ACTIONS, "choose an action.")
def act(site: Site, request: HttpRequest, action: Action) -> HttpResponse | None:
    chosen, what = _chosen(request, action)
    if not sum(map(len, chosen.values())):
        notices.warning(request, f"Nothing was done: no message was selected that can be {action.done}.")
        return None
    if (action.asks or request.POST.get("which") == "all") and "confirmed" not in request.POST:
        return _confirmation(site, request, action, chosen, what)
    _change(site, request, action, chosen, what)
    return None


def _chosen(request: HttpRequest, action: Action) -> tuple[Chosen, str]:
    """The messages that are meant, and what they are in words."""
    if request.POST.get("which") == "all":
        wanted = asked(request.POST)
        states = [state for state in wanted.selection.states if state in action.walked]
        selection = wanted.selection._replace(states=states)
        found = paging.page(selection, size=action.most)
        if found.is_capped and "confirmed" not in request.POST:
            mend = "filter more narrowly, or use queue_messages, which goes through all."
            notices.warning(request, f"{number(found.looked_at)} messages were looked at: {mend}")
        return _by_queue((one.queue, one.id) for one in found.messages), wanted.words
    named = _by_queue(filter(None, map(_named, request.POST.getlist("message"))))
    ids = [id for some in named.values() for id in some]
    return named, f"message {ids[0]}" if len(ids) == 1 else counted(len(ids), "message")


def _named(text: str) -> tuple[str, str] | None:
    """The alias and the id in the value of a box; None if it is not one of ours."""
    try:
        alias, id = json.loads(text)
    except (TypeError, ValueError, RecursionError):
        return None
    return (alias, id) if isinstance(id, str) and isinstance(alias, str) and _can(alias) else None


def _can(alias: str) -> bool:
    return alias in all_queues and "inspect" in all_queues[alias].features


def _by_queue(found: Iterable[tuple[str, str]]) -> Chosen:
    chosen: Chosen = {}
    for alias, id in found:
        chosen.setdefault(alias, []).append(id)
    return chosen


def _queues(chosen: Chosen) -> list[BaseQueue]:
    return [all_queues[alias] for alias in chosen]


def _confirmation(site: Site, request: HttpRequest, action: Action, chosen: Chosen, what: str) -> HttpResponse:
    count = sum(map(len, chosen.values()))
    context = {
        "question": action.question.format(counted(count, "message")),
        "what": what if what != counted(count, "message") else "",
        "where": {alias: len(ids) for alias, ids in chosen.items()},
        "is_capped": count >= action.most,
        "field": action.parameter.name if action.parameter else "",
        "aliases": [alias for alias in all_queues if _can(alias)],
        "hidden": _hidden(request.POST),
    }
    return confirmation(site, request, action, "act_on_messages", context)


def _hidden(given: MultiValueDict[str, str]) -> list[tuple[str, str]]:
    """What the form of the confirmation repeats."""
    return [(name, value) for name, values in given.lists() if name != "csrfmiddlewaretoken" for value in values]


def _change(site: Site, request: HttpRequest, action: Action, chosen: Chosen, what: str) -> None:
    if is_repeated(request, _queues(chosen)):
        return
    outcome = Outcome(action.name, [what])
    try:
        value = request.POST.get(action.parameter.name, "") if action.parameter else ""
        given = {"by": request.user.get_username(), "what": what, **action.given(value)}
        acting.change(action, {all_queues[alias]: ids for alias, ids in chosen.items()}, given, outcome)
    except QueueError as error:
        _log(site, request, action, outcome.count, what, f"; then it failed: {text_of(error.__cause__ or error)}")
        raise
    else:
        _log(site, request, action, outcome.count, what, ".")
        if not outcome.count:
            notices.info(request, "Nothing was done: they have moved on meanwhile, or it was done before.")


def _log(site: Site, request: HttpRequest, action: Action, changed: int, what: str, end: str) -> None:
    """Note what was done, also if an error ended it in the middle."""
    if changed:
        site.done(request, what, f"{counted(changed, 'message')} {action.done}{end}", changed)
