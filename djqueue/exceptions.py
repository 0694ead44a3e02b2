"""What can go wrong, as one family: catch QueueError for all of it."""

from django.core.exceptions import ImproperlyConfigured


class QueueError(Exception):
    """The base of every error that djqueue raises of its own accord."""


class UnknownCommand(QueueError):
    """A message names a command that nobody registered here."""


class InvalidMessage(QueueError):
    """A message that cannot be trusted or read; `reason` says why in a few words."""

    def __init__(self, reason: str = "invalid message") -> None:
        super().__init__(reason)
        self.reason = reason


class EncodeError(QueueError, TypeError):
    """Something that cannot be carried in a message; `argument` is its keyword or its position from 0, if known."""

    def __init__(self, message: str = "", argument: int | str | None = None) -> None:
        super().__init__(message)
        self.argument = argument


class MessageTooLarge(QueueError, ValueError):
    """An encoded message is longer than the limit."""


class QueueFull(QueueError):
    """The store refuses to take more."""


class NotSupported(QueueError):
    """The backend cannot do what was asked of it."""


class InvalidQueueError(QueueError, ImproperlyConfigured):
    """The settings name no such queue, or describe one that cannot be built."""


QueueException = QueueError  # the name it had in django-utils
