"""What the log says of messages that run: one record for what ended alike, one for each failure, no frames but the
project's own."""

import json
import logging
import re
from types import SimpleNamespace

import pytest

from djqueue import Discard, Fail, PartialFailure, Retry, RetryPolicy
from djqueue.backends.base import Entry
from djqueue.consumer.in_flight import Message
from djqueue.consumer.maintenance import TimeLimits
from djqueue.decorators import queue_command
from djqueue.logs import JsonFormatter
from djqueue.messages.envelope import new_id
from djqueue.messages.failures import errors_of
from djqueue.running.context import Control
from djqueue.running.executor import execute_batch
from djqueue.running.handlers import HandlerSlot
from djqueue.utils import clock
from tests.support.consumer import run_one

pytestmark = pytest.mark.backends("memory")


@queue_command(retry_on=[ConnectionError], backoff=6, max_attempts=2, describe=lambda what, **_: f"about {what}")
def do(what):
    if isinstance(what, str):
        complain(what)
    if what is not None:
        raise what


def complain(what):
    try:
        raise KeyError(what)
    except KeyError as error:
        raise ValueError(what) from error


@queue_command
async def do_async(what):
    complain(what)


@queue_command(batch=10, describe=lambda number: f"number {number}", retry_on=[ConnectionError], backoff=6)
def do_many(numbers):
    if any(number < 0 for number in numbers):
        raise RuntimeError("away")
    kinds = {1: ValueError("one"), 2: ConnectionError("two"), 3: ConnectionError("three"), 4: Discard("four")}
    raise PartialFailure({index: kinds[number] for index, number in enumerate(numbers) if number in kinds})


@pytest.fixture
def report_records(caplog):
    caplog.set_level(logging.INFO, "djqueue")
    return lambda: [one for one in caplog.records if one.name == "djqueue.running.reporting"]


def run_together(queue, numbers):
    do_many.enqueue_many([(number,) for number in numbers])
    leases = queue.claim(len(numbers))
    execute_batch(queue, leases, [Control(queue, lease) for lease in leases], HandlerSlot())
    return [lease.entry.id for lease in leases]


def frames(trace):
    names = []
    while trace is not None:
        names.append(trace.tb_frame.f_code.co_name)
        trace = trace.tb_next
    return names


class TestOne:
    def test_what_is_done_says_what_it_was_about(self, queue, report_records):
        handle = do(None)
        run_one(queue)
        [record] = report_records()
        assert (record.levelname, record.event, record.description) == ("INFO", "done", "about None")
        assert (record.message_id, record.command, record.queue, record.attempt) == (handle.id, do.name, "default", 1)
        assert 0 < record.duration < 10 and not hasattr(record, "reason")
        assert record.getMessage().startswith(f"{do.name} (about None) done (message {handle.id}, attempt 1, 0.")

    @pytest.mark.parametrize("command", [do, do_async])
    def test_the_traceback_of_a_failure_begins_at_the_command(self, queue, report_records, command):
        handle = command("paint")
        run_one(queue)
        [record] = report_records()
        assert (record.event, record.reason) == ("failed", "ValueError: paint")
        error = record.exc_info[1]
        assert frames(record.exc_info[2]) == frames(error.__traceback__) == [command.__name__, "complain"]
        assert frames(error.__cause__.__traceback__) == ["complain"]
        [kept] = errors_of(queue.failed.find(handle.id).entry.errors)
        assert "in complain" in kept["traceback"]
        assert "djqueue/" not in kept["traceback"].replace("/tests/", "")

    def test_with_all_that_there_is_it_has_every_frame(self, queue, report_records, caplog):
        caplog.set_level(logging.DEBUG, "djqueue")
        handle = do("paint")
        run_one(queue)
        started, failed = report_records()
        assert (started.event, started.levelname, started.description) == ("started", "DEBUG", "about paint")
        assert frames(failed.exc_info[2])[0] == "attempt"
        assert "running/executor.py" in errors_of(queue.failed.find(handle.id).entry.errors)[0]["traceback"]

    def test_a_retry_is_one_line(self, queue, report_records):
        do(ConnectionError("refused\nat once"))
        run_one(queue)
        [record] = report_records()
        assert (record.levelname, record.event, record.delay) == ("WARNING", "retried", 6.0)
        assert (record.reason, record.exc_info) == ("ConnectionError: refused at once", None)
        assert " is retried: ConnectionError: refused at once (" in record.getMessage()
        assert record.getMessage().endswith(", again in 6.0 s)")
        assert (record.attempt, record.max_attempts) == (1, 2)
        assert ", attempt 1 of 2, " in record.getMessage()

    @pytest.mark.parametrize(
        ("error", "most", "text"),
        [
            (ConnectionError("x"), 4, "attempt 1 of 4, "),
            (TimeoutError("x"), 7, "attempt 1 of 7, "),
            (Retry(reason="x"), 1000, "attempt 1 of 1000, "),
        ],
        ids=["of the command", "of its class", "asked for"],
    )
    def test_of_a_retry_it_says_how_many_attempts_there_may_be(self, queue, report_records, error, most, text):
        listed = {TimeoutError: RetryPolicy(max_attempts=7), ConnectionError: True}
        do.using(retry_on=listed, max_attempts=4)(error)
        run_one(queue)
        [record] = report_records()
        assert (record.event, record.max_attempts, text in record.getMessage()) == ("retried", most, True)
        assert json.loads(JsonFormatter().format(record))["max_attempts"] == most

    def test_without_a_bound_it_says_which_attempt_it_was(self, queue, report_records, settings):
        settings.QUEUE_MAX_STARTS = None
        do(Retry(reason="x"))
        run_one(queue)
        [record] = report_records()
        assert "attempt 1, " in record.getMessage() and not hasattr(record, "max_attempts")

    @pytest.mark.parametrize(
        ("raised", "event"),
        [(Fail("no such"), "failed"), (Discard("no such"), "discarded"), (Retry(reason="no such"), "retried")],
    )
    def test_what_a_command_says_in_words_has_no_traceback(self, queue, report_records, raised, event):
        do(raised)
        run_one(queue)
        [record] = report_records()
        assert (record.event, record.reason, record.exc_info) == (event, "no such", None)

    def test_what_cannot_be_verified_has_none_either(self, queue, report_records):
        queue.put([Entry(b"rubbish", new_id(), command="any")])
        run_one(queue)
        [record] = report_records()
        assert (record.levelname, record.event, record.exc_info) == ("ERROR", "failed", None)
        assert "not a message of djqueue" in record.reason


