"""How long a failed message waits before it is tried again."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from django.utils.module_loading import import_string

from djqueue.utils import seconds, takes, tell

logger = logging.getLogger(__name__)

Wait = Callable[[int, BaseException | None], float]
"""Seconds to wait after so many failures, the last of which was this exception (None: the command asked for it)."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Waits that grow: ``2 + factor ** n`` seconds after the n-th failure, at most ``cap``: 4, 6, 10, 18, … 900.

    ``jitter`` takes up to that part of each wait off, at random: with 0.25 a wait of 8 s is one of 6 to 8 s, so that
    what failed together does not come back together. Raises TypeError or ValueError for values that make no waits.
    """

    factor: float = 2.0
    cap: float = 900.0
    jitter: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "cap", seconds(self.cap, "Backoff(cap=…)"))
        for name, least, most in (("factor", 1, 1000), ("jitter", 0, 1)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
                raise ValueError(f"Backoff({name}=…) is {value!r}: give a number from {least} to {most}.")

    def __call__(self, failures: int, exception: BaseException | None = None) -> float:
        whole = min(self.cap, 2.0 + self.factor ** min(failures, 64))
        return whole * (1.0 - self.jitter * random.random()) if self.jitter else whole


@dataclass(frozen=True, slots=True)
class Constant:
    """The same wait every time."""

    seconds: float

    def __call__(self, failures: int, exception: BaseException | None = None) -> float:
        return self.seconds


def backoff_of(value: object) -> Wait:
    """What the option ``backoff`` means: seconds or a timedelta, a Backoff, or a function; False: no wait."""
    if value is False:
        return Constant(0.0)
    if value is True:
        return Backoff()
    if isinstance(value, type):
        raise TypeError(f"backoff is {value!r}: give an instance, as in backoff=Backoff(cap=60).")
    if not callable(value):
        return Constant(seconds(value, "backoff"))
    if not takes(value, 2):
        raise TypeError(f"backoff is {value!r}: give a function of the number of failures and the exception.")
    return value


def wait_after(backoff: Wait, failures: int, exception: BaseException | None) -> float:
    """The wait in seconds. A function that raises, or answers nonsense, is logged: then it is that of a Backoff."""
    try:
        return seconds(backoff(failures, exception), "what backoff() returned")
    except BaseException as error:  # nothing beside the command decides what becomes of its message
        tell(logger, logging.ERROR, "backoff failed, the usual wait is taken", exc_info=error)
        return Backoff()(failures)


# ---- in a message


def written(backoff: Wait) -> Any:
    """As JSON: seconds, the fields of a Backoff, or the dotted path of a function. Raises ValueError if it has none."""
    if isinstance(backoff, Constant):
        return backoff.seconds
    return asdict(backoff) if type(backoff) is Backoff else path_of(backoff, "backoff")


def read(value: Any) -> Wait:
    """The inverse. Raises ImportError, TypeError or ValueError."""
    if isinstance(value, dict):
        return Backoff(**value)
    return import_string(value) if isinstance(value, str) else Constant(float(value))


def path_of(thing: Any, name: str) -> str:
    """The dotted path of a class or function of a module. Raises ValueError that names the option."""
    module, qualname = getattr(thing, "__module__", None), getattr(thing, "__qualname__", "")
    if not module or not qualname.isidentifier() or not _stands_at(f"{module}.{qualname}", thing):
        raise ValueError(f"{name} is {thing!r}: in using() it must be of a module's top level, to travel by its name.")
    return f"{module}.{qualname}"


def _stands_at(path: str, thing: Any) -> bool:
    try:
        return import_string(path) is thing
    except ImportError:
        return False
