"""A thread that the consumer cannot do without."""

from __future__ import annotations

import threading

from djqueue.consumer.starvation import Starvation
from djqueue.messages.failures import text_of


class Member(threading.Thread):
    """Does its :meth:`duty` until that ends. What ends it otherwise, or keeps it from its duty, is told by it."""

    def __init__(self, name: str):
        super().__init__(name=name, daemon=True)
        self.starvation = Starvation()
        self._died_of = ""

    def duty(self) -> None:
        """All that it does."""
        raise NotImplementedError

    def run(self) -> None:
        try:
            self.duty()
        except BaseException as error:
            self._died_of = f"{type(error).__name__}: {text_of(error)}"
            raise

    @property
    def is_dead(self) -> bool:
        """Whether it has begun, and ended."""
        return self.ident is not None and not self.is_alive()

    @property
    def starves(self) -> bool:
        """Whether the process has been at its limits whenever it tried, for too long to wait."""
        return self.starvation.lasts

    @property
    def trouble(self) -> str:
        """Why only another process can go on; nothing if it does its duty."""
        if self.is_dead:
            return f"{self.name} has died of {self._died_of or 'an unknown cause'}"
        if self.starves:
            return f"{self.name} starves: this process is at its limits of memory, descriptors or threads"
        return ""
