"""Consumers in processes of their own, and what a result says of a task whose consumer is killed."""

import pytest

from djqueue import queues
from djqueue.exceptions import CommandLost
from djqueue.tasks.compat import TaskResultStatus, task_backends
from tests.support.processes import until
from tests.tasks import tasks
from tests.tasks.conftest import TASKS

pytestmark = pytest.mark.slow


@pytest.fixture
def consumer(backend, make_site, settings):
    """Starts a consumer over the queue of the settings; leases are short, so that it soon comes again."""
    settings.QUEUES = backend.queues(LEASE=1.5)
    site = make_site(settings.QUEUES, {"default", backend.alias} - {""}, TASKS=TASKS, QUEUE_IMPORT=["tests.tasks"])
    return lambda: site.consumer("--threads", "1")


def workers_of(id, attempt):
    """The workers of a task that runs, once the store knows that an attempt has begun."""
    until(lambda: queues["default"].store.get(f"attempt:{id}:{attempt}"))
    result = task_backends["default"].get_result(id)
    return result.status, result.worker_ids, result


@pytest.mark.backends("sqlite", "postgres", "mariadb", "redis")
def test_a_task_whose_consumer_is_killed_has_both_workers_and_ends_well(consumer, tmp_path):
    result = tasks.stands.enqueue(str(tmp_path / "go"))
    with consumer() as first:
        status, workers, seen = workers_of(result.id, 1)
        assert (status, len(workers), f":{first.pid}:" in workers[0]) == (TaskResultStatus.RUNNING, 1, True)
        first.kill9()
    until(lambda: tasks.stands.get_result(result.id).status == TaskResultStatus.RUNNING)
    with consumer() as second:
        status, both, again = workers_of(result.id, 2)
        assert (status, both[0], f":{second.pid}:" in both[1]) == (TaskResultStatus.RUNNING, workers[0], True)
        assert again.started_at == seen.started_at < again.last_attempted_at
        (tmp_path / "go").touch()
        until(lambda: tasks.stands.get_result(result.id).is_finished)
        result.refresh()
        assert (result.status, result.return_value) == (TaskResultStatus.SUCCESSFUL, second.pid)
        assert (result.worker_ids, result.started_at, result.errors) == (both, seen.started_at, [])
        assert result.enqueued_at <= result.started_at < result.last_attempted_at <= result.finished_at
        second.term()
        assert second.wait() == 0


@pytest.mark.backends("sqlite", "redis")
def test_a_task_that_kills_its_consumers_has_failed_with_a_worker_for_each(consumer):
    """From the second loss on it runs in a process of its own, which dies alone."""
    result = tasks.dies.enqueue()
    with consumer() as first, consumer() as second, consumer() as third:
        until(lambda: tasks.dies.get_result(result.id).is_finished)
        result.refresh()
        alive = [one for one in (first, second, third) if one.popen.poll() is None]
        assert (result.status, result.attempts, len(alive)) == (TaskResultStatus.FAILED, 3, 1)
        assert f":{alive[0].pid}:" in result.worker_ids[2]
        assert [error.exception_class for error in result.errors] == [CommandLost]
        assert "worker died: 3 attempts never reported" in result.errors[0].traceback
