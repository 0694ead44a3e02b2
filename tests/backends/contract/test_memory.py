"""What is true of the queue in memory alone."""

import time
from contextlib import closing

import pytest

from djqueue.backends.base import DebounceGuard, Entry, OnceGuard
from djqueue.backends.memory.queue import MemoryQueue
from djqueue.testing.contract.machine import lane_machine, queue_machine, run_machine
from djqueue.testing.contract.steps import claim, entry, leased, names, nothing_to_claim, put, send, with_counts
from djqueue.testing.patience import together
from tests.support.backends import FULL
from tests.support.clock import Clock


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def queue(clock):
    queue = MemoryQueue("memory")
    queue.clock = clock
    return queue


def held_things(queue: MemoryQueue) -> int:
    """How many things the queue's structures still hold, the stale ones included."""
    lines = [*queue._lines.values(), queue._oldest, queue.store._ends]
    sizes = [len(line.keys) + len(line._heap) for line in lines]
    return sum(sizes) + len(queue._items) + len(queue._finished) + len(queue.store._facts)


def test_a_lease_and_a_delay_end_at_their_moment_and_not_before(queue, clock):
    put(queue, "later", delay=10)
    assert queue.claim().retry_after == 10
    (lease,) = leased(queue, "work", lease=10)
    assert (lease.claimed, lease.until) == (clock.now, clock.now + 10)
    clock.now += 9.999
    assert queue.claim() == []
    assert queue.reap().count == 0
    assert queue.reap().next == pytest.approx(0.001)
    clock.now += 0.001
    assert queue.reap().count == 1
    assert sorted(names(queue.claim(5))) == ["later", "work"]


def test_guards_facts_and_the_failed_queue_go_by_the_same_clock(queue, clock):
    assert queue.put([entry()], [OnceGuard("key", 10)]) == [True]
    queue.store.put("fact", b"1", ttl=10)
    queue.fail(claim(queue))
    (lease,) = queue.failed.claim(1, 10)
    assert queue.put([entry()], [OnceGuard("key", 10)]) == [False]
    clock.now += 10
    assert queue.store.get("fact") is None
    assert queue.put([entry()], [OnceGuard("key", 10)]) == [True]
    assert (lease.until, queue.failed.reap().count) == (clock.now, 1)


def test_a_window_is_over_at_its_moment_and_not_before(queue, clock):
    guard, started = DebounceGuard("key", 10), clock.now
    assert list(send(queue, guard, "now")) == ["now"]
    clock.now += 9.999
    scheduled = send(queue, guard, "then")["then"]
    assert (queue.find(scheduled.id).at, send(queue, guard, "never")) == (pytest.approx(started + 10), {})
    clock.now = started + 11
    assert names(queue.claim(5)) == ["now", "then"]
    further = send(queue, guard, "further")["further"]
    assert queue.find(further.id).at == pytest.approx(started + 20)
    clock.now = started + 30
    assert names(queue.claim(5)) == ["further"]
    assert queue.find(send(queue, guard, "next")["next"].id).state == "ready"


def test_the_dead_are_trimmed_once_they_are_older_than_that_and_not_before(queue, clock):
    put(queue, "first", "second")
    queue.fail(claim(queue))
    clock.now += 1
    queue.fail(claim(queue))
    clock.now += 9
    assert queue.failed.trim(age=10) == 0
    clock.now += 0.001
    assert (queue.failed.trim(age=10), len(queue.failed)) == (1, 1)


def test_to17_remembered_ids_are_bounded_by_age_and_by_count(clock):
    queue = MemoryQueue("memory", remember_done=10, keep_done=3)
    queue.clock = clock
    made = put(queue, *"abcde")
    queue.complete(claim(queue, 5))
    assert queue.put(list(made.values())) == [True, True, False, False, False]
    clock.now += 10
    assert queue.put(list(made.values())) == [False, False, True, True, True]


@pytest.mark.slow
def test_many_entries_leave_nothing_behind(queue, clock):
    """A hundred thousand with DJQUEUE_FULL=1."""
    many = 100_000 if FULL else 20_000
    for start in range(0, many, many // 10):
        queue.put([Entry(b"", str(number), priority=number % 3) for number in range(start, start + many // 10)])
        while leases := queue.claim(500, 10):
            queue.touch(leases[:100], 20)
            queue.release([with_counts(lease, delay=5) for lease in leases[:50]])
            queue.complete(leases[50:450])  # the rest is lost
        clock.now += 30
        queue.reap(10_000)
    while leases := queue.claim(1000):
        queue.complete(leases)
    assert queue.stats().done == many
    assert held_things(queue) == 0


def test_extending_postponing_and_renewing_facts_for_hours_do_not_grow(queue, clock):
    leases = leased(queue, *map(str, range(10)))
    for number in range(2000):
        clock.now += 1
        leases = queue.touch(leases, 60)
        send(queue, DebounceGuard("key", 60, extend=True), "work")
        queue.store.put("same", b"1", ttl=60)
        queue.store.add(f"key {number}", b"1", 60)
        queue.store.drop(f"key {number}")
    assert (len(queue), held_things(queue) < 120) == (1, True)


@pytest.mark.slow
def test_to12_reaping_costs_nothing_for_what_is_not_expired(queue):
    queue.put([Entry(b"", str(number)) for number in range(100_000)])
    assert len(queue.claim(100_000, 60)) == 100_000
    started = time.process_time()
    for _ in range(100):
        assert queue.reap().count == 0
    assert time.process_time() - started < 0.5  # a look at all of them would take a hundred times as long


@pytest.mark.slow
def test_trimming_costs_nothing_for_what_is_within_its_bounds(queue):
    queue.failed.put([Entry(b"", str(number)) for number in range(100_000)])
    started = time.process_time()
    for _ in range(100):
        assert queue.failed.trim(most=100_000, age=60) == 0
    assert time.process_time() - started < 0.5  # a look at all of them would take a hundred times as long


@pytest.mark.slow
def test_many_random_verbs_do_what_they_do_to_the_model():
    run_machine(queue_machine(lambda: MemoryQueue("memory")), examples=150 if FULL else 50, steps=50)


@pytest.mark.slow
def test_many_random_verbs_on_lanes_do_what_they_do_to_the_model_while_time_goes_by():
    """Here the clock can be moved: delays, windows and holds end."""

    def move(queue: MemoryQueue, seconds: float) -> None:
        clock = queue.clock
        queue.clock = lambda: clock() + seconds

    run_machine(lane_machine(lambda: MemoryQueue("memory"), move), examples=150 if FULL else 50, steps=50)


def test_a_nap_is_woken_by_what_is_given_back():
    queue = MemoryQueue("memory")
    (lease,) = leased(queue, "work")
    assert nothing_to_claim(queue)
    with closing(queue.bell()) as bell:
        bell.arm()
        bell.disarm()
        woken, _ = together(lambda: bell.wait(20), lambda: queue.release([lease]))
    assert woken


def test_its_failed_queue_and_facts_are_its_own_and_peek_names_the_states_it_knows():
    one, other = MemoryQueue("same"), MemoryQueue("same")
    one.fail(leased(one, "work"))
    assert (len(one.failed), len(other.failed), one.failed is one.failed) == (1, 0, True)
    with pytest.raises(ValueError, match="ready, delayed, leased"):
        one.peek("waiting")
