"""Pauses and what operators did, as they are kept and told, on each kind of store."""

import json

import pytest

from djqueue import crontab, operations, periodic_command, queue_command, queues, schedules
from djqueue.exceptions import InvalidQueueError, NotSupported, QueueError
from djqueue.operations.actions import KEY as ACTIONS
from djqueue.operations.actions import record
from djqueue.running import pauses
from djqueue.testing import together
from tests.backends.contract.toy import ToyQueue

TOY = f"{ToyQueue.__module__}.{ToyQueue.__qualname__}"
MEMORY = pytest.mark.backends("memory")


@pytest.fixture
def queue(backend, settings):
    settings.QUEUES = backend.queues("default", "mail")
    return queues["default"]


@queue_command
def charge():
    raise NotImplementedError


@periodic_command(crontab())
def digest():
    raise NotImplementedError


def told():
    return [(one.kind, one.name, one.queue, one.by, one.why) for one in operations.pauses()]


def test_what_is_paused_is_told_by_whom_and_why_until_it_is_resumed(queue):
    before = queue.now()
    assert operations.pause("queue", "mail", why="no stamps", by="ada") is True
    assert operations.pause("command", charge.name, "mail", by="bob", for_=60) is True
    assert operations.pause("schedule", digest.name, by="bob") is True
    assert told() == [
        ("queue", "mail", "", "ada", "no stamps"),
        ("command", charge.name, "mail", "bob", ""),
        ("schedule", digest.name, "", "bob", ""),
    ]
    first, second, _ = operations.pauses()
    assert before <= first.since <= second.since <= queue.now()
    assert (first.until, round(second.until - second.since)) == (None, 60)
    assert [one.kind for one in operations.pauses(["default"])] == ["schedule"]
    assert operations.resume("command", charge.name) is False, "it is paused in one queue"
    assert operations.resume("command", charge.name, "mail", by="eve") is True
    assert [operations.resume("queue", "mail"), operations.resume("queue", "mail")] == [True, False]
    assert [one[0] for one in told()] == ["schedule"]
    assert [(one.action, one.what, one.by) for one in operations.actions(limit=5)][1] == (
        "resume",
        f"command {charge.name} of queue mail",
        "eve",
    )


@MEMORY
def test_a_pause_that_is_repeated_changes_only_what_it_says(queue):
    operations.pause("queue", "mail", why="no stamps", by="ada", for_=60)
    [was] = operations.pauses()
    assert operations.pause("queue", "mail", by="bob") is False
    assert operations.pauses() == [was]
    operations.pause("queue", "mail", why="no paper")
    assert told() == [("queue", "mail", "", "ada", "no paper")]
    assert [one.by for one in operations.actions() if one.action == "pause" and one.by in ("ada", "bob")][0] == "ada"


def test_of_two_that_pause_at_once_none_is_lost(queue):
    together(lambda: operations.pause("queue", "mail"), lambda: operations.pause("queue", "default"), last=queue.close)
    assert {one.name for one in operations.pauses()} == {"mail", "default"}


@MEMORY
@pytest.mark.parametrize(
    "kind, name, queue_name, error, text",
    [
        ("queue", "nail", None, InvalidQueueError, "no queue 'nail'"),
        ("command", charge.name, "nail", InvalidQueueError, "no queue 'nail'"),
        ("command", charge.name + "s", None, QueueError, "did you mean"),
        ("schedule", "digest", None, QueueError, "There is no schedule 'digest'"),
        ("queues", "mail", None, ValueError, "did you mean 'queue'"),
        ("queue", "mail", "mail", ValueError, "takes no other queue"),
    ],
)
def test_what_is_not_there_cannot_be_paused(queue, kind, name, queue_name, error, text):
    with pytest.raises(error, match=text):
        operations.pause(kind, name, queue_name)
    assert told() == []


@MEMORY
def test_a_name_that_is_not_known_here_is_paused_by_force_and_a_schedule_of_run_time_is_known(queue):
    assert operations.pause("command", "shop.commands.later", force=True) is True
    schedules.add("nightly", charge, every=60)
    assert operations.pause("schedule", "nightly") is True


def test_a_queue_without_a_store_cannot_be_paused_and_is_recorded_nowhere(settings):
    settings.QUEUES = {"default": {"CLASS": TOY, "CONNECTION": {}, "STORE": False}}
    with pytest.raises(NotSupported, match="Give it one by STORE"):
        operations.pause("queue", "default")
    with pytest.raises(NotSupported, match="No queue has a store"):
        operations.pause("command", charge.name)
    record(queues["default"], "remove", "messages", 3)
    assert operations.actions() == operations.consumers() == []


@MEMORY
def test_what_cannot_be_read_is_nothing_and_is_replaced(queue):
    store = queue.store.shared
    for text in (b"\xff", b"{}", b"[1]", b'[{"kind": "queue"}]', b'[{"name": 1, "odd": 2}]'):
        store.put(pauses.KEY, text)
        assert operations.pauses() == []
    assert operations.pause("queue", "mail") is True
    store.put(ACTIONS, b'[["then", 1, 2]]')
    record(queue, "remove", "messages of charge", 3, by="ada")
    [one] = operations.actions()
    assert (one.by, one.queue, one.action, one.what, one.count) == ("ada", "default", "remove", "messages of charge", 3)


@MEMORY
def test_what_another_version_wrote_beside_or_cannot_be_read_hides_nothing(queue):
    store = queue.store.shared
    operations.pause("queue", "mail", by="ada")
    record(queue, "remove", "messages", 3, by="ada")
    odd = [1, {}, {"kind": "queue", "name": "x", "until": "soon"}, {"kind": [], "name": {}, "since": {}}]
    store.put(
        pauses.KEY, json.dumps([*odd, *({**one, "shade": 5} for one in json.loads(store.get(pauses.KEY)))]).encode()
    )
    store.put(ACTIONS, json.dumps([None, ["x"], *([*one, "more"] for one in json.loads(store.get(ACTIONS)))]).encode())
    operations.pause("queue", "default", by="bob")
    assert [one[1] for one in told()] == ["mail", "default"]
    assert [one.by for one in operations.actions()] == ["bob", "ada", "ada"]


@MEMORY
def test_the_last_actions_are_kept_and_who_runs_the_process_is_the_default(queue, monkeypatch):
    monkeypatch.setattr("getpass.getuser", lambda: {}["no name"])
    monkeypatch.setitem(record.__globals__, "MOST", 10)
    for number in range(15):
        record(queue, "remove", str(number), 1)
    found = operations.actions(["default"])
    assert [one.what for one in found] == [str(number) for number in reversed(range(5, 15))]
    assert "@" in found[0].by
    assert operations.actions(["mail"]) == []


@MEMORY
def test_an_action_that_cannot_be_recorded_is_done_all_the_same(queue, monkeypatch, caplog):
    monkeypatch.setattr(queue.store.shared, "swap_many", lambda *args: 1 / 0)
    record(queue, "remove", "messages", 3)
    assert "could not be recorded" in caplog.text


@MEMORY
def test_what_was_done_before_a_store_failed_is_recorded(queue, monkeypatch):
    remove, ids = queue.remove, [charge().id for _ in range(3)]
    monkeypatch.setattr(queue, "remove", lambda some, *ends: 1 / 0 if some == ids[2:] else remove(some, *ends))
    with pytest.raises(ZeroDivisionError):
        operations.cancel(queue, ids, by="ada")
    assert [(one.action, one.count, one.by) for one in operations.actions(limit=1)] == [("cancel", 2, "ada")]
