"""Values by name in a store, each a fact of its own: processes keep them in memory, and read only what has changed.

Names are spread over parts. The fact of a part has the digest of each of its values, and one more fact, the index, has
the digest of each part. A process that knows an earlier state reads the index, then the parts that differ, then the
values that differ. A value changes together with its part and with the index, in one step.
"""

from __future__ import annotations

import json
import logging
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import blake2s
from typing import NamedTuple

from djqueue.backends.stores import BaseStore, Change
from djqueue.exceptions import QueueError
from djqueue.utils import log_safely

logger = logging.getLogger(__name__)

PARTS = 64
"""With 10,000 values a part has 160, and its fact 7 kB."""
FOR_EVER = 50 * 365 * 86_400.0  # seconds: a fact that is compared and set needs a time to live
TRIES = 1000  # of a change, while other processes change the same collection


Pair = tuple[bytes | None, bytes | None]
"""What a value was, and what it is to be; None: there is none."""


class Part(NamedTuple):
    """What is known of a part."""

    digest: str = ""
    values: Mapping[str, str] = {}
    """The digest of each value, by name."""


class CollectionState(NamedTuple):
    """A state of a collection, with which the next read compares."""

    text: bytes | None = b""
    """Of the index; empty if parts or values were read that are newer."""
    parts: Mapping[str, Part] = {}

    def names(self) -> Iterator[str]:
        return (name for part in self.parts.values() for name in part.values)


NOTHING = CollectionState()


class Collection:
    """One collection in a store.

    The fact that has the plain name of the collection is an earlier form of it: a JSON object of all values in base64.
    Values in it are taken over by the first call that sees them, and replace those of the same names.
    """

    def __init__(self, store: BaseStore, name: str):
        self._store, self._name = store, name

    def read(self, known: CollectionState = NOTHING) -> tuple[CollectionState, dict[str, bytes]]:
        """The state now, and the values that are new in it; if nothing has changed, this reads one small fact."""
        text = self._index()
        if text == known.text:
            return known, {}
        index = self._index_of(text)
        parts = {number: known.parts.get(number, Part()) for number in index}
        before = {name: digest for part in parts.values() for name, digest in part.values.items()}
        news = self._read_parts([number for number, part in parts.items() if part.digest != index[number]])
        listed = (pair for part in news.values() for pair in part.values.items())
        found = self._read_values([name for name, digest in listed if before.get(name) != digest])
        parts |= {number: _as_found(part, found) for number, part in news.items()}
        is_whole = all(part.digest == index[number] for number, part in parts.items())
        new = {name: text for name, text in found.items() if text is not None and before.get(name) != digest_of(text)}
        return CollectionState(text if is_whole else b"", parts), new

    def change(self, name: str, how: Callable[[bytes | None], bytes | None]) -> bool:
        """Set the value of a name to what ``how`` makes of it (None: there is none); whether that was a change."""
        for _ in range(TRIES):
            index, part, was = self._read_for_change(name)
            wanted = how(was)
            if wanted == was and (was is None or name in self._part_of(part)):
                return False
            if self._store.swap_many(self._changes({name: (was, wanted)}, index, {number_of(name): part}), FOR_EVER):
                return True
        raise QueueError(f"The {self._name} could not be changed: other processes changed them {TRIES} times.")

    def get(self, name: str) -> bytes | None:
        """The value of a name."""
        return self._read_for_change(name)[2]

    # ---- the facts

    def _key(self, kind: str, name: str = "") -> str:
        # Index, part, value: in this order a database locks them, so that two transactions do not deadlock.
        return f"{self._name}:{kind}:{name}"

    def _index(self) -> bytes | None:
        """The text of the index, once what is in the earlier form was taken over."""
        while True:
            earlier, index = self._store.get_many([self._name, self._key("index")])
            if earlier is None:
                return index
            self._take_over(earlier)

    def _read_for_change(self, name: str) -> list[bytes | None]:
        self._index()
        return self._store.get_many([self._key("index"), self._key("part", number_of(name)), self._key("value", name)])

    def _read_parts(self, numbers: Sequence[str]) -> dict[str, Part]:
        texts = self._store.get_many([self._key("part", number) for number in numbers])
        return {
            number: Part(digest_of(text or b""), self._part_of(text))
            for number, text in zip(numbers, texts, strict=True)
        }

    def _read_values(self, names: Sequence[str]) -> dict[str, bytes | None]:
        return dict(zip(names, self._store.get_many([self._key("value", name) for name in names]), strict=True))

    def _index_of(self, text: bytes | None) -> dict[str, str]:
        """The digest of each part; if the index cannot be read, by the parts."""
        if (found := _object(text)) is not None:
            return found
        log_safely(logger, logging.ERROR, "The index of %s cannot be read, so all parts are: %.100r", self._name, text)
        numbers = [str(number) for number in range(PARTS)]
        texts = self._store.get_many([self._key("part", number) for number in numbers])
        return {number: digest_of(text) for number, text in zip(numbers, texts, strict=True) if text is not None}

    def _part_of(self, text: bytes | None) -> dict[str, str]:
        """The digest of each value; none, and an error in the log, if the part cannot be read."""
        if (found := _object(text)) is None:
            self._put_aside(text)
        return found or {}

    def _put_aside(self, text: bytes | None) -> None:
        log_safely(logger, logging.ERROR, "Some %s cannot be read, and rest: %.100r", self._name, text)
        self._store.put(f"{self._name}:unreadable", text or b"", FOR_EVER)

    def _changes(
        self, values: Mapping[str, Pair], index: bytes | None, parts: Mapping[str, bytes | None]
    ) -> list[Change]:
        """The changes by which values become others, each a pair of what it was and what it is to be."""
        news: dict[str, dict[str, bytes | None]] = {number: {} for number in parts}
        for name, (_, value) in values.items():
            news[number_of(name)][name] = value
        wanted = {number: _text_of(_changed(self._part_of(part), news[number])) for number, part in parts.items()}
        return [
            *((self._key("value", name), was, value) for name, (was, value) in values.items()),
            *((self._key("part", number), part, wanted[number]) for number, part in parts.items()),
            (self._key("index"), index, _text_of(_changed(self._index_of(index), wanted))),
        ]

    # ---- the earlier form

    def _take_over(self, earlier: bytes) -> None:
        """Write all values in the form of today, and drop the earlier one, in one step."""
        found = _object(earlier)
        if found is None:
            self._put_aside(earlier)
        fresh = {name: _bytes_of(value) for name, value in (found or {}).items()}
        numbers = list({number_of(name): None for name in fresh})
        index, *parts = self._store.get_many([self._key("index"), *(self._key("part", number) for number in numbers)])
        values = {name: (was, fresh[name]) for name, was in self._read_values(list(fresh)).items()}
        changes = self._changes(values, index, dict(zip(numbers, parts, strict=True)))
        self._store.swap_many([*changes, (self._name, earlier, None)], FOR_EVER)


