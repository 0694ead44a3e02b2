"""Requests of batch commands as plain values, for codecs that carry no classes, and back by their annotation."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Mapping, MutableMapping, MutableSequence, Sequence
from dataclasses import fields, is_dataclass
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

_MANY = (list, tuple, Sequence, MutableSequence, Collection, Iterable)
_BY_NAME = (dict, Mapping, MutableMapping)
"""What annotations call lists and tuples, and dictionaries."""


def requested(perform: Callable) -> dict[str, type]:
    """The classes that ``perform(self, *requests: Kind)`` says it takes, of those that have fields; by their names."""
    code = perform.__code__
    kind = get_type_hints(perform).get(code.co_varnames[code.co_argcount + code.co_kwonlyargcount])
    return {one.__qualname__: one for one in (kind, *get_args(kind)) if is_structured(one)}


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
        return _one_of(get_args(kind), value)
    if _is_many(kind, value):
        return type(value)(typed(one, item) for one, item in zip(_items(kind, len(value)), value, strict=True))
    if _is_by_name(kind, value):
        return {name: typed(get_args(kind)[1], one) for name, one in value.items()}
    if not is_structured(kind) or not isinstance(value, dict):
        return value
    if _is_model(kind):
        return kind.model_validate(value)
    hints = get_type_hints(kind)
    return kind(**{name: typed(hints.get(name, Any), one) for name, one in value.items()})


def _one_of(kinds: Sequence[Any], value: Any) -> Any:
    """What has fields is known by their names; a collection is one if there is no other."""
    named = isinstance(value, dict)
    fitting = [kind for kind in kinds if named and is_structured(kind) and value.keys() == set(_fields(kind))]
    if len(fitting) > 1:
        raise TypeError(f"{' and '.join(kind.__name__ for kind in fitting)} have the same fields")
    fitting = fitting or [kind for kind in kinds if _is_many(kind, value) or _is_by_name(kind, value)]
    return typed(fitting[0], value) if len(fitting) == 1 else value


def _is_many(kind: Any, value: Any) -> bool:
    taken = (tuple,) if get_origin(kind) is tuple else (list, tuple)
    return type(value) in taken and get_origin(kind) in _MANY and bool(get_args(kind))


def _is_by_name(kind: Any, value: Any) -> bool:
    return isinstance(value, dict) and get_origin(kind) in _BY_NAME and bool(get_args(kind))


def _items(kind: Any, count: int) -> tuple[Any, ...]:
    said = get_args(kind)
    return said if get_origin(kind) is tuple and Ellipsis not in said else (said[0],) * count


def _fields(kind: Any) -> tuple[str, ...]:
    if _is_model(kind):
        return tuple(kind.model_fields)
    return kind._fields if _is_named_tuple(kind) else tuple(one.name for one in fields(kind) if one.init)


def is_same(value: Any, back: Any) -> bool:
    """Whether a value came back from its fields as what it was, all the way down.

    Parts that know no equality, or whose equality raises, count as the same: nobody could tell.
    """
    if value is back:
        return True
    ours, theirs = _parts(value), _parts(back)
    if ours or theirs:
        alike = type(value) is type(back) and ours.keys() == theirs.keys()
        return alike and all(is_same(one, theirs[name]) for name, one in ours.items())
    if type(value).__eq__ is object.__eq__:
        return type(value) is type(back)
    try:
        return bool(value == back) or bool(value != value)
    except Exception:
        return True


def _parts(value: Any) -> dict[Any, Any]:
    kind = type(value)
    if _is_model(kind):
        return {name: getattr(value, name, None) for name in kind.model_fields} | (value.model_extra or {})
    if is_structured(kind):
        return {name: getattr(value, name, None) for name in _compared(kind)}
    if kind in (list, tuple):
        return dict(enumerate(value))
    return value if kind is dict else {}


def _compared(kind: Any) -> tuple[str, ...]:
    """Its fields, and those that it makes itself, unless they say that they do not matter."""
    return kind._fields if _is_named_tuple(kind) else tuple(one.name for one in fields(kind) if one.init or one.compare)


def _is_named_tuple(kind: type) -> bool:
    return issubclass(kind, tuple) and isinstance(getattr(kind, "_fields", None), tuple)


def _is_model(kind: Any) -> bool:
    """Of pydantic: if nobody has loaded it, it is none."""
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and isinstance(kind, type) and issubclass(kind, pydantic.BaseModel)
