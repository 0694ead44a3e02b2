"""Commands, and messages in every state."""

import json
from dataclasses import dataclass

from djqueue import queues, schedules
from djqueue.backends.base import BaseQueue
from djqueue.backends.entries import Entry
from djqueue.consumer.counters import Counts
from djqueue.consumer.rates import RateRecorder
from djqueue.decorators import queue_command
from djqueue.running import consumers
from djqueue.running.consumers import ConsumerRecord, Running
from djqueue.running.pauses import Pause, add
from tests.support.consumer import run_one


@queue_command(sensitive=["address"], describe=lambda address, order: f"order {order}")
def send_receipt(address, order):
    if order % 2:
        raise ConnectionError(f"no <b>answer</b> for {order}")


@queue_command(shard=lambda account: account)
def transfer(account):
    """In a lane for each account."""
    return f"transferred <{account}>"


@queue_command(sensitive=True)
def new_key():
    return "kept secret"


def failed(order: int = 1) -> str:
    """The id of a message that failed."""
    id = send_receipt.enqueue("ann@example.com", order).id
    run_one(queues["default"])
    return id


def heartbeat(queue: BaseQueue, name: str, age: float = 0.0, **facts) -> ConsumerRecord:
    """What a consumer wrote of itself some seconds ago."""
    store = queue.store.shared
    at = store.now() - age
    known = {"host": "web-1", "pid": 42, "queues": (queue.base_name,), "threads": 4, "at": at, "started": at - 5.0}
    record = ConsumerRecord(name=name, **{**known, **facts})
    consumers.enter(store, name)
    consumers.write(store, record)
    return record


@dataclass
class Taken:
    """Counts that a consumer has gathered."""

    rows: dict[tuple[str, str], Counts]

    def take(self, names):
        return self.rows


def counted(queue: BaseQueue, command: str, minutes: int = 0, seconds: float = 0.02, **outcomes: int) -> None:
    """What a consumer counted some minutes ago, of attempts that ran and waited for that long."""
    counts, store = Counts(outcomes), queue.store.shared
    counts.ran.add([seconds] * sum(outcomes.values()))
    counts.waited.add([seconds] * sum(outcomes.values()))
    recorder = RateRecorder(store, [queue], Taken({(queue.alias, command): counts}))
    at = store.now() - 60 * minutes
    recorder.end(lambda: at)


def value(id: str, alias: str = "default") -> str:
    """The value of the box that selects a message."""
    return json.dumps([alias, id])


def fill(queue: BaseQueue, text: str) -> dict[str, str]:
    """One of each that there is, with this text wherever a stranger could have put it; ids by state."""
    ids = {"failed": failed(1), "done": failed(2)}
    ids["ready"] = send_receipt.enqueue("bob@example.com", 4).id
    ids["delayed"] = send_receipt.using(delay=600).enqueue("bob@example.com", 5).id
    ids["strange"] = text[:60]
    errors = json.dumps(
        [
            {"at": 1.5e9, "attempt": text, "reason": text, "exception": text, "traceback": text},
            {"seconds": text, "at": text},
        ]
    )
    queue.put([Entry(b"\x80never decoded", text[:60], command=text, errors=errors)])
    transfer.enqueue(text)
    queue.lanes.pause(text, text)
    now = queue.store.shared.now()
    add(queue.store.shared, Pause("queue", queue.base_name, "", text, text, now), now)
    add(queue.store.shared, Pause("command", text, "", text, text, now), now)
    heartbeat(queue, text, release=text, busy=1, running=[Running(text, text, now)])
    heartbeat(queue, "web-2:7:dead", 60.0)
    counted(queue, text, done=3, failed=1, **{text: 1})
    schedules.add(text, send_receipt, args=(text, 1), every=60)
    return ids
