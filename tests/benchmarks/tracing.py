"""Follows one message through djqueue in this process, and prints what it passed as JSON: see ``path.py``."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextvars import Context
from dataclasses import dataclass, field
from pathlib import Path
from re import findall
from types import CodeType, FrameType

from djqueue.testing.patience import eventually
from tests.benchmarks.measure import set_up

PHASES = ("sending", "claiming", "running", "settling")
VERBS = {
    "claim": "claiming",
    "begin": "running",
    "complete": "settling",
    "exchange": "settling",
    "release": "settling",
    "fail": "settling",
}
"""The verbs of a queue that are on the way of a message, and the phase that each belongs to."""
CASES = {"plain": 1, "retried": 2, "throttled": 1}
"""The commands that are followed, and how often each is started for one message."""
OFTEN = 8
"""How often a message is sent: the last one is followed."""
COMMANDS = str(Path(__file__).with_name("commands.py"))


@dataclass
class Walk:
    """What one thread has done, in order."""

    phase: str
    calls: list[tuple[str, str, str]] = field(default_factory=list)
    """The file and the name of each function, and the file of the function that called it."""
    called: int = 0
    """How many functions of Python were called, those of Django and of the driver too."""
    statements: list[str] = field(default_factory=list)
    scripts: list[object] = field(default_factory=list)
    settles: bool = False


class Recorder:
    """A profile function for all threads: keeps what each thread did for the message.

    The main thread and the worker are kept as a whole. A thread that calls ``tick`` or ``turn`` does other things too:
    of these those are kept in which it called a verb that found something.
    """

    def __init__(self) -> None:
        import djqueue

        self.package = str(Path(djqueue.__file__).parent) + os.sep
        self.kept: list[Walk] = []
        self.chain: list[str] = []
        """The functions between the loop of the worker and the user's function, the loop included."""
        self._files: dict[CodeType, str] = {}
        self._threads = threading.local()
        self._workers: list[Walk] = []

    def start(self) -> None:
        """Forget what was so far."""
        self.kept.clear()
        for walk in self._workers:
            walk.calls.clear()
            walk.called = 0
            walk.statements.clear()
            walk.scripts.clear()

    def walks(self) -> Iterator[Walk]:
        """All that was done for the message."""
        yield from self.kept
        yield from self._workers

    def sends(self, phase: str) -> None:
        """The calling thread is kept as a whole from now on."""
        self._threads.walk = walk = Walk(phase)
        self._threads.tick = None
        self.kept.append(walk)

    def __call__(self, frame: FrameType, event: str, arg: object) -> None:
        if frame.f_code.co_qualname == "Pump._wait" and event in ("call", "return"):
            self._threads.waits = event == "call"
        if getattr(self._threads, "waits", False):  # what a thread does while it waits is not on the way
            return
        if event == "call":
            self._enter(frame)
        elif event == "return":
            self._leave(frame, arg)
        elif event == "c_call" and isinstance(getattr(arg, "__self__", None), Context):
            self._threads.context = frame  # it has no frame of its own

    def _enter(self, frame: FrameType) -> None:
        code = frame.f_code
        file = self._file_of(code)
        self._walk().called += 1
        if not file:
            self._look_at_driver(frame, code)
            return
        walk = self._walk()
        if code.co_name in ("tick", "turn") and file.startswith("consumer/"):
            self._threads.tick, self._threads.walk = frame, Walk("")
            walk = self._threads.walk
            walk.calls += [(self._file_of(one.f_code), one.f_code.co_qualname, "") for one in _stack(frame.f_back)]
            walk.calls = [call for call in walk.calls if call[0]]
        walk.calls.append((file, code.co_qualname, self._caller(frame)))
        if file == os.path.join("backends", "redis", "connection.py") and code.co_qualname == "RedisLink.run":
            walk.scripts.append(frame.f_locals["script"])
        if file.endswith("sql/prepared.py") and code.co_name == "_execute":
            walk.statements.append(frame.f_locals["statement"].sql.decode())
        if file == os.path.join("backends", "redis", "connection.py") and code.co_qualname == "RedisLink.execute_many":
            walk.statements.append(", ".join(command[0].decode() for command in frame.f_locals["commands"]))
        if code.co_name in VERBS and file.startswith("backends/") and code.co_name != "claim":
            given = frame.f_locals.get(code.co_varnames[1]) if code.co_argcount > 1 else None
            if given:
                walk.phase = walk.phase or VERBS[code.co_name]
                walk.settles = walk.settles or VERBS[code.co_name] == "settling"

    def _leave(self, frame: FrameType, arg: object) -> None:
        walk = getattr(self._threads, "walk", None)
        if walk is None:
            return
        claimed = arg[1] if frame.f_code.co_name == "exchange" and isinstance(arg, tuple) and len(arg) == 2 else arg
        if frame.f_code.co_name in ("claim", "exchange") and claimed and type(claimed).__name__ == "Claimed":
            walk.phase = walk.phase or VERBS["claim"]  # a turn that settles too is one that settles
        if frame is getattr(self._threads, "tick", None):
            if walk.phase:
                self.kept.append(walk)
            self._threads.walk = Walk("")  # between two ticks a thread waits
            self._threads.tick = None

    def _walk(self) -> Walk:
        walk = getattr(self._threads, "walk", None)
        if walk is None:
            self._threads.walk = walk = Walk("")
            if type(threading.current_thread()).__name__ == "Worker":
                walk.phase = "running"
                self._workers.append(walk)
        return walk

    def _look_at_driver(self, frame: FrameType, code: CodeType) -> None:
        file = code.co_filename
        if file.endswith("django/db/backends/utils.py") and code.co_qualname.startswith("CursorWrapper.execute"):
            if not str(frame.f_locals["sql"]).startswith("BEGIN"):  # nor is it counted where it has no call of its own
                self._walk().statements.append(str(frame.f_locals["sql"]))
        elif code.co_name in CASES and file == COMMANDS:
            self.chain = [*self._between(frame)]

    def _between(self, frame: FrameType) -> Iterator[str]:
        """Outermost first. Functions of djqueue, and Context.run, which is none and a call all the same."""
        home = sys.modules[type(threading.current_thread()).__module__].__file__
        frames = [one for one in _stack(frame.f_back) if self._file_of(one.f_code)]
        loop = max(number for number, one in enumerate(frames) if one.f_code.co_filename == home)
        for one in reversed(frames[: loop + 1]):
            yield one.f_code.co_qualname
            if one is getattr(self._threads, "context", None):
                yield "Context.run"

    def _file_of(self, code: CodeType) -> str:
        """Its path within djqueue; nothing if it is not of djqueue, or only a module that is imported."""
        if code not in self._files:
            inside = code.co_filename.startswith(self.package) and code.co_name != "<module>"
            self._files[code] = code.co_filename.removeprefix(self.package) if inside else ""
        return self._files[code]

    def _caller(self, frame: FrameType) -> str:
        return next((file for one in _stack(frame.f_back) if (file := self._file_of(one.f_code))), "")


