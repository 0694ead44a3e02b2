"""What Django's documentation of tasks shows works with djqueue: BACKEND alone is another one."""

from datetime import timedelta
from functools import partial

import pytest
from asgiref.sync import async_to_sync
from django.core import mail
from django.db import transaction
from django.utils import timezone

from djqueue.testing import run_due, virtual_time
from djqueue.testing.conformance import compat
from tests.app.models import Thing

pytestmark = pytest.mark.backends("memory", "sqlite", "redis", database=True)

TASKS = {"default": {"BACKEND": "djqueue.tasks.DjqueueBackend", "QUEUES": ["default", "emails"]}}
MODULE = f"""
from django.core.mail import send_mail
from {compat.NAMESPACE} import task

from tests.app.models import Thing

@task
def email_users(emails, subject, message):
    return send_mail(subject=subject, message=message, from_email=None, recipient_list=emails)

@task(priority=2, queue_name="emails")
def email_soon(emails, subject, message):
    return send_mail(subject=subject, message=message, from_email=None, recipient_list=emails)

@task(takes_context=True)
def email_with_context(context, emails, subject, message):
    return send_mail(f"{{subject}} {{context.attempt}}", context.task_result.id, None, emails)

@task()
def double_dictionary(key):
    return {{key: key * 2}}

@task
def rename(number, name):
    Thing.objects.filter(pk=number).update(name=name)
    return Thing.objects.get(pk=number).name
"""
LETTER = {"emails": ["ann@example.com"], "subject": "You have a message", "message": "Hello there!"}


@pytest.fixture
def tasks(queue, settings, write_module):
    settings.TASKS = TASKS
    return write_module("documented_tasks", MODULE)


def test_a_task_is_enqueued_run_and_looked_up(tasks):
    result = tasks.email_users.enqueue(**LETTER)
    assert result.status == compat.TaskResultStatus.READY
    with pytest.raises(ValueError, match="Task has not finished yet"):
        result.return_value  # noqa: B018
    run_due()
    assert [(letter.to, letter.subject, letter.body) for letter in mail.outbox] == [
        (["ann@example.com"], "You have a message", "Hello there!")
    ]
    result.refresh()
    assert (result.status, result.return_value) == (compat.TaskResultStatus.SUCCESSFUL, 1)
    assert tasks.email_users.get_result(result.id).return_value == 1
    assert compat.task_backends["default"].get_result(result.id).return_value == 1


def test_priority_and_queue_are_arguments_of_the_decorator(tasks):
    assert (tasks.email_soon.priority, tasks.email_soon.queue_name) == (2, "emails")
    tasks.email_users.enqueue(**{**LETTER, "subject": "second"})
    tasks.email_soon.enqueue(**{**LETTER, "subject": "first"})
    run_due()
    assert [letter.subject for letter in mail.outbox] == ["first", "second"]


def test_a_task_takes_its_context(tasks):
    result = tasks.email_with_context.enqueue(**LETTER)
    run_due()
    assert [(letter.subject, letter.body) for letter in mail.outbox] == [("You have a message 1", result.id)]


def test_using_leaves_the_task_as_it_was(tasks):
    assert tasks.email_users.using(priority=10).priority == 10
    assert tasks.email_users.priority == 0


@pytest.mark.backends("memory", database=True)
def test_a_task_is_deferred(tasks):
    with virtual_time() as clock:
        tasks.email_users.using(run_after=clock.now + timedelta(hours=1)).enqueue(**LETTER)
        run_due(until=3599)
        assert mail.outbox == []
        run_due(until=1)
        assert len(mail.outbox) == 1


def test_tasks_are_enqueued_and_looked_up_in_async_code(tasks):
    result = async_to_sync(tasks.email_users.aenqueue)(**LETTER)
    run_due()
    async_to_sync(result.arefresh)()
    assert result.return_value == async_to_sync(tasks.email_users.aget_result)(result.id).return_value == 1


def test_arguments_are_json(tasks):
    with pytest.raises(TypeError):
        tasks.email_users.enqueue(timezone.now(), "subject", "message")
    result = tasks.double_dictionary.enqueue((1, 2, 3))
    run_due()
    result.refresh()
    assert result.status == compat.TaskResultStatus.FAILED
    assert result.errors[0].exception_class is TypeError
    assert "unhashable type: 'list'" in result.errors[0].traceback
    with pytest.raises(ValueError, match="Task failed"):
        result.return_value  # noqa: B018


@pytest.mark.django_db(transaction=True)
def test_a_task_is_enqueued_on_commit(tasks):
    with transaction.atomic():
        thing = Thing.objects.create(name="one")
        transaction.on_commit(partial(tasks.rename.enqueue, number=thing.pk, name="other"))
        assert run_due() == []
    assert [run.value for run in run_due()] == ["other"]
