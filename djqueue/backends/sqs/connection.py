"""A queue at Amazon SQS: its name, its limits, the proof that a message is in our hands, calls, and system checks."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from hashlib import sha256
from math import ceil
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from django.core.checks import CheckMessage, Error, Warning

from djqueue import utils
from djqueue.backends.entries import FAILED, Entry, pack
from djqueue.backends.stores import BaseStore, NoStore
from djqueue.exceptions import InvalidQueueError, StoreUnreachable
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
    """Raises InvalidQueueError for a PREFIX or SUFFIX that no name at SQS can have, and a CREATE that is no bool."""
    if not isinstance(create, bool):
        raise InvalidQueueError(f"OPTIONS['CREATE'] of an SQS queue is {create!r}: give True or False.")
    size = 0
    for option, value in (("PREFIX", prefix), ("SUFFIX", suffix)):
        if not isinstance(value, str) or _UNSAFE.search(value):
            hint = "give letters, digits, '-', '_'"
            raise InvalidQueueError(f"OPTIONS[{option!r}] of an SQS queue is {value!r}: {hint}.")
        size += len(value)
    if size > _AFFIXES:
        raise InvalidQueueError(f"OPTIONS['PREFIX'] and ['SUFFIX'] have more than {_AFFIXES} characters together.")


# ---- messages


def outgoing(entry: Entry, now: float, group: str, repeat: bool = True) -> dict:
    """The message of an entry, for a standard queue if it is of no group.

    With ``repeat`` a FIFO queue takes it even if its id came within five minutes.
    """
    wait = max(0, min(LONGEST_DELAY, ceil(round(entry.run_at - now, 3))))
    if group:
        keys = {"MessageGroupId": _key(group), "MessageDeduplicationId": new_id() if repeat else _key(entry.id)}
        return {"MessageBody": pack(entry), **keys}
    # A moment that SQS keeps by its own clock is not written: then the clock of a worker does not matter.
    early = entry if wait == LONGEST_DELAY else replace(entry, run_at=0.0)
    return {"MessageBody": pack(early), "DelaySeconds": wait}


def _key(text: str) -> str:
    """A text as the id of a group, or for deduplication: 128 visible characters of ASCII."""
    return text if _KEY.fullmatch(text) else sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def portions(messages: Sequence[dict], most: int) -> Iterator[list[dict]]:
    """Slices that one call takes, by number and by bytes."""
    return utils.portions(messages, AT_ONCE, most, lambda message: len(message["MessageBody"]))


slices = partial(utils.slices, most=AT_ONCE)
"""Slices that one call takes, by number."""


def whole(seconds: float) -> int:
    """Seconds of a lease as SQS can count them."""
    return max(1, min(LONGEST_HOLD, ceil(seconds)))


class Receipt:
    """The token of a lease: what SQS needs to settle it, and what was settled, as SQS does not refuse a late call.

    Of several threads, or several calls, that settle one lease the first succeeds. What a call did that raised is
    remembered, and counts when the call is repeated.
    """

    __slots__ = ("_busy", "counted", "handle", "id", "receives", "reported", "sent", "settled", "since", "until")

    def __init__(self, id: str, handle: str, receives: int, counted: int, sent: float, since: float, seconds: float):
        self.id, self.handle = id, handle
        self.receives, self.counted = receives, counted
        """How often SQS has given the message out, and how many of these times its entry counts."""
        self.sent, self.since, self.until = sent, since, since + seconds
        """When it came to SQS (epoch seconds); from when to when it is held (by the clock)."""
        self.settled = self.reported = False
        """Whether it is settled at SQS, and whether that was returned to the caller."""
        self._busy = threading.Lock()

    def begin(self) -> bool:
        """Whether it is not settled, nor about to be; if so it is the caller's until ``end``."""
        if self.reported or not self._busy.acquire(blocking=False):
            return False
        if self.reported:
            self._busy.release()
        return not self.reported

    def end(self, reported: bool) -> None:
        self.reported = reported
        self._busy.release()

    @property
    def late(self) -> bool:
        """Whether another worker may hold the message by now."""
        return clock() >= self.until

    def span(self, seconds: float) -> int:
        """The seconds as SQS counts them, up to twelve hours since it was received; 0 if those are over."""
        left = LONGEST_HOLD - 1 - int(clock() - self.since)
        return max(0, min(ceil(seconds), left))


# ---- Calls of Amazon SQS

_FORMS = 'give "sqs://eu-west-1", the http(s):// address of an endpoint, or a client of boto3'
_LARGEST = 2**20  # bytes: the most that a queue may allow
_TRIES = 3
_PAUSE = 0.1  # seconds before the second try of what SQS failed to do; twice that before the third
_CREATE = "create it, or let djqueue do that with OPTIONS['CREATE'] = True."
_FIX = "Correct CONNECTION, or what boto3 finds: region, credentials, network."
_MISSING = ("QueueDoesNotExist", "AWS.SimpleQueueService.NonExistentQueue")
_HIDDEN = ("AccessDenied", "AccessDeniedException")

