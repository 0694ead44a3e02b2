"""From a lease to a verdict: whatever a message holds, its worker lives on."""

import asyncio
import logging
import sys
from dataclasses import replace

import pytest

from djqueue import current_message, queues
from djqueue.backends.base import Entry
from djqueue.decorators import queue_command
from djqueue.exceptions import InvalidMessage
from djqueue.messages.envelope import new_id
from djqueue.messages.failures import errors_of, with_error
from djqueue.policies.outcomes import Outcome
from djqueue.registry import registry
from djqueue.running.executor import execute
from djqueue.running.settle import settle
from tests.support.consumer import claim_one, message_for, recorded_signals, run_one
from tests.support.notes import cleared_per_test

ran = cleared_per_test([])


@queue_command
def double(number):
    ran.append(current_message())
    return number * 2


@queue_command
def explode(text="boom"):
    raise RuntimeError(text)


@queue_command
def leave():
    sys.exit(3)


@queue_command
def interrupt():
    raise KeyboardInterrupt


@queue_command
def cancel_itself():
    raise asyncio.CancelledError


@queue_command(max_lost=2)
def deadly():
    ran.append("deadly")


@queue_command
async def explode_async():
    await asyncio.sleep(0)
    raise RuntimeError("boom")


def put(queue, entry):
    assert queue.put([entry]) == [True]
    return entry.id


class TestVerdicts:
    def test_done(self, queue):
        handle = double(4)
        with recorded_signals("started", "completed", "failed", "released") as told:
            verdict = run_one(queue)
        assert (verdict.outcome, verdict.value, verdict.exception) == (Outcome.DONE, 8, None)
        assert verdict.seconds >= 0
        about = {"sender": double.name, "id": handle.id, "queue_name": "default", "attempt": 1}
        assert told == [("started", about), ("completed", {**about, "value": 8, "seconds": verdict.seconds})]
        stats = queue.stats()
        assert (stats.ready, stats.delayed, stats.leased, stats.failed, stats.done) == (0, 0, 0, 0, 1)

    @pytest.mark.parametrize(
        ("command", "error"),
        [
            (explode, RuntimeError),
            (leave, SystemExit),
            (interrupt, KeyboardInterrupt),
            (explode_async, RuntimeError),
            (cancel_itself, asyncio.CancelledError),
        ],
    )
    def test_dj17_what_a_command_raises_sends_its_message_to_the_failed_queue(self, queue, command, error):
        handle = command()
        with recorded_signals("started", "completed", "failed") as told:
            verdict = run_one(queue)
        assert verdict.outcome is Outcome.FAILED
        assert isinstance(verdict.exception, error)
        assert [name for name, _ in told] == ["started", "failed"]
        assert told[1][1]["exception"] is verdict.exception
        entry = queue.failed.find(handle.id).entry
        assert (entry.attempts, entry.failures, entry.lost) == (1, 1, 0)
        [record] = errors_of(entry.errors)
        assert record["attempt"] == 1
        assert record["exception"].endswith(error.__name__)
        assert "Traceback" in record["traceback"]
        assert command.func.__name__ in record["traceback"]
        assert len(queue) == 0

    def test_what_went_wrong_is_logged_once_with_all_that_identifies_it(self, queue, caplog):
        handle = explode()
        run_one(queue)
        [record] = [one for one in caplog.records if one.levelno >= logging.WARNING and one.name.startswith("djqueue")]
        assert record.levelno == logging.ERROR
        assert isinstance(record.exc_info[1], RuntimeError)
        assert (record.message_id, record.command) == (handle.id, explode.name)
        assert (record.queue, record.attempt) == ("default", 1)
        assert record.worker

    @pytest.mark.backends("memory")
    def test_arguments_are_not_logged(self, queue, caplog):
        caplog.set_level(logging.DEBUG)
        double("a secret")
        double(object)  # cannot be doubled
        for _ in range(2):
            run_one(queue)
        said = "\n".join(f"{record.getMessage()} {vars(record)}" for record in caplog.records)
        assert double.name in said
        assert "a secret" not in said


class TestInvalid:
    """Undecodable or forged: to the failed queue at once, raw."""

    def check(self, queue, id, data, reason):
        verdict = run_one(queue)
        assert verdict.outcome is Outcome.FAILED
        assert isinstance(verdict.exception, InvalidMessage)
        entry = queue.failed.find(id).entry
        assert entry.body == data
        assert reason in errors_of(entry.errors)[0]["reason"]
        assert (len(queue), ran) == (0, [])

    @pytest.mark.parametrize("data", [b"", b"\xff\x00junk", b"os.system:rm -rf"])
    def test_rubbish(self, queue, data):
        self.check(queue, put(queue, Entry(data, new_id(), command="x")), data, "not a message of djqueue")

    def test_one_changed_bit(self, queue):
        entry = message_for(queue, double.name, 4)
        data = entry.body[:-1] + bytes([entry.body[-1] ^ 1])
        self.check(queue, put(queue, replace(entry, body=data)), data, "bad signature")

    @pytest.mark.backends("memory")
    def test_a_message_of_another_site(self, queue, settings):
        entry = message_for(queue, double.name, 4)
        settings.SECRET_KEY = "another-secret-key-of-another-site-0123456789"
        self.check(queue, put(queue, entry), entry.body, "bad signature")

    @pytest.mark.backends("memory")
    def test_a_retired_key_still_verifies(self, queue, settings):
        entry = message_for(queue, double.name, 4)
        settings.SECRET_KEY_FALLBACKS = [settings.SECRET_KEY]
        settings.SECRET_KEY = "the-new-secret-key-of-this-site-0123456789-abc"
        put(queue, entry)
        assert run_one(queue).value == 8

    @pytest.mark.backends("memory")
    def test_a_replay_under_another_id(self, queue):
        entry = replace(message_for(queue, double.name, 4), id="another")
        self.check(queue, put(queue, entry), entry.body, "bad signature")

    @pytest.mark.backends("memory")
    def test_a_message_of_another_queue(self, backend, settings):
        settings.QUEUES = backend.queues("default", "other")
        entry = message_for(queues["other"], double.name, 4)
        self.check(queues["default"], put(queues["default"], entry), entry.body, "bad signature")

    @pytest.mark.backends("memory")
    def test_arguments_that_cannot_be_decoded(self, queue):
        entry = message_for(queue, double.name, Vanishing())
        del globals()["Vanishing"]
        self.check(queue, put(queue, entry), entry.body, "cannot be decoded")


