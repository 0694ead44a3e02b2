"""Runs a message that was lost before in a process of its own: if that dies, it dies alone, and its death is seen."""

from __future__ import annotations

import logging
import os
import pickle
import selectors
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from djqueue.backends.base import BaseQueue
from djqueue.consumer.in_flight import Message, reported
from djqueue.exceptions import InvalidMessage
from djqueue.messages.failures import kind_of, text_of
from djqueue.policies.outcomes import Verdict, not_now
from djqueue.policies.policy import Policy
from djqueue.running.context import Control, open_entry
from djqueue.running.executor import LATE, declared, note_attempts
from djqueue.running.instruments import Lost, instruments
from djqueue.utils import clock

LOOK = 0.05  # seconds between two looks at whether the process lives, or is to end
STILL = 10  # seconds: a process that has been stopped for so long is killed
LEAVING = 5.0  # seconds for the process to end by itself once it has sent its verdict
LENGTH = struct.Struct("!Q")
"""Before each frame that the process sends: its length in bytes."""
READY, BEGINS = "ready", "begins"
"""Frames of the process: it is about to open the message; it is about to run the function, and waits for permission."""
PERMISSION = struct.Struct("!d")
"""Permits to run the function, until that moment of :func:`djqueue.utils.clock`. Before it nothing has started."""
SLOT = 1.0
"""Seconds by which a throttle counts a message later than now, again and again until it begins."""
STOPPED = {"T": "stopped by a signal", "t": "stopped by a debugger"}
"""The states of a process that stands still until it is continued."""


class ChildDied(Exception):
    """The process ended before it sent its verdict; the text describes how."""


class SlotLost(Exception):
    """The throttle counts the message no more, so that it must not begin."""


@dataclass(frozen=True, slots=True)
class ChildInput:
    """What the process gets: a lease without its token, which stays with the consumer that extends and settles it."""

    alias: str
    lease: Any
    patience: int
    thread: str
    level: int
    """From which on its records are logged."""
    owner: str
    """The name of the consumer."""


@dataclass(frozen=True, slots=True)
class ChildOutput:
    """What became of the message. The exception and its traceback are separate, as a traceback is not pickled."""

    verdict: Verdict
    exception: BaseException | None = None
    traceback: str = ""


