"""A server program as a child process: started, stopped, killed, paused, and gone when its parent is."""

import ctypes
import os
import pwd
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

PATIENCE = 60.0
PR_SET_PDEATHSIG = 1


def die_with_parent(signum=signal.SIGKILL):
    """What a child runs before exec, so that it does not outlive a killed parent, and hears SIGINT in any case.

    The parent is the *thread* that starts the child, so start servers and consumers from the main thread.
    """
    libc = ctypes.CDLL(None) if sys.platform == "linux" else None

    def prepare():
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell has what it runs in the background ignore it
        if libc:
            libc.prctl(PR_SET_PDEATHSIG, signum)

    return prepare


class Server:
    """One server program over one folder. `extra` are further arguments of the program.

    `start`, `stop` and `restart` return when the server answers or is gone; `kill9` leaves what a crash leaves.
    """

    kind = ""
    program = ""
    package = ""
    account = ""
    stop_signal = signal.SIGTERM

    def __init__(self, folder, *extra: str):
        self.folder, self.extra, self.process = Path(folder), extra, None

    @classmethod
    def find(cls) -> str | None:
        """The path of the program, or None."""
        return shutil.which(cls.program) or shutil.which(cls.program, path="/usr/sbin:/usr/local/sbin")

    @property
    def url(self) -> str:
        raise NotImplementedError

    @property
    def log(self) -> Path:
        return self.folder / "log"

    def start(self):
        """Start the program; the first time, lay out its folder. RuntimeError with its last words if it does not."""
        if not self.folder.exists():
            self._own(self.folder)
            self.initialise()
        self.process = self._launch(self.command())
        self._await_ready()
        return self

    def stop(self):
        """Shut down in order; after ten seconds, by force. Nothing happens when it does not run."""
        if not self.running:
            return
        self.process.send_signal(self.stop_signal)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.kill9()

    def discard(self):
        """Stop, and remove the folder with what stands around it."""
        self.stop()
        shutil.rmtree(self.folder.parent, ignore_errors=True)

    def kill9(self):
        """SIGKILL for the program and its children, as the machine's memory killer would."""
        victims = [self.process.pid, *children_of(self.process.pid)]
        for pid in victims:
            _kill(pid, signal.SIGKILL)
        self.process.wait()

    def pause(self):
        """Stop answering without closing anything (SIGSTOP), until `resume`."""
        self._signal_all(signal.SIGSTOP)

    def resume(self):
        self._signal_all(signal.SIGCONT)

    def restart(self):
        """Stop (unless it is already dead) and start again over the same data, at the same address."""
        self.stop()
        return self.start()

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def __enter__(self):
        return self if self.running else self.start()

    def __exit__(self, *exc):
        self.stop()

    def initialise(self):
        """Make the data that the program needs before its first start."""

    def command(self) -> list[str]:
        raise NotImplementedError

    def ready(self) -> bool:
        raise NotImplementedError

    def _signal_all(self, signum):
        for pid in [self.process.pid, *children_of(self.process.pid)]:
            _kill(pid, signum)

    def _own(self, folder: Path):
        folder.mkdir(parents=True, mode=0o700)
        if self._identity():
            os.chown(folder, self._identity()["user"], self._identity()["group"])

    def _identity(self) -> dict:
        """Database servers refuse to run as root: they then get the account that their package made for them."""
        if os.geteuid() != 0 or not self.account:
            return {}
        entry = pwd.getpwnam(self.account)
        return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}

    def _launch(self, command) -> subprocess.Popen:
        with self.log.open("ab") as log:
            return subprocess.Popen(
                command,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the tests: they still need the servers to clean up
                preexec_fn=die_with_parent(self.stop_signal),
                **self._identity(),
            )

    def _run(self, command):
        process = self._launch(command)
        if process.wait(PATIENCE):
            raise RuntimeError(f"{command[0]} failed:\n{self._last_words()}")

    def _await_ready(self):
        deadline = time.monotonic() + PATIENCE
        while not self.ready():
            if not self.running or time.monotonic() > deadline:
                self.stop()
                raise RuntimeError(f"{self.program} did not start:\n{self._last_words()}")
            time.sleep(0.02)

    def _last_words(self) -> str:
        return self.log.read_text(errors="replace")[-2000:] if self.log.exists() else ""


def children_of(pid: int) -> list[int]:
    return [int(path.name) for path in Path("/proc").glob("[0-9]*") if status_of(path.name).get("PPid") == str(pid)]


def is_running(pid: int) -> bool:
    """Whether it is there, and no zombie."""
    return status_of(pid).get("State", "Z")[0] not in "ZX"


def status_of(pid: int | str) -> dict[str, str]:
    """The fields of /proc/PID/status, or none if the process is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return {}
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def start_of(pid: int) -> str:
    """When a process started, in ticks since the machine did; "" if it is gone. A later one of that number differs."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    return stat.rpartition(")")[2].split()[19]


def kill_group(pid: int, start: str):
    """SIGKILL for the group of a process that started then, which may have ended: not for one that has its number now.

    A number is free for others once no process has it, nor a group. Each connection of PostgreSQL is such a group.
    """
    if start_of(pid) in ("", start):
        try:
            os.killpg(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def _kill(pid: int, signum):
    try:
        os.kill(pid, signum)
    except ProcessLookupError:
        pass
