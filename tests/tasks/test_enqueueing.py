"""From a task to a message: arguments, options, queues, transactions; and what is refused."""

import asyncio
import subprocess
import sys
from collections import OrderedDict
from datetime import UTC, date, datetime, timedelta
from types import ModuleType

import pytest
from django.db import transaction

import djqueue
from djqueue import Throttle, crontab, periodic_command, queues, schedules
from djqueue.policies.options import OPTIONS
from djqueue.registry import registry
from djqueue.tasks import DjqueueTask, as_task, task
from djqueue.tasks.compat import (
    PACKAGE,
    InvalidTask,
    InvalidTaskBackend,
    Task,
    TaskResultDoesNotExist,
    TaskResultStatus,
    django_task,
    task_backends,
)
from djqueue.testing import assert_enqueued, capture_enqueued, run_due, virtual_time
from tests.support.consumer import run_one
from tests.tasks import tasks

READY, FAILED, SUCCESSFUL = TaskResultStatus.READY, TaskResultStatus.FAILED, TaskResultStatus.SUCCESSFUL
EACH = pytest.mark.backends("memory", "sqlite", "redis")
MEMORY = pytest.mark.backends("memory")


@MEMORY
def test_arguments_become_what_json_has(queue):
    given = [1, (2, 3)]
    result = tasks.add.enqueue(given, two=OrderedDict(a=b"text", b=range(2)))
    given.append("later")
    assert (result.args, result.kwargs) == ([[1, [2, 3]]], {"two": {"a": "text", "b": [0, 1]}})
    assert tasks.add.get_result(result.id).args == [[1, [2, 3]]]


@MEMORY
@pytest.mark.parametrize("value", [date(2026, 1, 1), object(), {1, 2}, [date(2026, 1, 1)]])
def test_what_json_cannot_have_is_refused_at_the_call(queue, value):
    with pytest.raises(TypeError, match="Unsupported type") as caught:
        tasks.add.enqueue(value)
    assert "tests.tasks.tasks.add" in caught.value.__notes__[0]
    assert queue.stats().ready == 0


@MEMORY
@pytest.mark.parametrize(("args", "kwargs"), [((), {}), ((1, 2, 3), {}), ((1,), {"three": 3})])
def test_arguments_that_do_not_fit_are_refused_at_the_call(queue, args, kwargs):
    with pytest.raises(TypeError, match=r"add\(one, two=0\)"):
        tasks.add.enqueue(*args, **kwargs)


@MEMORY
def test_the_context_is_no_argument(queue):
    with pytest.raises(TypeError, match=r"with_context\(word\)"):
        tasks.with_context.enqueue("context", "word")


@EACH
def test_many_calls_go_together(queue):
    results = tasks.flaky.enqueue_many([(1,), {"until": 1}])
    assert [result.args or result.kwargs for result in results] == [[1], {"until": 1}]
    assert queue.stats().ready == 2


@EACH
def test_async_code_enqueues_and_reads_results(queue):
    async def enqueue():
        result = await tasks.add.aenqueue(1, two=4)
        again = await tasks.add.aget_result(result.id)
        [other] = await tasks.flaky.aenqueue_many([(1,)])
        return result, again, other

    result, again, other = asyncio.run(enqueue())
    assert (again.status, again.id, other.status) == (READY, result.id, READY)
    run_one(queue)
    asyncio.run(result.arefresh())
    assert result.return_value == 5


@EACH
def test_priorities_decide_the_order(queue):
    tasks.urgent.using(priority=-5).enqueue("last")
    tasks.urgent.enqueue("second")
    tasks.urgent.using(priority=90).enqueue("first")
    for _ in range(3):
        run_one(queue)
    assert tasks.seen == ["first", "second", "last"]


@EACH
def test_a_call_that_another_one_counts_for_has_its_result(queue, task_signals):
    one, other = tasks.once.enqueue("x"), tasks.once.enqueue("x")
    assert (other.id, other.status, other.args) == (one.id, READY, ["x"])
    assert [name for name, *_ in task_signals] == ["task_enqueued"]


# ---- transactions


@pytest.mark.backends("sqlite", "redis", database=True)
def test_a_transaction_that_is_rolled_back_leaves_nothing(queue, task_signals):
    with pytest.raises(RuntimeError), transaction.atomic():
        result = tasks.add.enqueue(1)
        raise RuntimeError
    assert (queue.stats().ready, task_signals) == (0, [])
    with pytest.raises(TaskResultDoesNotExist):
        tasks.add.get_result(result.id)


