"""The messages that wait, run or have failed, and the page of one of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect

from djqueue.backends.base import BaseQueue
from djqueue.backends.entries import FAILED
from djqueue.dashboard import message_actions
from djqueue.dashboard.seeing import able, advised
from djqueue.dashboard.selecting import AppliedFilter, asked, position_in, written
from djqueue.dashboard.site import Site
from djqueue.exceptions import NoResult
from djqueue.operations import explaining, paging
from djqueue.operations.actions import Action
from djqueue.operations.failed import FailedMessage, call_of
from djqueue.operations.finding import find_whole
from djqueue.operations.messages import RUNNING, STATES, MessageRow
from djqueue.operations.queues import asking_stores, chosen, left_out, of_each
from djqueue.operations.unknown import NOT_BEGUN
from djqueue.registry import registry
from djqueue.running.describing import result_of
from djqueue.running.ends import End, Progress
from djqueue.running.finding import FOR_OPERATORS, find, kept
from djqueue.running.result_store import progress_of
from djqueue.wiring import queues as all_queues
from djqueue.words import NONE


def page(site: Site, request: HttpRequest) -> HttpResponse:
    wanted = asked(request.GET)
    whole = wanted.given.get("id", "")
    whole_ones, _ = of_each(wanted.selection.queues if whole else [], lambda queue: [find_whole([queue], whole)])
    for one in filter(None, whole_ones):
        return HttpResponseRedirect(site.url("message", queue=one.queue, id=one.id))
    reachable, problems = of_each(wanted.selection.queues, lambda queue: [queue] if queue.now() else [])
    wanted.problems.extend(problems)  # the others are shown
    selection = wanted.selection._replace(queues=reachable)
    begin = None if problems else position_in(request.GET.get("after", ""))  # it counts the queues
    with asking_stores():
        found = paging.page(selection, begin)
    return site.show(request, "messages", _list(site, request, wanted, found))


def _list(site: Site, request: HttpRequest, wanted: AppliedFilter, found: paging.Page) -> dict[str, Any]:
    queues, others = able("inspect")
    more = None if found.next is None else site.url("messages", **wanted.given, after=written(found.next))
    return {
        "asked": wanted,
        "rows": rows_of(found.messages, wanted.selection.states),
        "queues": [queue.alias for queue in queues],
        "states": STATES,
        "actions": message_actions.allowed(site, request, wanted.selection.states),
        "first": site.url("messages", **wanted.given) if request.GET.get("after") else None,
        "next": more,
        "checked": found.checked,
        "is_capped": found.is_capped,
        "left_out": left_out(others, "inspect"),
    }


def rows_of(found: Sequence[MessageRow], states: Sequence[str]) -> Sequence[MessageRow | FailedMessage]:
    """The report of these messages, or the report of failed messages if only those are wanted."""
    return [FailedMessage.of(one) for one in found] if [*states] == [FAILED] else found


# ---- One message


def one(site: Site, request: HttpRequest) -> HttpResponse:
    """All that is known about a message: where it is, why it does not run, and what happened to it."""
    id, alias = request.GET.get("id", ""), request.GET.get("queue", "")
    queues = sorted(chosen(None), key=lambda queue: queue.alias != alias)  # it may have been moved
    with asking_stores():
        found, explained = explaining.look_up(id, queues)
        queue = all_queues[explained.queue] if explained.queue else None
        end = found.end if found else find(queue, id, FOR_OPERATORS) if queue else None
        did = explaining.acts_on(id, queues if queue is None else [queue])
    reasons = advised(explained.reasons)
    context: dict[str, Any] = {"id": id, "message": found, "reasons": reasons, "queue": explained.queue}
    if queue and end:
        if found:
            end = replace(end, began=explaining.began(queue, found), progress=_progress(queue, found))
        context |= {"end": end, "actions": message_actions.allowed(site, request, [end.status])}
        context["attempts"] = [_attempt(error) for error in reversed(end.errors)]
        if site.may(request, "view_arguments"):
            context |= _call(queue, found) if found else {"returned": end.returned or _result(queue, id, end)}
    context["events"] = _events(end or End(), did)
    return site.show(request, "message", context, f"Message {id}", status=200 if queue or did else 404)


def _call(queue: BaseQueue, found: MessageRow) -> dict[str, str]:
    call, problem = call_of(queue, found.entry)
    return {"call": call, "call_problem": problem}


def _progress(queue: BaseQueue, found: MessageRow) -> Progress | None:
    """The progress that a running message last reported, if that can be read."""
    try:
        return progress_of(queue, found.id) if found.state == RUNNING and "facts" in queue.features else None
    except NoResult:
        return None


def _result(queue: BaseQueue, id: str, end: End) -> str:
    """What a message returned, if that is kept and known to be sensitive or not; "" otherwise."""
    command = registry.get(end.command)
    if command is None:
        return ""
    try:
        signed = end if end.has_value else kept(queue, id)
    except NoResult as error:
        return f"cannot be shown: {error}"
    return result_of(command, signed.value) if signed is not None and signed.has_value else ""


class FailedAttempt(NamedTuple):
    """A failed attempt; its values in the store may be of any type, as others may have written them."""

    number: str
    at: float
    where: str
    reason: str
    seconds: float | None
    """How long it ran, if that is known."""
    traceback: str

    @property
    def words(self) -> str:
        """What happened."""
        what = "could not be begun" if self.reason.startswith(NOT_BEGUN) else f"attempt {self.number} failed"
        return f"{what}{f' in {self.where}' if self.where else ''}: {self.reason}"

    @property
    def title(self) -> str:
        """What happened, without the place."""
        return self.reason if self.reason.startswith(NOT_BEGUN) else f"Attempt {self.number}: {self.reason}"


def _attempt(error: dict[str, Any]) -> FailedAttempt:
    at, seconds = (value if isinstance(value, int | float) else None for value in map(error.get, ("at", "seconds")))
    texts = {name: str(error.get(name) or "") for name in ("attempt", "consumer", "host", "reason", "traceback")}
    where, reason = texts["consumer"] or texts["host"], texts["reason"] or NONE
    return FailedAttempt(texts["attempt"] or "?", at or 0.0, where, reason, seconds, texts["traceback"])


class Event(NamedTuple):
    """Something that happened to a message."""

    at: float
    text: str


def _events(end: End, did: Sequence[Action]) -> list[Event]:
    """What is known to have happened to a message, in order."""
    by = f" in {end.worker}" if end.worker else ""
    events = [Event(action.at, f"{action.action} by {action.by}") for action in did]
    events += [Event(end.enqueued, "enqueued"), *(Event(one.at, one.words) for one in map(_attempt, end.errors))]
    events += [Event(end.began, f"attempt {end.attempts} began{by}")] if end.seconds or not end.is_over else []
    events += [Event(end.ended, f"ended: {end.status}")]
    return sorted((one for one in events if one.at), key=lambda event: event.at)
