"""A process that has imported what consumers import, and forks itself for each program in Python that a test starts.

What is forked is a process like any other, with its own session, environment and streams, and it ends as Python ends;
it has only been spared the imports, which are most of its start. The server and all it forked die with the test.
"""

import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from tests.support.server_process import die_with_parent

IMPORTED = (
    "django.contrib.messages",
    "django.core.management.commands.check",
    "django.core.management.commands.migrate",
    "django.db.backends.postgresql.base",
    "django.db.backends.sqlite3.base",
    "django.middleware.csrf",
    "django.template.response",
    "django.views.debug",
    "django.views.generic",
    "djqueue.management.commands.queue_consumer",
    "pymysql",
    "redis",
    "tests.support.servers",
)
"""Nothing that reads settings: each process has its own."""
MOST = 1 << 17
"""Bytes of a request: the arguments and the environment."""
ROOT = Path(__file__).resolve().parents[2]
INTERPRETER = {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
"""What the interpreter reads in the environment of the server, and so for all that it forks."""


class ForkServer:
    """The server, as the process sees it that asks for others. It is started with the first request."""

    def __init__(self):
        self.seconds = 0.0
        """Of the processor, for all that has ended."""
        self._connection: socket.socket | None = None
        self._process: subprocess.Popen | None = None

    def start(self, arguments: list[str], env: dict[str, str], cwd: str, output: int) -> "Forked":
        """Start `python ARGUMENTS` in this environment and folder; it writes to the descriptor `output`."""
        ours, theirs = os.pipe()
        request = json.dumps([arguments, env, cwd]).encode()
        socket.send_fds(self._connected(), [request], [output, theirs])
        os.close(theirs)
        return Forked(ours, self)

    def _connected(self) -> socket.socket:
        if self._connection is None:
            self._connection, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno())],
                cwd=ROOT,
                env={**os.environ, **INTERPRETER},
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                preexec_fn=die_with_parent(),
            )
            theirs.close()
        return self._connection


class Forked:
    """A process that was forked, with what Popen has of one."""

    def __init__(self, descriptor: int, server: ForkServer):
        self._reports, self._server = os.fdopen(descriptor), server
        self.pid: int = json.loads(self._reports.readline())
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None and select.select([self._reports], [], [], 0)[0]:
            self._end()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, minus the signal where that has ended it. TimeoutExpired after `timeout` seconds."""
        if self.returncode is None:
            if not select.select([self._reports], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
            self._end()
        return self.returncode

    def send_signal(self, signum: int):
        if self.poll() is None:
            os.kill(self.pid, signum)

    def kill(self):
        self.send_signal(signal.SIGKILL)

    def _end(self):
        with self._reports:
            status, seconds = json.loads(self._reports.readline())
        self.returncode = os.waitstatus_to_exitcode(status)
        self._server.seconds += seconds


class Forks:
    """The requests that the server answers, and the processes that it has to report about."""

    def __init__(self, connection: socket.socket):
        self._connection = connection
        self._reports: dict[int, int] = {}
        self._ended, self._waker = socket.socketpair()
        self._waker.setblocking(False)

    def serve(self) -> list[str] | None:
        """Fork for each request. In a process that was forked: its arguments; None when no more requests can come."""
        signal.set_wakeup_fd(self._waker.fileno())
        signal.signal(signal.SIGCHLD, lambda *_: None)
        while True:
            ready, *_ = select.select([self._connection, self._ended], [], [])
            if self._ended in ready:
                self._ended.recv(MOST)
                self._report()
            if self._connection in ready:
                request, descriptors, *_ = socket.recv_fds(self._connection, MOST, 2)
                if not request:
                    return None
                if (arguments := self._fork(json.loads(request), *descriptors)) is not None:
                    return arguments

    def _fork(self, request: list, output: int, report: int) -> list[str] | None:
        if pid := os.fork():
            os.close(output)
            self._reports[pid] = report
            return None
        arguments, env, cwd = request
        self._close()
        begin(env, cwd, output)
        os.write(report, f"{os.getpid()}\n".encode())  # now, as what it has begun with is its own
        os.close(report)
        return arguments

    def _report(self):
        """How those have ended that have, with the seconds of the processor that they and their children used."""
        for pid, report in list(self._reports.items()):
            ended, status, usage = os.wait4(pid, os.WNOHANG)
            if ended:
                os.write(report, f"{json.dumps([status, usage.ru_utime + usage.ru_stime])}\n".encode())
                os.close(self._reports.pop(pid))

    def _close(self):
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for one in (self._connection, self._ended, self._waker):
            one.close()
        for descriptor in self._reports.values():
            os.close(descriptor)


def begin(env: dict[str, str], cwd: str, output: int):
    """Be in a session, an environment, a folder and with streams of one's own, as a process is that was started."""
    os.setsid()
    die_with_parent()()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for stream in (1, 2):
        os.dup2(output, stream)
    os.close(output)
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)


def run(first: str, *others: str):
    """What Python does with these arguments."""
    sys.orig_argv = [sys.executable, first, *others]
    sys.argv = [first, *others] if first != "-m" else [*others]
    if first == "-m":
        sys.path[0] = os.getcwd()
        runpy.run_module(others[0], run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = os.path.dirname(os.path.abspath(first))
        runpy.run_path(first, run_name="__main__")


def can_start(command: list[str], env: dict[str, str]) -> bool:
    """Whether it is a module or a file for this Python, which reads in that environment what the server has read."""
    program, first = (*command, "")[:2]
    mine = {**os.environ, **INTERPRETER}
    is_python = program == sys.executable and (first == "-m" or first.endswith(".py"))
    return is_python and all(env.get(name) == mine.get(name) for name in {*env, *mine} if name.startswith("PYTHON"))


if __name__ == "__main__":
    for name in IMPORTED:
        if find_spec(name.partition(".")[0]):
            importlib.import_module(name)
    gc.freeze()
    todo = Forks(socket.socket(fileno=int(sys.argv[1]))).serve()
    if todo is not None:
        run(*todo)
