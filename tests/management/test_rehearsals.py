"""queue_errors rehearse: a message is run here, what it did is told, and all of it is undone."""

import io

import pytest
from django.core import mail
from django.core.management import CommandError, call_command
from django.db import transaction

from djqueue import current_message, operations, queue_command, queues
from djqueue.exceptions import Retry
from djqueue.operations.rehearsing import Call
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
def failed(queue):
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


def test_it_says_what_the_message_did_and_undoes_it(queue, failed):
    text, error = rehearsed(failed[-8:])
    assert error == "It did not pass (failed): ConnectionError: the mail server does not answer."
    assert "call      send_receipt(address=***, order=13, cc='bob')\n" in text and "outcome   failed in " in text
    assert "  default  INSERT INTO " in text and "would mail  ann@example.com: Receipt\n" in text
    assert f"would enqueue  {follow_up.name} (default)\n" in text
    assert f"would call on commit  {refresh.__module__}.refresh\n" in text
    first, second, *_ = text[text.index("Traceback") :].splitlines()
    assert second.startswith(f'  File "{__file__}", line ')
    assert (Thing.objects.count(), len(mail.outbox), queue.stats().ready) == (0, 0, 0)
    assert queue.failed.find(failed).entry.attempts == 1


def test_the_mended_call_is_put_back_and_no_other(queue, failed):
    text, error = rehearsed(failed, "--set", "cc=eve", "--requeue")
    assert "cc='eve'" in text and error.endswith(" It is not put back.")
    assert len(queue.failed) == 1
    text = run("queue_errors", "rehearse", failed, "--set", "order=4", "--requeue", "--database", "default")
    assert "returned  (4, {'cc': 'bob'})\n" in text and text.endswith("\nrequeued\n")
    call = Call.of(queue, queue.find(failed).entry)
    assert (call.args, call.kwargs) == (("ann@example.com", 4), {"cc": "bob"})
    done = [(one.action, one.what) for one in operations.actions(limit=2)]
    assert sorted(done) == [("change arguments", failed), ("requeue", failed)]


@MEMORY
def test_async_commands_and_batches_are_undone_too(queue):
    id = save.enqueue(3).id
    text, error = rehearsed(id)
    assert ("INSERT INTO" in text, error) == (True, "It did not pass (retried): not yet.")
    assert Thing.objects.count() == 0
    assert "returned  6\n" in run("queue_errors", "rehearse", double.enqueue(3).id, "--database", "default")


@MEMORY
def test_what_cannot_be_run_is_refused(queue, failed, settings):
    assert "'order 2' is not of the form name=value" in rehearsed(failed, "--set", "order 2")[1]
    wrong = rehearsed(save.enqueue(3).id, "--set", "nummer=2")[1]
    assert "save has no argument 'nummer': did you mean 'number'?" in wrong
    batched = double.enqueue(3).id
    assert "is a batch command" in rehearsed(batched, "--set", "numbers=3")[1]
    queue.claim(2, owner="web-1:42:beef")
    assert f"{batched} runs in web-1:42:beef" in str(failure("queue_errors", "rehearse", batched))
    settings.SECRET_KEY = "another one" * 5
    assert "cannot be run: bad signature" in rehearsed(failed)[1]


@MEMORY
def test_what_is_sensitive_is_masked(queue):
    text = run("queue_errors", "rehearse", issue_token.enqueue("ann").id, "--database", "default")
    assert "issue_token(user=***)" in text and "returned  ***\n" in text and "ann" not in text


@MEMORY
def test_an_exception_is_debugged_before_all_is_undone(failed, monkeypatch):
    seen = []
    monkeypatch.setattr(
        "pdb.post_mortem", lambda trace: seen.append((trace.tb_frame.f_code.co_name, Thing.objects.count()))
    )
    rehearsed(failed, "--pdb")
    assert (seen, Thing.objects.count()) == ([("send_receipt", 1)], 0)
