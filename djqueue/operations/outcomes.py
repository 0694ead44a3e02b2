"""What came of an action that an operator asked for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

REFUSED = "the question was not answered with yes"


class Refused(NamedTuple):
    """Something to which an action was not done, or not to all of it."""

    what: str
    why: str


class ActionResult:
    """What an action did, to how many, and what it refused."""

    def __init__(self, action: str, what: Iterable[str]):
        self.action = action
        self.what = [*what]
        """The names or ids that it is about, or a filter in words."""
        self.count = 0
        """To how many it was done."""
        self.queues: dict[str, int] = {}
        """The same by the alias of the queue, where that is known."""
        self.said = ""
        """What was done so far, in words, without the end of the sentence."""
        self.refused: list[Refused] = []
        self.dry_run = False
        """Whether it was only counted."""
        self.more: dict[str, Any] = {}
        """What only one action has to report."""
        self._settled: set[str] = set()

    def did(self, count: int = 1, queue: str = "", what: Iterable[str] = ()) -> None:
        """Count what was done, in a queue, or to some of its targets."""
        self.count += count
        self._settled.update(what)
        if queue:
            self.queues[queue] = self.queues.get(queue, 0) + count

    def refuse(self, what: str, why: str) -> None:
        """Record what it was not done to."""
        self._settled.add(what)
        self.refused.append(Refused(what, why))

    def fail(self, why: str) -> None:
        """Record that an error ended it: whatever was not yet done or refused is refused."""
        for what in self.what:
            if what not in self._settled:
                self.refuse(what, why)

    def as_object(self) -> dict[str, Any]:
        """The outcome as an object for JSON."""
        names = ("action", "what", "count", "queues", "dry_run")
        refused = [one._asdict() for one in self.refused]
        return {name: getattr(self, name) for name in names} | {"refused": refused} | self.more
