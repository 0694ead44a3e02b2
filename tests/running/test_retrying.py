"""What becomes of a message whose command fails, or says what is to become of it."""

import asyncio
import importlib
import logging
import socket
import sys
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from djqueue import Backoff, Discard, Fail, Retry, conf, current_message, queues
from djqueue.backends.base import Entry, Lease
from djqueue.backends.memory.queue import MemoryQueue
from djqueue.decorators import queue_command
from djqueue.messages.envelope import new_id
from djqueue.messages.failures import LONGEST_REASON, errors_of
from djqueue.policies.outcomes import Outcome, Verdict, settled
from djqueue.policies.policy import Policy
from djqueue.running.executor import execute
from djqueue.running.settle import settle
from tests.support.backends import ACROSS, WITH_SQS
from tests.support.consumer import (
    can_look,
    claim_one,
    entry_of,
    exit_code,
    is_delayed,
    message_for,
    recorded_signals,
    run_one,
    run_when_due,
)
from tests.support.notes import cleared_per_test

EVERY = pytest.mark.backends(*ACROSS)
AND_SQS = pytest.mark.backends(*WITH_SQS)
MEMORY = pytest.mark.backends("memory")
ODD = "nul \x00, half a pair \ud800, \N{PILE OF POO}, a line\nand a 'quote'"
ran = cleared_per_test([])


class Hiccup(Exception):
    pass


class Worse(Hiccup):
    pass


class Unspeakable(Hiccup):
    def __str__(self):
        raise ZeroDivisionError


class Unspeaking(Hiccup):
    """Whoever asks what it says is sent away."""

    def __str__(self):
        raise SystemExit(3)


class Stop(BaseException):
    pass


class Quiet(Discard):
    """Of somebody who does not call the base's __init__."""

    def __init__(self, code):
        self.code = code


ERRORS = {kind.__name__: kind for kind in (Hiccup, Worse, Unspeakable, Unspeaking, ValueError, SystemExit, Stop)}
WAYS = {"retry": Retry, "discard": Discard, "fail": Fail}


def fail(*names):
    """Raise the exception named for this attempt; nothing beyond the last."""
    attempt = current_message().attempt
    ran.append(attempt)
    if attempt <= len(names) and names[attempt - 1]:
        raise ERRORS[names[attempt - 1]](f"no {attempt}")
    return attempt


@queue_command(retry_on=[Hiccup], max_attempts=3, backoff=False)
def flaky(*names):
    return fail(*names)


@queue_command(retry_on=[Hiccup], max_attempts=9)
def patient(*names):
    return fail(*names)


@queue_command
def unlisted(*names):
    return fail(*names)


@queue_command(retry_on=[Hiccup], max_attempts=3, backoff=False)
async def flaky_async(*names):
    await asyncio.sleep(0)
    return fail(*names)


@queue_command(retry_on=[Exception], max_attempts=2, backoff=False)
def say(way, *given):
    ran.append(current_message().attempt)
    raise WAYS[way](*given)


@queue_command(retry_on=[Exception], max_attempts=2, backoff=False)
async def say_async(way, *given):
    await asyncio.sleep(0)
    ran.append(current_message().attempt)
    raise WAYS[way](*given)


@queue_command(retry_on=[Hiccup], max_attempts=2, backoff=False)
def again_and_again(*waits):
    """Ask so often to be run again, then fail for good."""
    attempt = current_message().attempt
    ran.append(attempt)
    if attempt <= len(waits):
        raise Retry(waits[attempt - 1], "not yet")
    raise Hiccup("now it fails")


@queue_command
def say_oddly(kind):
    raise ODDLY[kind]()


ODDLY = {
    "fail": lambda: Fail(KeyError("k")),
    "discard": lambda: Discard(KeyError("k")),
    "quiet": lambda: Quiet(3),
    "long": lambda: Fail("x" * 10**7),
}


@queue_command(retry_on=[Hiccup], max_attempts=2, backoff=False)
def speak(text, times=1):
    raise Hiccup(text * times)


asked = cleared_per_test([])


def seventh(failures, exception):
    asked.append((failures, exception))
    return 7 * failures


def other_wait(failures, exception):
    return 11.0


def run_until_rest(queue):
    """Run whatever waits, when it is due; the outcomes."""
    outcomes = []
    while len(queue):
        outcomes.append(run_when_due(queue).outcome)
        assert len(outcomes) < 50
    return outcomes


