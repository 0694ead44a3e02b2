"""What happens to a message, as Django signals.

They are sent with ``send_robust``: a receiver that raises is logged and changes nothing. The sender is the command's
name. All of them carry ``id`` (the message's) and ``queue_name`` (the alias), and what stands beside each.
"""

from __future__ import annotations

import logging

from django.dispatch import Signal

from djqueue.logs import tell

logger = logging.getLogger(__name__)

enqueued = Signal()
"""The queue has accepted it."""
enqueue_failed = Signal()
"""It could not be sent after the transaction had committed: ``exception``."""
started = Signal()
"""A worker begins to run it: ``attempt``."""
completed = Signal()
"""It ran to its end: ``attempt``, ``value``, ``seconds``."""
failed = Signal()
"""It went to the error queue: ``attempt``, ``exception`` (or None), ``reason``."""
released = Signal()
"""It was given back to run later: ``reason``."""
lease_lost = Signal()
"""What this worker did with it came too late: somebody else holds it now."""
consumer_started = Signal()
"""A consumer has begun (sender: the Consumer)."""
consumer_stopping = Signal()
"""A consumer takes no more work (sender: the Consumer)."""


def emit(signal: Signal, sender: object, **named) -> None:
    """Tell the receivers. What they raise is logged, by Django or here, and changes nothing."""
    try:
        signal.send_robust(sender, **named)
    except BaseException:  # sys.exit() in a receiver
        tell(logger, logging.ERROR, "A receiver of a signal wanted to end the thread", exc_info=True)
