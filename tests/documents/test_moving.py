"""djqueue next to another backend of Django's tasks, as on the pages about moving: each worker runs its own tasks."""

import sys

import pytest
from django.core.management import call_command
from django.db import connection

from djqueue import Consumer
from djqueue.tasks.compat import TaskResultStatus, task_backends
from tests.support import backends

pytestmark = pytest.mark.django_db(transaction=True)

OURS = {"BACKEND": "djqueue.tasks.DjqueueBackend"}
TASK = """\
from django_tasks import task

@task{options}
def double(number):
    return number * 2
"""


class TasksDB:
    """django-tasks-db, whose table is there while it is used."""

    apps = ("django_tasks_db",)
    backend = "django_tasks_db.DatabaseBackend"
    settings: dict = {}

    def __enter__(self):
        from django_tasks_db.models import DBTaskResult

        self.model = DBTaskResult
        with connection.schema_editor() as editor:
            editor.create_model(self.model)
        return self

    def __exit__(self, *exc):
        with connection.schema_editor() as editor:
            editor.delete_model(self.model)

    def work(self):
        call_command("db_worker", batch=True, interval=0, reload=False, startup_delay=False)


class TasksRQ:
    """django-tasks-rq, with its jobs on this worker's Redis database."""

    apps = ("django_rq",)
    backend = "django_tasks_rq.RQBackend"

    @property
    def settings(self):
        return {"RQ_QUEUES": {"default": {"URL": f"{backends.redis_url()}/{backends.worker_number()}"}}}

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        import django_rq

        django_rq.get_connection().flushdb()

    def work(self):
        import django_rq
        from django_tasks_rq import Job
        from rq import SimpleWorker

        SimpleWorker(["default"], connection=django_rq.get_connection(), job_class=Job).work(burst=True)


@pytest.mark.parametrize("other", [TasksDB(), pytest.param(TasksRQ(), marks=pytest.mark.server("redis"))])
def test_a_task_moves_while_calls_of_it_wait_in_the_other_backend(other, settings, write_module):
    for name, value in other.settings.items():
        setattr(settings, name, value)
    settings.INSTALLED_APPS = [*settings.INSTALLED_APPS, *other.apps]
    settings.QUEUES = {"default": {"CLASS": "djqueue.backends.database.DatabaseQueue"}}
    settings.TASKS = {"default": {"BACKEND": other.backend}, "djqueue": OURS}
    with other:
        before = write_module("moving", TASK.format(options="")).double.enqueue(1)
        del sys.modules["moving"]
        after = write_module("moving", TASK.format(options="(backend='djqueue')") + "\n").double.enqueue(2)
        assert (before.backend, after.backend) == ("default", "djqueue")
        Consumer(threads=1, drain=True, periodic=False).run()
        assert [found(one).status for one in (before, after)] == [TaskResultStatus.READY, TaskResultStatus.SUCCESSFUL]
        other.work()
        assert [found(one).return_value for one in (before, after)] == [2, 4]


def found(result):
    return task_backends[result.backend].get_result(result.id)
