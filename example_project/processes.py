"""Child processes that do not outlive the one that started them."""

import ctypes
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

MANAGE = Path(__file__).resolve().parent / "manage.py"
PR_SET_PDEATHSIG = 1
STOP_WITHIN = 15.0


@contextmanager
def running(*arguments: str, log: Path | None = None):
    """``manage.py ARGUMENTS`` for the length of a with block; then it is asked to stop, and made to if it does not.

    A group of its own, so that Ctrl-C reaches it once and by way of us. Call this in the main thread."""
    with open(log, "ab") if log else _nothing() as output:
        child = subprocess.Popen(
            [sys.executable, "-u", str(MANAGE), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            preexec_fn=_die_with_us(),
        )
    try:
        yield child
    finally:
        _stop(child)


def manage(*arguments: str) -> None:
    """Run ``manage.py ARGUMENTS`` to its end. Raises CalledProcessError unless that was a good one."""
    with running(*arguments) as child:
        if child.wait():
            raise subprocess.CalledProcessError(child.returncode, arguments)


@contextmanager
def _nothing():
    yield None


def _stop(child: subprocess.Popen) -> None:
    child.terminate()
    try:
        child.wait(STOP_WITHIN)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def _die_with_us():
    """Where the kernel offers it: even if we are killed outright, the child is told to stop."""
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None)
    return lambda: libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
