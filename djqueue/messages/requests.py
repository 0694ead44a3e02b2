"""The requests of batch commands as plain values, for serializers that carry no classes, and back by annotations."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Mapping, MutableMapping, MutableSequence, Sequence
from dataclasses import fields, is_dataclass
from functools import cached_property
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

_MANY = (list, tuple, Sequence, MutableSequence, Collection, Iterable)
_BY_NAME = (dict, Mapping, MutableMapping)
"""What annotations call lists and tuples, and dictionaries."""


class RequestCodec:
    """Writes requests as their fields, and makes them again by the annotation of ``perform(self, *requests: Kind)``."""

    def __init__(self, command: str, perform: Callable[..., Any]):
        self._command, self._perform = command, perform

    @cached_property
    def _kinds(self) -> dict[str, type]:
        """The classes with fields in the annotation, by their names."""
        code = self._perform.__code__
        kind = get_type_hints(self._perform).get(code.co_varnames[code.co_argcount + code.co_kwonlyargcount])
        return {one.__qualname__: one for one in (kind, *get_args(kind)) if is_structured(one)}

    def dumps(self, request: Any) -> tuple[Any, ...]:
        """A request as its fields and the name of its class, or as itself. Raises TypeError if it would not arrive."""
        kind, name = type(request), type(request).__qualname__
        carried = (plain(request), name) if is_structured(kind) else (plain(request),)
        if is_structured(kind) and self._kinds.get(name) is not kind:
            raise TypeError(
                f"{self._command}: perform() does not say that it takes {name}, so it is unknown what to make of its "
                f"fields: write *requests: {name}, or use serializer='pickle'."
            )
        if not is_same(request, self.loads(*carried)):
            raise TypeError(
                f"{self._command}: {name} would not arrive as it is: with serializer='json' what __init__ takes "
                "travels, and annotations say what it was. Annotate it with what it holds, or use serializer='pickle'."
            )
        return carried

    def loads(self, carried: Any, name: str | None = None) -> Any:
        """The inverse of :meth:`dumps`. Raises any exception for what does not fit."""
        return carried if name is None else typed(self._kinds[name], carried)


def is_structured(kind: Any) -> bool:
    """Whether it is a class of named tuples, dataclasses, or pydantic models."""
    return isinstance(kind, type) and (is_dataclass(kind) or _is_named_tuple(kind) or _is_model(kind))


def plain(value: Any) -> Any:
    """A request as its fields by name, all the way down; any other value as it is."""
    kind = type(value)
    if _is_model(kind):
        return value.model_dump(by_alias=True, round_trip=True)
    if is_structured(kind):
        return {name: plain(getattr(value, name)) for name in _fields(kind)}
    if kind is list or kind is tuple:
        return kind(map(plain, value))
    return {name: plain(one) for name, one in value.items()} if kind is dict else value


def typed(kind: Any, value: Any) -> Any:
    """The inverse of :func:`plain`, by the kind that was meant. Raises TypeError or ValueError if it does not fit."""
    if get_origin(kind) in (Union, UnionType):
        kind = _one_of(get_args(kind), value)
    if is_structured(kind) and isinstance(value, dict):
        if _is_model(kind):
            return kind.model_validate(value)
        hints = get_type_hints(kind)
        return kind(**{name: typed(hints.get(name, Any), one) for name, one in value.items()})
    kinds = _kinds_within(kind, value)
    if not kinds:
        return value
    if isinstance(value, dict):
        return {name: typed(one, value[name]) for name, one in zip(value, kinds, strict=True)}
    return type(value)(typed(one, item) for one, item in zip(kinds, value, strict=True))


def _one_of(kinds: Sequence[Any], value: Any) -> Any:
    """The one of several kinds that fits. Fields are recognised by their names; a collection if no other kind fits."""
    named = isinstance(value, dict)
    fitting = [kind for kind in kinds if named and is_structured(kind) and value.keys() == set(_fields(kind))]
    if len(fitting) > 1:
        raise TypeError(f"{' and '.join(kind.__name__ for kind in fitting)} have the same fields")
    fitting = fitting or [kind for kind in kinds if _kinds_within(kind, value)]
    return fitting[0] if len(fitting) == 1 else None


def _kinds_within(kind: Any, value: Any) -> Sequence[Any]:
    """The kind of each part of a list, a tuple or a dictionary; none if the annotation does not say it."""
    origin, said = get_origin(kind), get_args(kind)
    if said and origin in _BY_NAME and isinstance(value, dict):
        return (said[1],) * len(value)
    if said and origin in _MANY and type(value) in ((tuple,) if origin is tuple else (list, tuple)):
        return said if origin is tuple and Ellipsis not in said else (said[0],) * len(value)
    return ()


def is_same(value: Any, back: Any) -> bool:
    """Whether a value came back from its fields as what it was, all the way down.

    Parts that know no equality, or whose equality raises, count as the same: there is no way to know.
    """
    ours, theirs = _parts(value), _parts(back)
    if ours or theirs:
        alike = type(value) is type(back) and ours.keys() == theirs.keys()
        return alike and all(is_same(one, theirs[name]) for name, one in ours.items())
    equals: Any = type(value).__eq__
    if equals is object.__eq__:
        return type(value) is type(back)
    try:
        return bool(value == back) or bool(value != value)
    except Exception:
        return True


def _parts(value: Any) -> dict[Any, Any]:
    kind = type(value)
    if is_structured(kind):
        parts = {name: getattr(value, name, None) for name in _fields(kind, compared=True)}
        return parts | (value.model_extra or {}) if _is_model(kind) else parts
    if kind in (list, tuple):
        return dict(enumerate(value))
    return value if kind is dict else {}


def _fields(kind: Any, compared: bool = False) -> tuple[str, ...]:
    """The names of the fields that ``__init__`` takes; ``compared``: and of compared fields that it makes itself."""
    if _is_model(kind):
        return tuple(kind.model_fields)
    if _is_named_tuple(kind):
        return tuple(kind._fields)
    return tuple(one.name for one in fields(kind) if one.init or (compared and one.compare))


def _is_named_tuple(kind: type) -> bool:
    return issubclass(kind, tuple) and isinstance(getattr(kind, "_fields", None), tuple)


def _is_model(kind: Any) -> bool:
    """Whether it is a model of pydantic; without pydantic loaded, no class is."""
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and isinstance(kind, type) and issubclass(kind, pydantic.BaseModel)
