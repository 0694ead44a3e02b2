"""ThrottledQueue: what its window, its spacing and its elasticity let leave. Time is turned by hand."""

import os
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta
from math import inf

import pytest

from djqueue import queues
from djqueue.backends.base import PAGE
from djqueue.backends.bells import Bell
from djqueue.backends.entries import Entry, Refusal
from djqueue.backends.memory.queue import MemoryQueue, MemoryStore
from djqueue.decorators import queue_command
from djqueue.exceptions import InvalidQueueError, QueueError
from djqueue.flow.gates import Gate
from djqueue.messages.envelope import new_id
from djqueue.testing.contract.steps import put
from djqueue.testing.patience import eventually, together
from djqueue.throttle import ThrottledQueue
from tests.backends.contract.toy import ToyQueue
from tests.support.clock import Clock
from tests.support.consumer import only, serving
from tests.support.documents import ROOT

NOTHING = object()


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture(autouse=True)
def _nothing_shared_with_other_tests(monkeypatch):
    monkeypatch.setattr(MemoryStore, "_common", None)


@pytest.fixture
def throttled(clock):
    """Make a throttled queue by that clock, in memory unless it goes around another."""

    def make(items=0, queue=None, **settings) -> ThrottledQueue:
        within = queue or MemoryQueue(f"throttled-{new_id()}")
        within.clock = clock
        made = ThrottledQueue(within, **settings)
        made.push_many(range(items))
        return made

    return make


def popped(queue, most=1000) -> list:
    """What comes at once."""
    items = []
    while len(items) < most and (item := queue.pop(default=NOTHING)) is not NOTHING:
        items.append(item)
    return items


def facts(queue) -> dict:
    """All that is kept about throttles and in the queue's store, by key."""
    shared, own = queue.store.shared, queue.store
    return {key: store.get(key) for store in (shared, own) for key in list(store._facts) if store.get(key)}


MODES = {"plain": {}, "moderated": {"moderate": True}, "elastic": {"moderate": True, "elastic": True}}
each_mode = pytest.mark.parametrize("mode", MODES.values(), ids=MODES)


def named(mode) -> dict:
    """A mode that shares all that it can share."""
    kinds = ["window_name", "mod_name"] if "moderate" in mode else ["window_name"]
    return mode | {kind: new_id() for kind in kinds}


# ---- the window


def test_tq1_five_of_seven_come_at_once_highest_priority_first(throttled):
    queue = throttled(limit=5, window=10)
    for priority, item in enumerate("abcdefg"):
        queue.push(item, priority)
    assert [queue.pop() for _ in range(7)] == [*"gfedc", None, None]


def test_tq2_for_each_that_is_a_window_old_exactly_one_more_comes(throttled, clock):
    queue = throttled(10, limit=2, window=10)
    assert popped(queue, 1) == [0]
    clock.now += 4
    assert popped(queue) == [1]
    clock.now += 5.999
    assert popped(queue) == []
    clock.now += 0.001
    assert popped(queue) == [2]
    clock.now += 3.999
    assert popped(queue) == []
    clock.now += 0.001
    assert popped(queue) == [3]
    clock.now += 1000
    assert popped(queue) == [4, 5]


@each_mode
def test_tq3_no_interval_of_a_window_has_more_than_its_limit(throttled, clock, mode):
    queue, moments = throttled(1000, limit=7, window=2.5, **mode), []
    for tick in range(4000):
        clock.now = 1_000_000 + 0.013 * tick + (3.0 if tick > 1500 else 0.0)
        if tick % 11:
            moments += [clock.now] * len(popped(queue))
    assert len(moments) > 100
    assert all(later - earlier >= 2.5 for earlier, later in zip(moments, moments[7:], strict=False))


def test_tq10_push_is_never_throttled_and_is_counted_at_once(throttled):
    queue = throttled(1, limit=1, window=60)
    assert popped(queue) == [0]
    for number in range(5):
        queue.push(number)
        assert len(queue) == number + 1
    assert (popped(queue), len(queue), queue.stats().ready) == ([], 5, 5)


@each_mode
def test_tq14_a_short_window_is_a_window(throttled, clock, mode):
    for window in (0.1, 0.4, timedelta(milliseconds=250)):
        queue = throttled(100, limit=3, window=window, **mode)
        start, moments = clock.now, []
        while clock.now < start + 10 * queue.window:
            moments += [clock.now] * len(popped(queue))
            clock.now += 0.001
        assert 28 <= len(moments) <= 30
        assert all(later - earlier >= queue.window - 1e-6 for earlier, later in zip(moments, moments[3:], strict=False))


