"""What the operators' commands read from the command line, as types of argparse."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable, Iterable
from functools import wraps
from typing import TypeVar

from djqueue import words
from djqueue.operations.filters import CONDITIONS

T = TypeVar("T")


def argument(parse: Callable[[str], T]) -> Callable[[str], T]:
    """A type for argparse of a function that raises ValueError, so that the text of its error is shown."""

    @wraps(parse)
    def read(text: str) -> T:
        try:
            return parse(text)
        except ValueError as error:
            raise ArgumentTypeError(str(error)) from None

    return read


span = argument(words.parse_span)


@argument
def limit(text: str) -> int:
    """How many an operator wants to see."""
    number = int(text) if text.isdecimal() else 0
    if number < 1:
        raise ValueError(f"{text!r} is no limit: give a whole number from 1.")
    return number


def add_filters(parser: ArgumentParser, moment: str, names: Iterable[str] = CONDITIONS) -> None:
    """Let a command take the conditions of a filter; ages count from ``moment``."""
    for name in names:
        one = CONDITIONS[name]
        parser.add_argument(f"--{name}", metavar=one.metavar, type=argument(one.parse), help=one.help.format(moment))


def add_asking(parser: ArgumentParser, before: str) -> None:
    """Add Django's switch that turns off questions to a command that asks one."""
    help = f"do not ask before {before}"
    parser.add_argument("--noinput", "--no-input", action="store_false", dest="interactive", help=help)


def add_json(parser: ArgumentParser, objects: str = "an object with what was done") -> None:
    """Add the switch for JSON to a command that acts."""
    parser.add_argument("--json", action="store_true", help=f"as JSON: {objects}")
