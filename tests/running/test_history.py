"""The records of what has ended, from a run to what Result.status says."""

import json
from math import inf

import pytest

from djqueue import Discard, Fail, Result, queues
from djqueue.backends import history
from djqueue.backends.base import Entry, Lease
from djqueue.backends.history import MOMENT, bounds, bounds_of
from djqueue.consumer.maintenance import Reaper
from djqueue.decorators import queue_command
from djqueue.policies.outcomes import Outcome, Verdict
from djqueue.running.ends import End
from djqueue.running.executor import serve
from djqueue.running.finding import recorded
from djqueue.running.history import read, record_of
from djqueue.testing import eventually
from tests.support.consumer import claim_one, exit_code, recorded_signals, run_one, serving

BACKENDS = pytest.mark.backends("memory", "redis")
MEMORY = pytest.mark.backends("memory")


class Hiccup(Exception):
    pass


@queue_command(retry_on=[Hiccup], backoff=False, max_attempts=2)
def act(how, secret=""):
    if how == "discard":
        raise Discard("not wanted")
    if how == "fail":
        raise Fail("cannot be")
    if how == "raise":
        raise Hiccup("now and then")
    return how


@queue_command(sensitive=("secret",))
def whisper(word, secret):
    return word.upper()


@pytest.fixture
def queue(backend, settings):
    settings.QUEUES = backend.queues("default")
    return queues["default"]


def ends(queue, *handles):
    return [recorded(queue, handle.id) for handle in handles]


@BACKENDS
class TestAConsumer:
    def test_leaves_a_record_of_every_end(self, queue):
        hows = ["done", "discard", "fail", "raise"]
        handles = [act(how) for how in hows]
        handles.append(late := act.using(ttl=0.001).enqueue("late"))
        eventually(lambda: queue.now() > queue.find(late.id).entry.created + 0.01)
        assert exit_code(threads=2, drain=True) == 0
        told = ends(queue, *handles)
        statuses = ["done", "discarded", "failed", "failed", "expired"]
        assert [one.status for one in told] == [handle.status for handle in handles] == statuses
        assert [one.attempts for one in told] == [1, 1, 1, 2, 0]
        assert [one.reason for one in told[:4]] == ["", "not wanted", "Fail", "Hiccup"]
        assert "its ttl of 0.001 s is over" in told[4].reason
        for one in told:
            assert one.command == act.name and one.worker
            assert one.enqueued <= one.began <= one.ended <= queue.now() + 1
            assert one.seconds == pytest.approx(one.ended - one.began, abs=1e-5)
            assert (one.call, one.returned) == ("", "")

    def test_that_is_watched_leaves_the_same(self, queue):
        """A receiver of ``completed`` is called by the announcer; the records are written by the pump."""
        handles = [act(str(number)) for number in range(20)]
        with recorded_signals("completed") as told:
            assert exit_code(threads=2, drain=True) == 0
        assert len(told) == 20
        assert {one.status for one in ends(queue, *handles)} == {"done"}

    def test_keeps_results_and_records(self, queue):
        handle = act.using(result_ttl=60).enqueue("done")
        assert exit_code(threads=1, drain=True) == 0
        assert (handle.get(timeout=0), recorded(queue, handle.id).status) == ("done", "done")

    def test_keeps_none_without_the_setting(self, queue, settings):
        settings.QUEUE_HISTORY = None
        handle = act("done")
        assert exit_code(threads=1, drain=True) == 0
        assert (queue.stats().done, handle.status, list(queue.history.page())) == (1, "unknown", [])

    def test_settles_though_the_setting_is_wrong(self, queue, settings):
        settings.QUEUE_HISTORY = {"count": "many"}
        act("done")
        assert exit_code(threads=1, drain=True) == 0
        assert (queue.stats().done, list(queue.history.page())) == (1, [])

    def test_keeps_arguments_and_value_if_asked(self, queue, settings):
        settings.QUEUE_HISTORY = {"arguments": True, "value": True}
        handle, failed = whisper("word", "k\te\ny"), act("raise", secret="\t\n")
        assert exit_code(threads=1, drain=True) == 0
        told, other = ends(queue, handle, failed)
        assert (told.call, told.returned) == ("whisper(word='word', secret=***)", "'WORD'")
        assert (other.status, other.call, other.returned) == ("failed", "act(how='raise', secret='\\t\\n')", "")


@BACKENDS
def test_a_loop_of_ones_own_leaves_records(queue):
    handle = act("done")
    serve(queue, claim_one(queue))
    assert (handle.status, recorded(queue, handle.id).attempts) == ("done", 1)