def run_twice(queue):
    """Run the next, and what is due next, which may have to be waited for; the outcomes."""
    outcomes = []
    for _ in range(2):
        [lease] = queue.reserve(1, wait=10)
        verdict = execute(queue, lease)
        settle(queue, [(lease, verdict)])
        outcomes.append(verdict.outcome)
    return outcomes


def counts(entry):
    return entry.attempts, entry.failures, entry.lost


@AND_SQS
class TestListed:
    def test_df3_three_attempts_are_three_runs_then_one_error(self, queue):
        handle = flaky("Hiccup", "Worse", "Hiccup")
        with recorded_signals("started", "retried", "failed", "completed") as told:
            outcomes = run_until_rest(queue)
        assert outcomes == [Outcome.RETRY, Outcome.RETRY, Outcome.FAILED]
        assert ran == [1, 2, 3]
        assert [name for name, _ in told] == ["started", "retried"] * 2 + ["started", "failed"]
        stats = queue.stats()
        assert (stats.ready, stats.delayed, stats.leased, stats.failed, stats.done or 0) == (0, 0, 0, 1, 0)
        assert counts(entry_of(queue.failed, handle.id)) == (3, 3, 0)

    def test_a_retry_that_works_is_done(self, queue):
        handle = flaky("Hiccup", "Hiccup")
        outcomes = run_until_rest(queue)
        assert (outcomes[-1], ran) == (Outcome.DONE, [1, 2, 3])
        assert (len(queue), len(queue.failed)) == (0, 0)
        if can_look(queue):
            assert (queue.stats().done, queue.find(handle.id)) == (1, None)

    def test_df4_an_unlisted_error_is_one_run_and_one_error_also_of_a_command_that_lists_none(self, queue):
        handle = flaky("ValueError")
        with recorded_signals("retried", "failed") as told:
            outcomes = run_until_rest(queue)
        assert (outcomes, ran, [name for name, _ in told]) == ([Outcome.FAILED], [1], ["failed"])
        assert counts(entry_of(queue.failed, handle.id)) == (1, 1, 0)
        unlisted.using(max_attempts=5).enqueue("Hiccup")
        assert run_until_rest(queue) == [Outcome.FAILED]

    def test_async_commands_are_retried_alike(self, queue):
        flaky_async("Hiccup")
        assert run_until_rest(queue) == [Outcome.RETRY, Outcome.DONE]


@MEMORY
class TestWhatIsListed:
    def test_a_subclass_is_listed_with_its_base(self, queue):
        flaky("Worse")
        assert run_until_rest(queue) == [Outcome.RETRY, Outcome.DONE]

    @pytest.mark.parametrize("name", ["SystemExit", "Stop"])
    def test_what_is_no_exception_is_retried_only_if_it_is_listed(self, queue, name):
        flaky.using(retry_on=[Exception]).enqueue(name)
        assert run_until_rest(queue) == [Outcome.FAILED]
        flaky.using(retry_on=[ERRORS[name]]).enqueue(name)
        assert run_until_rest(queue) == [Outcome.RETRY, Outcome.DONE]
        flaky.using(retry_on=[BaseException]).enqueue(name)
        assert run_until_rest(queue) == [Outcome.RETRY, Outcome.DONE]

    def test_a_group_is_what_is_in_it(self):
        policy, entry = Policy.of(retry_on=[OSError, KeyError]), Entry(b"", "id", attempts=1)
        cases = [
            ([OSError()], Outcome.RETRY),
            ([OSError(), KeyError()], Outcome.RETRY),
            ([OSError(), ExceptionGroup("inner", [KeyError(), OSError()])], Outcome.RETRY),
            ([OSError(), RuntimeError()], Outcome.FAILED),
            ([Discard("no")], Outcome.DISCARDED),
            ([Retry(5)], Outcome.RETRY),
            ([ExceptionGroup("inner", [Retry(5)])], Outcome.RETRY),
        ]
        for within, outcome in cases:
            assert policy.on_exception(ExceptionGroup("outer", within), entry).outcome is outcome, within

    @pytest.mark.parametrize("listed", [ExceptionGroup, Exception])
    def test_a_group_may_be_listed_itself(self, listed):
        policy, entry = Policy.of(retry_on=[listed]), Entry(b"", "id", attempts=1)
        for within, outcome in [
            ([OSError()], Outcome.RETRY),
            ([OSError(), KeyError()], Outcome.RETRY),
            ([Discard("no")], Outcome.DISCARDED),
        ]:
            assert policy.on_exception(ExceptionGroup("outer", within), entry).outcome is outcome, within

    def test_the_setting_lists_for_commands_that_do_not(self, queue, settings):
        settings.QUEUE_RETRY_ON = [Hiccup]
        settings.QUEUE_MAX_ATTEMPTS = 2
        queue = queues["default"]
        unlisted.using(backoff=False).enqueue("Hiccup", "Hiccup")
        assert run_until_rest(queue) == [Outcome.RETRY, Outcome.FAILED]
        unlisted.using(retry_on=[]).enqueue("Hiccup")
        assert run_until_rest(queue) == [Outcome.FAILED]
        flaky.using(retry_on=[KeyError]).enqueue("Hiccup")
        assert run_until_rest(queue) == [Outcome.FAILED]

    def test_five_attempts_are_usual(self, queue):
        unlisted.using(retry_on=[Hiccup], backoff=False).enqueue(*["Hiccup"] * 9)
        assert run_until_rest(queue) == [Outcome.RETRY] * 4 + [Outcome.FAILED]

    @pytest.mark.parametrize("setting", [["tests.running.test_retrying.Hiccup"], Hiccup, 5])
    def test_a_setting_that_lists_no_exceptions_lets_nothing_run_for_ever(self, queue, settings, setting, caplog):
        settings.QUEUE_RETRY_ON = setting
        queue = queues["default"]
        unlisted("Hiccup")
        assert run_until_rest(queue) == [Outcome.FAILED]
        assert "cannot be judged" in caplog.text
        assert len(queue.failed) == 1


