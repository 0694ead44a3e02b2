"""Spans for OpenTelemetry, by its conventions for messaging: of each call that is enqueued, and of each run.

The run of a message, and each of its retries, is in the trace of the call that enqueued it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any

import djqueue
from djqueue.backends.entries import Entry
from djqueue.consumer.counters import OUTCOMES
from djqueue.messages.envelope import Envelope
from djqueue.messages.failures import kind_of
from djqueue.policies.outcomes import Verdict
from djqueue.running.context import Job
from djqueue.running.instruments import Instrument, Lost, instruments

try:
    from opentelemetry import context, propagate, trace
    from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode
except ImportError as error:
    text = "Traces need the package opentelemetry-api: pip install 'django-djqueue[otel]'."
    raise ImportError(text) from error

Attributes = dict[str, str | int]


class DjqueueInstrumentor:
    """Switches the spans on and off in this process, with the methods of all instrumentors of OpenTelemetry."""

    def instrument(self, tracer_provider: trace.TracerProvider | None = None, **kwargs: Any) -> None:
        """Make spans from now on, with the tracer provider of the process unless another is given."""
        instruments.add(Tracing(trace.get_tracer("djqueue", djqueue.__version__, tracer_provider)))

    def uninstrument(self, **kwargs: Any) -> None:
        instruments.remove(Tracing.namespace)


class Tracing(Instrument):
    namespace = "opentelemetry"

    def __init__(self, tracer: trace.Tracer):
        self._tracer = tracer

    def sent(self, queue: str, command: str, id: str) -> dict[str, str] | None:
        """A span of the call. Its context travels with the message."""
        attributes = _attributes(queue, command, "enqueue", "create") | {"messaging.message.id": id}
        carrier: dict[str, str] = {}
        name = f"enqueue {command}"
        with self._tracer.start_as_current_span(name, kind=SpanKind.PRODUCER, attributes=attributes):
            propagate.inject(carrier)
        return carrier or None

    def began(self, jobs: Sequence[Job]) -> None:
        """Begin the span of a run: in the trace of its message, or for a batch with a link to that of each."""
        first, parents = jobs[0], [_context_of(job.envelope) for job in jobs]
        parent = parents[0] if len(jobs) == 1 else None
        spans = [trace.get_current_span(one).get_span_context() for one in parents]
        span = self._tracer.start_span(
            f"run {first.command.name}",
            context=parent,
            kind=SpanKind.CONSUMER,
            attributes=_attributes(first.queue.alias, first.command.name, "run", "process") | _of_run(jobs),
            links=[Link(one) for one in spans if one.is_valid] if parent is None else [],
        )
        _span.set(span)
        context.attach(trace.set_span_in_context(span, parent))  # for good, as the run has a context of its own

    def ended(self, jobs: Sequence[Job], verdicts: Sequence[Verdict]) -> None:
        span = _span.get()
        if span is None:
            return
        worst = next((one for one in verdicts if one.exception is not None), verdicts[0])
        span.set_attribute("djqueue.outcome", OUTCOMES[worst.outcome])
        if worst.exception is not None:
            span.set_attribute("error.type", kind_of(worst.exception))
            span.record_exception(worst.exception)
            span.set_status(Status(StatusCode.ERROR, worst.reason))
        span.end()

    def lost(self, run: Lost) -> None:
        """Make the span of a run whose process died with the one that it had begun."""
        command, entry = run.envelope.command, run.entry
        attributes = _attributes(run.queue, command, "run", "process") | _of_message(run.owner, entry)
        span = self._tracer.start_span(
            f"run {command}",
            context=_context_of(run.envelope),
            kind=SpanKind.CONSUMER,
            attributes={**attributes, "djqueue.outcome": OUTCOMES[run.verdict.outcome], "error.type": run.how},
            start_time=int(run.began * 1e9),
        )
        span.set_status(Status(StatusCode.ERROR, run.verdict.reason))
        span.end()


_span: ContextVar[Span | None] = ContextVar("djqueue_span", default=None)


def _context_of(envelope: Envelope) -> context.Context:
    """The context in which a message was enqueued; an empty one if nothing was sent along."""
    carrier = envelope.metadata.get(Tracing.namespace)
    return propagate.extract(carrier if isinstance(carrier, dict) else {}, context=context.Context())


def _attributes(queue: str, command: str, operation: str, kind: str) -> Attributes:
    return {
        "messaging.system": "djqueue",
        "messaging.destination.name": queue,
        "messaging.operation.name": operation,
        "messaging.operation.type": kind,
        "code.function.name": command,
    }


def _of_run(jobs: Sequence[Job]) -> Attributes:
    first = jobs[0]
    if first.command.batched:
        return {"messaging.client.id": first.control.owner, "messaging.batch.message_count": len(jobs)}
    return _of_message(first.control.owner, first.entry)


def _of_message(owner: str, entry: Entry) -> Attributes:
    return {"messaging.client.id": owner, "messaging.message.id": entry.id, "djqueue.attempt": entry.attempts}
