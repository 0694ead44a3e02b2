"""What ``turns.py`` enqueues."""

from djqueue import queue_command


@queue_command
def noop(number, text):
    """Do nothing."""
