"""What waits for its lane to open costs nothing until it does: an idle queue is as idle as an empty one."""

import time
from contextlib import contextmanager

import pytest
from django.db import connections

from djqueue import queues
from djqueue.backends.base import Entry
from djqueue.flow.gates import Gate
from djqueue.flow.windows import Window
from djqueue.messages.envelope import new_id
from tests.faults.processes import full
from tests.faults.stores import STORES
from tests.support.consumer import serving
from tests.support.processes import until

pytestmark = pytest.mark.slow
WAITING = full(2_000, 100_000)
LOOKS = 20
AGAIN = 5
"""How often what took too long is measured again."""
LEASE = 3600.0
HOURLY = Gate(windows=(Window(1, 3600.0),))
KINDS = {
    "throttled": (1, HOURLY),
    "throttled by many keys": (WAITING, Gate(parent="all", parent_gate=HOURLY)),
    "blocked": (WAITING // 100, Gate(ordered=True)),
    "full": (1, Gate(concurrency=1)),
    "paused": (WAITING // 100, Gate(ordered=True)),
}
"""Over how many lanes they wait, and by which gate."""


@pytest.fixture
def queue(backend, settings, private_server):
    """On a Redis of its own, as the server counts the commands of all."""
    settings.QUEUES = backend.queues()
    if backend.kind.server == "redis":
        settings.QUEUES["default"]["CONNECTION"] = private_server("redis").url
    return queues["default"]


def fill(queue, lanes, gate, paused):
    text = gate.written()
    for start in range(0, WAITING, 1000):
        queue.put([Entry(b"", new_id(), lane=f"{number % lanes}", gate=text) for number in range(start, start + 1000)])
    if paused:
        for number in range(lanes):
            queue.lanes.pause(f"{number}", "closed")
    while (claimed := queue.claim(500, LEASE)) or claimed.retry_after < 1:  # not yet all of it is where it waits
        continue


@contextmanager
def counted(queue):
    """How many commands the store was sent within the block."""
    told = []
    if alias := queue.database:

        def count(execute, *arguments):
            told.append(arguments[0])
            return execute(*arguments)

        with connections[alias].execute_wrapper(count):
            yield told
    else:
        client = queue._link.client
        client.config_resetstat()
        yield told
        stats = client.info("commandstats")
        told += [
            name for name, stat in stats.items() for _ in range(stat["calls"]) if name != "cmdstat_config|resetstat"
        ]


def idle_cost(queue) -> tuple[int, float]:
    """Commands and seconds of a few idle claims and reapings, the cheapest of three times."""
    rounds = []
    for _ in range(3):
        with counted(queue) as told:
            started = time.perf_counter()
            for _ in range(LOOKS):
                assert queue.claim(32) == []
                assert queue.reap().count == 0
            took = time.perf_counter() - started
        rounds.append((len(told), took))
    return min(count for count, _ in rounds), min(took for _, took in rounds)


@pytest.mark.backends(*STORES)
@pytest.mark.parametrize("kind", KINDS)
def test_what_waits_for_its_lane_costs_an_idle_claim_nothing(queue, kind):
    """As many commands as with an empty queue, and, but for noise, as fast."""
    queue.put([Entry(b"", new_id(), lane="first", gate=HOURLY.written())])
    assert len(queue.complete(queue.claim(1))) == 1
    empty, quick = idle_cost(queue)
    lanes, gate = KINDS[kind]
    fill(queue, lanes, gate, kind == "paused")
    waiting, took = idle_cost(queue)
    for _ in range(AGAIN):  # a busy machine may be slow for a while
        if took >= 5 * quick + 0.1:
            took = min(took, idle_cost(queue)[1])
    print(f"{kind}: {empty} and {waiting} commands, {quick / LOOKS * 1e6:.0f} and {took / LOOKS * 1e6:.0f} µs a look")
    assert len(queue) >= WAITING * 0.9
    assert waiting <= empty
    assert took < 5 * quick + 0.1


@pytest.mark.backends("memory", *STORES)
@pytest.mark.parametrize("kind", ["throttled by many keys", "blocked"])
def test_a_consumer_beside_what_waits_looks_no_more_often_than_beside_nothing(queue, kind, monkeypatch):
    looks, exchange = [], type(queue).exchange

    def look(self, *arguments, **options):
        looks.append(time.monotonic())
        return exchange(self, *arguments, **options)

    def in_a_second() -> int:
        with serving(threads=2, delay=0.1, max_delay=0.5):
            until(lambda: looks and time.monotonic() - looks[-1] > 0.3)  # what rang before has been heard
            looks.clear()
            time.sleep(1)
            return len(looks)

    monkeypatch.setattr(type(queue), "exchange", look)
    beside_nothing = in_a_second()
    fill(queue, *KINDS[kind], paused=False)
    assert any(in_a_second() <= beside_nothing + 3 for _ in range(10))  # a second of a busy machine is a long one


@pytest.mark.backends("redis")
def test_sq23_finding_work_does_not_scan_the_keys(queue):
    """SQ-23: with a hundred thousand keys of others, in the full size, lanes are found as fast, and without a scan."""
    client = queue._link.client
    alone = drained_in(queue)
    with client.pipeline(transaction=False) as pipe:
        for number in range(WAITING):
            pipe.set(f"unrelated:{number}", b"")
        pipe.execute()
    client.config_resetstat()
    assert drained_in(queue) < 5 * alone + 0.5
    ran = {name.removeprefix("cmdstat_") for name in client.info("commandstats")}
    assert not ran & {"keys", "scan", "sscan", "hscan", "zscan"}
    assert client.dbsize() >= WAITING


def drained_in(queue) -> float:
    """Seconds in which 500 entries of 100 shards come and go, each of the verbs of a consumer among them."""
    text = Gate(ordered=True, max_run=2).written()
    started, done = time.perf_counter(), 0
    queue.put([Entry(b"", new_id(), lane=f"{number % 100}", gate=text) for number in range(500)])
    while done < 500:
        claimed = queue.claim(16)
        queue.touch(claimed[:2])
        queue.release(claimed[2:3])
        done += len(queue.complete(claimed[:2] + claimed[3:]))
        queue.reap()
    return time.perf_counter() - started
