"""Small helpers without a layer of their own: checked numbers and durations, functions that users give, names that are
nearly right, chunks, values that are made often, logging that cannot raise, and forked children.
"""

from __future__ import annotations

import inspect
import json
import logging
import os
import signal
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from difflib import get_close_matches
from functools import lru_cache
from types import TracebackType
from typing import Any, TypeVar, dataclass_transform

from django.conf import settings
from django.utils import timezone

from djqueue.hints import hint

# ---- Numbers, durations and moments that users give; every error names the argument

LONGEST = 10**10
"""Seconds; three centuries."""
MOST = 10**15
"""A count that every store can keep, and every script of one."""

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def clock() -> float:
    """Seconds by a clock that is never set, and that goes on while the machine sleeps, as leases do at their store."""
    return time.clock_gettime(_CLOCK)


def seconds(value: object, name: str, *, least: float = 0.0) -> float:
    """A duration in seconds, from a number or a timedelta. Raises TypeError or ValueError that names the argument."""
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} is {value!r}: give seconds or a timedelta.")
    if not least <= value < LONGEST:
        raise ValueError(f"{name} is {value!r}: give at least {least:g} seconds, and less than {LONGEST:g}.")
    return float(value)


def whole(value: object, name: str, *, least: int) -> int:
    """A whole number that every store can count to; 10.0 is one, as 10. Raises ValueError that names the argument."""
    number = _as_int(value)
    if number is None or number < least:
        raise ValueError(f"{name} is {value!r}: give a whole number from {least}.")
    if number > MOST:
        raise ValueError(f"{name} is too large: give a whole number from {least} to {MOST:,}.")
    return number


def set_whole(settings: object, field: str, name: str = "", *, least: int) -> None:
    """Make a field of a frozen dataclass a whole number. Raises ValueError that names the argument."""
    object.__setattr__(settings, field, whole(getattr(settings, field), name or field, least=least))


def _as_int(value: object) -> int | None:
    """A number without a fraction as an int of Python; None for all else. True and False are no numbers here."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else None  # also of IntegerChoices


def flag(value: object, name: str) -> bool:
    """True or False. Raises TypeError that names the argument."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} is {value!r}: give True or False.")
    return value


def function(value: object, name: str) -> Callable[..., Any] | None:
    """A function, or None. Raises TypeError that names the argument."""
    if value is not None and not callable(value):
        raise TypeError(f"{name} is {value!r}: give a function.")
    return value


def priority(value: object, name: str = "priority") -> int:
    """A priority. Raises TypeError or ValueError that names the argument."""
    if (number := _as_int(value)) is None:
        raise TypeError(f"{name} is {value!r}: give a whole number.")
    if not -(2**31) <= number < 2**31:
        raise ValueError(f"{name} is {value}: give a 32-bit number.")
    return number


def moment(value: Any, name: str) -> float:
    """An absolute time as epoch seconds. Raises TypeError or ValueError that names the argument."""
    if not isinstance(value, datetime):
        raise TypeError(f"{name} is {value!r}: give a datetime.")
    if timezone.is_naive(value):
        if settings.USE_TZ:
            raise ValueError(f"{name} is the naive {value!r}, while USE_TZ is on: give an aware datetime.")
        value = timezone.make_aware(value)
    return value.timestamp()


def is_exception(value: object) -> bool:
    """Whether a value is a class of exceptions."""
    return isinstance(value, type) and issubclass(value, BaseException)


# ---- Functions that users give


def takes(func: Any, count: int) -> bool:
    """Whether a function can be called with ``count`` positional arguments, as far as is known."""
    try:
        inspect.signature(func).bind(*[None] * count)
    except TypeError:  # or not callable at all
        return False
    except ValueError:  # it has no signature
        return callable(func)
    return True


def as_asked(func: object, signature: inspect.Signature, call: tuple[tuple, dict]) -> tuple[tuple, dict]:
    """The arguments of a call of that signature as a function of the arguments, such as a key, takes them.

    They are passed on as they came; only ``lambda user, **_: user`` gets all by name, where some came by position.
    """
    args, kwargs = call
    kinds = [parameter.kind for parameter in signature.parameters.values()] if args and callable(func) else []
    if _VARIOUS in kinds or not _wants_names(func, kinds.count(_EITHER)):
        return call
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    return (), bound.arguments


