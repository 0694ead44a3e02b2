"""What tests wait with for work."""

from contextlib import closing


def waited(queue, seconds, beside=()):
    """Whether work may have come to the queue, or to those beside it, within some seconds."""
    with closing(queue.bell(beside)) as bell:
        return bell.wait(seconds)
