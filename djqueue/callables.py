"""What is known of functions that people give, before they are called."""

from __future__ import annotations

import inspect


def takes(func: object, count: int) -> bool:
    """Whether it can be called with so many positional arguments, as far as is known."""
    try:
        inspect.signature(func).bind(*[None] * count)
    except TypeError:  # or not callable at all
        return False
    except ValueError:  # it does not say
        return callable(func)
    return True
