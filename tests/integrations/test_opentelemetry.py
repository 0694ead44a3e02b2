"""Spans: request, call, run and retry are one trace; what a command does itself is below its run."""

import subprocess
import sys
import threading
from dataclasses import replace

import pytest
from opentelemetry import baggage, context
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from djqueue import Consumer, Throttled, queue_command
from djqueue.consumer import isolation
from djqueue.consumer.in_flight import Message
from djqueue.consumer.isolation import run_isolated
from djqueue.integrations.opentelemetry import DjqueueInstrumentor
from djqueue.running.context import Control
from djqueue.running.instruments import Instrument, instruments
from djqueue.testing import eventually
from tests.support.consumer import only, serving
from tests.support.notes import cleared_per_test

provider, exporter = TracerProvider(), InMemorySpanExporter()
provider.add_span_processor(SimpleSpanProcessor(exporter))
tracer = provider.get_tracer("shop")
seen = cleared_per_test([])


@queue_command(retry_on=[ConnectionError], backoff=0.001)
def charge(order):
    seen.append(baggage.get_baggage("tenant"))
    with tracer.start_as_current_span("ask the bank"):
        if len(seen) < 2:
            raise ConnectionError("refused")


@queue_command
async def charge_async(order):
    with tracer.start_as_current_span("ask the bank"):
        pass


@queue_command(batch=10)
def charge_many(orders):
    pass


@queue_command
def wait():
    if not seen:
        seen.append("throttled")
        raise Throttled("the bank is busy", retry_after=0.1)


release = threading.Event()


@queue_command(time_limit=0.05)
def hang(order):
    release.wait(60)


@pytest.fixture(autouse=True)
def _these_commands():
    with only(charge, charge_async, charge_many, wait, hang):
        yield


@pytest.fixture
def spans():
    exporter.clear()
    DjqueueInstrumentor().instrument(tracer_provider=provider)
    DjqueueInstrumentor().instrument(tracer_provider=provider)  # once more changes nothing
    yield lambda: sorted(exporter.get_finished_spans(), key=lambda span: span.start_time)
    DjqueueInstrumentor().uninstrument()


def run(count, **options):
    assert Consumer(periodic=False, **options).run(limit=count) == 0


@pytest.mark.backends("redis", "sqlite")
def test_request_call_run_and_retry_are_one_trace(queue, spans):
    token = context.attach(baggage.set_baggage("tenant", "acme"))
    with tracer.start_as_current_span("POST /orders"):
        handle = charge(42)
    context.detach(token)
    run(2)
    names = ["POST /orders", f"enqueue {charge.name}", *[f"run {charge.name}", "ask the bank"] * 2]
    request, sent, first, asked, second, asked_again = found = spans()
    assert [span.name for span in found] == names
    assert {span.context.trace_id for span in found} == {request.context.trace_id}
    ids = [span.context.span_id for span in found]
    assert [span.parent.span_id for span in found[1:]] == [ids[0], ids[1], ids[2], ids[1], ids[4]]
    assert (sent.kind, first.kind, second.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER, SpanKind.CONSUMER)
    assert seen == ["acme", "acme"], "what else was in the context has come along"
    about = {"messaging.system": "djqueue", "messaging.destination.name": "default", "messaging.message.id": handle.id}
    of_run = {"messaging.operation.name": "run", "messaging.operation.type": "process", "djqueue.attempt": 1}
    assert sent.attributes.items() >= {**about, "messaging.operation.type": "create"}.items()
    assert first.attributes.items() >= {**about, **of_run, "djqueue.outcome": "retried"}.items()
    assert (first.status.status_code, first.attributes["error.type"]) == (StatusCode.ERROR, "ConnectionError")
    assert [event.name for event in first.events] == ["exception"]
    assert (second.status.status_code, second.attributes["djqueue.attempt"]) == (StatusCode.UNSET, 2)


