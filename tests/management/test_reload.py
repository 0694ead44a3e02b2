"""``queue_consumer --reload``: starts again when the code changes, waits for a typo to be fixed, abandons nothing."""

import json
import os
import signal
import sys

import pytest
from django.conf import settings
from django.core.management import CommandError

from djqueue import queues
from djqueue.management.commands import queue_consumer
from tests.support.consumer import message_for
from tests.support.processes import ROOT, until

pytestmark = [pytest.mark.slow, pytest.mark.backends("sqlite")]

APP = """\
import time

from djqueue import current_message, queue_command
from tests.app.commands import write_down

@queue_command
def say():
    write_down("{0}")

@queue_command
def hold():
    write_down(f"{0} {{current_message().attempt}}")
    if "{0}" == "old":
        time.sleep(600)
"""


def written(site):
    """What the commands wrote down so far."""
    return site.ledger.read_text().splitlines() if site.ledger.exists() else []


@pytest.fixture
def module(tmp_path):
    package = tmp_path / "changing_app"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "commands.py").write_text(APP.format("old"))
    return package / "commands.py"


class Code:
    """A file that changes; each time it is newer than before, whatever the clock of the file system can tell apart."""

    def __init__(self, path):
        self.path, self.time = path, 2**31

    def write(self, text):
        self.path.write_text(text)
        self.time += 10
        os.utime(self.path, (self.time, self.time))


@pytest.fixture
def code(module):
    return Code(module)


@pytest.fixture
def process(site, module):
    """The parent, which watches the module."""
    site.settings["INSTALLED_APPS"] = [*settings.INSTALLED_APPS, "changing_app"]
    path = os.pathsep.join([str(module.parent.parent), str(ROOT)])
    process = site.consumer("--reload", env={"PYTHONPATH": path})
    process.wait_for("; queues: ")
    return process


def put(name):
    queues["default"].put([message_for(queues["default"], f"changing_app.commands.{name}")])


def test_it_starts_again_when_code_changes_and_stops_when_told(site, process, code):
    put("say")
    until(lambda: written(site) == ["old"])
    code.write(APP.format("new"))
    until(lambda: process.output.count("; queues: ") == 2)
    put("say")
    until(lambda: written(site) == ["old", "new"])
    process.term()
    assert process.wait() == 0


def test_after_a_typo_it_waits_until_that_is_fixed(site, process, code):
    code.write("def broken(:")
    process.wait_for("it is started again when a file changes")
    assert "SyntaxError" in process.output
    code.write(APP.format("fixed"))
    until(lambda: process.output.count("; queues: ") == 2)
    put("say")
    until(lambda: written(site) == ["fixed"])
    process.term()
    assert process.wait() == 0


def test_it_ends_while_it_waits_for_a_typo_to_be_fixed(process, code):
    code.write("def broken(:")
    process.wait_for("it is started again when a file changes")
    process.term()
    assert process.wait() == 0


def test_what_runs_is_handed_back_and_run_by_the_new_child(site, process, code):
    put("hold")
    until(lambda: written(site) == ["old 1"])
    code.write(APP.format("new"))
    until(lambda: written(site) == ["old 1", "new 2"])
    until(lambda: len(queues["default"]) == 0 and queues["default"].stats().leased == 0)
    stats = queues["default"].stats()
    assert (stats.failed, stats.done) == (0, 1)
    process.term()
    assert process.wait() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.full)])
def test_a_signal_to_the_parent_ends_both_and_hands_back_what_runs(site, process, number):
    put("hold")
    until(lambda: written(site) == ["old 1"])
    process.send(number)
    assert process.wait() == 0
    [record] = queues["default"].peek("ready")
    assert (record.entry.attempts, record.entry.failures, record.entry.lost) == (1, 0, 0)


def test_a_signal_to_all_of_them_as_a_terminal_sends_it_does_the_same(site, process):
    put("hold")
    until(lambda: written(site) == ["old 1"])
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait() == 0
    assert len(queues["default"]) == 1
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)


def test_several_processes_are_all_restarted(site, module, code):
    path = os.pathsep.join([str(module.parent.parent), str(ROOT)])
    site.settings["INSTALLED_APPS"] = [*settings.INSTALLED_APPS, "changing_app"]
    process = site.consumer("--reload", "--processes", "2", env={"PYTHONPATH": path})
    process.wait_for("Process 1 is ready")
    process.wait_for("Process 2 is ready")
    put("hold")
    until(lambda: written(site) == ["old 1"])
    code.write(APP.format("new"))
    until(lambda: written(site) == ["old 1", "new 2"])
    for name in ("say",) * 10:
        put(name)
    until(lambda: written(site)[2:] == ["new"] * 10)
    process.term()
    assert process.wait() == 0


def test_it_makes_the_tables_where_they_are_missing(site, tmp_path):
    env = {"DJQUEUE_SITE_DATABASES": json.dumps({"default": str(tmp_path / "empty.sqlite3")})}
    assert site.consumer(env=env).wait() == 75
    process = site.consumer("--reload", env=env)
    process.wait_for("Made the tables of djqueue in database 'default'")
    process.wait_for("; queues: ")
    process.term()
    assert process.wait() == 0


def test_without_watchfiles_it_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "watchfiles", None)
    with pytest.raises(CommandError, match=r'pip install "django-djqueue\[dev\]"'):
        queue_consumer.run()
