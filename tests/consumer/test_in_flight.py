"""What the pump changes of a message that a process holds, and in which order its events may come."""

import ast
import dataclasses
from dataclasses import replace
from pathlib import Path

import pytest

from djqueue import queues
from djqueue.consumer import in_flight
from djqueue.consumer.coroutines import BLOCKED, Coroutines
from djqueue.consumer.in_flight import Message
from djqueue.policies.outcomes import Outcome, Verdict
from djqueue.testing import together
from djqueue.testing.contract.steps import put
from djqueue.utils import clock
from tests.support.pump import claimed_once

pytestmark = pytest.mark.backends("memory")


@pytest.fixture
def queue(backend, settings):
    settings.QUEUES = backend.queues("default")
    return queues["default"]


@pytest.mark.backends("memory", "sqlite", "redis")
@pytest.mark.parametrize("first", ["touch", "begin", "both"])
def test_a_lease_keeps_that_it_has_begun_and_until_when_it_is_held(queue, first):
    """Its worker asks to begin while the pump extends it: in any order both are kept, and both are in the store."""
    put(queue, "work")
    harness = claimed_once(queue, lease=60)
    message = harness.begin()
    former = message.lease
    message.touched -= 30  # it is due to be extended

    def extend():
        harness.pump.leases._look_at = 0.0
        harness.settle()

    def begin():
        together(lambda: answers.append(harness.pump.mail.begin(message, 10)), lambda: turn_until(harness, answers))

    answers = []
    if first == "both":
        harness.pump.leases._look_at = 0.0
        begin()
    else:
        for step in (extend, begin) if first == "touch" else (begin, extend):
            step()
    assert (answers, message.lease.begun, message.lease.until > former.until) == ([True], True, True)
    assert message.lease == replace(former, begun=True, until=message.lease.until)
    assert [one.entry.id for one in queue.begin([message.lease])] == [former.entry.id]
    harness.end(message)
    harness.settle()
    assert (queue.stats().done, harness.in_flight) == (1, [])


def turn_until(harness, answers):
    while not answers:
        harness.settle()


def test_what_has_ended_is_extended_until_the_store_takes_it(queue, monkeypatch):
    put(queue, "work")
    harness = claimed_once(queue, lease=60)
    message = harness.begin()
    until = message.lease.until
    harness.end(message)
    with monkeypatch.context() as broken:
        broken.setattr(queue, "complete", lambda *args: 1 / 0)
        harness.settle()
        message.touched -= 30
        harness.pump.leases._look_at = 0.0
        harness.settle()
    assert (harness.pump.mail.holds(message), message.in_doubt, message.lease.until > until) == (True, True, True)


def test_an_end_that_comes_after_it_was_given_up_only_frees_the_worker(queue):
    put(queue, "work")
    harness = claimed_once(queue)
    message = harness.begin()
    harness.crew.give_up(message, Verdict(Outcome.INTERRUPTED, "the consumer stopped while it ran"))
    harness.settle()
    assert (harness.in_flight, queue.stats().leased) == ([], 0)
    harness.end(message)
    harness.settle()
    assert (queue.stats().done, len(harness.pump.settling), harness.pool.idle) == (0, 0, 4)


def test_what_has_ended_is_not_given_up(queue):
    put(queue, "work")
    harness = claimed_once(queue)
    message = harness.begin()
    harness.end(message)
    harness.crew.give_up(message, Verdict(Outcome.INTERRUPTED, "the consumer stopped while it ran"))
    harness.settle()
    assert (harness.in_flight, queue.stats().done) == ([], 1)


def test_a_loop_that_answers_while_it_is_asked_is_not_blocked(monkeypatch):
    coroutines = Coroutines(1, 1, lambda message, verdict: None)
    coroutines._asked = clock() - BLOCKED - 1
    monkeypatch.setattr(coroutines, "_log_blocked", lambda since: setattr(coroutines, "_asked", None))
    coroutines.look()
    assert (coroutines._asked, coroutines.is_stuck) == (None, False)
    coroutines.loop.call_soon(coroutines.stop)
    coroutines.run()


def test_a_loop_that_has_ended_is_not_blocked():
    coroutines = Coroutines(1, 1, lambda message, verdict: None)
    coroutines.loop.call_soon(coroutines.stop)
    coroutines.run()
    coroutines.look()
    assert not coroutines.is_blocked


OWNERS = {
    "lease lost cancelled in_doubt final touched span first is_coroutine": {"pump", "leases", "settling", "claiming"},
    "worker began control policy end": {"pool", "control", "crew"},
}
"""Fields of a message, and the modules of the threads that own them."""


@pytest.mark.parametrize("fields", OWNERS)
def test_each_field_of_a_message_is_assigned_by_one_thread(fields):
    """By its pump, or by its worker: so no lock is needed."""
    names = fields.split()
    assert {field.name for field in dataclasses.fields(Message)} >= {*names}
    found = {
        path.stem
        for path in Path(in_flight.__file__).parent.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and node.attr in names
        if not (isinstance(node.value, ast.Name) and node.value.id == "self")
    }
    assert found <= OWNERS[fields]