@EVERY
class TestPerCall:
    def test_a_call_may_have_more_attempts_than_its_command(self, queue):
        flaky.using(max_attempts=5).enqueue(*["Hiccup"] * 9)
        flaky(*["Hiccup"] * 9)
        outcomes = run_until_rest(queue)
        assert len(outcomes) == 5 + 3

    def test_retries_are_attempts_beyond_the_first(self, queue):
        flaky.using(retries=1).enqueue(*["Hiccup"] * 9)
        flaky.using(retries=0).enqueue("Hiccup")
        outcomes = run_until_rest(queue)
        assert (outcomes.count(Outcome.RETRY), outcomes.count(Outcome.FAILED)) == (1, 2)

    def test_a_call_may_list_other_exceptions(self, queue):
        flaky.using(retry_on=[ValueError]).enqueue("ValueError", "Hiccup")
        assert run_until_rest(queue) == [Outcome.RETRY, Outcome.FAILED]

    @pytest.mark.parametrize("backoff", [60, Backoff(cap=60), other_wait], ids=["seconds", "Backoff", "function"])
    def test_a_call_may_have_another_backoff(self, queue, backoff):
        handle = flaky.using(backoff=backoff).enqueue("Hiccup")
        called, verdict = queue.now(), run_one(queue)
        expected = {60: 60.0, other_wait: 11.0}.get(backoff, 4.0)
        assert verdict.delay == expected
        assert called + expected - 0.01 <= queue.find(handle.id).at <= queue.now() + expected + 0.01


