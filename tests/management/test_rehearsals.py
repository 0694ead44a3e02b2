"""queue_errors rehearse: a message is run here, what it did is told, and all of it is undone."""

import io
import json

import django
import pytest
from django.core import mail
from django.core.management import CommandError, call_command
from django.db import transaction
from django.db.utils import ConnectionHandler

from djqueue import current_message, queue_command, queues
from djqueue.exceptions import QueueError, Retry
from djqueue.operations import rehearsing
from tests.app.models import Thing
from tests.management.test_operator_commands import failure, run
from tests.support.consumer import run_one

pytestmark = [
    pytest.mark.backends("memory", "sqlite", "redis", database=True),
    pytest.mark.django_db(transaction=True),
]
MEMORY = pytest.mark.backends("memory", database=True)


@queue_command
def follow_up(number):
    pass


@queue_command(sensitive=["address"])
def send_receipt(address, order=1, **options):
    transaction.on_commit(refresh)  # which is where it fails, but for a rehearsal
    with transaction.atomic(durable=True):
        Thing.objects.create(name=current_message().id, number=order)
    mail.send_mail("Receipt", "thanks", "shop@example.com", [address])
    follow_up.enqueue(order)
    if order == 13:
        raise ConnectionError("the mail server does not answer")
    return order, options


@queue_command
async def save(number):
    await Thing.objects.acreate(name="async", number=number)
    raise Retry("not yet", after=60)


@queue_command(sensitive=True)
def issue_token(user):
    return f"token of {user}"


@queue_command(batch=10)
def double(numbers):
    return [2 * number for number in numbers]


def refresh():
    raise LookupError("nothing to refresh")


@pytest.fixture(autouse=True)
def queue(backend, settings):
    settings.QUEUES = backend.queues("default")
    return queues["default"]


@pytest.fixture
def failed_id(queue):
    """The id of a message that has failed."""
    id = send_receipt.enqueue("ann@example.com", order=13, cc="bob").id
    run_one(queue)
    return id


def rehearsed(*args) -> tuple[str, str]:
    """What is printed, and the error, of a rehearsal that does not pass."""
    out = io.StringIO()
    with pytest.raises(CommandError) as caught:
        call_command("queue_errors", "rehearse", *args, "--database", "default", stdout=out)
    return out.getvalue(), str(caught.value)


def test_it_says_what_the_message_did_and_undoes_it(queue, failed_id):
    text, error = rehearsed(failed_id[-8:])
    assert error == "It did not pass (failed): ConnectionError: the mail server does not answer."
    assert "call      send_receipt(address=***, order=13, cc='bob')\n" in text and "outcome   failed in " in text
    assert "  default  INSERT INTO " in text and "would mail  ann@example.com: Receipt\n" in text
    assert f"would enqueue  {follow_up.name} (default)\n" in text
    assert f"would call on commit  {refresh.__module__}.refresh\n" in text
    first, second, *_ = text[text.index("Traceback") :].splitlines()
    assert second.startswith(f'  File "{__file__}", line ')
    assert (Thing.objects.count(), len(mail.outbox), queue.stats().ready) == (0, 0, 0)
    assert queue.failed.find(failed_id).entry.attempts == 1


def test_a_message_that_passes_stays_where_it_is(queue):
    id = send_receipt.enqueue("ann@example.com", order=4, cc="bob").id
    text = run("queue_errors", "rehearse", id, "--database", "default")
    assert "outcome   done in " in text and "returned  (4, {'cc': 'bob'})\n" in text
    assert f"would enqueue  {follow_up.name} (default)\n" in text
    assert (Thing.objects.count(), len(mail.outbox)) == (0, 0)
    assert [one.entry.id for one in queue.peek("ready")] == [id] and queue.find(id).entry.attempts == 0


@MEMORY
def test_as_json_it_has_the_same_parts(queue):
    id = send_receipt.enqueue("ann@example.com", order=4).id
    seen = json.loads(run("queue_errors", "rehearse", id, "--json", "--database", "default"))
    assert (seen["id"], seen["outcome"], seen["traceback"]) == (id, "done", "")
    assert seen["mails"] == ["ann@example.com: Receipt"] and seen["enqueued"] == [f"{follow_up.name} (default)"]
    assert seen["callbacks"] == [f"{refresh.__module__}.refresh"]
    assert any(one["sql"].startswith("INSERT INTO ") for one in seen["queries"])


@MEMORY
def test_async_commands_and_batches_are_undone_too(queue):
    id = save.enqueue(3).id
    text, error = rehearsed(id)
    assert ("INSERT INTO" in text, error) == (True, "It did not pass (retried): not yet.")
    assert Thing.objects.count() == 0
    assert "returned  6\n" in run("queue_errors", "rehearse", double.enqueue(3).id, "--database", "default")


@MEMORY
def test_what_cannot_be_run_is_refused(queue, failed_id, settings):
    id = double.enqueue(3).id
    queue.claim(1, owner="web-1:42:beef")
    assert f"{id} runs in web-1:42:beef" in str(failure("queue_errors", "rehearse", id))
    settings.SECRET_KEY = "another one" * 5
    assert "cannot be run: bad signature" in rehearsed(failed_id)[1]


@MEMORY
def test_mail_by_mailers_is_held_back(failed_id, settings):
    if django.VERSION >= (6, 1):
        settings.MAILERS = {"default": {"BACKEND": "django.core.mail.backends.smtp.EmailBackend"}}
    assert "would mail  ann@example.com: Receipt\n" in rehearsed(failed_id)[0]
    assert mail.outbox == []


@MEMORY
def test_nothing_is_rehearsed_without_a_database(queue, monkeypatch):
    monkeypatch.setattr(rehearsing, "connections", ConnectionHandler({}))
    entry = queue.find(save.enqueue(3).id).entry
    with pytest.raises(QueueError, match="There is no database that could be rolled back"):
        rehearsing.rehearse(queue, entry)


@MEMORY
def test_what_is_sensitive_is_masked(queue):
    text = run("queue_errors", "rehearse", issue_token.enqueue("ann").id, "--database", "default")
    assert "issue_token(user=***)" in text and "returned  ***\n" in text and "ann" not in text


@MEMORY
def test_an_exception_is_debugged_before_all_is_undone(failed_id, monkeypatch):
    seen = []
    monkeypatch.setattr(
        "pdb.post_mortem", lambda trace: seen.append((trace.tb_frame.f_code.co_name, Thing.objects.count()))
    )
    rehearsed(failed_id, "--pdb")
    assert (seen, Thing.objects.count()) == ([("send_receipt", 1)], 0)
