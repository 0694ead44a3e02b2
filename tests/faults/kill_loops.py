"""For minutes a process of the consumers is killed every few seconds: `make kill-loops`, MINUTES=10 for ten each.

Not collected with the tests, as each takes minutes. Nothing is lost, and no message fails, as none does anything wrong.
What each kill repeated is shown as a warning.
"""

import os
import signal
import time
import warnings
from collections import Counter
from collections.abc import Iterator

import pytest

from djqueue import queues
from tests.faults.commands import work
from tests.faults.misdeeds.commands import innocent
from tests.faults.processes import UP, Consumers, at_rest, seeded
from tests.support.processes import Process
from tests.support.server_process import children_of

OWN_APPS = ["tests.faults.misdeeds"]
OWN_SETTINGS = {"QUEUE_MAX_LOST": 20}
"""What is killed so often may well be in the hands of three dead in turn."""
SECONDS = 60 * float(os.environ.get("DJQUEUE_KILL_MINUTES", 1))
PATIENCE = 300.0
pytestmark = pytest.mark.timeout(SECONDS + 3 * PATIENCE)
LONGEST = 0.05
"""Seconds that a function takes at most; an async one takes up to twenty times as long."""
BACKLOG = 200
WAYS = {
    "threads": ("-t", 4),
    "processes": ("-t", 4, "--processes", 2),
    "coroutines": ("-t", 4, "--coroutines", 50),
}
"""One consumer runs messages in each of these ways, all from one queue."""


@pytest.mark.backends("sqlite", "postgres", "mariadb", "redis", "redis-blocking", each=True)
def test_kills_lose_nothing_and_no_message_fails(consumers, backend):
    chance, accepted = seeded(), set()
    killed: dict[int, str] = {}
    running = {way: start(consumers, way) for way in WAYS}
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        for _ in load_for(chance.uniform(2, 8), chance):
            accepted |= send(chance)
        way = chance.choice([*WAYS])
        killed[kill_one(running[way], chance)] = way
        if running[way].popen.poll() is not None:
            running[way] = start(consumers, way)
    consumers.ledger.wait_all("end", accepted, PATIENCE)
    stats, found = at_rest(timeout=PATIENCE), consumers.ledger.check(accepted)
    ways = ", ".join(f"{count} of {way}" for way, count in Counter(killed.values()).items())
    report = f"{backend.id}: {len(accepted)} messages, {len(killed)} kills ({ways}), {found.dup_runs} ended twice"
    warnings.warn(f"{report}, begun again after each kill: {repeats(consumers, killed)}", stacklevel=1)
    assert (found.lost, found.unexpected, stats.failed) == (set(), set(), 0)
    for process in running.values():  # the last ones may still be starting
        process.wait_for(UP, PATIENCE)
    consumers.members[:] = running.values()
    assert consumers.stop() == [0] * len(running)


def start(consumers: Consumers, way: str) -> Process:
    return consumers.start(*WAYS[way], "--lease", 3, up=False)


def load_for(seconds, chance) -> Iterator[None]:
    """Each time that something is to be sent, until the seconds are over."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if len(queues["default"]) < BACKLOG:
            yield
        time.sleep(chance.uniform(0, 0.1))


def send(chance) -> set[str]:
    results = work.enqueue_many([(1000 * chance.uniform(0, LONGEST),) for _ in range(BACKLOG // 2)])
    results += innocent.enqueue_many([(chance.uniform(0, 20 * LONGEST),) for _ in range(BACKLOG // 10)])
    return {result.id for result in results}


def kill_one(consumer: Process, chance) -> int:
    """SIGKILL a consumer, or one of its processes; its pid."""
    pid = chance.choice([consumer.pid, *children_of(consumer.pid)])
    if pid == consumer.pid:
        consumer.kill9()
    else:
        os.kill(pid, signal.SIGKILL)
    return pid


def repeats(consumers: Consumers, killed) -> list[int]:
    """How many messages that a killed process had begun were begun again, by kill, most first."""
    begun = {}
    for event in consumers.ledger.of("start"):
        begun.setdefault(event.id, []).append(event.pid)
    again = [set(pids[:-1]) for pids in begun.values() if len(pids) > 1]
    return sorted((sum(pid in pids for pids in again) for pid in killed), reverse=True)
