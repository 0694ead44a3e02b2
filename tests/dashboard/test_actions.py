"""What the dashboard does: its effect on the store, who may do it, what is asked before, and what is recorded."""

import re
from functools import partial
from html import unescape

import pytest
from django.contrib.admin.models import LogEntry

from djqueue import operations, queues, schedules
from djqueue.backends.entries import READY, Entry
from djqueue.dashboard.actions import LONGEST_WHY
from djqueue.operations import paging
from djqueue.operations.acting import ACTIONS
from djqueue.operations.messages import find_message
from djqueue.running import consumers
from djqueue.running.pauses import QUEUE
from djqueue.running.shared import shared_stores
from tests.dashboard.calls import failed, heartbeat, send_receipt, transfer, value
from tests.dashboard.conftest import ROOT, log_in, messages_shown
from tests.support.consumer import fail_at_the_third_cancel
from tests.support.markup import faults

pytestmark = pytest.mark.backends("memory", database=True)
ACT = f"{ROOT}act/"
STORES = pytest.mark.backends("memory", "sqlite", "redis", database=True)


def post(browser, **fields) -> str:
    """Send a form, and that of the confirmation if one is asked for; what the user is told."""
    page = browser.post(ACT, {"next": f"{ROOT}queues/", **fields})
    if page.status_code == 200:
        page = browser.post(ACT, form_in(page))
    assert (page.status_code, page["Location"]) == (302, f"{ROOT}queues/"), page
    return messages_shown(browser)


def form_in(page) -> dict[str, list[str]]:
    """What the form of a confirmation sends."""
    fields: dict[str, list[str]] = {"confirmed": ["yes"]}
    text = page.content.decode().partition('class="djq-confirm"')[2]
    for name, given in re.findall(r'name="(\w+)" value="([^"]*)"', text):
        fields.setdefault(name, []).append(unescape(given))
    return fields


def buttons_in(page: str) -> dict[str, dict[str, str]]:
    """What the forms of a page send for messages, by the actions of their buttons."""
    found: dict[str, dict[str, str]] = {}
    for form in re.findall(r"<form method=\"post\".*?</form>", page, re.DOTALL):
        given = re.findall(r'type="hidden" name="(\w+)" value="(.*?)"', form)
        hidden = {name: unescape(text) for name, text in given}
        buttons = re.findall(r'<button class="[^"]*" name="action" value="([^"]+)"', form)
        found |= {action: {**hidden, "action": action} for action in buttons}
    return found


def waiting(**options) -> str:
    return send_receipt.using(**options).enqueue("ann@example.com", 2).id


def state_of(id: str, alias: str = "default") -> str | None:
    found = find_message(queues[alias], id)
    return found and found.state


def logged() -> list[str]:
    return [entry.change_message for entry in LogEntry.objects.order_by("pk")]


# ---- Messages


@STORES
def test_each_action_on_messages(queue, superuser):
    one, two, three, four, five = failed(1), waiting(delay=600), waiting(), waiting(), waiting()
    acts = (
        ("requeue", one, {}, READY, "1 message requeued."),
        ("run-now", two, {}, READY, "1 message due now."),
        ("reprioritise", three, {"priority": "7"}, READY, "1 message reprioritised."),
        ("move", four, {"to": "other"}, None, "1 message moved."),
        ("cancel", five, {}, None, "1 message cancelled or asked to stop."),
        ("remove", two, {}, None, "1 message removed."),
    )
    for name, id, more, state, text in acts:
        fields = {"action": name, "message": value(id), "confirmed": "yes", **more}
        assert post(superuser, **fields) == text
        assert state_of(id) == state, name
        if name != "reprioritise":
            assert "moved on meanwhile" in post(superuser, **fields), "a second click does no harm"
    assert find_message(queue, three).priority == 7 and state_of(four, "other") == READY
    assert logged() == [text for *_, text in acts]
    done = [(action.by, action.count) for action in operations.actions()]
    assert done == [("superuser", 1)] * len(acts)


