"""How fast a consumer asks, how far ahead it claims, and how much in all."""

import pytest

from djqueue.backends.bells import Bell
from djqueue.consumer.pace import MOST_AHEAD, Pace, Prefetch, RunLimit
from djqueue.consumer.pool import Pool
from djqueue.decorators import queue_command
from djqueue.testing import eventually, together
from tests.support.clock import Clock
from tests.support.consumer import Release, serving
from tests.support.pump import PumpHarness, set_clock


@queue_command
def work(number=0):
    return number


releases = [Release()]


@pytest.fixture
def release():
    """Of the test's own: long messages wait for it."""
    releases[:] = [Release()]
    return releases[0]


@queue_command
def stay():
    releases[0].wait()


@pytest.mark.backends("memory", "sqlite", "redis", "postgres")
def test_no_short_message_waits_for_a_long_one_while_a_thread_is_free(queue, release):
    """Three of four threads have long ones, which came among many short ones."""
    calls = [stay if number in (20, 150, 151) else work for number in range(600)]
    for call in calls:
        call()
    with serving(threads=4) as consumer:
        release.await_waiting(3)
        eventually(lambda: queue.stats().done == 597)
        assert release.waiting == 3
        release.set()
        eventually(lambda: queue.stats().done == 600)
        assert consumer.end() == 0
    assert queue.stats().leased == 0


@pytest.mark.backends("memory")
class TestPace:
    def test_dj14_the_pauses_grow_up_to_the_longest_and_a_message_resets_them(self):
        pace = Pace(0.1, 2, 0.4)
        assert [pace.next() for _ in range(5)] == [0.1, 0.2, 0.4, 0.4, 0.4]
        pace.reset()
        assert [pace.next() for _ in range(2)] == [0.1, 0.2]
        assert Pace(5, 2, 0.5).next() == 0.5

    def test_dj14_by_default_it_grows_by_a_seventh_up_to_a_second(self):
        pace = Pace()
        pauses = [pace.next() for _ in range(30)]
        assert pauses[:3] == pytest.approx([0.1, 0.115, 0.13225])
        assert pauses == sorted(pauses)
        assert pauses[-1] == 1.0

    def test_a_pause_that_ends_early_leaves_the_rhythm_as_it_is(self):
        pace = Pace(0.125, 2, 0.5)
        assert [pace.left(now) for now in (8, 8.0625, 8.125, 8.25, 8.375)] == [0.125, 0.0625, 0.25, 0.125, 0.5]

    def test_dj14_the_pump_keeps_it(self, harness, now):
        polled(harness)
        waits = [pause_of(harness, now) for _ in range(4)]
        work()
        harness.turn()
        harness.end(harness.begin())
        assert [*waits, pause_of(harness, now)] == pytest.approx([0.1, 0.2, 0.4, 0.4, 0.1])

    @pytest.mark.backends("memory", "redis-blocking")
    def test_a_queue_whose_bell_is_heard_is_asked_seldom(self, harness, now):
        assert [pause_of(harness, now) for _ in range(3)] == [0.4] * 3

    @pytest.mark.parametrize("delay", [0.2, 30])
    def test_it_never_sleeps_past_the_next_due_entry(self, queue, harness, now, delay):
        fixed = queue.now()
        queue.clock = lambda: fixed
        harness.pump.pace = Pace(60, 1, 60)
        work.using(delay=delay).enqueue()
        assert pause_of(harness, now) == pytest.approx(delay)


@pytest.fixture
def now(monkeypatch):
    """The clock of the pump."""
    clock = Clock()
    set_clock(monkeypatch, clock)
    return clock


@pytest.fixture
def harness(queue):
    harness = PumpHarness(queue)
    harness.pump.pace = Pace(0.1, 2, 0.4)
    return harness


def polled(harness):
    """Let it serve queues as they are that can only be asked."""
    harness.pump._bells = [Bell()]


def pause_of(harness, now):
    """The pause after a turn, once it has passed."""
    pause = harness.turn()
    now.now += pause
    return pause


class TestPrefetch:
    """What is held beyond what runs is what the pool was seen to finish within the horizon."""

    def test_nothing_is_held_ahead_of_slow_work(self):
        prefetch, now = _prefetch()
        assert [prefetch.measure(now + second) for second in range(5)] == [0] * 5

    def test_a_fast_pool_is_kept_busy(self):
        prefetch, now = _prefetch()
        for step in range(100):
            prefetch._pool.workers[0].finished += 10  # 1,000 a second
            ahead = prefetch.measure(now + step / 100)
        assert ahead == pytest.approx(50, abs=3)

    def test_there_is_a_most(self):
        prefetch, now = _prefetch()
        for step in range(100):
            prefetch._pool.workers[0].finished += 10_000
            ahead = prefetch.measure(now + step / 100)
        assert ahead == MOST_AHEAD

    def test_when_work_turns_slow_it_is_let_go(self):
        prefetch, now = _prefetch()
        for step in range(100):
            prefetch._pool.workers[0].finished += 10
            prefetch.measure(now + step / 100)
        assert prefetch.measure(now + 2) == 0


class TestRateLimits:
    def test_no_bound(self):
        run_limit = RunLimit()
        assert run_limit.take(10**6) == 10**6
        assert not run_limit.spent

    def test_it_is_exact_under_threads(self):
        run_limit, taken = RunLimit(1000), []

        def claim():
            while (got := run_limit.take(7)) > 0:
                run_limit.give(3 if got > 3 else 0)
                taken.append(got - (3 if got > 3 else 0))

        together(*[claim] * 8)
        assert sum(taken) == 1000

    def test_what_was_not_used_can_be_given_back(self):
        run_limit = RunLimit(10)
        assert (run_limit.take(8), run_limit.take(8), run_limit.take(1)) == (8, 2, 0)
        run_limit.give(4)
        assert run_limit.take(8) == 4

    def test_it_is_spent_when_all_have_run_and_not_when_they_are_claimed(self):
        run_limit = RunLimit(2)
        run_limit.take(2)
        assert not run_limit.spent
        run_limit.ran(1)
        assert not run_limit.spent
        run_limit.ran(1)
        assert run_limit.spent


def _prefetch():
    pool = Pool(2, lambda message, verdict: None)
    return Prefetch(pool), 1000.0
