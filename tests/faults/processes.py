"""Consumers of one test, and the ledger that their commands keep."""

import os
import random
import sys
import time
import uuid
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from math import inf

from djqueue import queues
from djqueue.messages.failures import errors_of
from tests.faults.ledger import Findings, Ledger
from tests.support.backends import FULL
from tests.support.processes import Process, Site, until

PATIENCE = 300.0 if FULL else 60.0
UP = "; queues: "
"""What a consumer says once it is about to begin."""
STUCK = 70
"""What a consumer ends with that cannot go on, so that its supervisor starts another."""


def full(small: int, large: int) -> int:
    """A size: the small one, or the large one with DJQUEUE_FULL=1."""
    return large if FULL else small


def ids_of(handles) -> list[str]:
    """The ids of messages that were sent."""
    return [handle.id for handle in handles]


def seeded() -> random.Random:
    """Chances that a failed test tells, so that DJQUEUE_SEED can repeat them."""
    seed = os.environ.get("DJQUEUE_SEED") or str(random.SystemRandom().randrange(10**6))
    print(f"DJQUEUE_SEED={seed}", file=sys.stderr)
    return random.Random(seed)


@dataclass
class Consumers:
    """Consumers over one site; those that die may be replaced."""

    site: Site
    args: tuple = ("-n", "-d", "0.02", "-m", "0.1")
    members: list[Process] = field(default_factory=list)
    ledger: Ledger = field(init=False)

    def __post_init__(self):
        self.ledger = Ledger(self.site.ledger)

    def start(self, *args, up: bool = True, env=None) -> Process:
        """Start one more; `up`: and wait until it is about to serve."""
        consumer = self.site.consumer(*self.args, *args, env=env)
        self.members.append(consumer)
        if up:
            consumer.wait_for(UP)
        return consumer

    def start_many(self, count: int, *args) -> list[Process]:
        """Start several at once, and wait until all are up."""
        started = [self.start(*args, up=False) for _ in range(count)]
        for consumer in started:
            consumer.wait_for(UP)
        return started

    def kill_busy(self, chance: random.Random) -> Process:
        """SIGKILL one that is running a message at this moment, in itself or in a process of its own."""
        victim = until(lambda: self._busy(chance))
        victim.kill9()
        self.members.remove(victim)
        return victim

    def _busy(self, chance: random.Random) -> Process | None:
        pids = {pid for event in self.ledger.running() for pid in (event.pid, event.parent)}
        busy = [member for member in self.members if member.pid in pids]
        return chance.choice(busy) if busy else None

    def stop(self) -> list[int]:
        """SIGTERM to all; their exit codes."""
        for member in self.members:
            member.term()
        codes = [member.wait() for member in self.members]
        self.members.clear()
        return codes


def at_rest(alias: str = "default", timeout: float = PATIENCE):
    """Wait until nothing waits and nothing is leased; the queue's counts then."""

    def rest():
        stats = queues[alias].stats()
        return stats if not (stats.ready or stats.delayed or stats.leased) else None

    return until(rest, timeout, pause=0.05)


def assert_done(consumers: Consumers, ids: Collection[str], dup_runs: int | None = None) -> Findings:
    """At rest, all of these are done, nothing else is, and none has failed; no more than so many ran again."""
    stats, found = at_rest(), consumers.ledger.check(ids)
    assert (stats.done, stats.failed, found.lost, found.unexpected) == (len(ids), 0, set(), set())
    assert dup_runs is None or found.dup_runs <= dup_runs
    return found


def supervise(consumers: Consumers, over: Callable[[], object], *args, timeout: float = inf, env=None) -> list[int]:
    """Keep one consumer running, as supervisord would, until it is `over`; the exit codes of those that died."""
    codes, end = [], time.monotonic() + timeout
    while True:
        if not consumers.members:
            consumers.start(*(args or ("--lease", 0.5)), up=env is None, env=env)
        popen = consumers.members[-1].popen
        until(lambda popen=popen: popen.poll() is not None or over(), min(PATIENCE, end - time.monotonic()), pause=0.05)
        if popen.poll() is None:
            return codes
        codes.append(consumers.members.pop().wait())


def tick_id(source: str, moment: str) -> str:
    """The id of the message for a tick: of which command or schedule, at which moment."""
    return uuid.uuid5(uuid.NAMESPACE_URL, f"djqueue:{source}:{moment}").hex


def reasons() -> dict[str, str]:
    """Why each message is in the failed queue."""
    dead = queues["default"].failed.peek("ready", 500)
    return {record.entry.id: errors_of(record.entry.errors)[-1]["reason"] for record in dead}
