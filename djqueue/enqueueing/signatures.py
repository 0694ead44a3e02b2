"""What the signature of a command says of its options and its calls: which of them cannot fit, and what to write."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from typing import Any

from djqueue.hints import hint
from djqueue.messages.codecs import Arguments
from djqueue.policies.options import OPTIONS
from djqueue.policies.policy import Policy
from djqueue.utils import as_asked, near_and_all, nearest

ASKED = frozenset({"concurrency", "debounce", "describe", "key", "shard", "throttle", "unique"})
"""The options that have a function of a call's arguments."""

_BY_POSITION = inspect.Parameter.POSITIONAL_ONLY
_UNNAMED = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL)
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def refuse_misfits(name: str, signature: inspect.Signature, policy: Policy, call: Arguments | None = None) -> None:
    """Raises ValueError for a fixed key that is the name of a parameter, TypeError for a function that no call fits.

    ``call`` is the one that it must take; None: with all arguments by name.
    """
    call = _whole_call(signature) if call is None else call
    for option, given in _asked(policy):
        if isinstance(given, str) and given in signature.parameters:
            raise ValueError(
                f"{name}: {option} is {given!r}, the name of a parameter, and as a text it is the same for all calls: "
                f"give {_sample(option, [given])}, or another text."
            )
        if callable(given) and call is not None:
            _refuse_misfit(f"{name}: {option}", option, given, signature, call)


def _asked(policy: Policy) -> Iterator[tuple[str, Any]]:
    """What an option has to say of each call: a function of its arguments, or a fixed key; and how it is written."""
    yield from ((option, getattr(policy, option)) for option in ("shard", "key", "describe"))
    yield from ((f"key of {kind}", getattr(policy, f"{kind.lower()}_key")) for kind in _KEYED)
    yield from (("key of Throttle", throttle.key) for throttle in policy.throttle)


_KEYED = ("Concurrency", "Debounce", "Unique")


def _sample(option: str, names: Sequence[str]) -> str:
    value = ", ".join(names) if len(names) == 1 else f"({', '.join(names)})"
    return f"{option.partition(' ')[0]}=lambda {', '.join([*names, '**_'])}: {value}"


def _refuse_misfit(
    what: str, option: str, func: Callable[..., Any], signature: inspect.Signature, call: Arguments
) -> None:
    own = _signature_of(func)
    if own is None:
        return
    args, kwargs = as_asked(func, signature, call)
    try:
        own.bind(*args, **kwargs)
    except TypeError as error:
        raise TypeError(
            f"{what} cannot take the arguments of a call ({error}): name its parameters as those of the command, as in "
            f"{_sample(option, _required(signature))}."
        ) from None


def _required(signature: inspect.Signature) -> list[str]:
    """The names of the required parameters; of the first one if none is."""
    parameters = list(signature.parameters.values())
    return [one.name for one in [one for one in parameters if one.default is one.empty] or parameters[:1]]


def _signature_of(func: Callable[..., Any]) -> inspect.Signature | None:
    """None if it has none, or takes some arguments by position alone, as ``lambda user, *_`` does."""
    try:
        own = inspect.signature(func)
    except (TypeError, ValueError):
        return None
    return None if any(one.kind in _UNNAMED for one in own.parameters.values()) else own


def _whole_call(signature: inspect.Signature) -> Arguments | None:
    """A call with all arguments; None if calls may have any."""
    parameters = signature.parameters.values()
    if any(one.kind in _VARIADIC for one in parameters):
        return None
    by_name = {one.name: None for one in parameters if one.kind is not _BY_POSITION}
    return (None,) * (len(parameters) - len(by_name)), by_name


def refuse_unknown_sensitive(name: str, signature: inspect.Signature, policy: Policy) -> None:
    """Raises ValueError if ``sensitive`` names what is no parameter."""
    parameters, names = signature.parameters, policy.sensitive
    if isinstance(names, bool) or any(one.kind is one.VAR_KEYWORD for one in parameters.values()):
        return
    for one in names:
        if one not in parameters:
            hint = near_and_all(one, parameters)
            raise ValueError(f"{name}: sensitive names {one!r}, which is no parameter; {hint}")


def unexpected(parameters: Mapping[str, inspect.Parameter], kwargs: Mapping[str, Any]) -> str:
    """The first argument of a call that is of no parameter, with the parameter that was probably meant; "" if none is.

    ``inspect`` names what is missing first, though that is what was given under another name.
    """
    if any(one.kind is one.VAR_KEYWORD for one in parameters.values()):
        return ""
    for name in kwargs:
        if name not in parameters:
            meant = nearest(name, set(parameters) - set(kwargs)) or _begun_with(name, set(parameters) - set(kwargs))
            return f"got an unexpected argument {name!r}{f' (did you mean {meant!r}?)' if meant else ''}"
    return ""


def _begun_with(name: str, parameters: Collection[str]) -> str | None:
    alike = [one for one in parameters if one.startswith(name) or name.startswith(one)]
    return alike[0] if len(alike) == 1 else None


def misplaced(command: str, parameters: Container[str], kwargs: Mapping[str, Any], verb: str = "enqueue") -> str:
    """A hint for options among the arguments of a call that does not fit; "" if there are none."""
    strange = [name for name in kwargs if name not in parameters]
    if ours := [name for name in strange if name in OPTIONS]:
        options = ", ".join(f"{name}={_shown(kwargs[name])}" for name in ours)
        are = "is an option" if len(ours) == 1 else "are options"
        return f". {' and '.join(ours)} {are}: write {command}.using({options}).{verb}(...)"
    if theirs := [f"{name}: {said}" for name in strange if (said := hint(name, "option"))]:
        return f". {'; '.join(theirs)}. Options go into {command}.using(...).{verb}(...)"
    return ""


def _shown(value: Any) -> str:
    return repr(value) if isinstance(value, int | float | str) and len(repr(value)) < 40 else "..."
