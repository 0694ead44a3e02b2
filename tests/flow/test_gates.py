"""Lanes and their gates, as pure functions."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from djqueue.flow.gates import (
    LANE_CLOSED,
    LANE_QUEUED,
    LANE_READY,
    LANE_SCHEDULED,
    Gate,
    Head,
    Lane,
    is_idle,
    leaving,
    left,
    opens_at,
    place_of,
)
from djqueue.flow.rates import under
from djqueue.flow.windows import Window
from tests.flow.test_rates import START, told
from tests.flow.test_rates import steps as stories
from tests.flow.test_rates import windows as any_window


@st.composite
def plain_gates(draw):
    ordered = draw(st.booleans())
    return Gate(
        ordered=ordered,
        max_run=draw(st.integers(1, 5)),
        concurrency=0 if ordered else draw(st.integers(0, 4)),
        windows=tuple(draw(st.lists(any_window(), max_size=2, unique=True))),
        min_batch=draw(st.integers(1, 3)),
        batch_timeout=draw(st.sampled_from([0.0, 0.5, 60.0])),
    )


@st.composite
def any_gate(draw):
    gate = draw(plain_gates())
    outer = draw(st.none() | plain_gates())
    return gate if outer is None else replace(gate, parent=draw(st.sampled_from(["a", "ž", '"'])), parent_gate=outer)


@st.composite
def lanes(draw):
    """A lane with a past, and the moment after it."""
    gate, now = draw(any_gate()), START
    rates = []
    for window in gate.windows:
        story = told(window, draw(stories))
        rates.append(story.rate)
        now = max(now, story.now)
    held = draw(st.sampled_from([0, START - 1, START + 10, START + 10**13]))
    paused = draw(st.sampled_from(["", "", "", "closed"]))
    return Lane("lane", gate, draw(st.integers(0, 5)), draw(st.integers(0, 9)), held, paused, tuple(rates)), now


heads = st.builds(Head, st.integers(-2, 2), st.integers(START - 10**6, START), st.integers(1, 4))


@given(any_gate())
def test_a_gate_is_read_as_it_was_written(gate):
    assert Gate.read(gate.written()) == gate


@given(any_gate(), any_gate())
def test_equal_gates_are_equal_texts_and_others_are_not(one, other):
    assert (one == other) == (one.written() == other.written())


def test_what_is_by_default_is_not_written():
    assert Gate().written() == "{}"
    assert Gate.read("{}") == Gate()
    assert len(Gate(ordered=True, max_run=32).written()) < 20


@given(lanes(), heads)
def test_a_lane_is_open_if_and_only_if_something_may_leave_it(pair, head):
    lane, now = pair
    gathered = head.waiting >= lane.gate.min_batch or head.at + round(lane.gate.batch_timeout * 1e6) <= now
    may = leaving(lane, now) > 0 and gathered
    assert (place_of(lane, head, now).where in (LANE_READY, LANE_QUEUED)) == may
    assert place_of(lane, head, now).where != (LANE_READY if lane.gate.parent else LANE_QUEUED)


@given(lanes(), heads)
def test_a_timed_lane_is_open_at_its_moment_and_not_before(pair, head):
    lane, now = pair
    place = place_of(lane, head, now)
    if place.where != LANE_SCHEDULED:
        return
    at = place.at
    while (place := place_of(lane, head, at)).where == LANE_SCHEDULED:
        assert place.at > at  # of several windows the longest counts, and it may not be the one that is seen first
        at = place.at
    assert place.where in (LANE_READY, LANE_QUEUED)
    assert place_of(lane, head, at - 1).where == LANE_SCHEDULED
    assert opens_at(lane, head, at) <= at


@given(lanes(), heads)
def test_what_stands_nowhere_waits_for_no_moment(pair, head):
    lane, now = pair
    if place_of(lane, head, now).where == LANE_CLOSED:
        assert place_of(lane, head, now + 10**15).where == LANE_CLOSED
        assert lane.paused_reason or lane.in_flight


@given(lanes(), heads)
def test_so_many_may_leave_as_its_run_its_number_and_its_windows_allow(pair, head):
    lane, now = pair
    number = leaving(lane, now)
    assert 0 <= number <= lane.gate.max_run
    if not number:
        return
    after = left(lane, number, 7, now)
    assert (after.in_flight, after.turn) == (lane.in_flight + number, 7)
    assert not lane.gate.concurrency or after.in_flight <= lane.gate.concurrency
    assert not lane.gate.ordered or (lane.in_flight == 0 and leaving(after, now) == 0)


@given(lanes())
def test_a_lane_is_forgotten_only_if_a_new_one_would_do_the_same(pair):
    lane, now = pair
    lane = replace(lane, in_flight=0, paused_reason="")
    now = now if is_idle(lane, None, now) else place_of(lane, None, now).at
    head = Head(0, now)
    cold = replace(lane, rates=tuple(rate._replace(warm=0) for rate in lane.rates))
    assert leaving(cold, now) == leaving(Lane("lane", lane.gate), now)
    assert place_of(cold, head, now) == place_of(Lane("lane", lane.gate), head, now)


@given(lanes())
def test_an_empty_lane_that_remembers_something_is_looked_at_when_it_does_no_longer(pair):
    lane, now = pair
    place = place_of(lane, None, now)
    if place.where != LANE_SCHEDULED:
        return
    assert not is_idle(lane, None, place.at - 1)
    assert is_idle(lane, None, place.at)


@given(lanes(), any_gate())
def test_another_gate_keeps_what_the_lane_knows(pair, gate):
    lane, _ = pair
    after = lane.with_gate(gate)
    assert (after.gate, after.in_flight) == (gate, lane.in_flight)
    assert (after.not_before, after.paused_reason) == (lane.not_before, lane.paused_reason)
    known = {rate.window: rate for rate in lane.rates}
    assert tuple(rate.window for rate in after.rates) == (gate.windows if known else ())
    for rate in after.rates:
        assert rate == known.get(rate.window) or rate in [under(one, rate.window) for one in lane.rates]


def test_a_place_tells_the_rank_of_the_first():
    lane = Lane("lane", Gate(concurrency=2))
    assert place_of(lane, Head(-5, START), START) == (LANE_READY, -5, 0)
    assert place_of(lane.with_gate(Gate(parent="all", parent_gate=Gate())), Head(3, START), START) == (
        LANE_QUEUED,
        3,
        0,
    )


def test_of_several_windows_that_let_none_leave_the_last_to_open_counts():
    gate = Gate(windows=(Window(1, 10.0), Window(1, 1.0), Window(5, 100.0)))
    lane = left(Lane("lane", gate), 1, 1, START)
    assert place_of(lane, Head(0, START), START) == (LANE_SCHEDULED, 0, START + 10_000_000)