def test_the_buttons_of_a_message_act_on_it(queue, superuser):
    lost, others = failed(1), [failed(3), failed(5)]
    buttons = buttons_in(superuser.get(f"{ROOT}message/", {"id": lost}).content.decode())
    assert {*buttons} == {"requeue", "remove", "send-copy"}
    superuser.post(ACT, buttons["requeue"])
    assert messages_shown(superuser) == "1 message requeued."
    assert [state_of(id) for id in (lost, *others)] == [READY, "failed", "failed"]


def test_the_buttons_of_a_group_act_on_all_of_it(queue, superuser):
    ids = [failed(1), failed(3)]
    buttons = buttons_in(superuser.get(f"{ROOT}failed/").content.decode())
    assert {*buttons} == {"requeue", "remove"}
    assert post(superuser, **{**buttons["requeue"], "next": f"{ROOT}queues/"}) == "2 messages requeued."
    assert [state_of(id) for id in ids] == [READY] * 2


@pytest.mark.parametrize(
    ("permission", "actions"), [("view_dashboard", set()), ("retry", {"requeue"}), ("remove", {"remove"})]
)
def test_a_group_has_the_buttons_that_are_allowed(queue, db, permission, actions):
    failed(1)
    page = log_in("view_dashboard", permission).get(f"{ROOT}failed/").content.decode()
    assert {*buttons_in(page)} == actions
    assert ("Actions" in page) == bool(actions)


@STORES
def test_removing_asks_first(queue, superuser):
    ids = [waiting() for _ in range(3)]
    page = superuser.post(ACT, {"action": "remove", "message": [value(id) for id in ids[:2]]})
    assert "Remove 2 messages, without a trace?" in page.content.decode() and faults(page.content.decode()) == []
    assert [state_of(id) for id in ids] == [READY] * 3 and logged() == []
    form = form_in(page)
    superuser.post(ACT, form)
    superuser.post(ACT, form)
    assert "That was done already." in messages_shown(superuser)
    assert [state_of(id) for id in ids] == [None, None, READY] and logged() == ["2 messages removed."]


def test_what_was_done_before_an_action_fails_is_logged(queue, superuser, monkeypatch):
    ids = [waiting() for _ in range(3)]
    fail_at_the_third_cancel(queue, monkeypatch)
    form = {"action": "cancel", "message": [value(id) for id in ids], "confirmed": "yes"}
    assert superuser.post(ACT, form).status_code == 503
    assert logged() == ["2 messages cancelled or asked to stop; then it failed: nobody there"]
    assert [(one.action, one.count) for one in operations.actions()] == [("cancel", 2)]


@STORES
def test_all_that_a_filter_selects(queue, superuser):
    ids = [failed(1), failed(3), failed(5)]
    fields = {"action": "requeue", "which": "all", "reason": "answer</b> for", "state": "failed"}
    page = superuser.post(ACT, fields)
    assert "Retry 3 messages?" in page.content.decode() and "text of the error answer" in page.content.decode()
    assert [state_of(id) for id in ids] == ["failed"] * 3
    assert post(superuser, **fields) == "3 messages requeued."
    assert [state_of(id) for id in ids] == [READY] * 3
    [action] = operations.actions()
    assert (action.action, action.count, action.what) == (
        "requeue",
        3,
        "state failed, text of the error answer</b> for",
    )


@STORES
def test_an_action_on_all_says_how_far_messages_were_checked(queue, superuser, monkeypatch):
    monkeypatch.setattr(paging, "page", partial(paging.page, most=2))
    ids = [failed(1), failed(3), failed(5)]
    page = superuser.post(ACT, {"action": "requeue", "which": "all", "state": "failed"}).content.decode()
    assert "Retry 2 messages?" in page
    assert "2 messages were checked: filter more narrowly" in page
    assert [state_of(id) for id in ids] == ["failed"] * 3


def test_what_has_failed_is_only_meant_where_it_is_asked_for(queue, superuser):
    lost, waits = failed(1), waiting()
    post(superuser, action="remove", which="all")
    assert (state_of(lost), state_of(waits)) == ("failed", None)
    post(superuser, action="remove", which="all", state="failed")
    assert state_of(lost) is None


