"""queue_messages, queue_purge and queue_send, as an operator uses them."""

import io
import json

import pytest
from django.core.management import call_command

from djqueue import operations, queue_command, queues
from djqueue.backends.entries import DELAYED, READY
from djqueue.exceptions import Fail
from djqueue.operations import messages
from djqueue.results import Result
from tests.management.test_operator_commands import TOY, failure, run, run_json
from tests.support.consumer import run_one, unreachable
from tests.support.notes import cleared_per_test

pytestmark = pytest.mark.backends("memory", "sqlite", "redis")
MEMORY = pytest.mark.backends("memory")
ran = cleared_per_test([])


@queue_command(describe=lambda order, **_: f"order {order}", sensitive=["address"], result_ttl=60)
def send_receipt(address, order):
    if order == 13:
        raise Fail("no such order")
    ran.append(order)


@queue_command(shard=lambda number: number)
def deliver(number):
    ran.append(number)


@pytest.fixture(autouse=True)
def _two_queues(backend, settings):
    ran.clear()
    settings.QUEUES = backend.queues("default", "slow")


@pytest.fixture
def queue():
    return queues["default"]


@pytest.fixture
def ids(queue):
    """The ids of a message in each state."""
    failed = send_receipt.enqueue("ann@example.com", 13).id
    run_one(queue)
    running = send_receipt.enqueue("bob@example.com", 1).id
    assert [lease.entry.id for lease in queue.claim(1, owner="web-1:42:beef")] == [running]
    delayed = send_receipt.using(delay=600).enqueue("cid@example.com", 2).id
    return {"failed": failed, "running": running, "delayed": delayed, "ready": deliver.enqueue(7).id}


def answering(monkeypatch, answer):
    """What is asked, once an operator answers so."""
    asked = []
    monkeypatch.setattr("builtins.input", lambda text: asked.append(text) or answer)
    return asked


def test_it_lists_what_waits_runs_and_has_failed(ids):
    lines = run("queue_messages", "list", "-q", "default").splitlines()
    assert lines[0].split() == ["id", "command", "state", "age", "due", "attempts", "lane", "about"]
    found = {line.split()[0]: line for line in lines[1:]}
    assert list(found) == [ids[state][-8:] for state in ("ready", "delayed", "running", "failed")]
    assert "deliver:7" in found[ids["ready"][-8:]] and "by web-1:42:beef" in found[ids["running"][-8:]]
    assert found[ids["failed"][-8:]].endswith("order 13 · no such order")
    told = {one["state"]: one for one in run_json("queue_messages", "list")}
    assert {state: one["id"] for state, one in told.items()} == ids
    assert (told["running"]["consumer"], told["ready"]["consumer"], told["failed"]["attempts"]) == (
        "web-1:42:beef", None, 1,
    )  # fmt: skip


def test_a_filter_looks_at_a_bounded_number_and_the_next_call_goes_on(queue):
    wanted = [deliver.enqueue(number).id for number in range(3)]
    for number in range(30):
        send_receipt.enqueue("ann@example.com", number)
    asked = ["queue_messages", "list", "-q", "default", "--command", "deliver", "--look-at", "25", "--limit", "20"]
    err, after, found = io.StringIO(), [], []
    for _ in range(2):
        found += [one["id"] for one in json.loads(run_both(err, *asked, *after, "--json"))]
        after = err.getvalue().split()[-2:]
    assert sorted(found) == sorted(wanted)
    lines = err.getvalue().splitlines()
    assert len(lines) == 1 and lines[0].startswith("25 messages of default were checked; the same call goes on with")
    assert "no place" in str(failure(*asked, "--after", "x"))
    assert "-q" in str(failure("queue_messages", "list", "--after", "0."))


def run_both(err, *args) -> str:
    out = io.StringIO()
    call_command(*args, stdout=out, stderr=err)
    return out.getvalue()


@MEMORY
def test_what_waits_in_a_lane_is_found_without_a_look_at_what_waits_elsewhere(queue):
    for number in range(30):
        send_receipt.enqueue("ann@example.com", number)
    one = deliver.enqueue(7)
    lane = queue.find(one.id).entry.lane
    found = run_json("queue_messages", "list", "--state", "ready", "--lane", lane, "--look-at", "1", "--limit", "1")
    assert [message["id"] for message in found] == [one.id]


