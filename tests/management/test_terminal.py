"""``queue_consumer`` on a terminal: short lines, rows at the start, and Ctrl-C; other commands in a pipe."""

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.app.commands import explode, hold, note
from tests.support.processes import ROOT, until
from tests.support.terminal import Terminal

pytestmark = [pytest.mark.slow, pytest.mark.backends("sqlite")]


@pytest.fixture
def terminal(site):
    opened = []

    def start(*args, columns=80):
        env = {"DJANGO_SETTINGS_MODULE": "tests.site_settings", "PYTHONPATH": str(ROOT), **site.env}
        opened.append(Terminal([sys.executable, "-m", "django", "queue_consumer", *args], env, columns))
        return opened[-1]

    yield start
    for one in opened:
        one.__exit__()


def test_each_event_is_a_line_that_fits_and_ctrl_c_says_what_it_waits_for(site, terminal, release_file):
    note("quick")
    lost = explode("out of paint")
    hold("slow", str(release_file))
    consumer = terminal("-n")
    consumer.wait_for("▶ hold")
    consumer.interrupt()
    consumer.wait_for("Stopping: 1 running, up to 25 s more; Ctrl-C again hands it back")
    release_file.touch()
    assert consumer.wait() == 0
    assert consumer.lines[0].startswith("djqueue 0.")
    assert any(line.startswith("  queues") and "default" in line for line in consumer.lines)
    assert any(line.startswith("Ctrl-C stops it") for line in consumer.lines)
    [quick, slow] = [line for line in consumer.lines if "✓" in line]
    assert quick[9:15] == "✓ note" and slow[9:15] == "✓ hold"
    assert quick.index("ms") == slow.index(" s") - 1 or len(quick) == len(slow)
    at = next(number for number, line in enumerate(consumer.lines) if "✗ explode" in line)
    assert "RuntimeError: out of paint" in consumer.lines[at] and consumer.lines[at].endswith(lost.id[-8:])
    assert consumer.lines[at + 1].startswith("Traceback")
    assert "tests/app/commands.py" in consumer.lines[at + 2], "the first frame is the command's"
    assert "\x1b[31m✗" in consumer.output
    assert all(len(line) <= 80 for line in consumer.lines if line[9:10] in tuple("✓✗▶")), consumer.output


def test_the_form_of_lines_is_chosen(site, terminal):
    note("one")
    consumer = terminal("--drain", "--log-format", "full", "-n")
    assert consumer.wait() == 0
    assert any(" INFO     djqueue-worker-" in line for line in consumer.lines)
    note("two")
    consumer = terminal("--drain", "--no-color", "-n")
    assert consumer.wait() == 0
    assert "✓ note" in consumer.output and "\x1b[" not in consumer.output


@pytest.mark.parametrize("when", ["djqueue 0.", None])
def test_ctrl_c_ends_a_reloading_consumer_without_a_traceback(site, terminal, when):
    consumer = terminal("--reload", "-n")
    if when:
        consumer.wait_for(when)
        consumer.interrupt()
    else:  # while its process starts
        until(lambda: has_started_its_child(consumer.popen.pid))
        consumer.interrupt()
    assert consumer.wait() == 0
    assert "Traceback" not in consumer.output


def test_a_command_whose_output_is_read_no_further_ends_without_a_traceback(site):
    env = {
        "DJANGO_SETTINGS_MODULE": "tests.site_settings",
        "PYTHONPATH": str(ROOT),
        "PATH": os.environ["PATH"],
        **site.env,
    }
    args = [sys.executable, "-m", "django", "queue_stats", "--json", "--watch", "0.1"]
    with subprocess.Popen(args, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as looking:
        assert looking.stdout.readline().startswith(b"[{")
        looking.stdout.close()
        assert (looking.wait(30), looking.stderr.read()) == (141, b"")


def has_started_its_child(pid):
    numbers = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    with suppress(OSError):  # one has ended
        return any("RUN_MAIN=true" in Path(f"/proc/{number}/environ").read_text() for number in numbers)
    return False
