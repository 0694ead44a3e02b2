"""Steps: a name, what it does, how long it took; the first that fails ends the run."""

import contextlib
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


class Failed(Exception):
    """A step that cannot go on; the message says why and what to do."""


def say(text: str):
    print(text, flush=True)


def run(*command, env=None, cwd=ROOT, quiet=False):
    """Run a command in the open; quiet: show its output only if it fails. Failed with its exit code otherwise."""
    words = [str(word) for word in command]
    if not quiet:
        say("$ " + shlex.join(words))
    pipe = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT} if quiet else {}
    done = subprocess.run(words, cwd=cwd, env={**os.environ, **(env or {})}, **pipe)
    if done.returncode:
        tail = (done.stdout or b"").decode(errors="replace")
        raise Failed(f"{tail}exit code {done.returncode}: {shlex.join(words)}")


def need(*paths: str):
    """Failed unless these files of the project exist: an absent input must not look like a success."""
    absent = [path for path in paths if not (ROOT / path).exists()]
    if absent:
        raise Failed(f"missing in the project: {', '.join(absent)}")


@contextlib.contextmanager
def step(name: str):
    """Announce a step, say how long it took, and end the run when it fails."""
    say(f"--- {name}")
    begun = time.monotonic()
    try:
        yield
    except Failed as error:
        say(f"FAILED after {time.monotonic() - begun:.1f} s: {name}\n{error}")
        sys.exit(1)
    say(f"--- {name}: {time.monotonic() - begun:.1f} s")
