"""Options that the settings give to tasks by their names: to those of other packages, whose code cannot say them."""

import pytest
from django.apps import apps
from django.core.exceptions import AppRegistryNotReady

from djqueue import crontab, periodic_command, queues
from djqueue.registry import registry
from djqueue.tasks import options as read
from djqueue.tasks import task
from djqueue.tasks.compat import InvalidTaskBackend, TaskResultStatus, django_task, task_backends
from tests.support.consumer import run_one
from tests.tasks import tasks

READY, FAILED, SUCCESSFUL = TaskResultStatus.READY, TaskResultStatus.FAILED, TaskResultStatus.SUCCESSFUL
HERE = "tests.tasks.tasks"
MEMORY = pytest.mark.backends("memory")


@pytest.fixture
def configure_by_name(configure_backend):
    """Have the backend made with these options of tasks by name, and with others for all tasks."""

    def by_name(names, **shared):
        return configure_backend(OPTIONS={**shared, "tasks": names})

    return by_name


def first_of_shop(one, two=0):
    """The key of a call: its first argument."""
    return one


@django_task
def plain(word="word"):
    return word


def nightly():
    pass


def policy_of(given):
    return task_backends["default"].policy_for(given)


@pytest.mark.backends("memory", "sqlite")
@pytest.mark.parametrize("pattern", [f"{HERE}.broken", f"{HERE}.*", "*.bro?en", "*"])
def test_a_task_is_retried_as_the_settings_say(queue, configure_by_name, pattern):
    configure_by_name({pattern: {"retry_on": ["LookupError"], "retries": 1, "backoff": 0}})
    result = tasks.broken.enqueue()
    run_one(queue)
    result.refresh()
    assert (result.status, result.attempts) == (READY, 1)
    run_one(queue)
    result.refresh()
    assert (result.status, result.attempts) == (FAILED, 2)


@MEMORY
def test_a_consumer_that_finds_the_task_itself_has_its_options(queue, configure_by_name):
    configure_by_name({f"{HERE}.broken": {"retry_on": ["builtins.LookupError"], "retries": 1, "backoff": 0}})
    tasks.broken.enqueue()
    registry.unregister(tasks.broken.module_path)
    assert registry.find(tasks.broken.module_path).policy.retry_on == (LookupError,)
    run_one(queue)
    assert queue.stats().failed == 0


@MEMORY
def test_equal_calls_count_once(queue, configure_by_name):
    configure_by_name({f"{HERE}.*": {"unique": "queued"}})
    assert tasks.add.enqueue(1).id == tasks.add.enqueue(1).id != tasks.add.enqueue(2).id


@MEMORY
@pytest.mark.parametrize("shard", [first_of_shop, f"{__name__}.first_of_shop", "first", 7])
def test_calls_of_one_shard_run_one_after_the_other(queue, configure_by_name, shard):
    configure_by_name({f"{HERE}.add": {"shard": shard, "max_run": 1}})
    for one in (1, 1, 2):
        tasks.add.enqueue(one)
    assert len(queue.claim(10)) == (2 if callable(policy_of(tasks.add).shard) else 1)
    assert len(queue.claim(10)) == 0, "the others wait until these are done"


@MEMORY
def test_tasks_go_to_the_queue_of_their_name(backend, settings, configure_by_name):
    settings.QUEUES = backend.queues("default", "slow", "mail")
    configure_by_name({f"{HERE}.*": {"queue_name": "slow"}})
    result = tasks.add.enqueue(1)
    assert (result.task.queue_name, queues["slow"].stats().ready) == ("default", 1)
    run_one(queues["slow"])
    result.refresh()
    assert result.status == SUCCESSFUL
    tasks.add.using(queue_name="mail").enqueue(1)
    assert queues["mail"].stats().ready == 1, "the queue that a task says itself counts"


