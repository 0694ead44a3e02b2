"""The facts of a queue on Redis: a key each, of the queue's own hash tag."""

from __future__ import annotations

from collections.abc import Sequence

from redis.exceptions import ResponseError

from djqueue.backends.base import DEAD_SUFFIX, BaseStore
from djqueue.backends.lua import SCRIPTS
from djqueue.backends.redis_link import Link
from djqueue.backends.redis_wire import milliseconds, portions

_ESCAPED = str.maketrans({"%": "%25", "{": "%7B", "}": "%7D", ":": "%3A"})


class Keys:
    """The keys of one queue. No two queues or prefixes have one in common, whatever their names say."""

    def __init__(self, prefix: str, name: str):
        logical = name.removesuffix(DEAD_SUFFIX)
        own = "dead:" if name != logical else ""
        self._base = f"{{{prefix.translate(_ESCAPED)}:{logical.translate(_ESCAPED)}}}:{own}".encode()

    def part(self, part: str) -> bytes:
        """The key of a part as a script names it; ``dead_…`` is a part of the error queue."""
        return self._base + part.replace("dead_", "dead:").encode()

    def fact(self, key: str) -> bytes:
        return self._base + b"fact:" + key.encode("utf-8", "surrogatepass")


class RedisStore(BaseStore):
    """The facts of the queue ``name`` at ``connection``, which is what a RedisQueue takes."""

    options = frozenset({"PREFIX"})

    def __init__(self, name: str, connection: object = None, prefix: str = "djqueue"):
        self._keys, self._link = Keys(prefix, name), Link(connection)

    def now(self) -> float:
        return self._link.run(SCRIPTS["now"], [self._keys.part("meta")], ()) / 1e6

    def get(self, key: str) -> bytes | None:
        return self._link.client.execute_command("GET", self._keys.fact(key))

    def put(self, key: str, value: bytes, ttl: float | None = None) -> None:
        self._set(key, value, *(() if ttl is None else ("PX", milliseconds(ttl))))

    def put_many(self, facts: Sequence[tuple[str, bytes, float | None]]) -> None:
        """As the contract says. More than 1,000 facts or 8 MiB go in several calls, of which a later may raise."""
        for some in portions(facts, size=lambda fact: len(fact[1])):
            keys = [self._keys.fact(key) for key, _, _ in some]
            ends = [(value, "" if ttl is None else milliseconds(ttl)) for _, value, ttl in some]
            self._link.run(SCRIPTS["put_many"], keys, [told for end in ends for told in end])

    def add(self, key: str, value: bytes, ttl: float) -> bool:
        return self._set(key, value, "NX", "PX", milliseconds(ttl))

    def swap(self, key: str, was: bytes | None, value: bytes, ttl: float) -> bool:
        if was is None:
            return self.add(key, value, ttl)
        return bool(self._link.run(SCRIPTS["swap"], [self._keys.fact(key)], (was, value, milliseconds(ttl))))

    def keep(self, key: str, value: bytes, ttl: float) -> bool:
        return bool(self._link.run(SCRIPTS["keep"], [self._keys.fact(key)], (value, milliseconds(ttl))))

    def drop(self, key: str, value: bytes | None = None) -> bool:
        if value is None:
            return bool(self._link.client.execute_command("DEL", self._keys.fact(key)))
        return bool(self._link.run(SCRIPTS["drop"], [self._keys.fact(key)], (value,)))

    def _set(self, key: str, value: bytes, *how: str | int) -> bool:
        try:
            return bool(self._link.client.execute_command("SET", self._keys.fact(key), value, *how))
        except ResponseError as error:
            raise self._link.told(error) from error
