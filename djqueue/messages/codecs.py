"""How the arguments of a call become bytes and come back.

Two serializers, by name in `SERIALIZERS`: `pickle` takes all that pickles; `json` takes a closed list of types and
gives back exactly those. Both raise EncodeError that names the argument which cannot be carried. Neither checks the
origin of the bytes: only djqueue.messages.envelope calls `loads`, after it verified the signature.
"""

from __future__ import annotations

import io
import json
import math
import pickle
import warnings
from binascii import a2b_base64, b2a_base64
from collections.abc import Callable, Iterable, Iterator
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from functools import partial
from typing import Any, Protocol
from uuid import UUID
from zoneinfo import ZoneInfo

from django import db
from django.apps import apps
from django.utils.functional import Promise
from django.utils.safestring import SafeString

from djqueue.exceptions import EncodeError, InvalidMessage

Arguments = tuple[tuple[Any, ...], dict[str, Any]]
"""The arguments of a call: the positional ones, and the keyword arguments."""

PICKLE_PROTOCOL = 5
"""The newest protocol that every supported Python reads."""

MAX_DEPTH = 32
"""How many containers may enclose each other in one JSON argument."""

TRANSIENT = (db.Error, MemoryError)
"""Errors that are not the message's fault: they pass through as they are, so that it can be tried again."""


class Codec(Protocol):
    """One way to write arguments down: dumps raises EncodeError, loads any exception."""

    def dumps(self, args: tuple[Any, ...], kwargs: dict[str, Any], models: str = "pickle") -> bytes: ...
    def loads(self, data: bytes) -> Arguments: ...


def is_model(value: Any) -> bool:
    from django.db.models import Model  # not at import: this module is a leaf

    return isinstance(value, Model)


def reference_to(instance: Any) -> tuple[str, Any, str]:
    """Return (app_label.Model, primary key, database alias) of a saved instance; ValueError for an unsaved one."""
    label, state = instance._meta.label, instance._state
    if state.adding or instance.pk is None:
        raise ValueError(f"this {label} is not in the database; save it before enqueueing")
    return label, instance.pk, state.db or db.DEFAULT_DB_ALIAS


def read_reference(label: str, pk: Any, alias: str) -> Any:
    """Read the row afresh. Stored pickles refer to this function by its name: it cannot be renamed or moved."""
    model = apps.get_model(label)
    try:
        return model._base_manager.using(alias).get(pk=pk)
    except model.DoesNotExist as gone:
        raise InvalidMessage(f"{label} {pk} is gone from the database {alias!r}") from gone


def encode_error(
    dump: Callable[[Any], Any], values: Iterable[tuple[int | str, str, Any]], error: Exception
) -> EncodeError:
    """The error that names the first value which cannot be encoded; each comes with its name and its title.

    ``error`` is what all of them together raised.
    """
    for argument, title, value in values:
        try:
            dump(value)
        except Exception as cause:
            return EncodeError(f"{title} (of type {type(value).__qualname__}) cannot be encoded: {cause}", argument)
    return EncodeError(f"the arguments together cannot be encoded: {error}")


def _arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[tuple[int | str, str, Any]]:
    yield from ((index, f"positional argument {index + 1}", value) for index, value in enumerate(args))
    yield from ((name, f"argument {name!r}", value) for name, value in kwargs.items())


# Pickle


class _ReferencePickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        # Rather than persistent_id: it is not asked about plain values, and an instance met twice stays one object.
        if is_model(value):
            return read_reference, reference_to(value)
        return NotImplemented


def _dump_references(value: Any) -> bytes:
    buffer = io.BytesIO()
    _ReferencePickler(buffer, PICKLE_PROTOCOL).dump(value)
    return buffer.getvalue()


_PLAIN = frozenset({bool, bytes, dict, float, int, list, str, tuple, type(None)})


