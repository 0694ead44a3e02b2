"""From verdicts back to the queue: one verb per kind, and no word of what is somebody else's by now."""

import logging
from dataclasses import replace
from pathlib import Path

import pytest

from djqueue import signals
from djqueue.backends.base import Entry
from djqueue.decorators import queue_command
from djqueue.messages.failures import errors_of, with_error
from djqueue.policies import outcomes
from djqueue.policies.outcomes import Outcome, Verdict
from djqueue.running.executor import execute
from djqueue.running.settle import announce, send, settle, settlement_of
from djqueue.testing import eventually
from tests.support.consumer import claim_one, recorded_signals, run_one, serving

ALL = ("started", "completed", "failed", "released", "lease_lost")


@queue_command
def double(number):
    return number * 2


@queue_command
def explode(text="boom"):
    raise RuntimeError(text)


@pytest.fixture
def settle_calls(queue, monkeypatch):
    """The round trips that settle, and how many leases each took."""
    called = []
    for name in ("complete", "release", "fail"):
        monkeypatch.setattr(queue, name, _noting(called, name, getattr(queue, name)))
    return called


def _noting(called, name, verb):
    def noted(leases, *facts):
        called.append((name, len(leases)))
        return verb(leases, *facts)

    return noted


def test_a_round_trip_per_verb_and_none_for_nothing(queue, settle_calls):
    settle(queue, [])
    assert settle_calls == []
    double.enqueue_many([(number,) for number in range(8)])
    outcomes = [Outcome.DONE, Outcome.FAILED, Outcome.RETURNED, Outcome.INTERRUPTED] * 2
    settle(queue, [(lease, Verdict(outcome)) for lease, outcome in zip(queue.claim(8), outcomes, strict=True)])
    assert sorted(settle_calls) == [("complete", 2), ("fail", 2), ("release", 4)]
    assert (len(queue), len(queue.failed)) == (4, 2)


@pytest.mark.parametrize(
    ("outcome", "attempts"), [(Outcome.RETURNED, 0), (Outcome.INTERRUPTED, 1)], ids=["unstarted", "running"]
)
def test_work_that_goes_back_keeps_its_place(queue, outcome, attempts):
    first, second = double(1), double(2)
    lease = claim_one(queue)
    assert lease.entry.id == first.id
    with recorded_signals(*ALL) as told:
        settle(queue, [(lease, Verdict(outcome, "the consumer stops"))])
    about = {"sender": double.name, "id": first.id, "queue_name": "default", "reason": "the consumer stops"}
    assert told == [("released", about)]
    entry = queue.find(first.id).entry
    assert (entry.attempts, entry.failures, entry.lost) == (attempts, 0, 0)
    assert [one.entry.id for one in queue.claim(2)] == [first.id, second.id]


def test_work_that_goes_back_with_a_pause_waits(queue):
    handle = double(1)
    settle(queue, [(claim_one(queue), Verdict(Outcome.RETURNED, delay=600))])
    record = queue.find(handle.id)
    assert record.state == "delayed"
    assert record.at == pytest.approx(queue.now() + 600, abs=30)
    assert queue.claim(1) == []


@pytest.mark.parametrize("command", [double, explode])
def test_what_was_given_to_somebody_else_is_not_ours_to_finish(queue, command, caplog):
    handle = command(1)
    ours = claim_one(queue)
    queue.release([ours])
    theirs = claim_one(queue)
    with recorded_signals(*ALL) as told:
        settle(queue, [(ours, execute(queue, ours))])
    assert [name for name, _ in told] == ["started", "lease_lost"]
    assert told[-1][1] == {"sender": command.name, "id": handle.id, "queue_name": "default"}
    assert queue.stats().leased == 1
    assert len(queue.failed) == 0
    assert any(getattr(record, "message_id", "") == handle.id for record in caplog.records)
    assert [lease.token for lease in queue.complete([theirs])] == [theirs.token]


