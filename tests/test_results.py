"""What the handle of a call tells: where it stands, what it returned, how far it is; and how it is cancelled."""

import asyncio
import pickle
import threading
import time
from datetime import timedelta
from types import SimpleNamespace

import pytest
from asgiref.sync import async_to_sync
from django.db import transaction
from django.test import override_settings

from djqueue import Cancelled, Discard, Fail, Result, Retry, current_message, queues, results
from djqueue.backends.base import Entry, NoStore
from djqueue.decorators import queue_command
from djqueue.exceptions import CommandFailed, NoResult, ResultTimeout
from djqueue.messages.envelope import pack_item
from djqueue.messages.failures import LONGEST_REASON
from djqueue.policies.outcomes import Outcome, Verdict
from djqueue.results import Progress, statuses
from djqueue.running.executor import execute
from djqueue.running.settle import settle
from djqueue.testing import eventually
from tests.app.models import Thing
from tests.support.backends import ACROSS
from tests.support.consumer import (
    Release,
    claim_one,
    ended_as,
    exit_code,
    message_for,
    recorded_signals,
    run_one,
    serving,
)
from tests.support.notes import cleared_per_test

EVERY = pytest.mark.backends(*ACROSS)
MEMORY = pytest.mark.backends("memory")
SOME = pytest.mark.backends("memory", "sqlite", "redis")
releases: dict[str, Release] = {}
opened = cleared_per_test([])


class Hiccup(Exception):
    def __reduce__(self):
        return opened.append, ("an exception was rebuilt",)


class Bomb:
    """Says so when it is unpickled."""

    def __reduce__(self):
        return opened.append, ("boom",)


class Leaver:
    """What wants to end the process when it is pickled."""

    def __reduce__(self):
        raise SystemExit(3)


@queue_command(result_ttl=60)
def echo(value=None, times=1):
    return value * times if times != 1 else value


@queue_command
def forgetful(value=None):
    return value


@queue_command(result_ttl=60)
async def aecho(value):
    await asyncio.sleep(0)
    return value


@queue_command(result_ttl=60, retry_on=[Hiccup], backoff=60, max_attempts=2)
def stumble(text="boom", note=""):
    error = Hiccup(text)
    error.add_note(note * 5)
    raise error


@queue_command(result_ttl=60)
def say(way, *given):
    raise {"discard": Discard, "fail": Fail, "retry": Retry}[way](*given)


@queue_command(result_ttl=60)
def unkeepable(kind):
    return {
        "lock": threading.Lock,
        "lambda": lambda: lambda: None,
        "leaver": Leaver,
        "generator": lambda: (number for number in range(3)),
        "deep": lambda: deep(10**5),
        "large": lambda: "x" * 2**20,
    }[kind]()


def deep(levels):
    value = []
    for _ in range(levels):
        value = [value]
    return value


RETURNED = {"error": ValueError, "retry": Retry, "discard": Discard, "interrupt": KeyboardInterrupt}


@queue_command(result_ttl=60, retry_on=[Exception])
def give_back(name):
    return RETURNED[name]()


@queue_command(result_ttl=60)
async def agive_back(name):
    return RETURNED[name]()


@queue_command(result_ttl=60)
def things():
    return Thing.objects.using("no such alias").all()


@queue_command(result_ttl=60)
def tell(done, total=None, note=""):
    current_message().progress(done, total, note)


@queue_command
def tell_too_much():
    current_message().progress(1, 2, "x" * 2**21)


@queue_command(result_ttl=60)
def tell_and_wait(name, alias=""):
    """Within a transaction of its own, if there is a database."""
    if not alias:
        return _tell_and_wait(name)
    with transaction.atomic(using=alias):
        Thing.objects.using(alias).create(name="half way")
        return _tell_and_wait(name)


def _tell_and_wait(name):
    for done in (1, 2, 3):
        current_message().progress(done, 4, "rows")
    releases[name].wait()


@queue_command(result_ttl=60)
def until_cancelled():
    deadline = time.monotonic() + 20
    while not current_message().cancelled and time.monotonic() < deadline:
        time.sleep(0.005)
    raise Discard("as its owner wants")