def _stack(frame: FrameType | None) -> Iterator[FrameType]:
    """Innermost first."""
    while frame is not None:
        yield frame
        frame = frame.f_back


# ---- What it found


def lua_files(recorder: Recorder) -> set[str]:
    """The files of the scripts that were called, and of the parts that stand before them."""
    texts = {path.stem: path.read_text() for path in Path(recorder.package).rglob("*.lua")}
    found, left = set(), {script.name for walk in recorder.walks() for script in walk.scripts}
    left |= {"common"} if left else set()
    while left:
        found |= left
        left = {part for name in left for line in findall(r"(?m)^-- with: (.*)", texts[name]) for part in line.split()}
    return {f"{name}.lua" for name in found}


def figures(recorder: Recorder) -> dict:
    walks = [*recorder.walks()]
    calls = [call for walk in walks for call in walk.calls]
    asked = dict.fromkeys(PHASES, 0)
    for walk in walks:
        asked[walk.phase] += len(walk.statements) + len(walk.scripts)
    return {
        "files": sorted({file for file, _, _ in calls}),
        "lua": sorted(lua_files(recorder)),
        "functions": len({call[:2] for call in calls}),
        "calls": len(calls),
        "moves": sum(bool(caller) and file != caller for file, _, caller in calls),
        "asked": [asked[phase] for phase in PHASES],
        "statements": [statement for walk in walks for statement in walk.statements],
        "frames": recorder.chain,
        "called": sum(walk.called for walk in walks if walk.phase == "sending"),
        "phases": {
            phase: sorted({file for walk in walks if walk.phase == phase for file, *_ in walk.calls})
            for phase in PHASES
        },
    }


def trace(command, recorder: Recorder, name: str, starts: int) -> None:
    """Send a message while a consumer waits, until the store knows that it is done."""
    recorder.start()
    recorder.sends("sending")
    sys.setprofile(recorder)
    command(name, 42)
    sys.setprofile(None)
    eventually(lambda: sum(walk.settles for walk in recorder.kept) == starts)
    time.sleep(0.2)  # the worker is done with it, and waits for the next one


def main() -> None:
    set_up().flush()
    from djqueue import Consumer
    from tests.benchmarks import commands

    recorder, found = Recorder(), {}
    consumer = Consumer(threads=1, periodic=False)
    threading.setprofile(recorder)
    thread = threading.Thread(target=consumer.run, daemon=True)
    thread.start()
    time.sleep(0.5)
    for case, starts in CASES.items():
        command = getattr(commands, case)
        for number in range(OFTEN):  # what is opened, made, known or prepared once for all is so then
            trace(command, recorder, f"{number}", starts)
        found[case] = figures(recorder)
    consumer.stop()
    thread.join()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
