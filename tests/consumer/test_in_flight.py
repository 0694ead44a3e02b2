"""What several threads change of a message that a process holds."""

import pytest

from djqueue import queues
from djqueue.consumer.coroutines import BLOCKED, Coroutines
from djqueue.consumer.in_flight import InFlight
from djqueue.consumer.maintenance import Heartbeat
from djqueue.testing.contract.steps import put
from djqueue.utils import clock

pytestmark = pytest.mark.backends("memory")


@pytest.fixture
def queue(backend, settings):
    settings.QUEUES = backend.queues("default")
    return queues["default"]


def test_what_was_claimed_again_meanwhile_is_not_lost(queue, monkeypatch):
    """The store answers that the former lease is gone, and its thread goes on only when there is another one."""
    in_flight = InFlight()
    put(queue, "work")
    [held] = in_flight.take(queue, queue.claim(1, 0.01), clock())
    former = held.lease

    def claimed_again(leases, seconds):
        queue.release([former])
        [again] = in_flight.take(queue, queue.claim(1, 60), clock())
        held.go_on(again)
        return []

    monkeypatch.setattr(queue, "touch", claimed_again)
    Heartbeat([queue], in_flight, lambda queue: 0.001).tick()
    assert (held.lost, held.lease.token == former.token) == (False, False)
    assert not held.lose(former)
    held.change(former, until=0.0)
    held.settle(former)
    assert (held.lost, held.settled, held.lease.until > 0) == (False, False, True)


def test_what_two_threads_change_of_a_lease_are_both_kept(queue):
    in_flight = InFlight()
    put(queue, "work")
    [held] = in_flight.take(queue, queue.claim(1, 60, begin=False), clock())
    former = held.lease
    held.change(former, until=former.until + 60)
    held.change(former, begun=True)
    assert (held.lease.until, held.lease.begun) == (former.until + 60, True)


def test_the_moment_of_the_last_change_never_goes_back():
    in_flight = InFlight()
    in_flight.drop([])
    last = in_flight.changed
    in_flight.drop([], last - 1)
    assert in_flight.changed == last


def test_a_loop_that_answers_while_it_is_asked_is_not_blocked(monkeypatch):
    coroutines = Coroutines(1, 1, lambda held, verdict: None)
    coroutines._asked = clock() - BLOCKED - 1
    monkeypatch.setattr(coroutines, "_log_blocked", lambda since: setattr(coroutines, "_asked", None))
    coroutines.look()
    assert (coroutines._asked, coroutines.is_stuck) == (None, False)
    coroutines.loop.call_soon(coroutines.stop)
    coroutines.run()


def test_a_loop_that_has_ended_is_not_blocked():
    coroutines = Coroutines(1, 1, lambda held, verdict: None)
    coroutines.loop.call_soon(coroutines.stop)
    coroutines.run()
    coroutines.look()
    assert not coroutines.is_blocked