@BACKENDS
def test_what_is_requeued_is_not_as_it_ended(queue):
    handle = act("fail")
    run_one(queue)
    assert handle.status == "failed"
    queue.failed.remove([handle.id])
    assert handle.status == "failed", "it was deleted by an operator, which its record does not tell"
    handle = act("fail")
    run_one(queue)
    assert queue.requeue([handle.id]) == 1
    assert handle.status == "ready"
    lease = claim_one(queue)
    assert handle.status == "running"
    queue.complete(lease, history=[record_of(lease, Verdict(Outcome.DONE))])
    assert handle.status == "done"


@MEMORY
def test_a_consumer_trims_what_is_too_old_and_all_once_it_is_off(queue, settings):
    act("done")
    run_one(queue)
    with serving(threads=1):
        settings.QUEUE_HISTORY = None
        reaper = Reaper([queue], lambda queue: 60.0)
        reaper.tick()
    assert list(queue.history.page()) == []


@BACKENDS
def test_many_messages_leave_a_bounded_history(queue, settings):
    settings.QUEUE_HISTORY = {"count": 500}
    act.enqueue_many([(str(number),) for number in range(4000)])
    assert exit_code(threads=2, drain=True) == 0
    assert queue.stats().done == 4000
    queue.history.trim(500, 3600)
    assert 250 <= len(queue.history.page(limit=5000)) <= 500


# ---- records


def lease_of(**fields):
    return Lease(Entry(b"", "id", attempts=1, created=1795432120.25, **fields), claimed=1795432123.5)


def test_a_record_is_one_line_that_begins_with_its_end():
    record = record_of(lease_of(command="a.b"), Verdict(Outcome.DONE, seconds=0.5), "me", elapsed=2.0)
    assert record[:MOMENT] == b"1795432125500000"
    assert read(record) == End("done", "a.b", "me", 1, 1795432120.25, 1795432125.0, 1795432125.5, 0.5)
    early = record_of(lease_of(command="a.b"), Verdict(Outcome.DONE, seconds=0.5), "me")
    assert early < record and read(early).ended == 1795432124.0


@pytest.mark.parametrize("words", ["\t", "a\nb", "%d %s %%", "\x00", "žluť 🐎", "\ud800", "x" * 5000])
def test_words_cannot_end_a_field_or_a_line(words):
    error = type(words.encode("ascii", "replace").decode().replace("\x00", "0"), (Exception,), {})()
    for verdict in (Verdict(Outcome.FAILED, words), Verdict(Outcome.FAILED, words, error)):
        record = record_of(lease_of(command=words), verdict, words)
        assert record and not {*b"\n\r\x00"} & {*record}
        ended = read(record)
        assert (ended.status, ended.attempts, ended.seconds) == ("failed", 1, 0.0)
        assert ended.command == ended.worker
        assert len(ended.reason) <= 200


@pytest.mark.parametrize("record", [b"", b"\xff\xfe", b"1\t2", b"x\tdone\t1\t1\t1\t\t\t\t"])
def test_a_record_that_cannot_be_read_says_nothing(record):
    assert read(record) == End()


def test_details_that_are_no_object_are_left_out():
    for text in ("{[", "[1]", "5", "null", json.dumps({"call": None}), "[" * 100_000):
        assert read(f"1\tdone\t1\t1\t1\tme\tit\t\t{text}".encode()).worker == "me"


def test_what_no_record_can_be_made_of_leaves_none(caplog):
    assert record_of(lease_of(), Verdict(Outcome.DONE), elapsed=inf) == b""
    assert "No record of message id can be made" in caplog.text


@MEMORY
def test_a_record_that_is_none_leaves_the_status_unknown(queue):
    queue.history.keep(["id"], [b"1795432125500000 forged"])
    assert Result("id").status == "unknown"


def test_the_setting_is_read_once(settings):
    settings.QUEUE_HISTORY = {"age": 60}
    assert bounds() is bounds()
    assert (bounds().age, bounds().count) == (60.0, 100_000)
    settings.QUEUE_HISTORY = {}
    assert bounds() is None
    settings.QUEUE_HISTORY = {"age": 0}
    assert bounds() is None
    with pytest.raises(ValueError, match=r"QUEUE_HISTORY\['age'\]"):
        bounds_of(settings.QUEUE_HISTORY)
    with pytest.raises(ValueError, match=r"QUEUE_HISTORY\['count'\] is too large"):
        bounds_of({"count": 10**30})


def test_threads_that_read_the_setting_at_once_all_keep_a_history(settings, monkeypatch):
    """Two settle at the start of a process: neither may take the setting for none while the other one reads it."""
    found = []

    def read_meanwhile(given):
        monkeypatch.setattr(history, "bounds_of", bounds_of)
        found.append(bounds())
        return bounds_of(given)

    settings.QUEUE_HISTORY = {"age": 60}
    monkeypatch.setattr(history, "bounds_of", read_meanwhile)
    assert [bounds().age, found[0].age] == [60.0, 60.0]
