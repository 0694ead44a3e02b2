"""What has failed, by command and exception."""

from __future__ import annotations

from collections.abc import Sequence
from glob import escape
from typing import NamedTuple

from django.core.management.base import CommandError
from django.http import HttpRequest, HttpResponse
from django.utils.http import urlencode

from djqueue.backends.base import BaseQueue
from djqueue.backends.entries import FAILED
from djqueue.dashboard.seeing import able, left_out
from djqueue.dashboard.site import Site
from djqueue.management.tables import asking
from djqueue.operations.failed import Group, grouped
from djqueue.operations.paging import Selection
from djqueue.operations.paging import page as page_of
from djqueue.utils import short_names

MOST_GROUPED = 2_000
"""Failed messages of a queue that are counted."""


class Row(NamedTuple):
    """Failed messages of one queue that are alike."""

    queue: str
    group: Group
    command: str
    """The command's name, as short as it can be."""

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
        """The same, as it stands in an address."""
        return urlencode(self.filter)


def page(site: Site, request: HttpRequest) -> HttpResponse:
    queues, others = able("inspect")
    groups: list[tuple[str, Group]] = []
    capped = []
    problems = []
    for queue in queues:
        try:
            found, is_capped = _groups(queue)
        except CommandError as error:  # the others are shown
            problems.append(str(error))
            continue
        groups += [(queue.alias, group) for group in found]
        capped += [queue.alias] if is_capped else []
    context = {
        "rows": _rows(groups),
        "capped": ", ".join(capped),
        "most": MOST_GROUPED,
        "problems": problems,
        "left_out": left_out(others, "inspect"),
    }
    return site.show(request, "failed", context)


def _groups(queue: BaseQueue) -> tuple[list[Group], bool]:
    """The groups of what failed first, and whether more has failed than is counted."""
    with asking(queue):
        found = page_of(Selection([queue], [FAILED]), size=MOST_GROUPED, most=MOST_GROUPED)
    return grouped((queue, one.record) for one in found.messages), found.next is not None


def _rows(groups: Sequence[tuple[str, Group]]) -> list[Row]:
    names = short_names({group.command for _, group in groups})
    latest = sorted(groups, key=lambda one: -one[1].last)
    return [Row(alias, group, names[group.command]) for alias, group in latest]