@queue_command(result_ttl=60, retry_on=[Hiccup], backoff=False, max_attempts=9)
def fail_until_cancelled():
    while not current_message().cancelled:
        time.sleep(0.005)
    raise Hiccup("and does not listen")


@pytest.fixture
def release(monkeypatch):
    made = Release()
    monkeypatch.setitem(releases, "release", made)
    yield made
    made.set()


def leave(id, queue, value, ttl=60):
    """Put something under the key of a result."""
    queue.store.put(f"result:{id}", value, ttl)


@MEMORY
@pytest.mark.parametrize("command", [give_back, agive_back], ids=["plain", "async"])
@pytest.mark.parametrize("name", RETURNED)
def test_an_exception_that_is_returned_is_no_failure(queue, command, name):
    handle = command(name)
    verdict = run_one(queue)
    assert (verdict.outcome, handle.status, handle.errors, queue.stats().done) == (Outcome.DONE, "done", [], 1)
    with serving(threads=1):
        last = command(name)
        eventually(lambda: last.status == "done")
    assert isinstance(last.get(), RETURNED[name])


@EVERY
class TestStatus:
    @pytest.mark.parametrize("value", [{"n": [1, 2]}, None])
    def test_from_ready_to_done(self, queue, value):
        handle = echo(value)
        assert (handle.enqueued, handle.status, handle.progress, handle.errors) == (True, "ready", None, [])
        lease = claim_one(queue)
        assert handle.status == "running"
        settle(queue, [(lease, execute(queue, lease))])
        assert (handle.status, handle.get(), handle.errors) == ("done", value, [])
        assert handle.get(timeout=0) == value

    def test_from_delayed_by_retries_to_failed(self, queue):
        handle = stumble.using(delay=60).enqueue()
        assert handle.status == "delayed"
        handle = stumble()
        run_one(queue)
        assert handle.status == "delayed"
        assert [error["reason"] for error in handle.errors] == ["Hiccup: boom"]
        queue.remove([handle.id])
        handle = stumble.using(backoff=False).enqueue()
        run_one(queue), run_one(queue)
        assert handle.status == "failed"
        assert [error["attempt"] for error in handle.errors] == [1, 2]

    @pytest.mark.parametrize(("way", "status"), [("discard", "discarded"), ("fail", "failed")])
    def test_by_its_own_word(self, queue, way, status):
        handle = say(way, "because")
        run_one(queue)
        assert handle.status == status
        with pytest.raises(CommandFailed, match=f"{status}: because") as failed:
            handle.get()
        assert (failed.value.status, failed.value.reason) == (status, "because")
        assert failed.value.__notes__ == [f"Message {handle.id} of {say.name} in queue {queue.alias!r}."]

    def test_expired(self, queue):
        handle = echo.using(ttl=0.02).enqueue(1)
        time.sleep(0.04)
        run_one(queue)
        assert handle.status == "expired"
        with pytest.raises(CommandFailed, match="expired: its ttl of 0.02 s is over"):
            handle.get()

    def test_without_a_result_ttl_the_history_knows_what_became_of_it(self, queue):
        handle = forgetful(1)
        assert handle.status == "ready"
        run_one(queue)
        assert handle.status == ended_as(queue, "done")
        with pytest.raises(NoResult, match="is not kept"):
            handle.get()
        handle = say.using(result_ttl=None).enqueue("fail", "because")
        run_one(queue)
        assert handle.status == "failed"  # it is still in the failed queue
        assert handle.errors[0]["reason"] == "because"

    def test_a_result_is_kept_for_its_time(self, queue):
        handle = echo.using(result_ttl=0.3).enqueue(1)
        run_one(queue)
        assert handle.status == "done"
        eventually(lambda: queue.store.get(f"result:{handle.id}") is None)
        assert handle.status == ended_as(queue, "done")

    def test_what_is_retried_from_the_failed_queue_lives_again(self, queue):
        handle = say("fail", "first")
        run_one(queue)
        assert queue.requeue([handle.id]) == 1
        assert handle.status == "ready"
        with pytest.raises(ResultTimeout):
            handle.get(timeout=0.02)
        lease = claim_one(queue)
        settle(queue, [(lease, Verdict(Outcome.DONE, value=5, keep=60))])
        assert (handle.status, handle.get()) == ("done", 5)

    def test_of_many_messages_it_is_that_of_each(self, queue):
        ended = [
            echo(1),
            forgetful(1),
            say("discard", "no"),
            say("fail", "no"),
            say.using(result_ttl=None)("fail", "no"),
        ]
        again = [say("fail", "first"), say.using(result_ttl=None)("fail", "first")]
        for _ in ended + again:
            run_one(queue)
        waits = [echo(2), echo.using(delay=60).enqueue(3)]
        claim_one(queue)
        assert queue.requeue([handle.id for handle in again]) == 2
        handles = [*ended, *again, *waits, Result("never-seen")]
        assert statuses(queue, [handle.id for handle in handles]) == [handle.status for handle in handles]
        assert [handle.status for handle in again] == ["ready"] * 2
        assert statuses(queue, []) == []

    def test_a_call_on_another_queue_is_looked_for_there(self, queue, backend, settings):
        settings.QUEUES = backend.queues("default", "other")
        handle = echo.using(queue_name="other").enqueue(7)
        assert (handle.queue_name, handle.status) == ("other", "ready")
        run_one(queues["other"])
        assert handle.get() == 7
        assert Result(handle.id, queue_name="default").status == "unknown"

    def test_two_handles_of_one_message_agree(self, queue):
        first = echo("x")
        second = Result(first.id)
        third = pickle.loads(pickle.dumps(first))
        assert third == first
        run_one(queue)
        assert {handle.status for handle in (first, second, third)} == {"done"}
        assert [handle.get() for handle in (first, second, third)] == ["x"] * 3


