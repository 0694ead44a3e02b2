"""Commands that are given several calls at once."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, Never, Self, Unpack, cast

from asgiref.sync import async_to_sync, sync_to_async
from django.core.exceptions import SynchronousOnlyOperation

from djqueue import conf
from djqueue.enqueueing.command import Call, Command, named_after, refuse_generator, refuse_nested
from djqueue.enqueueing.signatures import misplaced
from djqueue.exceptions import InvalidMessage
from djqueue.flow.limits import MOST, Batch, Concurrency, Route, Throttle, up_to
from djqueue.messages.codecs import Arguments, is_same, is_structured, plain, requested, typed
from djqueue.messages.failures import text_of
from djqueue.policies.options import OPTIONS, CommandOptions
from djqueue.policies.policy import Policy
from djqueue.registry import registry
from djqueue.results import Result
from djqueue.running.context import run_coroutine
from djqueue.running.handlers import HandlerSlot
from djqueue.utils import takes


class BatchFunction(Command[..., Any]):
    """A function that is called with a list of calls. A caller enqueues one call, with its arguments.

    A type checker cannot tell these from the function: it takes any, and handles are ``Result[Any]``.
    """

    batched = True

    def __init__(self, func: Callable, policy: Policy):
        super().__init__(func, policy)
        if not takes(func, 1):
            raise TypeError(f"{self.name} is given a list of calls: write it with one parameter.")
        self._simple = range(1 << 30)

    @staticmethod
    def _signature_of(func: Callable[..., Any]) -> inspect.Signature:
        return inspect.signature(_any_call)

    def item(self, args: tuple, kwargs: dict) -> Any:
        """One call as an item of the batch: its argument if it has just one, else the whole call."""
        return args[0] if len(args) == 1 and not kwargs else Call(args, kwargs)

    def as_made(self, call: Arguments) -> Arguments:
        args, kwargs = call
        return args[0] if len(args) == 1 and not kwargs and isinstance(args[0], Call) else call

    def perform(self, items: Sequence[Any], lane: str, slot: HandlerSlot) -> Any:
        """Run a batch; what it returns, or a coroutine of that."""
        return self.func(list(items))


def _any_call(*args: Any, **kwargs: Any) -> None:
    """The signature of a call of a batch function: any, as only the function itself knows."""


# ---- What may not be written in a batch command as a class, and what to write instead

ROUTED = {"shard", "priority", "batch", "batch_size"}
"""Options that are set elsewhere here: the shard and the priority by route(), batch by batch_size."""
ROUTE_SAYS = (
    "of a BatchCommand, route() says the thread and the priority of each request, and batch_size, an attribute of its "
    "class, the most of a batch."
)
ROUTE_IS_THE_KEY = (
    "{given}: route() is the key of a BatchCommand, it says to which thread a request goes, and a thread runs one "
    "batch at a time. Give only limits without key, which are for the whole command."
)
_SQUASHED = {"batchsize": "batch_size", "priorities": "priorities", "option": "options"}


def refuse_strangers(cls: type) -> None:
    """Raises TypeError for attributes of a class that are named like options, but have no effect here."""
    for name in vars(cls):
        meant = _SQUASHED.get(name.replace("_", "").lower(), name)
        if name in OPTIONS and name in ROUTED:
            raise TypeError(f"{cls.__qualname__}.{name}: {ROUTE_SAYS}")
        if name in OPTIONS:
            raise TypeError(
                f"{cls.__qualname__}.{name} means nothing: put it into options = {{{name!r}: …}}, or give it another "
                "name if it is no option."
            )
        if meant != name:
            raise TypeError(f"{cls.__qualname__}.{name} means nothing: did you mean {meant!r}?")


def refuse_routed(options: Mapping[str, Any], declared: Policy | None = None) -> None:
    """Raises TypeError for options that are set elsewhere, ValueError for limits that would take another key.

    ``declared`` are the options that they change.
    """
    if elsewhere := sorted(ROUTED & options.keys()):
        raise TypeError(f"{', '.join(elsewhere)}: {ROUTE_SAYS}")
    given = options.get("throttle")
    for one in given if isinstance(given, list | tuple) else (given,):
        if isinstance(one, Throttle) and one.key is not None:
            raise ValueError(ROUTE_IS_THE_KEY.format(given=f"Throttle({one.limit}, {one.window:g}, key=…)"))
    concurrency = options.get("concurrency")
    if isinstance(concurrency, Concurrency) and concurrency.key is not None:
        raise ValueError(ROUTE_IS_THE_KEY.format(given=f"Concurrency({concurrency.limit}, key=…)"))
    if all(options.get(name, getattr(declared, name, None)) is not None for name in ("key", "concurrency")):
        raise ValueError(ROUTE_IS_THE_KEY.format(given="key= of concurrency="))


def method_of(cls: type[BatchCommand]) -> Callable[..., Any]:
    """What it does with a batch. Raises TypeError if that is not written, or twice, or takes no batch."""
    name = "handle" if cls.perform is BatchCommand.perform else "perform"
    method: Callable[..., Any] = getattr(cls, name)
    if name == "perform" and cls.handle is not BatchCommand.handle:
        raise TypeError(
            f"{cls.__qualname__} has both perform() and handle(), which are two names of the same method: keep the one "
            "that is given a batch, and give the other one another name."
        )
    if method is BatchCommand.handle:
        raise TypeError(f"{cls.__qualname__} has neither perform() nor handle(): write perform(self, *requests).")
    refuse_generator(method)
    if not takes(method, MOST + 1):
        raise TypeError(
            f"{cls.__qualname__}.{name}() is given all requests of a batch, each as an argument: write "
            f"{name}(self, *requests)."
        )
    return method


def size_of(cls: type[BatchCommand]) -> Batch:
    """Its batch_size. Raises TypeError for a method, ValueError for a number that makes no sense."""
    size: Any = cls.batch_size
    if size is None or isinstance(size, Batch):
        return size or Batch()
    if callable(size):
        raise TypeError(f"{cls.__qualname__}.batch_size is a function: give a number, as in batch_size = 64.")
    return Batch(up_to(size, f"{cls.__qualname__}.batch_size"))


class BatchCommand:
    """A command whose objects are given batches of requests: subclass it and write :meth:`perform`.

    Requests of one thread run in order, higher priorities first, and no two batches of a thread at once. A
    worker that takes a thread makes an object, starts it, and keeps it for as long as it stays with that thread;
    another consumer may keep another one meanwhile. All methods may be async. Subclassing registers; what is
    declared with ``class Base(BatchCommand, abstract=True)`` is not registered itself. A type checker takes any
    request, and handles are ``Result[Any]``.
    """

    options: ClassVar[dict[str, Any]] = {}
    """The options of :func:`~djqueue.decorators.queue_command`, but for ``shard``, ``priority`` and ``batch``.
    ``idle_timeout`` is one too: how long a worker keeps an object when nothing comes for its thread."""
    priorities: ClassVar[Sequence[int] | None] = None
    """The priorities that :meth:`route` may return, the highest first; None for any."""
    batch_size: ClassVar[int | Batch | None] = None
    """The most requests of a batch, or a Batch, which also sets how many to wait for; None: QUEUE_BATCH_SIZE."""

    def __init_subclass__(cls, abstract: bool = False, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        refuse_nested(cls)
        refuse_strangers(cls)
        if not abstract:
            registry.register(HandlerCommand(cls))

    # ---- what subclasses write

    @classmethod
    def create(cls) -> Any:
        """Make the object that a worker will keep."""
        return cls()

    @classmethod
    def route(cls, *requests: Any) -> list[Route]:
        """Where each request goes: to which thread, with which priority there."""
        return [Route() for _ in requests]

    def start(self) -> Any:
        """Called once when a worker takes the thread, before the first batch."""

    def perform(self, *requests: Any) -> Any:
        """Do the work of a batch; returns None, or a list of what became of each: a result or an exception.

        If it raises, all of them failed with that exception; PartialFailure names some that failed. By default it calls
        ``handle``, another name for it.
        """
        return self.handle(*requests)

    def handle(self, *requests: Any) -> Any:
        """Another name for :meth:`perform`."""
        raise NotImplementedError(f"{type(self).__name__} must write perform().")

    def stop(self) -> Any:
        """Called once when the worker leaves the thread, also after an exception in :meth:`perform`."""

    # ---- what others call

    @classmethod
    def command(cls) -> HandlerCommand:
        """The command that is registered for this class."""
        return cast(HandlerCommand, registry[f"{cls.__module__}.{cls.__qualname__}"])

    @classmethod
    def enqueue(cls, *requests: Any, **options: Never) -> list[Result[Any]]:
        """Send requests, all of them or none; returns their handles. Options are given to :meth:`using`.

        Raises ValueError if :meth:`route` does not say of each where it goes, or says a priority that is none of
        :attr:`priorities`, or if they are more than the queue takes in one step; and what :meth:`Command.enqueue`
        raises.
        """
        return cls.command().enqueue(*requests, **options)

    @classmethod
    async def aenqueue(cls, *requests: Any, **options: Never) -> list[Result[Any]]:
        """:meth:`enqueue` for async code."""
        return await sync_to_async(cls.enqueue)(*requests, **options)

    @classmethod
    def using(cls, **options: Unpack[CommandOptions]) -> HandlerCommand:
        """This command with other options: ``Notify.using(delay=30).enqueue(one, two)``."""
        return cls.command().using(**options)


class HandlerCommand(BatchFunction):
    """The registered command of a batch command as a class."""

    whole = kept = True

    def __init__(self, handler: type[BatchCommand]):
        self.handler = handler
        refuse_routed(handler.options)
        listed = handler.priorities
        if listed is not None and (not listed or list(listed) != sorted(set(listed), reverse=True)):
            raise ValueError(f"{handler.__qualname__}.priorities is {listed!r}: list each once, the highest first.")
        method = method_of(handler)
        policy = Policy.of(**handler.options, shard=0, batch=size_of(handler))  # route() sets the shard of each request
        self._method = method
        super().__init__(named_after(handler, lambda requests: self._run_here(requests), method), policy)
        self.is_async = inspect.iscoroutinefunction(method)

    @cached_property
    def kinds(self) -> dict[str, type]:
        """The classes of its requests by name, if its annotations name them."""
        return requested(self._method)

    def using(self, *given: Never, **options: Unpack[CommandOptions]) -> Self:
        refuse_routed(options, self.policy)
        return super().using(*given, **options)

    def enqueue(self, /, *requests: Any, **options: Never) -> list[Result[Any]]:  # type: ignore[override]  # several at once
        """Send requests; see :meth:`BatchCommand.enqueue`."""
        if options:
            raise TypeError(f"{self.name}: requests are given by position{misplaced(self.__name__, (), options)}")
        return self.enqueue_many([(request,) for request in requests])

    __call__ = enqueue  # type: ignore[assignment]

    def item(self, args: tuple, kwargs: dict) -> Any:
        """The request that a call carries: itself, or its fields and the name of its class. Raises InvalidMessage."""
        try:
            fields, *names = args
            return typed(self.kinds[names[0]], fields) if names else fields
        except Exception as error:
            raise InvalidMessage(f"no request: {type(error).__name__}: {text_of(error)}") from error

    def as_made(self, call: Arguments) -> Arguments:
        return (self.item(*call),), {}

    def identity(self, call: Arguments, policy: Policy) -> tuple[dict[str, object], object]:
        request = self.item(*call)
        return {"request": plain(request)}, policy.guard_key(request) if policy.guard_key else None

    def perform(self, items: Sequence[Any], lane: str, slot: HandlerSlot) -> Any:
        return slot.bind((self.name, lane), self.handler.create, self.policy.idle_seconds).perform(*items)

    def _run_here(self, requests: Sequence[Any]) -> Any:
        slot = HandlerSlot()
        try:
            value = self.perform(requests, "", slot)
            return run_coroutine(slot.await_, value) if inspect.iscoroutine(value) else value
        finally:
            slot.release()

    def prepared(self, calls: Sequence[Arguments], policy: Policy) -> list[tuple[Arguments, Policy]]:
        """Each call as it is sent, with the options of its thread."""
        for args, kwargs in calls:
            if len(args) != 1 or kwargs:
                raise TypeError(f"{self.name}: a request is one argument.")
        requests = [args[0] for args, _ in calls]
        routes = self._routes(requests)
        routed = {route: policy.using(shard=route.thread, priority=route.priority) for route in dict.fromkeys(routes)}
        serializer = policy.serializer or conf.get("QUEUE_SERIALIZER")
        carried = [Call((one,)) if serializer == "pickle" else self._in_fields(one) for one in requests]
        return [(call, routed[route]) for call, route in zip(carried, routes, strict=True)]

    def prepared_again(self, call: Arguments, policy: Policy) -> list[tuple[Arguments, Policy]]:
        return self.prepared([((self.item(*call),), {})], policy)

    def _routes(self, requests: Sequence[Any]) -> list[Route]:
        if not requests:
            return []
        routes = self.handler.route(*requests)
        if inspect.iscoroutine(routes):
            routes = self._awaited(routes)
        if not isinstance(routes, list | tuple) or not all(isinstance(route, Route) for route in routes):
            raise TypeError(f"{self.name}: route() returned {routes!r}: return a list of Route.")
        if len(routes) != len(requests):
            raise ValueError(f"{self.name}: route() returned {len(routes)} routes for {len(requests)} requests.")
        allowed = self.handler.priorities
        said: set[Any] = {route.priority for route in routes}
        if strange := said - set(allowed or said):
            raise ValueError(f"{self.name}: route() said the priorities {sorted(strange)}; priorities is {allowed!r}.")
        return routes

    def _awaited(self, routes: Coroutine) -> Any:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return async_to_sync(_waited_for)(routes)
        routes.close()
        raise SynchronousOnlyOperation(
            f"{self.name}: route() is async, and nothing can wait for it in the thread of an event loop. In async "
            f"code: await {self.__name__}.aenqueue(...)"
        )

    def _in_fields(self, request: Any) -> Call:
        """A request as its fields, for a serializer that carries no classes."""
        name, fields = type(request).__qualname__, plain(request)
        if not is_structured(type(request)):
            self._refuse_change(request, fields)
            return Call((fields,))
        if self.kinds.get(name) is not type(request):
            raise TypeError(
                f"{self.name}: perform() does not say that it takes {name}, so it is unknown what to make of its "
                f"fields: write *requests: {name}, or use serializer='pickle'."
            )
        self._refuse_change(request, typed(self.kinds[name], fields))
        return Call((fields, name))

    def _refuse_change(self, request: Any, back: Any) -> None:
        if not is_same(request, back):
            raise TypeError(
                f"{self.name}: {type(request).__qualname__} would not arrive as it is: with serializer='json' what "
                "__init__ takes travels, and annotations say what it was. Annotate it with what it holds, or use "
                "serializer='pickle'."
            )


async def _waited_for(coroutine: Coroutine) -> Any:
    return await coroutine