@pytest.mark.backends("sqlite", "redis", database=True)
def test_a_task_is_there_once_its_transaction_commits(queue, task_signals):
    with transaction.atomic():
        result = tasks.add.enqueue(1)
        assert task_signals == []
    assert tasks.add.get_result(result.id).status == READY
    assert [name for name, *_ in task_signals] == ["task_enqueued"]


# ---- backends and queues


@EACH
def test_a_task_goes_to_the_queue_of_its_name(backend, settings):
    settings.QUEUES = backend.queues("default", "mail")
    result = tasks.add.using(queue_name="mail").enqueue(1)
    assert (queues["mail"].stats().ready, queues["default"].stats().ready) == (1, 0)
    assert tasks.add.get_result(result.id).task.queue_name == "mail"
    run_one(queues["mail"])
    assert tasks.add.get_result(result.id).status == SUCCESSFUL


@MEMORY
def test_a_task_follows_the_queues_of_the_settings(backend, settings):
    mail = tasks.add.using(queue_name="mail")
    for names in (("default", "mail"), ("default",)):
        settings.QUEUES = backend.queues(*names)
        mail.enqueue(1)
        assert queues[names[-1]].stats().ready == 1


@EACH
def test_other_names_share_the_queue_of_the_options(backend, settings, configure_backend):
    settings.QUEUES = backend.queues("default", "shared")
    configure_backend(OPTIONS={"queue_name": "shared"})
    sent = {name: tasks.add.using(queue_name=name).enqueue(1) for name in ("reports", "images")}
    assert queues["shared"].stats().ready == 2
    run_one(queues["shared"])
    for name, result in sent.items():
        result = tasks.add.get_result(result.id)
        assert (result.task.queue_name, result.backend) == (name, "default")


@MEMORY
def test_a_queue_that_is_not_listed_is_refused(queue, configure_backend):
    configure_backend(QUEUES=["default", "mail"])
    assert tasks.add.using(queue_name="mail").queue_name == "mail"
    with pytest.raises(InvalidTask, match="other"):
        tasks.add.using(queue_name="other")


@MEMORY
def test_two_backends_stand_side_by_side(queue, settings):
    ours, theirs = settings.TASKS["default"], "backends.dummy.DummyBackend"
    package = Task.__module__.rpartition(".")[0]
    settings.TASKS = {
        "default": {"BACKEND": f"{package}.{theirs}"},
        "ours": {**ours, "OPTIONS": {"retry_on": [LookupError], "backoff": 0, "retries": 1}},
    }
    tasks.broken.enqueue()
    assert queue.stats().ready == 0
    result = tasks.broken.using(backend="ours").enqueue()
    assert result.backend == "ours"
    run_one(queue)
    again = task_backends["ours"].get_result(result.id)
    assert (again.status, again.backend, again.task.backend) == (READY, "ours", "ours")
    run_one(queue)
    again.refresh()
    assert (again.status, again.attempts) == (FAILED, 2)
    settings.TASKS = {"renamed": settings.TASKS["ours"]}
    with pytest.raises(InvalidTaskBackend):
        again.refresh()
    assert task_backends["renamed"].get_result(again.id).status == FAILED


@MEMORY
def test_options_count_for_all_tasks_of_a_backend(queue, configure_backend):
    configure_backend(OPTIONS={"retry_on": [LookupError], "retries": 1, "backoff": 0})
    result = tasks.broken.enqueue()
    run_one(queue)
    run_one(queue)
    result.refresh()
    assert (result.status, result.attempts) == (FAILED, 2)


@MEMORY
def test_results_are_kept_for_a_day_unless_options_say_otherwise(queue, configure_backend, settings):
    def kept():
        return task_backends["default"].policy_for(tasks.add).keeps_result

    assert kept() == 86_400
    settings.QUEUE_RESULT_TTL = 60
    assert kept() == 60
    configure_backend(OPTIONS={"result_ttl": 30})
    assert kept() == 30
    settings.QUEUE_RESULT_TTL = None
    configure_backend(OPTIONS={"result_ttl": None})
    assert kept() == 0


@pytest.mark.parametrize(("options", "said"), [({"retry_onn": []}, "did you mean"), ({"batch": 3}, "queue_command")])
def test_options_that_cannot_be_are_refused_by_the_decorator(options, said):
    with pytest.raises(TypeError, match=said):
        task(**options)(plain)


def plain(word="word"):
    return word


def another(word="word"):
    return word


# ---- declaring


