"""What operators see and do: bounded, whatever the size of the queue. A backend of four verbs can do little of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import inf

from djqueue.backends.entries import LaneRecord, Record
from djqueue.exceptions import NotSupported

PAGE = 500
"""So many records are looked at in one call, where all are wanted."""


class OperatorVerbs:
    """The part of the contract that no consumer needs."""

    def find(self, id: str) -> Record | None:
        """The entry of that id, if it waits or is leased."""
        raise self._cannot("find")

    def remove(self, ids: Iterable[str]) -> int:
        """Delete entries that wait (never leased ones); how many."""
        raise self._cannot("remove")

    def amend(self, id: str, was: bytes, data: bytes) -> bool:
        """Give an entry that waits another body if its body is still ``was``; True if so."""
        raise self._cannot("amend")

    def trim(self, most: int | None = None, age: float | None = None, limit: int = 1000) -> int:
        """Delete up to ``limit`` of what came first: what is more than ``most``, or here for over ``age`` seconds.

        That bounds an error queue, which is in the order of its deaths. A backend of four verbs knows no ages.
        """
        surplus = 0 if most is None else min(limit, len(self) - most)
        return sum(self.read() is not None for _ in range(surplus))

    def peek(self, state: str, limit: int = 50, after: str | None = None) -> list[Record]:
        """Up to ``limit`` records of one state, in the order in which they come up, behind the cursor ``after``."""
        raise self._cannot("peek")

    def walk(self, state: str, most: float = inf) -> Iterator[Record]:
        """Up to ``most`` records of one state, looked at page by page."""
        after = None
        while most > 0 and (page := self.peek(state, int(min(PAGE, most)), after)):
            yield from page
            most, after = most - len(page), page[-1].cursor

    def reprioritise(self, ids: Iterable[str], priority: int) -> int:
        """Give entries that wait another priority; how many."""
        raise self._cannot("reprioritise")

    def lanes(self, limit: int = 50, after: str | None = None) -> list[LaneRecord]:
        """Up to ``limit`` lanes that hold something or remember something, behind the cursor ``after``."""
        raise self._cannot("lanes")

    def lane(self, name: str) -> LaneRecord | None:
        """What is known of a lane, if anything is."""
        raise self._cannot("lane")

    def park_lane(self, name: str, why: str) -> None:
        """Let nothing more leave a lane until :meth:`open_lane`; what is out goes on."""
        raise self._cannot("park_lane")

    def open_lane(self, name: str) -> bool:
        """Open a lane that is parked, or held for a time; whether it was."""
        raise self._cannot("open_lane")

    def _cannot(self, verb: str) -> NotSupported:
        own = type(self).__name__
        return NotSupported(f"{own} has only the four verbs and cannot {verb}(); derive it from LeasedQueue.")
