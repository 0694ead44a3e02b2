"""What the pages need from the admin: addresses, permissions, its frame and its log."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme, urlencode

from djqueue.exceptions import QueueError, StoreError
from djqueue.messages.failures import text_of
from djqueue.models import Dashboard
from djqueue.operations.clocks import Clocks
from djqueue.operations.errors import QueueUnavailable
from djqueue.utils import plain

OVERVIEW = "changelist"
"""The name that the admin gives to the address it links to."""
TABS = {
    OVERVIEW: "Overview",
    "queues": "Queues",
    "failed": "Failed",
    "messages": "Messages",
    "consumers": "Consumers",
    "lanes": "Lanes",
    "schedules": "Schedules",
    "history": "History",
    "by_command": "Commands",
}
PERMISSIONS = ("view_arguments", "retry", "remove", "pause", "run", "edit_schedules")
PageView = Callable[["Site", HttpRequest], HttpResponse]


class Shown(TemplateResponse):
    """A page that can be sent whatever text it holds: the name of a file may contain half a character."""

    @property
    def rendered_content(self) -> str:
        return super().rendered_content.encode(errors="backslashreplace").decode()


class Site:
    """The admin site that the dashboard is part of."""

    def __init__(self, admin: Any) -> None:
        self._admin = admin

    def url(self, page: str = OVERVIEW, **query: str) -> str:
        path = reverse(f"admin:djqueue_dashboard_{page}", current_app=self._admin.admin_site.name)
        return f"{path}?{urlencode(query)}" if query else path

    def may(self, request: HttpRequest, permission: str) -> bool:
        """Whether its user has a permission of the dashboard besides the one to view it."""
        return request.user.has_perm(f"djqueue.{permission}")

    def demand(self, request: HttpRequest, permission: str) -> None:
        """Raises PermissionDenied."""
        if not self.may(request, permission):
            raise PermissionDenied

    def show(
        self, request: HttpRequest, page: str, context: dict[str, Any], title: str = "", status: int = 200
    ) -> HttpResponse:
        """A page in the frame of the admin, from the template of its name; ``title`` is that of its tab by default."""
        request.current_app = self._admin.admin_site.name  # type: ignore[attr-defined]
        frame = {
            **self._admin.admin_site.each_context(request),
            "title": title or TABS[page],
            "opts": Dashboard._meta,
            "tabs": [(f"admin:djqueue_dashboard_{name}", name, text) for name, text in TABS.items()],
            "page": page,
            "may": {name: self.may(request, name) for name in PERMISSIONS},
            "here": request.get_full_path(),
            "clocks": Clocks(),
        }
        return Shown(request, f"djqueue/dashboard/{page}.html", frame | context, status=status)

    def view(self, page: PageView) -> Callable[..., HttpResponse]:
        """A page as a view: for staff who may view the dashboard.

        An error caused by a form is shown on the page of the form; an error of a store is shown instead of the page.
        """

        @wraps(page)
        def shown(request: HttpRequest) -> HttpResponse:
            if not self._admin.has_view_permission(request):
                raise PermissionDenied
            try:
                return page(self, request)
            except QueueError as error:
                if request.method == "POST" and not isinstance(error, QueueUnavailable | StoreError):
                    messages.error(request, text_of(error))
                    return self.back(request)
                return self.show(request, "unreachable", {"problem": text_of(error)}, "Queues", status=503)

        return self._admin.admin_site.admin_view(shown)

    def done(self, request: HttpRequest, what: str, text: str, count: int) -> None:
        """Show the user what was done and, if that was anything, record it in the log of the admin."""
        text = plain(text)  # a database takes no half of a character, and some no NUL
        if count:
            self._admin.log_change(request, Dashboard(name=plain(what[:255])), text)
            messages.success(request, text)
        else:
            messages.info(request, text)

    def origin(self, request: HttpRequest) -> str:
        """The address of the page of the dashboard that a form came from, or else of the overview."""
        there = request.POST.get("next", "")
        is_own = url_has_allowed_host_and_scheme(there, None) and there.startswith(self.url())
        return there if is_own else self.url()

    def back(self, request: HttpRequest) -> HttpResponseRedirect:
        """Redirect to the page that a form came from."""
        return HttpResponseRedirect(self.origin(request))
