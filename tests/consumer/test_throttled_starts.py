"""A throttle bounds starts: whoever counts the moments at which commands begin never counts more than its limit."""

import threading

import pytest

from djqueue import Throttle
from djqueue.decorators import queue_command
from djqueue.utils import clock
from tests.support.backends import FULL
from tests.support.consumer import only, serving
from tests.support.processes import until

LIMIT, WINDOW = 5, 2.0
WINDOWS = 4 if FULL else 2
BUSY = 4

pytestmark = [
    pytest.mark.slow,
    pytest.mark.backends("memory", "sqlite", "postgres", "redis", *(["mariadb", "redis-blocking"] if FULL else [])),
]

started: list[float] = []
"""When the throttled commands began: what a remote API would count by."""
release = threading.Event()


@queue_command(throttle=Throttle(LIMIT, WINDOW))
def call_api(number):
    started.append(clock())


@queue_command
def compute():
    while not release.is_set():
        sum(range(1000))


@pytest.fixture(autouse=True)
def _reset():
    started.clear()
    release.clear()
    yield
    release.set()


@pytest.mark.django_db(transaction=True, databases="__all__")
@pytest.mark.parametrize("busy", [0, BUSY])
def test_no_window_has_more_starts_than_the_limit(queue, busy):
    with only(call_api, compute), serving(threads=BUSY + 2):
        for _ in range(busy):
            compute.enqueue()
        until(lambda: queue.stats().leased == busy)
        call_api.enqueue_many([(number,) for number in range(2 * LIMIT * WINDOWS)])
        until(lambda: len(started) >= LIMIT * WINDOWS, 150)
        release.set()
    began = sorted(started)
    apart = [later - earlier for earlier, later in zip(began, began[LIMIT:], strict=False)]
    took = began[LIMIT * WINDOWS - 1] - began[0]
    print(f"{busy} busy threads: {LIMIT} are {min(apart):.3f} s apart at least; {WINDOWS} windows in {took:.3f} s")
    assert min(apart) >= WINDOW
