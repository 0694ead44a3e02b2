"""For minutes a process of the consumers is killed every few seconds: `make kill-loops`, MINUTES=10 for ten each.

Not collected with the tests, as each takes minutes. Nothing is lost, and no message fails, as none does anything wrong.
What each kill repeated is shown as a warning.
"""

import os
import signal
import time
import warnings
from collections.abc import Iterator

import pytest

from djqueue import queues
from tests.faults.commands import work
from tests.faults.misdeeds.commands import innocent
from tests.faults.processes import Consumers, at_rest, seeded
from tests.support.server_process import children_of

OWN_APPS = ["tests.faults.misdeeds"]
OWN_SETTINGS = {"QUEUE_MAX_LOST": 20}
"""What is killed so often may well be in the hands of three dead in turn."""
SECONDS = 60 * float(os.environ.get("DJQUEUE_KILL_MINUTES", 1))
PATIENCE = 300.0
LONGEST = float(os.environ.get("DJQUEUE_KILL_MILLISECONDS", 50))
"""Milliseconds that a command takes at most."""
BACKLOG = 200
MODES = {
    "threads": ("-t", 4),
    "processes": ("-t", 4, "--processes", 2),
    "coroutines": ("-t", 4, "--coroutines", 50),
}


@pytest.mark.backends("sqlite", "postgres", "mariadb", "redis", "redis-blocking")
@pytest.mark.parametrize("mode", MODES)
def test_kills_lose_nothing_and_no_message_fails(consumers, backend, mode):
    chance, accepted, killed = seeded(), set(), []
    args = (*MODES[mode], "--lease", 3)
    consumers.start_many(2, *args)
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        for _ in load_for(chance.uniform(1, 4), chance):
            accepted |= send(mode, chance)
        accepted |= send(mode, chance)
        killed.append(kill_one(consumers, chance))
        consumers.start_many(2 - len(consumers.members), *args)
    consumers.ledger.wait_all("end", accepted, PATIENCE)
    stats, found = at_rest(timeout=PATIENCE), consumers.ledger.check(accepted)
    report = f"{backend.id}, {mode}: {len(accepted)} messages, {len(killed)} kills, {found.dup_runs} ended twice"
    warnings.warn(f"{report}, repeated by a kill: {repeats(consumers, killed)}", stacklevel=1)
    assert (found.lost, found.unexpected, stats.failed) == (set(), set(), 0)
    assert consumers.stop() == [0, 0]


def load_for(seconds, chance) -> Iterator[None]:
    """Each time that something is to be sent, until the seconds are over."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if len(queues["default"]) < BACKLOG:
            yield
        time.sleep(chance.uniform(0, 0.1))


def send(mode, chance) -> set[str]:
    milliseconds = [(chance.uniform(0, LONGEST),) for _ in range(BACKLOG // 2)]
    results = work.enqueue_many(milliseconds)
    if mode == "coroutines":
        results += innocent.enqueue_many([(chance.uniform(0, 20 * LONGEST) / 1000,) for _ in range(BACKLOG // 2)])
    return {result.id for result in results}


def kill_one(consumers: Consumers, chance) -> int:
    """SIGKILL a consumer, or one of its processes; its pid."""
    member = chance.choice(consumers.members)
    pid = chance.choice([member.pid, *children_of(member.pid)])
    if pid == member.pid:
        member.kill9()
        consumers.members.remove(member)
    else:
        os.kill(pid, signal.SIGKILL)
    return pid


def repeats(consumers: Consumers, killed) -> list[int]:
    """How many messages that a killed process had begun were begun again, by kill."""
    starts = {}
    for event in consumers.ledger.of("start"):
        starts.setdefault(event.id, []).append(event.pid)
    again = [set(pids[:-1]) for pids in starts.values() if len(pids) > 1]
    return sorted((sum(pid in pids for pids in again) for pid in killed), reverse=True)