@MEMORY
def test_of_an_option_the_most_specific_name_counts_and_the_task_itself_before_all(queue, configure_by_name):
    configure_by_name(
        {
            f"{HERE}.flaky": {"max_attempts": 7, "time_limit": 3},
            f"{HERE}.*": {"time_limit": 2, "lease": 20},
            "*": {"time_limit": 1, "lease": 10, "ttl": 100},
        },
        ttl=200,
        result_ttl=50,
    )
    told = policy_of(tasks.flaky)
    assert (told.time_limit, told.lease, told.ttl, told.result_ttl) == (3, 20, 100, 50)
    assert told.max_attempts == 3, "the decorator says retries=2"
    assert policy_of(tasks.flaky.using(lease=5)).lease == 5
    assert (policy_of(tasks.add).time_limit, policy_of(plain).time_limit) == (2, 1)
    configure_by_name({f"{HERE}.add": {"ttl": None}}, ttl=200)
    assert (policy_of(tasks.add).ttl, policy_of(tasks.broken).ttl) == (None, 200)


@MEMORY
def test_of_two_patterns_that_are_as_specific_the_later_one_counts(queue, configure_by_name):
    configure_by_name(
        {"tests.*.add": {"time_limit": 1}, "*sts.tasks.*dd": {"time_limit": 2}, "t*sts.*.add": {"time_limit": 3}}
    )
    assert policy_of(tasks.add).time_limit == 2, "it has the most characters of its own"
    configure_by_name({"tests.*add": {"time_limit": 1}, "tests*.add": {"time_limit": 2}})
    assert policy_of(tasks.add).time_limit == 2


@MEMORY
def test_how_long_a_result_is_kept_is_said_by_name_too(queue, configure_by_name):
    configure_by_name({f"{HERE}.add": {"result_ttl": None}, f"{HERE}.broken": {"result_ttl": 30}})
    kept = [policy_of(one).keeps_result for one in (tasks.add, tasks.broken, tasks.urgent)]
    assert kept == [0, 30, 86_400]


@MEMORY
def test_a_task_with_a_schedule_has_them(configure_by_name, no_periodic_commands):
    configure_by_name({f"{__name__}.nightly": {"time_limit": 9, "lease": 33}})
    periodic_command(crontab(hour=3, minute=0), time_limit=5)(django_task(nightly))
    policy = registry[f"{__name__}.nightly"].policy
    assert (policy.time_limit, policy.lease) == (5, 33)


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ({"shop.*": {"retry_onn": []}}, "['tasks']['shop.*'] cannot be used: Unknown option 'retry_onn'; did you mean"),
        ({"shop.*": {"priority": 3}}, "priority is no option of tasks"),
        ({"shop.*": {"tasks": {}}}, "Unknown option 'tasks'"),
        ({"shop.*": {"retry_on": ["django.db.IntegrtyError"]}}, "retry_on names 'django.db.IntegrtyError'"),
        ({"shop.*": {"retry_on": ["OSErorr"]}}, "retry_on names 'builtins.OSErorr', which cannot be imported"),
        ({"shop.*": {"retry_on": ["django.db.connection"]}}, "give a list of exception classes"),
        ({"shop.*": {"retry_on": {"OSError": "soon"}}}, "retry_on[OSError]"),
        ({"shop.*": {"shard": "shop.nowhere.key"}}, "shard names 'shop.nowhere.key', which cannot be imported"),
        ({"shop.*": {"unique": "queued", "key": "django.conf.settings"}}, "key is <"),
        ({"shop.*": {"debounce": 5}, "shop.tasks.*": {"unique": "queued"}}, "for 'shop.tasks.*' cannot be used: debou"),
        ({"shop.*": {"retries": 3}}, "retries without retry_on"),
        ({"shop.*": [OSError]}, "['tasks']['shop.*'] is [<class 'OSError'>]: give a dictionary"),
        ({3: {}}, "['tasks'] is {3: {}}: give a dictionary, as in"),
        (["shop.*"], "['tasks'] is ['shop.*']: give a dictionary, as in"),
    ],
)
def test_options_that_cannot_be_are_reported_by_a_check_and_refused_when_a_task_is_enqueued(
    configure_by_name, names, said
):
    ours = configure_by_name(names)
    [error] = ours.check()
    assert (error.id, said in error.msg) == ("djqueue.E402", True), error.msg
    assert error.msg.startswith("TASKS['default']['OPTIONS']") and error.msg.count("OPTIONS") == 1
    with pytest.raises(InvalidTaskBackend) as caught:
        plain.enqueue()
    assert str(caught.value) == error.msg