def test_every_option_of_a_command_is_one_of_a_task():
    taken = set(OPTIONS) - {"queue_name", "priority", "run_after", "batch", "idle_timeout"}
    samples = {"throttle": Throttle(5, 60), "concurrency": 2, "time_limit": 5, "describe": str, "sensitive": ["word"]}
    assert samples.keys() <= taken
    made = task(**samples)(plain)
    assert registry[made.module_path].policy.concurrency == 2
    assert djqueue.task is task


def test_a_task_is_equal_to_one_of_the_same_values():
    one, other = tasks.flaky.using(priority=2), tasks.flaky.using(priority=2)
    assert (one == other, one == tasks.flaky, len({one, other})) == (True, False, 1)
    assert isinstance(one, DjqueueTask) and isinstance(one, Task)
    with pytest.raises(TypeError, match="not callable"):
        one(1)


@MEMORY
def test_options_of_one_call(queue):
    result = tasks.flaky.using(delay=60, retries=5).enqueue(1)
    assert queue.stats().delayed == 1
    assert tasks.flaky.get_result(result.id).status == READY


def test_djangos_decorator_takes_options_where_it_takes_any():
    try:
        made = django_task(retry_on=[OSError])(another)
    except TypeError as error:  # Django 6.0
        assert "retry_on" in str(error)
    else:
        assert registry[made.module_path].policy.retry_on == (OSError,)


@pytest.mark.parametrize("other", [plain, tasks.add, 3])
def test_what_is_no_command_is_made_no_task(other):
    with pytest.raises(TypeError, match="cannot be a task"):
        as_task(other)


def test_a_task_of_another_backend_keeps_its_options_for_later(settings):
    settings.TASKS = {
        "default": {"BACKEND": f"{Task.__module__.rpartition('.')[0]}.backends.immediate.ImmediateBackend"}
    }
    result = task(retry_on=[OSError])(plain).enqueue("now")
    assert (result.status, result.return_value) == (SUCCESSFUL, "now")


@MEMORY
def test_a_moment_that_is_none_is_refused(queue):
    with pytest.raises(InvalidTask, match="run_after is 5: give a datetime"):
        tasks.add.using(run_after=5)


@MEMORY
@pytest.mark.parametrize("serializer", ["pickle", "json"])
def test_a_number_that_json_has_not_passes_as_in_django_unless_json_carries_it(queue, settings, serializer):
    settings.QUEUE_SERIALIZER = serializer
    if serializer == "json":
        with pytest.raises(djqueue.exceptions.EncodeError, match="not a finite number"):
            tasks.add.enqueue(float("inf"))
    else:
        assert tasks.add.get_result(tasks.add.enqueue(float("inf")).id).args == [float("inf")]


# ---- results whose function is gone, or another one


@EACH
def test_the_result_of_a_function_that_is_gone_can_be_read(queue, write_module):
    module = write_module("tasks_that_go", "from djqueue import task\n@task\ndef work(number): return number\n")
    waits, done = module.work.enqueue(1), module.work.using(priority=9).enqueue(2)
    run_one(queue)
    registry.unregister("tasks_that_go.work")
    sys.modules["tasks_that_go"] = ModuleType("tasks_that_go")
    for id, status in ((waits.id, READY), (done.id, SUCCESSFUL)):
        result = task_backends["default"].get_result(id)
        assert (result.status, result.task.module_path, result.task.name) == (status, "tasks_that_go.work", "work")
    assert result.return_value == 2
    result.refresh()
    with pytest.raises(djqueue.exceptions.UnknownCommand, match="renamed or removed"):
        result.task.call(1)


@EACH
def test_the_result_of_another_task_is_a_mismatch(queue):
    result = tasks.add.enqueue(1)
    with pytest.raises(Exception, match="Task does not match") as caught:
        tasks.broken.get_result(result.id)
    assert type(caught.value).__name__ == "TaskResultMismatch"


# ---- eager mode


@EACH
def test_eager_mode_runs_a_task_where_it_is_enqueued(queue, settings, task_signals):
    settings.QUEUE_ALWAYS_EAGER = True
    result = tasks.with_context.enqueue("now")
    assert (result.status, result.return_value["attempt"], result.attempts) == (SUCCESSFUL, 1, 1)
    assert [name for name, *_ in task_signals] == ["task_enqueued", "task_started", "task_finished"]
    failed = tasks.flaky.enqueue(5)
    assert (failed.status, failed.attempts, len(failed.errors)) == (FAILED, 3, 3)


@MEMORY
def test_in_eager_mode_ctrl_c_reaches_whoever_called_and_is_no_failure_of_the_task(queue, settings, task_signals):
    settings.QUEUE_ALWAYS_EAGER = True
    with pytest.raises(KeyboardInterrupt):
        tasks.interrupted.enqueue()
    assert [name for name, *_ in task_signals] == ["task_enqueued", "task_started"]


