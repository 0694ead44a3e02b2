"""What has failed, for operators: the calls, and groups of failures that are alike."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from math import inf

from djqueue.backends.base import BaseQueue, Entry
from djqueue.exceptions import InvalidMessage, UnknownCommand
from djqueue.messages.failures import errors_of, kind_of, text_of
from djqueue.operations.messages import Message
from djqueue.registry import registry
from djqueue.running.context import open_entry
from djqueue.running.describing import arguments_of
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


@dataclass(slots=True)
class Group:
    """Failed messages of one command that failed with one exception."""

    command: str
    exception: str
    """Its dotted name; for what never raised, the beginning of the reason."""
    raised: bool
    count: int = 0
    first: float = inf
    """When the first of them failed (epoch seconds)."""
    last: float = 0.0
    id: str = ""
    """The id of the last."""
    reason: str = ""
    """Why the last failed."""


def grouped(found: Iterable[Message]) -> list[Group]:
    """The messages by command and exception, the most frequent first."""
    groups: dict[tuple[str, str], Group] = {}
    for one in found:
        key = one.command, one.exception or one.reason.partition(":")[0] or NONE
        group = groups.setdefault(key, Group(*key, raised=bool(one.exception)))
        group.count, group.first = group.count + 1, min(group.first, one.at)
        if one.at >= group.last:
            group.last, group.id, group.reason = one.at, one.id, one.reason
    return sorted(groups.values(), key=lambda group: (-group.count, -group.last))


def group_object(group: Group) -> dict:
    """A group, for JSON."""
    known = asdict(group)
    return known | {"exception": group.exception if known.pop("raised") else None, "reason": group.reason or None}


def brief(one: Message) -> dict:
    """A line of the list of what has failed, for JSON."""
    reasons = {name: getattr(one, name) or None for name in ("exception", "reason", "description")}
    return _known(one) | reasons


def full(one: Message, with_body: bool = False) -> dict:
    """All that is known of what has failed, for JSON. The body is encoded arguments, in base64."""
    body = {"body": b64encode(one.entry.body).decode()} if with_body else {}
    return _known(one) | {"errors": errors_of(one.entry.errors)} | body


def _known(one: Message) -> dict:
    names = ("id", "command", "priority", "attempts", "failures", "lost", "created")
    known = {name: getattr(one, name) for name in names}
    return {"queue": one.queue, **known, "failed_at": one.at, "bytes": one.bytes}
