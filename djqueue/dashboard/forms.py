"""Forms that do something: their action is known and allowed, some are confirmed first, and each is done once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from secrets import token_hex
from typing import Any, Protocol, TypeVar

from django.contrib import messages as notices
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed

from djqueue.backends.base import BaseQueue
from djqueue.dashboard.site import Page, Site
from djqueue.operations.queues import asking_stores

KEPT = 3600.0  # seconds


class Allowed(Protocol):
    """An action of a form."""

    @property
    def title(self) -> str: ...
    @property
    def permission(self) -> str: ...


A = TypeVar("A", bound=Allowed)


def doing(
    actions: Mapping[str, A], refusal: str
) -> Callable[[Callable[[Site, HttpRequest, A], HttpResponse | None]], Page]:
    """A page for forms that name one of these actions; it leads back, unless what it wraps returns another answer."""

    def wrapped(do: Callable[[Site, HttpRequest, A], HttpResponse | None]) -> Page:
        @wraps(do)
        def act(site: Site, request: HttpRequest) -> HttpResponse:
            if request.method != "POST":
                return HttpResponseNotAllowed(["POST"])
            action = actions.get(request.POST.get("action", ""))
            if action is None:
                notices.warning(request, f"Nothing was done: {refusal}")
                return site.back(request)
            site.demand(request, action.permission)
            with asking_stores():
                return do(site, request, action) or site.back(request)

        return act

    return wrapped


def confirmation(
    site: Site, request: HttpRequest, action: Allowed, address: str, context: Mapping[str, Any]
) -> HttpResponse:
    """The page that asks before an action is done. Its form is sent to ``address``, once."""
    form = {
        "button": action.title,
        "is_deletion": action.permission == "remove",
        "number": token_hex(16),
        "action_url": site.url(address),
        "back": site.origin(request),
    }
    return site.show(request, "confirmation", {**form, **context}, "Are you sure?")


def is_repeated(request: HttpRequest, queues: Sequence[BaseQueue]) -> bool:
    """Whether a confirmed form was sent before, of which its user is told."""
    number = request.POST.get("number", "")
    if not number or _is_first(number, queues):
        return False
    notices.info(request, "That was done already.")
    return True


def _is_first(number: str, queues: Sequence[BaseQueue]) -> bool:
    """Whether a form with this number is sent for the first time, as far as one of the queues can remember that."""
    able = [queue.store.shared for queue in queues if "facts" in queue.features]
    for store in sorted(able, key=lambda store: store.is_local):  # another process may get the second click
        return store.add(f"form:sent:{number[:64]}", b"", KEPT)
    return True