@EVERY
class TestGet:
    def test_it_waits_until_it_is_there(self, queue):
        handle = echo(3)
        with serving(threads=1):
            assert handle.get(timeout=20) == 3

    def test_async_code_waits_too(self, queue):
        async def call():
            handles = [await aecho.aenqueue(number) for number in range(3)]
            return await asyncio.gather(*(handle.aget(timeout=20) for handle in handles))

        with serving(threads=2):
            assert async_to_sync(call)() == [0, 1, 2]

    def test_patience_ends(self, queue):
        handle, began = echo(3), time.monotonic()
        with pytest.raises(ResultTimeout, match=r"after 0.05 s; its status: ready. No consumer has begun it") as late:
            handle.get(timeout=0.05)
        assert isinstance(late.value, TimeoutError)
        assert 0.05 <= time.monotonic() - began < 5
        with pytest.raises(ResultTimeout):
            handle.get(timeout=0)
        with pytest.raises(ResultTimeout):
            async_to_sync(handle.aget)(timeout=0.02)

    def test_a_failure_is_told_as_text_with_every_attempt(self, queue):
        handle = stumble.using(backoff=False).enqueue("ä \x00 \N{PILE OF POO}")
        run_one(queue), run_one(queue)
        for wait in (handle.get, lambda: async_to_sync(handle.aget)()):
            with pytest.raises(CommandFailed) as failed:
                wait()
            error = failed.value
            assert (error.status, error.reason) == ("failed", "Hiccup: ä \x00 \N{PILE OF POO}")
            assert [one["attempt"] for one in error.errors] == [1, 2]
            assert all("in stumble" in one["traceback"] for one in error.errors)
        assert opened == []

    def test_it_does_not_wait_for_what_is_not_kept(self, queue):
        handle = forgetful(3)
        assert handle.kept is False
        with pytest.raises(NoResult, match="give .*forgetful a result_ttl"):
            handle.get()
        with pytest.raises(NoResult):
            async_to_sync(handle.aget)()
        with pytest.raises(ResultTimeout, match="its status: ready"):
            Result(handle.id).get(timeout=0)  # it does not know

    def test_what_ended_without_a_result_is_told_at_once(self, queue, monkeypatch):
        monkeypatch.setattr(results, "LAST_LOOK", 60)
        quiet = say.using(result_ttl=None)
        done, failed, dropped = forgetful(1), quiet.enqueue("fail", "because"), quiet.enqueue("discard", "not wanted")
        run_one(queue), run_one(queue), run_one(queue)
        for handle in (done, Result(done.id)):
            with pytest.raises(NoResult, match="is done, and what it returned is not kept.*: keep it with result_ttl"):
                handle.get(timeout=60)
        for handle in (failed, Result(failed.id)):
            with pytest.raises(CommandFailed, match="failed: because") as told:
                handle.get(timeout=60)
            assert [one["attempt"] for one in told.value.errors] == [1]
        queue.failed.remove([failed.id])
        for handle, reason in ((failed, "failed: Fail"), (dropped, "discarded: not wanted")):
            for one in (handle, Result(handle.id)):
                with pytest.raises(CommandFailed, match=reason):
                    one.get(timeout=0)

    def test_it_does_not_wait_for_what_was_not_put(self, queue):
        echo.using(unique=True).enqueue(1)
        second = echo.using(unique=True).enqueue(1)
        assert second.enqueued is False
        with pytest.raises(NoResult, match="another call stands for it"):
            second.get()

    def test_what_could_not_be_read_has_failed(self, queue):
        """Nobody knew for how long its result was to be kept."""
        entry = Entry(b"rubbish", "an-id")
        queue.put([entry])
        run_one(queue)
        handle = Result("an-id")
        assert handle.status == "failed"
        with pytest.raises(CommandFailed, match="invalid message"):
            handle.get(timeout=20)

    def test_it_waits_for_what_waits_and_not_for_what_is_gone(self, queue, monkeypatch):
        monkeypatch.setattr(results, "LAST_LOOK", 0.02)
        monkeypatch.setattr(results, "GONE_AFTER", 0.05)
        handle = echo.using(delay=60).enqueue(1)
        with pytest.raises(ResultTimeout, match="its status: delayed"):
            handle.get(timeout=0.5)
        queue.remove([handle.id])
        with pytest.raises(ResultTimeout, match="unknown. Queue 'default' has no such message"):
            handle.get(timeout=0)
        for wait in (handle.get, async_to_sync(handle.aget)):
            with pytest.raises(NoResult, match="neither in its queue nor among the errors"):
                wait(timeout=20)

    def test_the_setting_keeps_the_results_of_all(self, queue, settings, backend):
        settings.QUEUE_RESULT_TTL = timedelta(minutes=1)
        handle = forgetful(3)
        assert handle.kept is True
        run_one(queues["default"])
        assert handle.get() == 3


