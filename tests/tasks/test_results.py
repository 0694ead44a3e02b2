"""What a task's result says from its call to its end, on each backend."""

import asyncio
import copy
import time
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from djqueue import Result, queues
from djqueue.backends.redis.connection import RedisLink
from djqueue.exceptions import StoreUnreachable
from djqueue.running.attempts import MOST
from djqueue.tasks import results
from djqueue.tasks.compat import TaskResultDoesNotExist, TaskResultStatus, task_backends
from djqueue.tasks.results import ID, find
from tests.support.backends import DISCOVERED
from tests.support.consumer import claim_one, run_one
from tests.support.database import statements
from tests.support.servers import free_port
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
    assert again == result, "nothing has become of it yet"
    run_one(queue)
    result.refresh()
    assert (result.status, result.return_value, result.errors, result.is_finished) == (SUCCESSFUL, 3, [], True)
    assert result.enqueued_at <= result.started_at == result.last_attempted_at <= result.finished_at
    assert (len(result.worker_ids), result.attempts) == (1, 1)
    assert task_backends["default"].get_result(result.id).args == [1]


@EVERY
def test_the_moment_of_enqueueing_is_the_same_ever_after(queue):
    results = [tasks.add.enqueue(1), *tasks.once.enqueue_many([("a",), ("b",)]), tasks.broken.enqueue()]
    told = [result.enqueued_at for result in results]

    def moments():
        for result in results:
            result.refresh()
        return [result.enqueued_at for result in results]

    assert moments() == told == sorted(told), "while it waits"
    for _ in results:
        run_one(queue)
    assert moments() == told, "when it has ended"
    queue.requeue([results[-1].id])
    assert moments() == told, "when it is tried again"


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


@pytest.mark.backends("memory", "sqlite")
def test_a_command_as_a_task_has_its_result_kept_as_long_as_the_backend_says(queue, configure_backend):
    configure_backend(OPTIONS={"result_ttl": 3600})
    result = tasks.command_task.enqueue(4)
    run_one(queue)
    result.refresh()
    assert (result.status, result.return_value) == (SUCCESSFUL, 8)


@pytest.mark.backends("memory")
@pytest.mark.parametrize(
    "note", [b'["w", Infinity]', b'["w", 1e300]', b"[" * 100_000, b'["w", NaN]', b'["w", 1%s]' % (b"0" * 400)]
)
def test_what_others_wrote_of_an_attempt_changes_no_task(queue, note):
    result = tasks.add.enqueue(1)
    queue.store.put(f"attempt:{result.id}:1", note, 60)
    run_one(queue)
    result.refresh()
    assert (result.status, result.attempts) == (SUCCESSFUL, 1)


@pytest.mark.backends("memory", "sqlite")
def test_a_task_for_the_last_moment_of_the_calendar_can_be_told(queue):
    result = tasks.add.using(run_after=datetime.max.replace(tzinfo=UTC)).enqueue(1)
    assert tasks.add.get_result(result.id).status == READY


@pytest.mark.backends("memory", "sqlite")
def test_of_very_many_attempts_the_first_and_the_latest_are_told(queue):
    result = tasks.add.enqueue(1)
    lease = claim_one(queue)
    queue.release([replace(lease, entry=replace(lease.entry, attempts=200_000))])
    began = time.process_time()
    run_one(queue)
    result.refresh()
    assert (result.status, len(result.worker_ids)) == (SUCCESSFUL, MOST)
    assert result.worker_ids[-1] != "unknown"
    assert time.process_time() - began < 0.5


# ---- where a result is


def eleven(backend, settings):
    """Eleven queues on one server."""
    settings.QUEUES = backend.queues("default", *(f"q{number}" for number in range(10)))
    return [*queues]


