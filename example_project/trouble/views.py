"""The buttons that make trouble and end it, for those who may pause; they lead to the dashboard."""

from django.contrib import messages
from django.contrib.auth.decorators import permission_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST

from trouble import making

MADE = "There is trouble now. What fails, what waits, what is blocked, and why? The pages of the dashboard tell."
ENDED = "The services answer again, and newsletters are sent. What has failed can be retried, on the page Failed."


@require_POST
@permission_required("djqueue.pause")
def make(request: HttpRequest) -> HttpResponse:
    making.make(request.user.get_username())
    return _told(request, MADE)


@require_POST
@permission_required("djqueue.pause")
def end(request: HttpRequest) -> HttpResponse:
    making.end(request.user.get_username())
    return _told(request, ENDED)


def _told(request: HttpRequest, text: str) -> HttpResponse:
    messages.success(request, text)
    return redirect("admin:djqueue_dashboard_changelist")