@MEMORY
def test_a_setting_that_is_no_time_lets_nothing_run_nor_be_sent(settings, backend):
    """Rather than run it and then not know what to do."""
    settings.QUEUES = backend.queues()
    settings.QUEUE_RESULT_TTL = "1h"
    queue = queues["default"]
    with pytest.raises(TypeError, match="QUEUE_RESULT_TTL is '1h'"):
        stumble.using(result_ttl=None).enqueue()
    assert len(queue) == 0
    queue.put([message_for(queue, forgetful.name, 1)])
    with recorded_signals("started") as told:
        assert run_one(queue).outcome is Outcome.POSTPONED
    assert told == []


@pytest.mark.backends("memory", "redis", database=True)
class TestTransactions:
    @pytest.mark.backends("sqlite", "postgres", "mariadb")
    def test_get_within_the_transaction_that_sends_is_refused(self, queue, backend):
        handle = echo(1)
        with transaction.atomic(using=backend.alias):
            with pytest.raises(RuntimeError, match="commit first"):
                handle.get()
            with pytest.raises(RuntimeError, match="commit first"):
                echo(2).get(timeout=5)
        run_one(queue)
        assert handle.get() == 1
        with transaction.atomic(using=backend.alias):
            assert handle.get() == 1  # it is there, and nobody waits

    def test_get_of_what_is_sent_on_commit_is_refused_before(self, queue):
        with transaction.atomic():
            handle = echo(1)
            assert (handle.enqueued, handle.status) == (None, "unknown")
            with pytest.raises(RuntimeError, match="commit first"):
                handle.get()
        assert handle.status == "ready"
        run_one(queue)
        assert handle.get() == 1

    def test_within_a_transaction_of_something_else_it_waits(self, queue):
        handle = echo(1)
        with transaction.atomic(), pytest.raises(ResultTimeout):
            handle.get(timeout=0.02)


