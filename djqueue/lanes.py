"""Where the entry of a call waits: in which lane, by what gate, and within which other lane.

A command's options make a :class:`Plan` when it is declared; a call's arguments make a lane of that. Lanes are named
after their command: ``app.commands.send`` holds its calls, ``app.commands.send:42`` those whose key is 42, and
``app.commands.send*`` is what the latter are within if all of them share a limit. ``throttle:api`` is what the calls of
all commands are within that share the throttle of that name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from djqueue import conf
from djqueue.backends.windows import Window
from djqueue.durations import seconds, whole

if TYPE_CHECKING:
    from djqueue.policies import Policy

LONGEST = 200
"""Characters of a lane's name; of a longer one the end is hashed."""
MOST = 1000
"""So many may be handed to one worker at once."""
_NAME = re.compile(r"[^\s:*\x00-\x1f]{1,64}")


@dataclass(frozen=True, slots=True)
class Throttle:
    """At most ``limit`` starts in any ``window`` (seconds or a timedelta), over all consumers.

    Without ``key`` that is for all calls of the command; with ``key``, a function of the arguments, for each value that
    it returns, None being free. With a ``name`` it is for the calls of all commands that say the same name; they must
    say the same of it in all else. ``moderate`` spaces them evenly, ``elastic`` lets them catch up once they are
    behind, and leaves ``elastic_buffer`` slots unused then. Raises TypeError or ValueError for what makes no sense.
    """

    limit: int
    window: float | timedelta
    _: KW_ONLY
    key: Callable[..., Any] | None = None
    moderate: bool = False
    elastic: bool = False
    elastic_buffer: int = 0
    name: str | None = None
    measure: Window = field(init=False, repr=False, compare=False)
    """The same as the backends know it."""

    def __post_init__(self) -> None:
        window = Window(self.limit, self.window, self.moderate, self.elastic, self.elastic_buffer)
        object.__setattr__(self, "measure", window)
        if self.key is not None and not callable(self.key):
            raise TypeError(f"Throttle(key={self.key!r}): give a function of the arguments.")
        if self.name is not None and not (isinstance(self.name, str) and _NAME.fullmatch(self.name)):
            raise ValueError(
                f"Throttle(name={self.name!r}): a name has 1 to 64 characters, without white space, ':' or '*'."
            )


@dataclass(frozen=True, slots=True)
class Batch:
    """How many calls the function is given at once: up to ``most``, by default QUEUE_WORKER_BATCH_SIZE.

    Fewer than ``least`` wait for more until the first of them has waited for ``wait`` (seconds or a timedelta). Raises
    TypeError or ValueError for what makes no sense.
    """

    most: int | None = None
    least: int = 1
    wait: float | timedelta = 0.0

    def __post_init__(self) -> None:
        if self.most is not None and whole(self.most, "batch", least=1) > MOST:
            raise ValueError(f"batch is {self.most}: give at most {MOST}.")
        whole(self.least, "Batch(least=…)", least=1)
        object.__setattr__(self, "wait", seconds(self.wait, "Batch(wait=…)"))
        if self.most is not None and self.least > self.most:
            raise ValueError(f"Batch(least={self.least}) is more than most={self.most}.")
        if (self.least > 1) != (self.wait > 0):
            raise ValueError(
                "Batch(least=…) says for how many to wait, and wait=… for how long: give both, or neither."
            )

    @property
    def size(self) -> int:
        """The most of a batch."""
        return conf.get("QUEUE_WORKER_BATCH_SIZE") if self.most is None else self.most


@dataclass(frozen=True, slots=True)
class Route:
    """Where a request of a batch command goes: its shard, and its priority there.

    By default QUEUE_DEFAULT_THREAD and QUEUE_DEFAULT_PRIORITY.
    """

    thread: int | str | None = None
    priority: int | None = None

    def __post_init__(self) -> None:
        for name, setting in (("thread", "QUEUE_DEFAULT_THREAD"), ("priority", "QUEUE_DEFAULT_PRIORITY")):
            if getattr(self, name) is None:
                object.__setattr__(self, name, conf.get(setting))


class Place(NamedTuple):
    """Where an entry waits; twice nothing for one that waits in no lane."""

    lane: str = ""
    gate: str = ""


NO_PLACE = Place()


def placed(policy: Policy, name: str, call: tuple[tuple, Mapping[str, Any]]) -> Place:
    """The lane of a call of the command of that name, and its gate as text."""
    return NO_PLACE
