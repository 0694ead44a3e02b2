"""What has failed, by command and exception."""

from __future__ import annotations

from dataclasses import replace

from django.http import HttpRequest, HttpResponse

from djqueue.backends.base import BaseQueue
from djqueue.backends.entries import FAILED
from djqueue.dashboard import message_actions
from djqueue.dashboard.seeing import able
from djqueue.dashboard.site import Site
from djqueue.operations.failed import Group, grouped
from djqueue.operations.paging import MOST_CHECKED, first_and_last_failed
from djqueue.operations.queues import left_out, of_each


def page(site: Site, request: HttpRequest) -> HttpResponse:
    queues, others = able("inspect")
    capped: list[str] = []

    def read(queue: BaseQueue) -> list[Group]:
        found, are_all = first_and_last_failed(queue, MOST_CHECKED)
        capped.extend([] if are_all else [queue.alias])
        return [replace(one, queue=queue.alias, capped=None if are_all else one.count) for one in grouped(found)]

    groups, problems = of_each(queues, read)
    context = {
        "group_actions": [one for one in message_actions.allowed(site, request, [FAILED]) if one.group_title],
        "rows": sorted(groups, key=lambda one: -one.last),
        "capped": ", ".join(capped),
        "half": MOST_CHECKED // 2,
        "problems": problems,
        "left_out": left_out(others, "inspect"),
    }
    return site.show(request, "failed", context)
