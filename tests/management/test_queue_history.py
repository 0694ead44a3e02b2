"""queue_history, as an operator uses it."""

import io
import json
from datetime import UTC, datetime

import pytest
from django.core.management import CommandError, call_command

from djqueue import queues
from djqueue.backends.base import Entry
from djqueue.policies.outcomes import Outcome, Verdict
from djqueue.running.ends import STATUSES
from djqueue.running.settle import settle
from tests.backends.contract.toy import ToyQueue
from tests.management.test_operator_commands import epoch

pytestmark = pytest.mark.backends("memory", "redis")
MEMORY = pytest.mark.backends("memory")
TOY = f"{ToyQueue.__module__}.{ToyQueue.__qualname__}"
OWNER = "web-1-42-beef"
ENDS = {
    "paid": Verdict(Outcome.DONE),
    "late": Verdict(Outcome.EXPIRED, "its ttl of 5 s is over"),
    "odd": Verdict(Outcome.DISCARDED, "not wanted"),
    "lost": Verdict(Outcome.FAILED, "OSError: gone", OSError("gone"), seconds=1.5),
}


@pytest.fixture
def queue(backend, settings):
    settings.QUEUES = backend.queues("default", "mail")
    return queues["default"]


@pytest.fixture
def ended_messages(queue):
    """Messages of the default queue that ended one after the other."""
    for name, verdict in ENDS.items():
        end(queue, name, verdict)


def end(queue, name, verdict, command=""):
    assert queue.put([Entry(b"never decoded", f"id-of-{name}", command=command or f"shop.commands.{name}")]) == [True]
    settle(queue, [(queue.claim(1)[0], verdict)], OWNER)


def run(*args):
    out = io.StringIO()
    call_command("queue_history", *args, stdout=out)
    return out.getvalue()


def found(*args):
    """The ids of what is listed, without what all have."""
    return [one["id"].removeprefix("id-of-") for one in json.loads(run(*args, "--json"))]


def failure(*args):
    with pytest.raises(CommandError) as caught:
        call_command("queue_history", *args, stdout=io.StringIO(), stderr=io.StringIO())
    return str(caught.value)


def test_the_newest_are_shown_first_with_all_that_is_known(queue, ended_messages):
    assert found() == ["lost", "odd", "late", "paid"]
    one = json.loads(run("--json"))[0]
    keys = "id queue command status ended seconds attempts consumer enqueued began error call value"
    assert {*one} == {*keys.split()}
    told = {name: one[name] for name in ("queue", "command", "status", "attempts", "consumer", "seconds", "error")}
    assert told == {
        "queue": "default",
        "command": "shop.commands.lost",
        "status": "failed",
        "attempts": 1,
        "consumer": OWNER,
        "seconds": 1.5,
        "error": "OSError",
    }
    assert epoch(one["enqueued"]) <= epoch(one["ended"]) == pytest.approx(epoch(one["began"]) + 1.5)
    assert one["call"] is one["value"] is None


def test_the_table_is_for_people(queue, ended_messages):
    head, *lines = run().splitlines()
    assert head.split() == ["id", "queue", "command", "status", "ended", "ran", "attempts", "consumer", "error"]
    assert [line.split()[1:4] for line in lines[:2]] == [["default", "lost", "failed"], ["default", "odd", "discarded"]]
    assert "1.5 s" in lines[0] and lines[0].endswith("OSError")
    assert "queue" not in run("-q", "default").splitlines()[0].split()
    assert "id-of-paid" in run("--full-ids")


def test_filters(queue, ended_messages):
    assert found("--status", "failed", "--status", "done") == ["lost", "paid"]
    assert found("--command", "shop.commands.p*") == found("--command", "paid") == ["paid"]
    assert found("--command", "SHOP.*.P?ID") == found("--command", "Paid") == ["paid"]
    assert found("--command", "shop") == []
    assert found("--exception", "oserror") == found("--exception", "os*") == ["lost"]
    assert found("--limit", "2") == ["lost", "odd"]
    assert found("--since", "1h") == found("--newer", "1h") == list(ENDS)[::-1]
    assert found("--since", "2030-01-01") == found("--since", "2030-01-01T00:00:00Z") == []
    assert found("--since", datetime.fromtimestamp(queue.now() - 60, UTC).isoformat()) == list(ENDS)[::-1]
    assert found("-q", "mail") == []
    assert "more: see --limit" in run("--limit", "2")
    assert run("-q", "mail") == "No message that has ended is remembered, or none matches.\n"


def test_one_message_by_its_id_or_a_part_of_it(queue, ended_messages):
    assert found("--id", "id-of-late") == found("--id", "late") == ["late"]
    assert found("--id", "id-of") == list(ENDS)[::-1]
    assert found("--id=-of-") == ["lost", "late", "paid"]  # as their last eight characters begin
    assert found("--id", "id-") == []
    assert "at least 4 characters" in run("--id", "id-")
    assert found("--id", "nobody") == []
    assert found("--id", "id-of-late", "--status", "done") == []


def test_queues_are_listed_together_by_their_ends(queue, ended_messages):
    end(queues["mail"], "sent", Verdict(Outcome.DONE, seconds=3.0))
    end(queue, "last", Verdict(Outcome.DONE, seconds=5.0))
    assert found() == ["last", "sent", *list(ENDS)[::-1]]


def test_what_was_cancelled_is_listed(queue):
    from djqueue import Result

    queue.put([Entry(b"", "id-of-unwanted", command="shop.commands.unwanted")])
    assert Result("id-of-unwanted").cancel()
    [one] = json.loads(run("--json"))
    assert (one["status"], one["command"], one["consumer"]) == ("cancelled", "shop.commands.unwanted", None)


@MEMORY
def test_records_that_cannot_be_read_are_left_out(queue):
    end(queue, "paid", ENDS["paid"])
    queue.history.keep(
        ["a", "b", "c"], [b"0" * 16, b"1795432123000000 \xff", b"1795432123000000\tnew\t1\t1\t1\tme\tit\t\t"]
    )
    assert found() == ["paid"]


@MEMORY
def test_what_cannot_be_is_refused(queue, settings):
    for when in ("yesterday", "2030-13-01T00:00"):
        told = failure("--since", when)
        assert "no age" in told and "2030-01-31T12:00" in told
    assert all(status in failure("--status", "lost") for status in STATUSES)
    settings.QUEUE_HISTORY = None
    assert run().startswith("QUEUE_HISTORY keeps no records: give it 'age' and 'count'")
    settings.QUEUES = {"default": {"CLASS": TOY, "CONNECTION": {}}}
    assert "expected one argument that does not begin with -: 5m, not -5m" in failure("--since", "-5m")
    assert failure() == "'default' (ToyQueue): the backend cannot keep a history."
