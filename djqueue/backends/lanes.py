"""What operators call of the lanes of a queue: the part of the contract that a backend with lanes writes."""

from __future__ import annotations

from collections.abc import Callable

from djqueue.backends.entries import LaneRecord, Record


class BaseLanes:
    """The lanes of a queue, for operators. This one has none: each call raises what ``refuse`` makes of its name."""

    def __init__(self, refuse: Callable[[str], Exception]):
        self._refuse = refuse

    def page(self, limit: int = 50, after: str | None = None) -> list[LaneRecord]:
        """Up to ``limit`` lanes that hold something or remember something, behind the cursor ``after``."""
        raise self._refuse("lanes.page")

    def get(self, name: str) -> LaneRecord | None:
        """What is known of a lane, if anything is."""
        raise self._refuse("lanes.get")

    def peek(self, name: str, limit: int = 50, after: str | None = None) -> list[Record]:
        """Up to ``limit`` records of what waits in a lane and is due, the first to leave first, behind ``after``.

        Its cost does not depend on what waits elsewhere. A lane that is not known has none.
        """
        raise self._refuse("lanes.peek")

    def pause(self, name: str, why: str) -> None:
        """Let nothing more leave a lane until :meth:`resume`; what has left it goes on."""
        raise self._refuse("lanes.pause")

    def resume(self, name: str) -> bool:
        """Resume a lane that is paused, or held for a time; whether it was."""
        raise self._refuse("lanes.resume")