# ---- spacing


def test_tq4_moderated_ones_are_evenly_spaced(throttled, clock):
    queue = throttled(10, limit=4, window=2, moderate=True)
    moments = []
    for tick in range(201):
        clock.now = 1_000_000 + 0.01 * tick
        moments += [0.01 * tick] * len(popped(queue))
    assert moments == pytest.approx([0.0, 0.5, 1.0, 1.5, 2.0])
    assert queue.moderation == 0.5


def test_tq5_spacing_holds_over_all_who_take(throttled, clock):
    one = throttled(10, limit=4, window=2, moderate=True)
    other = ThrottledQueue(one.queue, limit=4, window=2, moderate=True)
    assert (one.pop(), other.pop(), other.refusal) == (0, None, Refusal("spaced", 0.5))
    clock.now += 0.5
    assert (other.pop(), one.pop()) == (1, None)


def test_tq6_one_per_window_needs_no_moderation(throttled, clock):
    queue = throttled(5, limit=1, window=10, moderate=True)
    assert (queue.moderation, popped(queue), queue.refusal) == (None, [0], Refusal("limited", 10.0))
    clock.now += 10
    assert popped(queue) == [1]


def test_queues_that_share_a_mod_name_share_the_spacing_alone(throttled, clock):
    name = new_id()
    one = throttled(5, limit=4, window=2, moderate=True, mod_name=name)
    other = throttled(5, limit=2, window=2, moderate=True, mod_name=name)
    assert (one.pop(), other.pop(), other.refusal.reason) == (0, None, "spaced")
    clock.now += 0.5
    assert (one.pop(), other.pop()) == (1, None)
    clock.now += 1
    assert (other.pop(), one.pop()) == (0, None)


def test_looking_at_an_empty_queue_spaces_nothing(throttled, clock):
    name = new_id()
    one = throttled(5, limit=4, window=2, moderate=True, mod_name=name)
    idle = throttled(limit=4, window=2, moderate=True, mod_name=name)
    assert one.pop() == 0
    clock.now += 0.5
    assert (idle.pop(), one.pop()) == (None, 1)


# ---- elasticity


@pytest.mark.parametrize(("buffer", "burst"), [(0, 4), (1, 3), (3, 1)])
def test_tq7_what_was_idle_for_a_window_catches_up_to_the_buffer(throttled, clock, buffer, burst):
    queue = throttled(20, limit=4, window=2, moderate=True, elastic=True, elastic_buffer=buffer)
    warm_up(queue, clock)
    clock.now += 2
    assert (len(popped(queue)), queue.refusal.reason in ("limited", "spaced")) == (burst, True)


def test_tq8_before_the_first_limit_of_them_spacing_holds(throttled, clock):
    queue = throttled(20, limit=4, window=2, moderate=True, elastic=True)
    for _ in range(3):
        assert len(popped(queue)) == 1
        clock.now += 3
    assert len(popped(queue)) == 4  # with the fourth of its life it is warm, and the window was empty


@pytest.mark.parametrize(("is_warm", "burst"), [(False, 1), (True, 4)])
def test_tq8_looking_at_an_empty_queue_neither_warms_nor_cools(throttled, clock, is_warm, burst):
    queue = throttled(4 if is_warm else 0, limit=4, window=2, moderate=True, elastic=True)
    if is_warm:
        warm_up(queue, clock)
        clock.now += 2
    assert [popped(queue) for _ in range(10)] == [[]] * 10
    queue.push_many(range(5))
    assert popped(queue) == [*range(burst)]


def test_all_who_take_warm_it_together(throttled, clock):
    one = throttled(20, limit=4, window=2, moderate=True, elastic=True)
    warm_up(one, clock)
    clock.now += 2
    assert len(popped(ThrottledQueue(one.queue, limit=4, window=2, moderate=True, elastic=True))) == 4


def warm_up(queue, clock):
    for _ in range(4):
        assert len(popped(queue)) == 1
        clock.now += 0.5


# ---- names


def test_tq9_two_queues_of_one_name_share_what_may_leave(throttled, clock):
    shared = {"limit": 5, "window": 10, "window_name": new_id()}
    one, other = throttled(10, **shared), throttled(10, **shared)
    assert len(popped(one, 3) + popped(other)) == 5
    assert popped(one) == []
    clock.now += 10
    assert len(popped(other, 4) + popped(one) + popped(other)) == 5


