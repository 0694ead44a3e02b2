"""``queue_consumer --reload``: a parent that starts the consumer again when the code changes, or is mended."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

from django.apps import apps
from django.core.management.base import CommandError
from django.utils import autoreload

logger = logging.getLogger(__name__)

PATIENCE = 5.0  # seconds that a consumer gets to hand back what it runs
PAUSE = 500  # milliseconds between two looks whether the child lives
ENDING = (signal.SIGTERM, signal.SIGINT)


def is_child() -> bool:
    """Whether this process is the consumer that a parent watches."""
    return os.environ.get(autoreload.DJANGO_AUTORELOAD_ENV) == "true"


def run() -> None:
    """Serve in a child process, anew after each change, until SIGTERM or Ctrl-C; a child that ends with 0 ends it too.

    Exits, never returns. Raises CommandError if watchfiles is not installed.
    """
    try:
        import watchfiles
    except ImportError:
        install = 'pip install "django-djqueue[dev]"'
        raise CommandError(f"--reload needs the package watchfiles: {install}", returncode=2) from None
    told_to_end = threading.Event()
    for number in ENDING:
        signal.signal(number, lambda *_: told_to_end.set())
    watch = partial(watchfiles.watch, watch_filter=watchfiles.PythonFilter(), recursive=False, stop_event=told_to_end)
    while not told_to_end.is_set():
        child = _start()
        for changes in watch(*_folders(), rust_timeout=PAUSE, yield_on_timeout=True):
            if changes:
                break
            if child.returncode is None and child.poll() is not None:
                _has_ended(child.returncode, told_to_end)
        _stop(child)
    sys.exit(0)


def _has_ended(code: int, told_to_end: threading.Event) -> None:
    if code == 0:
        told_to_end.set()
    else:
        logger.error("The consumer ended with code %d; it is started again when a file changes", code)


def _stop(child: subprocess.Popen) -> None:
    """Have it give back what runs at once, as two signals do: the next child is to run it, with the new code."""
    for number in ENDING:
        child.send_signal(number)
    try:
        child.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        text = "The consumer did not end within %g s; what it ran is run again when its lease is over"
        logger.warning(text, PATIENCE)
        child.kill()
        child.wait()


def _start() -> subprocess.Popen:
    environment = {**os.environ, autoreload.DJANGO_AUTORELOAD_ENV: "true"}
    return subprocess.Popen(autoreload.get_child_arguments(), env=environment, close_fds=False)


def _folders() -> set[Path]:
    """Where the code is: of the modules of this process, and of all apps that were not installed by pip."""
    reloader = autoreload.StatReloader()
    for app in apps.get_app_configs():
        if not {"site-packages", "dist-packages"} & set(Path(app.path).parts):
            reloader.watch_dir(app.path, "**/*.py")
    return {path.parent for path, _ in reloader.snapshot_files()}