CONFIG = Config(
    # Every call is tried three times, with pauses: SQS throttles, and to repeat any of them costs at most a message
    # that comes twice or waits for its lease to end, which a reply that got lost costs as well.
    retries={"mode": "standard", "total_max_attempts": 3},
    connect_timeout=5,
    read_timeout=30,  # above the longest poll, 20 seconds
    max_pool_connections=50,
    tcp_keepalive=True,
)

LASTING = {"MessageRetentionPeriod": str(LONGEST_KEPT)}
"""Attributes of a queue that is created here: messages are kept for fourteen days, the longest time."""
IN_GROUPS = {"FifoQueue": "true", "DeduplicationScope": "messageGroup", "FifoThroughputLimit": "perMessageGroupId"}


def settings_of(connection: str | None) -> dict:
    """The arguments of a client that a CONNECTION means. Raises InvalidQueueError, without a password."""
    if not connection:
        return {}
    parts = urlsplit(connection)
    if parts.scheme not in ("sqs", "http", "https") or "@" in parts.netloc:
        raise _invalid("not one" if "@" in connection else repr(connection))
    query = parse_qs(parts.query, keep_blank_values=True)
    if query.keys() - {"region"} or parts.fragment or (parts.scheme == "sqs" and (query or parts.path.strip("/"))):
        raise _invalid(repr(connection))
    if parts.scheme == "sqs":
        return {"region_name": parts.netloc} if parts.netloc else {}
    region = {"region_name": query["region"][0]} if "region" in query else {}
    return {"endpoint_url": f"{parts.scheme}://{parts.netloc}{parts.path}".rstrip("/"), **region}


def _invalid(what: str) -> InvalidQueueError:
    return InvalidQueueError(f"CONNECTION of an SQS queue is {what}: {_FORMS}; credentials are found by boto3 itself.")


class Clients:
    """A client for each CONNECTION, shared by all queues and threads of a process."""

    def __init__(self) -> None:
        self.reset()

    def client(self, connection: str):
        """Does not connect; but boto3 reads its own settings, and raises if they lack a region."""
        with self._lock:
            if connection not in self._clients:
                session = boto3.session.Session()  # the default one is not for several threads
                self._clients[connection] = session.client("sqs", config=CONFIG, **settings_of(connection))
            return self._clients[connection]

    def reset(self) -> None:
        """Forget them; a forked child must, as it shares their sockets."""
        self._clients: dict[str, object] = {}
        self._lock = threading.Lock()


clients = Clients()
os.register_at_fork(after_in_child=clients.reset)


class BatchReply(NamedTuple):
    """What SQS answered for the entries of a batch, by their numbers."""

    done: set[int]
    refused: dict[int, str]
    """Refused for good: the reasons."""
    failed: dict[int, str]
    """Refused this time, as the fault is on the side of SQS: the reasons."""


class SqsUnreachable(StoreUnreachable, BotoCoreError):
    """SQS cannot be asked: it is out of reach, or boto3 lacks a region or credentials."""

    fmt = "{text}"

    def __init__(self, text: str) -> None:
        BotoCoreError.__init__(self, text=text)