def test_two_queues_without_a_name_share_nothing(throttled):
    one, other = throttled(9, limit=5, window=10), throttled(9, limit=5, window=10)
    same_name = throttled(9, queue=MemoryQueue(one.name), limit=5, window=10)
    assert [len(popped(queue)) for queue in (one, other, same_name)] == [5, 5, 5]


def test_of_two_settings_under_a_name_the_stricter_hold_while_both_are_in_use(throttled, clock):
    name = new_id()
    one = throttled(9, limit=5, window=10, window_name=name)
    other = throttled(9, limit=6, window=10, window_name=name)
    assert (popped(other, 1), popped(one), popped(other)) == ([0], [0, 1, 2, 3], [])
    clock.now += 20
    assert popped(other) == [1, 2, 3, 4, 5, 6]


def test_the_settings_of_a_deploy_hold_once_nobody_uses_the_old_ones_and_nothing_is_raised(throttled, clock):
    name = new_id()
    old = throttled(9, limit=2, window=10, window_name=name)
    assert len(popped(old)) == 2
    new = throttled(9, limit=4, window=10, window_name=name)
    assert popped(new) == []
    clock.now += 20
    assert len(popped(new)) == 4
    stricter = throttled(9, limit=1, window=10, window_name=name)
    assert popped(stricter) == []
    clock.now += 10
    assert (len(popped(new)), len(popped(stricter))) == (1, 0)


def test_a_change_of_limit_and_window_holds_at_once_for_all_and_loses_no_item(throttled, clock):
    name = new_id()
    one, other = (throttled(9, limit=2, window=60, window_name=name) for _ in range(2))
    assert len(popped(one)) == 2
    one.limit = 4
    assert (one.limit, len(popped(other)), len(popped(one))) == (4, 2, 0)
    one.window = 10
    clock.now += 10
    assert (one.window, len(popped(other)), len(popped(one)), len(other)) == (10, 4, 0, 3)
    clock.now += 3600
    assert len(popped(other)) == 3


def test_a_limit_may_be_a_float_that_is_a_whole_number(throttled):
    """As Scrapy Cluster assigns it: ``t.limit = float(hits)``."""
    queue = throttled(9, limit=2.0, window=60)
    assert (repr(queue.limit), popped(queue)) == ("2", [0, 1])
    queue.limit = float("4")
    assert (repr(queue.limit), popped(queue)) == ("4", [2, 3])
    with pytest.raises(ValueError, match=r"^limit is 10\.5: give a whole number from 0\.$"):
        queue.limit = 10.5


def test_a_limit_of_zero_is_a_pause_until_it_is_changed(throttled):
    paused, name = throttled(3, limit=0, window=60), new_id()
    assert (popped(paused), paused.refusal) == ([], ("limited", inf))
    paused.limit = 2
    assert popped(paused) == [0, 1]
    elastic = throttled(3, limit=3, window=60, moderate=True, elastic=True, elastic_buffer=1, window_name=name)
    elastic.limit = 0
    assert popped(elastic) == []


def test_who_waits_notices_a_change_within_about_a_second():
    queue = MemoryQueue("pages")
    throttled = ThrottledQueue(queue, limit=0, window=60)
    throttled.push("page")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(throttled.pop, timeout=30)
        throttled.limit = 1
        assert waiting.result(10) == "page"


def test_reset_forgets_what_was_spent_and_set_and_keeps_the_items(throttled):
    queue = throttled(9, limit=2, window=60)
    queue.limit = 3
    assert len(popped(queue)) == 3
    queue.reset()
    assert (queue.limit, len(popped(queue)), len(queue)) == (2, 2, 4)


def test_a_change_that_makes_no_sense_is_refused_and_changes_nothing(throttled):
    queue = throttled(9, limit=2, window=60)
    for name, value in (("limit", -1), ("limit", 1.5), ("window", 0), ("window", "1")):
        with pytest.raises((TypeError, ValueError), match=name):
            setattr(queue, name, value)
    assert (queue.limit, len(popped(queue))) == (2, 2)


def test_after_clear_a_name_has_the_settings_of_who_comes_next(throttled):
    name = new_id()
    one = throttled(9, limit=5, window=10, window_name=name)
    assert len(popped(one)) == 5
    other = throttled(9, limit=6, window=10, window_name=name)
    other.clear()
    other.push_many(range(9))
    assert len(popped(other)) == 6


