"""What pytest finds by itself."""

import os
import re
import subprocess
import sys
from importlib.metadata import entry_points

import pytest

from djqueue import pytest_plugin, queues, testing
from djqueue.backends.memory.queue import MemoryQueue
from djqueue.decorators import queue_command
from djqueue.testing import assert_enqueued, assert_not_enqueued
from tests.app.models import Thing
from tests.support.document_runner import Runner
from tests.support.documents import ROOT, blocks

UNTOUCHED = """
import sys

def test_nothing_of_django_is_loaded():
    assert "djqueue.pytest_plugin" in sys.modules
    assert not {"django", "djqueue.wiring", "djqueue.testing"} & sys.modules.keys()
"""


@queue_command
def build(name):
    return Thing.objects.create(name=name).pk


@queue_command(delay=3600)
def remind():
    return "an hour later"


@pytest.mark.parametrize("round", [1, 2])
def test_each_test_has_empty_queues_in_memory(djqueue_memory_queues, round):
    assert [type(djqueue_memory_queues[alias]) for alias in djqueue_memory_queues] == [MemoryQueue]
    assert_not_enqueued()
    remind()
    assert_enqueued(remind, count=1)


def test_they_are_gone_afterwards():
    assert len(queues["default"]) == 0
    assert queues["default"].store.clock() > 0
    assert vars(MemoryQueue)["clock"].__class__ is staticmethod


def test_time_stands_still_and_is_moved(djqueue_clock, djqueue_run_due):
    began = djqueue_clock.now
    remind()
    assert djqueue_run_due() == []
    assert [run.value for run in djqueue_run_due(until=3600)] == ["an hour later"]
    assert (djqueue_clock.now - began).total_seconds() == 3600


@pytest.mark.django_db
def test_what_a_test_with_a_database_enqueues(djqueue_memory_queues, djqueue_enqueued, djqueue_run_due):
    with djqueue_enqueued() as calls:
        build("fence")
    assert [call.args for call in calls] == [("fence",)]
    assert [run.value for run in djqueue_run_due()] == [Thing.objects.get().pk]


def test_the_sample_of_the_docs_runs(djqueue_clock, djqueue_run_due, tmp_path):
    with Runner(tmp_path, "fixtures") as runner:
        for block in blocks(ROOT / "docs" / "howto" / "testing.rst", "python"):
            if block.file == "shop/commands.py":
                runner.write(block)
            if "djqueue_clock" in block.text:
                exec(block.code, scope := {})
        scope["test_a_day_later"](djqueue_clock, djqueue_run_due)


def test_each_fixture_is_described():
    own = {name for name in vars(pytest_plugin) if name.startswith("djqueue_")}
    for page in ("howto", "reference"):
        text = (ROOT / "docs" / page / "testing.rst").read_text()
        assert set(re.findall(r"\* - ``(djqueue_\w+)``", text)) == own


def test_each_name_is_described():
    text = (ROOT / "docs" / "reference" / "testing.rst").read_text()
    described = set(re.findall(r"^\.\. auto(?:function|class):: (\w+)$", text, re.M))
    assert set(testing.__all__) - {"queue_machine"} <= described


def test_it_is_announced_to_pytest():
    assert [point.value for point in entry_points(group="pytest11", name="djqueue")] == ["djqueue.pytest_plugin"]


def test_who_uses_no_fixture_is_not_troubled(tmp_path):
    (tmp_path / "test_plain.py").write_text(UNTOUCHED)
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "DJANGO_"))}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:django", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