def _warn_of_rows(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Warn of what pickles, but probably not as it was meant: instances that are in no database, and querysets."""
    for value in (*args, *kwargs.values()):
        if is_model(value) and value._state.adding:
            text = f"a {value._meta.label} that is not saved is sent as it is, and the command gets a copy of it"
            warnings.warn(f"{text}: save it first, or send its values.", RuntimeWarning, 2)
        elif _is_queryset(value):
            text = f"a queryset of {value.model._meta.label} is sent with all its rows, as they are now"
            warnings.warn(f"{text}: send the keys, list(queryset.values_list('pk', flat=True)).", RuntimeWarning, 2)


def _is_queryset(value: Any) -> bool:
    from django.db.models import QuerySet  # not at import: this module is a leaf

    return isinstance(value, QuerySet)


_PICKLERS: dict[str, Callable[[Any], bytes]] = {
    "pickle": partial(pickle.dumps, protocol=PICKLE_PROTOCOL),
    "reference": _dump_references,
}


class PickleCodec:
    """Anything that pickles. Model instances whole, as Django pickles them, or by reference, re-read when decoded."""

    def dumps(self, args: tuple[Any, ...], kwargs: dict[str, Any], models: str = "pickle") -> bytes:
        """Return a pickle of (args, kwargs); `models` is "pickle" or "reference"."""
        if models not in _PICKLERS:
            raise ValueError(f"models={models!r}; choose from {', '.join(_PICKLERS)}")
        dump = _PICKLERS[models]
        if not _PLAIN.issuperset(map(type, args)) or (kwargs and not _PLAIN.issuperset(map(type, kwargs.values()))):
            _warn_of_rows(args, kwargs)
        try:
            return dump((args, kwargs))
        except TRANSIENT:
            raise
        except Exception as error:
            raise encode_error(dump, _arguments(args, kwargs), error) from error

    def loads(self, data: bytes) -> Arguments:
        """Return (args, kwargs). A pickle can run any code: call this for verified bytes only."""
        arguments: Arguments = pickle.loads(data)
        return arguments


# JSON: what has no form in it is {tag: …}, as {"$dict": [[key, value], …]} for a dict that reads so, or has odd keys.


def _is_tag(keys: Any) -> bool:
    return len(keys) == 1 and next(iter(keys)).startswith("$")


class _Writer:
    """Turns values into what the json module carries without loss: exact types only, a subclass would not come back."""

    def __init__(self, models: bool) -> None:
        self.models = models

    def plain(self, value: Any, depth: int) -> Any:
        return _WRITERS.get(type(value), _Writer.other)(self, value, depth)

    def same(self, value: Any, depth: int) -> Any:
        return value

    def number(self, value: float, depth: int) -> float:
        if not math.isfinite(value):
            raise ValueError(f"{value} is not a finite number")
        return value

    def sequence(self, values: Any, depth: int) -> list[Any]:
        if depth >= MAX_DEPTH:
            raise ValueError(f"nested more than {MAX_DEPTH} deep")
        return [self.plain(value, depth + 1) for value in values]

    def mapping(self, value: dict[Any, Any], depth: int) -> dict[Any, Any]:
        values = self.sequence(value.values(), depth)
        if all(type(key) is str for key in value) and not _is_tag(value):
            return dict(zip(value, values, strict=True))
        return {"$dict": [list(pair) for pair in zip(self.sequence(value, depth), values, strict=True)]}

    def set(self, value: Any, depth: int) -> dict[Any, Any]:
        # Sorted, so that equal sets have equal bytes in every process.
        return {f"${type(value).__name__}": sorted(self.sequence(value, depth), key=repr)}

    def decimal(self, value: Decimal, depth: int) -> dict[Any, Any]:
        if not value.is_finite():
            raise ValueError(f"{value} is not a finite number")
        return {"$decimal": str(value)}

    def moment(self, value: datetime | time, depth: int) -> dict[Any, Any]:
        tag, zone, fold = f"${type(value).__name__}", _zone_name(value.tzinfo), value.fold
        text = (value.replace(tzinfo=None) if zone else value).isoformat()
        return {tag: [text, zone, fold] if zone or fold else text}

    def other(self, value: Any, depth: int) -> Any:
        if isinstance(value, SafeString | Promise):
            return str(value)
        if not is_model(value):
            kind = f"{type(value).__module__}.{type(value).__qualname__}"
            raise TypeError(f"the JSON serializer has no form for {kind}; pass its key or a dictionary of it")
        if not self.models:
            raise TypeError("a model instance cannot be carried here; use its primary key")
        label, pk, alias = reference_to(value)
        return {"$model": [label, self.plain(pk, depth), alias]}


def _zone_name(zone: Any) -> str:
    """Return the key of a ZoneInfo; "" if the offset in the ISO text is enough."""
    # Python itself reads an offset of some microseconds back as UTC.
    if zone is None or (type(zone) is timezone and not zone.utcoffset(None).microseconds):
        return ""
    if type(zone) is ZoneInfo and zone.key:
        return zone.key
    raise TypeError(f"no form for the time zone {zone!r}; use a named ZoneInfo or an offset of whole seconds")


_WRITERS: dict[type, Callable[[_Writer, Any, int], Any]] = {
    **dict.fromkeys((type(None), bool, int, str), _Writer.same),
    float: _Writer.number,
    list: _Writer.sequence,
    dict: _Writer.mapping,
    tuple: lambda writer, value, depth: {"$tuple": writer.sequence(value, depth)},
    **dict.fromkeys((set, frozenset), _Writer.set),
    **dict.fromkeys((datetime, time), _Writer.moment),
    Decimal: _Writer.decimal,
    date: lambda writer, value, depth: {"$date": value.isoformat()},
    timedelta: lambda writer, value, depth: {"$timedelta": [value.days, value.seconds, value.microseconds]},
    UUID: lambda writer, value, depth: {"$uuid": str(value)},
    bytes: lambda writer, value, depth: {"$bytes": b2a_base64(value, newline=False).decode()},
}


def _read_moment(kind: type[datetime] | type[time], value: str | list[Any]) -> Any:
    if isinstance(value, str):
        return kind.fromisoformat(value)
    text, zone, fold = value
    moment = kind.fromisoformat(text).replace(fold=fold)
    return moment.replace(tzinfo=ZoneInfo(zone)) if zone else moment


def _read_dict(pairs: list[Any]) -> dict[Any, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a key comes twice in one object")
    return value


_READERS: dict[str, Callable[[Any], Any]] = {
    "$dict": _read_dict,
    "$tuple": tuple,
    "$set": set,
    "$frozenset": frozenset,
    "$decimal": Decimal,
    "$datetime": partial(_read_moment, datetime),
    "$time": partial(_read_moment, time),
    "$date": date.fromisoformat,
    "$timedelta": lambda value: timedelta(*value),
    "$uuid": UUID,
    "$bytes": partial(a2b_base64, strict_mode=True),
    "$model": lambda value: read_reference(*value),
}


def _read_object(pairs: list[tuple[str, Any]]) -> Any:
    value = _read_dict(pairs)
    if not _is_tag(value):
        return value
    tag, content = pairs[0]
    if tag not in _READERS:
        raise ValueError(f"unknown tag {tag!r}; was this written by a newer djqueue?")
    return _READERS[tag](content)


def _refuse_constant(text: str) -> None:
    raise ValueError(f"{text} is not JSON")


# Not ASCII: two lone surrogates side by side would come back from their escapes as one character.
_encoder = json.JSONEncoder(ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":"))
_decoder = json.JSONDecoder(object_pairs_hook=_read_object, parse_constant=_refuse_constant)


def to_json(value: Any, *, models: bool = True, depth: int = 0) -> bytes:
    """Return the tagged JSON of one value; raises TypeError or ValueError for what it cannot carry.

    `models` allows references to model instances; `depth` is counted from there up to MAX_DEPTH.
    """
    return _encoder.encode(_Writer(models).plain(value, depth)).encode("utf-8", "surrogatepass")


def from_json(data: bytes) -> Any:
    """Return the value that `to_json` was given: equal, and of the same types all through."""
    return _decoder.decode(data.decode("utf-8", "surrogatepass"))


class JsonCodec:
    """Text, numbers, booleans, None, lists and dicts as JSON; tagged, so that they come back as they were: tuple, set,
    frozenset, bytes, Decimal, datetime, date, time, timedelta, UUID, dicts with other keys than text.

    Model instances always go by reference; lazy translations and safe strings become str. Refused: NaN and infinities,
    more than MAX_DEPTH levels, integers beyond Python's digit limit, and every other type, subclasses of these
    included (enums, named tuples).
    """

    def dumps(self, args: tuple[Any, ...], kwargs: dict[str, Any], models: str = "reference") -> bytes:
        """Return JSON of [args, kwargs]; `models` is ignored: instances are always references."""
        try:
            return to_json([list(args), kwargs], depth=-2)
        except TRANSIENT:
            raise
        except Exception as error:
            raise encode_error(to_json, _arguments(args, kwargs), error) from error

    def loads(self, data: bytes) -> Arguments:
        """Return (args, kwargs); raises ValueError for what is not such JSON."""
        args, kwargs = from_json(data)
        if not (isinstance(args, list) and isinstance(kwargs, dict)):
            raise ValueError("not [arguments, keywords]")
        return tuple(args), kwargs


SERIALIZERS: dict[str, Codec] = {"pickle": PickleCodec(), "json": JsonCodec()}
