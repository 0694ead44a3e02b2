"""The rules of guards, as pure functions."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from djqueue.backends.base import DebounceGuard, Entry, Guard, OnceGuard, UniqueGuard
from djqueue.backends.entries import DELAYED, LEASED, READY
from djqueue.backends.guards import UNIQUE_FOR, WAITED_FOR, Decision, DedupMark, decide

START = 1_700_000_000.0
ROUNDED = 1e-5
"""Seconds by which sums of moments may be rounded."""


@dataclass
class Line:
    """One key in a queue and its store, on paper."""

    now: float = START
    mark: DedupMark | None = None
    ends: float = inf
    waiting: dict[str, bool] = field(default_factory=dict)
    """Whether each was delayed."""
    due: dict[str, float] = field(default_factory=dict)
    """When the entries that were accepted, and not removed early, fell due."""
    claimed: list[float] = field(default_factory=list)
    calls: list[float] = field(default_factory=list)

    def state(self, id: str) -> str | None:
        return None if id not in self.waiting else DELAYED if self.due[id] > self.now else READY

    def call(self, guard: DebounceGuard) -> None:
        id = str(len(self.calls))
        self.calls.append(self.now)
        mark = self.mark if self.ends > self.now else None
        decision = decide(guard, Entry(b"", id), mark, mark and self.state(mark.id), self.now)
        if decision.mark is not None:
            self.mark, self.ends = decision.mark, self.now + decision.ttl
        if decision.postpone:
            self.due[mark.id] = decision.postpone / 1e6
        if decision.accept:
            self.waiting[id] = decision.delay > 0
            self.due[id] = decision.mark.at / 1e6 if decision.delay else self.now

    def claim(self) -> None:
        for id in [id for id in self.waiting if self.state(id) == READY]:
            del self.waiting[id]
            self.claimed.append(self.now)

    def remove(self) -> None:
        """Somebody deletes what is not due, and with it the calls that it stood for."""
        for id in [id for id in self.waiting if self.state(id) == DELAYED]:
            del self.waiting[id], self.due[id]
            self.calls.clear()


windows = st.sampled_from([0.001, 1.005, 3.0, 7200.0]) | st.floats(0.001, 10_000)
steps = st.lists(
    st.tuples(st.floats(0, 2), st.sampled_from(["call", "call", "call", "claim", "remove"])), min_size=1, max_size=30
)


def play(guard: DebounceGuard, steps: list[tuple[float, str]], backlog: float = inf) -> Line:
    """Take steps, each some windows after the one before; what is due is claimed once it waits for ``backlog``."""
    line = Line()
    for windows, step in steps:
        line.now += windows * guard.window
        if any(line.due[id] + backlog <= line.now for id in line.waiting):
            line.claim()
        line.call(guard) if step == "call" else getattr(line, step)()
        assert sum(late and line.due[id] > line.now for id, late in line.waiting.items()) <= 1
    return line


@example(0.001, False, [(turn, "call") for turn in (1.0, 1.0, 2.0, 2.0, 2.0, 0.0, 1.0)], 0.0)  # a sum is rounded down
@given(windows, st.booleans(), steps, st.sampled_from([0.0, 0.5, WAITED_FOR - 1]))
def test_df14_due_moments_are_never_closer_than_the_window(window, always_delay, steps, backlog):
    line = play(DebounceGuard("key", window, always_delay), steps, backlog)
    moments = sorted(line.due.values())
    apart = [later - earlier for earlier, later in zip(moments, moments[1:], strict=False)]
    assert min(apart, default=inf) >= window - ROUNDED


@given(windows, st.booleans(), st.booleans(), steps, st.sampled_from([0.0, 0.5, inf]))
def test_df14_after_every_call_something_is_claimed(window, always_delay, extend, steps, backlog):
    line = play(DebounceGuard("key", window, always_delay, extend), steps, backlog)
    line.now = max([line.now, *line.due.values()]) + ROUNDED
    line.claim()
    assert max(line.claimed, default=-inf) >= max(line.calls, default=-inf)


@given(st.floats(0.001, WAITED_FOR / 100), st.booleans(), steps)
def test_at_most_one_scheduled_entry_waits_at_any_time(window, always_delay, steps):
    line = Line()
    for windows, step in steps:
        line.now += windows * window
        line.call(DebounceGuard("key", window, always_delay)) if step == "call" else getattr(line, step)()
        assert sum(line.waiting.values()) <= 1


@given(windows, st.floats(1, 5), steps)
def test_what_is_extended_waits_for_its_longest_wait_at_most(window, share, steps):
    guard = DebounceGuard("key", window, extend=True, max_wait=share * window)
    line = play(guard, [step for step in steps if step[1] != "remove"], 0.0)
    assert all(line.due[id] <= line.mark.first / 1e6 + guard.max_wait + ROUNDED for id in line.waiting)


@pytest.mark.parametrize("state", [READY, DELAYED, LEASED, None])
@pytest.mark.parametrize("running", [True, False])
def test_what_is_unique_lets_pass_what_nothing_stands_against(state, running):
    decision = decide(UniqueGuard("key", running), Entry(b"", "new"), DedupMark("old"), state, START)
    assert decision.accept == (state is None or (state == LEASED and not running))
    assert decision.mark.id == ("new" if decision.accept else "old")
    assert decision.ttl >= UNIQUE_FOR


@given(st.floats(0, 1e6), st.booleans())
def test_the_mark_of_a_unique_entry_outlives_its_delay(seconds, by_moment):
    entry = Entry(b"", "new", run_at=START + seconds) if by_moment else Entry(b"", "new", delay=seconds)
    assert decide(UniqueGuard("key"), entry, None, None, START).ttl >= seconds + UNIQUE_FOR - ROUNDED


def test_a_guard_accepts_once():
    assert decide(OnceGuard("key", 5), Entry(b"", "new"), None, None, START) == Decision(True, DedupMark("new"), 5)
    assert decide(OnceGuard("key", 5), Entry(b"", "new"), DedupMark("old"), None, START) == Decision(False)


@pytest.mark.parametrize("guard", [OnceGuard("key", 5), UniqueGuard("key"), DebounceGuard("key", 5)])
def test_marks_that_another_kind_of_guard_left_are_understood(guard: Guard):
    for mark in (DedupMark("old"), DedupMark("old", int(START * 1e6), int(START * 1e6), True)):
        decision = decide(guard, Entry(b"", "new"), mark, None, START + 1)
        assert decision.accept == (type(guard) is not OnceGuard)


moments = st.integers(1, 2**53)


@pytest.mark.slow
@given(st.text(max_size=64), moments, moments, st.booleans())
def test_a_mark_is_read_as_it_was_written(id, at, first, scheduled):
    mark = DedupMark(id, at, first, scheduled)
    assert DedupMark.read(mark.written()) == mark


@given(st.text(max_size=64).filter(lambda id: " +" not in id))
def test_a_mark_of_nothing_but_an_id_is_read_as_it_was_written(id):
    assert DedupMark.read(DedupMark(id).written()) == DedupMark(id)
    assert DedupMark(id).written() == id.encode("utf-8", "surrogatepass")