def test_several_windows_hold_at_once_by_a_throttle_around_another(throttled, clock):
    queue = ThrottledQueue(throttled(100, limit=2, window=1), limit=5, window=60)
    taken = []
    for _ in range(60):
        taken.append(len(popped(queue)))
        clock.now += 1
    assert (taken[:4], sum(taken)) == ([2, 2, 1, 0], 5)
    assert [len(popped(queue)), queue.refusal.reason] == [2, "limited"]


# ---- what a refusal says


def test_tq17_a_refusal_says_why_and_when_and_then_it_succeeds(throttled, clock):
    queue = throttled(limit=2, window=10)
    assert (queue.refusal, queue.pop(), queue.refusal) == (None, None, Refusal("empty", inf))
    queue.push_many(range(9))
    assert (popped(queue, 1), queue.refusal) == ([0], None)
    clock.now += 4
    assert (popped(queue), queue.refusal) == ([1], Refusal("limited", 6.0))
    clock.now += queue.refusal.retry_after
    assert (queue.pop(), queue.refusal, queue.pop()) == (2, None, None)
    assert queue.refusal == Refusal("limited", 4.0)


def test_tq17_of_spacing_and_of_what_is_delayed_too(throttled, clock):
    queue = throttled(2, limit=4, window=2, moderate=True)
    assert (queue.take()[1], queue.take(), queue.refusal) == (0, (None, None), Refusal("spaced", 0.5))
    clock.now += queue.refusal.retry_after
    assert queue.pop() == 1
    clock.now += 2
    queue.push("later", delay=30)
    assert (queue.claim(), queue.refusal) == ([], Refusal("empty", 30.0))


def test_a_queue_that_nothing_throttles_says_why_it_had_nothing(clock):
    queue = MemoryQueue("plain")
    queue.clock = clock
    queue.push("later", delay=30)
    assert (queue.pop(), queue.refusal) == (None, Refusal("empty", 30.0))
    clock.now += 30
    assert (queue.pop(), queue.refusal) == ("later", None)


def test_each_thread_has_its_own_refusal(throttled):
    queue = throttled(1, limit=1, window=60)
    assert (queue.pop(), queue.pop(), queue.refusal.reason) == (0, None, "limited")
    assert together(lambda: queue.refusal) == [None]


class Sleeper(MemoryQueue):
    """Its waits turn the clock, and are remembered."""

    def __init__(self, *args):
        super().__init__(*args)
        self.waits = []

    def bell(self, beside=()):
        queue = self

        class Waits(Bell):
            def wait(self, seconds):
                queue.waits.append(round(seconds, 6))
                queue.clock.now += seconds
                return False

        return Waits()


def test_pop_sleeps_until_the_next_may_leave_and_looks_for_a_change_each_second(throttled, clock, monkeypatch):
    queue = throttled(3, queue=Sleeper("sleeper"), limit=1, window=10)
    monkeypatch.setattr("djqueue.backends.items.time.monotonic", clock)
    assert [queue.pop(timeout=60) for _ in range(3)] == [0, 1, 2]
    assert queue.queue.waits == [1] * 20
    assert (queue.pop(timeout=5), queue.refusal) == (None, Refusal("limited", 5.0))
    assert queue.queue.waits == [1] * 25


# ---- claims


def test_a_claim_of_many_gives_what_is_left_and_says_when_there_is_more(throttled, clock):
    queue = throttled(9, limit=5, window=10)
    claimed = queue.claim(3)
    assert (len(claimed), claimed.retry_after, claimed.reason) == (3, 0.0, "")
    clock.now += 1
    claimed = queue.claim(4)
    assert (len(claimed), claimed.retry_after, claimed.reason) == (2, 9.0, "limited")
    claimed = queue.claim(4)
    assert (claimed, claimed.retry_after, claimed.reason) == ([], 9.0, "limited")


def test_nothing_of_it_waits_for_a_worker(throttled):
    queue = throttled(9, limit=5, window=10)
    assert (len(queue.claim(4, ahead=3)), queue.claim(3, ahead=3)) == (1, [])
    assert len(queue.claim(9)) == 4


def test_what_is_released_or_lost_has_left_all_the_same(throttled, clock):
    queue = throttled(9, limit=2, window=10)
    queue.release([queue.take()[0]])
    queue.take(lease=1)
    clock.now += 5
    assert (queue.reap().count, popped(queue)) == (1, [])


