"""One command for each kind of rate."""

from djqueue import Throttle, queue_command
from tests.faults.commands import recorded


def key_of(key):
    return key


@queue_command(throttle=Throttle(1000, 1))
@recorded
def many(key):
    """Claims bring many at once."""


@queue_command(throttle=Throttle(10, 1))
@recorded
def few(key):
    """The window lasts."""


@queue_command(throttle=Throttle(10, 0.02))
@recorded
def quick(key):
    """The window is over before the next claim."""


@queue_command(throttle=Throttle(10, 1, moderate=True))
@recorded
def spaced(key):
    """One at a time, evenly."""


@queue_command(throttle=Throttle(2, 1, key=key_of))
@recorded
def keyed(key):
    """A rate for each key."""


RATES = {command.__name__: command for command in (many, few, quick, spaced, keyed)}
