"""Each action of the dashboard, clicked in a browser: what the store has then. On a telephone, where least fits."""

import pytest

from djqueue import operations, queues, schedules
from djqueue.backends.entries import READY
from djqueue.operations.messages import RUNNING, find_message
from djqueue.running import consumers
from djqueue.running.shared import shared_stores
from tests.dashboard.calls import failed, heartbeat, send_receipt, transfer
from tests.dashboard.windows import Window, dashboard
from tests.support.backends import FULL

pytestmark = [pytest.mark.slow, pytest.mark.backends("sqlite", "redis", database=True)]
NARROW = 390


def test_each_action_is_clicked(queue, live_server, settings, request):
    steps = [click_on_lists, click_on_queues]
    if FULL or "sqlite" in request.node.name:  # another store differs in what it does, not in what is clicked
        steps += [click_on_messages, click_on_lanes, click_on_commands, click_on_schedules, click_on_consumers]
    with dashboard(live_server.url, settings) as window:
        for step in steps:
            step(window)
            assert window.faults() == [], step.__name__
            queue.clear()
            queue.failed.clear()


def waiting(**options) -> str:
    return send_receipt.using(**options).enqueue("ann@example.com", 2).id


def state_of(id: str, alias: str = "default") -> str | None:
    found = find_message(queues[alias], id)
    return found and found.state


def click_on_messages(window: Window):
    """On the page of each."""
    ids = {"failed": failed(1), "later": waiting(delay=600), "ready": waiting(), "moved": waiting()}
    window.show(f"message/?id={ids['failed']}", NARROW)
    window.press("Retry")
    window.wait_for_message("1 message requeued.")
    window.show(f"message/?id={ids['later']}", NARROW)
    window.press("Run now")
    window.wait_for_message("1 message due now.")
    assert [state_of(ids[name]) for name in ("failed", "later")] == [READY, READY]
    window.show(f"message/?id={ids['ready']}", NARROW)
    window.press("Change the priority")
    window.confirm("Change the priority", "Change the priority of 1 message?", priority="7")
    window.wait_for_message("1 message reprioritised.")
    assert find_message(queues["default"], ids["ready"]).priority == 7
    window.show(f"message/?queue=default&id={ids['moved']}", NARROW)
    window.press("Move to another queue")
    window.confirm("Move to another queue", to="other")
    window.wait_for_message("1 message moved.")
    assert (state_of(ids["moved"]), state_of(ids["moved"], "other")) == (None, READY)
    window.press("Remove")  # its page shows it where it is now
    window.confirm("Remove", "Remove 1 message, without a trace?")
    window.wait_for_message("1 message removed.")
    assert state_of(ids["moved"], "other") is None
    assert "remove by ann" in window.run("return document.querySelector('.djq-timeline').textContent")
    [held] = queues["default"].claim(1)
    window.show(f"message/?id={held.entry.id}", NARROW)
    window.press("Cancel")
    window.confirm("Cancel")
    window.wait_for_message("1 message cancelled or asked to stop.")
    assert state_of(held.entry.id) == RUNNING
    assert "cancelled" in {reason.kind for reason in operations.explain(held.entry.id).reasons}
    queues["default"].complete([held])


def click_on_lists(window: Window):
    """Those selected, all that match, and all of a group."""
    ids = [failed(1), failed(3), failed(5)]
    window.show("messages/?state=failed", NARROW)
    for number in (0, 1):
        window.run("document.querySelectorAll('input[name=message]')[arguments[0]].click()", number)
    window.fill(action="requeue")
    window.press("Go")
    window.wait_for_message("2 messages requeued.")
    assert sorted(state_of(id) for id in ids) == ["failed", READY, READY]
    window.show("messages/?state=ready", NARROW)
    window.run("document.querySelector('[name=which][value=all]').click()")
    window.fill(action="cancel")
    window.press("Go")
    window.confirm("Cancel", "Cancel 2 messages?")
    window.wait_for_message("2 messages cancelled or asked to stop.")
    assert len(queues["default"]) == 0
    window.show("failed/", NARROW)
    window.press("Retry all…", "send_receipt")
    window.confirm("Retry", "Retry 1 message?")
    window.wait_for_message("1 message requeued.")
    assert (len(queues["default"]), len(queues["default"].failed)) == (1, 0)
    queues["default"].clear()
    failed(7)
    window.show("failed/", NARROW)
    window.press("Remove all…", "send_receipt")
    window.confirm("Remove", "Remove 1 message, without a trace?")
    window.wait_for_message("1 message removed.")
    assert len(queues["default"].failed) == 0


