"""What commands that change something say with --json: one object, with the same keys."""

import io
import json

import pytest
from django.core.management import CommandError, call_command

from djqueue import crontab, periodic_command, queue_command, queues
from tests.dashboard.calls import heartbeat
from tests.support.consumer import fail_at_the_third_cancel, run_one

pytestmark = pytest.mark.backends("memory", "sqlite")
KEYS = ["action", "what", "count", "queues", "dry_run", "refused"]


@queue_command(failure_policy="pause", shard=lambda number: number)
def paint(number):
    raise ValueError("out of paint")


@queue_command(unique="queued")
def clean():
    """Once is enough."""


@periodic_command(crontab(minute=7))
def nightly():
    """Enqueued by --run alone."""


@pytest.fixture
def queue(backend, settings):
    settings.QUEUES = backend.queues("default", "mail")
    return queues["default"]


def told(*args):
    """The object on standard output, and the error if there is one."""
    out, error = io.StringIO(), None
    try:
        call_command(*args, "--json", stdout=out, stderr=io.StringIO())
    except CommandError as problem:
        error = problem
    found = json.loads(out.getvalue())
    assert [*found][: len(KEYS)] == KEYS
    return found, error


def done(*args):
    found, error = told(*args)
    assert error is None
    return found["action"], found["what"], found["count"], found["queues"], found["refused"]


def test_actions_on_messages(queue):
    ids = [paint.enqueue(number).id for number in range(3)]
    assert done("queue_messages", "reprioritise", "--priority", "7", ids[0][-8:], ids[1]) == (
        "reprioritise", ids[:2], 2, {"default": 2}, [],
    )  # fmt: skip
    found, _ = told("queue_messages", "cancel", "--dry-run", "--command", "paint")
    assert (found["count"], found["dry_run"], found["what"]) == (3, True, ["--command 'paint'"])
    found, error = told("queue_messages", "requeue", *ids[:1])
    assert (found["count"], found["refused"]) == (0, [{"what": ids[0], "why": "it is ready"}])
    assert error.returncode == 1
    found, error = told("queue_messages", "cancel", "nobody")
    assert (found["refused"][0]["what"], "it is no message" in found["refused"][0]["why"]) == ("nobody", True)
    assert done("queue_messages", "remove", "--all", "--no-input")[2:] == (3, {"default": 3}, [])
    assert done("queue_messages", "remove", "--all")[2:] == (0, {"default": 0, "mail": 0}, [])


@pytest.mark.backends("memory")
def test_what_was_done_before_an_error_is_told(queue, monkeypatch):
    paint.enqueue_many([(number,) for number in range(5)])
    fail_at_the_third_cancel(queue, monkeypatch)
    found, error = told("queue_messages", "cancel", "--all", "--no-input")
    assert (found["count"], found["queues"], "nobody there" in str(error)) == (2, {"default": 2}, True)
    assert [one["what"] for one in found["refused"]] == found["what"]


def test_actions_on_what_has_failed(queue, monkeypatch):
    ids = []
    for number in range(3):
        ids.append(paint.using(failure_policy="block").enqueue(number).id)
        run_one(queue)
    assert done("queue_errors", "retry", ids[0][-8:]) == ("retry", [ids[0]], 1, {"default": 1}, [])
    found, error = told("queue_errors", "retry", "nobody", ids[1])
    assert (found["count"], found["refused"]) == (1, [{"what": "nobody", "why": "it is no failed message"}])
    assert error.returncode == 1
    monkeypatch.setattr("builtins.input", lambda question: "no")
    found, _ = told("queue_errors", "delete", "--all")
    assert (found["count"], found["refused"][0]["why"]) == (0, "the question was not answered with yes")
    assert done("queue_errors", "delete", "--all", "--no-input")[2:] == (1, {"default": 1}, [])


@pytest.mark.backends("sqlite")
def test_pauses_and_purges(queue):
    assert done("queue_pause", "mail") == ("pause", ["queue mail"], 1, {}, [])
    assert done("queue_pause", "mail", "default")[2:] == (
        1, {}, [{"what": "queue mail", "why": "it was paused already"}],
    )  # fmt: skip
    assert done("queue_resume", "--all")[2] == 2
    assert done("queue_resume", "mail")[4] == [{"what": "queue mail", "why": "it was not paused"}]
    name = f"{paint.name}:5"
    paint.enqueue(5)
    assert done("queue_pause", "--lane", name, "-q", "default")[1:4] == ([f"lane {name}"], 1, {"default": 1})
    assert done("queue_resume", "--lane", name)[:3] == ("resume", [f"lane {name}"], 1)
    found, error = told("queue_lanes", "--resume", name)
    assert (found["count"], "neither paused nor held" in found["refused"][0]["why"]) == (0, True)
    assert done("queue_purge", "-q", "default", "--no-input") == ("purge", ["default"], 1, {"default": 1}, [])


def test_orders_schedules_and_calls(queue):
    heartbeat(queue, "web-1:42:beef")
    assert done("queue_consumers", "--quiet", "web-1") == ("quiet", ["web-1:42:beef"], 1, {}, [])
    assert told("queue_consumers", "--forget", "web-1")[0]["refused"][0]["what"] == "web-1:42:beef"
    found, _ = told("queue_schedules", "--run", nightly.name)
    assert (found["action"], found["count"], queue.find(found["id"]) is not None) == ("run schedule", 1, True)
    assert told("queue_schedules", "--remove", "nothing")[1].returncode == 1
    sent, _ = told("queue_send", clean.name)
    assert (sent["count"], sent["enqueued"], sent["queues"]) == (1, True, {"default": 1})
    sent, _ = told("queue_send", clean.name)
    assert (sent["count"], sent["enqueued"], sent["refused"][0]["what"]) == (0, False, clean.name)