@MEMORY
class TestBackoff:
    def test_df5_the_usual_waits(self):
        waits = [Backoff()(failures) for failures in range(1, 14)]
        assert waits == [4, 6, 10, 18, 34, 66, 130, 258, 514, 900, 900, 900, 900]

    @pytest.mark.parametrize("failures", [64, 1000, 10**9])
    def test_df5_however_often_it_failed_the_wait_is_capped(self, failures):
        assert Backoff()(failures) == 900
        assert Backoff(factor=1000, cap=3600)(failures) == 3600
        assert Backoff(factor=1.0)(failures) == 3

    def test_the_first_wait_may_be_given(self):
        assert [Backoff(60)(failures) for failures in (1, 2, 3, 4, 5, 100)] == [60, 120, 240, 480, 900, 900]
        waits = Backoff(first=timedelta(minutes=1), factor=10, cap=timedelta(hours=1))
        assert [waits(failures) for failures in (1, 2, 3)] == [60, 600, 3600]
        with pytest.raises(ValueError, match="first=…. is 3600 s, which is more than cap=900: give cap too"):
            Backoff(first=3600)

    @given(
        st.integers(1, 10**6), st.none() | st.floats(0, 1e5), st.floats(1, 1000), st.floats(1e5, 1e9), st.floats(0, 1)
    )
    def test_jitter_takes_off_at_most_its_part(self, failures, first, factor, cap, jitter):
        whole = Backoff(first, factor=factor, cap=cap)(failures)
        assert (first or 0) <= whole <= cap
        jittered = Backoff(first, factor=factor, cap=cap, jitter=jitter)(failures)
        assert whole * (1 - jitter) * (1 - 1e-9) <= jittered <= whole

    def test_jitter_parts_what_failed_together(self):
        assert len({Backoff(jitter=0.25)(5) for _ in range(20)}) > 15

    @AND_SQS
    def test_df5_the_usual_backoff_delays_the_retry(self, queue):
        handle = patient("Hiccup")
        called, verdict = queue.now(), run_one(queue)
        assert verdict.delay == 4.0
        assert (is_delayed(queue, handle.id), queue.claim(1)) == (True, [])
        if can_look(queue):
            assert called + 4 - 0.01 <= queue.find(handle.id).at <= queue.now() + 4 + 0.01
            assert queue.stats().delayed == 1

    def test_df5_each_failure_waits_longer_than_the_one_before(self, queue):
        patient(*["Hiccup"] * 8)
        start, delays = queue.now(), []
        for failure in range(9):
            queue.clock = lambda failure=failure: start + 1000 * failure
            delays.append(run_one(queue).delay)
        assert delays == [4, 6, 10, 18, 34, 66, 130, 258, 0]
        assert queue.stats().done == 1

    @AND_SQS
    def test_df5_without_backoff_a_retry_is_available_at_once(self, queue):
        flaky("Hiccup")
        first = run_one(queue)
        assert (first.outcome, first.delay) == (Outcome.RETRY, 0.0)
        assert run_one(queue).outcome is Outcome.DONE

    @EVERY
    def test_a_short_wait_is_kept(self, queue):
        handle = flaky.using(backoff=0.05).enqueue("Hiccup")
        run_one(queue)
        due = queue.find(handle.id).at
        [lease] = queue.reserve(1, wait=10)
        assert lease.claimed >= due - 0.001
        assert lease.entry.attempts == 2

    def test_a_function_is_told_the_failures_and_the_exception(self, queue, monkeypatch):
        monkeypatch.setattr(flaky, "policy", Policy.of(retry_on=[Hiccup], backoff=seventh))
        flaky("Hiccup", "Worse")
        start = queue.now()
        for number, wait in ((1, 7), (2, 14)):
            verdict = run_one(queue)
            assert verdict.delay == wait
            assert asked[-1] == (number, verdict.exception)
            queue.clock = lambda number=number: start + 100 * number

    @pytest.mark.parametrize(
        "answer", [-1, "soon", None, True, float("nan"), float("inf"), 10**12, ..., Hiccup, SystemExit, Retry]
    )
    def test_a_function_that_raises_or_answers_nonsense_gives_the_usual_wait(self, queue, monkeypatch, caplog, answer):
        def backoff(failures, exception):
            if isinstance(answer, type):
                raise answer
            return answer

        monkeypatch.setattr(flaky, "policy", Policy.of(retry_on=[Hiccup], backoff=backoff))
        handle = flaky("Hiccup")
        verdict = run_one(queue)
        assert (verdict.outcome, verdict.delay) == (Outcome.RETRY, 4.0)
        assert queue.find(handle.id).state == "delayed"
        assert "backoff failed" in caplog.text

    def test_a_timedelta_is_an_answer(self, queue, monkeypatch):
        monkeypatch.setattr(flaky, "policy", Policy.of(retry_on=[Hiccup], backoff=lambda *_: timedelta(minutes=1)))
        flaky("Hiccup")
        assert run_one(queue).delay == 60.0


