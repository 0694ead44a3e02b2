"""What happens to a message, as Django signals.

They are sent with ``send_robust``: a receiver that raises is logged and changes nothing. The sender is the command's
name. All of them carry ``id`` (the message's) and ``queue_name`` (the alias), and the values named with each.
"""

from __future__ import annotations

import logging

from django.dispatch import Signal

from djqueue.utils import log_safely, run_in_parent

logger = logging.getLogger(__name__)

debounced = Signal()
"""A debounced call was not put: a waiting call counts for it too."""
debounce_missed = Signal()
"""A debounced call counts, and was put, now or with a delay. Sent before ``enqueued``."""
debounce_failed = Signal()
"""It could not be decided whether a debounced call counts, so it was put: ``exception``."""
refused = Signal()
"""A call was not put, as an equal one of a ``unique`` command is there."""
enqueued = Signal()
"""The queue has accepted it."""
enqueue_failed = Signal()
"""It could not be sent after the transaction had committed: ``exception``."""
empty = Signal()
"""A consumer found nothing, the first time since it began or found something (sender: the queue's alias; no ``id``)."""
claimed = Signal()
"""A worker has taken it: ``attempt``."""
started = Signal()
"""The worker begins to run it: ``attempt``. What is expired, or cannot be run here, is claimed and not started."""
completed = Signal()
"""It ran to its end: ``attempt``, ``value``, ``seconds``."""
retried = Signal()
"""It went back to be run again: ``attempt``, ``exception`` (None if it asked for that), ``reason``, ``delay``."""
expired = Signal()
"""Its time to live was over, so it was not run and is gone: ``attempt``, ``reason``."""
discarded = Signal()
"""The command had it forgotten: ``attempt``, ``reason``."""
failed = Signal()
"""It went to the failed queue: ``attempt``, ``exception`` (or None), ``reason``."""
paused = Signal()
"""Its retries are over, and its shard is paused at it until it is resumed: ``attempt``, ``exception``, ``reason``."""
released = Signal()
"""It went back to run later, which counts as no failure (shutdown, unknown command, throttled): ``reason``."""
lease_lost = Signal()
"""The worker's lease had run out when it settled the message: another worker may hold it now."""
errors_dropped = Signal()
"""Entries left a failed queue by its bounds (sender: the queue's alias; no ``id``): ``count``."""
consumer_started = Signal()
"""A consumer has begun (sender: the Consumer)."""
consumer_stopping = Signal()
"""A consumer takes no more work (sender: the Consumer)."""


def emit(signal: Signal, sender: object, **named) -> None:
    """Call the receivers. Their exceptions are logged, and change nothing; a child that they fork ends there."""
    if not signal.receivers:
        return
    try:
        run_in_parent(signal.send_robust, sender, **named)
    except BaseException:  # sys.exit() in a receiver
        log_safely(logger, logging.ERROR, "A receiver of a signal tried to end the thread", exc_info=True)