@EVERY
class TestKept:
    @pytest.mark.parametrize("kind", ["lock", "lambda", "leaver", "generator", "deep", "large"])
    def test_a_value_that_cannot_be_kept_is_no_failure(self, queue, kind):
        handle = unkeepable(kind)
        with recorded_signals("completed", "failed") as told:
            assert run_one(queue).outcome is Outcome.DONE
        assert [name for name, _ in told] == ["completed"]
        assert handle.status == "done"
        with pytest.raises(NoResult, match="could not be kept"):
            handle.get()

    def test_one_that_cannot_be_kept_costs_the_others_nothing(self, queue):
        handles = [echo(1), unkeepable("leaver"), things(), echo(2)]
        leases = queue.claim(4)
        settle(queue, [(lease, execute(queue, lease)) for lease in leases])
        assert [handle.status for handle in handles] == ["done"] * 4
        assert (handles[0].get(), handles[3].get()) == (1, 2)

    def test_a_megabyte_is_kept_if_it_is_allowed(self, queue, settings):
        settings.QUEUE_MAX_MESSAGE_SIZE = 3 * 2**20
        handle = echo("ä", 2**20)
        run_one(queues["default"])
        assert handle.get() == "ä" * 2**20

    def test_json_keeps_what_json_can(self, queue, settings):
        settings.QUEUE_SERIALIZER = "json"
        settings.QUEUE_ACCEPT = ("json",)
        queue = queues["default"]
        handle, other = echo([1, "ä", None]), unkeepable("lock")
        run_one(queue), run_one(queue)
        assert handle.get() == [1, "ä", None]
        with pytest.raises(NoResult, match="could not be kept"):
            other.get()

    def test_pickle_alone_keeps_the_reason_too(self, queue, settings):
        settings.QUEUE_ACCEPT = ("pickle",)
        handle = unkeepable("lock")
        run_one(queues["default"])
        with pytest.raises(NoResult, match="could not be kept"):
            handle.get()

    def test_a_failure_keeps_its_reason_even_if_its_errors_are_too_long(self, queue, settings):
        settings.QUEUE_MAX_MESSAGE_SIZE = 2000
        queue = queues["default"]
        handle = stumble.using(max_attempts=1).enqueue("why", "x" * 500)
        run_one(queue)
        with pytest.raises(CommandFailed, match="failed: Hiccup: why") as failed:
            handle.get()
        assert failed.value.errors == []
        assert "in stumble" in handle.errors[0]["traceback"]  # of the failed queue

    def test_a_reason_of_megabytes_is_cut(self, queue):
        handle = say.using(queue_name="default").enqueue("discard", "x" * 500_000)
        run_one(queue)
        with pytest.raises(CommandFailed) as failed:
            handle.get()
        assert len(failed.value.reason) <= LONGEST_REASON

    def test_what_the_late_worker_returned_is_not_kept(self, queue):
        """The fence: the message was given to somebody else."""
        handle = echo("late")
        ours = claim_one(queue)
        queue.release([ours])
        theirs = claim_one(queue)
        settle(queue, [(ours, execute(queue, ours))])
        assert handle.status == "running"
        settle(queue, [(theirs, Verdict(Outcome.DONE, value="theirs", keep=60))])
        settle(queue, [(ours, Verdict(Outcome.DONE, value="late", keep=60))])
        assert handle.get() == "theirs"

    def test_a_late_worker_that_nobody_replaced_may_finish(self, queue):
        handle = echo("late")
        lease = claim_one(queue, lease=0.1)
        eventually(lambda: queue.reap().count)
        settle(queue, [(lease, execute(queue, lease))])
        assert handle.get() == "late"


@queue_command(result_ttl=60)
def wait_for(handle, timeout):
    return handle.get(timeout=timeout) if timeout is not None else handle.get()


@queue_command(result_ttl=60)
async def await_for(handle):
    return await handle.aget()


