"""The names of other libraries are answered with what djqueue calls them."""

import importlib

import pytest

import djqueue
from djqueue import hints, queue_command
from djqueue.enqueueing.command import PeriodicCommand
from djqueue.policies.options import OPTIONS
from djqueue.schedules import add


@queue_command
def paint(picture):
    raise NotImplementedError


def test_no_hint_hides_what_is_there():
    assert not hints.OPTIONS.keys() & OPTIONS.keys()
    assert not hints.IN_THE_PACKAGE.keys() & set(djqueue.__all__)
    assert not [name for name in hints.ON_A_COMMAND if hasattr(PeriodicCommand, name)]
    called = {hint.removeprefix("djqueue calls it ") for hint in hints.OPTIONS.values()}
    assert {name for name in called if name.isidentifier()} <= OPTIONS.keys()
    assert add.__name__ == "add", "named in hints as schedules.add"


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("countdown", "djqueue calls it delay"),
        ("autoretry_for", "djqueue calls it retry_on"),
        ("retry_backoff", r"djqueue calls it backoff=Backoff\(first=seconds"),
        ("queue", "djqueue calls it queue_name"),
        ("throttleWindow", r"djqueue calls it throttle=Throttle\(limit, window\)"),
        ("if_not_exists", "djqueue calls it unique='queued'"),
        ("bind", r"current_message\(\) is the message that runs"),
        ("name", "a command has the name of its function"),
    ],
)
def test_an_option_of_another_library_is_told_by_its_name_here(name, own):
    for take in (queue_command, paint.using):
        with pytest.raises(TypeError, match=f"^Unknown option '{name}': {own}"):
            take(**{name: 1})


@pytest.mark.parametrize("name", sorted(hints.ON_A_COMMAND))
def test_an_attribute_of_another_library_is_told_by_what_a_command_has(name):
    with pytest.raises(AttributeError, match=f"no attribute '{name}': "):
        getattr(paint, name)
    assert not hasattr(paint, name)


@pytest.mark.parametrize("name", sorted(hints.IN_THE_PACKAGE))
def test_a_name_of_another_package_is_told_when_it_is_imported(name):
    with pytest.raises(ImportError, match=f"^djqueue has no '{name}': "):
        exec(f"from djqueue import {name}")
    with pytest.raises(ImportError, match=f"^djqueue has no '{name}': "):
        getattr(djqueue, name)


def test_an_unknown_name_is_an_attribute_error_as_of_any_module():
    assert not hasattr(djqueue, "no_such_name")
    with pytest.raises(ImportError, match="cannot import name 'no_such_name'"):
        exec("from djqueue import no_such_name")


def test_crontab_and_queues_are_what_they_are_called():
    for module in ("djqueue.decorators", "djqueue.wiring", "djqueue.timetables"):
        importlib.import_module(module)
    from djqueue import crontab, queues

    assert crontab(hour=3, minute=0).next
    assert "default" in queues
