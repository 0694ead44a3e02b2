"""The list of actions: each has a permission and a question, and both front ends ask, do, say and record the same."""

import re
from html import unescape

import pytest
from django.core.management import get_commands, load_command_class

from djqueue import operations, queues, schedules
from djqueue.dashboard.site import PERMISSIONS
from djqueue.operations.acting import ACTIONS, NAMED, OF_FAILED, OF_MESSAGES, PAGE, TERMINAL, NamedAction
from djqueue.operations.actions import record
from djqueue.operations.targets import Done, Target
from djqueue.running.consumers import QUIET
from tests.dashboard.calls import failed, heartbeat, send_receipt, transfer
from tests.dashboard.conftest import ROOT, log_in
from tests.dashboard.test_actions import ACT, form_in
from tests.management.test_operator_commands import run
from tests.support.consumer import run_one

pytestmark = pytest.mark.backends("sqlite", database=True)
LANE, ALIVE, DEAD = f"{transfer.name}:acc-1", "web-1:42:beef", "web-2:43:dead"
IN_TERMINAL_ALONE = {"retry": "queue_errors names 'requeue' so", "delete": "queue_errors names 'remove' so"}
LISTS = {"consumer": "queue_consumers", "lane": "queue_lanes", "schedule": "queue_schedules"}
"""The commands that list things of a kind; their switches are the actions on these."""
LINES = {
    "pause_queue": ("queue_pause", "default"),
    "resume_queue": ("queue_resume", "default"),
    "pause_command": ("queue_pause", "--command", send_receipt.name),
    "resume_command": ("queue_resume", "--command", send_receipt.name),
    "pause_schedule": ("queue_pause", "--schedule", "hourly"),
    "resume_schedule": ("queue_resume", "--schedule", "hourly"),
    "purge": ("queue_purge", "default"),
    "purge_failed": ("queue_purge", "--failed", "default"),
}
"""Command lines of the actions that are no switch of the command that lists their kind."""
NAMES = {"queue": "default", "command": send_receipt.name, "schedule": "hourly", "lane": LANE, "consumer": ALIVE}


@pytest.fixture
def queue(backend, settings):
    settings.ROOT_URLCONF = "tests.dashboard.urls"
    settings.QUEUES = backend.queues("default", "other")
    return queues["default"]


@pytest.fixture
def superuser(queue, db):
    return log_in(superuser=True, name="superuser")


def test_each_action_has_a_permission_a_help_and_a_question_or_a_reason_for_none():
    for name, one in {**ACTIONS, **OF_FAILED}.items():
        assert (one.name, one.permission in PERMISSIONS, bool(one.title and one.help)) == (name, True, True)
        assert bool(one.question) != bool(one.unasked), name
        assert {*one.asks} <= ({PAGE, TERMINAL} if one.question else set()), name
        assert not one.destroys or PAGE in one.asks, name
        assert not isinstance(one, NamedAction) or bool(one.question) == bool(one.asks), name


def test_each_action_is_on_the_command_line():
    def verbs(command: str) -> set[str]:
        parser = load_command_class(get_commands()[command], command).create_parser("manage.py", command)
        return {*parser.format_usage().replace("{", " ").replace("}", " ").replace(",", " ").replace("[", " ").split()}

    assert {*OF_MESSAGES} <= verbs("queue_messages") and {*OF_FAILED} == {*IN_TERMINAL_ALONE} <= verbs("queue_errors")
    for name, one in NAMED.items():
        assert (name in LINES) != bool(one.switch), name
        assert not one.switch or f"--{one.switch}" in verbs(LISTS[one.kind]), name


def prepare(action: NamedAction, queue) -> None:
    """Let there be what it can be done with."""
    queue.clear(), queue.failed.clear()
    if "purge" in action.name:
        failed(1), send_receipt.enqueue("ann@example.com", 2)
    if action.kind == "lane":
        transfer.enqueue_many([("acc-1",), ("acc-1",)])
        queue.lanes.resume(LANE) if action.verb == "pause" else queue.lanes.pause(LANE, "an audit")
    if action.kind == "consumer":
        heartbeat(queue, DEAD, 60.0), heartbeat(queue, ALIVE)
    if action.kind == "schedule":
        schedules.add("hourly", send_receipt, args=("ann@example.com", 2), every=3600)
    if action.kind in ("queue", "command", "schedule"):
        change = operations.pause if action.verb == "resume" else operations.resume
        change(action.kind, NAMES[action.kind])