@lru_cache(1024)
def _wants_names(func: Any, count: int) -> bool:
    """Whether a function takes fewer than ``count`` arguments by position, and any by name."""
    try:
        kinds = [parameter.kind for parameter in inspect.signature(func).parameters.values()] if count else []
    except (TypeError, ValueError):  # it has no signature
        return False
    positional = kinds.count(_EITHER) + kinds.count(inspect.Parameter.POSITIONAL_ONLY)
    return inspect.Parameter.VAR_KEYWORD in kinds and _VARIOUS not in kinds and positional < count


_EITHER, _VARIOUS = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.VAR_POSITIONAL


# ---- Names that are nearly right


def nearest(name: object, valid: Iterable[str]) -> str | None:
    """The valid name that was probably meant, in upper or lower case; None if there is none like it.

    Of a dotted name the last part may be given, too.
    """
    valid = list(valid)
    by_upper = {one.rpartition(".")[2].upper(): one for one in valid} | {one.upper(): one for one in valid}
    given = str(name).upper()
    meant = (hint(given, "setting") or "").upper()  # difflib would guess another one
    close = [meant] if meant in by_upper else get_close_matches(given, by_upper, 1)
    return by_upper[close[0]] if close else None


def near(name: object, valid: Iterable[str]) -> str:
    """The valid name that was probably meant, as a question, or else all of them."""
    valid = list(valid)
    meant = nearest(name, valid)
    return f"did you mean {meant!r}?" if meant else f"there are {', '.join(valid)}."


def near_and_all(name: object, valid: Iterable[str]) -> str:
    """The valid name that was probably meant, as a question, and all of them."""
    valid = list(valid)
    meant = nearest(name, valid)
    return f"{f'did you mean {meant!r}? There' if meant else 'there'} are: {', '.join(valid)}."


# ---- Chunks

T = TypeVar("T")


def slices(values: Iterable[T], most: int) -> Iterator[list[T]]:
    """Lists of at most ``most`` values. The values are read when this is called, not in between."""
    values = list(values)
    return (values[first : first + most] for first in range(0, len(values), most))


def portions(values: Iterable[T], most: int, most_bytes: int, size: Callable[[T], int]) -> Iterator[list[T]]:
    """Lists of at most ``most`` values and ``most_bytes`` bytes; a larger value goes alone."""
    values = list(values)
    if len(values) <= most and sum(map(size, values)) <= most_bytes:
        yield from [values] if values else []
        return
    some: list[T] = []
    total = 0
    for value in values:
        own = size(value)
        if some and (len(some) == most or total + own > most_bytes):
            yield some
            some, total = [], 0
        some.append(value)
        total += own
    if some:
        yield some


# ---- Values that are made often


@dataclass_transform(frozen_default=True)
def value(cls: type[T]) -> type[T]:
    """A dataclass for what is made for every message. Only a type checker enforces that it is not changed:
    one that is frozen at run time takes ten times as long to make."""
    return dataclass(slots=True, unsafe_hash=True)(cls)


# ---- Logging that cannot raise


def log_safely(logger: logging.Logger, level: int, text: str, *args, **kwargs) -> None:
    """Log, and never raise. A handler whose mail server is unreachable must not end a thread or change a verdict."""
    try:
        logger.log(level, text, *args, **kwargs)
    except BaseException:
        with suppress(BaseException):  # standard error may be closed
            traceback.print_exc(file=sys.stderr)


