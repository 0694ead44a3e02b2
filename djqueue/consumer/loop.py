"""A duty that comes round: a thread that ticks, and survives what a tick raises."""

from __future__ import annotations

import logging
import threading

from django.db import close_old_connections, connections

logger = logging.getLogger(__name__)

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0  # seconds between tries while a tick fails


class Loop(threading.Thread):
    """Calls :meth:`tick` until it is stopped. A store that goes away is ridden out."""

    def __init__(self, name: str):
        super().__init__(name=name, daemon=True)
        self._stopped = threading.Event()
        self._wake = threading.Event()
        self._failures = 0

    def tick(self) -> float:
        """Do what is due; seconds until the next tick."""
        raise NotImplementedError

    @property
    def stopped(self) -> bool:
        return self._stopped.is_set()

    def wake(self) -> None:
        """Have the next tick begin now."""
        if not self._wake.is_set():
            self._wake.set()

    def stop(self) -> None:
        """Let no further tick begin."""
        self._stopped.set()
        self._wake.set()

    def run(self) -> None:
        while not self.stopped:
            pause = self.guarded_tick()
            if pause > 0:
                self._wake.wait(pause)
            self._wake.clear()  # whatever woke us is seen by the tick that follows
        connections.close_all()

    def guarded_tick(self) -> float:
        """A tick; if it raises, the seconds to wait before the next try, longer every time."""
        try:
            pause = self.tick()
        except Exception as error:
            return self._ride_out(error)
        if self._failures:
            logger.info("%s goes on", self.name)
            self._failures = 0
        return pause

    def _ride_out(self, error: Exception) -> float:
        """Report the first failure in full and the ones after it in a line."""
        close_old_connections()
        self._failures += 1
        pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(self._failures, 10))
        if self._failures == 1:
            logger.error("%s failed; trying again in %.1f s", self.name, pause, exc_info=error)
        else:
            logger.warning("%s failed %d times: %s; next try in %.1f s", self.name, self._failures, error, pause)
        return pause
