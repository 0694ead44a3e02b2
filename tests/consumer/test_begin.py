"""What was claimed and does not begin with that: when the store is told that it begins."""

from dataclasses import replace

import pytest

from djqueue.consumer.control import NOTED, ConsumerControl, ControlChannel
from djqueue.consumer.in_flight import InFlight
from djqueue.decorators import queue_command
from djqueue.exceptions import QueueError
from djqueue.policies.outcomes import Outcome
from djqueue.running.executor import execute
from djqueue.utils import clock
from tests.support.clock import Clock
from tests.support.consumer import message_for, recorded_signals, unreachable
from tests.support.notes import cleared_per_test

pytestmark = pytest.mark.backends("memory", "sqlite", "redis")


@queue_command
def work():
    pass


@queue_command(max_lost=1)
def at_most_once():
    pass


@pytest.fixture
def control_channel(queue):
    control_channel = ControlChannel([queue], InFlight())
    control_channel.start()
    yield control_channel
    control_channel.stop()
    control_channel.join()


@pytest.fixture
def begin_sizes(queue, monkeypatch):
    """How many leases each call of begin() took."""
    counted, begin = [], queue.begin
    monkeypatch.setattr(queue, "begin", lambda leases: counted.append(len(leases)) or begin(leases))
    return counted


def claimed(queue, control_channel, begin=False, command=work, **counts):
    queue.put([replace(message_for(queue, command.name), **counts)])
    [held] = InFlight().take(queue, queue.claim(1, 60, "me", begin=begin), 0.0)
    return held, ConsumerControl(held, control_channel, lambda: None)


def run(queue, control_channel, **how):
    held, control = claimed(queue, control_channel, **how)
    return held, execute(queue, held.lease, control=control)


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


def test_it_is_begun_before_its_arguments_are_decoded_as_that_may_end_the_process(queue, control_channel, begin_sizes):
    sizes[:] = [begin_sizes]
    take(Read())
    [held] = InFlight().take(queue, queue.claim(1, 60, "me", begin=False), 0.0)
    assert execute(queue, held.lease, control=ConsumerControl(held, control_channel, int)).outcome is Outcome.DONE
    assert seen == [[1]]


def test_a_command_that_was_not_seen_done_here_is_begun_first(queue, control_channel, begin_sizes):
    held, verdict = run(queue, control_channel)
    assert (verdict.outcome, held.lease.begun, begin_sizes) == (Outcome.DONE, True, [1])


def test_one_that_was_costs_no_round_trip_unless_it_was_started_before(queue, control_channel, begin_sizes):
    control_channel.saw_through(run(queue, control_channel)[0])
    held, verdict = run(queue, control_channel)
    assert (verdict.outcome, held.lease.begun, begin_sizes) == (Outcome.DONE, False, [1])
    run(queue, control_channel, attempts=1, failures=1)
    assert begin_sizes == [1, 1]


def test_one_of_which_one_start_may_be_lost_is_always_begun_first(queue, control_channel, begin_sizes):
    for _ in range(2):
        control_channel.saw_through(run(queue, control_channel, command=at_most_once)[0])
    assert begin_sizes == [1, 1]


def test_what_began_with_its_claim_costs_none_either(queue, control_channel, begin_sizes):
    held, verdict = run(queue, control_channel, begin=True)
    assert (verdict.outcome, held.lease.begun, begin_sizes) == (Outcome.DONE, True, [])


def test_what_runs_for_half_a_second_is_begun_then(queue, begin_sizes, monkeypatch):
    now = Clock(clock())
    monkeypatch.setattr("djqueue.consumer.control.clock", now)
    in_flight = InFlight()
    control_channel = ControlChannel([queue], in_flight)
    for age in (2 * NOTED, NOTED / 2):
        queue.put([message_for(queue, work.name)])
        [held] = in_flight.take(queue, queue.claim(1, 60, "me", begin=False), 0.0)
        held.began, held.policy = now() - age, work.policy
    control_channel.tick()
    told = sorted((held.lease.begun, now() - held.began > NOTED) for held in in_flight)
    assert told == [(False, False), (True, True)]
    assert (control_channel.tick() <= NOTED, begin_sizes) == (True, [1])


def test_what_is_not_ours_any_more_is_not_started(queue, control_channel, begin_sizes):
    held, control = claimed(queue, control_channel)
    queue.complete([held.lease])
    with recorded_signals("started") as told:
        verdict = execute(queue, held.lease, control=control)
    assert (verdict.outcome, told, begin_sizes) == (Outcome.POSTPONED, [], [1])


def test_a_store_that_does_not_answer_starts_nothing(queue, control_channel, monkeypatch):
    held, control = claimed(queue, control_channel)
    monkeypatch.setattr(queue, "begin", unreachable)
    with pytest.raises(QueueError):
        control_channel.begin(held)
    with recorded_signals("started") as told:
        verdict = execute(queue, held.lease, control=control)
    assert (verdict.outcome, told) == (Outcome.POSTPONED, [])