def click_on_queues(window: Window):
    failed(1)
    waiting(), waiting(delay=600)
    window.show("queues/", NARROW)
    pause(window, "default", "the bank is closed")
    window.wait_for_message("The queue default is paused.")
    assert [(one.name, one.why, one.by) for one in operations.pauses()] == [("default", "the bank is closed", "ann")]
    window.press("Resume", "default")
    window.wait_for_message("The queue default is resumed.")
    assert operations.pauses() == []
    window.press("Purge…", "default")
    window.confirm("Purge", "Delete about 2 messages that wait in default")
    window.wait_for_message("Deleted about 2 messages that waited in default.")
    assert (len(queues["default"]), len(queues["default"].failed)) == (0, 1)
    window.press("Purge failed…", "default")
    window.confirm("Purge failed", "Delete about 1 message that failed in default")
    window.wait_for_message("Deleted about 1 message that had failed in default.")
    assert len(queues["default"].failed) == 0


def click_on_lanes(window: Window):
    transfer.enqueue("acc-1")
    [lane] = queues["default"].lanes.page()
    window.show("lanes/", NARROW)
    pause(window, "acc-1", "an audit")
    window.wait_for_message(f"The lane {lane.name} in default is paused.")
    assert queues["default"].lanes.get(lane.name).paused_reason == "an audit"
    window.press("Resume", "acc-1")
    window.wait_for_message(f"The lane {lane.name} in default is resumed.")
    assert not queues["default"].lanes.get(lane.name).paused_reason
    first, second = queues["default"].lanes.peek(lane.name, 2)[0].entry.id, transfer.enqueue("acc-1").id
    pause(window, "acc-1", "its balance is not 0")
    window.wait_for_message(f"The lane {lane.name} in default is paused.")
    window.press("Skip…", "acc-1")
    window.confirm("Skip", f"Cancel message {first}, the first of the lane {lane.name}, for good")
    window.wait_for_message(f"Message {first} is cancelled, and the lane {lane.name} goes on.")
    assert (state_of(first), state_of(second)) == (None, READY)
    assert not queues["default"].lanes.get(lane.name).paused_reason


def click_on_commands(window: Window):
    window.show("commands/", NARROW)
    pause(window, "send_receipt", "it is too slow")
    window.wait_for_message(f"The command {send_receipt.name} is paused.")
    assert [(one.kind, one.name) for one in operations.pauses()] == [("command", send_receipt.name)]
    window.press("Resume", "send_receipt")
    window.wait_for_message(f"The command {send_receipt.name} is resumed.")
    assert operations.pauses() == []


def click_on_schedules(window: Window):
    schedules.add("hourly", send_receipt, args=("ann@example.com", 2), every=3600)
    window.show("schedules/", NARROW)
    pause(window, "hourly", "")
    window.wait_for_message("The schedule hourly is paused.")
    assert [(one.kind, one.name) for one in operations.pauses()] == [("schedule", "hourly")]
    window.press("Resume", "hourly")
    window.wait_for_message("The schedule hourly is resumed.")
    window.click("a[href$='?name=hourly']")
    window.until("return document.querySelector('.djq-form')")
    window.fill(when="7200")
    window.press("Save")
    window.until("return /hourly/.test(document.querySelector('.messagelist')?.textContent)")
    assert [one.timetable.every for one in schedules.list()] == [7200]
    window.show("schedules/", NARROW)
    window.press("Run now…", "hourly")
    window.confirm("Run now", "Enqueue the call of hourly now?")
    window.until(
        "return /The call of hourly is in the queue default/.test(document.querySelector('.messagelist')?.textContent)"
    )
    assert len(queues["default"]) == 1
    window.press("Remove…", "hourly")
    window.confirm("Remove", "Remove the schedule hourly?")
    window.wait_for_message("The schedule hourly is removed.")
    assert schedules.list() == []


def click_on_consumers(window: Window):
    [shared] = shared_stores([queues["default"]])
    name, dead = "web-1:42:beef", "web-2:43:dead"
    heartbeat(queues["default"], name)
    heartbeat(queues["default"], dead, 60.0)

    def order() -> str:
        return consumers.order_of(shared.store.get(consumers.order_key_of(name))).order

    window.show("consumers/", NARROW)
    window.press("Quiet", name)
    window.wait_for_message(f"The consumer {name} claims nothing more.")
    assert order() == consumers.QUIET
    heartbeat(queues["default"], name, state=consumers.QUIET)
    window.show("consumers/", NARROW)
    window.press("Resume", name)
    window.wait_for_message(f"The consumer {name} claims again.")
    assert order() == consumers.RESUME
    window.press("Stop…", name)
    window.confirm("Stop", f"Stop the consumer {name}")
    window.wait_for_message(f"The consumer {name} stops.")
    assert order() == consumers.STOP
    window.press("Forget", dead)
    window.wait_for_message(f"The consumer {dead} is not shown any more.")
    assert [one.name for one in operations.consumers()] == [name]


def pause(window: Window, row: str, why: str):
    """Open the form of a row, say why, and send it."""
    window.press("Pause…", row)
    window.run("document.querySelector('.djq-more[open] [name=why]').value = arguments[0]", why)
    window.press("Pause", row)
