"""What Sentry gets: failures by command, runs in the trace of their calls, a check-in for each run of a schedule."""

import logging

import pytest
import sentry_sdk
from sentry_sdk.integrations.logging import EventHandler
from sentry_sdk.transport import Transport

from djqueue import Consumer, Fail, crontab, periodic_command, queue_command
from djqueue.backends.base import OnceGuard
from djqueue.consumer.child import FrameWriter
from djqueue.consumer.scheduler import PeriodicTracker
from djqueue.integrations.sentry import DjqueueIntegration, _monitor_schedule
from djqueue.running.instruments import instruments
from djqueue.timetables import Interval, interval
from tests.support.consumer import only

pytestmark = pytest.mark.backends("memory")


@queue_command(retry_on=[ConnectionError], backoff=0.001, max_attempts=2)
def charge(order):
    raise ConnectionError("refused")


@queue_command
def refuse(order):
    raise Fail(f"order {order} is unknown")


@queue_command
async def report(order):
    sentry_sdk.capture_message("it is late")


@periodic_command(crontab(hour=3, minute="*/30", time_zone="Europe/Berlin"), retry_on=[KeyError], backoff=0.001)
def send_digest():
    from djqueue import current_message

    if current_message().attempt == 1:
        raise KeyError("not yet")


class Kept(Transport):
    def __init__(self):
        super().__init__()
        self.items = []

    def capture_envelope(self, envelope):
        self.items += [item.payload.json for item in envelope.items]

    def of(self, kind):
        """The events of a type; those of errors have none."""
        return [item for item in self.items if item.get("type") == kind]


@pytest.fixture
def sentry():
    kept, handler = Kept(), EventHandler(logging.ERROR)  # a handler: the integration for logging patches it for good
    sentry_sdk.init(
        "https://key@sentry.invalid/1",
        transport=kept,
        integrations=[DjqueueIntegration(check_ins=True)],
        default_integrations=False,
        auto_enabling_integrations=False,
        traces_sample_rate=1.0,
    )
    DjqueueIntegration.setup_once()  # which init() calls once in a process
    logging.getLogger("djqueue").addHandler(handler)
    with only(charge, refuse, report, send_digest):
        yield kept
    logging.getLogger("djqueue").removeHandler(handler)
    instruments.remove("sentry")
    sentry_sdk.get_global_scope().set_client(None)


def run(count, **options):
    assert Consumer(periodic=False, **options).run(limit=count) == 0


def test_what_has_failed_is_one_event_that_tells_command_message_and_attempt(queue, sentry):
    handle = charge(42)
    refuse(1)
    refuse(2)
    run(4)
    [failed] = [event for event in sentry.of(None) if event["transaction"] == charge.name]
    tags = {"command": charge.name, "queue": "default", "message_id": handle.id, "attempt": "2"}
    assert failed["tags"].items() >= tags.items()
    assert failed["exception"]["values"][-1]["type"] == "ConnectionError"
    assert failed["fingerprint"] == ["{{ default }}", charge.name]
    assert [event["transaction"] for event in sentry.of(None)].count(refuse.name) == 2


def test_what_a_process_of_its_own_has_told_sentry_is_told_once(queue, sentry):
    about = {"command": charge.name, "queue": "default", "message_id": "1", "attempt": 1}
    writer = FrameWriter(None)
    for writer.seen_by in ([], ["sentry"]):
        record = logging.makeLogRecord({"name": "djqueue.running.reporting", "levelno": logging.ERROR, **about})
        logging.getLogger(record.name).handle(writer.prepare(record))
    assert [event["transaction"] for event in sentry.of(None)] == [charge.name]


@pytest.mark.parametrize("coroutines", [0, 2])
def test_call_run_and_what_the_run_reports_are_in_one_trace(queue, sentry, coroutines):
    with sentry_sdk.start_transaction(op="http.server", name="POST /orders") as request:
        handle = report(42)
    run(1, coroutines=coroutines)
    [_, ran] = sentry.of("transaction")
    trace = ran["contexts"]["trace"]
    assert (ran["transaction"], trace["trace_id"]) == (report.name, request.trace_id)
    assert (trace["op"], trace["status"]) == ("queue.process", "ok")
    [said] = sentry.of(None)
    assert said["contexts"]["trace"]["trace_id"] == request.trace_id
    assert (said["transaction"], said["tags"]["message_id"]) == (report.name, handle.id)


def test_the_attempts_of_a_tick_are_one_check_in(queue, sentry):
    id = "1" * 32
    PeriodicTracker(send_digest)._send(OnceGuard("tick", 60), id)
    run(2)
    begun, ended = sentry.of("check_in")
    assert (begun["status"], ended["status"]) == ("in_progress", "ok")
    assert begun["check_in_id"] == ended["check_in_id"] == id
    assert begun["monitor_slug"].endswith("test_sentry-send_digest") and len(begun["monitor_slug"]) <= 50
    schedule = {"type": "crontab", "value": "0,30 3 * * *"}
    assert begun["monitor_config"]["schedule"] == schedule and begun["monitor_config"]["timezone"] == "Europe/Berlin"


def test_a_call_of_the_project_is_no_check_in(queue, sentry):
    report(1)
    run(1)
    assert sentry.of("check_in") == []


def test_schedules_in_the_words_of_sentry():
    assert _monitor_schedule(interval(300))["schedule"] == {"type": "interval", "value": 5, "unit": "minute"}
    assert _monitor_schedule(Interval(5.0)) is None
    assert _monitor_schedule(crontab(day=13, day_of_week="fri", hour=0, minute=0)) is None
    assert _monitor_schedule(lambda moment: True) is None