def test_a_misspelt_key_for_names_is_reported(configure_backend):
    [error] = configure_backend(OPTIONS={"task": {"shop.*": {}}}).check()
    assert (error.id, "did you mean 'tasks'?" in error.msg) == ("djqueue.E402", True), error.msg


def test_patterns_that_overlap_and_contradict_each_other_are_refused_where_a_task_has_both(queue, configure_by_name):
    configure_by_name({"*.test_options_by_name.plain*": {"debounce": 5}, "tests.*.plain": {"unique": "queued"}})
    with pytest.raises(ValueError, match=r"\['tasks'\] for 'tests.*plain' cannot be used: debounce and unique exclude"):
        plain.enqueue()


def test_a_queue_that_does_not_exist_is_reported(configure_by_name):
    [error] = configure_by_name({f"{HERE}.*": {"queue_name": "slw"}}).check()
    assert (error.id, f"['OPTIONS']['tasks']['{HERE}.*']['queue_name'] is 'slw'" in error.msg) == ("djqueue.E401", True)


def test_options_that_no_queue_can_do_are_reported_and_hinder_no_declaration(settings, configure_by_name):
    settings.QUEUES = {"default": {"CLASS": "djqueue.backends.sqs.SqsQueue", "STORE": False}}
    ours = configure_by_name({f"{__name__}.*": {"throttle": None, "concurrency": 2}})
    error = next(message for message in ours.check() if message.id == "djqueue.E404")
    assert "concurrency=" in error.msg and f"['tasks']['{__name__}.*']" in error.msg
    assert django_task(plain.func).module_path == plain.module_path


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (f"{HERE}.ad", f"{HERE} has no 'ad'"),
        ("tests.taks.*", "there is no module tests.taks"),
        ("wagtial.tasks.update*", "there is no module wagtial.tasks"),
        ("add", "it is no dotted path"),
    ],
)
def test_a_name_of_no_task_is_reported(configure_by_name, name, said):
    [warning] = configure_by_name({name: {"time_limit": 3}}).check()
    assert warning.id == "djqueue.W404" and said in warning.msg and f"[{name!r}]" in warning.msg


@pytest.mark.parametrize("name", [f"{HERE}.add", f"{HERE}.*", "*", "*.nothing", "t*", "tests.tasks.*", "json.tool.*"])
def test_what_may_be_the_name_of_a_task_is_not_reported(configure_by_name, name):
    assert list(configure_by_name({name: {"time_limit": 3}}).check()) == []


def test_a_nearest_task_is_named(configure_by_name):
    tasks.add.get_backend().declare(tasks.add)
    [warning] = configure_by_name({"tests.tasks.task.add": {"time_limit": 3}}).check()
    assert f"did you mean '{HERE}.add'?" in warning.hint


@MEMORY
def test_what_cannot_be_imported_before_the_models_is_imported_after_them(queue, configure_by_name, monkeypatch):
    def not_yet(path):
        raise AppRegistryNotReady("Models aren't loaded yet.")

    with monkeypatch.context() as early:
        early.setattr(apps, "models_ready", False)
        early.setattr(read, "import_string", not_yet)
        configure_by_name({f"{__name__}.plain": {"retry_on": ["LookupError"], "time_limit": 9}})
        declared = task(retries=3)(plain.func)
    declared.enqueue()
    policy = policy_of(declared)
    assert (policy.retry_on, policy.max_attempts, policy.time_limit) == ((LookupError,), 4, 9)
