"""The queues that operators ask about, and what is wrong with queues that cannot be asked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TypeVar

from djqueue.backends.base import BaseQueue
from djqueue.exceptions import NotSupported, QueueError, StoreError
from djqueue.operations.errors import QueueUnavailable
from djqueue.throttle import unthrottled
from djqueue.wiring import queues as all_queues
from djqueue.words import counted

T = TypeVar("T")
FEATURES = {
    "inspect": "list its messages",
    "lanes": "show lanes",
    "history": "keep a history",
    "facts": "be paused, nor show who serves it and what is done in a minute",
}
"""What operators need from a queue, and the words for a queue that cannot do it."""


def chosen(aliases: Iterable[str] | None) -> list[BaseQueue]:
    """The queues of these aliases, all of them for None. Raises InvalidQueueError for one that cannot be made."""
    return [all_queues[alias] for alias in dict.fromkeys(all_queues if aliases is None else aliases)]


def able(queues: Iterable[BaseQueue], feature: str) -> tuple[list[BaseQueue], list[BaseQueue]]:
    """The queues that have a feature, and the others."""
    found: tuple[list[BaseQueue], list[BaseQueue]] = ([], [])
    for queue in queues:
        found[feature not in queue.features].append(queue)
    return found


def with_feature(queues: Iterable[BaseQueue], feature: str, asked_for: bool) -> tuple[list[BaseQueue], str]:
    """The queues that have a feature, and which others are left out.

    Raises NotSupported if one that was asked for lacks it, or all do.
    """
    found, others = able(queues, feature)
    if others and (asked_for or not found):
        raise NotSupported(f"{_names_of(others)}: the backend cannot {FEATURES[feature]}.")
    return found, left_out(others, feature)


def left_out(others: Sequence[BaseQueue], feature: str) -> str:
    """Which queues a report leaves out as they lack a feature; "" if none."""
    if not others:
        return ""
    count = counted(len(others), "queue")
    return f"Left out: {count} whose backend cannot {FEATURES[feature]}: {_names_of(others)}."


def _names_of(queues: Iterable[BaseQueue]) -> str:
    return ", ".join(f"{one.alias!r} ({type(unthrottled(one)).__name__})" for one in queues)


@contextmanager
def asking(queue: BaseQueue) -> Iterator[None]:
    """A block that asks a queue. Raises QueueUnavailable for errors of its client, with the findings of its checks."""
    try:
        yield
    except StoreError as error:  # it has checked its store itself
        raise QueueUnavailable(str(error.of_queue(queue.alias))) from error
    except QueueError:  # of the block itself
        raise
    except Exception as error:
        lines = [f"Queue {queue.alias!r} ({queue.describe()}) cannot be asked: {error}"]
        with suppress(Exception):  # the checks ask the store too, and may fail the same way
            lines += [f"{message.msg} {message.hint or ''}".rstrip() for message in queue.check()]
        raise QueueUnavailable("\n".join(lines)) from error


@contextmanager
def asking_stores() -> Iterator[None]:
    """A block that asks the stores of several queues. Raises QueueUnavailable for errors of a client, in one line."""
    try:
        yield
    except StoreError as error:
        raise QueueUnavailable(str(error)) from error
    except QueueError:
        raise
    except Exception as error:
        raise QueueUnavailable(f"A store cannot be asked: {error}") from error


def of_each(queues: Iterable[BaseQueue], read: Callable[[BaseQueue], Iterable[T]]) -> tuple[list[T], list[str]]:
    """What is read from each queue, and what is wrong with queues that cannot be asked, each text once."""
    found: list[T] = []
    failures: dict[str, None] = {}  # queues of one store fail the same way
    for queue in queues:
        try:
            with asking(queue):
                found += read(queue)
        except QueueError as error:
            failures |= dict.fromkeys(str(error).splitlines())
    return found, list(failures)
