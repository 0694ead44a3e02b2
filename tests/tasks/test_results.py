"""What a task's result says from its call to its end, on each backend."""

import pytest

from djqueue import Result, queues
from djqueue.tasks.compat import TaskResultDoesNotExist, TaskResultStatus, task_backends
from djqueue.tasks.results import ID
from tests.support.consumer import run_one
from tests.tasks import tasks

READY, RUNNING = TaskResultStatus.READY, TaskResultStatus.RUNNING
FAILED, SUCCESSFUL = TaskResultStatus.FAILED, TaskResultStatus.SUCCESSFUL
EVERY = pytest.mark.backends("memory", "sqlite", "postgres", "mariadb", "redis")


@EVERY
def test_a_task_is_ready_and_then_successful(queue):
    result = tasks.add.enqueue(1, two=(2, 3)[0])
    assert (result.status, result.args, result.kwargs, result.attempts) == (READY, [1], {"two": 2}, 0)
    assert ID.fullmatch(result.id) and result.enqueued_at is not None
    again = tasks.add.get_result(result.id)
    assert (again.status, again.args, again.kwargs, again.task) == (READY, [1], {"two": 2}, tasks.add)
    assert abs((again.enqueued_at - result.enqueued_at).total_seconds()) < 5
    run_one(queue)
    result.refresh()
    assert (result.status, result.return_value, result.errors, result.is_finished) == (SUCCESSFUL, 3, [], True)
    assert result.enqueued_at <= result.started_at == result.last_attempted_at <= result.finished_at
    assert (len(result.worker_ids), result.attempts) == (1, 1)
    assert task_backends["default"].get_result(result.id).args == [1]


@EVERY
def test_a_task_that_is_tried_again_is_ready_between_its_attempts(queue):
    result = tasks.flaky.enqueue(3)
    for attempt in (1, 2):
        run_one(queue)
        result.refresh()
        assert (result.status, result.attempts, len(result.errors)) == (READY, attempt, attempt)
        assert result.errors[-1].exception_class is OSError
        assert f"attempt {attempt}" in result.errors[-1].traceback
        assert result.started_at is not None and result.finished_at is None
    first = result.started_at
    run_one(queue)
    result.refresh()
    assert (result.status, result.return_value, len(result.errors), result.attempts) == (SUCCESSFUL, 3, 2, 3)
    assert abs((result.started_at - first).total_seconds()) < 0.01
    assert first < result.last_attempted_at <= result.finished_at
    assert "unknown" not in result.worker_ids[2:]


@EVERY
def test_a_task_that_raises_has_failed(queue):
    result = tasks.broken.enqueue("word")
    run_one(queue)
    result.refresh()
    assert (result.status, result.attempts, result.args) == (FAILED, 1, ["word"])
    [error] = result.errors
    assert (error.exception_class_path, error.exception_class) == ("builtins.LookupError", LookupError)
    assert "in broken" in error.traceback and "LookupError: word" in error.traceback
    with pytest.raises(ValueError, match="failed"):
        result.return_value  # noqa: B018


@EVERY
def test_an_id_that_is_none_does_not_exist(queue):
    for id in ("", "x", "0" * 32, "0" * 64, "\x00", "ä" * 32, None, 7):
        with pytest.raises(TaskResultDoesNotExist):
            tasks.add.get_result(id)
    assert Result(tasks.add.enqueue(1).id).status == "ready"
    assert queues["default"].features
