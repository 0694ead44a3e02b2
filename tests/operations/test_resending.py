"""A copy of what is done or has failed is sent as a new message, by a command and by a button, and recorded."""

import pytest

from djqueue import operations, queues
from tests.dashboard.calls import failed as fail
from tests.dashboard.calls import send_receipt, transfer
from tests.dashboard.conftest import ROOT, log_in
from tests.dashboard.test_actions import ACT, post
from tests.management.test_operator_commands import failure, run
from tests.support.consumer import run_one

pytestmark = pytest.mark.backends("memory", database=True)


@pytest.fixture
def queue(backend, settings):
    settings.ROOT_URLCONF = "tests.dashboard.urls"
    settings.QUEUE_HISTORY = {"arguments": True}
    settings.QUEUES = backend.queues("default", "other")
    return queues["default"]


def waiting(queue) -> list[str]:
    return [one.command.rpartition(".")[2] for one in operations.messages_of(queue, ["ready"])]


def test_what_has_failed_is_sent_again_and_stays(queue):
    id = fail(1)
    assert run("queue_messages", "send-copy", id[-8:]) == "1 message sent again.\n"
    assert (waiting(queue), len(queue.failed)) == (["send_receipt"], 1)
    [action] = operations.actions(limit=1)
    assert (action.action, action.what, action.count) == ("send a copy", id, 1)


def test_what_is_done_is_sent_again_as_far_as_the_history_has_its_arguments(queue, settings):
    transferred, hidden = transfer.enqueue("acc-1").id, send_receipt.enqueue("ann@example.com", 2).id
    run_one(queue), run_one(queue)
    assert run("queue_messages", "send-copy", transferred) == "1 message sent again.\n"
    run_one(queue)
    assert "masked or cut" in str(failure("queue_messages", "send-copy", hidden))
    settings.QUEUE_HISTORY = {"arguments": False}
    bare = transfer.enqueue("acc-2").id
    run_one(queue)
    assert "the history keeps no arguments of it" in str(failure("queue_messages", "send-copy", bare))
    assert waiting(queue) == []


def test_the_button_asks_and_needs_its_permission(queue, db):
    id = transfer.enqueue("acc-1").id
    run_one(queue)
    superuser, viewer = log_in(superuser=True, name="superuser"), log_in("view_dashboard", "retry")
    page = {"id": id, "queue": "default"}
    assert ">Send a copy<" in superuser.get(f"{ROOT}message/", page).content.decode()
    assert ">Send a copy<" not in viewer.get(f"{ROOT}message/", page).content.decode()
    form = {"action": "send-copy", "message": f'["default", "{id}"]'}
    assert "Send a copy of 1 message, as new messages?" in superuser.post(ACT, form).content.decode()
    assert viewer.post(ACT, form).status_code == 403
    assert post(superuser, **form) == "1 message sent again."
    assert waiting(queue) == ["transfer"]
