"""What may not be written in a batch command as a class, and what to write instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from djqueue.command import refuse_generator
from djqueue.flow.limits import MOST, Batch, Throttle, up_to
from djqueue.policies.options import OPTIONS
from djqueue.policies.policy import Policy
from djqueue.utils import takes

ROUTED = {"shard", "priority", "batch", "batch_size"}
"""Options that have another home here: the shard and the priority are what route() says, batch is batch_size."""
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
    """Raises TypeError for attributes of a class that would mean something elsewhere, and nothing here."""
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


def refuse_disorder(cls: Any) -> None:
    """Raises ValueError for priorities that are no order."""
    listed = cls.priorities
    if listed is not None and (not listed or list(listed) != sorted(set(listed), reverse=True)):
        raise ValueError(f"{cls.__qualname__}.priorities is {listed!r}: list each once, the highest first.")


def refuse_routed(options: dict[str, Any], declared: Policy | None = None) -> None:
    """Raises TypeError for options that have another home, ValueError for limits that would take another key.

    ``declared`` is what they change.
    """
    if elsewhere := sorted(ROUTED & options.keys()):
        raise TypeError(f"{', '.join(elsewhere)}: {ROUTE_SAYS}")
    given = options.get("throttle")
    for one in given if isinstance(given, list | tuple) else (given,):
        if isinstance(one, Throttle) and one.key is not None:
            raise ValueError(ROUTE_IS_THE_KEY.format(given=f"Throttle({one.limit}, {one.window:g}, key=…)"))
    if all(_said(name, options, declared) for name in ("key", "concurrency")):
        raise ValueError(ROUTE_IS_THE_KEY.format(given="key= of concurrency="))


def _said(name: str, options: dict[str, Any], declared: Policy | None) -> bool:
    return options.get(name, getattr(declared, name, None)) is not None


def method_of(cls: Any, base: Any) -> Callable:
    """What it does with a batch. Raises TypeError if that is not written, or twice, or takes no batch."""
    name = "handle" if cls.perform is base.perform else "perform"
    method = getattr(cls, name)
    if name == "perform" and cls.handle is not base.handle:
        raise TypeError(
            f"{cls.__qualname__} has both perform() and handle(), which are two names of the same method: keep the one "
            "that is given a batch, and give the other one a name of its own."
        )
    if method is base.handle:
        raise TypeError(f"{cls.__qualname__} has neither perform() nor handle(): write perform(self, *requests).")
    refuse_generator(method)
    if not takes(method, MOST + 1):
        raise TypeError(
            f"{cls.__qualname__}.{name}() is given all requests of a batch, each as an argument: write "
            f"{name}(self, *requests)."
        )
    return method


def size_of(cls: Any) -> Batch:
    """Its batch_size. Raises ValueError for one that makes no sense."""
    size = cls.batch_size
    if size is None or isinstance(size, Batch):
        return size or Batch()
    return Batch(up_to(size, f"{cls.__qualname__}.batch_size"))
