"""What travels between a queue and Amazon SQS: names, messages, and the proof that a message is in our hands."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from hashlib import sha256
from math import ceil

from djqueue import utils
from djqueue.backends import fallback
from djqueue.backends.entries import FAILED, Entry
from djqueue.exceptions import InvalidQueueError
from djqueue.messages.envelope import new_id
from djqueue.utils import clock

AT_ONCE = 10
"""Messages in one call, which is all that SQS takes."""
LONGEST_DELAY = 900
"""Seconds for which SQS itself can delay a message."""
LONGEST_HOLD = 43_200
"""Seconds for which a message can be held, from when it was received."""
LONGEST_KEPT = 14 * 86_400
"""Seconds: the longest that SQS keeps a message."""
FIFO = ".fifo"

_LONGEST_NAME = 80
_AFFIXES = 40  # characters that PREFIX and SUFFIX may have together, so that names stay readable
_DIGEST = 16
_DEAD_END = f"-{FAILED}"
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")
_KEY = re.compile(r"[!-~]{1,128}")


# ---- names


def is_fifo(name: str, fifo: object) -> bool:
    """Whether a name and the option FIFO mean a FIFO queue. Raises InvalidQueueError if they contradict each other."""
    by_name = name.removesuffix(f":{FAILED}").endswith(FIFO)
    if not (fifo is None or isinstance(fifo, bool)) or (by_name and fifo is False):
        raise InvalidQueueError(f"OPTIONS['FIFO'] of the SQS queue {name!r} is {fifo!r}: give True, or leave it out.")
    return by_name or bool(fifo)


def sqs_name(name: str, prefix: str, suffix: str, fifo: bool) -> str:
    """The name at SQS. Names that SQS cannot have, or that could be taken for another's, get a digest at their end."""
    logical = name.removesuffix(f":{FAILED}")
    base = logical.removesuffix(FIFO)
    room = _LONGEST_NAME - len(prefix) - len(suffix) - len(_DEAD_END) - len(FIFO)
    plain = _UNSAFE.sub("-", base)
    if plain != base or not base or len(base) > room or base.endswith(_DEAD_END):
        digest = sha256(logical.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST]
        plain = f"{plain[: room - _DIGEST - 1]}-{digest}"
    return prefix + plain + _DEAD_END * (name != logical) + suffix + FIFO * fifo


def check_options(prefix: object, suffix: object, create: object) -> None:
    """Raises InvalidQueueError for a PREFIX or SUFFIX that no name at SQS can have, and a CREATE that says nothing."""
    if not isinstance(create, bool):
        raise InvalidQueueError(f"OPTIONS['CREATE'] of an SQS queue is {create!r}: give True or False.")
    for option, value in (("PREFIX", prefix), ("SUFFIX", suffix)):
        if not isinstance(value, str) or _UNSAFE.search(value):
            raise InvalidQueueError(
                f"OPTIONS[{option!r}] of an SQS queue is {value!r}: give letters, digits, '-', '_'."
            )
    if len(prefix) + len(suffix) > _AFFIXES:
        raise InvalidQueueError(f"OPTIONS['PREFIX'] and ['SUFFIX'] have more than {_AFFIXES} characters together.")


# ---- messages


def outgoing(entry: Entry, now: float, group: str, repeat: bool = True) -> dict:
    """The message of an entry, for a standard queue if it is of no group.

    With ``repeat`` a FIFO queue takes it even if its id came within five minutes.
    """
    wait = max(0, min(LONGEST_DELAY, ceil(round(entry.run_at - now, 3))))
    if group:
        keys = {"MessageGroupId": _key(group), "MessageDeduplicationId": _key(entry.id)}
        if repeat:
            keys["MessageDeduplicationId"] = new_id()
        return {"MessageBody": fallback.pack(entry), **keys}
    # A moment that SQS keeps by its own clock is not written down: the clock of a worker then has no say.
    early = entry if wait == LONGEST_DELAY else replace(entry, run_at=0.0)
    return {"MessageBody": fallback.pack(early), "DelaySeconds": wait}


def _key(text: str) -> str:
    """A text as the id of a group, or for deduplication: 128 visible characters of ASCII."""
    return text if _KEY.fullmatch(text) else sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def portions(messages: Sequence[dict], most: int) -> Iterator[list[dict]]:
    """As many as one call takes, by number and by bytes."""
    return utils.portions(messages, AT_ONCE, most, lambda message: len(message["MessageBody"]))


slices = partial(utils.slices, most=AT_ONCE)
"""As many as one call takes."""


def whole(seconds: float) -> int:
    """Seconds of a lease as SQS can count them."""
    return max(1, min(LONGEST_HOLD, ceil(seconds)))


class Receipt:
    """The token of a lease: what SQS wants to hear, and what was said already. SQS itself would not tell a late word.

    Of several threads, or several calls, that settle one lease the first is heard. A call that raised has not been
    heard: what it did is remembered, and counts when it comes again.
    """

    __slots__ = ("_busy", "counted", "handle", "id", "receives", "sent", "settled", "since", "told", "until")

    def __init__(self, id: str, handle: str, receives: int, counted: int, sent: float, since: float, seconds: float):
        self.id, self.handle = id, handle
        self.receives, self.counted = receives, counted
        """How often SQS has given the message out, and how many of these times its entry knows of."""
        self.sent, self.since, self.until = sent, since, since + seconds
        """When it came to SQS (epoch seconds); from when to when it is ours (by the clock)."""
        self.settled = self.told = False
        """Whether SQS knows what became of it, and whether our caller does."""
        self._busy = threading.Lock()

    def begin(self) -> bool:
        """Whether nobody has settled it, nor is about to; if so it is the caller's until ``end``."""
        if self.told or not self._busy.acquire(blocking=False):
            return False
        if self.told:
            self._busy.release()
        return not self.told

    def end(self, told: bool) -> None:
        self.told = told
        self._busy.release()

    @property
    def late(self) -> bool:
        """Whether somebody else may hold the message by now."""
        return clock() >= self.until

    def span(self, seconds: float) -> int:
        """So many more seconds as SQS counts them, up to twelve hours since it was received; 0 if those are over."""
        left = LONGEST_HOLD - 1 - int(clock() - self.since)
        return max(0, min(ceil(seconds), left))
