"""What consumers write of themselves into a shared store, and the orders that they read there."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import partial
from hashlib import blake2s
from typing import Any, NamedTuple, cast

from djqueue.backends.stores import BaseStore
from djqueue.registry import Runnable
from djqueue.running.shared import change
from djqueue.utils import UNREADABLE, json_list, json_object

INDEX = "consumers"
"""The key of the fact that has the names of all consumers."""
EVERY = 5.0
"""Seconds between two heartbeats of a consumer."""
MISSED = 3
"""Heartbeats that a consumer misses until it is gone."""
KEPT = 86_400.0
"""Seconds for which a consumer that is gone is shown."""
MOST_RUNNING = 50
"""Messages that a heartbeat names."""
RUNNING, QUIET, STOPPING, GONE = "running", "quiet", "stopping", "gone"
STOP, RESUME = "stop", "resume"
ORDERS = (QUIET, RESUME, STOP)


@dataclass(frozen=True, slots=True)
class Running:
    """A message that a consumer runs."""

    id: str
    command: str
    since: float
    """When it began, in epoch seconds by the clock of the store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerRecord:
    """What a consumer last wrote of itself. Moments are epoch seconds by the clock of the store."""

    name: str
    host: str = ""
    pid: int = 0
    parent: int = 0
    """The process that started it: its supervisor, with ``--processes``."""
    release: str = ""
    """The setting QUEUE_RELEASE, or "" without one."""
    version: str = ""
    """The version of djqueue."""
    queues: Sequence[str] = ()
    """Their names in the store."""
    threads: int = 0
    coroutines: int = 0
    busy: int = 0
    """How many messages it runs."""
    running: Sequence[Running] = ()
    """The first of them, the longest first: 50 at most."""
    ran: int = 0
    """About how many messages it has run."""
    commands: str = ""
    """A digest of the commands that it knows, by which :func:`commands_of` finds their names."""
    memory: float = 0.0
    """Its resident memory, in MiB."""
    started: float = 0.0
    at: float = 0.0
    """When it wrote this."""
    state: str = RUNNING
    """running, quiet (it claims nothing), stopping, or gone (three heartbeats are missing)."""
    known: Mapping[str, str] = field(default_factory=dict)
    """The commands that it knows, with a digest of the signature of each; read from a fact of their own."""

    @property
    def is_alive(self) -> bool:
        """Whether it wrote this a short time ago."""
        return self.state != GONE


def key_of(name: str) -> str:
    return f"consumer:named:{name}"  # two colons: a name may begin with what is special to a store


def order_key_of(name: str) -> str:
    return f"order:named:{name}"


def _commands_key(digest: str) -> str:
    return f"commands:digest:{digest}"


# ---- what a consumer writes


def enter(store: BaseStore, name: str) -> None:
    """Add a consumer to the index, and take out those whose records are over."""
    change(store, INDEX, partial(_entered, store, name))


def _entered(store: BaseStore, name: str, text: bytes | None) -> bytes:
    others = [other for other in _names(text) if other != name]
    found = store.get_many([key_of(other) for other in others])
    return json.dumps([*(other for other, kept in zip(others, found, strict=True) if kept), name]).encode()


def leave(store: BaseStore, name: str) -> None:
    """Remove a consumer, its record and its orders."""
    change(store, INDEX, lambda text: json.dumps([other for other in _names(text) if other != name]).encode())
    store.drop(key_of(name))
    store.drop(order_key_of(name))


def write(store: BaseStore, record: ConsumerRecord) -> None:
    """A heartbeat. The commands that it knows are a fact of their own: see :func:`write_commands`."""
    written = {name: value for name, value in asdict(record).items() if name != "known"}
    store.put(key_of(record.name), json.dumps(written).encode(), KEPT)


def known_commands(commands: Iterable[Runnable]) -> dict[str, str]:
    """The names of commands, with a digest of the signature of each."""
    return {command.name: _digest(_signature_of(command)) for command in commands}


def digest_of(known: Mapping[str, str]) -> str:
    return _digest(json.dumps(known, sort_keys=True))


def write_commands(store: BaseStore, known: Mapping[str, str]) -> None:
    """Keep the commands of a digest for two days; consumers of one release write the same."""
    store.put(_commands_key(digest_of(known)), json.dumps(known, sort_keys=True).encode(), 2 * KEPT)


def _signature_of(command: Runnable) -> str:
    try:
        return str(inspect.signature(command.func))
    except (TypeError, ValueError):  # it is no function, or its signature is not known
        return ""


def _digest(text: str) -> str:
    return blake2s(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


# ---- what others read


def is_listed(text: bytes | None, name: str) -> bool:
    """Whether a consumer is in the index."""
    return name in _names(text)


def read(store: BaseStore) -> list[ConsumerRecord]:
    """The consumers of a store with the commands that they know; the state of one that is silent is ``gone``."""
    names = _names(store.get(INDEX))
    if not names:
        return []
    texts, now = store.get_many([key_of(name) for name in names]), store.now()
    records = [record for text in texts if (record := _record_of(text, now)) is not None]
    digests = sorted({record.commands for record in records})
    known = dict(zip(digests, map(json_object, store.get_many([*map(_commands_key, digests)])), strict=True))
    return [changed(record, known=known[record.commands]) for record in records]


def _record_of(text: bytes | None, now: float) -> ConsumerRecord | None:
    """A record; None if there is none, or what is there cannot be read. Another version may write more, or less."""
    written = json_object(text)
    try:
        record = ConsumerRecord(**_known_of(ConsumerRecord, written))
        running = tuple(Running(**_known_of(Running, cast(dict, one))) for one in record.running)
        state = record.state if now - record.at <= MISSED * EVERY else GONE
        return changed(record, queues=tuple(map(str, record.queues)), running=running, state=state, known={})
    except UNREADABLE:
        return None


def _known_of(kind: type, written: dict[str, Any]) -> dict[str, Any]:
    """The fields of a class in a record, as words and numbers. Raises TypeError or ValueError for what is none."""
    types: dict[str, Callable[[Any], Any]] = {"str": str, "int": int, "float": float}
    return {one.name: types.get(str(one.type), _same)(written[one.name]) for one in fields(kind) if one.name in written}


def _same(value: Any) -> Any:
    return value


def changed(record: ConsumerRecord, **changes: Any) -> ConsumerRecord:
    """A record with other values."""
    return ConsumerRecord(**{one.name: getattr(record, one.name) for one in fields(record)} | changes)


# ---- orders


class Order(NamedTuple):
    """What an operator wants of one consumer."""

    order: str = ""
    """quiet (claim nothing more), resume, or stop; "" for nothing."""
    by: str = ""
    at: float = 0.0


def give(store: BaseStore, name: str, order: Order) -> None:
    """Give a consumer an order, instead of an earlier one."""
    store.put(order_key_of(name), json.dumps(order).encode(), KEPT)


def order_of(text: bytes | None) -> Order:
    """The order in a fact; none if it cannot be read."""
    try:
        order, by, at = json_list(text) or Order()
        return Order(str(order), str(by), float(at))
    except UNREADABLE:
        return Order()


def _names(text: bytes | None) -> list[str]:
    return [name for name in json_list(text) if isinstance(name, str)]
