"""Worker processes with their children: started, watched by the ledger while they drain, weighed, and killed."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from tests.benchmarks import ledger
from tests.benchmarks.programs import ROOT
from tests.support.server_process import die_with_parent

PROGRAMS = Path(sys.executable).parent
PATIENCE = 60.0
LOOK = 0.005


class Failed(Exception):
    """The workers did not do what was asked of them."""


class Processes:
    """``count`` processes of one command line, each the leader of a session; their output goes to a file."""

    def __init__(self, words: str, env: dict[str, str], log: Path, count: int = 1):
        program, *arguments = shlex.split(words)
        self._log = log
        with log.open("wb") as file:
            self._leaders = [
                subprocess.Popen(
                    [PROGRAMS / program, *arguments],
                    cwd=ROOT,
                    env=env,
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=file,
                    start_new_session=True,
                    preexec_fn=die_with_parent(),
                )
                for _ in range(count)
            ]

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *exc) -> None:
        self.kill()

    def kill(self) -> None:
        """SIGKILL for all of them at once."""
        for leader in self._leaders:
            with suppress(ProcessLookupError):
                os.killpg(leader.pid, signal.SIGKILL)
        for leader in self._leaders:
            leader.wait()

    def drain(self, reader: ledger.Reader, count: int) -> dict[str, float]:
        """Wait until all messages are run. For each, from the first to the last: rate, processor time, switches."""
        self.wait_until(lambda: reader.any(count), "the first message")
        used, switches = self.cpu(), self.switches()
        self.wait_for_all(reader, count)
        used, switches = self.cpu() - used, self.switches() - switches
        times = reader.run(0, count)
        return {
            "drain": (count - 1) / (times[-1] - times[0]),
            "cpu": used / count * 1e6,
            "switches": switches / count,
        }

    def wait_for_all(self, reader: ledger.Reader, count: int) -> None:
        place = 0

        def all_were_run() -> bool:
            nonlocal place
            place = reader.missing(place)
            return place >= count

        self.wait_until(all_were_run, f"all of {count:,} messages")

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            if any(leader.poll() is not None for leader in self._leaders):
                raise Failed(f"the worker ended: {self._last_words()}")
            if time.monotonic() > deadline:
                raise Failed(f"{what} did not run within {PATIENCE:g} s: {self._last_words()}")
            time.sleep(LOOK)

    def cpu(self) -> float:
        """Seconds of processor that they have used so far."""
        return sum(map(_cpu, self._processes()))

    def switches(self) -> int:
        """How often a thread of theirs gave the processor to another one."""
        paths = (path for process in self._processes() for path in process.glob("task/*/status"))
        lines = (line for path in paths for line in _lines(path))
        return sum(int(line.split()[1]) for line in lines if "ctxt_switches" in line)

    def memory(self) -> float:
        """Megabytes; what processes share is counted once."""
        lines = (line for process in self._processes() for line in _lines(process / "smaps_rollup"))
        return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024

    def _processes(self) -> Iterator[Path]:
        """The folder in /proc of each process of the sessions: field 6 of its ``stat``."""
        sessions = {str(leader.pid) for leader in self._leaders}
        for path in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                if path.read_text().rpartition(")")[2].split()[3] in sessions:
                    yield path.parent

    def _last_words(self) -> str:
        return self._log.read_text(errors="replace")[-500:]


def _cpu(process: Path) -> float:
    """By the clock that the kernel has for each process, see clock_getcpuclockid(3); of one that has ended, 0."""
    with suppress(OSError):
        return time.clock_gettime(~int(process.name) << 3 | 2)
    return 0.0


def _lines(path: Path) -> list[str]:
    """Of a file in /proc; none when its process has ended."""
    with suppress(OSError):
        return path.read_text().splitlines()
    return []