def test_read_is_throttled_and_write_is_not(throttled, clock):
    queue = throttled(limit=1, window=10)
    queue.write("a")
    queue.write("b")
    assert (queue.read(), queue.read(), len(queue)) == ("a", None, 1)
    clock.now += 10
    assert queue.read() == "b"


def test_read_takes_one_of_a_shard_and_leaves_the_rest(throttled):
    queue, gate = throttled(limit=9, window=10), Gate(ordered=True, max_run=5).written()
    queue.put([Entry(word, word.decode(), lane="a", gate=gate) for word in (b"1", b"2", b"3")])
    assert [queue.read(), len(queue), queue.read()] == ["1", 2, "2"]


def test_a_queue_of_four_verbs_can_be_throttled(clock):
    within = ToyQueue("toy")
    within.store = MemoryStore("toy")
    within.store.clock = clock
    queue = ThrottledQueue(within, limit=2, window=10, window_name=new_id())
    queue.push_many("abc")
    assert (popped(queue), queue.refusal) == (["a", "b"], Refusal("limited", 10.0))
    clock.now += 10
    assert (popped(queue), queue.refusal.reason) == (["c"], "empty")


# ---- nothing is spent for nothing, and nothing stays


@each_mode
def test_tq12_looking_at_an_empty_queue_spends_nothing(throttled, mode):
    queue = throttled(limit=3, window=60, **mode)
    assert [queue.pop() for _ in range(100)] == [None] * 100
    queue.push("at once")
    assert queue.pop() == "at once"


@each_mode
@pytest.mark.parametrize("sharing", [dict, named], ids=["own", "named"])
def test_tq13_clear_leaves_nothing_behind(throttled, mode, sharing):
    queue = throttled(10, limit=4, window=2, **sharing(mode))
    popped(queue)
    queue.push("later", delay=60)
    assert facts(queue)
    for _ in range(2):
        queue.clear()
        assert (len(queue), facts(queue)) == (0, {})
    queue.push("anew")
    assert queue.pop() == "anew"


@each_mode
def test_tq19_what_a_throttle_keeps_vanishes_two_windows_after_its_last_use_and_the_data_does_not(
    throttled, clock, mode
):
    queue = throttled(10, limit=4, window=2, **named(mode))
    popped(queue)
    kept, left = facts(queue), len(queue)
    clock.now += 4.001
    assert (bool(kept), facts(queue), len(queue), left > 0) == (True, {}, left, True)


# ---- settings


BAD = [
    ({"limit": -1, "window": 1}, "limit is -1"),
    ({"limit": -5, "window": 1}, "limit is -5"),
    ({"limit": 2.5, "window": 1}, "limit is 2.5"),
    ({"limit": True, "window": 1}, "limit is True"),
    ({"limit": 5, "window": 0}, "window is 0"),
    ({"limit": 5, "window": -1}, "window is -1"),
    ({"limit": 5, "window": "1s"}, "window is '1s'"),
    ({"limit": 5, "window": inf}, "window is inf"),
    ({"limit": 5, "window": 1, "elastic": True}, "elastic.*moderate=True"),
    ({"limit": 5, "window": 1, "moderate": True, "elastic_buffer": 1}, "elastic_buffer.*elastic=True"),
    ({"limit": 5, "window": 1, "moderate": True, "elastic": True, "elastic_buffer": 5}, "elastic_buffer is 5"),
    ({"limit": 5, "window": 1, "moderate": True, "elastic": True, "elastic_buffer": -1}, "elastic_buffer is -1"),
    ({"limit": 5, "window": 1, "window_name": ""}, "window_name is ''"),
    ({"limit": 5, "window": 1, "window_name": "queue:mail"}, "window_name is 'queue:mail'"),
    ({"limit": 5, "window": 1, "moderate": True, "mod_name": 7}, "mod_name is 7"),
    ({"limit": 5, "window": 1, "mod_name": "m"}, "mod_name.*moderate=True"),
    ({"limit": 5}, "window"),
]


@pytest.mark.parametrize(("settings", "words"), BAD, ids=str)
def test_tq22_bad_settings_are_refused_when_it_is_made(settings, words):
    with pytest.raises((TypeError, ValueError), match=words):
        ThrottledQueue(MemoryQueue("mail"), **settings)


