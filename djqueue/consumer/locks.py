"""Files whose locks prove that a consumer of this host lives: the kernel frees them when its process ends in any way.

A consumer holds a file for each queue that it serves. Who can lock such a file has the proof that the consumer is dead,
and may give back what it held. Without a proof its leases run out.
"""

from __future__ import annotations

import logging
import os
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path
from tempfile import gettempdir
from typing import NamedTuple
from urllib.parse import quote, unquote

from django.utils.crypto import salted_hmac

from djqueue import conf
from djqueue.backends.base import BaseQueue
from djqueue.utils import log_safely

logger = logging.getLogger(__name__)

BOOT_ID, PID_NAMESPACE = "/proc/sys/kernel/random/boot_id", "/proc/self/ns/pid"
UNSETTLED = 1_000_000_000
"""Nanoseconds in which a folder may change again without another time of its change."""
NEW = "~"
"""The end of the name of a file that is not locked yet. The name of a consumer ends with a digit."""

_descriptors: dict[Path, int] = {}
"""The locks that this process holds, its own and for a moment those of the dead."""


def _close_in_child() -> None:
    """A forked child shares its parent's locks, and may outlive it."""
    for descriptor in _descriptors.values():
        with suppress(OSError):  # a command may have closed it
            os.close(descriptor)
    _descriptors.clear()


os.register_at_fork(after_in_child=_close_in_child)


def folder() -> Path | None:
    """Where the locks are, made if it is not there; None where nothing can be proved, as there is no /proc.

    Hosts and containers may share it, so its name has the boot and the namespace of process ids. Raises OSError if it
    cannot be made, or if others than this user can write or read it.
    """
    try:
        name = f"{Path(BOOT_ID).read_text().strip()}.{os.readlink(PID_NAMESPACE).strip('pid:[]')}"
    except OSError:
        return None
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    root = conf.get("QUEUE_LOCK_DIR") or (runtime if os.access(runtime, os.W_OK) else gettempdir())
    private = Path(root) / f"djqueue-{os.geteuid()}"
    private.mkdir(0o700, exist_ok=True)
    found = private.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise PermissionError(f"{private} is no folder that only this user can read and write")
    inner = private / name
    inner.mkdir(0o700, exist_ok=True)
    return inner


def _mark_of(queue: BaseQueue) -> str:
    """What the names of the files of a queue begin with: other sites of this user have queues of the same name."""
    return salted_hmac(__name__, f"{queue.alias}\n{queue.name}\n{queue.describe()}").hexdigest()[:16]


class ConsumerLocks:
    """The locks of one consumer, from the start of its run to the end."""

    def __init__(self, name: str, queues: Sequence[BaseQueue]):
        self._name, self._queues = name, queues
        self._pid = os.getpid()
        self._folder: Path | None = None
        self._paths: list[Path] = []
        self._others: list[LockFile] = []
        """The files of other consumers, when the folder was listed last."""
        self._listed = 0
        """What the folder then said of when it changed, ns."""

    def acquire(self) -> None:
        """Lock a file for each queue. If that cannot be done it is logged, and the consumer serves all the same."""
        if os.getpid() != self._pid:  # it was made before a fork: others may serve under its name
            return
        try:
            if (where := folder()) is None:
                return
            self._folder = where
            for queue in self._queues:
                path = where / f"{_mark_of(queue)}.{quote(self._name, safe='')}"
                if path not in _descriptors:  # a run before this one may have kept it
                    _descriptors[path] = _new_locked(path)
                    self._paths.append(path)
        except (OSError, ValueError) as error:  # ValueError: its name cannot be that of a file
            text = "Without a lock (%s) what this consumer runs when it is killed waits until its leases run out"
            log_safely(logger, logging.WARNING, text, error)

    def another_is_dead(self) -> bool:
        """Whether another consumer of these queues is dead. Costs a call of the system if no other has a file."""
        if self._folder is None:
            return False
        try:
            changed = os.stat(self._folder).st_mtime_ns
        except OSError:
            return False
        if changed != self._listed or time.time_ns() - changed < UNSETTLED:
            self._listed = changed
            self._others = [lock for lock in lock_files(self._queues) if lock.path not in self._paths]
        return any(map(_is_left, self._others))

    def release(self) -> None:
        """Let them go, and delete their files: nothing is left to be given back."""
        for path in self._paths:
            if (descriptor := _descriptors.pop(path, None)) is not None:  # not in a forked child
                with suppress(OSError):
                    path.unlink()
                os.close(descriptor)
        self._paths.clear()


def _new_locked(path: Path) -> int:
    """The descriptor of a new file, which is locked before others can find it."""
    new = path.with_name(f"{path.name}{NEW}")
    descriptor = os.open(new, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
    try:
        flock(descriptor, LOCK_EX | LOCK_NB)
        new.rename(path)
    except BaseException:
        os.close(descriptor)
        with suppress(OSError):
            new.unlink()
        raise
    return descriptor


def _is_left(lock: LockFile) -> bool:
    with lock.held_if_free() as is_dead:
        return is_dead


class LockFile(NamedTuple):
    """The file of a consumer that serves, or has served, a queue."""

    path: Path
    queue: BaseQueue
    consumer: str

    @contextmanager
    def held_if_free(self) -> Iterator[bool]:
        """Whether the consumer is dead: no process holds the lock. Within, this one does, so no other does the same."""
        try:
            descriptor = os.open(self.path, os.O_RDWR)
        except OSError:  # it is gone, or this process is short of descriptors
            yield False
            return
        if _descriptors.setdefault(self.path, descriptor) != descriptor:  # this process holds it
            os.close(descriptor)
            yield False
            return
        try:
            yield _is_free(descriptor)
        finally:
            del _descriptors[self.path]
            os.close(descriptor)

    def remove(self) -> None:
        """Forget the consumer."""
        self.path.unlink(missing_ok=True)


def _is_free(descriptor: int) -> bool:
    """Whether the lock of a file can be had, and the file is still there."""
    try:
        flock(descriptor, LOCK_EX | LOCK_NB)
    except OSError:
        return False
    return os.fstat(descriptor).st_nlink > 0


def lock_files(queues: Sequence[BaseQueue]) -> list[LockFile]:
    """The files of all consumers of these queues on this host; none if they cannot be read."""
    by_mark = {_mark_of(queue): queue for queue in queues}
    try:
        if (where := folder()) is None:
            return []
        names = [name for name in os.listdir(where) if not name.endswith(NEW)]
    except OSError:
        return []
    found = [(name, *name.split(".", 1)) for name in names if name.partition(".")[0] in by_mark]
    return [LockFile(where / path, by_mark[mark], unquote(name)) for path, mark, name in found]
