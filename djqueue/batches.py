"""Commands that are given several calls at once."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from djqueue.command import Call, Command
from djqueue.handlers import Binding
from djqueue.policies.policy import Policy
from djqueue.utils import takes


class BatchFunction(Command):
    """A function that is called with a list of calls. Whoever enqueues gives the arguments of one."""

    batched = True

    def __init__(self, func: Callable, policy: Policy):
        super().__init__(func, policy)
        if not takes(func, 1):
            raise TypeError(f"{self.name} is given a list of calls: write it with one parameter.")
        self._signature, self._simple = inspect.signature(_any_call), range(1 << 30)

    def item(self, args: tuple, kwargs: dict) -> Any:
        """What stands for one call in the batch: its argument if that is all, else the whole call."""
        return args[0] if len(args) == 1 and not kwargs else Call(args, kwargs)

    def perform(self, items: Sequence[Any], lane: str, binding: Binding) -> Any:
        """Run a batch; what it returns, or a coroutine of that."""
        return self.func(list(items))


def _any_call(*args: Any, **kwargs: Any) -> None:
    """What a call of a batch function may look like: only the function itself knows."""
