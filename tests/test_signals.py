"""What is told of a message, in exact order, for each way in which it can end: by signals, and by on_… methods."""

import logging
import time

import pytest
from django.db import transaction

from djqueue import Deferrable, Discard, Fail, Retry, register_event_consumer, signals
from djqueue.decorators import queue_command
from djqueue.messages.metadata import clear_event_consumers
from djqueue.testing.patience import eventually
from tests.support.backends import WITH_SQS
from tests.support.consumer import Recorder, can_look, message_for, recorded_signals, serving

AND_SQS = pytest.mark.backends(*WITH_SQS)
LONG = 60.0
LIFE = (
    "debounced", "debounce_missed", "debounce_failed", "refused", "enqueued", "enqueue_failed", "empty", "claimed",
    "started", "completed", "retried", "expired", "discarded", "failed", "released", "lease_lost",
)  # fmt: skip
BOOM = KeyError("boom")


@queue_command
def succeed(value=1):
    return value


@queue_command(retry_on=[KeyError], max_attempts=3, backoff=0)
def stumble():
    raise BOOM


@queue_command
def fail():
    raise BOOM


@queue_command(ttl=0.01)
def expire():
    pass


@queue_command(debounce=LONG)
def refresh():
    pass


@queue_command(unique=True)
def sync():
    pass


@queue_command
def tell(outcome):
    raise {"retry": Retry(after=LONG), "discard": Discard("no more"), "fail": Fail("at once")}[outcome]


@queue_command
def leave():
    raise SystemExit(3)


@pytest.fixture
def sent_signals(queue):
    """All signals of the test, in order."""
    with recorded_signals(*LIFE) as sent_signals:
        yield sent_signals


@pytest.fixture
def called_methods(queue):
    """What an event consumer of this queue is called with, in order."""
    recorder = Recorder()
    register_event_consumer(recorder, "default")
    return recorder


def run_once() -> bool:
    return Deferrable().run_once()


def names(sent_signals) -> list[str]:
    return [name for name, _ in sent_signals]


class TestOrder:
    @AND_SQS
    def test_df18_success(self, queue, sent_signals, called_methods):
        result = succeed(5)
        run_once()
        assert names(sent_signals) == ["enqueued", "claimed", "started", "completed"]
        assert called_methods.names == ["on_push", "on_pop", "on_complete"]
        assert {about["id"] for _, about in sent_signals} == {result.id}
        assert (sent_signals[-1][1]["value"], sent_signals[-1][1]["attempt"]) == (5, 1)

    @AND_SQS
    def test_df18_retries_and_final_failure(self, queue, sent_signals, called_methods):
        stumble()
        while run_once():
            continue
        again = ["claimed", "started", "retried"]
        assert names(sent_signals) == ["enqueued", *again, *again, "claimed", "started", "failed", "empty"]
        ended = ["on_pop", "on_error", "on_complete", "on_empty"]
        assert called_methods.names == ["on_push", *["on_pop", "on_retry", "on_complete"] * 2, *ended]
        carried = [about for name, about in sent_signals if name in ("retried", "failed")]
        assert [(about["attempt"], about["exception"]) for about in carried] == [(1, BOOM), (2, BOOM), (3, BOOM)]

    @AND_SQS
    def test_df18_failure_without_a_retry(self, queue, sent_signals, called_methods):
        fail()
        run_once()
        assert names(sent_signals) == ["enqueued", "claimed", "started", "failed"]
        assert called_methods.names == ["on_push", "on_pop", "on_error", "on_complete"]

    @AND_SQS
    def test_df18_expiry(self, queue, sent_signals, called_methods):
        expire()
        time.sleep(0.06)
        run_once()
        assert names(sent_signals) == ["enqueued", "claimed", "expired"]
        assert called_methods.names == ["on_push", "on_pop", "on_expire", "on_complete"]
        assert (len(queue), len(queue.failed)) == (0, 0)

    @AND_SQS
    def test_df18_nothing_there(self, queue, sent_signals, called_methods):
        run_once()
        assert sent_signals == [("empty", {"sender": "default", "queue_name": "default"})]
        assert called_methods.calls == [("on_empty", None)]

    @AND_SQS
    def test_df18_a_debounced_call(self, queue, sent_signals, called_methods):
        first, second, third = refresh(), refresh(), refresh()
        accepted = ["debounce_missed", "enqueued"]
        assert names(sent_signals) == [*accepted, *accepted, "debounced"]
        assert [about["id"] for _, about in sent_signals] == [first.id, first.id, second.id, second.id, third.id]
        assert called_methods.names == [*["on_debounce_miss", "on_push"] * 2, "on_debounce_hit"]

    def test_df18_many_debounced_calls_are_told_in_their_order(self, queue, sent_signals):
        calls = refresh.enqueue_many([()] * 3)
        assert [about["id"] for name, about in sent_signals if name != "debounce_missed"] == [call.id for call in calls]

    def test_a_refused_call_of_a_unique_command(self, queue, sent_signals, called_methods):
        sync(), sync()
        assert names(sent_signals) == ["enqueued", "refused"]
        assert called_methods.names == ["on_push"]

    @pytest.mark.parametrize(
        "outcome, signal, called",
        [
            ("retry", "retried", ["on_retry", "on_complete"]),
            ("discard", "discarded", ["on_complete"]),
            ("fail", "failed", ["on_error", "on_complete"]),
        ],
    )
    @pytest.mark.backends("memory", "sqlite")
    def test_what_the_command_says_itself(self, queue, sent_signals, called_methods, outcome, signal, called):
        tell(outcome)
        run_once()
        assert names(sent_signals) == ["enqueued", "claimed", "started", signal]
        assert called_methods.names == ["on_push", "on_pop", *called]

    @pytest.mark.backends("memory")
    def test_what_nobody_can_run_or_read(self, queue, sent_signals, called_methods):
        queue.put([message_for(queue, "no.such.command")])
        run_once()
        assert names(sent_signals) == ["claimed", "released"]
        queue.flush()
        queue.write("no message of ours")
        sent_signals.clear()
        run_once()
        assert names(sent_signals) == ["claimed", "failed"]
        assert called_methods.names == ["on_pop", "on_pop", "on_error", "on_complete"]

    @pytest.mark.backends("memory")
    def test_one_whose_lease_is_lost_meanwhile(self, queue, sent_signals, called_methods):
        succeed()
        [lease] = queue.claim(1)
        queue.complete([lease])
        sent_signals.clear()
        Deferrable().process(lease)
        assert names(sent_signals) == ["claimed", "started", "lease_lost"]
        assert called_methods.names == ["on_push", "on_pop"]

    @pytest.mark.backends("memory", database=True)
    def test_df18_in_a_transaction_it_is_told_at_the_commit(self, queue, sent_signals):
        with transaction.atomic():
            refresh.enqueue_many([()] * 3)
            assert sent_signals == []
        assert names(sent_signals) == ["debounce_missed", "enqueued"] * 2 + ["debounced"]

    @pytest.mark.backends("memory", "redis", "sqlite")
    def test_df18_a_consumer_tells_the_same(self, queue, sent_signals):
        # Without a wait the next start may be told of before the retry, which another thread tells.
        calls = [expire(), succeed(), stumble.using(backoff=0.3).enqueue(), fail()]
        eventually(lambda: queue.stats().oldest > 0.05)
        with serving(threads=2, delay=0.02):
            eventually(
                lambda: "empty" in names(sent_signals) and len(queue) == 0 and names(sent_signals).count("retried") == 2
            )
            eventually(
                lambda: (
                    names(sent_signals).count("failed") == 2 and {"completed", "expired"} <= set(names(sent_signals))
                )
            )
        of = {call.id: [name for name, about in sent_signals if about.get("id") == call.id] for call in calls}
        again = ["claimed", "started", "retried"]
        assert list(of.values()) == [
            ["enqueued", "claimed", "expired"],
            ["enqueued", "claimed", "started", "completed"],
            ["enqueued", *again, *again, "claimed", "started", "failed"],
            ["enqueued", "claimed", "started", "failed"],
        ]

    @pytest.mark.backends("memory")
    def test_df18_a_consumer_says_once_that_it_ran_dry(self, queue, sent_signals):
        with serving(threads=1, delay=0.005, max_delay=0.01):
            eventually(lambda: names(sent_signals).count("empty") == 1)
            succeed()
            eventually(lambda: names(sent_signals).count("empty") == 2)
            succeed.enqueue_many([()] * 10)
            eventually(lambda: names(sent_signals).count("empty") == 3)
        assert names(sent_signals).count("empty") == 3