@MEMORY
@pytest.mark.parametrize(
    "asked, states",
    [
        (["--state", "ready", "--state", "failed"], ["ready", "failed"]),
        (["--command", "DELIVER"], ["ready"]),
        (["--lane", "deliver:*"], ["ready"]),
        (["--lane", f"{__name__}.deliver:7"], ["ready"]),
        (["--reason", "such ORDER"], ["failed"]),
        (["--exception", "Fail"], ["failed"]),
        (["--older", "1h"], []),
        (["--newer", "1h", "--command", "send_receipt"], ["delayed", "running", "failed"]),
    ],
)
def test_a_filter_selects(ids, asked, states):
    assert [one["state"] for one in run_json("queue_messages", "list", *asked)] == states


@MEMORY
def test_one_is_shown_with_its_arguments_on_demand(ids):
    text = run("queue_messages", "show", ids["failed"][-8:], "--arguments")
    assert "state     failed\n" in text and "call      send_receipt(address=***, order=13)\n" in text
    assert "attempt 1 on " in text and "no such order" in text
    assert "lane      tests.management.test_queue_messages.deliver:7\n" in run("queue_messages", "show", ids["ready"])
    assert "Not waiting, running or failed in 'default', 'slow': nope1" in str(
        failure("queue_messages", "show", "nope1")
    )


def test_what_is_done_with_one_message_is_done_in_the_store_and_recorded(ids, queue):
    assert run("queue_messages", "run-now", ids["delayed"]) == "1 message due now.\n"
    assert queue.find(ids["delayed"]).state == READY
    assert run("queue_messages", "reprioritise", ids["delayed"][:31], "--priority", "9") == "1 message reprioritised.\n"
    assert queue.find(ids["delayed"]).entry.priority == 9
    assert run("queue_messages", "requeue", ids["failed"]) == "1 message requeued.\n"
    assert (queue.find(ids["failed"]).entry.attempts, len(queue.failed)) == (0, 0)
    assert run("queue_messages", "remove", ids["failed"]) == "1 message removed.\n"
    assert queue.find(ids["failed"]) is None
    cancelled = run("queue_messages", "cancel", ids["delayed"], ids["running"])
    assert cancelled == "2 messages cancelled or asked to stop.\n"
    assert [Result(ids[state]).status for state in ("delayed", "running")] == ["cancelled", "running"]
    done = [(one.action, one.what, one.count) for one in reversed(operations.actions(limit=5))]
    assert done == [
        ("run now", ids["delayed"], 1), ("reprioritise to 9", ids["delayed"], 1), ("requeue", ids["failed"], 1),
        ("remove", ids["failed"], 1), ("cancel", f"{ids['delayed']} {ids['running']}", 2),
    ]  # fmt: skip


@MEMORY
def test_what_does_not_fit_the_state_of_a_message_is_refused_before_anything_is_done(ids, queue):
    error = failure("queue_messages", "run-now", ids["delayed"], ids["ready"])
    assert str(error) == f"run-now is for messages that are delayed:\n{ids['ready']} is ready"
    assert queue.find(ids["delayed"]).state == DELAYED
    assert failure("queue_messages", "cancel").returncode == 2
    assert failure("queue_messages", "cancel", ids["ready"], "--all").returncode == 2


def test_before_a_filter_changes_messages_it_is_asked(queue, monkeypatch):
    calls = [(f"{number}@example.com", number) for number in range(20)]
    send_receipt.enqueue_many(calls)
    deliver.enqueue(7)
    by_filter = "queue_messages", "remove", "--command", "send_receipt"
    assert run(*by_filter, "--dry-run") == "20 messages would be removed: 20 in default.\n"
    asked = answering(monkeypatch, "no")
    assert run(*by_filter) == "Nothing is changed.\n"
    assert asked == [
        "Remove 20 messages, without a trace? 20 in default. Type 'yes' to continue, or 'no' to stop here: "
    ]
    assert len(queue) == 21
    monkeypatch.setattr(messages, "CHUNK", 7)
    answering(monkeypatch, "yes")
    assert run(*by_filter) == "20 messages removed.\n"
    assert len(queue) == 1
    assert run(*by_filter) == "0 messages removed: no message matches --command 'send_receipt'.\n"
    assert run("queue_messages", "cancel", "--all", "--no-input") == "1 message cancelled or asked to stop.\n"
    assert [(one.what, one.count) for one in operations.actions(limit=2)] == [
        ("all that is ready or delayed or running", 1), ("--command 'send_receipt'", 20),
    ]  # fmt: skip


