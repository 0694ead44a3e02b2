"""The samples of Scrapy Cluster's throttled queue, in djqueue's idiom: the session, and the script in two processes.

The script is example_project/throttled_queue.py. Its windows are short here; its pictures are those of the document.
"""

import re
import sys
from contextlib import suppress
from itertools import pairwise
from threading import Thread

import pytest
import redis

from djqueue.backends.redis.queue import RedisQueue
from djqueue.throttle import ThrottledQueue
from tests.support.backends import redis_connection
from tests.support.processes import ROOT, Process, until

LINE = re.compile(r"My item (?P<item>item-\d+) My time: (?P<time>\d+\.\d+(?:e-\d+)?)")
LEASE = 60.0
"""Seconds for which pop takes an item."""
ROUNDED = 1e-5
PASSWORD = "p:a/s?s@#%"

pytestmark = pytest.mark.server("redis")


def test_the_session(redis_client, tmp_path):
    queue = RedisQueue(f"my_key-{tmp_path.name}", redis_connection())
    t = ThrottledQueue(queue, limit=5, window=10)
    t.push("item", 5)
    t.push("item2", 10)
    assert len(t) == 2
    assert t.pop() == "item2"
    assert t.pop() == "item"
    assert (t.pop(), t.refusal.reason) == (None, "empty")
    t.push("item", 5)
    t.clear()
    assert len(t) == 0


@pytest.fixture
def server(private_server):
    """A Redis of the test's own, which wants a password."""
    server = private_server("redis")
    with redis.Redis(port=server.port) as client:
        client.config_set("requirepass", PASSWORD)
    return server


class Departures(list):
    """The moments at which items left."""

    before_last_put = 0
    """How many had left when an item was put for the last time."""


@pytest.fixture
def departures(server):
    """When items left, by the clock of the server: it is asked what its scripts do."""
    moments, client = Departures(), redis.Redis(port=server.port, password=PASSWORD)
    with client.monitor() as monitor:

        def listen():
            with suppress(Exception):  # the end of the server
                for told in monitor.listen():
                    words = told["command"].split()
                    if words[0] == "ZADD" and words[1].endswith(":leases"):
                        moments.append(float(words[2]) / 1e6 - LEASE)
                    elif words[0] == "ZADD" and words[1].endswith(":ready"):
                        moments.before_last_put = len(moments)

        Thread(target=listen, daemon=True).start()
        yield moments


@pytest.fixture
def start_script(server):
    """Start the script; it is dead after the test."""
    started = []

    def begin(*switches) -> Process:
        place = ["-r", "127.0.0.1", "-p", server.port, "-P", PASSWORD, "-q", "q1"]
        command = [sys.executable, ROOT / "example_project" / "throttled_queue.py", *place, *switches]
        started.append(Process(list(map(str, command)), {"PYTHONPATH": str(ROOT)}))
        return started[-1]

    yield begin
    for process in started:
        process.__exit__()


def printed(process) -> list[tuple[str, float]]:
    """The items of a process, and when it had them."""
    return [(found["item"], float(found["time"])) for found in map(LINE.match, process.lines) if found]


def printed_by(*processes, count: int) -> list[list[tuple[str, float]]]:
    """The same of several, once they have so many together."""
    until(lambda: sum(len(printed(process)) for process in processes) >= count, 60)
    return [printed(process) for process in processes]


def finished(*processes):
    for process in processes:
        process.interrupt()
    for process in processes:
        assert process.wait() == 0, process.output
        assert process.lines[-1] == "Finished"


def items(number: int) -> list[str]:
    """From the highest priority on."""
    return [f"item-{priority}" for priority in reversed(range(number))]


@pytest.mark.slow
def test_two_moderated_processes_share_the_items_one_at_a_time(start_script, departures):
    """-w 30 -n 15 -m in the document: one in two seconds, whoever has it."""
    first = start_script("-w", 2.4, "-n", 12, "-m")
    first.wait_for("My item")
    second = start_script("-w", "2.4", "-n", "12", "-m")
    second.wait_for("Kill when satisfied")
    until(lambda: {item for process in (first, second) for item, _ in printed(process)} == set(items(24)))
    one, two = printed(first), printed(second)
    assert first.lines[:2] == ["Adding 24 items for testing", "Kill when satisfied ^C"]
    assert one[0][0] == "item-23"
    assert len(one) > 1 and len(two) > 1
    until(lambda: len(departures) >= len(one + two))  # what the server did is heard of later
    assert 24 <= len(one + two) <= 24 + departures.before_last_put  # those may have been put again by the second one
    assert all(later - earlier > 0.2 - ROUNDED for earlier, later in pairwise(departures))
    finished(first, second)


@pytest.mark.slow
def test_unmoderated_all_that_may_leave_comes_at_once(start_script, departures):
    """-w 10 -n 10 in the document: ten in a hundredth of a second, and ten more when the window is over."""
    first = start_script("-w", 4, "-n", 10)
    printed_by(first, count=10)
    second = start_script("-w", 4, "-n", 10)
    one, two = printed_by(first, second, count=30)
    assert [item for item, _ in one[:10]] == items(20)[:10]
    assert departures[9] - departures[0] < 4
    assert all(later - earlier > 4 - ROUNDED for earlier, later in zip(departures, departures[10:], strict=False))
    assert sorted(item for item, _ in one[10:] + two) == sorted(items(20))  # the second one put ten of them again
    finished(first, second)


@pytest.mark.slow
def test_elastic_ones_catch_up_once_as_many_left_as_may_in_a_window(start_script, departures):
    """-m -e: a process that dawdles gets what it fell behind with, without moderation, once the throttle is warm."""
    process = start_script("-w", 3, "-n", 30, "-m", "-e")
    (lines,) = printed_by(process, count=60)
    gaps = [later - earlier for earlier, later in pairwise(departures)]
    assert [item for item, _ in lines] == items(60)
    assert min(gaps[:29]) > 0.1 - ROUNDED
    assert min(gaps[29:]) < 0.1 - ROUNDED
    finished(process)


def test_a_switch_that_makes_no_sense_is_told(start_script):
    process = start_script("-n", 5, "-e")
    assert process.wait() == 2
    assert "moderate=True" in process.output
