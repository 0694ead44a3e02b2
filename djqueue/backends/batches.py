"""Values by as many as one call to a store takes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def slices(values: Iterable[T], most: int) -> Iterator[list[T]]:
    """So many at a time. What the values are is settled when this is called, not in between."""
    values = list(values)
    return (values[first : first + most] for first in range(0, len(values), most))


def portions(values: Iterable[T], most: int, most_bytes: int, size: Callable[[T], int]) -> Iterator[list[T]]:
    """So many, and of so many bytes, at a time; one that is larger goes alone."""
    some, total = [], 0
    for value in values:
        own = size(value)
        if some and (len(some) == most or total + own > most_bytes):
            yield some
            some, total = [], 0
        some.append(value)
        total += own
    if some:
        yield some