@pytest.mark.backends("memory")
class TestRaising:
    @pytest.fixture(params=[KeyError("k"), SystemExit(3), KeyboardInterrupt()], ids=lambda error: type(error).__name__)
    def error(self, request):
        return request.param

    @pytest.mark.parametrize("signal", ["enqueued", "claimed", "started", "completed", "empty"])
    def test_df19_a_receiver_that_raises_stops_nothing(self, queue, sent_signals, error, signal, caplog):
        def receiver(**named):
            raise error

        getattr(signals, signal).connect(receiver)
        try:
            assert succeed().enqueued
            assert (run_once(), run_once(), len(queue)) == (True, False, 0)
        finally:
            getattr(signals, signal).disconnect(receiver)
        assert names(sent_signals)[-1] == "empty"
        assert queue.stats().done == 1
        assert [one.exc_info[1] for one in caplog.records if one.levelno == logging.ERROR] == [error]

    @pytest.mark.backends("memory", "sqs")
    def test_df19_a_handler_that_raises_stops_nothing(self, queue, called_methods, error, caplog):
        class Raises:
            def __getattr__(self, name):
                def handler(item):
                    raise error

                return handler

        clear_event_consumers()
        register_event_consumer(Raises(), "default")
        register_event_consumer(called_methods)
        refresh(), refresh(), refresh(), stumble.using(max_attempts=2)()
        while run_once():
            continue
        called = [*["on_debounce_miss", "on_push"] * 2, "on_debounce_hit", "on_push"]
        ended = [*["on_pop", "on_complete"], *["on_pop", "on_retry", "on_complete"]]
        assert called_methods.names == [*called, *ended, *["on_pop", "on_error", "on_complete"], "on_empty"]
        told = [one for one in caplog.records if one.name == "djqueue.messages.metadata"]
        assert len(told) == len(called_methods.calls)
        assert told[0].getMessage() == "Raises.on_debounce_miss() failed"
        assert (len(queue), len(queue.failed)) == (1, 1)
        assert not can_look(queue) or queue.stats().leased == 0

    def test_df19_in_a_consumer_no_thread_ends(self, queue, called_methods, error):
        def receiver(**named):
            raise error

        recorded_signals = [signals.claimed, signals.started, signals.completed, signals.empty]
        for signal in recorded_signals:
            signal.connect(receiver)
        try:
            with serving(threads=1) as running:
                succeed.enqueue_many([()] * 5)
                eventually(lambda: queue.stats().done == 5)
                assert not running.future.done()
        finally:
            for signal in recorded_signals:
                signal.disconnect(receiver)

    def test_df19_a_command_that_wants_to_end_the_process_fails_like_any_other(self, queue, sent_signals):
        leave()
        run_once()
        assert names(sent_signals) == ["enqueued", "claimed", "started", "failed"]
        assert isinstance(sent_signals[-1][1]["exception"], SystemExit)
