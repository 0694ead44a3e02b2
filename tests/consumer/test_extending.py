"""A pump extends the leases of what it holds, as long as somebody here will end it."""

import logging
import threading

import pytest

from djqueue import queues
from djqueue.consumer.control import ConsumerControl
from djqueue.decorators import queue_command
from djqueue.utils import clock
from tests.support.consumer import recorded_signals, unreachable
from tests.support.pump import PumpHarness, claimed_once, set_clock


@queue_command
def work(number=0):
    return number


@queue_command(shard="all", lease=2)
def in_order(number):
    return number


def running(queue, count=1, **options):
    """A harness whose workers run so many messages."""
    harness = claimed_once(queue, **{"lease": 60.0, **options})
    return harness, [harness.begin() for _ in range(count)]


def begin(harness, message, policy):
    """What a worker does first, in a process that has seen the command done."""
    harness.crew.seen_through.add(message.lease.entry.command)
    ConsumerControl(harness.crew, {}, message).begin(policy)


def held_for(queue, message):
    """The seconds that its lease lasts, as the store has it."""
    return queue.find(message.lease.entry.id).at - queue.now()


def test_it_extends_what_was_held_for_a_quarter_of_its_lease(queue, monkeypatch):
    work.enqueue_many([(number,) for number in range(3)])
    (harness, messages), touched = running(queue, 3), []
    touch = queue.touch
    monkeypatch.setattr(queue, "touch", lambda some, lease: touched.append(len(some)) or touch(some, lease))
    harness.turn(14)
    assert touched == []
    harness.turn(16)
    harness.turn(17)
    assert touched == [3]
    for message in messages:
        assert message.lease.until == pytest.approx(queue.find(message.lease.entry.id).at, abs=0.001)


def test_df22_a_command_with_a_shorter_lease_is_extended_more_often(queue):
    work()
    harness, [message] = running(queue)
    begin(harness, message, work.policy.using(lease=1))
    harness.pump.mail.stop()  # so that a turn is due for the leases alone
    assert harness.turn() <= 0.125
    assert held_for(queue, message) <= 1
    before = message.touched
    harness.turn(0.1)
    assert message.touched == before
    harness.turn(0.3)
    assert message.touched > before + 0.2


def test_df22_a_command_with_a_shorter_lease_is_held_for_that_at_once_and_so_is_what_waits_behind_it(queue):
    """When their worker dies they come back together."""
    in_order.enqueue_many([(number,) for number in range(3)])
    began = clock()
    harness = claimed_once(queue, lease=60.0)
    [first, *rest] = harness.pool.next()
    first.worker = threading.current_thread()
    assert len(rest) == 2
    begin(harness, first, in_order.policy)
    harness.turn()
    for message in [first, *rest]:
        assert held_for(queue, message) <= 2
        assert message.lapsed(clock() + 2.1) and not message.lapsed(began)


def test_no_turn_begins_earlier_for_what_is_held_for_long_enough(queue, monkeypatch):
    work()
    (harness, [message]), woken = running(queue), []
    monkeypatch.setattr(harness.pump.mail, "wake", lambda: woken.append(1))
    for policy in (work.policy, work.policy.using(lease=300)):
        begin(harness, message, policy)
    assert woken == []
    begin(harness, message, work.policy.using(lease=1))
    assert woken == [1]


@pytest.mark.parametrize("laters", [(0.1, 16), (16, 16.5), (16,)], ids=["begin, extend", "extend, begin", "together"])
def test_r4_a_lease_keeps_what_begins_and_until_when_it_is_held(queue, laters):
    """Both change what is known of it, in any order."""
    work()
    harness, [message] = running(queue)
    begins = 0 if laters[0] < 1 else len(laters) - 1
    for place, later in enumerate(laters):
        if place == begins:
            harness.pump.mail.beginning[message] = answered = threading.Event()
        harness.turn(later)
    assert answered.is_set() and message.lease.begun
    record = queue.find(message.lease.entry.id)
    assert message.lease.until == pytest.approx(record.at, abs=0.001)
    assert message.touched > message.asked + 15
    assert queue.complete([message.lease]) == [message.lease]


def test_it_says_when_a_lease_is_lost(queue, caplog):
    handle = work()
    harness, [message] = running(queue)
    queue.complete([message.lease])
    harness.turn(16)
    harness.turn(32)  # and says it once
    assert [record.message_id for record in caplog.records if record.levelno == logging.WARNING] == [handle.id]
    assert message.lost


@pytest.mark.parametrize(("waited", "name"), [(0, "completed"), (61, "lease_lost")])
def test_what_is_gone_was_settled_by_us_only_while_nobody_else_can_have_had_it(queue, monkeypatch, waited, name):
    """The answer to its end was lost. A server that stands still answers when the lease is over."""
    work()
    (harness, [message]), now = running(queue), [clock()]
    set_clock(monkeypatch, lambda: now[0])
    complete, touch = queue.complete, queue.touch
    monkeypatch.setattr(queue, "complete", lambda *args: complete(*args) and unreachable())
    harness.end(message)
    harness.settle()
    assert harness.in_flight == [message]
    monkeypatch.setattr(queue, "complete", complete)
    monkeypatch.setattr(queue, "touch", lambda *args: now.append(now.pop() + waited) or touch(*args))
    now[0] += 16
    with recorded_signals("completed", "lease_lost") as recorded:
        harness.turn()
    assert [one for one, _ in recorded] == [name]
    assert (harness.in_flight, message.lost) == ([], name == "lease_lost")


def test_the_lease_of_what_a_worker_died_with_is_not_extended(queue):
    work.enqueue_many([(number,) for number in range(2)])
    harness, [dead, alive] = running(queue, 2)
    dead.worker = threading.Thread()
    before = dead.touched
    harness.turn(30)
    assert dead.touched == before
    assert alive.touched > before


@pytest.mark.backends("memory")
def test_a_queue_that_cannot_extend_delays_no_other_of_its_server(backend, settings, monkeypatch):
    settings.QUEUES = backend.queues("default", "broken")
    for alias in ("broken", "default"):
        work.using(queue_name=alias).enqueue()
    harness = PumpHarness(queues["broken"], queues["default"], lease=2.0)
    monkeypatch.setattr(queues["broken"], "touch", unreachable)
    for _ in range(2):
        harness.turn()
    messages = {one.queue.alias: one for one in (harness.begin(), harness.begin())}
    assert [one.queue.alias for one in harness.in_flight] == ["broken", "default"]
    for later in (0.6, 1.2, 1.8):
        harness.turn(later)
        assert messages["default"].touched == pytest.approx(clock() + later, abs=0.5)
    assert messages["broken"].touched == messages["broken"].asked


@pytest.mark.backends("memory")
def test_a_store_that_is_back_is_asked_again_within_a_quarter_of_a_lease(queue, monkeypatch):
    work()
    harness, [message] = running(queue, lease=2.0)
    with monkeypatch.context() as patch:
        patch.setattr(queue, "touch", unreachable)
        patch.setattr("djqueue.consumer.loop.pause_after", lambda failures: 60.0)
        harness.turn(0.6)
    assert harness.pump.leases._touching[id(queue)].left <= 0.5
