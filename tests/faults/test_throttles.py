"""Processes that take from throttled queues: what a window, spacing and a shared name promise, on real stores.

The moments are those of the claims, by the clock of the store.
"""

import json
from itertools import pairwise

import pytest

from djqueue import queues
from tests.faults.conftest import APPS, aliases_of
from tests.faults.processes import full
from tests.support.processes import until

LIMIT, WINDOW = full(10, 50), full(0.4, 0.5)
WINDOWS = full(6, 120)
ROUNDED = 1e-6
"""Seconds by which the sum of two moments may be rounded."""

pytestmark = [pytest.mark.slow, pytest.mark.backends("redis", "postgres", "redis-blocking")]


@pytest.fixture
def throttled_site(backend, make_site, settings):
    """Have queues with throttles, here and in processes that take from them: (alias, settings of its throttle), …"""

    def make(**throttles):
        settings.QUEUES = {alias: {**backend.config(alias), "THROTTLE": one} for alias, one in throttles.items()}
        return make_site(settings.QUEUES, aliases_of(backend), INSTALLED_APPS=[*APPS, "tests.faults.throttles"])

    return make


def start_processes(site, *aliases, **switches):
    """A process for each alias, once all of them are about to take."""
    words = [f"--{name}={value}" for name, value in switches.items()]
    processes = [site.start("take_items", alias, *words) for alias in aliases]
    for process in processes:
        process.wait_for("taking")
    return processes


def stop_processes(processes) -> list[tuple[float, int]]:
    """What they took, in the order of the moments at which they did."""
    for process in processes:
        process.term()
    assert [process.wait() for process in processes] == [0] * len(processes)
    told = [tuple(one) for process in processes for one in json.loads(process.lines[-1])]
    return sorted((moment, item) for item, moment in told)


def await_time(queue, seconds):
    """Wait for so long, by the clock of the store."""
    end = queue.now() + seconds
    until(lambda: queue.now() > end, seconds + 30, pause=0.05)


def nearest(taken, limit) -> float:
    """Seconds between any item and the one ``limit`` items later, at least."""
    moments = [moment for moment, _ in taken]
    return min(later - earlier for earlier, later in zip(moments, moments[limit:], strict=False))


@pytest.mark.parametrize("count", [1, 2])
def test_tq3_tq11_no_window_has_more_than_its_limit_and_no_item_comes_twice(throttled_site, count):
    assert polled(throttled_site, count) <= LIMIT * WINDOWS


def test_tq3_tq11_tq15_with_eight_who_poll_no_window_has_less_either(throttled_site):
    assert LIMIT * WINDOWS * 0.995 <= polled(throttled_site, 8) <= LIMIT * WINDOWS


def polled(throttle, count) -> int:
    """How many items so many processes have in so many windows."""
    site = throttle(default={"limit": LIMIT, "window": WINDOW})
    queue = queues["default"]
    processes = start_processes(site, *["default"] * count)
    queue.push_many(range(LIMIT * (WINDOWS + 4)))
    await_time(queue, WINDOW * (WINDOWS + 1))
    taken = stop_processes(processes)
    items, first = [item for _, item in taken], taken[0][0]
    in_time = sum(moment < first + WINDOW * WINDOWS for moment, _ in taken)
    print(f"{count} processes: {in_time} of {LIMIT * WINDOWS}, nearest {nearest(taken, LIMIT):.6f} s")
    assert len(items) == len(set(items)) == len(taken)
    assert sorted(items) == list(range(len(items)))
    assert nearest(taken, LIMIT) >= WINDOW - ROUNDED
    return in_time


def test_tq5_spacing_is_that_of_all_processes(throttled_site):
    site = throttled_site(default={"limit": 10, "window": 1, "moderate": True})
    queue = queues["default"]
    processes = start_processes(site, *["default"] * 4)
    queue.push_many(range(100))
    await_time(queue, 2)
    taken = stop_processes(processes)
    gaps = [later - earlier for (earlier, _), (later, _) in pairwise(taken)]
    print(f"{len(taken)} items, gaps {min(gaps):.6f} to {max(gaps):.6f} s")
    assert min(gaps) >= 0.1 - ROUNDED
    assert len(taken) >= 15


def test_tq9_queues_of_one_name_share_what_may_leave(throttled_site, backend):
    rate_limit = {"limit": LIMIT, "window": WINDOW, "window_name": f"shared-{backend.tag}"}
    site = throttled_site(default=rate_limit, other=rate_limit)
    processes = start_processes(site, *["default", "other"] * 2)
    for alias in ("default", "other"):
        queues[alias].push_many((alias, number) for number in range(LIMIT * 12))
    await_time(queues["default"], WINDOW * 10)
    taken = stop_processes(processes)
    assert nearest(taken, LIMIT) >= WINDOW - ROUNDED
    assert {alias for _, (alias, _) in taken} == {"default", "other"}
    assert len(taken) >= LIMIT * 9


def test_tq16_processes_with_wrong_clocks_change_nothing(throttled_site):
    site = throttled_site(default={"limit": LIMIT, "window": WINDOW})
    queue = queues["default"]
    processes = [process for shift in (0, 5, -5) for process in start_processes(site, "default", shift=shift)]
    queue.push_many(range(LIMIT * 20))
    await_time(queue, WINDOW * 8)
    taken = stop_processes(processes)
    assert nearest(taken, LIMIT) >= WINDOW - ROUNDED
    assert len(taken) >= LIMIT * 7


def test_tq18_what_a_killed_process_held_is_delivered_again(throttled_site):
    site = throttled_site(default={"limit": 5, "window": 0.5})
    queue = queues["default"]
    queue.push("work")
    process = site.start("take_items", "default", "--keep", "--lease=2")
    process.wait_for("took")
    process.kill9()
    assert (queue.pop(), queue.stats().leased) == (None, 1)
    until(lambda: queue.reap().count == 1)
    assert queue.pop() == "work"
