"""A process on a terminal of its own."""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time

from tests.support.processes import ROOT
from tests.support.server_process import die_with_parent, kill_group, start_of

COLOUR = re.compile(r"\x1b\[\d+m")


class Terminal:
    """A terminal in which a process runs. Leave the `with` block and it is dead."""

    def __init__(self, command, env, columns=80):
        self.output = ""
        """All that it showed, with its colours."""
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        env = {name: value for name, value in {**os.environ, **env}.items() if name not in ("NO_COLOR", "COLUMNS")}
        die = die_with_parent()

        def prepare():
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # so that Ctrl-C reaches all that run in it
            if die is not None:
                die()

        streams = dict.fromkeys(("stdin", "stdout", "stderr"), theirs)
        self.popen = subprocess.Popen(command, cwd=ROOT, env=env, start_new_session=True, preexec_fn=prepare, **streams)
        os.close(theirs)
        self._start = start_of(self.popen.pid)

    @property
    def lines(self) -> list[str]:
        """What it showed, without colours."""
        return COLOUR.sub("", self.output).replace("\r\n", "\n").split("\n")

    def wait_for(self, text: str, timeout: float = 30.0) -> None:
        """AssertionError with all that was shown unless the text comes."""
        until = time.monotonic() + timeout
        while text not in "\n".join(self.lines):
            assert self._read(until - time.monotonic()), f"no {text!r} in:\n{self.output}"

    def press(self, keys: bytes) -> None:
        os.write(self._ours, keys)

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        self.press(b"\x03")

    def wait(self, timeout: float = 30.0) -> int:
        """The exit code, once all output is in."""
        until = time.monotonic() + timeout
        while self._read(until - time.monotonic()):
            pass
        return self.popen.wait(max(0.1, until - time.monotonic()))

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        kill_group(self.popen.pid, self._start)
        self.popen.wait()
        os.close(self._ours)

    def _read(self, timeout: float) -> bool:
        """Whether there was more."""
        if not select.select([self._ours], [], [], max(0, timeout))[0]:
            return False
        try:
            some = os.read(self._ours, 65536)
        except OSError:  # all processes have closed it
            return False
        self.output += some.decode(errors="replace")
        return bool(some)