def test_a_message_is_moved_with_its_delay_and_runs_once_where_it_goes(ids, queue):
    slow = queues["slow"]
    assert run("queue_messages", "move", "--to", "slow", ids["delayed"], ids["ready"]) == "2 messages moved.\n"
    assert (queue.find(ids["delayed"]), queue.find(ids["ready"])) == (None, None)
    assert (slow.find(ids["delayed"]).state, slow.find(ids["ready"]).state) == (DELAYED, READY)
    run_one(slow)
    assert (ran, slow.claim(1)) == ([7], [])
    assert 500 < slow.find(ids["delayed"]).at - slow.now() <= 600


@MEMORY
def test_what_is_not_signed_and_what_has_begun_is_not_moved(ids, queue, settings, monkeypatch):
    error = failure("queue_messages", "move", "--to", "default", ids["ready"])
    assert "'default' is the queue in which they wait" in str(error)
    monkeypatch.setattr(queue, "remove", lambda ids: 0)  # a consumer was faster
    assert messages.move(queue, [ids["ready"]], "slow") == 0
    settings.SECRET_KEY = "another one" * 5
    assert "bad signature" in str(failure("queue_messages", "move", "--to", "slow", ids["ready"]))
    assert (queue.find(ids["ready"]).state, len(queues["slow"])) == (READY, 0)


@MEMORY
def test_of_many_that_get_another_priority_each_gets_it(queue, monkeypatch):
    for priority in (5, 0):
        send_receipt.using(priority=priority).enqueue_many([("ann@example.com", number) for number in range(600)])
    told = run("queue_messages", "reprioritise", "--priority", "1", "--all", "--no-input")
    assert told == "1,200 messages reprioritised.\n"
    assert {one.priority for one in operations.messages_of(queue)} == {1}


def test_what_comes_after_the_question_is_not_changed(queue, monkeypatch):
    there, later = send_receipt.enqueue("ann@example.com", 1).id, []

    def answer(question):
        later.append(send_receipt.using(priority=9).enqueue("bob@example.com", 2).id)  # it is first in the queue
        return "yes"

    monkeypatch.setattr("builtins.input", answer)
    assert "1 message removed.\n" in run("queue_messages", "remove", "--command", "send_receipt")
    assert [one.id for one in operations.messages_of(queue)] == later
    assert queue.find(there) is None


@MEMORY
@pytest.mark.parametrize("name", ["queue_messages list", "queue_explain"])
def test_what_can_be_asked_is_shown_though_a_store_is_away(ids, monkeypatch, name):
    monkeypatch.setattr(queues["slow"], "now", unreachable)
    out = io.StringIO()
    error = str(failure(*name.split(), out=out))
    assert error.startswith("Queue 'slow' (in the memory of this process) cannot be asked: the store is unreachable")
    assert out.getvalue()


@MEMORY
def test_a_backend_of_four_methods_is_left_out(settings):
    settings.QUEUES = {"default": {"CLASS": TOY, "CONNECTION": {}}}
    error = str(failure("queue_messages", "list"))
    assert error == "'default' (ToyQueue): the backend cannot list its messages."


def test_a_purge_asks_and_leaves_what_runs_or_has_failed(ids, queue, monkeypatch):
    asked = answering(monkeypatch, "yes")
    assert failure("queue_purge").returncode == 2, "nothing is named"
    assert run("queue_purge", "default") == "Deleted about 2 messages that waited in default.\n"
    assert asked[0].startswith("Delete about 2 messages that wait in default, without a trace? Type")
    assert {one["state"] for one in run_json("queue_messages", "list")} == {"running", "failed"}
    text = "Deleted about 1 message that had failed in default.\n"
    assert run("queue_purge", "-q", "default", "--failed", "--no-input") == text
    assert (operations.actions(limit=1)[0].action, len(queue.failed)) == ("purge", 0)


@MEMORY
def test_a_call_is_sent_with_its_arguments_and_options(queue):
    told = run_json("queue_send", "test_queue_messages.deliver", '{"number": 3}', "-q", "slow", "--priority", "4")
    assert queues["slow"].find(told["id"]).entry.priority == 4
    assert run("queue_send", deliver.name, "[5]").endswith(" is in the queue default\n")
    run_one(queue)
    assert ran == [5]
    assert "too many positional arguments" in str(failure("queue_send", deliver.name, "[1, 2]"))
    assert f"Did you mean {deliver.name}?" in str(failure("queue_send", f"{deliver.name}s", "[1]"))
    assert f"Did you mean {deliver.name}?" in str(failure("queue_send", "delivr", "[1]"))
    assert failure("queue_send", deliver.name, "[1]", "-q", "slwo").returncode == 2
    assert "is neither a list nor an object: give '[5]'" in str(failure("queue_send", deliver.name, "5"))
