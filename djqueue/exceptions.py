"""What can go wrong, as one family: catch QueueError for all of it."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from itertools import islice
from typing import Never, Self

from django.core.exceptions import ImproperlyConfigured
from django.db.utils import OperationalError, ProgrammingError

from djqueue.utils import seconds


class QueueError(Exception):
    """The base of every error that djqueue itself raises."""


class UnknownCommand(QueueError):
    """A message names a command that is not registered in this process."""


class InvalidMessage(QueueError):
    """A message that cannot be trusted or read; `reason` is why, in a few words."""

    def __init__(self, reason: str = "invalid message") -> None:
        super().__init__(reason)
        self.reason = reason


class BadSignature(InvalidMessage):
    """A message whose signature was not made with SECRET_KEY, nor with one of SECRET_KEY_FALLBACKS."""


class EncodeError(QueueError, TypeError):
    """A value that cannot be carried in a message; `argument` is its name or its position from 0, if known."""

    def __init__(self, message: str = "", argument: int | str | None = None) -> None:
        super().__init__(message)
        self.argument = argument


class MessageTooLarge(QueueError, ValueError):
    """An encoded message is longer than the limit."""


class PartialEnqueueError(QueueError):
    """The store took some messages of a call, and not all of them.

    `accepted` are the ids that it took, `reasons` has by id why it did not take others, and `unsent` are the ids of
    these and of the messages behind them, which were not tried. An id in none of them was refused by its own guard.
    """

    def __init__(
        self, accepted: Sequence[str] = (), reasons: Mapping[str, str] | None = None, untried: Sequence[str] = ()
    ) -> None:
        self.accepted, self.reasons = list(accepted), dict(reasons or {})
        self.unsent = [*self.reasons, *untried]
        shown = "; ".join(f"{id}: {reason}" for id, reason in islice(self.reasons.items(), 3))
        super().__init__(f"{len(self.accepted)} messages were sent and {len(self.unsent)} were not ({shown})")


class NotSupported(QueueError):
    """The backend cannot do what was asked of it."""


class InvalidQueueError(QueueError, ImproperlyConfigured):
    """The settings name no such queue, or describe one that cannot be built."""


class StoreError(QueueError):
    """The store of a queue cannot be used now; the text says which one, why, and the fix, without a password."""

    stops_one = False
    """Whether it stops that queue alone, and no other of the same server."""

    def of_queue(self, alias: str) -> Self:
        """This error, whose text now begins with the queue, and whose traceback begins where it is raised again."""
        text = str(self)
        text = text.replace("The", "the", 1) if text.startswith("The ") else text
        self.args = (f"Queue {alias!r}: {text}", *self.args[1:])
        return self.with_traceback(None)


class StoreUnreachable(StoreError):
    """The server of a store cannot be reached, or does not answer.

    It is also what its driver raises then: a ``ConnectionError`` or ``TimeoutError`` of redis-py, a ``BotoCoreError``,
    Django's ``OperationalError``.
    """


class QueueFull(StoreError):
    """The store refuses to take more, as a Redis server does whose memory is full."""


class TablesMissing(StoreError, OperationalError, ProgrammingError):
    """A database lacks the tables of djqueue. It is also what Django raises then: one of the two, by the database."""


class RateUnreadable(StoreError):
    """What is kept of a rate limit cannot be read: an older version wrote it, or it was changed by hand."""

    stops_one = True


class TimeLimitExceeded(QueueError, TimeoutError):
    """A command ran for longer than its `time_limit`."""


class EventLoopMisused(QueueError, RuntimeError):
    """A command stopped the event loop that it shares with others, broke it off, or cancelled what is not its own."""


# ---- results


class NoResult(QueueError):
    """There is no result, and none will come: it was not asked for, or it could not be kept."""


class ResultTimeout(QueueError, TimeoutError):
    """There is no result yet."""


class CommandFailed(QueueError):
    """The command ended without a result: `status` and `reason` are how, `errors` has the error of each attempt."""

    def __init__(self, reason: str = "", status: str = "failed", errors: list[dict] | None = None) -> None:
        super().__init__(f"{status}: {reason}" if reason else status)
        self.reason, self.status, self.errors = reason, status, errors or []


class CommandExpired(CommandFailed):
    """The time to live of a message was over before it began."""


class CommandCancelled(CommandFailed):
    """A message was cancelled before it ran, or before its next attempt."""


class CommandLost(CommandFailed):
    """The workers of a message died with it, as often as ``max_lost`` allows."""


# ---- what a command raises to decide what becomes of its message


class Retry(QueueError):
    """Run the message again `after` seconds (or a timedelta; None: by the command's backoff). Counts as no failure.

    The wait is a tenth of a second at least, and QUEUE_MAX_STARTS bounds how often. Both arguments may be given by
    position; a text is the reason. Raises TypeError for other arguments.
    """

    after: float | None = None
    reason = ""  # also for a subclass that does not call __init__

    def __init__(
        self,
        *given: float | timedelta | str | None,
        after: float | timedelta | None = None,
        reason: str = "",
        **unknown: Never,
    ) -> None:
        after, reason = _wait_and_reason("Retry", given, unknown, after, reason)
        super().__init__(reason or "asked to be run again")
        self.after = None if after is None else seconds(after, "Retry(after=…)")
        self.reason = str(reason)

    def __reduce__(self) -> tuple:
        return type(self), (self.after, self.reason)


class Throttled(QueueError):
    """Too much just now: run the message, and all that is throttled with it, again in ``retry_after`` seconds.

    Or after a timedelta; None: by the command's backoff. It counts neither as an attempt nor as a failure. Both
    arguments may be given by position; a text is the reason. Raises TypeError for other arguments.
    """

    retry_after: float | None = None
    reason = ""

    def __init__(
        self,
        *given: float | timedelta | str | None,
        retry_after: float | timedelta | None = None,
        reason: str = "",
        **unknown: Never,
    ) -> None:
        retry_after, reason = _wait_and_reason("Throttled", given, unknown, retry_after, reason)
        super().__init__(reason or "throttled")
        self.retry_after = None if retry_after is None else seconds(retry_after, "Throttled(retry_after=…)")
        self.reason = str(reason)

    def __reduce__(self) -> tuple:
        return type(self), (self.retry_after, self.reason)


_Wait = float | timedelta | None


def _wait_and_reason(
    what: str, given: Sequence[_Wait | str], unknown: Mapping[str, object], wait: _Wait, reason: str
) -> tuple[_Wait, str]:
    """The arguments of Retry or Throttled; their types decide which one is given by position."""
    waits: list[_Wait] = [one for one in given if not isinstance(one, str) and one is not None]
    texts = [one for one in given if isinstance(one, str) and one]
    if unknown or len(waits) + (wait is not None) > 1 or len(texts) + bool(reason) > 1:
        name = "after" if what == "Retry" else "retry_after"
        wrong = f"has no argument {next(iter(unknown))!r}" if unknown else "was given more than a wait and a reason"
        raise TypeError(
            f'{what} {wrong}: write {what}({name}=5, reason="the bank is busy"), with seconds or a timedelta.'
        )
    return (waits or [wait])[0], (texts or [reason])[0]


class Discard(QueueError):
    """Forget this message: it is gone, and counts as neither done nor failed."""

    reason = "discarded"

    def __init__(self, reason: str = "") -> None:
        self.reason = str(reason) or self.reason
        super().__init__(self.reason)


class Fail(QueueError):
    """Move this message to the failed queue at once, even if it has retries left."""

    reason = "failed by its command"

    def __init__(self, reason: str = "") -> None:
        self.reason = str(reason) or self.reason
        super().__init__(self.reason)


class PartialFailure(QueueError):
    """Some items of a batch failed: `failed` has their exceptions by index, from 0; the rest is done.

    Raises TypeError for what is no such mapping.
    """

    def __init__(self, failed: Mapping[int, BaseException]) -> None:
        given = failed.items() if isinstance(failed, Mapping) else ()
        whole = all(isinstance(index, int) and isinstance(error, BaseException) for index, error in given)
        if not given or not whole:
            raise TypeError(
                f"PartialFailure({failed!r}): give the exceptions of items by their index, as in "
                "PartialFailure({0: error})."
            )
        self.failed = dict(failed)
        super().__init__(f"{len(self.failed)} items of a batch failed")


QueueException = QueueError  # the name it had in django-utils