@pytest.mark.parametrize(
    "fields, text",
    [
        ({}, "choose an action"),
        ({"action": "requeue"}, "no message was selected"),
        ({"action": "requeue", "message": "no json"}, "no message was selected"),
        ({"action": "requeue", "message": '["nowhere", "x"]'}, "no message was selected"),
        ({"action": "requeue", "message": "5"}, "no message was selected"),
        ({"action": "requeue", "message": "[" * 100_000}, "no message was selected"),
        ({"action": "requeue", "which": "all", "older": "soon"}, "no message was selected"),
        ({"action": "move", "to": "nowhere", "confirmed": "yes"}, "There is no queue &#x27;nowhere&#x27;"),
        ({"action": "reprioritise", "priority": "high", "confirmed": "yes"}, "is no priority: give a whole number"),
    ],
)
def test_wrong_forms_are_answered_in_words(queue, superuser, fields, text):
    id = waiting()
    more = {"message": value(id)} if "confirmed" in fields else {}
    assert text in post(superuser, **more, **fields)
    assert state_of(id) == READY and logged() == []


# ---- Queues, commands, schedules, lanes and consumers


@STORES
def test_queues_are_paused_resumed_and_purged(queue, superuser):
    pause = {"action": "pause_queue", "name": "default", "why": "the bank is closed"}
    assert post(superuser, **pause) == "The queue default is paused."
    assert "was paused already" in post(superuser, **pause)
    [one] = operations.pauses()
    assert (one.kind, one.name, one.by, one.why) == (QUEUE, "default", "superuser", "the bank is closed")
    assert "the bank is closed" in superuser.get(f"{ROOT}queues/").content.decode()
    resume = {"action": "resume_queue", "name": "default"}
    assert post(superuser, **resume) == "The queue default is resumed."
    assert "was not paused" in post(superuser, **resume) and operations.pauses() == []
    failed(1)
    waiting(), waiting(delay=60)
    page = superuser.post(ACT, {"action": "purge", "name": "default"})
    assert "Delete about 2 messages that wait in default" in page.content.decode() and len(queue) == 2
    assert "Deleted about 2 messages that waited" in post(superuser, action="purge", name="default")
    assert "Deleted about 1 message that had failed" in post(superuser, action="purge_failed", name="default")
    assert len(queue) == len(queue.failed) == 0 and len(logged()) == 4


@STORES
def test_orders_to_consumers(queue, superuser):
    heartbeat(queue, "web-1:42:beef")
    heartbeat(queue, "web-2:43:dead", 60.0)
    [shared] = shared_stores([queue])
    said = {"quiet": "claims nothing more", "resume_consumer": "claims again", "stop": "stops"}
    for (action, words), order in zip(said.items(), ("quiet", "resume", "stop"), strict=True):
        assert f"web-1:42:beef {words}." in post(superuser, action=action, name="web-1:42:beef")
        assert consumers.order_of(shared.store.get(consumers.order_key_of("web-1:42:beef"))).order == order
    assert "hears nothing" in post(superuser, action="stop", name="web-2:43:dead")
    assert "is not shown any more" in post(superuser, action="forget", name="web-2:43:dead")
    assert [one.name for one in operations.consumers()] == ["web-1:42:beef"] and len(logged()) == 4


def test_lanes_commands_and_schedules(queue, superuser):
    transfer.enqueue("acc-1")
    [lane] = queue.lanes.page()
    name, command = lane.name, send_receipt.name
    assert post(superuser, action="pause_lane", name=name, queue="default", why="audit").endswith("is paused.")
    assert queue.lanes.get(name).paused_reason == "audit"
    assert post(superuser, action="resume_lane", name=name, queue="default").endswith("is resumed.")
    assert not queue.lanes.get(name).paused_reason
    schedules.add("hourly", send_receipt, args=("ann@example.com", 2), every=3600)
    for kind, given in (("command", command), ("schedule", "hourly")):
        assert post(superuser, action=f"pause_{kind}", name=given) == f"The {kind} {given} is paused."
        assert [(one.kind, one.name) for one in operations.pauses()] == [(kind, given)]
        assert post(superuser, action=f"resume_{kind}", name=given) == f"The {kind} {given} is resumed."
    assert "is in the queue default: message" in post(superuser, action="run_schedule", name="hourly")
    assert post(superuser, action="remove_schedule", name="hourly") == "The schedule hourly is removed."
    assert schedules.list() == [] and len(logged()) == len(operations.actions()) == 8
    assert "There is no command" in post(superuser, action="pause_command", name="nothing")
    for strange in ("zzz 9", ""):
        assert "No lane and no command has the name" in post(
            superuser, action="pause_lane", name=strange, queue="default"
        )


