"""The values that users give to a command: Unique, Debounce, Concurrency, Throttle, Batch; and where a request goes."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from datetime import timedelta
from typing import Any, Literal

from djqueue import conf
from djqueue.flow.windows import Window, of_starts
from djqueue.utils import flag, function, seconds, set_whole, takes, whole
from djqueue.utils import priority as checked_priority

USUAL_RUN = 32
"""Entries of a shard that one worker is given at once, unless the option ``max_run`` is given."""
MOST = 1000
"""Entries that may be handed to one worker at once, at most."""
_NAME = re.compile(r"[^\s:*\x00-\x1f]{1,64}")


@dataclass(frozen=True, slots=True)
class Unique:
    """A call is refused ``until`` an equal one has ``"started"`` or ``"finished"``, or for a time from the first on.

    A time is in seconds or a timedelta. Calls for which ``key``, a function of the arguments, returns the same are
    equal; without it, calls with the same arguments. Raises TypeError or ValueError that names the argument.
    """

    until: Literal["started", "finished"] | float | timedelta = "finished"
    _: KW_ONLY
    key: Callable[..., Any] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.until, str):
            object.__setattr__(self, "until", seconds(self.until, "Unique(until=…)", least=0.001))
        elif self.until not in ("started", "finished"):
            raise ValueError(f"Unique(until={self.until!r}): give 'started', 'finished', or a time.")
        function(self.key, "Unique(key=…)")


@dataclass(frozen=True, slots=True)
class Debounce:
    """Equal calls fall due at most once in ``seconds`` (or a timedelta, or a function of no arguments for it).

    The first of them is due at once, unless ``always_delay``. With ``extend`` each call postpones the one that waits,
    for up to ``max_wait`` (seconds or a timedelta; by default ten times ``seconds``). ``merge``, a function of the call
    that waits and a new one, returns the call that stands for both. Calls for which ``key``, a function of the
    arguments, returns the same are equal; without it, calls with the same arguments, or with ``merge`` all calls.
    Raises TypeError or ValueError that names the argument.
    """

    seconds: float | timedelta | Callable[[], float | timedelta | None]
    _: KW_ONLY
    extend: bool = False
    max_wait: float | timedelta | None = None
    merge: Callable[[Any, Any], Any] | None = None
    key: Callable[..., Any] | None = None
    always_delay: bool = False

    def __post_init__(self) -> None:
        if not callable(self.seconds):
            object.__setattr__(self, "seconds", seconds(self.seconds, "Debounce(seconds=…)", least=0.001))
        if self.max_wait is not None:
            object.__setattr__(self, "max_wait", seconds(self.max_wait, "Debounce(max_wait=…)"))
        flag(self.extend, "Debounce(extend=…)")
        flag(self.always_delay, "Debounce(always_delay=…)")
        merging(self.merge, "Debounce(merge=…)")
        function(self.key, "Debounce(key=…)")


def merging(value: object, name: str) -> Callable[..., Any] | None:
    """A function of two calls, or None. Raises TypeError that names the argument."""
    merge = function(value, name)
    if merge is not None and not takes(merge, 2):
        raise TypeError(f"{name} cannot take two calls: give a function of the call that waits and the new one.")
    return merge


@dataclass(frozen=True, slots=True)
class Concurrency:
    """At most ``limit`` calls run at once, over all consumers.

    Without ``key`` that is for all calls of the command; with ``key``, a function of the arguments, for each value that
    it returns, None being free. Raises TypeError or ValueError that names the argument.
    """

    limit: int
    _: KW_ONLY
    key: Callable[..., Any] | None = None

    def __post_init__(self) -> None:
        set_whole(self, "limit", "Concurrency(limit=…)", least=1)
        function(self.key, "Concurrency(key=…)")


@dataclass(frozen=True, slots=True)
class Throttle:
    """At most ``limit`` starts in any ``window`` (seconds or a timedelta), over all consumers.

    Without ``key`` that is for all calls of the command; with ``key``, a function of the arguments, for each value that
    it returns, None being free. With a ``name`` it is for the calls of all commands that have this name in a throttle;
    these must agree in all else. ``moderate`` spaces them evenly, ``elastic`` lets them catch up once they are
    behind, and leaves ``elastic_buffer`` slots unused then. Raises TypeError or ValueError for invalid values.
    """

    limit: int
    window: float | timedelta | None = None
    _: KW_ONLY
    key: Callable[..., Any] | None = None
    moderate: bool = False
    elastic: bool = False
    elastic_buffer: int = 0
    name: str | None = None
    measure: Window = field(init=False, repr=False, compare=False)
    """The window of the backends: a little longer, as a start comes a little later than the entry left its lane."""

    def __post_init__(self) -> None:
        if self.window is None:
            raise ValueError(f"Throttle({self.limit!r}) has no window: write Throttle(10, 60) for 10 in 60 seconds.")
        set_whole(self, "limit", least=1)
        given: Any = self.window  # a Window takes a timedelta, too, and keeps seconds
        window = Window(self.limit, given, self.moderate, self.elastic, self.elastic_buffer)
        object.__setattr__(self, "measure", of_starts(window))
        object.__setattr__(self, "window", window.seconds)
        object.__setattr__(self, "elastic_buffer", window.buffer)
        if self.key is not None and not callable(self.key):
            raise TypeError(f"Throttle(key={self.key!r}): give a function of the arguments.")
        if self.name is not None and not (isinstance(self.name, str) and _NAME.fullmatch(self.name)):
            raise ValueError(
                f"Throttle(name={self.name!r}): a name has 1 to 64 characters, without white space, ':' or '*'."
            )


def up_to(value: Any, name: str) -> int:
    """How many may go together. Raises ValueError that names the argument."""
    if (count := whole(value, name, least=1)) > MOST:
        raise ValueError(f"{name} is {value}: give at most {MOST}.")
    return count


@dataclass(frozen=True, slots=True)
class Batch:
    """How many calls the function is given at once: up to ``size``, by default QUEUE_BATCH_SIZE.

    Fewer than ``min_size`` wait for more until the first of them has waited for ``timeout`` (seconds or a timedelta).
    All that wait count, of whatever priority; as a batch is of one priority, it may be smaller. Raises TypeError or
    ValueError for what makes no sense.
    """

    size: int | None = None
    min_size: int = 1
    timeout: float | timedelta = 0.0

    def __post_init__(self) -> None:
        if self.size is not None:
            object.__setattr__(self, "size", up_to(self.size, "batch"))
        set_whole(self, "min_size", "Batch(min_size=…)", least=1)
        timeout = seconds(self.timeout, "Batch(timeout=…)")
        object.__setattr__(self, "timeout", timeout)
        if self.size is not None and self.min_size > self.size:
            raise ValueError(f"Batch(min_size={self.min_size}) is more than size={self.size}.")
        if (self.min_size > 1) != (timeout > 0):
            raise ValueError(
                "Batch(min_size=…) says for how many to wait, and timeout=… for how long: give both, or neither."
            )

    @property
    def limit(self) -> int:
        return up_to(conf.get("QUEUE_BATCH_SIZE"), "QUEUE_BATCH_SIZE") if self.size is None else self.size


@dataclass(frozen=True, slots=True)
class Route:
    """Where a request of a batch command goes: its shard, and its priority there.

    By default QUEUE_DEFAULT_THREAD and QUEUE_DEFAULT_PRIORITY. Raises TypeError or ValueError for what is neither a
    whole number nor, as a thread, a text.
    """

    thread: int | str | None = None
    priority: int | None = None

    def __post_init__(self) -> None:
        for name, setting in (("thread", "QUEUE_DEFAULT_THREAD"), ("priority", "QUEUE_DEFAULT_PRIORITY")):
            if getattr(self, name) is None:
                object.__setattr__(self, name, conf.get(setting))
        if isinstance(self.thread, bool) or not isinstance(self.thread, int | str):
            raise TypeError(f"Route(thread={self.thread!r}): give a whole number or a text.")
        object.__setattr__(self, "priority", checked_priority(self.priority, "Route(priority=…)"))
