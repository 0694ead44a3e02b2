"""A digest of the arguments of a call: equal for equal arguments, in any order of dictionaries and sets."""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from hashlib import blake2b
from typing import Any

from djqueue.exceptions import EncodeError
from djqueue.messages.codecs import PICKLE_PROTOCOL, is_model, reference_to

PLAIN = (type(None), bool, int, float, complex, str, bytes)
DEEPEST = 64
"""How deep arguments may be nested."""


def fingerprint(value: object) -> str:
    """The digest, 32 hex digits. Raises EncodeError for a value that is not distinct from others of its kind."""
    digest = blake2b(digest_size=16)
    for piece in _pieces(value, DEEPEST):
        digest.update(b"%d:" % len(piece))  # so that no two sequences of pieces are the same bytes
        digest.update(piece)
    return digest.hexdigest()


def _pieces(value: object, depth: int) -> Iterable[bytes]:
    """A value as bytes. Dictionaries and sets are sorted by contents; types are kept apart: 1 is not "1" nor True."""
    if not depth:
        raise EncodeError(f"the arguments are nested deeper than {DEEPEST}: give a key= function.")
    kind = type(value)
    yield f"{kind.__module__}.{kind.__qualname__}".encode()
    if kind in PLAIN:
        yield repr(value).encode("utf-8", "surrogatepass")
    elif isinstance(value, Mapping):
        yield from _unordered(value.items(), depth)
    elif isinstance(value, set | frozenset):
        yield from _unordered(value, depth)
    elif isinstance(value, list | tuple):
        yield from _ordered(value, depth)
    elif is_model(value):
        yield from _ordered(_row_of(value), depth)
    elif is_dataclass(value) and not isinstance(value, type):
        yield from _ordered([getattr(value, field.name) for field in fields(value) if field.compare], depth)
    else:
        buffer = io.BytesIO()
        try:
            _Pickler(buffer, value, depth).dump(value)
        except EncodeError:
            raise
        except Exception as error:
            raise EncodeError(f"a {kind.__name__} cannot be compared with others: give a key= function.") from error
        yield buffer.getvalue()


def _row_of(instance: object) -> tuple[str, str, str]:
    """The row of a saved instance, by which it is known; the present values of its fields do not count."""
    try:
        label, pk, alias = reference_to(instance)
    except ValueError as error:
        raise EncodeError(str(error)) from error
    return label, str(pk), alias


def _ordered(values: Iterable[Any], depth: int) -> Iterable[bytes]:
    for value in values:
        yield from _pieces(value, depth - 1)
    yield b""


def _unordered(values: Iterable[Any], depth: int) -> Iterable[bytes]:
    return sorted(b"".join(b"%d:%s" % (len(piece), piece) for piece in _pieces(value, depth - 1)) for value in values)


class _Pickler(pickle.Pickler):
    """Pickles one object and nothing within: a pickle depends on the order of its sets, and on identity."""

    def __init__(self, buffer: io.BytesIO, value: object, depth: int) -> None:
        super().__init__(buffer, PICKLE_PROTOCOL)
        self._value, self._depth = value, depth

    def persistent_id(self, value: object) -> bytes | None:
        return None if value is self._value else b"".join(_unordered([value], self._depth))
