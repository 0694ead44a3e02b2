"""What can be wrong with an operator's request; a front end shows the text.

Errors of queues and commands, such as ``NotSupported``, are raised as they are.
"""

from __future__ import annotations

from djqueue.exceptions import QueueError


class OperationError(QueueError):
    """An operation cannot be done; the text says why, and what to do instead."""


class InvalidInput(OperationError, ValueError):
    """An operator gave an invalid value; the text names it."""


class QueueUnavailable(OperationError):
    """The store of a queue cannot be asked now; the text says which one, and what its checks found."""
