"""What has failed, for operators: the calls, and groups of similar failures."""

from __future__ import annotations

from base64 import b64encode
from collections import Counter
from collections.abc import Iterable
from glob import escape
from math import inf
from typing import Any

from djqueue.backends.base import BaseQueue, Entry, Record
from djqueue.backends.entries import FAILED
from djqueue.exceptions import InvalidMessage, UnknownCommand
from djqueue.messages.failures import errors_of, kind_of, text_of
from djqueue.operations.messages import MessageRow
from djqueue.operations.reports import Kind, as_json, column, columns, report_row
from djqueue.registry import registry
from djqueue.running.context import open_entry
from djqueue.running.describing import arguments_of
from djqueue.running.ends import failed_at, of_last
from djqueue.words import NONE


def call_of(queue: BaseQueue, entry: Entry) -> tuple[str, str]:
    """The call of a message as code, or "" and why it cannot be shown. What is not signed is never decoded."""
    try:
        envelope = open_entry(queue, entry)
        command = registry.find(envelope.command)
        args, kwargs = envelope.arguments()  # reads model instances
    except InvalidMessage as error:
        return "", str(error)
    except UnknownCommand as error:
        return "", f"it is not known which of its arguments are sensitive: {error}"
    except Exception as error:
        return "", f"{kind_of(error)}: {text_of(error)}"
    return arguments_of(command, args, kwargs), ""


@report_row
class FailedMessage:
    """A message in the report of what has failed."""

    id: str = column("id", Kind.ID, key=True)
    queue: str = column("queue", Kind.QUEUE)
    command: str = column("command", Kind.COMMAND)
    failed_at: float = column("failed", Kind.MOMENT)
    attempts: int = column("attempts", Kind.NUMBER)
    worker: str = column("worker", Kind.NAME, optional=True)
    """The consumer that ran the last attempt that failed."""
    about: str = column("reason", in_json=False)
    """What it was about, and why it failed."""
    priority: int = column(kind=Kind.NUMBER)
    failures: int = column(kind=Kind.NUMBER)
    lost: int = column(kind=Kind.NUMBER)
    created: float = column(kind=Kind.MOMENT)
    bytes: int = column(kind=Kind.NUMBER)
    exception: str = column(kind=Kind.COMMAND)
    reason: str = column()
    description: str = column()

    @classmethod
    def of(cls, one: MessageRow) -> FailedMessage:
        same = {name: getattr(one, name) for name in SAME}
        return cls(**same, failed_at=one.at, worker=of_last(one.end.errors, "consumer"))


SAME = tuple(one.name for one in columns(FailedMessage) if one.name in {same.name for same in columns(MessageRow)})
"""The columns that any message has."""


@report_row
class Group:
    """Failed messages of one command with one exception."""

    count: int = column("count", Kind.COUNT, bad=0)
    command: str = column("command", Kind.COMMAND, key=True)
    cause: str = column("exception", Kind.COMMAND, in_json=False)
    """The dotted name of the exception; for what never raised, the beginning of the reason."""
    first: float = column("first", Kind.MOMENT)
    """When the first of them failed (epoch seconds)."""
    last: float = column("last", Kind.MOMENT)
    id: str = column("id of last", Kind.ID)
    exception: str | None = column()
    """None if nothing was raised."""
    reason: str = column("reason")
    """Why the last failed."""
    queue: str = column("queue", Kind.QUEUE, optional=True, in_json=False, default="")
    """The alias of the queue, if they are of one."""
    capped: int | None = column(in_json=False, default=None)
    """The number at which counting stopped."""

    @property
    def conditions(self) -> dict[str, str]:
        """The conditions of a filter that selects them."""
        why = {"exception": escape(self.cause)} if self.exception else {"reason": self.cause}
        return {"queue": self.queue, "state": FAILED, "command": escape(self.command), **why}


def grouped(found: Iterable[Record]) -> list[Group]:
    """What has failed by command and exception, the most frequent first."""
    counts, first = Counter[tuple[str, str]](), dict[tuple[str, str], float]()
    last: dict[tuple[str, str], tuple[float, str, str | None, str]] = {}
    for record in found:
        entry, at, errors = record.entry, failed_at(record), errors_of(record.entry.errors)
        exception, reason = of_last(errors, "exception"), of_last(errors, "reason")
        key = entry.command, exception or reason.partition(":")[0] or NONE
        counts[key] += 1
        first[key] = min(first.get(key, inf), at)
        if key not in last or at >= last[key][0]:
            last[key] = at, entry.id, exception or None, reason
    groups = []
    for key, count in counts.items():
        at, id, raised, why = last[key]
        groups.append(Group(count, *key, first[key], at, id, raised, why))
    return sorted(groups, key=lambda group: (-group.count, -group.last))


def export(one: MessageRow, with_body: bool = False) -> dict[str, Any]:
    """All that is known about failed messages, for programs; the body has the encoded arguments in base64."""
    body = {"body": b64encode(one.entry.body).decode()} if with_body else {}
    return as_json(FailedMessage.of(one)) | {"errors": one.end.errors} | body
