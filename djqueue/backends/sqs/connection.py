"""From what a setting says to calls of Amazon SQS."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

from djqueue.backends.sqs.protocol import AT_ONCE, LONGEST_KEPT
from djqueue.exceptions import InvalidQueueError

try:
    import boto3
    from botocore.config import Config
    from botocore.exceptions import ClientError
except ImportError as error:
    raise ImportError("The SQS backend needs the package boto3: pip install 'django-djqueue[sqs]'.") from error

_FORMS = 'give "sqs://eu-west-1", the http(s):// address of an endpoint, or a client of boto3'
_LARGEST = 2**20  # bytes: the most that a queue may allow
_TRIES = 3
_PAUSE = 0.1  # seconds before the second try of what SQS failed to do; twice that before the third
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
"""Of a queue that is created here: what waits is kept for fourteen days, which is the longest."""
IN_GROUPS = {"FifoQueue": "true", "DeduplicationScope": "messageGroup", "FifoThroughputLimit": "perMessageGroupId"}


def settings_of(connection: str | None) -> dict:
    """The arguments of a client that a CONNECTION means. Raises InvalidQueueError, which tells no password."""
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


class Told(NamedTuple):
    """What SQS said of the entries of a batch, by their numbers."""

    done: set[int]
    refused: dict[int, str]
    """For good."""
    failed: dict[int, str]
    """This time: SQS says that the fault is its own."""


class Link:
    """One queue at SQS, with the client that reaches it."""

    def __init__(self, connection: object, name: str, fifo: bool, create: bool):
        self.name, self._fifo, self._create = name, fifo, create
        self._connection = "" if connection is None else connection
        self._found: tuple[str, int] | None = None
        if isinstance(self._connection, str):
            settings_of(self._connection)
        else:
            _refuse_others(self._connection)

    @property
    def client(self):
        given = self._connection
        return clients.client(given) if isinstance(given, str) else given

    @property
    def where(self) -> str:
        return f"SQS queue {self.name} at {self._connection or 'AWS'}" if self.is_ours else f"SQS queue {self.name}"

    @property
    def is_ours(self) -> bool:
        """Whether the client is made here."""
        return isinstance(self._connection, str)

    @property
    def place(self) -> object:
        """Equal for equal connections."""
        return self._connection if self.is_ours else id(self._connection)

    @property
    def largest(self) -> int:
        """The bytes that a message of this queue may have. Connects."""
        return self._find()[1]

    def call(self, operation: str, **arguments) -> dict:
        """Call SQS about this queue. Raises InvalidQueueError if it is not there, else whatever boto3 raises."""
        try:
            return getattr(self.client, operation)(QueueUrl=self._find()[0], **arguments)
        except ClientError as error:
            if code_of(error) not in _MISSING:
                raise
            self._found = None
            raise self._missing() from error

    def batch(self, operation: str, entries: Sequence[dict]) -> Told:
        """Call it for up to ten; what SQS fails to do is tried three times."""
        told, left = Told(set(), {}, {}), dict(enumerate(entries[:AT_ONCE]))
        for turn in range(_TRIES):
            told.failed.clear()
            time.sleep(_PAUSE * turn)
            answer = self.call(operation, Entries=[{"Id": str(number), **entry} for number, entry in left.items()])
            told.done.update(int(one["Id"]) for one in answer.get("Successful", ()))
            for one in answer.get("Failed", ()):
                reason = f"{one.get('Code')}: {one.get('Message', '')}"
                (told.refused if one.get("SenderFault") else told.failed)[int(one["Id"])] = reason
            left = {number: left[number] for number in told.failed}
            if not left:
                break
        return told

    def attributes(self, *names: str) -> dict[str, str]:
        return self.call("get_queue_attributes", AttributeNames=list(names)).get("Attributes", {})

    def _find(self) -> tuple[str, int]:
        """Its URL, and the largest message that it takes."""
        if self._found is None:
            url = self._look_up()
            self._found = url, self._limit(url)
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
        except ClientError as error:  # who may only send need not be allowed to look
            if not is_hidden(error):
                raise
            return _LARGEST
        return min(_LARGEST, int(answer.get("Attributes", {}).get(name, _LARGEST)))

    def _missing(self) -> InvalidQueueError:
        return InvalidQueueError(
            f"There is no {self.where}: create it, or let djqueue do that with OPTIONS['CREATE'] = True."
        )


def code_of(error: ClientError) -> str:
    """The code of what SQS answered."""
    return error.response.get("Error", {}).get("Code", "")


def is_hidden(error: Exception) -> bool:
    """Whether SQS is there, but does not let us do this."""
    return isinstance(error, ClientError) and code_of(error) in _HIDDEN


def _refuse_others(client: object) -> None:
    model = getattr(getattr(client, "meta", None), "service_model", None)
    if getattr(model, "service_name", None) != "sqs":
        raise _invalid(f"a {type(client).__name__}")
