"""What the benchmarks run."""

from djqueue import Throttle, queue_command
from tests.benchmarks import ledger

TEXT = "some text"


@queue_command
def noted(number, text):
    """A no-op that the ledger knows of."""
    ledger.note(number)


def send(numbers):
    """A call for each."""
    for number in numbers:
        noted(number, TEXT)


def send_many(numbers):
    """One call for all."""
    noted.enqueue_many([(number, TEXT) for number in numbers])


@queue_command
def doze(number):
    """Note its start and, a second later, its end."""
    ledger.doze(number)


# ---- What is followed on its way: see ``path.py``


@queue_command
def plain(name, number):
    """Do nothing."""


tried = set()


@queue_command(max_attempts=2, retry_on=ValueError, backoff=False)
def retried(name, number):
    """Fail at the first start."""
    if name not in tried:
        tried.add(name)
        raise ValueError("once")


@queue_command(throttle=Throttle(10, 1))
def throttled(name, number):
    """Do nothing, ten times a second at most."""