@MEMORY
def test_a_command_waits_for_another_one_with_a_timeout_only(queue, settings):
    there = echo(5)
    run_one(queue)
    for waits in (wait_for.enqueue(there, None), await_for.enqueue(there)):
        verdict = run_one(queue)
        assert verdict.outcome is Outcome.FAILED
        assert isinstance(verdict.exception, RuntimeError)
        assert f"get() in {waits.command} could hold its worker for ever" in verdict.reason
        assert "get(timeout=seconds)" in verdict.reason
    wait_for(there, 1)
    assert run_one(queue).value == 5
    with pytest.raises(ResultTimeout):
        wait_for.call(echo(6), 0.01)
    settings.QUEUE_ALWAYS_EAGER = True
    with pytest.raises(RuntimeError, match="could hold its worker"):
        wait_for(there, None)


@EVERY
def test_without_a_result_ttl_nothing_is_asked_of_the_store(queue, monkeypatch):
    asked = []
    for name in ("get", "put", "put_many", "add", "swap", "drop"):
        verb = getattr(queue.store, name)
        monkeypatch.setattr(queue.store, name, lambda *a, n=name, v=verb, **k: asked.append(n) or v(*a, **k))
    forgetful.enqueue_many([(number,) for number in range(5)])
    say.using(result_ttl=None).enqueue("discard")
    say.using(result_ttl=None).enqueue("fail")
    leases = queue.claim(7)
    settle(queue, [(lease, execute(queue, lease)) for lease in leases])
    assert (len(leases), asked) == (7, [])
    handles = echo.enqueue_many([(number,) for number in range(5)])
    leases = queue.claim(5)
    settle(queue, [(lease, execute(queue, lease)) for lease in leases])
    assert asked.count("put_many") <= 1  # if they are kept, one round trip for all of them, or that of the completion
    assert [handle.get(timeout=1) for handle in handles] == [0, 1, 2, 3, 4]


@SOME
def test_a_store_that_fails_costs_the_results_and_not_the_work(queue, monkeypatch, caplog):
    class Away(NoStore):
        def put_many(self, facts):
            raise OSError("the store is away")

    monkeypatch.setattr(queue, "store", Away())
    handle = echo(1)
    with recorded_signals("completed") as told:
        assert run_one(queue).outcome is Outcome.DONE
    assert len(told) == queue.stats().done == 1
    assert handle.status == ended_as(queue, "done")
    assert "could not be kept" in caplog.text


@EVERY
class TestSigned:
    def refused(self, handle):
        assert handle.status == "unknown"
        for look in (handle.get, lambda: async_to_sync(handle.aget)()):
            with pytest.raises(NoResult, match="cannot be trusted or read"):
                look()
        assert opened == []

    @pytest.mark.parametrize("value", [b"", b"rubbish", pickle.dumps({"status": "done", "value": Bomb()})])
    def test_what_somebody_wrote_there_is_refused_unread(self, queue, value):
        handle = echo(1)
        leave(handle.id, queue, value)
        self.refused(handle)

    def test_a_forged_one_is_refused_unread(self, queue, settings, backend):
        handle = echo(1)
        told = {"status": "done", "value": Bomb()}
        with_other_key = {"id": handle.id, "queue": f"{queue.base_name}:result"}
        with override_settings(SECRET_KEY="the key of somebody else" * 3):
            leave(handle.id, queue, pack_item(told, **with_other_key))
        self.refused(handle)

    def test_that_of_another_message_is_refused(self, queue):
        first, second = echo("first"), echo("second")
        run_one(queue), run_one(queue)
        leave(second.id, queue, queue.store.get(f"result:{first.id}"))
        self.refused(second)
        assert first.get() == "first"

    def test_that_of_another_queue_is_refused(self, queue, backend, settings):
        settings.QUEUES = backend.queues("default", "other")
        queue, other = queues["default"], queues["other"]
        handle = echo(1)
        run_one(queue)
        leave(handle.id, other, queue.store.get(f"result:{handle.id}"))
        self.refused(Result(handle.id, queue_name="other"))

    def test_progress_does_not_pass_for_a_result_nor_a_message_nor_an_item(self, queue):
        handle = tell(1, 2)
        message = queue.find(handle.id).entry.body
        run_one(queue)
        item = pack_item({"status": "done", "value": 1}, id=handle.id, queue=queue.base_name)
        for value in (queue.store.get(f"progress:{handle.id}"), message, item):
            leave(handle.id, queue, value)
            self.refused(handle)

    def test_a_result_does_not_pass_for_progress_and_one_changed_bit_is_refused(self, queue):
        handle = echo(1)
        run_one(queue)
        queue.store.put(f"progress:{handle.id}", queue.store.get(f"result:{handle.id}"), 60)
        with pytest.raises(NoResult, match="cannot be trusted or read"):
            _ = handle.progress
        value = bytearray(queue.store.get(f"result:{handle.id}"))
        value[-1] ^= 1
        leave(handle.id, queue, bytes(value))
        self.refused(handle)


