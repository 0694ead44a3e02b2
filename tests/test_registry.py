"""Commands by name: one of each, found in every app."""

import importlib
import sys

import pytest
from django.conf import settings
from django.test import override_settings

import djqueue
from djqueue import crontab, periodic_command, queue_command
from djqueue.exceptions import QueueError, UnknownCommand
from djqueue.registry import Registry, registry
from tests.support.notes import cleared_per_test

NAME = __name__
ran = cleared_per_test([])


@queue_command
def bare(number, *, word="x"):
    """What bare does."""
    ran.append((number, word))
    return number * 2


def plain():
    return "plain"


@periodic_command(crontab(hour=0, minute=0))
def nightly(word="night"):
    return word


FUNCTION = "@queue_command\ndef Work(): return 1\n"
CLASS = "class Work(QueueCommand):\n    def execute(self): return 1\n"


@pytest.mark.parametrize(
    ("one", "other", "where"),
    [(FUNCTION, FUNCTION, ": at line 2 and line 4"), (CLASS, CLASS, ""), (FUNCTION, CLASS, "")],
    ids=["functions", "classes", "function-and-class"],
)
def test_dj24_two_commands_of_one_name_in_a_module_are_refused(write_module, one, other, where):
    with pytest.raises(QueueError, match=rf"declared\.Work is declared twice{where}"):
        write_module("declared", f"from djqueue import QueueCommand, queue_command\n{one}{other}")


def test_the_same_name_in_two_modules_is_two_commands(write_module):
    text = "from djqueue import queue_command\n@queue_command\ndef work(): return __name__\n"
    one, two = write_module("module_one", text), write_module("module_two", text)
    assert registry["module_one.work"] is one.work
    assert registry["module_two.work"] is two.work


def test_executing_a_module_again_replaces_its_commands(write_module, tmp_path):
    module = write_module("reloaded", "from djqueue import queue_command\n@queue_command\ndef work(): return 1\n")
    (tmp_path / "reloaded.py").write_text(
        "from djqueue import queue_command\n# moved down\n\n@queue_command\ndef work(): return 'new'\n"
    )
    importlib.invalidate_caches()
    importlib.reload(module)
    assert registry["reloaded.work"].call() == "new"


def test_a_module_that_failed_halfway_can_be_imported_again(write_module, tmp_path):
    with pytest.raises(ZeroDivisionError):
        write_module("halfway", "from djqueue import queue_command\n@queue_command\ndef work(): return 1\n1 / 0\n")
    module = write_module("halfway", "from djqueue import queue_command\n\n@queue_command\ndef work(): return 2\n")
    assert registry["halfway.work"] is module.work


def test_the_registry_answers_for_names_and_commands():
    assert f"{NAME}.bare" in registry
    assert bare in registry
    assert f"{NAME}.plain" not in registry
    assert plain not in registry
    assert registry[f"{NAME}.bare"] is bare
    assert registry.get(f"{NAME}.bare") is bare
    assert registry.get("no.such") is None
    assert bare in list(registry)
    assert nightly in registry.periodic()
    assert bare not in registry.periodic()
    with pytest.raises(UnknownCommand, match="no.such is not a registered command"):
        registry["no.such"]


def test_commands_can_be_unregistered_by_name_or_as_they_are():
    own = Registry()
    for name in ("", bare):
        own.register(bare)
        assert (bare in own, len(own)) == (True, 1)
        own.unregister(name or bare.name)
        assert (bare in own, len(own)) == (False, 0)
    own.unregister("no.such")
    own.register(bare)
    own.reset()
    assert len(own) == 0


def test_autodiscover_imports_the_commands_of_installed_apps():
    djqueue.autodiscover()
    assert "tests.app.commands.note" in registry


def test_an_error_in_a_commands_module_is_not_hidden(write_module, tmp_path):
    package = tmp_path / "broken_app"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "commands.py").write_text("1 / 0\n")
    write_module("nothing", "")
    with pytest.raises(ZeroDivisionError), override_settings(INSTALLED_APPS=[*settings.INSTALLED_APPS, "broken_app"]):
        raise AssertionError("the app was loaded")
    sys.modules.pop("broken_app", None)
