"""What was claimed and does not begin with that: when it is noted in the store that it begins."""

from dataclasses import replace
from functools import partial

import pytest

from djqueue.backends.base import Claimed
from djqueue.consumer.control import ConsumerControl
from djqueue.consumer.housekeeper import Housekeeper
from djqueue.consumer.leases import NOTED
from djqueue.decorators import queue_command
from djqueue.exceptions import QueueError
from djqueue.policies.outcomes import Outcome
from djqueue.running.executor import execute
from djqueue.testing import eventually, together
from djqueue.utils import clock
from tests.support.consumer import message_for, recorded_signals, unreachable
from tests.support.notes import cleared_per_test
from tests.support.pump import PumpHarness, claimed_once

pytestmark = pytest.mark.backends("memory", "sqlite", "redis")


@queue_command
def work():
    pass


@queue_command(max_lost=1)
def at_most_once():
    pass


@pytest.fixture
def harness(queue):
    """Its pump runs, as workers wait for it."""
    harness = PumpHarness(queue)
    harness.pump.start()
    yield harness
    harness.pump.end()
    harness.pump.join()


@pytest.fixture
def begin_sizes(queue, monkeypatch):
    """How many leases each call of begin() took."""
    counted, begin = [], queue.begin
    monkeypatch.setattr(queue, "begin", lambda leases: counted.append(len(leases)) or begin(leases))
    return counted


def claimed(queue, harness, command=work, **counts):
    queue.put([replace(message_for(queue, command.name), **counts)])
    return taken(queue, harness)


def taken(queue, harness):
    """The next message, and its control, as its worker has them."""
    eventually(lambda: harness.pool.waiting)
    message = harness.begin()
    housekeepers = {id(queue): Housekeeper([queue], harness.crew)}
    return message, ConsumerControl(harness.crew, housekeepers, message)


def run(queue, harness, **how):
    message, control = claimed(queue, harness, **how)
    verdict = execute(queue, message.lease, control=control)
    harness.end(message, verdict)
    return message, verdict


class Read:
    """An argument that is noted when it is decoded."""

    def __reduce__(self):
        return note_what_is_begun, ()


sizes = []
seen = cleared_per_test([])


def note_what_is_begun():
    seen.append([*sizes[0]])


@queue_command
def take(value):
    """Take it."""


def test_it_is_begun_before_its_arguments_are_decoded_as_that_may_end_the_process(queue, harness, begin_sizes):
    sizes[:] = [begin_sizes]
    take(Read())
    message, control = taken(queue, harness)
    assert execute(queue, message.lease, control=control).outcome is Outcome.DONE
    assert seen == [[1]]


def test_a_command_that_was_not_seen_done_here_is_begun_first(queue, harness, begin_sizes):
    message, verdict = run(queue, harness)
    assert (verdict.outcome, message.lease.begun, begin_sizes) == (Outcome.DONE, True, [1])


def test_one_that_was_costs_no_round_trip_unless_it_was_started_before(queue, harness, begin_sizes):
    run(queue, harness)
    message, verdict = run(queue, harness)
    assert (verdict.outcome, message.lease.begun, begin_sizes) == (Outcome.DONE, False, [1])
    run(queue, harness, attempts=1, failures=1)
    assert begin_sizes == [1, 1]


def test_one_of_which_one_start_may_be_lost_is_always_begun_first(queue, harness, begin_sizes):
    for _ in range(2):
        run(queue, harness, command=at_most_once)
    assert begin_sizes == [1, 1]


@pytest.fixture
def begun_by_claims(queue, monkeypatch):
    """What is claimed begins with that."""
    exchange = queue.exchange

    def begin_too(*args):
        held, claimed = exchange(*args)
        return held, Claimed([replace(lease, begun=True) for lease in claimed], claimed.retry_after)

    monkeypatch.setattr(queue, "exchange", begin_too)


def test_what_began_with_its_claim_costs_none_either(queue, begun_by_claims, harness, begin_sizes):
    message, verdict = run(queue, harness)
    assert (verdict.outcome, message.lease.begun, begin_sizes) == (Outcome.DONE, True, [])


def test_what_runs_for_half_a_second_is_begun_then(queue, begin_sizes):
    harness = PumpHarness(queue)
    queue.put([message_for(queue, work.name) for _ in range(2)])
    harness.turn()
    for age in (2 * NOTED, NOTED / 2):
        message, control = taken(queue, harness)
        message.began, message.policy = clock() - age, work.policy
    harness.pump.leases._look_at = 0.0
    assert harness.turn() <= NOTED
    told = sorted((message.lease.begun, clock() - message.began > NOTED) for message in harness.in_flight)
    assert (told, begin_sizes) == ([(False, False), (True, True)], [1])


def test_what_is_to_begin_at_the_same_time_costs_one_round_trip(queue, begin_sizes):
    harness = PumpHarness(queue)
    queue.put([message_for(queue, work.name) for _ in range(3)])
    harness.turn()
    messages, answers = [harness.begin() for _ in range(3)], []

    def turn_once_all_have_asked():
        eventually(lambda: len(harness.pump.mail.beginning) == 3)
        harness.turn()

    workers = [partial(lambda one: answers.append(harness.pump.mail.begin(one, 10)), message) for message in messages]
    together(*workers, turn_once_all_have_asked)
    assert (answers, begin_sizes) == ([True] * 3, [3])


def test_what_is_not_ours_any_more_is_not_started(queue, harness, begin_sizes):
    message, control = claimed(queue, harness)
    queue.complete([message.lease])
    with recorded_signals("started") as told:
        verdict = execute(queue, message.lease, control=control)
    assert (verdict.outcome, told, begin_sizes) == (Outcome.POSTPONED, [], [1])


def test_a_store_that_does_not_answer_starts_nothing(queue, harness, monkeypatch):
    message, control = claimed(queue, harness)
    monkeypatch.setattr(queue, "begin", unreachable)
    with pytest.raises(QueueError):
        control.begin(work.policy)
    with recorded_signals("started") as told:
        verdict = execute(queue, message.lease, control=control)
    assert (verdict.outcome, told) == (Outcome.POSTPONED, [])


def test_a_pump_that_does_not_answer_in_time_starts_nothing(queue):
    harness = claimed_once(queue)
    queue.put([message_for(queue, work.name)])
    harness.turn()
    message = harness.begin()
    assert not harness.pump.mail.begin(message, 0.01)
    harness.turn()
    assert not message.lease.begun