def number_of(name: str) -> str:
    """The part that has the value of a name."""
    return str(int(digest_of(name.encode("utf-8", "surrogatepass")), 16) % PARTS)


def digest_of(value: bytes) -> str:
    return blake2s(value, digest_size=8).hexdigest()


def _as_found(part: Part, found: Mapping[str, bytes | None]) -> Part:
    """A part with the digests of the values that were found; what it listed may have changed since."""
    values = {
        name: listed if name not in found else digest_of(value)
        for name, listed in part.values.items()
        if (value := found.get(name, b"")) is not None
    }
    return part if values == part.values else Part("", values)


def _changed(digests: dict[str, str], values: Mapping[str, bytes | None]) -> dict[str, str]:
    kept = {name: digest for name, digest in digests.items() if name not in values}
    return kept | {name: digest_of(value) for name, value in values.items() if value is not None}


def _object(text: bytes | None) -> dict[str, str] | None:
    """The JSON object in a text, empty if there is no text; None if it is something else."""
    try:
        found = {} if text is None else json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _text_of(digests: dict[str, str]) -> bytes | None:
    return json.dumps(digests, separators=(",", ":"), sort_keys=True).encode() if digests else None


def _bytes_of(value: object) -> bytes:
    """A value in base64; of anything else its text, which whoever reads it will refuse."""
    try:
        return b64decode(value, validate=True)  # type: ignore[arg-type]
    except (ValueError, TypeError):
        return str(value).encode("utf-8", "surrogatepass")
