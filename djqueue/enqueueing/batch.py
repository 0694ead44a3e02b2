"""Commands that are given several calls at once."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, ClassVar, Never, Self, Unpack

from asgiref.sync import async_to_sync, sync_to_async
from django.utils.asyncio import async_unsafe

from djqueue import conf
from djqueue.enqueueing.command import Call, Command, CommandClass, named_after
from djqueue.enqueueing.signatures import misplaced
from djqueue.exceptions import InvalidMessage
from djqueue.flow.limits import MOST, Batch, Concurrency, Route, Throttle, up_to
from djqueue.messages.codecs import Arguments
from djqueue.messages.failures import text_of
from djqueue.messages.requests import RequestCodec, plain
from djqueue.policies.options import OPTIONS, CommandOptions
from djqueue.policies.policy import Policy, asked
from djqueue.results import Result
from djqueue.running.context import run_coroutine
from djqueue.running.handlers import HandlerSlot
from djqueue.utils import takes


class BatchFunction(Command[..., Any]):
    """A function that is called with a list of calls. A caller enqueues one call, with its arguments.

    A type checker cannot derive these from the function: it takes any, and handles are ``Result[Any]``.
    """

    batched = True
    call_signature = inspect.signature(lambda *args, **kwargs: None)

    def __init__(self, func: Callable, policy: Policy):
        super().__init__(func, policy)
        if not takes(func, 1):
            raise TypeError(f"{self.name} is given a list of calls: write it with one parameter.")

    def item(self, args: tuple, kwargs: dict) -> Any:
        """One call as an item of the batch: its argument if it has just one, else the whole call."""
        return args[0] if len(args) == 1 and not kwargs else Call(args, kwargs)

    def as_made(self, call: Arguments) -> Arguments:
        args, kwargs = call
        return args[0] if len(args) == 1 and not kwargs and isinstance(args[0], Call) else call

    def perform(self, items: Sequence[Any], lane: str, slot: HandlerSlot) -> Any:
        """Run a batch; what it returns, or a coroutine of that."""
        return self.func(list(items))


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
            meant = f"put it into options = {{{name!r}: …}}, or give it another name if it is no option."
            raise TypeError(f"{cls.__qualname__}.{name} means nothing: {meant}")
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


class BatchCommand(CommandClass["HandlerCommand"], abstract=True):
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

    def __init_subclass__(cls, **kwargs: Any) -> None:
        refuse_strangers(cls)
        super().__init_subclass__(**kwargs)

    @classmethod
    def _declared(cls) -> HandlerCommand:
        refuse_routed(cls.options)
        listed = cls.priorities
        if listed is not None and (not listed or list(listed) != sorted(set(listed), reverse=True)):
            raise ValueError(f"{cls.__qualname__}.priorities is {listed!r}: list each once, the highest first.")
        policy = Policy.of(**cls.options, shard=0, batch=size_of(cls))  # route() sets the shard of each request
        return HandlerCommand(cls, policy)

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

    def __init__(self, handler: type[BatchCommand], policy: Policy):
        method = method_of(handler)
        super().__init__(named_after(handler, lambda requests: self._run_here(requests), method), policy)
        self.handler = handler
        self.codec = RequestCodec(self.name, method)

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
        """The request that a call carries. Raises InvalidMessage."""
        try:
            return self.codec.loads(*args)
        except Exception as error:
            raise InvalidMessage(f"no request: {type(error).__name__}: {text_of(error)}") from error

    def as_made(self, call: Arguments) -> Arguments:
        return (self.item(*call),), {}

    def identity(self, call: Arguments, policy: Policy) -> tuple[dict[str, object], object]:
        request = self.item(*call)
        key = policy.guard_key
        return {"request": plain(request)}, asked(key, ((request,), {}), self.name) if key else None

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
        carried = [Call((one,) if serializer == "pickle" else self.codec.dumps(one)) for one in requests]
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
        async def ended() -> Any:
            return await routes

        why = (
            f"{self.name}: route() is async, and nothing can wait for it in the thread of an event loop. In async "
            f"code: await {self.__name__}.aenqueue(...)"
        )
        try:
            return async_unsafe(why)(async_to_sync(ended))()
        finally:
            routes.close()  # which nothing awaits if that is refused