DIES = """
import os, pickle, struct, sys
for word in ("ready", "begins"):
    text = pickle.dumps(word)
    os.write(int(sys.argv[1]), struct.pack("!Q", len(text)) + text)
[size] = struct.unpack("!Q", os.read(0, 8))
os.read(0, size)  # what it is to run
os.read(0, 10)  # the permission to begin
os.abort()
"""


@pytest.mark.backends("sqlite")
def test_the_span_of_a_process_that_dies_is_made_by_the_consumer(queue, spans, monkeypatch):
    def start(into, environment):
        return subprocess.Popen([sys.executable, "-c", DIES, str(into)], stdin=subprocess.PIPE, pass_fds=[into])

    monkeypatch.setattr(isolation, "_start", start)
    handle = charge(42)
    [lease] = queue.claim(1)
    suspect = replace(lease, entry=replace(lease.entry, attempts=3, lost=2))
    verdict = run_isolated({}, Message(None, queue, suspect, 0.0), Control(queue, suspect))
    sent, lost = spans()
    assert (lost.name, lost.parent.span_id, verdict.lost) == (f"run {charge.name}", sent.context.span_id, 1)
    assert (lost.status.status_code, lost.status.description) == (StatusCode.ERROR, verdict.reason)
    told = {"messaging.message.id": handle.id, "djqueue.attempt": 3, "error.type": "SIGABRT"}
    assert lost.attributes.items() >= told.items() and lost.attributes["djqueue.outcome"] in ("failed", "lost")
    assert sent.end_time <= lost.start_time < lost.end_time


@pytest.mark.backends("memory")
class TestRuns:
    @pytest.mark.parametrize("coroutines", [0, 10])
    def test_of_an_async_command(self, queue, spans, coroutines):
        charge_async.enqueue_many([(1,), (2,)])
        run(2, coroutines=coroutines)
        runs = {span.context.span_id: span for span in spans() if span.name.startswith("run ")}
        below = [span for span in spans() if span.name == "ask the bank"]
        assert {span.parent.span_id for span in below} == set(runs) and len(runs) == 2
        assert len({span.context.trace_id for span in runs.values()}) == 2

    def test_of_a_batch_is_linked_to_the_call_of_each_message(self, queue, spans):
        charge_many.enqueue_many([(1,), (2,), (3,)])
        run(3)
        *sent, batch = spans()
        assert [link.context.span_id for link in batch.links] == [span.context.span_id for span in sent]
        assert (batch.attributes["messaging.batch.message_count"], batch.parent) == (3, None)

    def test_what_is_put_back_is_no_error(self, queue, spans):
        wait()
        run(1)
        outcomes = [(span.attributes["djqueue.outcome"], span.status.status_code) for span in spans()[1:]]
        assert outcomes == [("throttled", StatusCode.UNSET), ("done", StatusCode.UNSET)]

    def test_one_that_is_given_up_as_stuck_ends_then_and_once(self, queue, spans, settings):
        settings.QUEUE_TIME_LIMIT_GRACE = 0.01
        hang(1)
        with serving(threads=2) as running:
            ended = eventually(lambda: [span for span in spans() if span.name == f"run {hang.name}"])
            release.set()
            assert running.end() == 0
        eventually(lambda: not any("worker" in thread.name for thread in threading.enumerate()))
        assert [span.attributes["error.type"] for span in ended] == ["TimeLimitExceeded"]
        assert [span.name for span in spans()].count(f"run {hang.name}") == 1

    def test_an_instrument_that_fails_changes_nothing(self, queue, caplog):
        class Broken(Instrument):
            namespace = "broken"
            sent = began = ended = lambda self, *args: 1 / 0

        instruments.add(Broken())
        try:
            handle = charge(1)
            seen.append("no error is wanted")
            run(1)
        finally:
            instruments.remove("broken")
        assert handle.status == "done"
        assert caplog.text.count("ZeroDivisionError") == 3
