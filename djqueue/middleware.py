"""Middleware for a project's MIDDLEWARE."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

from asgiref.sync import iscoroutinefunction
from django.http import HttpRequest, HttpResponse
from django.utils.decorators import sync_and_async_middleware

from djqueue.messages.metadata import request_id

HEADER = "X-Request-ID"
PLAIN = re.compile(r"[A-Za-z0-9._:/+=-]{1,128}")
"""What an id of a client may look like: it is written into logs."""


@sync_and_async_middleware
def RequestIdMiddleware(get_response: Callable[..., Any]) -> Callable[..., Any]:
    """Gives each request an id, which the logs of the commands that it causes show.

    It is that of the header X-Request-ID, as a proxy sets it, or else a new one. The response has it too.
    """
    if iscoroutinefunction(get_response):

        async def serve_async(request: HttpRequest) -> HttpResponse:
            with _named(request) as id:
                return _marked(await get_response(request), id)

        return serve_async

    def serve(request: HttpRequest) -> HttpResponse:
        with _named(request) as id:
            return _marked(get_response(request), id)

    return serve


@contextmanager
def _named(request: HttpRequest) -> Iterator[str]:
    given = request.headers.get(HEADER, "")
    id = given if PLAIN.fullmatch(given) else uuid4().hex
    token = request_id.set(id)
    try:
        yield id
    finally:
        request_id.reset(token)


def _marked(response: HttpResponse, id: str) -> HttpResponse:
    response.headers.setdefault(HEADER, id)
    return response
