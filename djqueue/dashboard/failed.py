"""What has failed, by command and exception."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from glob import escape
from typing import NamedTuple

from django.http import HttpRequest, HttpResponse
from django.utils.http import urlencode

from djqueue.backends.base import BaseQueue
from djqueue.backends.entries import FAILED
from djqueue.dashboard.seeing import able, left_out
from djqueue.dashboard.site import Site
from djqueue.exceptions import QueueError
from djqueue.operations.failed import Group, grouped
from djqueue.operations.paging import MOST_LOOKED_AT, first_and_last_failed
from djqueue.operations.queues import asking
from djqueue.words import short_names


class Row(NamedTuple):
    """Failed messages of one queue that are alike."""

    queue: str
    group: Group
    command: str
    """The command's name, as short as it can be."""
    is_least: bool
    """Whether there may be more than are counted."""

    @property
    def exception(self) -> str:
        """What it failed with, as people name it."""
        return self.group.exception.removeprefix("builtins.")

    @property
    def filter(self) -> dict[str, str]:
        """What the page of messages filters by to show them."""
        name = self.group.exception
        why = {"exception": escape(name)} if self.group.raised else {"reason": name}
        return {"queue": self.queue, "state": FAILED, "command": escape(self.group.command), **why}

    @property
    def query(self) -> str:
        """The same, as it stands in an address: ``?`` is any character, half of one too, which no address can have."""
        return urlencode({name: value.encode(errors="replace").decode() for name, value in self.filter.items()})


def page(site: Site, request: HttpRequest) -> HttpResponse:
    queues, others = able("inspect")
    groups: list[tuple[str, Group]] = []
    capped = []
    problems = []
    for queue in queues:
        try:
            found, are_all = _groups(queue)
        except QueueError as error:  # the others are shown
            problems.append(str(error))
            continue
        groups += [(queue.alias, group) for group in found]
        capped += [] if are_all else [queue.alias]
    context = {
        "rows": _rows(groups, capped),
        "capped": ", ".join(capped),
        "half": MOST_LOOKED_AT // 2,
        "problems": problems,
        "left_out": left_out(others, "inspect"),
    }
    return site.show(request, "failed", context)


def _groups(queue: BaseQueue) -> tuple[list[Group], bool]:
    """The groups of what has failed, and whether all of it is counted."""
    with asking(queue):
        found, are_all = first_and_last_failed(queue, MOST_LOOKED_AT)
    return grouped(found), are_all


def _rows(groups: Sequence[tuple[str, Group]], capped: Collection[str]) -> list[Row]:
    names = short_names({group.command for _, group in groups})
    latest = sorted(groups, key=lambda one: -one[1].last)
    return [Row(alias, group, names[group.command], alias in capped) for alias, group in latest]
