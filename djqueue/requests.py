"""Requests of batch commands as plain values, for codecs that carry no classes, and back by their annotation."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints


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
    origin = get_origin(kind)
    if origin in (Union, UnionType):
        return _one_of(get_args(kind), value)
    if origin in (list, tuple) and isinstance(value, origin):
        return origin(typed(one, item) for one, item in zip(_items(kind, len(value)), value, strict=True))
    if origin is dict and isinstance(value, dict):
        return {name: typed(get_args(kind)[1], one) for name, one in value.items()}
    if not is_structured(kind) or not isinstance(value, dict):
        return value
    if _is_model(kind):
        return kind.model_validate(value)
    hints = get_type_hints(kind)
    return kind(**{name: typed(hints.get(name, Any), one) for name, one in value.items()})


def _one_of(kinds: Sequence[Any], value: Any) -> Any:
    """What has fields is known by their names."""
    if not isinstance(value, dict):
        return value
    fitting = [kind for kind in kinds if is_structured(kind) and value.keys() == set(_fields(kind))]
    if len(fitting) > 1:
        raise TypeError(f"{' and '.join(kind.__name__ for kind in fitting)} have the same fields")
    return typed(fitting[0], value) if fitting else value


def _items(kind: Any, count: int) -> tuple[Any, ...]:
    said = get_args(kind)
    return said if get_origin(kind) is tuple and Ellipsis not in said else (said[0],) * count


def _fields(kind: type) -> tuple[str, ...]:
    if _is_model(kind):
        return tuple(kind.model_fields)
    return kind._fields if _is_named_tuple(kind) else tuple(one.name for one in fields(kind) if one.init)


def _is_named_tuple(kind: type) -> bool:
    return issubclass(kind, tuple) and isinstance(getattr(kind, "_fields", None), tuple)


def _is_model(kind: Any) -> bool:
    """Of pydantic: if nobody has loaded it, it is none."""
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and isinstance(kind, type) and issubclass(kind, pydantic.BaseModel)
