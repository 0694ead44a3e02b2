"""Processes that take from throttled queues: what a window, spacing and a shared name promise, on real stores.

The moments are those of the claims, by the clock of the store.
"""

import json
from bisect import bisect_right

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


def stop_processes(processes, since, limit, window) -> list[tuple[float, int]]:
    """What they took, in the order of the moments at which they did. ``since`` all waited, they were given none only
    when so many had been taken in the last window. So nothing that may leave is lost, however slow the machine is."""
    for process in processes:
        process.term()
    assert [process.wait() for process in processes] == [0] * len(processes)
    reports = [json.loads(process.lines[-1]) for process in processes]
    taken = sorted((moment, item) for report in reports for moment, item in report["taken"])
    moments = [moment for moment, _ in taken]
    for before, after in (refused for report in reports for refused in report["refused"]):
        within = bisect_right(moments, after) - bisect_right(moments, before - window - ROUNDED)
        assert within >= limit or before < since, f"none between {before} and {after}, {within} taken: {moments}"
    assert len({str(item) for _, item in taken}) == len(taken)
    return taken


def await_time(queue, seconds) -> float:
    """Wait for so long, by the clock of the store. The moment at which this began."""
    begun = queue.now()
    until(lambda: queue.now() > begun + seconds, seconds + 30, pause=0.05)
    return begun


def nearest(taken, limit) -> float:
    """Seconds between any item and the one ``limit`` items later, at least."""
    moments = [moment for moment, _ in taken]
    return min(later - earlier for earlier, later in zip(moments, moments[limit:], strict=False))


@pytest.mark.parametrize("count", [1, 2, 8])
def test_tq3_tq11_tq15_a_window_has_what_it_may_and_no_item_comes_twice(throttled_site, count):
    site = throttled_site(default={"limit": LIMIT, "window": WINDOW})
    queue = queues["default"]
    processes = start_processes(site, *["default"] * count)
    queue.push_many(range(LIMIT * (WINDOWS + 4)))
    since = await_time(queue, WINDOW * (WINDOWS + 1))
    taken = stop_processes(processes, since, LIMIT, WINDOW)
    print(f"{count} processes: {len(taken)} in {WINDOWS + 1} windows, nearest {nearest(taken, LIMIT):.6f} s")
    assert sorted(item for _, item in taken) == list(range(len(taken)))
    assert nearest(taken, LIMIT) >= WINDOW - ROUNDED


def test_tq5_spacing_is_that_of_all_processes(throttled_site):
    site = throttled_site(default={"limit": 10, "window": 1, "moderate": True})
    queue = queues["default"]
    processes = start_processes(site, *["default"] * 4)
    queue.push_many(range(100))
    since = await_time(queue, 2)
    taken = stop_processes(processes, since, 1, 0.1)
    assert nearest(taken, 1) >= 0.1 - ROUNDED


def test_tq9_queues_of_one_name_share_what_may_leave(throttled_site, backend):
    rate_limit = {"limit": LIMIT, "window": WINDOW, "window_name": f"shared-{backend.tag}"}
    site = throttled_site(default=rate_limit, other=rate_limit)
    processes = start_processes(site, *["default", "other"] * 2)
    for alias in ("default", "other"):
        queues[alias].push_many((alias, number) for number in range(LIMIT * 12))
    since = await_time(queues["default"], WINDOW * 10)
    taken = stop_processes(processes, since, LIMIT, WINDOW)
    assert nearest(taken, LIMIT) >= WINDOW - ROUNDED
    assert {alias for _, (alias, _) in taken} == {"default", "other"}


def test_tq16_processes_with_wrong_clocks_change_nothing(throttled_site):
    site = throttled_site(default={"limit": LIMIT, "window": WINDOW})
    queue = queues["default"]
    processes = [process for shift in (0, 5, -5) for process in start_processes(site, "default", shift=shift)]
    queue.push_many(range(LIMIT * 20))
    since = await_time(queue, WINDOW * 8)
    taken = stop_processes(processes, since, LIMIT, WINDOW)
    assert nearest(taken, LIMIT) >= WINDOW - ROUNDED


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