def test_what_it_goes_around_must_be_a_queue_with_a_store():
    with pytest.raises(TypeError, match="not around 'mail'"):
        ThrottledQueue("mail", limit=5, window=1)
    with pytest.raises(InvalidQueueError, match="'toy' has no store"):
        ThrottledQueue(ToyQueue("toy"), limit=5, window=1)


def test_its_settings_can_be_read(throttled):
    queue = throttled(limit=15, window=30)
    assert (queue.limit, queue.window, queue.moderation) == (15, 30.0, None)
    assert (queue.elastic, queue.elastic_buffer, queue.window_name, queue.mod_name) == (False, 0, None, None)
    queue = throttled(limit=15, window=30, moderate=True, elastic=True, elastic_buffer=2, mod_name="m")
    assert (queue.moderation, queue.elastic, queue.elastic_buffer, queue.mod_name) == (2.0, True, 2, "m")


@pytest.mark.parametrize(
    ("given", "settings", "words"),
    [
        ((10, 5), {}, r"its settings by name: ThrottledQueue\(queue, limit=10, window=5\)"),
        ((10,), {"limit": 5}, "its settings by name"),
        ((), {"limit": 1, "throttleWindow": 5}, "no setting 'throttleWindow': did you mean 'window'"),
        ((), {"window": 1, "throttleLimit": 5}, "no setting 'throttleLimit': did you mean 'limit'"),
        ((), {"limit": 1, "window": 1, "windowName": "api"}, "did you mean 'window_name'"),
        ((), {"limit": 1, "window": 1, "server": 1}, "there are limit, window, moderate"),
        ((), {"limit": 1}, "required keyword-only argument: 'window'"),
    ],
)
def test_the_arguments_of_other_packages_are_refused_with_the_names_that_they_have_here(given, settings, words):
    with pytest.raises(TypeError, match=words):
        ThrottledQueue(MemoryQueue("letters"), *given, **settings)


MEMORY = {"CLASS": "djqueue.backends.memory.MemoryQueue", "NAME": "letters", "OPTIONS": {"LEASE": 5}}


def test_a_setting_throttles_a_queue(settings):
    settings.QUEUES = {"mail": {**MEMORY, "THROTTLE": {"limit": 2, "window": 60, "moderate": False}}, "news": MEMORY}
    queue = queues["mail"]
    assert isinstance(queue, ThrottledQueue) and not isinstance(queues["news"], ThrottledQueue)
    assert (queue.alias, queue.name, queue.lease, queue.limit, queue.window) == ("mail", "letters", 5.0, 2, 60.0)
    queue.push_many(range(5))
    assert popped(queue) == [0, 1]


@pytest.mark.parametrize(
    ("throttle", "words"),
    [
        ({"limit": 2, "windwo": 1}, "'windwo': did you mean 'window'"),
        ({"limit": 2, "window": 1, "name": "api"}, "'name': did you mean 'window_name'"),
        ({"limit": 2}, "lacks 'window': give limit and window"),
        ({}, "lacks 'limit' and 'window'"),
        ({"limit": -1, "window": 1}, "limit is -1"),
    ],
)
def test_a_setting_that_makes_no_sense_is_named(settings, throttle, words):
    settings.QUEUES = {"mail": {**MEMORY, "THROTTLE": throttle}}
    with pytest.raises(InvalidQueueError, match=rf"QUEUES\['mail'\]\['THROTTLE'\].*{words}"):
        queues["mail"]


def test_a_queue_that_is_to_have_no_store_cannot_be_throttled(settings):
    settings.QUEUES = {"mail": {**MEMORY, "STORE": False, "THROTTLE": {"limit": 2, "window": 1}}}
    with pytest.raises(InvalidQueueError, match="has no store"):
        queues["mail"]


# ---- items


def test_tq20_equal_priorities_come_in_push_order_and_the_same_twice_is_two(throttled):
    queue = throttled(limit=100, window=1)
    for item in "cabcab":
        queue.push(item, 5)
    assert popped(queue) == list("cabcab")


def test_tq20_as_a_set_an_equal_item_only_takes_the_new_priority_and_a_delayed_one_counts(throttled):
    queue = throttled(limit=100, window=1)
    first = queue.push({"url": "a", "depth": 1}, 1, unique=True)
    queue.push("b", 2, unique=True)
    assert queue.push({"depth": 1, "url": "a"}, 3, unique=True) == first
    assert (len(queue), popped(queue)) == (2, [{"url": "a", "depth": 1}, "b"])
    assert queue.push("b", unique=True) != first
    assert popped(queue) == ["b"]
    assert queue.push("a", delay=60, unique=True) == queue.push("a", unique=True)
    assert (popped(queue), len(queue)) == ([], 1)


