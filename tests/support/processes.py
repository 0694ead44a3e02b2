"""Real processes: `queue_consumer` and other management commands over the queues and databases of a test."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.support import fork_server
from tests.support.backends import database_names
from tests.support.server_process import die_with_parent, kill_group, start_of

ROOT = fork_server.ROOT
FORK_SERVER = fork_server.ForkServer()


class Process:
    """A child with its output, line by line as it comes. Leave the `with` block and it is dead.

    A variable of the environment that is None is left out. Start it from the main thread: the kernel kills it when the
    thread that started it ends.
    """

    def __init__(self, command, env=None, cwd=ROOT):
        self.lines: list[str] = []
        self._news = threading.Condition()
        self._ended = False
        whole = {**os.environ, "PYTHONUNBUFFERED": "1", **(env or {})}
        env = {name: value for name, value in whole.items() if value is not None}
        self.popen, self._output = _start([*map(str, command)], env, str(cwd))
        self._start = start_of(self.pid)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self.popen.pid

    @property
    def output(self) -> str:
        return "\n".join(self.lines)

    def wait_for(self, text: str, timeout: float = 30.0) -> str:
        """The first line that contains `text`, as soon as it is there.

        AssertionError with all that was said when the process ends without it or `timeout` seconds pass."""
        with self._news:
            self._news.wait_for(lambda: self._ended or self._find(text), timeout)
            line = self._find(text)
        assert line is not None, f"no {text!r} in the output:\n{self.output}"
        return line

    def send(self, signum: int):
        """Send a signal to the process alone, not to its children."""
        self.popen.send_signal(signum)

    def term(self):
        self.send(signal.SIGTERM)

    def interrupt(self):
        self.send(signal.SIGINT)

    def kill9(self):
        """SIGKILL, and wait until it is gone."""
        self.popen.kill()
        self.wait()

    def wait(self, timeout: float = 30.0) -> int:
        """The exit code, once all output is in. AssertionError with the output after `timeout` seconds."""
        try:
            code = self.popen.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {timeout} s:\n{self.output}") from None
        self._reader.join(timeout)
        return code

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        """Kill the whole group, so that nothing it started lives on."""
        kill_group(self.pid, self._start)
        self.wait()

    def _find(self, text):
        return next((line for line in self.lines if text in line), None)

    def _read(self):
        with self._output as stream:
            for line in stream:
                self._add(line.rstrip("\n"))
        with self._news:
            self._ended = True
            self._news.notify_all()

    def _add(self, line):
        with self._news:
            self.lines.append(line)
            self._news.notify_all()


def _start(command: list[str], env: dict[str, str], cwd: str):
    """The process, and what it writes. Python is forked by a server that has imported what consumers need."""
    ours, theirs = os.pipe()
    if fork_server.can_start(command, env):
        process = FORK_SERVER.start(command[1:], env, cwd, theirs)
    else:
        streams = {"stdin": subprocess.DEVNULL, "stdout": theirs, "stderr": theirs}
        own = {"start_new_session": True, "preexec_fn": die_with_parent()}
        process = subprocess.Popen(command, cwd=cwd, env=env, **streams, **own)
    os.close(theirs)
    return process, os.fdopen(ours, errors="replace")


def django_admin(*args: str, env=None) -> Process:
    """Start `django-admin ARGS` with the settings of `tests.site_settings`; `env` is added to the environment."""
    base = {"DJANGO_SETTINGS_MODULE": "tests.site_settings", "PYTHONPATH": str(ROOT)}
    return Process([sys.executable, "-m", "django", *args], {**base, **(env or {})})


def run_consumer(*args: str, env=None) -> Process:
    """Start `django-admin queue_consumer ARGS` as a real process."""
    return django_admin("queue_consumer", *args, env=env)


@dataclass
class Site:
    """The queues of one test and the databases behind them, for processes. What it started dies in `close`."""

    queues: dict
    aliases: tuple[str, ...] = ("default",)
    ledger: Path | None = None
    settings: dict = field(default_factory=dict)
    processes: list[Process] = field(default_factory=list)

    @property
    def env(self) -> dict[str, str]:
        ledger = {"DJQUEUE_LEDGER": str(self.ledger)} if self.ledger else {}
        return ledger | {
            "DJQUEUE_SITE_DATABASES": json.dumps(database_names(self.aliases)),
            "DJQUEUE_SITE_SETTINGS": json.dumps({"QUEUES": self.queues, **self.settings}),
        }

    def consumer(self, *args: str, env=None) -> Process:
        """Start one more consumer."""
        return self.keep(run_consumer(*args, env={**self.env, **(env or {})}))

    def start(self, *args: str, env=None) -> Process:
        """Start any management command."""
        return self.keep(django_admin(*args, env={**self.env, **(env or {})}))

    def run(self, *args: str, env=None, timeout: float = 60.0) -> str:
        """Run a management command to its end and return its output. AssertionError unless it exits with 0."""
        process = self.start(*args, env=env)
        code = process.wait(timeout)
        assert code == 0, f"{' '.join(map(str, args))} ended with {code}:\n{process.output}"
        return process.output

    def close(self):
        """Kill all, and print what they said: pytest shows it if the test has failed."""
        for process in self.processes:
            process.__exit__()
            print(f"--- process {process.pid} ({process.popen.poll()})\n{process.output[-5000:]}")
        self.processes.clear()

    def keep(self, process: Process) -> Process:
        """Have a process die with the others."""
        self.processes.append(process)
        return process


def until(condition, timeout: float = 30.0, pause: float = 0.01):
    """The first true value of `condition()`, asked again and again: for what another process or a server does.

    AssertionError after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while not (value := condition()):
        assert time.monotonic() < deadline, f"still not so after {timeout} s"
        time.sleep(pause)
    return value