@EVERY
@pytest.mark.parametrize("command", [say, say_async], ids=["function", "async"])
class TestWords:
    def test_discard_forgets_the_message(self, queue, command):
        command("discard", "nobody wants it")
        with recorded_signals("discarded", "completed", "failed", "retried") as told:
            assert run_one(queue).outcome is Outcome.DISCARDED
        assert [(name, about["reason"]) for name, about in told] == [("discarded", "nobody wants it")]
        stats = queue.stats()
        assert (stats.ready, stats.leased, stats.failed) == (0, 0, 0)

    def test_fail_puts_it_aside_at_once(self, queue, command):
        handle = command("fail", "hopeless")
        with recorded_signals("failed", "retried") as told:
            assert run_one(queue).outcome is Outcome.FAILED
        assert [(name, about["reason"]) for name, about in told] == [("failed", "hopeless")]
        entry = queue.failed.find(handle.id).entry
        [note] = errors_of(entry.errors)
        assert (note["reason"], note["exception"]) == ("hopeless", "djqueue.exceptions.Fail")
        assert counts(entry) == (1, 1, 0)

    def test_retry_runs_it_again_and_counts_neither_as_failed_nor_as_lost(self, queue, command):
        handle = command("retry", 0)
        with recorded_signals("retried", "failed") as told:
            for _ in range(5):  # more than max_attempts
                assert run_when_due(queue).outcome is Outcome.RETRY
        assert {(name, about["exception"]) for name, about in told} == {("retried", None)}
        record = queue.find(handle.id)
        assert record.state in ("delayed", "ready")  # that is in a tenth of a second
        assert (counts(record.entry), record.entry.errors) == ((5, 0, 0), "")

    def test_retry_after_a_while(self, queue, command):
        handle, called = command("retry", 60), queue.now()
        assert run_one(queue).delay == 60.0
        record = queue.find(handle.id)
        assert (record.state, counts(record.entry)) == ("delayed", (1, 0, 0))
        assert called + 60 - 0.01 <= record.at <= queue.now() + 60 + 0.01


@EVERY
def test_what_asked_to_be_run_again_has_all_its_failures_left(queue):
    handle = again_and_again(0, 0, 0)
    outcomes = run_until_rest(queue)
    assert outcomes == [Outcome.RETRY] * 4 + [Outcome.FAILED]
    assert ran == [1, 2, 3, 4, 5]
    assert counts(queue.failed.find(handle.id).entry) == (5, 2, 0)


@MEMORY
class TestOddWords:
    @pytest.mark.parametrize(
        ("kind", "outcome", "reason"),
        [
            ("fail", Outcome.FAILED, "'k'"),
            ("discard", Outcome.DISCARDED, "'k'"),
            ("quiet", Outcome.DISCARDED, "discarded"),
        ],
    )
    def test_a_reason_may_be_an_exception_and_a_subclass_need_not_call_the_base(self, queue, kind, outcome, reason):
        say_oddly(kind)
        verdict = run_one(queue)
        assert (verdict.outcome, verdict.reason) == (outcome, reason)

    def test_a_reason_of_megabytes_is_cut(self, queue):
        say_oddly("long")
        assert len(run_one(queue).reason) == LONGEST_REASON

    @pytest.mark.parametrize("after", [-1, float("nan"), float("inf"), b"soon", True, timedelta(seconds=-1)])
    def test_a_nonsensical_wait_is_a_failure_like_any(self, queue, after):
        say("retry", after)
        outcomes = run_until_rest(queue)
        assert outcomes == [Outcome.RETRY, Outcome.FAILED]
        assert ran == [1, 2]

    @pytest.mark.parametrize(("after", "delay"), [(timedelta(hours=2), 7200.0), (0, 0.1), (1e-320, 0.1), (None, 0.1)])
    def test_waits_that_there_are(self, queue, after, delay):
        say("retry", after)
        assert run_one(queue).delay == delay

    def test_without_a_wait_of_its_own_the_backoff_says_and_no_wait_is_a_wait_of_its_own(self, queue):
        say.using(backoff=Backoff()).enqueue("retry")
        start, delays = queue.now(), []
        for number in range(4):
            queue.clock = lambda number=number: start + 1000 * number
            delays.append(run_one(queue).delay)
        assert delays == [4, 6, 10, 18]
        say.using(backoff=Backoff()).enqueue("retry", 0)
        assert run_one(queue).delay == 0.1

    def test_words_are_words_even_if_they_are_listed(self, queue):
        say.using(retry_on=[BaseException]).enqueue("fail")
        assert run_one(queue).outcome is Outcome.FAILED
        say.using(retry_on=[BaseException]).enqueue("discard")
        assert run_one(queue).outcome is Outcome.DISCARDED

    def test_one_attempt_may_still_be_asked_to_be_run_again(self, queue):
        say.using(max_attempts=1).enqueue("retry", 0)
        assert [run_when_due(queue).outcome for _ in range(3)] == [Outcome.RETRY] * 3

    def test_what_asks_for_another_start_too_often_is_put_aside(self, queue, settings):
        settings.QUEUE_MAX_STARTS = 3
        handle = say.using(backoff=False).enqueue("retry", 1e-320)
        assert [run_when_due(queue).outcome for _ in range(3)] == [Outcome.RETRY] * 2 + [Outcome.FAILED]
        [note] = errors_of(queue.failed.find(handle.id).entry.errors)
        assert note["reason"] == "it asked to be run again at attempt 3"
        assert queue.failed.find(handle.id).entry.failures == 1

    def test_the_bound_of_starts_can_be_taken_away(self, queue, settings):
        assert conf.get("QUEUE_MAX_STARTS") == 1000
        settings.QUEUE_MAX_STARTS = None
        say("retry", 0)
        lease = claim_one(queue)
        entry = replace(lease.entry, attempts=10_000)
        assert execute(queue, replace(lease, entry=entry)).outcome is Outcome.RETRY


