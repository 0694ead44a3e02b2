"""How much memory a process has."""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from pathlib import Path

MIB = 1 << 20


def memory_of(pid: int | None = None) -> float:
    """The resident memory of a process in MiB, of this one by default; 0 if that is not known."""
    pid = pid or os.getpid()
    with suppress(OSError, ValueError, IndexError):
        if Path("/proc/self/statm").exists():
            return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / MIB
        answer = subprocess.run(["ps", "-o", "rss=", "-p", str(pid)], capture_output=True, text=True)
        return int(answer.stdout) / 1024
    return 0.0
