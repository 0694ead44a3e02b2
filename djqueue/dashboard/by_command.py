"""The commands: how often each ran lately, how long it took, and whether it is paused."""

from __future__ import annotations

from typing import NamedTuple

from django.http import HttpRequest, HttpResponse

from djqueue.backends.base import BaseQueue
from djqueue.dashboard.seeing import able, left_out, pause_of
from djqueue.dashboard.site import Site
from djqueue.management.tables import asking, told
from djqueue.operations import pauses
from djqueue.operations.history import CommandCounts, by_command
from djqueue.registry import registry
from djqueue.running.pauses import COMMAND, Pause
from djqueue.utils import short_names

SAMPLE = 1_000
"""Messages of each queue that are counted, the latest."""
MOST_SHOWN = 200


class Row(NamedTuple):
    """A command in a queue."""

    queue: BaseQueue
    command: str
    name: str
    """The command's name, as short as it can be."""
    counts: CommandCounts | None
    """None if none of the messages that are counted is of this command."""
    pause: Pause | None


def page(site: Site, request: HttpRequest) -> HttpResponse:
    queues, others = able("history")
    with told():
        rows = _rows(queues)
    context = {
        "rows": rows[:MOST_SHOWN],
        "more": max(0, len(rows) - MOST_SHOWN),
        "sample": SAMPLE,
        "left_out": left_out(others, "history"),
    }
    return site.show(request, "by_command", context)


def _rows(queues: list[BaseQueue]) -> list[Row]:
    """The commands that ran in a queue, and those that are declared for it."""
    found: list[tuple[BaseQueue, str, CommandCounts | None]] = []
    for queue in queues:
        with asking(queue):
            counts = {one.command: one for one in by_command(queue, SAMPLE)}
        declared = sorted(one.name for one in registry if one.policy.queue_name == queue.alias)
        found += [(queue, name, counts.get(name)) for name in dict.fromkeys([*counts, *declared])]
    paused = pauses([queue.alias for queue in queues]) if queues else []
    names = short_names({name for _, name, _ in found})
    return [
        Row(queue, name, names[name], counts, pause_of(queue, paused, COMMAND, name)) for queue, name, counts in found
    ]