@AND_SQS
class TestErrorQueue:
    def test_df6_an_error_says_what_where_when_and_whose(self, queue, backend):
        handle = flaky("Hiccup", "Worse", "ValueError")
        before = queue.now()
        for _ in range(3):
            lease = claim_one(queue)
            settle(queue, [(lease, execute(queue, lease))], owner="me:1")
        entry = entry_of(queue.failed, handle.id)
        told = errors_of(entry.errors)
        assert [note["attempt"] for note in told] == [1, 2, 3]
        names = [f"{__name__}.Hiccup", f"{__name__}.Worse", "builtins.ValueError"]
        assert [note["exception"] for note in told] == names
        assert [note["reason"] for note in told] == ["Hiccup: no 1", "Worse: no 2", "ValueError: no 3"]
        assert [note["text"] for note in told] == ["no 1", "no 2", "no 3"]
        for note in told:
            assert note["traceback"].startswith("Traceback")
            assert "in fail" in note["traceback"]
            assert (note["host"], note["consumer"]) == (socket.gethostname(), "me:1")
            assert before - 1 <= note["at"] <= queue.now() + 1
        assert entry.id == handle.id
        assert entry.command == flaky.name

    def test_df6_the_original_call_is_kept(self, queue):
        handle = flaky("ValueError", "ä\x00\N{PILE OF POO}")
        data = claim_and_release(queue).body
        run_one(queue)
        assert entry_of(queue.failed, handle.id).body == data
        assert queue.requeue([handle.id]) == 1
        assert claim_and_release(queue).body == data

    def test_a_text_of_any_sort_is_kept(self, queue, caplog):
        caplog.set_level(logging.CRITICAL, "djqueue")  # xdist cannot carry half a pair in what it captured
        handle = speak(ODD)
        assert run_until_rest(queue) == [Outcome.RETRY, Outcome.FAILED]
        told = errors_of(entry_of(queue.failed, handle.id).errors)
        assert [note["reason"] for note in told] == [f"Hiccup: {ODD}"] * 2

    def test_a_text_of_megabytes_is_cut(self, queue, caplog):
        caplog.set_level(logging.CRITICAL, "djqueue")  # a log shows the whole of it
        handle = speak("ä", 2**21)
        run_until_rest(queue)
        told = errors_of(entry_of(queue.failed, handle.id).errors)
        assert len(told) == 2
        assert all(len(note["reason"]) <= LONGEST_REASON for note in told)
        assert all(len(note["traceback"]) <= 16_384 for note in told)

    @pytest.mark.parametrize("name", ["Unspeakable", "Unspeaking"])
    def test_a_text_that_cannot_be_told_is_no_obstacle(self, queue, name):
        handle = flaky(name, name, name)
        assert run_until_rest(queue) == [Outcome.RETRY, Outcome.RETRY, Outcome.FAILED]
        assert name in errors_of(entry_of(queue.failed, handle.id).errors)[-1]["reason"]

    def test_df25_what_is_retried_by_its_id_starts_afresh(self, queue):
        first, second = flaky("ValueError"), flaky("ValueError")
        run_until_rest(queue)
        ran.clear()
        assert queue.requeue([second.id]) == 1
        entry = entry_of(queue, second.id)
        assert counts(entry) == (0, 0, 0)
        assert len(errors_of(entry.errors)) == 1
        assert (len(queue.failed), entry_of(queue.failed, first.id).id) == (1, first.id)
        run_until_rest(queue)
        assert ran == [1]
        told = errors_of(entry_of(queue.failed, second.id).errors)
        assert [note["attempt"] for note in told] == [1, 1]

    def test_df25_it_has_all_its_attempts_again(self, queue):
        handle = flaky(*["Hiccup"] * 9)
        run_until_rest(queue)
        queue.requeue([handle.id])
        assert run_until_rest(queue) == [Outcome.RETRY, Outcome.RETRY, Outcome.FAILED]
        assert ran == [1, 2, 3] * 2
        assert counts(entry_of(queue.failed, handle.id)) == (3, 3, 0)


