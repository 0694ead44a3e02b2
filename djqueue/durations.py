"""Durations, moments and counts as people give them, checked. All errors name the argument."""

from __future__ import annotations

import time
from datetime import datetime, timedelta

from django.conf import settings
from django.utils import timezone

LONGEST = 10**10
"""Seconds; three centuries."""

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def clock() -> float:
    """Seconds, by a clock that nobody sets, and that goes on while the machine sleeps, as leases do at their store."""
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
    """A whole number. Raises ValueError that names the argument."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name} is {value!r}: give a whole number from {least}.")
    return value


def priority(value: object, name: str = "priority") -> int:
    """A priority. Raises TypeError or ValueError that names the argument."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} is {value!r}: give a whole number.")
    if not -(2**31) <= value < 2**31:
        raise ValueError(f"{name} is {value}: give a 32-bit number.")
    return value


def moment(value: object, name: str) -> float:
    """An absolute time as epoch seconds. Raises TypeError or ValueError that names the argument."""
    if not isinstance(value, datetime):
        raise TypeError(f"{name} is {value!r}: give a datetime.")
    if timezone.is_naive(value):
        if settings.USE_TZ:
            raise ValueError(f"{name} is the naive {value!r}, while USE_TZ is on: give an aware datetime.")
        value = timezone.make_aware(value)
    return value.timestamp()
