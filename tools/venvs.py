"""Interpreters and virtual environments: found, made, and reused as long as the requirements stay the same."""

import functools
import hashlib
import os
import shutil
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

from steps import ROOT, run, say

PROJECT = "django-djqueue"
PIP_VENV = ".venv-pip"
"""Its pip installs into all others: to have one of its own takes each longer than all else about it."""
PROBE = "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2])"
REQUIREMENTS = ("setup.cfg", "pyproject.toml")
BUILDING = threading.Lock()
"""A build of the project writes into its folder: one at a time."""
MAKING_PIP = threading.Lock()


@dataclass(frozen=True)
class Combination:
    """A supported pair of Python and Django, by their versions."""

    python: str
    django: str

    def __str__(self):
        return f"Python {self.python} with Django {self.django}"


# Oldest first.
MATRIX = [
    Combination(python, django)
    for python, djangos in {"3.11": ("5.2",), "3.12": ("5.2", "6.0", "6.1"), "3.13": ("5.2", "6.1")}.items()
    for django in djangos
]


def default_combination() -> Combination | None:
    """What pip chooses for the running interpreter: the newest Django of the matrix."""
    mine = "{}.{}".format(*sys.version_info)
    return next((combination for combination in reversed(MATRIX) if combination.python == mine), None)


@functools.cache
def interpreter(version: str) -> str | None:
    """A working Python of that version ("3.13"), from PATH or pyenv; a shim with nothing behind it does not count."""
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    candidates = [
        shutil.which(f"python{version}"),
        *sorted(root.glob(f"versions/{version}.*/bin/python"), reverse=True),
    ]
    return next((str(path) for path in candidates if path and works(path, version)), None)


def works(path, version: str) -> bool:
    done = subprocess.run([path, "-c", PROBE], capture_output=True, text=True)
    return done.returncode == 0 and done.stdout.strip() == version


def ensure(name: str, extra: str, python: str = sys.executable, pins: tuple[str, ...] = ()) -> Path:
    """The Python of the virtual environment `name` with this project, editable, and an extra of it. Made anew when the
    requirements, the pins or the interpreter have changed. Several may be made at the same time, in threads."""
    venv = ROOT / name
    stamp, state = venv / "djqueue-stamp", fingerprint(extra, python, *pins)
    if not stamp.exists() or stamp.read_text() != state:
        say(f"Making {name}, about half a minute …")
        shutil.rmtree(venv, ignore_errors=True)
        create(venv, python)
        with BUILDING:
            install(venv, "--no-deps", "-e", ROOT)
        install(venv, f"{PROJECT}[{extra}]", *pins)
        stamp.write_text(state)
    return venv / "bin/python"


def create(venv: Path, python: str = sys.executable):
    run(python, "-m", "venv", "--without-pip", venv, quiet=True)


def install(venv: Path, *what):
    run(pip(), "-m", "pip", "--python", venv / "bin/python", "install", "-q", "--no-compile", *what, quiet=True)


def pip() -> Path:
    """A Python with a pip, made once."""
    python = ROOT / PIP_VENV / "bin/python"
    with MAKING_PIP:
        if not (python.parent / "pip").exists():
            run(sys.executable, "-m", "venv", "--clear", ROOT / PIP_VENV, quiet=True)
    return python


def fingerprint(*words: str) -> str:
    digest = hashlib.sha256("\0".join([str(ROOT), *words]).encode())
    for path in REQUIREMENTS:
        digest.update((ROOT / path).read_bytes())
    return digest.hexdigest()
