"""A task runs: signals, context, coroutines, what it returns, how it ends."""

import logging
from datetime import UTC, datetime, timedelta

import pytest
from django.dispatch import Signal

from djqueue import Result
from djqueue.running.executor import execute
from djqueue.running.finding import recorded
from djqueue.running.settle import settle
from djqueue.tasks import DjqueueBackend, compat
from djqueue.tasks.compat import PACKAGE, TaskResultStatus
from djqueue.testing.patience import eventually
from tests.support.consumer import claim_one, run_one, run_when_due, serving
from tests.tasks import tasks

READY, RUNNING = TaskResultStatus.READY, TaskResultStatus.RUNNING
FAILED, SUCCESSFUL = TaskResultStatus.FAILED, TaskResultStatus.SUCCESSFUL
EACH = pytest.mark.backends("memory", "sqlite", "redis")


def of(task_signals):
    return [(name, status) for name, _, status, _ in task_signals]


@EACH
def test_signals_come_in_order_with_the_class_of_the_backend(queue, task_signals):
    result = tasks.add.enqueue(1)
    assert of(task_signals) == [("task_enqueued", "READY")]
    run_one(queue)
    assert of(task_signals)[1:] == [("task_started", "RUNNING"), ("task_finished", "SUCCESSFUL")]
    assert {sender for _, sender, _, _ in task_signals} == {DjqueueBackend}
    assert {one.id for *_, one in task_signals} == {result.id}
    finished = task_signals[-1][3]
    assert (finished.return_value, finished.args, finished.kwargs, finished.attempts) == (1, [1], {}, 1)
    assert finished.started_at <= finished.finished_at


@pytest.mark.backends("memory")
def test_a_task_is_finished_once_all_its_attempts_are_over(queue, task_signals):
    tasks.flaky.enqueue(9)
    for _ in range(3):
        run_one(queue)
    started = ("task_started", "RUNNING")
    assert of(task_signals) == [("task_enqueued", "READY"), started, started, started, ("task_finished", "FAILED")]
    assert [len(one.worker_ids) for *_, one in task_signals[1:]] == [1, 2, 3, 3]
    assert len(task_signals[-1][3].errors) == 3


@pytest.mark.backends("memory")
def test_djangos_log_has_the_traceback_of_a_failure(queue, caplog):
    caplog.set_level(logging.DEBUG, PACKAGE)
    tasks.broken.enqueue()
    run_one(queue)
    records = [record for record in caplog.records if record.name == PACKAGE]
    assert [record.levelname for record in records] == ["DEBUG", "INFO", "ERROR"]
    assert records[-1].exc_info[0] is LookupError


@EACH
@pytest.mark.parametrize("name", ["task_enqueued", "task_started", "task_finished"])
def test_a_receiver_that_raises_loses_no_message(queue, name):
    signal: Signal = getattr(compat, name)

    def fails(**kwargs):
        raise RuntimeError("a receiver")

    signal.connect(fails)
    try:
        result = tasks.add.enqueue(2, 3)
        run_one(queue)
    finally:
        signal.disconnect(fails)
    result.refresh()
    assert (result.status, result.return_value) == (SUCCESSFUL, 5)


@EACH
def test_a_task_that_takes_the_context_is_given_its_result(queue):
    result = tasks.with_context.enqueue("hello")
    run_one(queue)
    result.refresh()
    assert result.return_value == {"attempt": 1, "id": result.id, "word": "hello"}
    assert tasks.seen == [("hello", 1, RUNNING, 1)]


@EACH
@pytest.mark.parametrize("coroutines", [0, 5])
def test_a_coroutine_is_a_task_too(queue, coroutines, task_signals):
    queue_result = tasks.in_async.enqueue("word")
    with serving("default", coroutines=coroutines):
        eventually(lambda: tasks.in_async.get_result(queue_result.id).is_finished)
    queue_result.refresh()
    assert (queue_result.return_value, tasks.seen) == (["word"], [("word", 1)])
    assert of(task_signals)[1:] == [("task_started", "RUNNING"), ("task_finished", "SUCCESSFUL")]


@EACH
def test_what_cannot_be_json_makes_a_task_fail(queue):
    result = tasks.unserialisable.enqueue()
    run_one(queue)
    result.refresh()
    assert (result.status, result.errors[0].exception_class) == (FAILED, TypeError)


