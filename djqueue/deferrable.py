"""One queue as an object: functions that are deferred into it, and what a loop of one's own needs to run them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Never, ParamSpec, Self, TypeVar, cast, overload

from django.utils.functional import SimpleLazyObject

from djqueue import conf, signals
from djqueue.backends.base import BaseQueue, Lease
from djqueue.decorators import declare
from djqueue.enqueueing.command import Command, InlineCommand
from djqueue.hints import HINTS, answering
from djqueue.messages.metadata import (
    MetadataProducerConsumer,
    clear_event_consumers,
    clear_metadata_producer_consumers,
    register_event_consumer,
    register_metadata_producer_consumer,
)
from djqueue.policies.policy import Policy
from djqueue.running.executor import serve
from djqueue.utils import flag
from djqueue.wiring import queues

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

MAX_ATTEMPTS = 5


class DeferrableCommand(InlineCommand[P, R]):
    """A function that runs inline when it is called, and is enqueued by :meth:`later`."""

    later = Command.enqueue

    def using(self, *given: Never, **options: Any) -> Self:
        """A copy with other options, also by their old names: ``func.using(delay_seconds=3).later(...)``."""
        return super().using(*given, **_translated(options))


@answering("queue of a Deferrable")
class DeferrableQueue(SimpleLazyObject):
    """The queue of a Deferrable: each verb of the queue but ``pop``, which returned a pair in Deferrable.

    ``envelope, item = queue.pop()`` would take the item and unpack it, without an error if it has two parts.
    """

    def __getattr__(self, name: str) -> Any:
        if name in HINTS["queue of a Deferrable"]:
            return object.__getattribute__(self, name)  # which raises the hint
        return super().__getattr__(name)


@answering("Deferrable")
class Deferrable:
    """Functions deferred into one queue, and what it takes to run them in a loop of one's own.

    ``queue_name`` is an alias of QUEUES; the default options count for functions that do not give their own. Nothing
    connects, and no setting is read, until a function is deferred or a message is run.
    """

    def __init__(
        self,
        queue_name: str = conf.DEFAULT_ALIAS,
        default_error_classes: Iterable[type[BaseException]] | None = None,
        default_max_attempts: int = MAX_ATTEMPTS,
        **unknown: Never,
    ):
        if unknown:
            raise TypeError(
                f"Deferrable({next(iter(unknown))}=…): give an alias of QUEUES; backends are described there. "
                "It also takes default_error_classes and default_max_attempts."
            )
        if not isinstance(queue_name, str):
            raise TypeError(f"Deferrable({queue_name!r}): give an alias of QUEUES; backends are described there.")
        self.queue_name = queue_name
        defaults = {"queue_name": queue_name, "max_attempts": default_max_attempts}
        self._policy = Policy.of(**defaults, retry_on=default_error_classes)

    @property
    def queue(self) -> BaseQueue:
        """The queue: push, take, touch, complete, flush, stats; its failed queue is ``queue.failed``. It has no pop."""
        queue = queues[self.queue_name]
        return cast(BaseQueue, DeferrableQueue(lambda: queue))

    # ---- functions

    @overload
    def deferrable(self, func: Callable[P, R], /) -> DeferrableCommand[P, R]: ...
    @overload
    def deferrable(self, **options: Any) -> Callable[[Callable[P, R]], DeferrableCommand[P, R]]: ...
    def deferrable(self, func=None, /, **options):
        """Let a function of a module be deferred: ``func.later(...)`` enqueues, ``func(...)`` runs it here and now.

        Bare, or with the options of :func:`~djqueue.decorators.queue_command`. The options of Deferrable have their old
        names too: ``error_classes``, ``max_attempts``, ``use_exponential_backoff``, ``ttl_seconds``,
        ``delay_seconds``, ``debounce_seconds``, ``debounce_always_delay``. Raises as queue_command does.
        """
        if isinstance(func, type):
            raise TypeError(f"deferrable() takes a function, not {func!r}; give exceptions as error_classes=[...].")
        policy = self._policy.using(**_translated(options))
        return declare(func, policy, DeferrableCommand) if func else lambda f: declare(f, policy, DeferrableCommand)

    # ---- a loop of one's own

    def run_once(self, lease: float | None = None, wait: float = 0.0) -> bool:
        """Run the next message here, if one is there within ``wait`` seconds; whether one was.

        It is held for ``lease`` seconds (the queue's own by default): a function that takes longer calls
        ``current_message().touch()``. An exception of it is judged and settled, and not raised here.
        """
        queue = queues[self.queue_name]
        held = next(iter(queue.reserve(1, lease or queue.lease, wait=wait)), None)
        if held is None:
            signals.emit(signals.empty, queue.alias, queue_name=queue.alias)
        else:
            self.process(held)
        return held is not None

    def process(self, lease: Lease) -> None:
        """Run a message that ``queue.claim`` or ``queue.reserve`` gave, and settle it."""
        verdict = serve(queues[self.queue_name], lease)
        if isinstance(verdict.exception, KeyboardInterrupt):  # it is back in the queue, and the loop is to end
            raise verdict.exception

    # ---- events and metadata

    def register_metadata_producer_consumer(self, carrier: MetadataProducerConsumer) -> None:
        """Have it carry metadata in this queue. Raises ValueError if its NAMESPACE is taken."""
        register_metadata_producer_consumer(carrier, self.queue_name)

    def clear_metadata_producer_consumers(self) -> None:
        """Forget those that were registered for this queue."""
        clear_metadata_producer_consumers(self.queue_name)

    def register_event_consumer(self, consumer: object) -> None:
        """Notify an object of what happens to the messages of this queue."""
        register_event_consumer(consumer, self.queue_name)

    def clear_event_consumers(self) -> None:
        """Forget those that were registered for this queue."""
        clear_event_consumers(self.queue_name)


OLD_NAMES = {
    "error_classes": "retry_on",
    "use_exponential_backoff": "backoff",
    "ttl_seconds": "ttl",
    "delay_seconds": "delay",
    "debounce_seconds": "debounce",
    "debounce_always_delay": "always_delay",
}
"""What Deferrable called the options, and what they are called here."""
_NONE_IF_0 = ("ttl_seconds", "debounce_seconds")


def _translated(options: dict[str, Any]) -> dict[str, Any]:
    """The options under the names that they have here; None means the default."""
    translated: dict[str, Any] = {}
    for name, value in options.items():
        own = OLD_NAMES.get(name, name)
        if name != own and own in options:
            raise ValueError(f"{name} is another name of {own}: give one of them.")
        if name == "use_exponential_backoff" and value is not None:
            flag(value, name)
        if value is not None:
            translated[own] = _or_none(value) if name in _NONE_IF_0 else value
    return translated


def _or_none(value: Any) -> Any:
    """The value of an option for which 0 meant "none", or a function that may return 0."""
    return (lambda: value() or None) if callable(value) else value or None
