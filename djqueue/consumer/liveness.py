"""What a consumer says of itself while it serves, in a file and to systemd; ``djqueue.health`` reads the file."""

from __future__ import annotations

import json
import logging
import os
import re
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from djqueue import health
from djqueue.consumer.loop import HANGS
from djqueue.consumer.systemd import Notifier
from djqueue.utils import log_safely

logger = logging.getLogger(__name__)

EVERY = 2.0  # seconds between two reports
SILENCE = 10.0  # seconds without a report after which the process does nothing, or is gone


class Reporter:
    """Writes the reports of one process: every two seconds, and when its state changes.

    The thread that watches the others calls it, so a report is also a sign of life of that thread.
    """

    def __init__(self, name: str, path: str | None = None):
        self.notifier: Notifier | None = None
        """Notifies systemd, if it wants that."""
        self._name = name
        self._path = None if path is None else os.path.abspath(path)  # a command may change the working folder
        self._state = ""
        self._next = 0.0
        self._is_written = self._was_alive = True
        self._listed: set[int] | None = None
        """Of a supervisor: the processes in its last report, which write files of their own next to it."""
        self.leaves_file = False
        """Whether the file stays at the end: a supervisor removes it, once it knows that the process is gone."""

    def begin(self) -> None:
        """Report the start. Raises ValueError if the file cannot be written."""
        if self._path is not None and (other := _writer_of(self._path)):
            text = "Process %d writes the liveness file %s too: give each consumer a file of its own"
            log_safely(logger, logging.WARNING, text, other, self._path)
        try:
            self._report(health.STARTING, {})
        except OSError as error:
            raise ValueError(f"alive: the liveness file cannot be written: {error}") from error

    def look(self, state: str, details: Callable[[], health.Report]) -> None:
        """Report if it is time to, or if the state is another one."""
        if self._path is None and self.notifier is None:
            return
        if state == self._state and time.monotonic() < self._next:
            return
        try:
            self._report(state, details())
        except Exception as error:
            if self._is_written:
                shown = None if isinstance(error, OSError) else error
                log_safely(logger, logging.ERROR, "The liveness file cannot be written: %s", error, exc_info=shown)
            self._is_written = False
        else:
            self._is_written = True

    def end(self) -> None:
        """Remove the file, and those of its processes: none is alive."""
        self._state = ""
        if self._path is not None and not self.leaves_file:
            with suppress(OSError):
                if self._listed is not None:
                    self._remove_those_of(())
                os.remove(self._path)

    def _report(self, state: str, details: health.Report) -> None:
        now, was = time.monotonic(), self._state
        self._state, self._next = state, now + self._pause
        limit = HANGS if state == health.STARTING else SILENCE
        about = {"name": self._name, "pid": os.getpid(), "state": state, "moved": now, "limit": limit}
        report: health.Report = {**about, **details}
        found = health.problems(report, self._path or "", now)
        self._tell(found)
        self._notify(report, found, was)
        if self._path is not None:
            _write(self._path, report)
            if "processes" in report:
                before, self._listed = self._listed or set(), {process["pid"] for process in report["processes"]}
                self._remove_those_of(before | self._listed)  # some may just read the report before this one

    @property
    def _pause(self) -> float:
        watchdog = self.notifier.watchdog if self.notifier is not None else None
        return EVERY if watchdog is None else min(EVERY, watchdog / 3)

    def _tell(self, found: Sequence[str]) -> None:
        """Log what does not move, once."""
        if found and self._was_alive:
            log_safely(logger, logging.ERROR, "Stuck: %s", "; ".join(found), extra={"event": "stuck"})
        elif not (found or self._was_alive):
            log_safely(logger, logging.INFO, "Not stuck any more", extra={"event": "unstuck"})
        self._was_alive = not found

    def _notify(self, report: health.Report, found: Sequence[str], was: str) -> None:
        if self.notifier is None:
            return
        first = found[0].partition(":\n")[0] if found else ""
        words = [f"STATUS={f'stuck: {first}' if found else health.summary(report)}"]
        if report["state"] == health.SERVING != was:
            words.append("READY=1")
        if report["state"] == health.STOPPING != was:
            words.append("STOPPING=1")
        if self.notifier.watchdog is not None and not found:
            words.append("WATCHDOG=1")
        self.notifier.send(*words)

    def _remove_those_of(self, pids: Iterable[int]) -> None:
        """Remove the files of processes but for these, and for what another consumer writes."""
        folder, name = os.path.split(self._path or "")
        kept = {f"{name}.{pid}" for pid in pids}
        for file in os.listdir(folder):
            other = os.path.join(folder, file)
            match = re.fullmatch(rf"({re.escape(name)}\.(\d+))(\.new)?", file)
            if match and match[1] not in kept and _pid_in(other) in (None, int(match[2])):
                with suppress(OSError):
                    os.remove(other)


def _write(path: str, report: health.Report) -> None:
    """Write the file in one step: who reads it sees all of a report."""
    aside = f"{path}.{os.getpid()}.new"
    try:
        with suppress(FileNotFoundError):
            os.remove(aside)
        with open(aside, "x", encoding="utf-8") as file:  # never through a link that another user has made in /tmp
            json.dump(report, file)
        os.replace(aside, path)
    except OSError:
        with suppress(OSError):
            os.remove(aside)
        raise


def _pid_in(path: str) -> int | None:
    """The process that has written a liveness file, if it is one."""
    with suppress(OSError, ValueError, KeyError):
        pid: int = health.read(path)["pid"]
        return pid
    return None


def _writer_of(path: str) -> int | None:
    """The other process that has just written the file, if it lives."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        report = health.read(path)
        pid: int = report["pid"]
        if pid != os.getpid() and health.age(report["moved"], time.monotonic()) <= SILENCE:
            os.kill(pid, 0)
            return pid
    return None
