"""What a form does with messages: the selected ones, or all that a filter selects."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from django.contrib import messages as notices
from django.http import HttpRequest

from djqueue.dashboard.forms import Meant
from djqueue.dashboard.selecting import asked
from djqueue.dashboard.site import Site
from djqueue.operations import paging
from djqueue.operations.acting import OF_MESSAGES, PAGE, MessageAction
from djqueue.operations.errors import InvalidInput
from djqueue.operations.message_changes import change
from djqueue.operations.outcomes import ActionResult
from djqueue.wiring import queues as all_queues
from djqueue.words import counted, number

Chosen = dict[str, list[str]]
"""The ids of messages, by the aliases of their queues."""


def allowed(site: Site, request: HttpRequest, states: Sequence[str]) -> list[MessageAction]:
    """What the user may do with messages in these states."""
    fitting = (one for one in OF_MESSAGES.values() if {*one.states} & {*states})
    return [one for one in fitting if site.may(request, one.permission)]


def meant(request: HttpRequest, action: MessageAction) -> Meant:
    """What a form acts on. Raises InvalidInput if that is no message."""
    chosen, what = _chosen(request, action)
    count = sum(map(len, chosen.values()))
    if not count:
        raise InvalidInput(f"Nothing was done: no message was selected that can be {action.done}.")

    def question() -> str:
        return action.asked(count) if PAGE in action.asks or request.POST.get("which") == "all" else ""

    def do(outcome: ActionResult) -> None:
        value = request.POST.get(action.parameter.name, "") if action.parameter else ""
        given = {"by": request.user.get_username(), "what": what, **action.given(value)}
        change(action, {all_queues[alias]: ids for alias, ids in chosen.items()}, given, outcome)
        if not outcome.count:
            outcome.said = "Nothing was done: they have moved on meanwhile, or it was done before"

    details = {
        "what": what if what != counted(count, "message") else "",
        "where": {alias: len(ids) for alias, ids in chosen.items()},
        "is_capped": count >= action.most,
        "field": action.parameter.name if action.parameter else "",
        "aliases": [alias for alias in all_queues if _can(alias)],
    }
    given = [(name, value) for name, values in request.POST.lists() for value in values]
    fields = [(name, value) for name, value in given if name != "csrfmiddlewaretoken"]
    queues = [all_queues[alias] for alias in chosen]
    return Meant(what, queues, do, question, fields, details)


def _chosen(request: HttpRequest, action: MessageAction) -> tuple[Chosen, str]:
    """The chosen messages, and their description in words."""
    if request.POST.get("which") == "all":
        wanted = asked(request.POST)
        usual = action.walked if "state" in wanted.given else action.usual
        states = [state for state in wanted.selection.states if state in usual]
        selection = wanted.selection._replace(states=states)
        found = paging.page(selection, size=action.most)
        if found.is_capped and "confirmed" not in request.POST:
            fix = "filter more narrowly, or use queue_messages, which goes through all."
            notices.warning(request, f"{number(found.checked)} messages were checked: {fix}")
        return _by_queue((one.queue, one.id) for one in found.messages), wanted.words
    named = _by_queue(filter(None, map(_named, request.POST.getlist("message"))))
    ids = [id for some in named.values() for id in some]
    return named, f"message {ids[0]}" if len(ids) == 1 else counted(len(ids), "message")


def _named(text: str) -> tuple[str, str] | None:
    """The alias and the id in the value of a checkbox; None if it is not ours."""
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