class RemoteTraceback(Exception):
    """Where an exception was raised, in the process that raised it."""

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}"""'


def is_reachable(queue: BaseQueue) -> bool:
    """Whether another process can reach a queue, so that its messages can run there."""
    return "durable" in queue.features


def environment_now() -> dict[str, str]:
    """The environment for such processes: that of this one, as it is before commands change it."""
    paths = [path for path in sys.path if isinstance(path, str) and path]
    with suppress(OSError):  # there may be no working folder any more
        paths = [os.path.abspath(path) for path in paths]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def run_isolated(environment: Mapping[str, str], message: Message, control: Control) -> Verdict | None:
    """Run it in a separate process if it must be run so, and another process can reach its queue; else None."""
    if not is_reachable(message.queue):
        return None
    try:
        policy = declared(message.queue, message.lease)
    except Exception:
        return None
    if not policy.suspects(message.lease.entry) or policy.reject(message.lease, control.patience):
        return None
    try:
        with Child(environment, message, control, policy) as child:
            return child.verdict()
    except SlotLost:
        return reported(message, LATE)
    except Exception as error:  # no process can be had, or the store does not answer
        return _not_begun(message, f"could not be run: {kind_of(error)}: {text_of(error)}")


def _not_begun(message: Message, reason: str) -> Verdict:
    return reported(message, not_now(message.lease, reason))


class Child:
    """The process, from its start to its end. It dies when this one does, and ends when its message is given up."""

    def __init__(self, environment: Mapping[str, str], message: Message, control: Control, policy: Policy):
        self._message, self._control, self._policy = message, control, policy
        self._stop_sent = False
        self._still, self._checked = 0, clock()
        """For about how many seconds it has been stopped, and when that was checked (our clock)."""
        if control.throttled:
            self._keep_slot()
        self._began: float | None = None  # epoch seconds
        out, into = os.pipe()
        try:
            self._process = _start(into, environment)
        except BaseException:
            os.close(out)
            raise
        finally:
            os.close(into)
        assert self._process.stdin is not None  # it is a pipe
        self._input = self._process.stdin
        self._frames: IO[bytes] = os.fdopen(out, "rb", 0)
        self._selector = selectors.PollSelector()  # takes any descriptor, and needs none for itself
        self._selector.register(self._frames, selectors.EVENT_READ)

    def __enter__(self) -> Child:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_) -> None:
        """Settle its verdict while it ends: until then the start would be lost if the consumer died."""
        if kind is not None:
            self._process.kill()
        try:
            threading.Thread(target=self._end, name="djqueue-parting", daemon=True).start()
        except RuntimeError:  # no more threads can be had
            self._end()

    def _end(self) -> None:
        try:
            self._process.wait(LEAVING)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        with suppress(OSError):
            self._input.close()
        self._selector.close()
        self._frames.close()

    def verdict(self) -> Verdict:
        """The verdict on the message: the answer of the process, or what its death means."""
        message, is_ready = self._message, False
        try:
            lease = replace(message.lease, token=None)
            thread, level = threading.current_thread().name, logging.getLogger("djqueue").getEffectiveLevel()
            asked = ChildInput(message.queue.alias, lease, self._control.patience, thread, level, self._control.owner)
            self._send(pickle.dumps(asked))
            self._next()
            is_ready = True
            answer = self._next()
            if answer == BEGINS:
                note_attempts(message.queue, message.lease.entry, self._policy, self._control)
                self._control.begin(self._policy)
                if self._control.throttled:
                    self._keep_slot()
                self._began = time.time()
                self._send(PERMISSION.pack(self._control.begins_by))
                answer = self._next()
            if answer.exception is not None:
                answer.exception.__cause__ = RemoteTraceback(answer.traceback)
            return answer.verdict._replace(exception=answer.exception)
        except ChildDied as death:
            verdict = self._verdict_on_death(str(death), is_ready)
            if self._began is not None and instruments.registered:
                self._log_lost(self._began, str(death), verdict)
            return verdict

    def _verdict_on_death(self, how: str, is_ready: bool) -> Verdict:
        message = self._message
        if message.final is not None:
            return Verdict(message.final.verdict.outcome, message.final.verdict.reason)  # the first verdict counts
        if not is_ready:
            return _not_begun(message, f"its process could not begin: {how}")
        verdict = self._policy.judge_loss(message.lease.entry, how)
        return reported(message, verdict._replace(keep=self._policy.keeps_result, attempts=self._control.attempts))

    def _log_lost(self, began: float, how: str, verdict: Verdict) -> None:
        queue, entry = self._message.queue, self._message.lease.entry
        with suppress(InvalidMessage):  # it was valid when it began: the settings may have changed
            envelope = open_entry(queue, entry)
            instruments.lost(Lost(queue.alias, entry, envelope, self._control.owner, began, how, verdict))

    def _send(self, text: bytes) -> None:
        try:
            self._input.write(LENGTH.pack(len(text)) + text)
            self._input.flush()
        except OSError:
            raise ChildDied(self._death()) from None

    def _next(self) -> Any:
        """The next frame about the message; log records before it are logged here. Raises ChildDied."""
        while True:
            [size] = LENGTH.unpack(self._read(LENGTH.size))
            try:
                frame = pickle.loads(self._read(size))  # from our own child, and no store
            except ChildDied:
                raise
            except Exception as error:
                raise ChildDied(f"what it sent could not be read: {error}") from error
            if not isinstance(frame, logging.LogRecord):
                return frame
            target = logging.getLogger(frame.name)
            if target.isEnabledFor(frame.levelno):
                with suppress(BaseException):
                    target.handle(frame)

    def _read(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            self._look_after_it()
            if self._selector.select(LOOK):
                if not (more := self._frames.read(size - len(found))):
                    raise ChildDied(self._death())
                found += more
            elif self._process.poll() is not None and not self._selector.select(0):
                raise ChildDied(self._death())
        return found

    def _look_after_it(self) -> None:
        """Notify the process of a stop; kill it once there is another verdict on its message."""
        if self._control.given_up:
            self._process.kill()
        elif self._control.stopping and not self._stop_sent:
            self._stop_sent = True
            self._process.send_signal(signal.SIGTERM)
        if self._began is None and self._control.late:
            self._keep_slot()
        if clock() - self._checked >= 1.0:
            self._end_if_stopped()

    def _end_if_stopped(self) -> None:
        """Kill it if it stands still: it would hold its message and its worker for ever."""
        self._checked = clock()
        state = state_of(self._process.pid)
        self._still = self._still + 1 if state in STOPPED else 0
        if self._still >= STILL:
            self._process.kill()
            raise ChildDied(f"SIGKILL, as it had been {STOPPED[state]} for {STILL} s")

    def _keep_slot(self) -> None:
        """Have the throttle count the message from a later moment, as long as it has not begun. Raises SlotLost."""
        if not self._control.defer([self._control], SLOT):
            raise SlotLost

    def _death(self) -> str:
        """How the process ended; waits for its end, and kills it if that does not come."""
        try:
            code = self._process.wait(LEAVING)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return "without a word"
        return how_it_ended(code)


def state_of(pid: int) -> str:
    """The state of a process as ``ps`` shows it, in one letter; empty if that is not known."""
    with suppress(OSError, IndexError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return ""


def how_it_ended(code: int) -> str:
    """What the exit code of a process says: its number, or the name of the signal."""
    if code >= 0:
        return f"exit code {code}"
    with suppress(ValueError):
        return signal.Signals(-code).name
    return f"signal {-code}"


def _start(into: int, environment: Mapping[str, str]) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "djqueue.consumer.child", str(into), str(os.getpid())],
        stdin=subprocess.PIPE,
        pass_fds=[into],
        env=environment,
        start_new_session=True,  # it gets no Ctrl-C, and its signals to its own group reach no other process
    )
