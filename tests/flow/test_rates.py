"""Sliding windows and what was spent of them, as pure functions of a rate and the time."""

from __future__ import annotations

from bisect import bisect_left
from math import inf

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from djqueue.backends.stores import RateLimit, refund
from djqueue.backends.stores import spend as spend_limit
from djqueue.flow.rates import FINEST, LIMITED, SPACED, Rate, capacity, expires_at, returned, spend
from djqueue.flow.windows import Window

START = 1_700_000_000_000_000
spans = st.sampled_from([0.001, 0.1, 0.3333333, 1.0, 86400.0]) | st.floats(0.001, 1000)


@st.composite
def windows(draw):
    limit, moderate = draw(st.integers(1, 12)), draw(st.booleans())
    elastic = moderate and draw(st.booleans())
    return Window(limit, draw(spans), moderate, elastic, draw(st.integers(0, limit - 1)) if elastic else 0)


def granted(rate: Rate, number: int, now: int) -> Rate:
    """The rate after so many have left, if that many may."""
    count, (after,) = spend([rate], number, now)
    assert count == number
    return after


class Story:
    """A rate, and what has left by it."""

    def __init__(self, window: Window):
        self.window, self.now, self.rate = window, START, Rate(window)
        self.moments: list[int] = []

    def ask(self, number: int) -> int:
        taken, (self.rate,) = spend([self.rate], number, self.now)
        self.moments += [self.now] * taken
        return taken

    def give_back(self, number: int, at: int) -> None:
        number = min(number, self.moments.count(at))
        self.rate = returned(self.rate, number, at)
        for _ in range(number):
            self.moments.remove(at)

    def worst(self) -> int:
        """The most that left in any interval of the window's length."""
        moments, span = sorted(self.moments), self.window.span
        return max((bisect_left(moments, at + span) - place for place, at in enumerate(moments)), default=0)


steps = st.lists(st.tuples(st.floats(0, 1.2), st.integers(1, 5), st.integers(0, 3)), max_size=15)


def told(window: Window, steps, giving: bool = True) -> Story:
    """Wait for so many windows, ask for so many, hand some of the last grants back; a few times."""
    story = Story(window)
    for share, number, back in steps:
        story.now += round(share * window.span)
        story.ask(number)
        if giving and back and story.moments:
            story.give_back(back, story.moments[-back:][0])
    return story


@given(windows(), steps)
def test_tq3_never_more_than_the_limit_in_any_interval(window, steps):
    assert told(window, steps).worst() <= window.limit


@given(windows(), steps)
def test_tq17_at_the_end_of_a_wait_one_may_leave_and_a_microsecond_before_none(window, steps):
    story = told(window, steps)
    story.ask(window.limit)
    has = capacity(story.rate, story.now)
    assert has.free == 0
    assert has.wait > 0
    assert has.reason in (LIMITED, SPACED)
    assert capacity(story.rate, story.now + has.wait).free > 0
    assert capacity(story.rate, story.now + has.wait - 1).free == 0


@given(windows(), steps)
def test_where_something_may_leave_there_is_nothing_to_wait_for(window, steps):
    story = told(window, steps)
    has = capacity(story.rate, story.now)
    if has.free == 0:
        return
    assert (has.wait, has.reason) == (0, "")
    assert has.free <= window.limit


@given(windows(), steps)
def test_tq15_what_is_not_moderated_loses_no_slot(window, steps):
    assume(not window.moderate)
    story = told(window, steps)
    young = sum(at > story.now - window.span for at in story.moments)
    assert capacity(story.rate, story.now).free == window.limit - young


@given(st.builds(Window, st.integers(2, 12), spans, st.just(True)), steps)
def test_tq5_what_is_moderated_and_not_elastic_is_evenly_spaced(window, steps):
    assert window.spacing
    moments = told(window, steps, giving=False).moments
    assert min((b - a for a, b in zip(moments, moments[1:], strict=False)), default=inf) >= window.spacing


@given(windows(), steps)
def test_what_is_handed_back_leaves_no_trace(window, steps):
    story = told(window, steps)
    story.now += max(1, capacity(story.rate, story.now).wait)
    before = capacity(story.rate, story.now)
    back = returned(granted(story.rate, 1, story.now), 1, story.now)
    assert capacity(back, story.now) == before
    assert back.warm == story.rate.warm


@given(st.integers(2, 8), st.data())
def test_tq7_what_is_warm_and_elastic_catches_up_but_for_its_buffer(limit, data):
    buffer = data.draw(st.integers(0, limit - 1))
    window = Window(limit, 2.0, True, True, buffer)
    story = Story(window)
    for _ in range(limit):
        assert story.ask(limit) == 1
        assert capacity(story.rate, story.now).reason in (SPACED, LIMITED)
        story.now += window.spacing
    story.now += window.span
    assert story.ask(limit + 5) == limit - buffer
    refusal = capacity(story.rate, story.now)
    assert (refusal.free, refusal.reason) == (0, LIMITED if buffer == 0 else SPACED)
    assert story.worst() <= limit


@given(st.integers(2, 8))
def test_tq8_what_is_not_warm_keeps_its_spacing_however_far_behind(limit):
    story = Story(Window(limit, 2.0, True, True))
    for _ in range(limit - 1):
        story.now += 10 * story.window.span
        assert story.ask(limit) == 1
    assert capacity(story.rate, story.now).reason == SPACED


