"""What may have killed its worker runs apart from all else that this process holds."""

from __future__ import annotations

import threading

from djqueue.consumer.holdings import Held, Holdings


class Quarantine:
    """An entry that was lost once is a *suspect*: it may be what killed its worker.

    It is claimed alone, so that no neighbour waits in our hands while it runs, and only one suspect of this process
    runs at a time. So no innocent entry is lost with the guilty one more than once.
    """

    def __init__(self, holdings: Holdings):
        self._holdings = holdings
        self._lock = threading.Lock()
        self._suspect: Held | None = None
        self.cautious = False
        """Whether suspects were met in company: the next claim takes one entry only."""

    @property
    def occupied(self) -> bool:
        """Until the suspect is settled: if the next one kills the process, it must not count as lost with that."""
        return self._suspect is not None and self._suspect in self._holdings

    @property
    def awaited(self) -> bool:
        """Whether a suspect waits for all else that we hold."""
        return self.occupied and self._suspect.began is None

    def admit(self, suspect: Held) -> bool:
        """Let it in, if there is no other."""
        with self._lock:
            if self.occupied:
                return False
            self._suspect = suspect
            return True

    def since(self) -> float:
        """When the suspect that is in was claimed."""
        return self._suspect.since

    def alone(self) -> bool:
        """Whether all else that we hold is running: what waits, or is not settled yet, would be lost with it."""
        return all(held is self._suspect or held.runs for held in self._holdings)
