"""Commands of each kind, as a project with types declares them."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from djqueue import (
    Backoff,
    Batch,
    BatchCommand,
    Concurrency,
    Deferrable,
    Discard,
    PeriodicQueueCommand,
    QueueCommand,
    Retry,
    RetryPolicy,
    Route,
    Throttle,
    Unique,
    crontab,
    current_message,
    periodic_command,
    queue_command,
)


@queue_command
def count_words(text: str, *, least: int = 0) -> int:
    return max(least, len(text.split()))


@queue_command(
    retry_on={OSError: RetryPolicy(max_attempts=2), TimeoutError: 10},
    backoff=Backoff(first=60),
    throttle=Throttle(10, timedelta(seconds=1)),
    unique=Unique(key=lambda address, number: address),
    concurrency=Concurrency(3),
    result_ttl=timedelta(hours=1),
)
def send(address: str, number: int = 1) -> bool:
    message = current_message()
    if message is None or message.cancelled:
        raise Discard(f"{address} is called off")
    if message.remaining < 1:
        raise Retry("no time", after=5)
    message.progress(number, 10, note="sent")
    return True


@queue_command(shard=lambda url: url, failure_policy="skip")
async def fetch(url: str) -> bytes:
    return url.encode()


@queue_command
def forget() -> None:
    """What returns nothing has the result None."""


@queue_command(batch=Batch(10, timeout=0.5))
def index(products: Sequence[int]) -> None:
    """The function has a list; a caller gives one product."""


@periodic_command(crontab(hour=0, minute=0), queue_name="slow")
def count_stock() -> int:
    return 7


@periodic_command(every=timedelta(seconds=30), missed="skip")
async def poll() -> str:
    return "nothing new"


mail = Deferrable("mail", default_error_classes=[OSError])


@mail.deferrable
def letter(address: str) -> int:
    return len(address)


@mail.deferrable(max_attempts=3)
async def parcel(weight: float) -> str:
    return f"{weight} kg"


class Charge(QueueCommand):
    options = {"priority": 5}

    def execute(self) -> int:
        return int(self.data)


class Refund(QueueCommand):
    async def execute(self) -> str:
        return str(self.data)


class CleanUp(PeriodicQueueCommand):
    def validate_datetime(self, dt: datetime) -> bool:
        return dt.minute == 0

    def execute(self) -> None:
        """Called at each full hour."""


class Notify(BatchCommand):
    batch_size = 64

    @classmethod
    def route(cls, *requests: int) -> list[Route]:
        return [Route(request % 3) for request in requests]

    def perform(self, *requests: int) -> None:
        """Called with up to 64 requests."""
