"""The messages that operators name by their ids, or by parts of ids."""

from __future__ import annotations

from collections.abc import Sequence

from django.core.management.base import CommandError

from djqueue.backends.base import BaseQueue
from djqueue.operations import messages
from djqueue.operations.messages import Message
from djqueue.operations.queues import asking
from djqueue.words import NONE, moment, number, printable

MOST_CANDIDATES = 10


def by_id(queues: Sequence[BaseQueue], id: str) -> tuple[BaseQueue, Message]:
    """The message that an id, or a part of one, stands for. Raises CommandError unless it is one."""
    return by_ids(queues, [id])[0]


def by_ids(queues: Sequence[BaseQueue], ids: Sequence[str]) -> list[tuple[BaseQueue, Message]]:
    """The messages that ids, or parts of ids, stand for, each once. Raises CommandError unless each stands for one."""
    by_alias, found = {queue.alias: queue for queue in queues}, {}
    for queue in queues[:1]:
        with asking(queue):
            found = messages.found_by(queues, dict.fromkeys(ids))
    if any(len(matches) != 1 for matches in found.values()):
        raise not_one(queues, found)
    only = {one.id: one for [one] in found.values()}
    return [(by_alias[one.queue], one) for one in only.values()]


def not_one(queues: Sequence[BaseQueue], found: dict[str, list[Message]]) -> CommandError:
    """The error for ids that stand for no message, and for parts of several ids."""
    lines, where = [], ", ".join(repr(queue.alias) for queue in queues)
    if unknown := [part for part, matches in found.items() if not matches]:
        whole = "queue_explain says what became of a message whose whole id you give"
        lines.append(f"Not waiting, running or failed in {where}: {', '.join(unknown)}; {whole}")
    for part, matches in found.items():
        if len(matches) > 1:
            lines.append(f"{part} is a part of {number(len(matches))} ids, give more of one:")
            lines += [_candidate(one) for one in matches[:MOST_CANDIDATES]]
            lines += ["  …"] if len(matches) > MOST_CANDIDATES else []
    return CommandError("\n".join(lines))


def _candidate(one: Message) -> str:
    return printable(f"  {one.id}  {one.state}  {moment(one.created)}  {one.command or NONE}")
