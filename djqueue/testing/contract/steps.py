"""The steps that the contract suites are made of, and the base of the suites."""

from __future__ import annotations

import unittest
from collections.abc import Callable, Iterable
from dataclasses import replace

from djqueue.backends.base import FEATURES, BaseQueue, Claimed, Entry, Guard, Lease
from djqueue.messages.envelope import new_id
from djqueue.testing.patience import eventually


class Contract:
    """How a suite gets its queues; the base of all suites."""

    def make_queue(self, name: str, **options) -> BaseQueue:
        """An empty queue of this name. ``options`` are arguments of the backend's class, in lower case."""
        raise NotImplementedError("A contract suite needs make_queue(self, name, **options) that returns a queue.")

    def queue(self, *features: str, entries: Iterable[str] = (), **options) -> BaseQueue:
        """A queue that no other test has, with these entries; skips the test if it lacks one of the ``features``."""
        queue = self.make_queue(f"contract-{new_id()[-12:]}", **options)
        for feature in features:
            assert feature in FEATURES, feature
            if feature not in queue.features:
                raise unittest.SkipTest(f"{type(queue).__name__} lacks the feature {feature!r}")
        put(queue, *entries)
        return queue

    def guarded(self, *features: str, **options) -> BaseQueue:
        """:meth:`queue`; skips the test also if the queue has no store, in which guards keep their marks."""
        queue = self.queue(*features, **options)
        if queue.store is None:
            raise unittest.SkipTest("this queue was made without a store")
        return queue

    def reclaiming(self, *features: str) -> BaseQueue:
        """:meth:`queue`; skips the test if the backend leaves what the dead held to the end of their leases."""
        queue = self.queue("lease", *features)
        if type(queue).reclaim is BaseQueue.reclaim:
            raise unittest.SkipTest(f"{type(queue).__name__} reclaims nothing")
        return queue

    def queue_with(self, option: str, value: object, *features: str) -> BaseQueue:
        """A queue with an option; skips the test if the backend has no such option."""
        if option.upper() not in self.queue(*features).options:
            raise unittest.SkipTest(f"there is no option {option.upper()}")
        return self.queue(**{option: value})


def entry(data: str = "work", **fields) -> Entry:
    """An entry with an id of its own."""
    return Entry(data.encode(), fields.pop("id", None) or new_id(), **fields)


def put(queue: BaseQueue, *names: str, **fields) -> dict[str, Entry]:
    """Put one entry per name, in one call; returns them by name."""
    entries = {name: entry(name, **fields) for name in names}
    assert queue.put(list(entries.values())) == [True] * len(names)
    return entries


def send(queue: BaseQueue, guard: Guard, *names: str, **fields) -> dict[str, Entry]:
    """Put one entry per name, all next to this guard, in one call; returns those that were accepted by name."""
    entries = {name: entry(name, **fields) for name in names}
    told = queue.put(list(entries.values()), [guard] * len(entries))
    return {name: one for (name, one), accepted in zip(entries.items(), told, strict=True) if accepted}


def claim(queue: BaseQueue, count: int = 1, lease: float = 60.0) -> list[Lease]:
    """Exactly ``count`` leases, as soon as there are as many."""
    found: list[Lease] = []

    def full() -> bool:
        found.extend(queue.claim(count - len(found), lease))
        return len(found) >= count

    eventually(full)
    assert len(found) == count
    return found


def leased(queue: BaseQueue, *names: str, lease: float = 60.0, **fields) -> list[Lease]:
    """Put one entry per name and claim them."""
    put(queue, *names, **fields)
    return claim(queue, len(names), lease)


def names(leases: list[Lease]) -> list[str]:
    """The names that ``put`` gave to the entries of these leases."""
    return [lease.entry.body.decode() for lease in leases]


def until_now_is(queue: BaseQueue, moment: float) -> None:
    """Wait until the queue's clock has passed a moment."""
    eventually(lambda: queue.now() > moment)


def asked(claim: Callable[[], Claimed]) -> Claimed:
    """The result of a claim. It is repeated if it reports that it passed over entries of a concurrent claim."""
    while not (claimed := claim()) and claimed.retry_after == 0:
        continue
    return claimed


def nothing_to_claim(queue: BaseQueue) -> bool:
    """Whether nothing is due."""
    return not asked(lambda: queue.claim(1))


def run_out(queue: BaseQueue, leases: list[Lease]) -> list[Lease]:
    """These short leases, after they ran out and were reaped."""
    reaped: list[int] = []
    eventually(lambda: reaped.append(queue.reap().count) or sum(reaped) == len(leases))
    return leases


def with_counts(lease: Lease, **fields) -> Lease:
    """The lease with other counts, other errors or a delay in its entry."""
    return replace(lease, entry=replace(lease.entry, **fields))