class TestBatch:
    def test_what_ended_alike_is_one_record(self, queue, report_records):
        ids = run_together(queue, [0, 1, 2, 0, 3, 4, 0])
        done, failed, retried, discarded = report_records()
        assert [one.event for one in report_records()] == ["done", "failed", "retried", "discarded"]
        assert (done.message_ids, done.count, done.message_id) == ([ids[0], ids[3], ids[6]], 3, None)
        assert done.getMessage().startswith(f"{do_many.name} done (3 messages, 0.")
        assert (failed.message_id, failed.description, failed.reason) == (ids[1], "number 1", "ValueError: one")
        assert (retried.message_ids, retried.delay) == ([ids[2], ids[4]], 6.0)
        assert retried.reason == "ConnectionError: two, and others"
        assert (discarded.message_id, discarded.reason) == (ids[5], "four")

    def test_each_failure_is_a_record_of_level_error_and_their_traceback_is_there_once(self, queue, report_records):
        ids = run_together(queue, [0, -1, 0])
        assert [(one.levelname, one.event, one.message_id) for one in report_records()] == [
            ("ERROR", "failed", id) for id in ids
        ]
        assert [one.alike for one in report_records()] == [3, 0, 0]
        assert [bool(one.exc_info) for one in report_records()] == [True, False, False]
        assert frames(report_records()[0].exc_info[2]) == ["do_many"]


class TestStarted:
    def started_ago(self, queue, seconds):
        messages = [Message(None, queue, lease, clock()) for lease in queue.claim(10)]
        began = clock() - seconds
        for one in messages:
            one.began, one.control = began, SimpleNamespace(description="about it", ends=None)
        return messages

    def test_what_has_run_for_a_second_is_said_once_to_have_started(self, queue, report_records):
        handle = do(None)
        messages = self.started_ago(queue, 1.5)
        limits = TimeLimits(lambda: messages, lambda message: None)
        for _ in range(2):
            limits.tick()
        [record] = report_records()
        assert (record.levelname, record.event, record.message_id) == ("INFO", "started", handle.id)
        assert 1.5 <= record.duration < 10
        assert record.description == "about it"
        assert re.search(r"\(about it\) started \d+\.\d s ago \(message ", record.getMessage())

    def test_what_is_shorter_is_not(self, queue, report_records):
        do(None)
        messages = self.started_ago(queue, 0.5)
        TimeLimits(lambda: messages, lambda message: None).tick()
        assert report_records() == []

    def test_a_batch_is_one_record(self, queue, report_records):
        do_many.enqueue_many([(1,), (2,)])
        messages = self.started_ago(queue, 2)
        TimeLimits(lambda: messages, lambda message: None).tick()
        [record] = report_records()
        assert (record.count, sorted(record.message_ids)) == (2, sorted(one.lease.entry.id for one in messages))
        assert re.search(r"started \d+\.\d s ago \(2 messages\)", record.getMessage())
