"""What is known of functions that people give, before they are called."""

from __future__ import annotations

import inspect
from functools import lru_cache


def takes(func: object, count: int) -> bool:
    """Whether it can be called with so many positional arguments, as far as is known."""
    try:
        inspect.signature(func).bind(*[None] * count)
    except TypeError:  # or not callable at all
        return False
    except ValueError:  # it does not say
        return callable(func)
    return True


def as_asked(func: object, signature: inspect.Signature, call: tuple[tuple, dict]) -> tuple[tuple, dict]:
    """The arguments of a call of that signature as ``func``, which is asked about them, takes them.

    That is as they came; but ``lambda user, **_: user`` is given all by name, where some came by position.
    """
    args, kwargs = call
    kinds = [parameter.kind for parameter in signature.parameters.values()] if args and callable(func) else []
    if _VARIOUS in kinds or not _wants_names(func, kinds.count(_EITHER)):
        return call
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    return (), bound.arguments


@lru_cache(1024)
def _wants_names(func: object, count: int) -> bool:
    """Whether it cannot be given so many arguments by position, and takes any by name."""
    try:
        kinds = [parameter.kind for parameter in inspect.signature(func).parameters.values()] if count else []
    except (TypeError, ValueError):  # it does not say
        return False
    positional = kinds.count(_EITHER) + kinds.count(inspect.Parameter.POSITIONAL_ONLY)
    return inspect.Parameter.VAR_KEYWORD in kinds and _VARIOUS not in kinds and positional < count


_EITHER, _VARIOUS = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.VAR_POSITIONAL
