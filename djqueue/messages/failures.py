"""What went wrong with an entry, attempt by attempt: a JSON list that travels with it."""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import json
import math
import os
import socket
import traceback
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import Any

import asgiref

LONGEST_TRACEBACK = 16_384  # characters kept of one attempt
LONGEST_REASON = 1000  # characters, also for an exception's own text
MOST_RECORDS = 10

_CAUSE: Any = BaseException.__cause__
_CONTEXT: Any = BaseException.__context__
_TRACEBACK: Any = BaseException.__traceback__
"""The descriptors themselves: they read the true values, even if the class of an exception overrides the names."""

_PACKAGES = asyncio.__file__, concurrent.futures.__file__, asgiref.__file__
MACHINERY = tuple(
    f"{folder}{os.sep}"
    for folder in (os.path.dirname(os.path.dirname(__file__)), *(os.path.dirname(path or "") for path in _PACKAGES))
)
"""The folders of the code that calls commands: djqueue, and what runs coroutines."""
PUT_OFF = "put_off"
"""The key of the record that is no error, but a mark: see :func:`with_put_off`."""


def with_error(
    errors: str,
    *,
    at: float,
    attempt: int,
    reason: str,
    exception: BaseException | None = None,
    owner: str = "",
    description: str = "",
    seconds: float = 0.0,
) -> str:
    """The errors with one more record; the oldest ones give way.

    ``at`` is epoch seconds, ``attempt`` the number of the start, ``owner`` the name of the consumer that ran it,
    ``description`` what the command says of its call, ``seconds`` how long it ran.
    """
    record: dict[str, Any] = {
        "at": to_milliseconds(at),
        "attempt": attempt,
        "reason": reason[:LONGEST_REASON],
        "exception": None if exception is None else f"{_module_of(exception)}.{kind_of(exception)}",
        "text": None if exception is None else text_of(exception)[:LONGEST_REASON],
        "traceback": None if exception is None else _traceback(exception)[-LONGEST_TRACEBACK:],
        "host": socket.gethostname(),
        "consumer": owner,
    }
    if description:
        record["description"] = description
    if seconds:
        record["seconds"] = round(seconds, 3)
    return json.dumps([*errors_of(errors)[1 - MOST_RECORDS :], record])


def to_milliseconds(at: float) -> float:
    """A moment as it is recorded: never later than it was, so that what came next is not before it."""
    return math.floor(at * 1000) / 1000


def errors_of(errors: str) -> list[dict[str, Any]]:
    """The records in the errors of an entry, oldest first. Text of another form is one record with it as reason."""
    return [record for record in _records_of(errors) if PUT_OFF not in record]


def _records_of(errors: str) -> list[dict[str, Any]]:
    try:
        records = json.loads(errors) if errors else []
        if all(isinstance(record, dict) for record in records):
            return list(records)
    except (ValueError, TypeError, RecursionError):
        pass
    return [{"reason": errors[:LONGEST_REASON]}]


def with_put_off(errors: str, attempts: int) -> str:
    """The errors with a mark that a consumer put the entry off before it began, after that number of attempts."""
    return json.dumps([*errors_of(errors), {PUT_OFF: attempts}])


def is_put_off(errors: str, attempts: int) -> bool:
    """Whether the errors have the mark that the entry was put off after that number of attempts."""
    return any(record.get(PUT_OFF) == attempts for record in _records_of(errors)[-1:])


def text_of(exception: BaseException) -> str:
    """The text of an exception, even if its ``__str__`` raises."""
    try:
        return "".join([str(exception)])  # a plain str: the text may be of a derived class, with methods of its own
    except BaseException as error:  # an exception's own methods must not change what becomes of its message
        return f"(its text raises {kind_of(error)})"


def kind_of(exception: BaseException) -> str:
    """The true name of its class, even if the class overrides ``__qualname__``."""
    name: str = type.__dict__["__qualname__"].__get__(type(exception))
    return name


def _module_of(exception: BaseException) -> str:
    module = type.__dict__["__module__"].__get__(type(exception))
    return "".join([module]) if issubclass(type(module), str) else "?"


def _traceback(exception: BaseException) -> str:
    try:
        return "".join(["".join([line]) for line in traceback.format_exception(exception)])
    except BaseException as error:
        return f"{kind_of(exception)} (its traceback raises {kind_of(error)})"


# ---- Whose frames a traceback shows


def begin_at_the_command(exception: BaseException) -> None:
    """Take the frames that led to the command out of its traceback, and of the exceptions behind it.

    What the command called stays, be it a function of djqueue. An exception of djqueue itself keeps no frame.
    """
    for one in chained([exception]):
        trace = _TRACEBACK.__get__(one)
        while trace is not None and trace.tb_frame.f_code.co_filename.startswith(MACHINERY):
            trace = trace.tb_next
        _TRACEBACK.__set__(one, trace)


def has_frames(exception: BaseException) -> bool:
    """Whether its traceback, or that of an exception behind it, shows any line of code."""
    return any(_TRACEBACK.__get__(one) is not None for one in chained([exception]))


# ---- An exception keeps alive the frames that it went through, and their callers, with all their locals


def chained(exceptions: Iterable[BaseException]) -> Iterator[BaseException]:
    """The exceptions, their causes and contexts, and members of groups; each once, even if classes override these."""
    seen: set[int] = set()
    left: list[BaseException | None] = [*exceptions]
    while left:
        exception = left.pop()
        if exception is None or id(exception) in seen:
            continue
        seen.add(id(exception))
        left += [_CAUSE.__get__(exception), _CONTEXT.__get__(exception)]
        if issubclass(type(exception), BaseExceptionGroup):
            left += BaseExceptionGroup.exceptions.__get__(exception)
        yield exception


def release(exceptions: Iterable[BaseException]) -> None:
    """Clear the locals of all frames that have ended; the lines of the tracebacks stay.

    A frame whose locals lead to its own exception, as in code that judges it, would else live until the next full
    garbage collection, with all objects that its callees held.
    """
    cleared: set[FrameType] = set()
    for exception in chained(exceptions):
        for frame, _ in traceback.walk_tb(_TRACEBACK.__get__(exception)):
            _clear(frame, cleared)


def _clear(frame: FrameType | None, cleared: set[FrameType]) -> None:
    while frame is not None and frame not in cleared and _has_ended(frame):
        frame.clear()
        cleared.add(frame)
        frame = frame.f_back


def _has_ended(frame: FrameType) -> bool:
    """Whether a frame neither runs nor waits: to clear that of a coroutine which caught the exception would end it.

    Only the frame of a call that has ended owns its code and its locals, for the garbage collector too (CPython's
    ``frame_traverse``).
    """
    return any(one is frame.f_code for one in gc.get_referents(frame))