def plain(text: str) -> str:
    """Without the ids of messages."""
    return re.sub(r"[0-9a-f]{32}", "ID", text.strip())


@pytest.mark.parametrize("name", NAMED)
def test_terminal_and_page_ask_do_say_and_record_the_same(name, queue, superuser, monkeypatch):
    action, asked = NAMED[name], []
    target = DEAD if name == "forget" else NAMES[action.kind]
    monkeypatch.setattr("builtins.input", lambda question: asked.append(question) or "yes")
    prepare(action, queue)
    said = plain(run(*LINES.get(name, (LISTS.get(action.kind), f"--{action.switch}", target)), *in_queue(action)))
    prepare(action, queue)
    form = {"action": name, "name": target, "queue": "default" if action.kind == "lane" else ""}
    answer = superuser.post(ACT, form)
    if action.asks:
        [question] = re.findall("<p><strong>(.*?)</strong></p>", answer.content.decode())
        assert [one.partition(" Type 'yes'")[0] for one in map(plain, asked)] in ([], [plain(unescape(question))])
        answer = superuser.post(ACT, form_in(answer))
    assert answer.status_code == 302 and bool(asked) == (TERMINAL in action.asks)
    text = superuser.get(f"{ROOT}history/").content.decode()
    assert plain(unescape(re.findall(r'<li class="success">(.*?)</li>', text)[0])) == said
    page, terminal, *_ = (one for one in operations.actions() if one.action == action.verb)
    assert (page.what, page.count, page.by) == (terminal.what, terminal.count, "superuser") or name == "skip_lane"


def in_queue(action: NamedAction) -> list[str]:
    return ["-q", "default"] if action.kind == "lane" else []


def test_each_action_has_a_button(queue, superuser):
    ids = {"failed": failed(1), "done": transfer.enqueue("acc-0").id}
    run_one(queue)
    send_receipt.enqueue("ann@example.com", 2), send_receipt.using(delay=600).enqueue("ann@example.com", 4)
    transfer.enqueue_many([("acc-1",), ("acc-2",)])
    queue.lanes.pause(LANE, "an audit")
    heartbeat(queue, ALIVE), heartbeat(queue, "web-3:44:cafe", state=QUIET), heartbeat(queue, DEAD, 60.0)
    for name in ("hourly", "nightly"):
        schedules.add(name, send_receipt, args=("ann@example.com", 2), every=3600)
    for kind, name in (("queue", "other"), ("command", transfer.name), ("schedule", "nightly")):
        operations.pause(kind, name)
    pages = ["queues/", "messages/", "consumers/", "lanes/", "schedules/", "commands/", f"message/?id={ids['done']}"]
    text = "".join(superuser.get(ROOT + page).content.decode() for page in pages)
    form = re.findall(r'name="action" value="([^"]+)"|<option value="([^"]+)">', text)
    assert {*ACTIONS} <= {one or other for one, other in form}
    assert not {*IN_TERMINAL_ALONE} & {one or other for one, other in form}


def test_a_new_action_needs_no_more_than_its_place_in_the_list(queue, superuser, monkeypatch):
    def do(target: Target) -> Done:
        record(queue, "count", f"lane {target.name}", 1, target.by)
        return Done(f"The lane {target.name} has {queue.lanes.get(target.name).waiting} message")

    words = {"verb": "count", "switch": "count", "title": "Count", "help": "count its messages", "permission": "run"}
    question = {"question": lambda target: f"Count {target.name}?", "asks": (PAGE, TERMINAL)}
    action = NamedAction(name="count_lane", kind="lane", do=do, queue_of=lambda row: row.queue, **words, **question)
    for table in (NAMED, ACTIONS):
        monkeypatch.setitem(table, action.name, action)
    transfer.enqueue("acc-1")
    assert "Count…" in superuser.get(f"{ROOT}lanes/").content.decode()
    form = {"action": action.name, "name": LANE, "queue": "default"}
    answer = superuser.post(ACT, form)
    assert f"Count {LANE}?" in answer.content.decode()
    assert superuser.post(ACT, form_in(answer)).status_code == 302
    assert f"The lane {LANE} has 1 message." in superuser.get(f"{ROOT}lanes/").content.decode()
    assert log_in("view_dashboard", "pause").post(ACT, form).status_code == 403
    assert run("queue_lanes", "--count", LANE, "--no-input") == f"The lane {LANE} has 1 message.\n"
    assert [one.action for one in operations.actions()] == ["count", "count"]
