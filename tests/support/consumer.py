"""What the tests of a message's life share: a consumer next to the test, chosen commands, receivers of signals."""

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from django.db import connections

from djqueue import signals
from djqueue.backends.base import BaseQueue, Entry, Lease
from djqueue.backends.entries import DELAYED, untried
from djqueue.consumer import Consumer
from djqueue.enqueueing.command import Command
from djqueue.messages.envelope import Message, encode, new_id
from djqueue.policies.outcomes import Verdict
from djqueue.registry import registry
from djqueue.running.executor import execute
from djqueue.running.settle import settle
from djqueue.testing.contract.steps import claim, nothing_to_claim
from djqueue.testing.patience import eventually

PATIENCE = 30.0
"""Seconds after which what should happen at once is taken to never happen."""


@dataclass
class RunningConsumer:
    """A consumer that runs in a thread next to the test."""

    consumer: Consumer
    future: Future
    before: set[threading.Thread]
    """The threads that there were when it began."""

    def claims(self) -> bool:
        """Whether one of its pumps claims."""
        supervisor = self.consumer._supervisor
        return supervisor is not None and any(
            one.is_alive() and not one.mail.has_stopped.is_set() for one in supervisor.pumps
        )

    def stop(self) -> None:
        self.consumer.stop()

    def code(self) -> int:
        """Its exit code, once it has ended."""
        return self.future.result(PATIENCE)

    def end(self) -> int:
        """Stop it; its exit code, once it has ended."""
        self.stop()
        return self.code()


@contextmanager
def serving(*aliases: str, limit: int | None = None, **options) -> Iterator[RunningConsumer]:
    """Run a consumer next to the block, without a schedule unless asked for, and stop it at the end."""
    consumer = Consumer(aliases or None, **{"periodic": False, **options})

    def run() -> int:
        try:
            return consumer.run(limit)
        finally:
            connections.close_all()

    before = set(threading.enumerate())
    with ThreadPoolExecutor(1) as pool:
        running = RunningConsumer(consumer, pool.submit(run), before)
        try:
            yield running
        finally:
            running.stop()
            with suppress(Exception):
                running.code()


def exit_code(*aliases: str, **options) -> int:
    """What a consumer ends with that is not stopped."""
    with serving(*aliases, **options) as running:
        return running.code()


@contextmanager
def only(*commands: Command) -> Iterator[None]:
    """Have these commands registered and no others."""
    before = list(registry)
    registry.reset()
    for command in commands:
        registry.register(command)
    try:
        yield
    finally:
        registry.reset()
        for command in before:
            registry.register(command)


@contextmanager
def recorded_signals(*names: str) -> Iterator[list[tuple[str, dict]]]:
    """What is signalled within the block, in order: pairs of the signal's name and what it carried."""
    recorded, receivers = [], []
    for name in names:

        def receiver(sender, signal, name=name, **named):
            recorded.append((name, {"sender": sender, **named}))

        getattr(signals, name).connect(receiver)
        receivers.append((getattr(signals, name), receiver))
    try:
        yield recorded
    finally:
        for signal, receiver in receivers:
            signal.disconnect(receiver)


class Recorder:
    """An event consumer with every on_… method; it writes down which was called with which item."""

    def __init__(self):
        self.calls = []

    def __getattr__(self, name):
        if not name.startswith("on_"):
            raise AttributeError(name)
        return lambda item: self.calls.append((name, item))

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.calls]


def unreachable(*args, **kwargs):
    """What a store does that cannot be reached."""
    raise ConnectionError("the store is unreachable")


def fail_at_the_third_cancel(queue: BaseQueue, monkeypatch) -> None:
    """Have the store be away when a queue of this class is to cancel a third message."""
    remove, calls = type(queue).remove, []

    def failing(self, *args):
        calls.append(args)
        if len(calls) == 3:
            raise ConnectionError("nobody there")
        return remove(self, *args)

    monkeypatch.setattr(type(queue), "remove", failing)


def claim_one(queue: BaseQueue, lease: float = 60.0) -> Lease:
    [claimed] = queue.claim(1, lease)
    return claimed


def run_one(queue: BaseQueue) -> Verdict:
    """Claim the next message, run it and settle it, as a worker would."""
    return _run(queue, claim_one(queue))


def run_when_due(queue: BaseQueue) -> Verdict:
    """The same, once a message is due."""
    [claimed] = eventually(lambda: queue.claim(1))
    return _run(queue, claimed)


def _run(queue: BaseQueue, claimed: Lease) -> Verdict:
    verdict = execute(queue, claimed)
    settle(queue, [(claimed, verdict)])
    return verdict


def ended_as(queue, status):
    """What `Result.status` says of a message that has ended and left no result."""
    return status if "history" in queue.features else "unknown"


def can_look(queue: BaseQueue) -> bool:
    """Whether it can look up what waits."""
    return "inspect" in queue.features


def entry_of(queue: BaseQueue, id: str) -> Entry:
    """The waiting entry of this id. A queue that cannot look it up is claimed from, and all goes back untried."""
    if can_look(queue):
        return queue.find(id).entry
    leases = [untried(lease) for lease in claim(queue, len(queue))]
    queue.release(leases)
    [entry] = [lease.entry for lease in leases if lease.entry.id == id]
    return entry


def is_delayed(queue: BaseQueue, id: str) -> bool:
    """Whether the only entry is there and not due. A FIFO queue of SQS has no delays: there the consumer holds it."""
    if can_look(queue):
        return queue.find(id).state == DELAYED
    assert nothing_to_claim(queue)
    stats = queue.stats()
    return (stats.ready, stats.delayed, stats.leased) == ((0, 0, 1) if queue.is_fifo else (0, 1, 0))


def message_for(queue: BaseQueue, command: str, *args, id: str | None = None, **kwargs) -> Entry:
    """An entry as a producer that knows the command would make it."""
    id = id or new_id()
    return Entry(encode(Message(id, queue.base_name, command, args, kwargs)), id, command=command)


class Release:
    """An event for which the commands of a test wait. It counts those that wait, and the most that ever did at once."""

    def __init__(self):
        self._news = threading.Condition()
        self._event = threading.Event()
        self.waiting = self.most_waiting = self.passed = 0

    def wait(self) -> None:
        with self._news:
            event = self._event
            self.waiting += 1
            self.most_waiting = max(self.most_waiting, self.waiting)
            self._news.notify_all()
        is_set = event.wait(PATIENCE)
        with self._news:
            if event is self._event:
                self.waiting -= 1
                self.passed += 1
                self._news.notify_all()
        assert is_set, "nobody released it"

    def set(self) -> None:
        self._event.set()

    def is_set(self) -> bool:
        return self._event.is_set()

    def clear(self) -> None:
        """Let those that wait go on, and be as new for others."""
        with self._news:
            self._event.set()
            self._event = threading.Event()
            self.waiting = self.most_waiting = self.passed = 0

    def await_waiting(self, count: int) -> None:
        """Wait until so many wait for it."""
        with self._news:
            assert self._news.wait_for(lambda: self.waiting >= count, PATIENCE), f"{self.waiting} came, not {count}"

    def await_passed(self, count: int) -> None:
        """Wait until so many have gone on."""
        with self._news:
            assert self._news.wait_for(lambda: self.passed >= count, PATIENCE), f"{self.passed} passed, not {count}"
