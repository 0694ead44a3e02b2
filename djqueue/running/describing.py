"""What a call was about, as text for logs, lists and screens. Nothing here raises, whatever the arguments are."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

from djqueue.messages.codecs import Arguments
from djqueue.messages.failures import kind_of
from djqueue.messages.requests import is_structured
from djqueue.messages.requests import plain as in_fields
from djqueue.registry import Runnable
from djqueue.utils import log_safely, plain

logger = logging.getLogger(__name__)

LONGEST = 80
"""Characters of a description."""
LONGEST_VALUE = 200
"""Characters of one argument."""
LONGEST_CALL = 2000
MASK = "***"


def description_of(command: Runnable, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """What the option ``describe`` says of a call: one printable line of at most 80 characters; "" without it.

    If it raises, that is logged at DEBUG and the description is "".
    """
    describe = command.policy.describe
    if describe is None:
        return ""
    try:
        args, kwargs = command.as_asked(describe, command.as_made((args, kwargs)))
        text = describe(*args, **kwargs)
        return "" if text is None else _line(str(text), LONGEST)
    except BaseException as error:  # sys.exit() in it must not change what becomes of the message
        log_safely(logger, logging.DEBUG, "describe of %s failed", plain(command.name), exc_info=error)
        return ""


def arguments_of(command: Runnable, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """A call as code: ``send_receipt(address=***, order=42)``; what the option ``sensitive`` names is masked.

    Arguments have the names of their parameters, long values are cut, and all of it is printable.
    """
    try:
        shown = [_argument(command, *one) for one in _named(command, (args, kwargs))]
    except BaseException as error:  # a request of a batch that is none any more
        shown = [f"<cannot be shown: {kind_of(error)}>"]
    return _line(f"{command.name.rpartition('.')[2]}({', '.join(shown)})", LONGEST_CALL)


def value_of(value: Any) -> str:
    """A value as code, cut if it is long."""
    return _line(_repr(value), LONGEST_VALUE)


def result_of(command: Runnable, value: Any) -> str:
    """What a command has returned, as code; masked if all of the command is sensitive."""
    return MASK if command.policy.sensitive is True else value_of(value)


def _named(command: Runnable, call: Arguments) -> Iterator[tuple[str, str, Any]]:
    """Each argument: its name as it is shown, "" for none, the name of its parameter, "" if not known, its value."""
    args, kwargs = made = command.as_made(call)
    if command.batched and len(args) == 1 and not kwargs and is_structured(type(args[0])):
        made = (), in_fields(args[0])
    try:
        bound = command.bind(made)
    except TypeError:  # the signature was another one when the call was made
        yield from [("", "", value) for value in args] + [(name, name, value) for name, value in kwargs.items()]
        return
    for name, value in bound.arguments.items():
        kind = bound.signature.parameters[name].kind
        if kind is kind.VAR_POSITIONAL:
            yield from (("", "" if command.batched else name, one) for one in value)
        elif kind is kind.VAR_KEYWORD:
            yield from ((own, own if command.batched or own in _names(command) else name, value[own]) for own in value)
        else:
            yield name, name, value


def _names(command: Runnable) -> tuple[str, ...]:
    names = command.policy.sensitive
    return () if isinstance(names, bool) else names


def _argument(command: Runnable, name: str, parameter: str, value: Any) -> str:
    names = _names(command)
    # Where the parameter of a value is not known, it may be one of those that are named.
    hidden = command.policy.sensitive is True or (parameter in names if parameter else bool(names))
    text = MASK if hidden else value_of(value)
    return f"{name}={text}" if name else text


def _repr(value: Any) -> str:
    try:
        return "".join([repr(value)])
    except BaseException as error:
        return f"<{type(value).__name__} whose repr raises {kind_of(error)}>"


def _line(text: str, longest: int) -> str:
    """One printable line of at most that number of characters."""
    line = plain(" ".join(text.split()))
    return line if len(line) <= longest else f"{line[: longest - 1]}…"
