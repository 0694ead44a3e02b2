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
UV_VENV = ".venv-uv"
"""Its uv installs into all others, in a quarter of the time that pip takes; its pip has fetched it."""
UV_NAMES = {"index-url": "UV_DEFAULT_INDEX", "cert": "SSL_CERT_FILE", "trusted-host": "UV_INSECURE_HOST"}
"""Of pip's settings those that say which registry there is, and what uv calls them."""
PROBE = "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2])"
REQUIREMENTS = ("setup.cfg", "pyproject.toml")
BUILDING = threading.Lock()
"""A build of the project writes into its folder: one at a time."""
MAKING_UV = threading.Lock()


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
    run_uv("pip", "install", "--python", venv / "bin/python", *what)


def build(folder: Path | str):
    """The source archive of the project, and the wheel that is made of it."""
    with BUILDING:
        run_uv("build", "--python", sys.executable, "--out-dir", folder, ROOT)


def run_uv(*arguments):
    run(pip().parent / "uv", "-q", *arguments, env=registry(), quiet=True)


@functools.cache
def registry() -> dict[str, str]:
    """Where pip is configured to find packages, for uv, which does not read pip's configuration."""
    listed = subprocess.run([pip(), "-m", "pip", "config", "list"], capture_output=True, text=True, check=True).stdout
    settings = dict(line.split("=", 1) for line in listed.splitlines())
    found = {name: settings.get(f":env:.{name}") or settings.get(f"global.{name}") for name in UV_NAMES}
    return {UV_NAMES[name]: value.strip("'") for name, value in found.items() if value}


def pip() -> Path:
    """A Python with pip and uv, made once."""
    python = ROOT / UV_VENV / "bin/python"
    with MAKING_UV:
        if not (python.parent / "uv").exists():
            run(sys.executable, "-m", "venv", "--clear", ROOT / UV_VENV, quiet=True)
            run(python, "-m", "pip", "install", "-q", "uv", quiet=True)
    return python


def fingerprint(*words: str) -> str:
    digest = hashlib.sha256("\0".join([str(ROOT), *words]).encode())
    for path in REQUIREMENTS:
        digest.update((ROOT / path).read_bytes())
    return digest.hexdigest()