class Vanishing:
    """A class that is gone when the message is read."""


UNKNOWN = (
    "unknown command 'no.such.command': its module is not in the package of an installed app here: move it there, or "
    "name its package in a setting, as in QUEUE_IMPORT = ('no',)"
)


def aged(lease, age):
    """The lease as it were, had it been noted so many seconds before the claim that nobody knows the command."""
    at = lease.entry.created
    note = with_error("", at=at, attempt=1, reason=UNKNOWN)
    return replace(lease, claimed=at + age, entry=replace(lease.entry, errors=note))


@pytest.mark.backends("memory", "sqlite", "redis")
class TestUnknown:
    """DJ-18: an unknown command waits in its place, uncounted, longer each time; then it is kept aside."""

    def test_dj18_it_is_put_back_uncounted_with_a_growing_pause(self, queue):
        put(queue, message_for(queue, "no.such.command", 1))
        lease = claim_one(queue)
        pauses = []
        for age in (0, 40, 400):
            verdict = execute(queue, aged(lease, age))
            assert verdict.outcome is Outcome.POSTPONED
            assert "no.such.command" in verdict.reason
            pauses.append(verdict.delay)
        assert pauses == pytest.approx([1, 10, 60], abs=0.01)

    def test_dj18_it_goes_back_as_if_it_had_not_been_claimed(self, queue):
        id = put(queue, message_for(queue, "no.such.command", 1))
        called = queue.now()
        with recorded_signals("started", "released", "failed") as told:
            run_one(queue)
        assert [(name, about["id"]) for name, about in told] == [("released", id)]
        record = queue.find(id)
        assert record.state == "delayed" or queue.now() >= called + 1
        assert (record.entry.attempts, record.entry.failures, record.entry.lost) == (0, 0, 0)
        assert len(queue.failed) == 0

    def test_dj18_after_an_hour_it_is_kept_aside(self, queue, settings):
        id = put(queue, message_for(queue, "no.such.command", 1))
        lease = claim_one(queue)
        assert execute(queue, aged(lease, 3599)).outcome is Outcome.POSTPONED
        verdict = execute(queue, aged(lease, 3601))
        assert (verdict.outcome, verdict.reason) == (Outcome.FAILED, UNKNOWN)
        settle(queue, [(lease, verdict)])
        entry = queue.failed.find(id).entry
        assert "unknown command" in errors_of(entry.errors)[0]["reason"]
        assert entry.failures == 0

    @pytest.mark.backends("memory")
    def test_the_time_is_a_setting(self, settings, backend):
        settings.QUEUE_UNKNOWN_AFTER = 10
        settings.QUEUES = backend.queues()
        queue = queues["default"]
        start = queue.now()
        put(queue, message_for(queue, "no.such.command"))
        queue.clock = lambda: start + 7200  # it waited long, but not because nobody knew it
        assert run_one(queue).outcome is Outcome.POSTPONED
        queue.clock = lambda: start + 7209
        assert run_one(queue).outcome is Outcome.POSTPONED
        queue.clock = lambda: start + 7220
        assert run_one(queue).outcome is Outcome.FAILED

    @pytest.mark.backends("memory")
    def test_the_command_that_a_deploy_brings_runs(self, queue):
        put(queue, message_for(queue, double.name, 4))
        registry.unregister(double)
        try:
            run_one(queue)
        finally:
            registry.register(double)
        assert ran == []
        now = queue.now()
        queue.clock = lambda: now + 2
        assert run_one(queue).value == 8
        assert ran[0].attempt == 1


@pytest.mark.backends("memory", "sqlite", "redis")
@pytest.mark.parametrize(("command", "most"), [(double, 3), (deadly, 2)])
def test_what_was_lost_too_often_is_not_started_again(queue, command, most):
    entry = replace(message_for(queue, command.name, *((4,) if command is double else ())), lost=most - 1)
    put(queue, entry)
    assert run_one(queue).outcome is Outcome.DONE
    id = put(queue, replace(message_for(queue, command.name), lost=most))
    ran.clear()
    with recorded_signals("started", "failed") as told:
        verdict = run_one(queue)
    assert verdict.reason == f"worker died: {most} attempts never reported"
    assert (ran, [name for name, _ in told]) == ([], ["failed"])
    entry = queue.failed.find(id).entry
    assert (entry.lost, entry.failures) == (most, 0)
    assert "worker died" in errors_of(entry.errors)[0]["reason"]