def test_what_was_taken_and_is_not_completed_does_not_keep_out_an_equal_item(throttled):
    queue = throttled(limit=100, window=1)
    queue.push("a", unique=True)
    lease, _ = queue.take()
    second = queue.push("a", unique=True)
    assert (queue.push("a", unique=True), len(queue)) == (second, 1)
    queue.complete([lease])
    assert queue.push("a", 7, unique=True) == second
    assert popped(queue) == ["a"]


def test_tq13_an_item_of_a_set_leaves_no_mark_when_it_is_popped_or_cleared(throttled):
    queue = throttled(limit=100, window=1)
    for item in "abc":
        queue.push(item, unique=True)
    queue.push("d", delay=60, unique=True)
    assert (popped(queue), len(facts(queue))) == (["a", "b", "c"], 2)  # what was spent, and the mark of what waits
    for item in range(2 * PAGE):
        queue.push(item, unique=True)
    queue.clear()
    assert (len(queue), queue.store._facts) == (0, {})


def test_a_pop_leaves_the_mark_of_an_equal_item_that_came_since(throttled, monkeypatch):
    queue = throttled(limit=100, window=1)
    queue.push("a", unique=True)
    complete, pushed = queue.queue.complete, []

    def late(leases):
        pushed.append(queue.push("a", unique=True))
        return complete(leases)

    with monkeypatch.context() as patch:
        patch.setattr(queue.queue, "complete", late)
        assert queue.pop() == "a"
    assert (queue.push("a", unique=True), len(queue)) == (pushed[0], 1)


def test_an_item_is_popped_though_its_mark_cannot_be_forgotten(throttled, monkeypatch, caplog):
    queue = throttled(limit=100, window=1)
    queue.push("a", unique=True)
    monkeypatch.setattr(queue.store, "drop", None)
    assert (queue.pop(), len(queue)) == ("a", 0)
    assert "is kept for a day" in caplog.text


def test_of_many_who_push_an_equal_item_at_once_one_puts_it():
    queue = MemoryQueue("set")
    ids = together(*[lambda: queue.push("a", unique=True)] * 8)
    assert (len(set(ids)), len(queue)) == (1, 1)


def test_an_item_that_comes_and_goes_for_ever_is_an_error(monkeypatch):
    queue = MemoryQueue("set")
    queue.push("a", unique=True)
    monkeypatch.setattr(queue, "find", lambda id: None)
    with pytest.raises(QueueError, match="came and went"):
        queue.push("a", unique=True)


def test_tq21_every_item_can_be_told_from_nothing(throttled):
    queue, items = throttled(limit=100, window=1), [None, 0, "", False, [], "x"]
    queue.push_many(items)
    assert [queue.pop(default=NOTHING) for _ in items] == items
    assert queue.pop(default=NOTHING) is NOTHING


def test_tq11_of_many_threads_each_item_goes_to_one():
    queue = ThrottledQueue(MemoryQueue("threads"), limit=1000, window=0.5)
    queue.push_many(range(400))
    found = sum(together(*[lambda: popped(queue)] * 8), [])
    assert sorted(found) == list(range(400))


def test_tq18_what_is_taken_and_never_reported_comes_again(throttled, clock):
    queue = throttled(1, limit=5, window=1)
    lease, item = queue.take(lease=30)
    clock.now += 30
    assert (item, queue.pop(), queue.pop()) == (0, 0, None)
    assert queue.complete([lease]) == []


# ---- one step


class Counted(MemoryQueue):
    """Remembers when it was asked for what a rate limit allows, and how much it gave."""

    def __init__(self, *args):
        super().__init__(*args)
        self.given = []

    def claim_within(self, *args):
        with self._lock:
            claimed = super().claim_within(*args)
            self.given.append((claimed[0].claimed if claimed else self.now(), len(claimed)))
            return claimed


def test_tq23_a_decision_is_one_call_of_the_backend(throttled, clock):
    queue = throttled(5, queue=Counted("counted"), limit=1, window=10)
    for _ in range(3):
        queue.claim()
    assert queue.queue.given == [(clock.now, 1), (clock.now, 0), (clock.now, 0)]


