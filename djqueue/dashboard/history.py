"""What became of the messages of a queue, the newest first."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse

from djqueue.dashboard.seeing import able
from djqueue.dashboard.selecting import text_in, written
from djqueue.dashboard.site import Site
from djqueue.operations import history
from djqueue.operations.history import EndedMessage, HistoryFilter, HistoryPage
from djqueue.operations.queues import left_out, of_each
from djqueue.running.ends import STATUSES


def page(site: Site, request: HttpRequest) -> HttpResponse:
    queues, others = able("history")
    given = {name: value for name in ("queue", "status", "command") if (value := request.GET.get(name, "").strip())}
    chosen = next((one for one in queues if one.alias == given.get("queue", one.alias)), None)
    context: dict[str, Any] = {
        "given": given,
        "queues": [queue.alias for queue in queues],
        "chosen": chosen.alias if chosen else "",
        "statuses": STATUSES,
        "left_out": left_out(others, "history"),
    }
    if chosen is not None:
        statuses = [one for one in STATUSES if one == given.get("status")] or STATUSES
        wanted, before = HistoryFilter(statuses, given.get("command", "")), text_in(request.GET.get("after", ""))
        pages, problems = of_each([chosen], lambda queue: [history.page(queue, wanted, before)])
        found = pages[0] if pages else HistoryPage()
        context |= {
            "problems": problems,
            "rows": [EndedMessage.of(row, site.may(request, "view_arguments")) for row in found.rows],
            "next": site.url("history", **given, after=written(found.next)) if found.next else None,
            "first": site.url("history", **given) if before else None,
        }
    return site.show(request, "history", context)
