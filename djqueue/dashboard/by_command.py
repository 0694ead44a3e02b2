"""The commands: how often each ran in the last hour and day, how long it took, and whether it is paused."""

from __future__ import annotations

from collections.abc import Sequence
from glob import escape
from itertools import islice

from django.http import HttpRequest, HttpResponse

from djqueue.dashboard import plots
from djqueue.dashboard.plots import COUNTS, TIMES, Plot, Series
from djqueue.dashboard.seeing import able
from djqueue.dashboard.site import Site
from djqueue.operations.by_command import command_rows, known_commands, point_rows
from djqueue.operations.queues import left_out
from djqueue.operations.rates import DAY, HOUR, CommandRates, Point

MOST_SHOWN = 100


def page(site: Site, request: HttpRequest) -> HttpResponse:
    queues, others = able("facts")
    period = DAY if request.GET.get("period") == DAY else HOUR
    known = known_commands(queues)
    rows = command_rows(queues, known, period)
    context = {
        "period": period,
        "periods": (HOUR, DAY),
        "rows": [*islice(rows, MOST_SHOWN)],
        "more": sum(1 for _ in rows),
        "problems": known.problems,
        "left_out": left_out(others, "facts"),
    }
    return site.show(request, "by_command", context)


def one(site: Site, request: HttpRequest) -> HttpResponse:
    """A command in a queue, with plots of its counts, of how long it ran, and of how long its messages waited."""
    alias, name = request.GET.get("queue", ""), request.GET.get("command", "")
    known = known_commands(able("facts")[0], escape(name))
    found = {period: known.rates[period].get((alias, name)) for period in (HOUR, DAY)}
    context = {
        "queue": alias,
        "command": name,
        "periods": [
            (period, counted, _plots(counted), point_rows(counted)) for period, counted in found.items() if counted
        ],
        "problems": known.problems,
    }
    return site.show(request, "command", context, f"Command {name}", status=200 if any(found.values()) else 404)


def _counts(points: Sequence[Point]) -> list[Series]:
    return [
        Series("done", [one.done for one in points]),
        Series("failed", [one.failed for one in points]),
        Series("retried", [one.retried for one in points]),
        Series("others", [sum(one.others.values()) for one in points]),
    ]


def _plots(counted: CommandRates) -> list[Plot]:
    points, starts = counted.points, [one.start for one in counted.points]
    counts = [one for one in _counts(points) if any(one.values) or one.name == "done"]
    ran = [Series("median", [one.run.p50 for one in points]), Series("p95", [one.run.p95 for one in points])]
    waited = [Series("median", [one.wait.p50 for one in points]), Series("p95", [one.wait.p95 for one in points])]
    return [
        plots.bars("Attempts", starts, counts, COUNTS),
        plots.lines("Ran for", starts, ran, TIMES),
        plots.lines("Waited for", starts, waited, TIMES),
    ]