@pytest.mark.backends("sqlite")
def test_a_result_is_found_among_many_queues_of_a_database_by_few_statements(backend, settings):
    eleven(backend, settings)
    ours = task_backends["default"]
    waits, done = tasks.add.using(queue_name="q7").enqueue(1), tasks.add.using(queue_name="q8").enqueue(2)
    run_one(queues["q8"])
    for result, status in ((waits, READY), (done, SUCCESSFUL)):
        with statements(queues["default"]) as by_id:
            assert ours.get_result(result.id).status == status
        with statements(queues["default"]) as again:
            result.refresh()
        assert (len(by_id) <= 5, len(again) <= 3) == (True, True), (by_id.captured_queries, again.captured_queries)
    with statements(queues["default"]) as none, pytest.raises(TaskResultDoesNotExist):
        ours.get_result("0" * 32)
    assert len(none) <= 2, none.captured_queries


@pytest.mark.backends("redis")
def test_a_result_is_found_among_many_queues_of_a_redis_in_few_round_trips(backend, settings, monkeypatch):
    eleven(backend, settings)
    result = tasks.add.using(queue_name="q7").enqueue(1)
    asked, run, together = [], RedisLink.run, RedisLink.execute_many
    monkeypatch.setattr(
        RedisLink, "run", lambda link, script, *given: asked.append(script.name) or run(link, script, *given)
    )
    monkeypatch.setattr(
        RedisLink, "execute_many", lambda link, given: asked.append(len(given)) or together(link, given)
    )
    assert task_backends["default"].get_result(result.id).status == READY
    assert asked[0] == 44 and len(asked) <= 3, asked


@pytest.mark.backends("memory", "sqlite", "postgres", "mariadb", "redis", *DISCOVERED)
def test_a_result_is_found_in_each_state_in_the_queue_that_has_it(backend, settings):
    eleven(backend, settings)
    ours = task_backends["default"]
    result = tasks.broken.using(queue_name="q3").enqueue()
    assert ours.get_result(result.id).status == READY
    lease = claim_one(queues["q3"])
    assert ours.get_result(result.id).status == RUNNING
    queues["q3"].release([lease])
    run_one(queues["q3"])
    assert ours.get_result(result.id).status == FAILED
    queues["q3"].store.drop(f"result:{result.id}")
    again = ours.get_result(result.id)
    assert (again.status, again.task.queue_name) == (FAILED, "q3"), "from the failed queue"
    with pytest.raises(TaskResultDoesNotExist):
        ours.get_result("0" * 32)


@pytest.mark.backends("memory", "redis")
def test_a_message_that_was_moved_to_another_queue_is_found(backend, settings):
    settings.QUEUES = backend.queues("default", "mail")
    result = tasks.add.enqueue(1)
    [lease] = queues["default"].claim(1)
    queues["default"].complete([lease])
    queues["mail"].put([lease.entry])
    result.refresh()
    assert result.status == READY


@pytest.mark.backends("memory", "sqlite")
def test_a_store_that_is_unreachable_breaks_no_result_of_the_others(backend, settings):
    nowhere = {"CLASS": "djqueue.backends.redis_backend.RedisQueue", "CONNECTION": f"redis://127.0.0.1:{free_port()}"}
    settings.QUEUES = {"a_first": nowhere, "b_second": nowhere, **backend.queues("default")}
    ours = task_backends["default"]
    result = tasks.add.enqueue(1)
    assert ours.get_result(result.id).status == tasks.add.get_result(result.id).status == READY
    run_one(queues["default"])
    result.refresh()
    asyncio.run(result.arefresh())
    assert (result.status, ours.get_result(result.id).return_value) == (SUCCESSFUL, 1)
    with pytest.raises(StoreUnreachable, match="127.0.0.1"):
        ours.get_result("0" * 32)


@pytest.mark.backends("sqlite")
def test_refreshing_asks_no_other_queue_if_its_own_knows_it(backend, settings, monkeypatch):
    eleven(backend, settings)
    result = tasks.add.using(queue_name="q3").enqueue(1)
    asked = []
    monkeypatch.setattr(results, "find", lambda queue, id: asked.append(queue.alias) or find(queue, id))
    result.refresh()
    assert asked == ["q3"]


@pytest.mark.backends("memory")
def test_a_copy_of_a_result_is_equal_and_can_be_refreshed(queue):
    result = tasks.add.enqueue(1)
    other = copy.deepcopy(result)
    assert other == result
    run_one(queue)
    other.refresh()
    assert (other.status, result.status) == (SUCCESSFUL, READY)