@EVERY
class TestProgress:
    def test_the_newest_word_counts(self, queue):
        handle = tell(3, 4.5, "rows")
        assert handle.progress is None
        run_one(queue)
        assert handle.progress == Progress(3, 4.5, "rows")

    @pytest.mark.backends("memory", "postgres", "mariadb", "redis")  # SQLite has one writer at a time
    def test_within_a_transaction_it_is_visible_before_that_ends(self, queue, release, backend):
        handle = tell_and_wait("release", backend.alias)
        with serving(threads=1) as consumer:
            release.await_waiting(1)
            assert eventually(lambda: handle.progress) in [Progress(done, 4, "rows") for done in (1, 2, 3)]
            assert eventually(lambda: handle.progress.done == 3)
            assert handle.status == "running"
            if backend.alias:
                assert not Thing.objects.using(backend.alias).filter(name="half way").exists()
            release.set()
            assert handle.get(timeout=20) is None
            assert consumer.end() == 0
        assert handle.progress.done == 3

    @MEMORY
    def test_a_note_of_megabytes_is_cut(self, queue):
        handle = tell_too_much()
        assert run_one(queue).outcome is Outcome.DONE
        assert handle.progress == Progress(1, 2, "x" * LONGEST_REASON)


@EVERY
class TestCancel:
    def test_what_waits_is_gone(self, queue):
        ready, delayed = echo(1), echo.using(delay=60).enqueue(2)
        for handle in (ready, delayed, forgetful(1)):
            assert handle.cancel() is Cancelled.WAITING
            assert handle.status == "cancelled"
            with pytest.raises(CommandFailed, match="cancelled before it ran") as failed:
                handle.get()
            assert failed.value.status == "cancelled"
        assert (len(queue), queue.claim(1)) == (0, [])
        assert ready.cancel() is Cancelled.ENDED

    def test_what_runs_is_told(self, queue):
        handle = until_cancelled()
        with serving(threads=1) as consumer:
            eventually(lambda: handle.status == "running")
            assert handle.cancel() is Cancelled.RUNNING
            with pytest.raises(CommandFailed, match="discarded: as its owner wants"):
                handle.get(timeout=20)
            assert consumer.end() == 0
        assert handle.status == "discarded"

    def test_what_runs_and_does_not_listen_is_not_run_again(self, queue):
        handle = fail_until_cancelled()
        with recorded_signals("started", "retried", "discarded") as told, serving(threads=1) as consumer:
            eventually(lambda: handle.status == "running")
            is_back = handle.cancel() is Cancelled.WAITING  # it may fail and go back to the queue during the call
            end = "cancelled: cancelled before its next attempt" if is_back else "discarded: cancelled while it ran"
            with pytest.raises(CommandFailed, match=end):
                handle.get(timeout=20)
            assert consumer.end() == 0
        assert [name for name, _ in told] == ["started", "retried", *([] if is_back else ["discarded"])]

    def test_no_worker_asks_a_store_whether_what_it_begins_again_is_cancelled(self, queue, monkeypatch):
        askers = set()
        for verb in ("get", "get_many"):
            ask = getattr(queue.store, verb)
            cleared_per_test = lambda key, ask=ask: askers.add(threading.current_thread().name) or ask(key)  # noqa: E731
            monkeypatch.setattr(queue.store, verb, cleared_per_test)
        stumble.using(backoff=False, result_ttl=None).enqueue()
        assert exit_code(threads=1, drain=True) == 0
        assert askers - {"djqueue-housekeeper-default"} == {"djqueue-pump-default"}  # which asks for orders

    def test_what_runs_and_is_done_all_the_same_is_done(self, queue):
        handle = echo(1)
        lease = claim_one(queue)
        assert handle.cancel() is Cancelled.RUNNING
        settle(queue, [(lease, execute(queue, lease))])
        assert (handle.status, handle.get()) == ("done", 1)

    def test_what_waits_for_its_retry_is_gone(self, queue):
        handle = stumble()
        run_one(queue)
        assert handle.status == "delayed"
        assert handle.cancel() is Cancelled.WAITING
        assert (handle.status, len(queue)) == ("cancelled", 0)

    def test_what_is_over_stays_as_it_was(self, queue):
        handle = echo(1)
        run_one(queue)
        assert handle.cancel() is Cancelled.ENDED
        assert (handle.status, handle.get()) == ("done", 1)
        assert Result("no-such-id").cancel() is Cancelled.UNKNOWN

    def test_what_goes_back_while_it_is_cancelled_is_gone(self, queue, monkeypatch):
        """A worker hands it back between the two looks."""
        handle = echo(1)
        lease, remove = claim_one(queue), queue.remove

        def remove_late(*args):
            removed = remove(*args)
            settle(queue, [(lease, Verdict(Outcome.RETURNED))])
            return removed

        monkeypatch.setattr(queue, "remove", remove_late)
        assert handle.cancel() is Cancelled.WAITING
        assert (handle.status, queue.claim(1)) == ("cancelled", [])

    def test_the_wish_ends_when_it_is_retried_from_the_failed_queue(self, queue):
        handle = say("fail", "because")
        lease = claim_one(queue)
        assert handle.cancel() is Cancelled.RUNNING
        settle(queue, [(lease, execute(queue, lease))])
        assert queue.requeue([handle.id]) == 1
        settle(queue, [(claim_one(queue), Verdict(Outcome.INTERRUPTED))])
        assert run_one(queue).reason == "because"