def test_tq8_what_was_handed_back_does_not_warm():
    window = Window(2, 2.0, True, True)
    rate = Rate(window)
    for turn in range(10):
        rate = returned(granted(rate, 1, START + turn), 1, START + turn)
    assert capacity(granted(rate, 1, START + 20), START + 20).reason == SPACED


def test_tq6_a_limit_of_one_is_never_spaced():
    assert Window(1, 10, moderate=True).spacing == 0


def test_tq4_the_samples_of_the_seed():
    window = Window(4, 2.0, moderate=True)
    story = Story(window)
    while len(story.moments) < 4:
        story.ask(1)
        story.now += capacity(story.rate, story.now).wait
    assert [at - START for at in story.moments] == [0, 500_000, 1_000_000, 1_500_000]


@given(st.integers(1, 5), st.lists(st.tuples(st.floats(0, 0.2), st.integers(1, 600)), max_size=12))
@example(1, [(0.0, 600), (0.0005, 600), (0.9, 600), (0.0999, 600)])
def test_windows_of_many_slots_keep_a_short_log_and_their_limit(thousands, steps):
    window = Window(FINEST * thousands + 1, 10.0)
    story = told(window, [(share, number, 0) for share, number in steps])
    assert story.worst() <= window.limit
    assert len(story.rate.grants) <= FINEST + 1
    lost = window.limit - sum(at > story.now - window.span for at in story.moments)
    assert capacity(story.rate, story.now).free <= lost


@given(windows(), steps)
def test_two_windows_after_the_last_grant_a_rate_says_nothing(window, steps):
    story = told(window, steps)
    later = expires_at(story.rate) or story.now
    cold = story.rate._replace(warm=0)
    assert capacity(cold, later) == capacity(Rate(window), later)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((-1, 1), "limit"),
        ((1.5, 1), "limit"),
        ((True, 1), "limit"),
        ((1, 0), "window"),
        ((1, -1), "window"),
        ((1, "x"), "window"),
        ((5, 1, False, True), "moderate"),
        ((5, 1, True, False, 1), "elastic"),
        ((5, 1, True, True, 5), "elastic_buffer"),
        ((5, 1, True, True, -1), "elastic_buffer"),
    ],
)
def test_tq22_what_makes_no_sense_is_refused_by_name(arguments, said):
    with pytest.raises((TypeError, ValueError), match=said):
        Window(*arguments)


# ---- rate limits


@given(windows(), steps, st.integers(0, START), st.booleans())
def test_a_rate_is_read_as_it_was_written(window, steps, asked, is_fixed):
    rate = told(window, steps).rate._replace(asked=asked, is_fixed=is_fixed)
    assert Rate.read(rate.written()) == rate


NEW = Rate(Window(5, 60)).written()
OLD = "[5, 60000000, 0, 0, 1700000000000000, 0, 0, 0, 1700000000000000, 1]"


@pytest.mark.parametrize(
    "text", ["", "x", OLD, NEW[:-1], f"{NEW}1 1 ", NEW.replace("5", "-5"), NEW.replace("60000000", "0"), f"7 {NEW}"]
)
def test_what_is_no_rate_is_not_read_as_one(text):
    with pytest.raises(ValueError):  # noqa: PT011
        Rate.read(text)


@given(st.lists(windows(), min_size=2, max_size=3), steps)
def test_of_several_rates_every_one_is_kept_and_each_is_spent(given, steps):
    rates, moments, now = [Rate(window) for window in given], [], START
    for share, number, _ in steps:
        now += round(share * given[0].span)
        free = [capacity(rate, now).free for rate in rates]
        count, rates = spend(rates, number, now)
        assert count == min(number, *free)
        moments += [now] * count
    for window in given:
        story = Story(window)
        story.moments = moments
        assert story.worst() <= window.limit


@given(windows(), steps)
def test_tq3_what_is_spent_never_exceeds_the_limit(window, steps):
    rate_limit, rate, story = RateLimit("name", window), None, Story(window)
    for share, number, back in steps:
        story.now += round(share * window.span)
        grant, rate = spend_limit(rate, rate_limit, number, story.now)
        story.moments += [grant.at] * grant.count
        if back and grant.count:
            number = min(back, grant.count)
            rate = refund(rate, grant, number)
            del story.moments[-number:]
        rate = Rate.read(rate.written())
    assert story.worst() <= window.limit


def test_the_stricter_window_holds_for_a_minute_or_two_windows_after_it_was_last_said():
    for seconds, free in ((1.0, 2.0), (3600.0, 60.0)):
        strict, lax = RateLimit("name", Window(4, seconds)), RateLimit("name", Window(9, seconds))
        _, rate = spend_limit(None, strict, 1, START)
        later = START + round(free * 1e6)
        assert spend_limit(rate, lax, 9, later - 1)[1].window == strict.window
        assert spend_limit(rate, lax, 9, later)[1].window == lax.window
        assert spend_limit(spend_limit(None, lax, 1, START)[1], strict, 9, START + 1)[0].count == 3


def test_a_spacing_that_others_used_counts():
    rate_limit = RateLimit("name", Window(4, 2.0, moderate=True), "spacing")
    grant, rate = spend_limit(None, rate_limit, 1, START, last=START - 100_000)
    assert (grant.count, grant.reason, grant.retry_after) == (0, SPACED, pytest.approx(0.4))
    assert spend_limit(rate, rate_limit, 1, START + 400_000, last=START - 100_000)[0].count == 1
