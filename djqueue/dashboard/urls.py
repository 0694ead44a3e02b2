"""The addresses of the pages, below the dashboard in the admin."""

from __future__ import annotations

from django.urls import URLPattern, path

from djqueue.dashboard import (
    actions,
    by_command,
    consumers,
    failed,
    history,
    lanes,
    messages,
    overview,
    queues,
    schedules,
)
from djqueue.dashboard.site import OVERVIEW, PageView, Site

PAGES: dict[str, tuple[str, PageView]] = {
    OVERVIEW: ("", overview.page),
    "queues": ("queues/", queues.page),
    "failed": ("failed/", failed.page),
    "messages": ("messages/", messages.page),
    "message": ("message/", messages.one),
    "consumers": ("consumers/", consumers.page),
    "lanes": ("lanes/", lanes.page),
    "schedules": ("schedules/", schedules.page),
    "schedule": ("schedules/edit/", schedules.edit),
    "history": ("history/", history.page),
    "by_command": ("commands/", by_command.page),
    "command": ("commands/one/", by_command.one),
    "act": ("act/", actions.act),
}
"""The name of each, its address, and what serves it."""


def patterns(site: Site) -> list[URLPattern]:
    return [path(at, site.view(page), name=f"djqueue_dashboard_{name}") for name, (at, page) in PAGES.items()]