def test_some_of_ours_and_some_of_others(queue):
    double.enqueue_many([(1,), (2,), (3,)])
    leases = queue.claim(3)
    queue.complete([leases[1]])
    with recorded_signals(*ALL) as told:
        settle(queue, [(lease, Verdict(Outcome.DONE)) for lease in leases])
    assert [name for name, _ in told] == ["completed", "lease_lost", "completed"]
    assert [about["id"] for _, about in told] == [lease.entry.id for lease in leases]


@pytest.mark.backends("memory")
class TestReceivers:
    @pytest.fixture(autouse=True)
    def raising_receivers(self):
        def raise_(sender, **named):
            raise ZeroDivisionError

        recorded_signals = [getattr(signals, name) for name in (*ALL, "enqueued")]
        for signal in recorded_signals:
            signal.connect(raise_)
        yield
        for signal in recorded_signals:
            signal.disconnect(raise_)

    def test_done_stays_done(self, queue):
        double(1)
        assert run_one(queue).outcome is Outcome.DONE
        assert (queue.stats().done, queue.stats().leased) == (1, 0)

    def test_dead_stays_dead(self, queue):
        handle = explode()
        assert run_one(queue).outcome is Outcome.FAILED
        [record] = errors_of(queue.failed.find(handle.id).entry.errors)
        assert record["exception"] == "builtins.RuntimeError"

    def test_lost_stays_lost(self, queue):
        double(1)
        lease = claim_one(queue)
        queue.release([lease])
        settle(queue, [(lease, Verdict(Outcome.DONE))])
        assert queue.stats().ready == 1


class TestNotes:
    def test_the_latest_ten_are_kept(self):
        note = ""
        for attempt in range(1, 15):
            note = with_error(note, at=1000.0 + attempt, attempt=attempt, reason=f"try {attempt}")
        assert [record["attempt"] for record in errors_of(note)] == list(range(5, 15))
        assert errors_of(note)[-1]["at"] == 1014.0
        assert errors_of(note)[-1]["exception"] is None

    def test_a_long_traceback_keeps_its_end(self):
        error = ValueError("x" * 10**6 + "the end")
        [record] = errors_of(with_error("", at=0.0, attempt=1, reason=f"ValueError: {error}", exception=error))
        assert len(record["traceback"]) <= 16_384
        assert "the end" in record["traceback"]
        assert len(record["reason"]) <= 1000

    def test_a_note_that_is_no_json_is_a_record_of_its_own(self):
        assert errors_of("not json") == [{"reason": "not json"}]
        for note in ("not json", "[1]"):
            kept = errors_of(with_error(note, at=0.0, attempt=1, reason="new"))
            assert [record["reason"] for record in kept] == [note, "new"]

    @pytest.mark.backends("memory", "sqlite", "postgres", "mariadb", "redis")
    def test_an_exception_of_any_text_can_be_kept(self, queue, caplog):
        caplog.set_level(logging.CRITICAL, "djqueue")  # xdist cannot carry half a pair in what it captured
        text = "nul \x00, half a pair \ud800, \N{PILE OF POO}, \x1b[31m"
        handle = explode(text)
        run_one(queue)
        [record] = errors_of(queue.failed.find(handle.id).entry.errors)
        assert record["reason"].startswith("RuntimeError: nul")

    def test_an_exception_that_cannot_be_shown_is_still_a_verdict(self):
        class Unspeakable(Exception):
            def __str__(self):
                raise ZeroDivisionError

        verdict = double.policy.on_exception(Unspeakable(), Entry(b"", "id"))
        assert verdict.outcome is Outcome.FAILED
        assert "Unspeakable" in verdict.reason
        assert errors_of(with_error("", at=0.0, attempt=1, reason=verdict.reason, exception=verdict.exception))


class Nameless(type):
    """Of classes that cannot be named."""

    __name__ = property(lambda cls: 1 / 0)


class Unnamed(Exception, metaclass=Nameless):
    __module__ = Path("anything")


