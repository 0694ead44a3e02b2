"""Waiting for other threads: by looking, up to a deadline, never by a fixed sleep."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

PATIENCE = 20.0
"""Seconds after which what should happen at once is taken to never happen."""


def eventually(look: Callable[[], Any], timeout: float = PATIENCE) -> Any:
    """The first truthy value that ``look`` returns. AssertionError after ``timeout`` seconds without one."""
    deadline, pause = time.monotonic() + timeout, 0.002
    while not (found := look()):
        if time.monotonic() > deadline:
            raise AssertionError(f"it did not happen within {timeout} seconds")
        time.sleep(pause)
        pause = min(0.02, 1.1 * pause)  # a look may cost a statement
    return found


def together(*calls: Callable[[], Any], last: Callable[[], Any] = lambda: None) -> list[Any]:
    """Call each in its own thread, all at the same moment; their results in order.

    ``last`` is called at the end of every thread, to close its connections. The first error is raised here.
    """
    results, errors, start = [None] * len(calls), [], threading.Barrier(len(calls))

    def run(place: int, call: Callable[[], Any]) -> None:
        try:
            start.wait()
            results[place] = call()
        except BaseException as error:
            errors.append(error)
        finally:
            last()

    threads = [threading.Thread(target=run, args=pair, daemon=True) for pair in enumerate(calls)]
    _run_all(threads)
    if errors:
        raise errors[0]
    return results


def _run_all(threads: Sequence[threading.Thread]) -> None:
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + 10 * PATIENCE
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
        assert not thread.is_alive(), f"a thread still runs after {10 * PATIENCE} seconds"