class RareReports:
    """Lets through one report of each kind per number of seconds, and counts the others."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._next: dict[str, float] = {}
        self._unreported: Counter[str] = Counter()
        self._lock = threading.Lock()

    def take(self, kind: str) -> int | None:
        """How many of this kind were left out since the last report; None if this one is left out too."""
        with self._lock:
            if time.monotonic() < self._next.get(kind, 0.0):
                self._unreported[kind] += 1
                return None
            self._next[kind] = time.monotonic() + self._seconds
            return self._unreported.pop(kind, 0)


def plain(text: str) -> str:
    """A text that came from a store, without what could forge a line of a log."""
    return text if text.isprintable() else "".join(char if char.isprintable() else "?" for char in text)


def one_line(text: str) -> str:
    """A text of a project's own, such as that of an exception, as one line of a log."""
    return text if text.isprintable() else plain(" ".join(text.split()))


# ---- JSON of a store, which others may have written


def json_list(text: bytes | str | None) -> list[Any]:
    """The JSON array in a text; empty without one, or if it cannot be read."""
    found = _json(text)
    return found if isinstance(found, list) else []


def json_object(text: bytes | str | None) -> dict[str, Any]:
    """The JSON object in a text; empty without one, or if it cannot be read."""
    found = _json(text)
    return found if isinstance(found, dict) else {}


def _json(text: bytes | str | None) -> Any:
    try:
        return json.loads(text) if text else None
    except (ValueError, RecursionError):  # it is no JSON, or nested too deeply
        return None


UNREADABLE = (ArithmeticError, AttributeError, TypeError, ValueError, LookupError, RecursionError)
"""What reading the values of such JSON may raise."""


# ---- Forked children: a child must not go on with the work of its parent


def run_in_parent(step: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a project's code: a child that it forks ends where it would return, or raise.

    It ends as a child of ``multiprocessing`` does: with 0, with the code given to ``sys.exit``, or with 1 and a
    traceback; no code of the caller is run in it. It does not use ChildrenEnd, as it is called for every message.
    """
    before = forks.count
    try:
        value = step(*args, **kwargs)
    except BaseException as error:
        if forks.count != before:
            end_child(error)
        raise
    if forks.count != before:
        end_child(None)
    return value


class _Forks:
    """By how many forks this process was made, from the one that imported this."""

    count = 0


forks = _Forks()
os.register_at_fork(after_in_child=lambda: setattr(forks, "count", forks.count + 1))


def handle_signals(numbers: Collection[int], handler: Callable[..., None]) -> None:
    """Handle signals in this process. A forked child does not run our loops, so it gets the earlier handlers back."""
    before = {number: signal.signal(number, handler) for number in numbers}
    mask = threading.local()

    def block() -> None:  # else a signal just behind the fork would call our handler in the child
        mask.was = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)

    def unblock() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask.was)

    def restore() -> None:
        for number, was in before.items():
            if signal.getsignal(number) is handler:
                signal.signal(number, signal.SIG_DFL if was is None else was)
        unblock()

    os.register_at_fork(before=block, after_in_parent=unblock, after_in_child=restore)


class ChildrenEnd:
    """:func:`run_in_parent` as a block, around an await: a child that is forked within ends at the end of the block."""

    def __enter__(self) -> None:
        self._parent = os.getpid()

    def __exit__(self, kind: object, error: BaseException | None, trace: TracebackType | None) -> None:
        if os.getpid() != self._parent:
            end_child(error)


def end_child(error: BaseException | None) -> None:
    """End this process, a forked one, as a child of ``multiprocessing`` ends; no cleanup of its parent runs in it."""
    code = 1
    try:
        code = _code_of(error)
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):
                stream.flush()
    finally:
        os._exit(code)


def _code_of(error: BaseException | None) -> int:
    if error is None:
        return 0
    if not isinstance(error, SystemExit):
        traceback.print_exception(error)
        return 1
    if error.code is None or isinstance(error.code, int):
        return (error.code or 0) & 0xFF
    print(error.code, file=sys.stderr)
    return 1


def descriptor_of(raw: object) -> int | None:
    """The descriptor of a connection's socket; None if it is closed, and for SQLite, which has no socket."""
    fileno = getattr(raw, "fileno", None) or getattr(getattr(raw, "_sock", None), "fileno", None)
    try:
        return None if fileno is None or (number := fileno()) < 0 else number
    except Exception:  # each driver has its own for what is closed
        return None
