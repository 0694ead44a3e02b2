"""``queue_consumer --reload``: a parent that starts the consumer again when the code changes, or is mended."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

from django.apps import apps
from django.utils import autoreload

from djqueue.consumer import STUCK, Consumer
from djqueue.utils import tell

logger = logging.getLogger(__name__)

CHANGED = 3
"""The exit code by which a child of Django's autoreload says that code has changed."""
PATIENCE = 5.0  # seconds that a consumer gets to hand back what it runs
PAUSE = 0.5  # seconds between two looks at the files
ENDING = (signal.SIGTERM, signal.SIGINT)


def run(consumer: Consumer) -> None:
    """Serve in a child process, anew after each change; SIGTERM and Ctrl-C end it. Exits; never returns."""
    is_child = os.environ.get(autoreload.DJANGO_AUTORELOAD_ENV) == "true"
    if is_child:
        _serve_until_changed(consumer)
    else:
        _Parent().run()
    sys.exit(0)


def _serve_until_changed(consumer: Consumer) -> None:
    ended = threading.Event()
    for number in ENDING:
        signal.signal(number, _exit_once)
    try:
        autoreload.start_django(autoreload.get_reloader(), partial(_serve, consumer, ended))
    finally:
        _ignore_signals()
        _hand_back(consumer, ended)


def _serve(consumer: Consumer, ended: threading.Event) -> None:
    tell(logger, logging.INFO, consumer.banner())
    try:
        code = consumer.run()
    finally:
        ended.set()
    if code == STUCK:
        os._exit(code)


def _hand_back(consumer: Consumer, ended: threading.Event) -> None:
    """Give back what runs at once: the next child is to run it, with the new code."""
    for _ in range(2):
        consumer.stop()
    if not ended.wait(PATIENCE):
        logger.warning(
            "The consumer did not end within %g s; what it ran is run again when its lease is over", PATIENCE
        )


def _exit_once(*_: object) -> None:
    _ignore_signals()  # a Ctrl-C reaches parent and child, and the parent tells the child as well
    sys.exit(0)


def _ignore_signals() -> None:
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)


class _Parent:
    """Starts children, one after the other, until it is told to end."""

    def __init__(self) -> None:
        self._child: subprocess.Popen | None = None
        self._told_to_end = False

    def run(self) -> None:
        """Return when told to end, or when a child has ended of its own will."""
        for number in ENDING:
            signal.signal(number, self._end)
        code = CHANGED
        while code:
            seen = _files()
            code = self._code_of_a_child()
            if code not in (0, CHANGED):
                logger.error("The consumer ended with code %d; it is started again when a file changes", code)
                code = self._wait_for_a_change(seen)

    def _code_of_a_child(self) -> int:
        """Run a child to its end; its exit code, 0 if we were told to end."""
        environment = {**os.environ, autoreload.DJANGO_AUTORELOAD_ENV: "true"}
        self._child = subprocess.Popen(autoreload.get_child_arguments(), env=environment, close_fds=False)
        if self._told_to_end:
            self._child.terminate()
        code = self._child.wait()
        return 0 if self._told_to_end else code

    def _wait_for_a_change(self, seen: dict[Path, float]) -> int:
        while not self._told_to_end:
            if _files() != seen:
                return CHANGED
            time.sleep(PAUSE)
        return 0

    def _end(self, *_: object) -> None:
        self._told_to_end = True
        if self._child is not None:
            self._child.terminate()


def _files() -> dict[Path, float]:
    """When each file was changed: of the modules of this process, and of all apps that were not installed by pip."""
    reloader = autoreload.StatReloader()
    for app in apps.get_app_configs():
        if not {"site-packages", "dist-packages"} & set(Path(app.path).parts):
            reloader.watch_dir(app.path, "**/*.py")
    return dict(reloader.snapshot_files())