@MEMORY
class TestEager:
    @pytest.fixture(autouse=True)
    def eager(self, settings, queue):
        settings.QUEUE_ALWAYS_EAGER = True

    def test_a_result_and_its_progress_are_there_at_once(self):
        handle = echo({"n": 1})
        assert (handle.status, handle.get()) == ("done", {"n": 1})
        assert async_to_sync(aecho.aenqueue)(4).get() == 4
        assert tell(1, 2).progress == Progress(1, 2, "")

    def test_without_a_result_ttl_there_is_none(self):
        handle = forgetful(1)
        assert handle.status == "unknown"
        with pytest.raises(NoResult):
            handle.get()

    def test_a_failure_reaches_the_caller_and_a_discarded_call_is_discarded(self):
        with pytest.raises(Hiccup):
            stumble()
        with pytest.raises(Retry):
            say.using(max_attempts=3).enqueue("retry", 0)
        assert say("discard", "because").status == "discarded"


def test_looking_never_asks_more_often_than_it_should(settings, monkeypatch):
    settings.QUEUES = {"default": {"CLASS": "djqueue.backends.memory.MemoryQueue"}}
    waits, moments = [], iter(range(1000))
    clock = SimpleNamespace(sleep=waits.append, monotonic=lambda: next(moments) / 10)
    monkeypatch.setattr(results, "time", clock)  # no other thread turns it
    with pytest.raises(ResultTimeout):
        echo(1).get(timeout=5)
    assert waits[0] <= 2 * results.FIRST_LOOK
    assert max(waits) <= results.LAST_LOOK
    assert waits[:10] == sorted(waits[:10])


@EVERY
@pytest.mark.parametrize("id", ["a\0b", "\ud800"], ids=["NUL", "surrogate"])
def test_an_id_that_no_message_can_have_is_not_known(queue, id):
    result = Result(id)
    assert (result.status, result.errors, result.progress) == ("unknown", [], None)
    assert result.cancel() is Cancelled.UNKNOWN


def test_a_type_of_its_value_changes_nothing_when_it_runs():
    typed = Result[int]("42", "shop.send")
    assert type(typed) is Result
    assert typed == pickle.loads(pickle.dumps(typed)) == Result("42", "shop.send")
    assert not hasattr(typed, "__dict__"), "one is made for each call"