@pytest.mark.backends("memory")
def test_sys_exit_makes_a_task_fail(queue):
    result = tasks.exits.enqueue()
    run_one(queue)
    result.refresh()
    assert (result.status, result.errors[0].exception_class) == (FAILED, SystemExit)


@EACH
@pytest.mark.parametrize(
    ("name", "kind"), [("stale", "CommandExpired"), ("discarded", "Discard")], ids=["expired", "discarded"]
)
def test_an_end_of_our_own_is_a_failure_with_our_exception(queue, name, kind, task_signals):
    result = getattr(tasks, name).enqueue()
    eventually(lambda: queue.now() - queue.find(result.id).entry.created > 0.01)
    run_one(queue)
    result.refresh()
    assert result.status == FAILED
    assert [error.exception_class.__name__ for error in result.errors] == [kind]
    assert of(task_signals)[-1] == ("task_finished", "FAILED")
    assert result.attempts == (0 if name == "stale" else 1)


@EACH
def test_a_cancelled_task_has_failed(queue):
    result = tasks.add.enqueue(5)
    assert Result(result.id).cancel()
    result = tasks.add.get_result(result.id)
    assert (result.status, result.args, result.task) == (FAILED, [5], tasks.add)
    assert [error.exception_class.__name__ for error in result.errors] == ["CommandCancelled"]


@EACH
def test_a_task_that_is_cancelled_between_two_attempts_keeps_the_first(queue):
    result, names = tasks.later.enqueue(), ("attempts", "worker_ids", "started_at", "last_attempted_at")
    with serving("default") as running:
        eventually(lambda: Result(result.id).status == "delayed")
    result.refresh()
    before = [getattr(result, name) for name in names]
    assert before[:2] == [1, [running.consumer.name]]
    assert Result(result.id).cancel()
    result.refresh()
    assert (result.status, [getattr(result, name) for name in names]) == (FAILED, before)
    assert [error.exception_class.__name__ for error in result.errors] == ["OSError", "CommandCancelled"]
    assert "cancelled before its next attempt" in result.errors[-1].traceback
    ended = recorded(queue, result.id)
    told = ended.status, ended.attempts, ended.worker, ended.seconds, ended.reason
    assert told == ("cancelled", 1, running.consumer.name, 0, "cancelled before its next attempt")


@EACH
def test_a_task_whose_workers_died_has_failed(queue, settings):
    settings.QUEUE_MAX_LOST = 1
    result = tasks.add.enqueue(5)
    queue.claim(1, 0.05)
    eventually(lambda: queue.reap().count)
    eventually(lambda: run_one(queue) if queue.stats().ready else None)
    result.refresh()
    assert (result.status, result.worker_ids) == (FAILED, ["unknown"])
    assert [error.exception_class.__name__ for error in result.errors] == ["CommandLost"]


@EACH
def test_a_task_runs_from_its_claim_on(queue):
    result = tasks.add.enqueue(1)
    [lease] = queue.claim(1, 60, "worker-1")
    result.refresh()
    assert (result.status, result.worker_ids, result.is_finished) == (RUNNING, ["worker-1"], False)
    assert result.enqueued_at <= result.started_at == result.last_attempted_at
    queue.fail([lease])
    result.refresh()
    assert (result.status, result.attempts) == (FAILED, 1)


@EACH
@pytest.mark.parametrize("lease", [4, 600])
def test_no_attempt_begins_in_the_future_or_before_the_one_before_it(queue, lease):
    """Whatever lease the consumer asked for: nobody has noted yet when the attempt began."""
    result, before = tasks.flaky.enqueue(3), None
    for attempt in (1, 2):
        [held] = queue.claim(1, lease, "worker-1")
        result.refresh()
        assert (result.status, result.attempts) == (RUNNING, attempt)
        now = datetime.fromtimestamp(queue.now(), UTC)
        assert result.enqueued_at <= result.started_at <= result.last_attempted_at <= now
        assert before is None or before <= result.last_attempted_at
        before = result.last_attempted_at
        settle(queue, [(held, execute(queue, held))])


