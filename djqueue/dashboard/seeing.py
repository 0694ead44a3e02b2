"""What the pages say about queues: what each cannot show, and which page shows more of a problem."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from djqueue.backends.base import BaseQueue
from djqueue.exceptions import QueueError
from djqueue.operations import queues
from djqueue.operations.counts import QueueRow, Seen
from djqueue.operations.explaining import Reason
from djqueue.operations.health import Problem
from djqueue.operations.queues import FEATURES, asking, chosen
from djqueue.operations.throttles import throttle_of
from djqueue.words import counted

PAGES = {
    **dict.fromkeys(("age", "backlog", "command_paused", "consumers", "paused", "queue_paused", "store"), "queues"),
    **dict.fromkeys(("errors", "failed"), "failed"),
    **dict.fromkeys(("gone", "quiet"), "consumers"),
    **dict.fromkeys(("lane_paused", "lane_retry"), "lanes"),
    "command": "messages",
}
"""The page that shows more of a kind of problem or reason."""
WITH_A_BUTTON = (
    *("due", "failed", "postponed", "retry"),
    *("command_paused", "errors", "lane_paused", "lane_retry", "paused", "queue_paused", "quiet"),
)
"""The kinds whose advice has a button, here or on the page that shows more: it needs no command line."""


def able(feature: str) -> tuple[list[BaseQueue], list[BaseQueue]]:
    """The queues that have a feature, and the others."""
    return queues.able(chosen(None), feature)


def advised(rows: Iterable[Problem | Reason]) -> list[Problem | Reason]:
    """Problems or reasons, with advice where no page has a button for it."""
    return [replace(one, advice="") if one.kind in WITH_A_BUTTON else one for one in rows]


def row_of(one: Seen) -> QueueRow:
    """A queue in the report of queues, with a note."""
    lacks = [words for feature, words in FEATURES.items() if feature not in one.queue.features]
    many = counted(len(one.servers), "consumer")
    notes = (
        f"served by {many}" if one.servers else "",
        "in the memory of this process" if one.keeps_facts and one.queue.store.is_local else "",
        f"Its backend cannot {', '.join(lacks)}." if lacks else "",
        _throttle(one.queue) if one.stats is not None else "",
    )
    return QueueRow.of(one, note="; ".join(filter(None, notes)))


def _throttle(queue: BaseQueue) -> str:
    """How full its throttle is, or why that is not known; "" without one."""
    try:
        with asking(queue):
            return str(throttle_of(queue) or "")
    except QueueError as error:
        return str(error)