def claim_and_release(queue):
    lease = claim_one(queue)
    settle(queue, [(lease, Verdict(Outcome.RETURNED))])
    return lease.entry


@AND_SQS
class TestUnreadable:
    def test_df20_arguments_that_cannot_be_imported_end_in_the_failed_queue_at_once(self, queue, tmp_path, monkeypatch):
        module = _module(tmp_path, monkeypatch, "class Cargo: pass\n")
        handle = flaky(module.Cargo())
        _forget(tmp_path, module)
        assert run_one(queue).outcome is Outcome.FAILED
        [note] = errors_of(entry_of(queue.failed, handle.id).errors)
        assert "ModuleNotFoundError" in note["reason"]
        assert "ModuleNotFoundError" in note["traceback"]
        assert (ran, len(queue)) == ([], 0)

    def test_df20_options_that_cannot_be_imported_wait_and_end_there_too(self, queue, settings, tmp_path, monkeypatch):
        settings.QUEUE_UNKNOWN_AFTER = 0
        queue, module = queues["default"], _module(tmp_path, monkeypatch, "class Trouble(Exception): pass\n")
        handle = flaky.using(retry_on=[module.Trouble]).enqueue()
        _forget(tmp_path, module)
        assert run_twice(queue) == [Outcome.POSTPONED, Outcome.FAILED]
        assert "vanishing" in errors_of(entry_of(queue.failed, handle.id).errors)[-1]["reason"]
        assert ran == []

    @pytest.mark.parametrize("data", [b"", b"djq1c", b"\x80\x05rubbish", b"djq1c" + b"\x00" * 100])
    def test_df20_so_does_what_is_no_message(self, queue, data):
        id = new_id()
        assert queue.put([Entry(data, id, command=flaky.name)]) == [True]
        assert run_one(queue).outcome is Outcome.FAILED
        assert "invalid message" in errors_of(entry_of(queue.failed, id).errors)[0]["reason"]

    def test_df20_a_command_that_nobody_knows_waits_and_ends_there_too(self, queue, settings):
        settings.QUEUE_UNKNOWN_AFTER = 0
        entry = message_for(queue, "no.such.command")
        queue.put([entry])
        assert run_twice(queue) == [Outcome.POSTPONED, Outcome.FAILED]
        assert "no.such.command" in errors_of(entry_of(queue.failed, entry.id).errors)[-1]["reason"]


def _module(folder, monkeypatch, text):
    monkeypatch.syspath_prepend(str(folder))
    (folder / "vanishing.py").write_text(text)
    importlib.invalidate_caches()
    return importlib.import_module("vanishing")


def _forget(folder, module):
    (folder / "vanishing.py").unlink()
    del sys.modules[module.__name__]
    importlib.invalidate_caches()


@pytest.mark.parametrize(
    ("options", "most"),
    [({"max_attempts": 2}, 2), ({"max_attempts": 5, "max_lost": 1}, 1), ({}, 3), ({"max_lost": 7}, 7)],
)
def test_df21_as_many_starts_may_be_lost_as_there_are_attempts_unless_it_is_said(options, most):
    policy = Policy.of(**options)
    assert policy.reject(Lease(Entry(b"", "id", lost=most - 1))) is None
    verdict = policy.reject(Lease(Entry(b"", "id", lost=most)))
    assert (verdict.outcome, verdict.reason) == (Outcome.FAILED, f"worker died: {most} attempts never reported")


@pytest.mark.parametrize(("most", "seen"), [(1, 1), (2, 6), (3, 9)])
def test_starts_that_were_lost_unseen_are_borne_for_longer_but_not_if_one_is_the_most(most, seen):
    policy = Policy.of(max_lost=most)
    if seen > 1:
        assert policy.reject(Lease(Entry(b"", "id", lost=seen - 1)), patience=3) is None
    assert policy.reject(Lease(Entry(b"", "id", lost=seen)), patience=3).outcome is Outcome.FAILED


def test_a_loss_that_was_seen_counts_and_the_last_one_is_told_with_how_it_ended():
    policy, entry = Policy.of(max_lost=2, backoff=5), Entry(b"", "id", attempts=1, lost=0)
    first = policy.judge_loss(entry, "SIGKILL")
    assert (first.outcome, first.lost, first.delay) == (Outcome.RETRY, 1, 5)
    back = settled(Lease(entry), first).entry
    assert (back.lost, back.failures, back.errors) == (1, 0, "")
    last = policy.judge_loss(back, "SIGKILL")
    assert last.outcome is Outcome.FAILED
    assert last.reason == "worker died: 2 attempts never reported; the last one ended by SIGKILL"
    assert settled(Lease(back), last).entry.lost == 2