class Liar(Exception):
    __class__ = property(lambda self: 1 / 0)


class Odd(str):
    def __format__(self, how):
        raise ZeroDivisionError

    __str__ = __len__ = __getitem__ = __format__


class OddlyTold(Exception):
    def __str__(self):
        return Odd("told")


class Unspeakable(RuntimeError):
    def __str__(self):
        raise ZeroDivisionError


class Hidden(Exception):
    __cause__ = __context__ = __traceback__ = args = property(lambda self: 1 / 0)


ODD = [Unnamed, Liar, OddlyTold, Unspeakable, Hidden]


@queue_command
def fail_oddly(number):
    raise ODD[number]


@pytest.mark.parametrize("number", range(len(ODD)))
def test_what_cannot_be_told_has_failed_like_anything_else(queue, number):
    """Nothing that an exception does while it is looked at may decide what becomes of it, or of others."""
    handles = [fail_oddly(number), explode()]
    for _ in handles:
        run_one(queue)
    assert [errors_of(queue.failed.find(handle.id).entry.errors)[-1]["attempt"] for handle in handles] == [1, 1]


@queue_command
async def fail_oddly_later(number):
    raise ODD[number]


@pytest.mark.backends("memory")
@pytest.mark.parametrize("number", range(len(ODD)))
def test_nor_does_it_keep_a_loop_of_ones_own(queue, number):
    fail_oddly_later(number)
    verdict = run_one(queue)
    assert (verdict.outcome, type(verdict.exception)) == (Outcome.FAILED, ODD[number])


@pytest.mark.backends("memory")
@pytest.mark.parametrize("command", [fail_oddly, fail_oddly_later], ids=["plain", "async"])
def test_nor_does_it_end_a_worker(queue, command):
    handles = [command(number) for number in [*range(len(ODD))] * 2]
    last = double.enqueue(2)
    with serving(threads=1):
        eventually(lambda: queue.stats().failed == len(handles) and queue.find(last.id) is None)
    assert {queue.failed.find(handle.id).entry.attempts for handle in handles} == {1}


def test_what_cannot_be_written_down_holds_up_no_other(queue, monkeypatch, caplog):
    handles, write = [explode("one"), explode("other")], outcomes.with_error

    def refuse(note, **about):
        if about["reason"] == "one" and about["exception"] is not None:
            raise ZeroDivisionError
        return write(note, **about)

    monkeypatch.setattr(outcomes, "with_error", refuse)
    failed = [Verdict(Outcome.FAILED, reason, RuntimeError()) for reason in ("one", "other")]
    settle(queue, [*zip(queue.claim(2), failed, strict=True)])
    told = [errors_of(queue.failed.find(handle.id).entry.errors)[-1]["reason"] for handle in handles]
    assert told == ["one", "other"]
    assert "cannot be written down" in caplog.text


def test_settling_says_what_the_lease_says(queue):
    """Only counts, note and delay of an entry change in its life."""
    handle = double.using(priority=3).enqueue(1)
    lease = claim_one(queue)
    settle(queue, [(lease, Verdict(Outcome.INTERRUPTED))])
    after = queue.find(handle.id).entry
    assert replace(after, run_at=lease.entry.run_at) == lease.entry


def test_what_is_gone_by_a_call_whose_answer_was_lost_was_settled_by_that(queue, caplog):
    handle = double.using(result_ttl=60).enqueue(4)
    [lease] = queue.claim(1)
    settlements = [settlement_of(queue, lease, execute(queue, lease))]
    assert send(queue, "complete", settlements) == [lease]
    assert (again := send(queue, "complete", settlements)) == []
    with recorded_signals("completed", "lease_lost") as told:
        announce(queue, settlements, again, was_applied=lambda one: one is lease)
    assert [name for name, _ in told] == ["completed"]
    assert handle.get(timeout=1) == 8
    with recorded_signals("completed", "lease_lost") as told:
        announce(queue, settlements, again)
    assert [name for name, _ in told] == ["lease_lost"]
