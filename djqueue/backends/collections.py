"""Values by name in a store, each a fact of its own, with one small fact that says whether any of them has changed.

That fact is the version. Each change sets another one in the same step, as its last part where the store makes one part
after the other. So who has read the version, and then the values, reads them again after any later change.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Callable, Mapping
from typing import NamedTuple
from zlib import crc32

from djqueue.backends.stores import BaseStore, Change
from djqueue.exceptions import QueueError
from djqueue.utils import json_list, json_object, log_safely

logger = logging.getLogger(__name__)

PARTS = 64
"""Facts over which the names are spread: with 10,000 names a change of them writes 160."""
FOR_EVER = 50 * 365 * 86_400.0  # seconds: a fact that is compared and set needs a time to live
TRIES = 1000  # of a change, while other processes change the same collection


class CollectionState(NamedTuple):
    """The values of a collection as they were read."""

    version: bytes | None = b""
    """Differs after each change; None before the first one."""
    values: Mapping[str, bytes] = {}


NOTHING = CollectionState()
"""Before anything was read."""


class Collection:
    """One collection in a store."""

    def __init__(self, store: BaseStore, name: str):
        self._store, self._name = store, name

    def read(self, known: CollectionState = NOTHING) -> CollectionState:
        """The values, by name; ``known`` itself, after a read of one small fact, if its version is that of today."""
        if known is not NOTHING and self._store.get(self._version_key) == known.version:
            return known
        # The version comes first: a change in between will be seen by the next read.
        keys = self._version_key, self._name, *map(self._part_key, range(PARTS))
        version, earlier, *parts = self._store.get_many(keys)
        if earlier is not None:
            text = "These %s are in a form that is not read any more: add them again, and delete the fact %r: %.1000s"
            log_safely(logger, logging.ERROR, text, self._name, self._name, ", ".join(json_object(earlier)))
        names = sorted({name for part in parts for name in self._names(part)})
        found = zip(names, self._store.get_many([self._value_key(name) for name in names]), strict=True)
        return CollectionState(version, {name: value for name, value in found if value is not None})

    def get(self, name: str) -> bytes | None:
        """The value of a name."""
        return self._store.get(self._value_key(name))

    def change(self, name: str, how: Callable[[bytes | None], bytes | None]) -> bool:
        """Set the value of a name to what ``how`` makes of it (None: there is none); whether that was a change.

        Raises QueueError if other processes are always faster.
        """
        keys = self._value_key(name), self._part_key(number_of(name)), self._version_key
        for _ in range(TRIES):
            was, part, version = self._store.get_many(keys)
            wanted, names = how(was), self._names(part)
            listed = names - {name} if wanted is None else names | {name}
            if wanted == was and listed == names:
                return False
            after = wanted, _written(listed), uuid.uuid4().bytes
            changes: list[Change] = [*zip(keys, (was, part, version), after, strict=True)]
            if self._store.swap_many(changes, FOR_EVER):
                return True
        raise QueueError(
            f"The {self._name} could not be changed: other processes changed them {TRIES} times: try again."
        )

    # In the order of these keys a database locks them. The version is first: then two transactions do not deadlock.

    @property
    def _version_key(self) -> str:
        return f"{self._name}:changed:"

    def _part_key(self, number: int) -> str:
        return f"{self._name}:part:{number}"

    def _value_key(self, name: str) -> str:
        return f"{self._name}:value:{name}"

    def _names(self, part: bytes | None) -> set[str]:
        """The names in a part; none, and an error in the log, if it cannot be read: its values rest until set again."""
        names = set(map(str, json_list(part) or json_object(part)))  # an object: an earlier form, with a digest of each
        if part is not None and not names:
            text = "Some %s cannot be read, and rest until they are set again: their names are in %.100r"
            log_safely(logger, logging.ERROR, text, self._name, part)
        return names


def number_of(name: str) -> int:
    """The part that lists a name."""
    return crc32(name.encode("utf-8", "surrogatepass")) % PARTS


def _written(names: set[str]) -> bytes | None:
    return json.dumps(sorted(names), separators=(",", ":")).encode() if names else None
