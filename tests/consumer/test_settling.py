"""A pump settles what workers end: once, and again and again while its store does not answer."""

import pytest

from djqueue import queues
from djqueue.decorators import queue_command
from djqueue.policies.outcomes import Outcome, Verdict
from djqueue.testing import eventually
from djqueue.utils import clock
from tests.support.consumer import recorded_signals, unreachable
from tests.support.pump import PumpHarness, claimed_once, set_clock


@queue_command
def work(number=0):
    return number


@queue_command
def explode(number=0):
    raise RuntimeError("boom")


@pytest.mark.backends("memory")
@pytest.mark.parametrize(("waited", "name"), [(0, "completed"), (61, "lease_lost")])
def test_what_is_gone_was_settled_by_us_only_while_nobody_else_can_have_had_it(queue, monkeypatch, waited, name):
    """A server that stands still answers when the lease is over."""
    work()
    now, complete = [clock()], queue.complete
    set_clock(monkeypatch, lambda: now[0])
    harness = claimed_once(queue, lease=60.0)

    def late(*args):
        now[0] += waited
        return complete(*args)

    monkeypatch.setattr(queue, "complete", lambda *args: complete(*args) and unreachable())
    harness.end(harness.begin())
    harness.settle()
    now[0] += 1
    monkeypatch.setattr(queue, "complete", late)
    with recorded_signals("completed", "lease_lost") as recorded:
        harness.settle()
    assert [one for one, _ in recorded] == [name]


@pytest.mark.backends("memory")
def test_what_could_not_be_settled_is_tried_again(queue, monkeypatch):
    work()
    harness, tries = claimed_once(queue), []
    with monkeypatch.context() as patch:
        patch.setattr(queue, "complete", lambda *args: tries.append(1) or unreachable())
        harness.end(harness.begin())
        harness.settle()
        harness.settle()  # not at once, however often a turn begins
    assert (len(tries), len(harness.pump.settling), len(harness.in_flight)) == (1, 1, 1)
    eventually(lambda: harness.settle() or not len(harness.pump.settling))
    assert (len(harness.in_flight), queue.stats().done) == (0, 1)


@pytest.mark.backends("memory")
def test_a_store_that_is_away_does_not_delay_another(backend, settings, monkeypatch):
    settings.QUEUES = backend.queues("default", "other")
    for alias in ("default", "other"):
        work.using(queue_name=alias).enqueue()
    harness = PumpHarness(queues["default"], queues["other"])
    monkeypatch.setattr(queues["default"], "complete", unreachable)
    for _ in range(2):
        harness.turn()
    for _ in range(2):
        harness.end(harness.begin())
    harness.settle()
    assert queues["other"].stats().done == 1
    assert len(harness.pump.settling) == 1


@pytest.mark.backends("memory")
def test_what_cannot_be_settled_delays_no_other_verb(queue, monkeypatch):
    work(1)
    explode(2)
    harness, attempts = claimed_once(queue), []
    monkeypatch.setattr(queue, "complete", lambda leases, *facts: attempts.append(len(leases)) or unreachable())
    harness.end(harness.begin())
    harness.end(harness.begin(), Verdict(Outcome.FAILED, "boom"))
    for _ in range(50):
        harness.settle()
    assert len(queue.failed) == 1
    assert attempts == [1]  # the next try comes when its pause is over


@pytest.mark.backends("memory")
@pytest.mark.parametrize("first", [Outcome.INTERRUPTED, Outcome.DONE])
def test_the_first_verdict_counts(queue, first):
    """A message may be given up just when it ends."""
    work()
    harness = claimed_once(queue)
    message = harness.begin()
    harness.pump.mail.stop()
    if first is Outcome.DONE:
        harness.end(message)
        harness.crew.give_up(message, Verdict(Outcome.INTERRUPTED))
    else:
        harness.crew.give_up(message, Verdict(Outcome.INTERRUPTED))
        harness.turn()
        harness.end(message)
    harness.turn()
    assert (queue.stats().ready, queue.stats().done) == ((0, 1) if first is Outcome.DONE else (1, 0))
    assert (len(harness.pump.settling), harness.in_flight) == (0, [])