@EVERY
class TestLongDelays:
    @pytest.mark.parametrize("hours", [1, 24 * 365])
    def test_df26_a_retry_and_a_call_may_wait_for_longer_than_a_quarter_of_an_hour(self, queue, hours):
        retried = flaky.using(backoff=timedelta(hours=hours)).enqueue("Hiccup")
        run_one(queue)
        delayed = flaky.using(delay=timedelta(hours=hours)).enqueue()
        for handle in (retried, delayed):
            record = queue.find(handle.id)
            assert (record.state, queue.claim(1)) == ("delayed", [])
            assert record.at == pytest.approx(queue.now() + 3600 * hours, abs=5)


@pytest.mark.backends("memory", "sqlite", "redis")
def test_df3_a_consumer_retries_until_it_works_or_is_given_up(queue):
    flaky("Hiccup", "Hiccup")
    flaky("Hiccup", "Hiccup", "Hiccup")
    assert exit_code(threads=2, drain=True) == 0
    stats = queue.stats()
    assert (stats.done, stats.failed, len(queue)) == (1, 1, 0)
    assert sorted(ran) == [1, 1, 2, 2, 3, 3]


MEANT = {"listed": Hiccup("x"), "unlisted": ValueError("x"), "retry": Retry(0), "discard": Discard(), "fail": Fail()}
STANDING = {"done": Outcome.DONE, "hand back": Outcome.INTERRUPTED, "returned": Outcome.RETURNED}


class Life:
    """One message on a queue of its own, what befell it, and the counts that this must lead to."""

    def __init__(self, policy):
        self.policy, self.time = policy, 1e9
        self.queue = MemoryQueue("life")
        self.queue.clock = lambda: self.time
        self.queue.put([Entry(b"", "id")])
        self.starts = self.failed = self.lost = 0
        self.verdict = None

    def happens(self, what):
        """The verdict; None for a start that never reports."""
        lease = claim_one(self.queue, lease=10)
        self.verdict = self.policy.reject(lease)
        self.starts += what != "returned" or self.verdict is not None
        if self.verdict is None:
            self.queue.begin([lease])
        if self.verdict is None and what == "lost":
            self.lost += 1
            self.time += 11
            assert self.queue.reap().count == 1
            return
        if self.verdict is None:
            self.verdict = (
                self.policy.on_exception(MEANT[what], lease.entry) if what in MEANT else Verdict(STANDING[what])
            )
        self.failed += self.verdict.exception is not None
        settle(self.queue, [(lease, self.verdict)])
        self.time += self.verdict.delay

    @property
    def over(self):
        return self.verdict is not None and self.verdict.outcome.effect.verb != "release"

    @property
    def entry(self):
        record = self.queue.find("id") or self.queue.failed.find("id")
        return record and record.entry


@given(st.lists(st.sampled_from([*MEANT, *STANDING, "lost"]), max_size=40), st.integers(1, 6), st.integers(1, 4))
def test_whatever_happens_the_counts_are_right_and_the_end_comes_in_time(story, most, most_lost):
    life = Life(Policy.of(max_attempts=most, max_lost=most_lost, retry_on=[Hiccup], backoff=False))
    for what in story:
        assert life.failed < most and life.lost <= most_lost
        life.happens(what)
        if life.entry is not None:
            assert counts(life.entry) == (life.starts, life.failed, life.lost)
            assert life.failed + life.lost <= life.starts
            assert len(errors_of(life.entry.errors)) == min(
                10, life.failed + (life.over and not life.verdict.exception)
            )
        if life.over:
            break
        assert life.failed < most
    dead = len(life.queue.failed) == 1
    assert dead == (life.over and life.verdict.outcome is Outcome.FAILED)
    if dead:
        assert life.failed == most or life.lost == most_lost or what in ("unlisted", "fail")
    assert len(life.queue) == (not life.over)


@given(st.integers(1, 5), st.integers(1, 5), st.randoms())
def test_starts_are_bounded_even_if_some_fail_and_others_are_lost(most, most_lost, chance):
    life, stories = Life(Policy.of(max_attempts=most, max_lost=most_lost, retry_on=[Hiccup], backoff=False)), 0
    while not life.over:
        life.happens(chance.choice(["listed", "lost"]))
        stories += 1
        assert stories <= most + most_lost
