"""queue_explain: why a message does not run, or a queue does not move."""

import sys
from datetime import datetime

import pytest

from djqueue import Retry, Throttle, operations, queue_command
from djqueue.backends.entries import Entry
from djqueue.operations import explain, explain_queue
from djqueue.results import Result
from djqueue.running import consumers
from djqueue.running.consumers import ConsumerRecord
from tests.app.commands import note
from tests.management.test_operator_commands import failure, run, run_json
from tests.support.consumer import run_one

pytestmark = pytest.mark.backends("memory", "sqlite", "redis")
MEMORY = pytest.mark.backends("memory")


@queue_command(shard=lambda number, **_: number, max_run=1)
def deliver(number, fail=False):
    if fail:
        raise Retry("no courier", after=600)


@queue_command(throttle=Throttle(1, 3600))
def report(number):
    pass


@queue_command(ttl=0.01)
def tell(text):
    raise ValueError(text)


@pytest.fixture(autouse=True)
def _a_consumer(queue):
    """A live consumer serves the queue."""
    beat(queue)
    yield
    operations.resume("command", deliver.name)  # queues in memory share their store


def beat(queue, ago=0.0, known=None, **told):
    """The heartbeat of a consumer, as it was written some seconds ago."""
    store = queue.store.shared
    known = consumers.known_commands([deliver, report, tell, note]) if known is None else known
    consumers.write_commands(store, known)
    consumers.enter(store, "web-1:42:beef")
    given = {"queues": [queue.base_name], "commands": consumers.digest_of(known), "threads": 4, **told}
    consumers.write(store, ConsumerRecord(name="web-1:42:beef", at=store.now() - ago, **given))


def kinds(id) -> list[str]:
    return [reason.kind for reason in explain(id).reasons]


def only(id):
    [reason] = explain(id).reasons
    return reason


def test_what_waits_in_a_lane_waits_for_the_retry_before_it_until_it_is_due(queue):
    first, second, other = (deliver.enqueue(*call).id for call in ((7, True), (7,), (8,)))
    run_one(queue)
    reason = only(second)
    assert (reason.kind, reason.until > queue.now() + 500) == ("lane_retry", True)
    assert f"for the retry of its first message, {first}" in reason.text and "--resume" in reason.advice
    assert kinds(other) == ["working"]
    queue.lanes.pause(f"{deliver.name}:7", "out of paper")
    assert kinds(second) == ["lane_paused"] and "out of paper" in only(second).text
    [blocked] = explain_queue(queue).reasons
    assert (blocked.kind, "2 messages wait in it" in blocked.text) == ("lane_paused", True)


def test_a_throttle_a_busy_lane_and_a_delay_are_told_with_their_moments(queue):
    report.enqueue(1)
    throttled, delayed = report.enqueue(2).id, report.using(delay=600).enqueue(3).id
    run_one(queue)
    assert only(throttled).kind == "lane_throttled" and only(throttled).until > queue.now() + 3000
    assert only(delayed).kind == "due" and f"run-now {delayed[-8:]}" in only(delayed).advice
    running, behind = deliver.enqueue(7).id, deliver.enqueue(7).id
    [lease] = queue.claim(1, owner="web-1:42:beef")
    assert (lease.entry.id, kinds(running), kinds(behind)) == (running, ["running"], ["lane_busy"])
    Result(running).cancel()
    assert kinds(running) == ["running", "cancelled"]


def test_what_is_over_is_told_from_the_failed_queue_the_history_and_the_result(queue):
    done, cancelled = deliver.enqueue(1).id, deliver.enqueue(2).id
    run_one(queue)
    assert Result(cancelled).cancel()
    for id, status in ((done, "done"), (cancelled, "cancelled")):
        assert (explain(id).state, kinds(id), status in only(id).text) == (status, ["ended"], True)
    failed = tell.using(ttl=None).enqueue("no").id
    run_one(queue)
    assert (explain(failed).state, only(failed).kind) == ("failed", "failed")
    assert "after 1 attempt: ValueError: no" in only(failed).text and "queue_errors retry" in only(failed).advice
    assert (explain("nope").state, kinds("nope")) == ("unknown", ["unknown"])