class SqsLink:
    """One queue at SQS, with the client that reaches it."""

    def __init__(self, connection: object, name: str, fifo: bool, create: bool):
        self.name, self._fifo, self._create = name, fifo, create
        self._connection = "" if connection is None else connection
        self._found: tuple[str, int] | None = None
        if isinstance(self._connection, str):
            settings_of(self._connection)
        else:
            model = getattr(getattr(connection, "meta", None), "service_model", None)
            if getattr(model, "service_name", None) != "sqs":
                raise _invalid(f"a {type(connection).__name__}")

    @property
    def client(self):
        given = self._connection
        return clients.client(given) if isinstance(given, str) else given

    @property
    def where(self) -> str:
        is_ours = isinstance(self._connection, str)
        return f"SQS queue {self.name} at {self._connection or 'AWS'}" if is_ours else f"SQS queue {self.name}"

    @property
    def place(self) -> Hashable:
        """Equal for equal connections."""
        return self._connection if isinstance(self._connection, str) else id(self._connection)

    @property
    def largest(self) -> int:
        """The bytes that a message of this queue may have. Connects."""
        return self._find()[1]

    def call(self, operation: str, **arguments) -> dict:
        """Call SQS about this queue.

        Raises InvalidQueueError if it is not there, StoreUnreachable if SQS cannot be asked, else the ClientError of
        boto3.
        """
        try:
            return getattr(self.client, operation)(QueueUrl=self._find()[0], **arguments)
        except ClientError as error:
            if code_of(error) not in _MISSING:
                raise
            self._found = None
            raise self._missing() from error
        except BotoCoreError as error:
            raise self._away(error) from None

    def batch(self, operation: str, entries: Sequence[dict]) -> BatchReply:
        """Call it for up to ten; what SQS fails to do is tried three times."""
        reply, left = BatchReply(set(), {}, {}), dict(enumerate(entries[:AT_ONCE]))
        for turn in range(_TRIES):
            reply.failed.clear()
            time.sleep(_PAUSE * turn)
            answer = self.call(operation, Entries=[{"Id": str(number), **entry} for number, entry in left.items()])
            reply.done.update(int(one["Id"]) for one in answer.get("Successful", ()))
            for one in answer.get("Failed", ()):
                reason = f"{one.get('Code')}: {one.get('Message', '')}"
                (reply.refused if one.get("SenderFault") else reply.failed)[int(one["Id"])] = reason
            left = {number: left[number] for number in reply.failed}
            if not left:
                break
        return reply

    def attributes(self, *names: str) -> dict[str, str]:
        return self.call("get_queue_attributes", AttributeNames=list(names)).get("Attributes", {})

    def _find(self) -> tuple[str, int]:
        """Its URL, and the largest message that it takes."""
        if self._found is None:
            try:
                url = self._look_up()
                self._found = url, self._limit(url)
            except BotoCoreError as error:
                raise self._away(error) from None
        return self._found

    def _look_up(self) -> str:
        try:
            return self.client.get_queue_url(QueueName=self.name)["QueueUrl"]
        except ClientError as error:
            if code_of(error) not in _MISSING:
                raise
            if not self._create:
                raise self._missing() from error
        attributes = LASTING | (IN_GROUPS if self._fifo else {})
        return self.client.create_queue(QueueName=self.name, Attributes=attributes)["QueueUrl"]

    def _limit(self, url: str) -> int:
        name = "MaximumMessageSize"
        try:
            answer = self.client.get_queue_attributes(QueueUrl=url, AttributeNames=[name])
        except ClientError as error:  # a user that may only send may not read attributes
            if not is_hidden(error):
                raise
            return _LARGEST
        return min(_LARGEST, int(answer.get("Attributes", {}).get(name, _LARGEST)))

    def _away(self, error: BotoCoreError) -> SqsUnreachable:
        if isinstance(error, SqsUnreachable):
            return error
        return SqsUnreachable(f"{self.where} cannot be reached: {str(error).rstrip('.')}. {_FIX}")

    def _missing(self) -> InvalidQueueError:
        return InvalidQueueError(f"There is no {self.where}: {_CREATE}")


def code_of(error: ClientError) -> str:
    """The code of what SQS answered."""
    return error.response.get("Error", {}).get("Code", "")


def is_hidden(error: Exception) -> bool:
    """Whether SQS is there, but does not let us do this."""
    return isinstance(error, ClientError) and code_of(error) in _HIDDEN


# ---- What can be wrong with a queue at SQS


def check_link(link: SqsLink) -> list[CheckMessage]:
    """The checks of a queue at SQS; connects. Skips what SQS does not show."""
    try:
        found = link.attributes("RedrivePolicy", "MessageRetentionPeriod")
    except InvalidQueueError:
        hint = "Create it, or let djqueue do that with OPTIONS['CREATE'] = True."
        return [Error(f"There is no {link.where}.", hint=hint, id="djqueue.E302")]
    except (BotoCoreError, ClientError) as error:
        if is_hidden(error):
            return []
        why = str(error).removesuffix(f" {_FIX}")
        text = why if isinstance(error, SqsUnreachable) else f"{link.where} cannot be reached: {why}"
        return [Error(text, hint=_FIX, id="djqueue.E301")]
    warnings: list[CheckMessage] = []
    if found.get("RedrivePolicy"):
        hint = "Remove its RedrivePolicy: djqueue counts starts itself, and moves to its failed queue, with the reason."
        warnings.append(Warning(f"SQS moves messages out of {link.where} by itself.", hint=hint, id="djqueue.W301"))
    seconds = int(found.get("MessageRetentionPeriod", LONGEST_KEPT))
    if seconds < LONGEST_KEPT:
        text = f"{link.where} forgets what waits longer than {seconds / 86_400:.3g} days."
        hint = f"Set its MessageRetentionPeriod to {LONGEST_KEPT}."
        warnings.append(Warning(text, hint=hint, id="djqueue.W302"))
    return warnings


def check_store(described: str, store: BaseStore | None) -> list[CheckMessage]:
    """The checks of the store of a FIFO queue."""
    if store is not None and not isinstance(store, NoStore):
        return []
    hint = "Give it a STORE: there it notes what it gives back, as messages cannot be changed."
    return [Error(f"{described} is a FIFO queue without a store.", hint=hint, id="djqueue.E303")]
