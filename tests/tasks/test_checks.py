"""What `manage.py check` tells of TASKS, and that nothing else fails before it does."""

from importlib import import_module

import pytest
from django.apps import AppConfig, apps
from django.core.exceptions import ImproperlyConfigured

from djqueue import autodiscover
from djqueue.checks.tasks import check_task_backends
from djqueue.exceptions import InvalidQueueError, NotSupported
from djqueue.tasks.compat import PACKAGE, InvalidTask, InvalidTaskBackend, django_task, task_backends


def plain():
    """A task that is declared while settings are wrong."""


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"retry_onn": []}, "did you mean 'retry_on'"),
        ({"retries": 1}, "retries without retry_on"),
        ({"priority": 3}, "give it to the decorator"),
        ({"batch": 3}, "Declare a function that takes many at once with queue_command(batch=...)"),
        ({"time_limit": "soon"}, "time_limit"),
        ([], "give a dictionary"),
    ],
)
def test_options_that_cannot_be_are_told_by_a_check_and_refused_when_a_task_is_enqueued(
    configure_backend, options, said
):
    ours = configure_backend(OPTIONS=options)
    [error] = ours.check()
    assert (error.id, said in error.msg) == ("djqueue.E402", True), error.msg
    assert error.msg.startswith("TASKS['default']['OPTIONS']") and error.msg.count("OPTIONS") == 1
    declared = django_task(plain)
    for step in (declared.enqueue, lambda: declared.get_result("0" * 32)):
        with pytest.raises(InvalidTaskBackend) as caught:
            step()
        assert str(caught.value) == error.msg
    assert issubclass(InvalidTaskBackend, ImproperlyConfigured)


@pytest.mark.parametrize("names", ["default", None, [5]])
def test_names_of_queues_that_are_no_list_are_told_by_a_check(configure_backend, names):
    [error] = configure_backend(QUEUES=names).check()
    assert (error.id, error.msg.partition(":")[0]) == ("djqueue.E402", f"TASKS['default']['QUEUES'] is {names!r}")
    with pytest.raises(InvalidTaskBackend, match="give a list of names"):
        django_task(plain).enqueue()


def test_the_options_that_are_named_are_those_that_tasks_have(configure_backend):
    [error] = configure_backend(OPTIONS={"colour": "red"}).check()
    assert "retry_on" in error.msg
    assert not [name for name in ("batch", "idle_timeout", "priority", "run_after") if name in error.msg]


def test_options_that_no_queue_can_do_are_told_by_a_check(settings, configure_backend):
    settings.QUEUES = {"default": {"CLASS": "djqueue.backends.memory.MemoryQueue", "STORE": False}}
    ours = configure_backend(OPTIONS={"result_ttl": 60})
    declared = django_task(plain)
    error = next(ours.check())
    assert error.id == "djqueue.E404"
    assert "facts (result_ttl=), as QUEUES['default']['STORE'] is False" in error.msg
    with pytest.raises(NotSupported, match="result_ttl="):
        declared.enqueue()


def test_an_unknown_key_is_told_by_a_check(configure_backend):
    [warning] = configure_backend(QUEUE=["mail"]).check()
    assert (warning.id, warning.msg) == ("djqueue.W403", "TASKS['default'] has the unknown key 'QUEUE'.")
    assert "did you mean 'QUEUES'?" in warning.hint


def test_a_queue_that_there_is_not_is_told_by_a_check(configure_backend):
    ours = configure_backend(OPTIONS={"queue_name": "nowhere"})
    [error] = ours.check()
    assert (error.id, "'nowhere'" in error.msg) == ("djqueue.E401", True)
    with pytest.raises(InvalidQueueError, match="nowhere"):
        django_task(queue_name="reports")(plain).enqueue()


@pytest.mark.parametrize("wrong", [{"default": {"CLASS": "nowhere.Queue"}}, {"default": []}, [], None])
def test_wrong_queues_leave_tasks_declared(settings, wrong):
    settings.QUEUES = wrong
    declared = django_task(plain)
    assert list(task_backends["default"].check()) == [], "a check of QUEUES tells it"
    with pytest.raises(InvalidQueueError, match="QUEUES|nowhere"):
        declared.enqueue()


def test_the_apps_that_tasks_need_are_told(settings):
    settings.INSTALLED_APPS = []
    expected = ["djqueue.E403", *(["djqueue.W401"] if PACKAGE == "django_tasks" else [])]
    assert [message.id for message in task_backends["default"].check()] == expected
    told = [message.id for message in check_task_backends()]
    assert told == (expected if PACKAGE == "django_tasks" else []), "Django 6 has a check that asks the backends"


@pytest.mark.parametrize(
    ("name", "backends"),
    [
        ("misspelt", {"default": {"BACKEND": "djqueue.tasks.DjqueueBakend"}}),
        ("a_module", {"default": {"BACKEND": "djqueue.tasks"}}),
        ("no_class", {"default": {}}),
        ("no_alias", {"other": {"BACKEND": "djqueue.tasks.DjqueueBackend"}}),
        ("no_queue", {"default": {"BACKEND": "djqueue.tasks.DjqueueBackend", "QUEUES": ["mail"]}}),
    ],
)
def test_an_error_of_the_setting_while_tasks_are_imported_names_the_setting(
    settings, monkeypatch, tmp_path, name, backends
):
    package = tmp_path / f"shop_{name}"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "tasks.py").write_text(f"from {PACKAGE} import task\n\n@task\ndef plain():\n    pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    app = AppConfig(package.name, import_module(package.name))
    monkeypatch.setattr(apps, "get_app_configs", lambda: [app])
    settings.TASKS = backends
    with pytest.raises((ImproperlyConfigured, InvalidTask, KeyError, TypeError)) as caught:
        autodiscover()
    [note] = caught.value.__notes__
    assert note.startswith(
        f"In the module {package.name}.tasks, which djqueue imports at the start. See the setting TASKS"
    )
    assert '"djqueue.tasks.DjqueueBackend"' in note and "QUEUE_MODULES" not in note