@pytest.mark.backends("memory", "sqlite", "redis", "postgres")
def test_who_runs_a_task_that_lasts_is_known_while_it_runs(queue):
    result = tasks.waits.enqueue()
    with serving("default") as running:
        eventually(lambda: queue.store.get(f"attempt:{result.id}:1"))
        result.refresh()
        assert (result.status, result.worker_ids) == (RUNNING, [running.consumer.name])
        assert result.finished_at is None
        tasks.release.set()
        eventually(lambda: tasks.waits.get_result(result.id).is_finished)
    noted = result.started_at
    result.refresh()
    assert (result.status, result.worker_ids) == (SUCCESSFUL, [running.consumer.name])
    assert abs((result.started_at - noted).total_seconds()) < 0.01
    assert (result.finished_at - result.started_at).total_seconds() > 0.4


@EACH
def test_a_late_worker_makes_no_result(queue):
    result = tasks.add.enqueue(1)
    late = claim_one(queue, 0.05)
    eventually(lambda: queue.reap().count)
    newer = claim_one(queue)
    settle(queue, [(late, execute(queue, late))])
    result.refresh()
    assert (result.status, result.attempts) == (RUNNING, 2)
    settle(queue, [(newer, execute(queue, newer))])
    result.refresh()
    assert (result.status, result.attempts) == (SUCCESSFUL, 2)


@EACH
def test_a_failed_task_that_is_requeued_is_ready_again(queue):
    result = tasks.broken.enqueue()
    run_one(queue)
    queue.requeue([result.id])
    result.refresh()
    assert (result.status, result.attempts, len(result.errors)) == (READY, 0, 1)


@EACH
def test_a_moment_and_a_priority_are_those_of_the_message(queue):
    soon = datetime.now(UTC) + timedelta(hours=1)
    waits = tasks.add.using(run_after=soon, priority=7).enqueue(1)
    assert queue.find(waits.id).entry.priority == 7
    assert abs(queue.find(waits.id).at - soon.timestamp()) < 0.01
    again = tasks.add.get_result(waits.id)
    assert (again.task.priority, again.status) == (7, READY)
    assert abs((again.task.run_after - soon).total_seconds()) < 0.01


@EACH
def test_a_command_is_a_task_too(queue, task_signals):
    result = tasks.command_task.enqueue(4)
    run_one(queue)
    result.refresh()
    assert (result.status, result.return_value, result.args, result.attempts) == (SUCCESSFUL, 8, [4], 1)
    assert tasks.command_task.get_result(result.id).task.func is tasks.command.func
    assert of(task_signals)[1:] == [("task_started", "RUNNING"), ("task_finished", "SUCCESSFUL")]
    task_signals.clear()
    tasks.command(5)
    run_one(queue)
    assert (tasks.seen, task_signals) == ([("command", 4), ("command", 5)], [])


@EACH
def test_attempts_that_asked_to_be_run_again_count(queue):
    result = tasks.again.enqueue()
    run_one(queue)
    run_when_due(queue)
    result.refresh()
    assert (result.status, result.return_value, result.attempts) == (SUCCESSFUL, 2, 2)
    assert result.worker_ids[0] == result.worker_ids[1] != "unknown"


@pytest.mark.backends("memory")
def test_an_async_task_ends_while_another_one_keeps_the_only_thread(queue):
    waits, ends = tasks.keeps_its_thread.enqueue(), tasks.in_async.enqueue("word")
    with serving("default", threads=1, coroutines=10):
        eventually(lambda: "thread" in tasks.seen)
        eventually(lambda: tasks.in_async.get_result(ends.id).is_finished)
        assert tasks.keeps_its_thread.get_result(waits.id).status == RUNNING
        tasks.release.set()
        eventually(lambda: tasks.keeps_its_thread.get_result(waits.id).is_finished)


@pytest.mark.backends("memory")
@pytest.mark.parametrize("task", [tasks.add, tasks.in_async], ids=["sync", "async"])
def test_a_receiver_that_exits_repeats_no_task(queue, task):
    def exits(**kwargs):
        raise SystemExit

    compat.task_finished.connect(exits)
    try:
        result = task.enqueue(1)
        run_one(queue)
    finally:
        compat.task_finished.disconnect(exits)
    result.refresh()
    assert (result.status, result.attempts, len(tasks.seen)) == (SUCCESSFUL, 1, 1)


@pytest.mark.backends("memory", "redis")
def test_a_value_too_large_to_be_kept_makes_a_task_fail(queue):
    result = tasks.large.enqueue()
    run_one(queue)
    result.refresh()
    assert (result.status, result.errors[0].exception_class) == (FAILED, ValueError)
    assert "QUEUE_MAX_MESSAGE_SIZE" in result.errors[0].traceback
