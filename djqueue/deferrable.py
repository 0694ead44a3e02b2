"""One queue as an object: functions that are deferred into it, and what a loop of one's own needs to run them."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Never, ParamSpec, Self, TypeVar, overload

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
from djqueue.results import Result
from djqueue.running.executor import serve
from djqueue.wiring import queues

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

MAX_ATTEMPTS = 5


class DeferrableCommand(InlineCommand[P, R]):
    """A function that runs inline when it is called, and is enqueued by :meth:`later`."""

    @overload
    def later(self: Command[P, Coroutine[Any, Any, T]], /, *args: P.args, **kwargs: P.kwargs) -> Result[T]: ...
    @overload
    def later(self, /, *args: P.args, **kwargs: P.kwargs) -> Result[R]: ...
    def later(self, /, *args: P.args, **kwargs: P.kwargs) -> Result[Any]:
        """Send one call to the queue. Raises what :meth:`Command.enqueue` raises."""
        return self.enqueue(*args, **kwargs)

    def using(self, *given: Never, **options: Any) -> Self:
        """A copy with other options, also by their old names: ``func.using(delay_seconds=3).later(...)``."""
        return super().using(*given, **_translated(options))


@answering("queue of a Deferrable")
class DeferrableQueue(BaseQueue):
    """The queue of a Deferrable: each verb of the queue but ``pop``, which returned a pair in Deferrable.

    ``envelope, item = queue.pop()`` would take the item and unpack it, without an error if it has two parts.
    """

    def __new__(cls, queue: BaseQueue) -> Self:
        own = object.__new__(cls)
        object.__setattr__(own, "_within", queue)
        return own

    def __init__(self, queue: BaseQueue) -> None:
        """All that it has is the queue within."""

    def __getattribute__(self, name: str) -> Any:
        if name in HINTS["queue of a Deferrable"] or name.startswith("__"):
            return object.__getattribute__(self, name)
        return getattr(object.__getattribute__(self, "_within"), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(object.__getattribute__(self, "_within"), name, value)

    def __len__(self) -> int:
        return len(object.__getattribute__(self, "_within"))


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
        self._defaults: dict[str, Any] = {"queue_name": queue_name, "max_attempts": default_max_attempts}
        if default_error_classes is not None:
            self._defaults["retry_on"] = _listed(default_error_classes)
        Policy.of(**self._defaults)  # so that wrong options are reported here

    @property
    def queue(self) -> BaseQueue:
        """The queue: push, take, touch, complete, flush, stats; its failed queue is ``queue.failed``. It has no pop."""
        return DeferrableQueue(queues[self.queue_name])

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
        policy = Policy.of(**self._defaults).using(**_translated(options))
        return declare(func, policy, DeferrableCommand) if func else lambda f: declare(f, policy, DeferrableCommand)

    # ---- a loop of one's own

    def run_once(self, lease: float | None = None, wait: float = 0.0) -> bool:
        """Run the next message here, if one is there within ``wait`` seconds; whether one was.

        It is held for ``lease`` seconds (the queue's own by default): a function that takes longer calls
        ``current_message().touch()``. An exception of it is judged and settled, and not raised here.
        """
        queue = queues[self.queue_name]
        held = queue.first_of(queue.reserve(1, lease or queue.lease, wait=wait))
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
        """Tell an object what happens to the messages of this queue."""
        register_event_consumer(consumer, self.queue_name)

    def clear_event_consumers(self) -> None:
        """Forget those that were registered for this queue."""
        clear_event_consumers(self.queue_name)


def _translated(options: dict[str, Any]) -> dict[str, Any]:
    """The options under the names that they have here; None means the default."""
    translated: dict[str, Any] = {}
    for name, value in options.items():
        own, as_option = OLD_NAMES.get(name, (name, _same))
        if name != own and own in options:
            raise ValueError(f"{name} is another name of {own}: give one of them.")
        if value is not None:
            translated[own] = as_option(value)
    return translated


def _same(value: Any) -> Any:
    return value


def _listed(value: Any) -> Any:
    """Any iterable of classes; what is none is judged as retry_on."""
    return list(value) if isinstance(value, Iterable) and not isinstance(value, type | str | dict) else value


def _usual_or_none(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"use_exponential_backoff is {value!r}: give True or False; backoff= takes waits.")
    return value


def _or_none(value: Any) -> Any:
    """The value of an option for which 0 meant "none", or a function that may return 0."""
    return (lambda: value() or None) if callable(value) else value or None


OLD_NAMES: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "error_classes": ("retry_on", _listed),
    "use_exponential_backoff": ("backoff", _usual_or_none),
    "ttl_seconds": ("ttl", _or_none),
    "delay_seconds": ("delay", _same),
    "debounce_seconds": ("debounce", _or_none),
    "debounce_always_delay": ("always_delay", _same),
}
"""What Deferrable called the options, and what they are called here."""
