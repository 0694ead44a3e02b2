"""A module that is imported only when a message names one of its commands."""

from djqueue import queue_command


@queue_command
def later(number=0):
    pass