@queue_command(queue_name="mail")
def send(number):
    """Quickly."""


def test_a_consumer_runs_what_may_leave_and_does_not_ask_all_the_time(settings):
    path = f"{__name__}.Counted"
    settings.QUEUES = {"default": MEMORY, "mail": {"CLASS": path, "THROTTLE": {"limit": 4, "window": 0.5}}}
    queue = queues["mail"]
    with only(send), serving("mail", threads=3, delay=0.01, max_delay=0.1):
        send.enqueue_many([(number,) for number in range(11)])
        eventually(lambda: queue.stats().done == 11)
    given = queue.queue.given
    moments = [moment for moment, count in given for _ in range(count)]
    assert all(later - earlier >= 0.5 - 1e-6 for earlier, later in zip(moments, moments[4:], strict=False))
    assert (len(moments), len(given) < 60) == (11, True)


def test_tq15_no_slot_is_lost_to_those_who_race_for_it(throttled, clock):
    queue = throttled(1000, limit=10, window=1)
    for _ in range(10):
        assert sum(map(len, together(*[lambda: popped(queue)] * 8))) == 10
        clock.now += 1


def test_tq16_it_is_the_clock_of_the_store_that_counts(throttled, clock, monkeypatch):
    queue = throttled(10, limit=2, window=10)
    assert len(popped(queue)) == 2
    for shift in (5, -5, 3600):
        monkeypatch.setattr("time.time", lambda shift=shift: clock.now + shift)
        assert popped(queue) == []
    clock.now += 10
    assert len(popped(queue)) == 2


def test_a_sleeper_of_a_throttled_queue_wakes_for_all_beside_it():
    one, other = (ThrottledQueue(MemoryQueue(name), limit=5, window=1) for name in ("one", "other"))
    assert one.connection_key == other.connection_key != one.queue.connection_key
    with closing(one.bell([other])) as bell:
        bell.arm()
        bell.disarm()
        put(other, "work")
        assert bell.wait(60)


SCRIPT = ROOT / "example_project" / "throttled_queue.py"


def ended(*command) -> tuple[int, str, str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, env=env, timeout=60)
    return done.returncode, done.stdout, done.stderr


def test_the_example_script_says_so_if_there_is_no_server():
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # and does not listen
        port = str(nobody.getsockname()[1])
        code, said, wrong = ended(SCRIPT, "-r", "127.0.0.1", "-p", port)
    assert (code, said) == (1, "Adding 20 items for testing\n")
    assert port in wrong and len(wrong.splitlines()) == 1


DAWDLING = """
import sys

sys.path.insert(0, {folder!r})
import throttled_queue as script
from djqueue.backends.memory import MemoryQueue

def slept(seconds):
    print("dawdles", 0 <= seconds <= 180)
    raise KeyboardInterrupt

script.time.sleep = slept
queue, sys.argv[1:] = MemoryQueue("pages"), ["-r", "nowhere", "-n", "1", "-m", "-e"]
script.RedisBlockingQueue = lambda name, url: queue
sys.exit(script.main())
"""


def test_the_example_script_dawdles_with_a_limit_of_one_too():
    code, said, wrong = ended("-c", DAWDLING.format(folder=str(SCRIPT.parent)))
    assert (code, said.splitlines()[-2:], wrong) == (0, ["dawdles True", "Finished"], "")


# ---- what dead processes held


def test_what_a_dead_loop_held_comes_first_when_the_throttle_opens(throttled, clock, monkeypatch):
    monkeypatch.setattr("djqueue.backends.items.REAP_EVERY", 0.0)
    queue = throttled(300, limit=1, window=10)
    queue.push("lost", priority=10)
    assert queue.take(lease=1)[1] == "lost"
    clock.now += 5
    assert (queue.take(), queue.refusal.reason) == ((None, None), "limited")
    assert [record.entry.priority for record in queue.peek("ready", 1)] == [10]  # given back though it was refused
    clock.now += 6
    assert queue.pop() == "lost"


# ---- a store whose clock steps back


def test_a_clock_that_steps_back_delays_what_is_throttled_by_that_step_and_a_window_at_most(throttled, clock):
    queue = throttled(20, limit=5, window=5)
    assert len(popped(queue)) == 5
    clock.now -= 60
    assert (popped(queue), queue.refusal.retry_after) == ([], pytest.approx(65))
    clock.now += 65
    assert len(popped(queue)) == 5