# ---- schedules, and the test kit


@MEMORY
def test_a_task_has_a_schedule(queue, no_periodic_commands, monkeypatch):
    made = periodic_command(crontab(hour=3, minute=0), ttl=600)(django_task(plain))
    assert isinstance(made, Task)
    command = registry[made.module_path]
    assert (command.policy.ttl, command.policy.task) == (600, ("default", "default"))
    assert task_backends["default"].command_of(made) is command
    monkeypatch.setattr(registry, "periodic", lambda: [command])
    with virtual_time(datetime(2026, 5, 1, tzinfo=UTC)):
        runs = run_due(until=timedelta(days=1), periodic=True)
        assert [run.value for run in runs] == ["word"]
        assert made.get_result(runs[0].id).return_value == "word"


@pytest.mark.parametrize("kind", ["dummy.DummyBackend", "immediate.ImmediateBackend"])
def test_the_schedule_of_a_task_is_ignored_by_another_backend(settings, monkeypatch, kind):
    monkeypatch.setattr(registry, "register", lambda command: pytest.fail("it was registered"))
    settings.TASKS = {"default": {"BACKEND": f"{PACKAGE}.backends.{kind}"}}
    for decorate in (django_task, task):
        made = decorate(plain)
        assert periodic_command(crontab(hour=3, minute=0), ttl=600)(made) is made
    with pytest.raises(TypeError, match="is not a function"):
        periodic_command(every=60)("plain")


def test_a_scheduled_task_must_need_no_argument():
    with pytest.raises(TypeError, match="requires one"):
        periodic_command(every=60)(tasks.add)


@EACH
def test_a_task_is_sent_by_a_schedule_made_at_run_time(queue):
    made = schedules.add("adding", tasks.add.using(priority=3), args=(1,), every=60)
    assert made.command == "tests.tasks.tasks.add"
    assert schedules.remove("adding")


@MEMORY
def test_the_test_kit_knows_tasks(queue):
    with capture_enqueued() as calls:
        tasks.add.using(priority=4).enqueue(1, two=2)
    assert [call.command for call in calls] == ["tests.tasks.tasks.add"]
    assert_enqueued(tasks.add, args=(1, 2), count=1, priority=4)
    assert_enqueued("tests.tasks.tasks.add")
    [run] = run_due()
    assert (run.done, run.value) == (True, 3)


@MEMORY
def test_a_virtual_clock_moves_tasks(queue):
    with virtual_time(datetime(2026, 5, 1, tzinfo=UTC)):
        result = tasks.later.enqueue()
        runs = run_due(until=120)
        assert [run.outcome for run in runs] == ["retried", "failed"]
        result.refresh()
        assert (result.last_attempted_at - result.started_at).total_seconds() == pytest.approx(60, abs=1)
        assert result.enqueued_at == datetime(2026, 5, 1, tzinfo=UTC)


# ---- what a queue cannot do


@MEMORY
def test_a_queue_without_results_says_so(backend, settings):
    settings.QUEUES = {"default": {**backend.config(), "STORE": False}}
    ours = task_backends["default"]
    assert (ours.supports_get_result, ours.supports_priority, ours.supports_defer) == (False, True, True)
    [warning] = ours.check()
    why = "as QUEUES['default']['STORE'] is False: remove that"
    assert (warning.id, why in warning.msg) == ("djqueue.W402", True)
    result = tasks.add.enqueue(1)
    run_one(queues["default"])
    with pytest.raises(NotImplementedError, match="does not support"):
        tasks.add.get_result(result.id)
    with pytest.raises(InvalidTask) as caught:
        tasks.flaky.using(result_ttl=60)
    assert f"facts (result_ttl=), {why}" in str(caught.value)


@pytest.mark.backends("sqs")
def test_on_sqs_a_task_runs_and_priorities_are_refused(queue):
    with pytest.raises(InvalidTask, match="priority"):
        tasks.add.using(priority=3)
    tasks.add.enqueue(1)
    run_one(queue)
    assert tasks.seen == [("add", 1, 0)]


def test_without_tasks_of_django_the_package_to_install_is_named():
    code = (
        "import sys, django; django.VERSION = (5, 2); sys.modules['django_tasks'] = None\n"
        "import djqueue\n"
        "try: djqueue.task\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.startswith(
        "ImproperlyConfigured djqueue.tasks needs the package django-tasks on Django 5.2: pip"
    )