def test_a_result_alone_says_as_much_as_the_history_but_for_the_consumer(queue, settings):
    settings.QUEUE_HISTORY = None
    id = deliver.using(result_ttl=60).enqueue(1).id
    run_one(queue)
    assert (explain(id).state, explain(id).command) == ("done", deliver.name)
    assert "It ended as done at" in only(id).text and "at attempt 1 in" in only(id).text
    queue.store.put(f"result:{id}", b"rubbish", 60)
    assert (explain(id).state, kinds(id)) == ("unknown", ["unknown"])


def test_pauses_of_the_queue_and_of_the_command_are_told_with_who_and_why(queue):
    id = deliver.enqueue(7).id
    operations.pause("queue", "default", why="the mail server is away", by="ann")
    operations.pause("command", deliver.name, by="bob")
    assert kinds(id) == ["queue_paused", "command_paused"]
    queue_paused, command_paused = explain(id).reasons
    assert "paused by ann since" in queue_paused.text and "(the mail server is away)" in queue_paused.text
    assert (queue_paused.advice, "by bob" in command_paused.text) == ("queue_resume default.", True)
    assert [reason.kind for reason in explain_queue(queue).reasons] == ["queue_paused"]


def test_it_is_told_if_no_live_consumer_serves_the_queue_or_knows_the_command(queue):
    id = note.enqueue("x").id  # of a module that consumers import at their start
    beat(queue, known={f"{note.name}s": ""})
    assert kinds(id) == ["unknown_command"]
    assert only(id).advice == f"Deploy {note.name} to the consumers, and restart them.", "it is known here"
    beat(queue, state=consumers.QUIET)
    assert kinds(id) == ["quiet"] and only(id).advice.startswith("queue_consumers --resume web-1:42:beef")
    beat(queue, ago=60.0)
    assert kinds(id) == ["no_consumer"] and "web-1:42:beef, is silent since" in only(id).text
    queue.claim(1, owner="web-1:42:beef")
    assert kinds(id) == ["running", "no_consumer"] and "it has died" in explain(id).reasons[0].text


@MEMORY
def test_what_would_fail_or_expire_when_it_is_taken_is_told(queue, settings):
    deliver_id, tell_id = deliver.enqueue(7).id, tell.enqueue("late").id
    queue.clock = lambda: 4e9  # long after its ttl
    beat(queue)
    assert kinds(tell_id) == ["expired"]
    queue.put([Entry(b"djq1c", "stranger", command="this.is_not_imported")])
    assert kinds("stranger") == ["invalid"] and "this" not in sys.modules
    queue.push("an item for a loop of one's own")
    [item] = [one.id for one in operations.messages_of(queue) if not one.command]
    assert kinds(item) == ["working"]
    settings.SECRET_KEY = "another one" * 5
    assert kinds(deliver_id) == ["invalid"] and "bad signature" in only(deliver_id).text


@MEMORY
def test_the_command_takes_parts_of_ids_and_says_queues_without_any(queue, settings, monkeypatch):
    id = deliver.enqueue(7).id
    text = run("queue_explain", id[-8:])
    assert text.splitlines()[0] == f"{id}: ready ({deliver.name}, queue default)"
    assert "Nothing stops it: 1 message is ready" in text
    assert run("queue_explain").startswith(
        "default: waits\nkind     reason\nworking  Nothing stops it: 1 message is ready"
    )
    [told] = run_json("queue_explain", id)
    assert (told["subject"], told["reasons"][0]["kind"]) == (id, "working")
    delayed = deliver.using(delay=600).enqueue(8).id
    [until] = [reason["until"] for reason in run_json("queue_explain", delayed)[0]["reasons"]]
    assert 590 < datetime.fromisoformat(until).timestamp() - queue.now() <= 600
    monkeypatch.setenv("COLUMNS", "50")
    assert all(len(line) <= 50 for line in run("queue_explain", "-q", "default").splitlines())
    assert str(failure("queue_explain", "nope")) == "Not known: nope"
    assert run("queue_explain", "default") == run("queue_explain", "-q", "default")
    assert str(failure("queue_explain", "defalt")) == "Not known: defalt (did you mean the queue default?)"
