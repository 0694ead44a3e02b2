"""The page *Try it*: its buttons need no login, and visitors see their own calls."""

import secrets

from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_POST

from tryit import records, reports
from tryit.cards import BY_NAME, CARDS
from tryit.source import coloured

ENOUGH = "That was a lot at once: wait half a minute."


@require_GET
def page(request: HttpRequest) -> HttpResponse:
    return render(request, "tryit/page.html", {"cards": [(card, coloured(card.source)) for card in CARDS]})


@require_GET
@never_cache
def state(request: HttpRequest) -> JsonResponse:
    return JsonResponse(reports.state(request.session.get("visitor", "")))


@require_POST
def press(request: HttpRequest, name: str, action: str) -> HttpResponse:
    """A button. The script of the page asks for JSON; without it the page comes again."""
    if name not in BY_NAME or action not in BY_NAME[name].actions:
        raise Http404(f"There is no button {name}/{action}.")
    visitor = request.session.setdefault("visitor", secrets.token_hex(8))
    if records.is_too_much(visitor):
        return HttpResponse(ENOUGH, status=429, content_type="text/plain")
    BY_NAME[name].actions[action][1](visitor)
    if "application/json" in request.headers.get("Accept", ""):
        return JsonResponse(reports.state(visitor))
    return redirect(f"/try/#{name}")
