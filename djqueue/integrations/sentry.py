"""An integration for Sentry: failed messages as events by command, runs as transactions, schedules as check-ins."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any

from django.utils import timezone

from djqueue.consumer.counters import OUTCOMES
from djqueue.policies.outcomes import Outcome, Verdict
from djqueue.running.context import Job
from djqueue.running.instruments import Instrument, current_tick, instruments
from djqueue.timetables import Calendar, Crontab, Interval

try:
    import sentry_sdk
    from sentry_sdk.crons import capture_checkin
    from sentry_sdk.integrations import Integration
    from sentry_sdk.integrations.logging import LoggingIntegration
    from sentry_sdk.scope import Scope, add_global_event_processor
    from sentry_sdk.tracing import NoOpSpan, Transaction
except ImportError as error:
    raise ImportError("Sentry needs the package sentry-sdk: pip install sentry-sdk.") from error

ORIGIN = "auto.queue.djqueue"
TAGS = "command", "queue", "message_id", "attempt"
LONGEST_SLUG = 50
OVER = {Outcome.DONE: "ok", Outcome.DISCARDED: "ok"} | dict.fromkeys(
    (Outcome.FAILED, Outcome.PAUSED, Outcome.EXPIRED), "error"
)
"""The status of a check-in by the outcome of a run. After any other outcome the message runs again."""


class DjqueueIntegration(Integration):
    """For ``sentry_sdk.init(integrations=[DjqueueIntegration()])``.

    With ``check_ins`` Sentry is notified of each run of a schedule, and makes a monitor for it.
    """

    identifier = "djqueue"

    def __init__(self, check_ins: bool = False):
        self.check_ins = check_ins

    @staticmethod
    def setup_once() -> None:
        instruments.add(Reporting())
        add_global_event_processor(_by_command)


def _integration() -> DjqueueIntegration | None:
    return sentry_sdk.get_client().get_integration(DjqueueIntegration)


class Reporting(Instrument):
    namespace = "sentry"

    @property
    def sees_logs(self) -> bool:  # type: ignore[override]
        """Whether Sentry's own integration for logging is on, as it is by default."""
        return sentry_sdk.get_client().get_integration(LoggingIntegration) is not None

    def sent(self, queue: str, command: str, id: str) -> dict[str, Any] | None:
        """A span of the call; its trace, and of a schedule its monitor, travel with the message."""
        if (integration := _integration()) is None:
            return None
        with sentry_sdk.start_span(op="queue.publish", name=command, origin=ORIGIN) as span:
            span.set_data("messaging.message.id", id)
            span.set_data("messaging.destination.name", queue)
            carried: dict[str, Any] = {
                "sentry-trace": sentry_sdk.get_traceparent(),
                "baggage": sentry_sdk.get_baggage(),
            }
        if integration.check_ins and (tick := current_tick.get()) is not None:
            carried["monitor"] = _slug(tick.name)
            carried["schedule"] = _monitor_schedule(tick.timetable)
        return {name: value for name, value in carried.items() if value}

    def began(self, jobs: Sequence[Job]) -> None:
        """Begin a scope of its own, as the run has a context of its own, and the transaction."""
        if _integration() is None:
            return
        first, name = jobs[0], jobs[0].command.name
        isolation = sentry_sdk.get_isolation_scope().fork()
        isolation.clear_breadcrumbs()
        Scope.set_isolation_scope(isolation)
        Scope.set_current_scope(sentry_sdk.get_current_scope().fork())
        for tag, value in zip(TAGS, (name, first.queue.alias, first.entry.id, first.entry.attempts), strict=True):
            isolation.set_tag(tag, str(value))
        headers = {key: value for key, value in _sent_with(first).items() if key in ("sentry-trace", "baggage")}
        begun = sentry_sdk.continue_trace(headers, op="queue.process", name=name, source="task", origin=ORIGIN)
        transaction = sentry_sdk.start_transaction(begun)
        transaction.__enter__()
        transaction.set_data("messaging.message.id", first.entry.id)
        transaction.set_data("messaging.destination.name", first.queue.alias)
        transaction.set_data("messaging.message.retry.count", first.entry.attempts - 1)
        _transaction.set(transaction)
        for job in jobs:
            if job.entry.attempts == 1:
                _check_in(job, "in_progress")

    def ended(self, jobs: Sequence[Job], verdicts: Sequence[Verdict]) -> None:
        if (transaction := _transaction.get()) is None:
            return
        worst = next((one for one in verdicts if one.exception is not None), verdicts[0])
        transaction.set_status("ok" if worst.exception is None else "internal_error")
        transaction.set_tag("outcome", OUTCOMES[worst.outcome])
        transaction.__exit__(None, None, None)
        for job, verdict in zip(jobs, verdicts, strict=True):
            if status := OVER.get(verdict.outcome):
                _check_in(job, status, verdict.seconds)


_transaction: ContextVar[Transaction | NoOpSpan | None] = ContextVar("djqueue_sentry_transaction", default=None)


def _sent_with(job: Job) -> dict[str, Any]:
    carried = job.envelope.metadata.get(Reporting.namespace)
    return carried if isinstance(carried, dict) else {}


def _by_command(event: Any, hint: dict[str, Any]) -> Any:
    """Group events of log records about messages by command, whichever thread has logged them."""
    record = hint.get("log_record")
    command = getattr(record, "command", None)
    if record is None or not command or not record.name.startswith("djqueue.") or _integration() is None:
        return event
    if Reporting.namespace in getattr(record, "seen_by", ()):  # in the process that ran it, with the frames
        return None
    tags = {tag: str(value) for tag in TAGS if (value := getattr(record, tag, None)) is not None}
    event["tags"] = {**dict(event.get("tags") or {}), **tags}
    event["transaction"] = command
    event.setdefault("fingerprint", ["{{ default }}", command])
    return event


# ---- Check-ins


def _check_in(job: Job, status: str, seconds: float | None = None) -> None:
    """Notify Sentry of a run of a schedule. All attempts are one check-in, whose id is that of the message."""
    carried = _sent_with(job)
    if slug := carried.get("monitor"):
        schedule = carried.get("schedule")
        config: Any = schedule and {**schedule, "checkin_margin": 5}
        capture_checkin(slug, job.entry.id, status, seconds, config if status == "in_progress" else None)


def _slug(name: str) -> str:
    """A name as Sentry wants that of a monitor."""
    return re.sub(r"[^a-z0-9_-]+", "-", name.lower())[-LONGEST_SLUG:].strip("-")


def _monitor_schedule(timetable: object) -> dict[str, Any] | None:
    """A timetable in the words of Sentry; None for one that it has no words for."""
    timetable = timetable.crontab if isinstance(timetable, Calendar) else timetable
    if isinstance(timetable, Interval) and timetable.every % 60 == 0:
        return {"schedule": {"type": "interval", "value": int(timetable.every // 60), "unit": "minute"}}
    if isinstance(timetable, Crontab) and "*" in (timetable.day, timetable.day_of_week):  # cron takes either of two
        zone = timetable.time_zone or timezone.get_default_timezone()
        return {"schedule": {"type": "crontab", "value": timetable.expression}, "timezone": str(zone)}
    return None