@STORES
def test_the_first_message_of_a_blocked_lane_is_skipped_once(queue, superuser):
    first, second, third = (transfer.enqueue("acc-1").id for _ in range(3))
    [lane] = queue.lanes.page()
    queue.lanes.pause(lane.name, "its balance is not 0")
    assert "Skip…" not in log_in("view_dashboard", "pause", name="bob").get(f"{ROOT}lanes/").content.decode()
    page = superuser.get(f"{ROOT}lanes/").content.decode()
    assert faults(page) == [] and "Skip…" in page and first in page
    form = {"action": "skip_lane", "name": lane.name, "queue": "default", "message": first}
    asked = superuser.post(ACT, form)
    assert "for good, and let the lane go on with the 2 messages behind it?" in asked.content.decode()
    assert post(superuser, **form) == f"Message {first} is cancelled, and the lane {lane.name} goes on."
    assert "is not the first" in post(superuser, **form), "a second click skips no other"
    assert (state_of(first), logged()) == (None, [f"Message {first} is cancelled, and the lane {lane.name} goes on."])
    assert [lease.entry.id for lease in queue.claim(2)] == [second, third]
    assert [(one.action, one.by) for one in operations.actions()] == [("skip", "superuser")]


def test_a_form_that_the_page_does_not_have_stores_nothing_long_and_leads_nowhere_else(queue, superuser):
    post(superuser, action="pause_queue", name="default", why="x" * 100_000)
    assert len(operations.pauses()[0].why) == LONGEST_WHY
    form = {"action": "remove", "message": value(waiting()), "next": "javascript:alert(1)"}
    page = superuser.post(ACT, form).content.decode().partition('class="djq-confirm"')[2]
    assert re.findall(r'<a href="([^"]*)"', page)[0] == ROOT


def test_what_is_logged_of_an_action_can_be_stored(queue, superuser):
    queue.put([Entry(b"", "half-\udcff\0")])
    assert "1 message" in post(superuser, action="remove", message=value("half-\udcff\0"))
    assert logged() == ["1 message removed."] and LogEntry.objects.get().object_repr == "message half-??"


# ---- Who may


def test_every_action_needs_its_permission(queue, db):
    """Of a user who may view, and one thing next to that."""
    needed = {name: one.permission for name, one in ACTIONS.items()}
    assert {*needed.values()} == {"retry", "remove", "pause", "run", "edit_schedules"}
    for permission in ("retry", "remove", "pause", "run", "edit_schedules"):
        browser = log_in("view_dashboard", permission, name=permission)
        answers = {name: browser.post(ACT, {"action": name, "confirmed": "yes"}).status_code == 302 for name in ACTIONS}
        assert answers == {name: one == permission for name, one in needed.items()}


def test_an_action_without_the_permission_to_view_is_refused(queue, db):
    browser = log_in("pause")
    assert browser.post(ACT, {"action": "pause_queue", "name": "default"}).status_code == 403
    assert operations.pauses() == []


def test_actions_are_posts_with_a_token_and_lead_back_into_the_dashboard(queue, db):
    strict = log_in(superuser=True, name="strict", enforce_csrf_checks=True)
    browser = log_in(superuser=True)
    assert browser.get(ACT).status_code == 405
    assert strict.post(ACT, {"action": "pause_queue", "name": "default"}).status_code == 403
    for there in ("https://elsewhere.example.com/", "//elsewhere.example.com", "/admin/", "javascript:alert(1)"):
        assert browser.post(ACT, {"action": "", "next": there})["Location"] == ROOT
    assert operations.pauses() == []


def test_what_runs_can_be_asked_to_stop(queue, superuser):
    id = waiting()
    queue.claim(1)
    assert state_of(id) == "running"
    assert "1 message" in post(superuser, action="cancel", message=value(id))
