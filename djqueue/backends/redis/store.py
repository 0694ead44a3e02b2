"""The facts of a queue on Redis: a key each, of the queue's own hash tag."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from copy import copy
from functools import cached_property
from typing import Any

from djqueue.backends.base import FAILED_SUFFIX, BaseStore, RateLimit
from djqueue.backends.redis.connection import RedisLink
from djqueue.backends.redis.protocol import AT_ONCE, milliseconds, portions, slices
from djqueue.backends.redis.scripts import script
from djqueue.backends.stores import RESULTS, Change, keys_of
from djqueue.exceptions import NotSupported

OWN = "queue:"
"""The name of a rate limit that one queue alone has begins with this; the name of the queue follows."""
_ESCAPED = str.maketrans({"%": "%25", "{": "%7B", "}": "%7D", ":": "%3A"})


class Keys:
    """The keys of one queue. No two queues or prefixes share a key, whatever their names are."""

    def __init__(self, prefix: str, name: str):
        logical = name.removesuffix(FAILED_SUFFIX)
        own = "failed:" if name != logical else ""
        self._base = f"{{{prefix.translate(_ESCAPED)}:{logical.translate(_ESCAPED)}}}:{own}".encode()

    def part(self, part: str) -> bytes:
        """The key of a part as a script names it; ``dead_…`` is a part of the failed queue."""
        return self._base + part.replace("failed_", "failed:").encode()

    def fact(self, key: str) -> bytes:
        return self._base + b"fact:" + key.encode("utf-8", "surrogatepass")


class SharedKeys(Keys):
    """The keys of what all queues of one prefix share, under one hash tag.

    But what a name gives to one queue alone, as ``queue:mail`` does, is under the tag of that queue, so that on a
    cluster one script reaches both.
    """

    def __init__(self, prefix: str):
        self._prefix = prefix
        # No name has a colon of its own in a key, so this is the tag of no queue.
        self._base = f"{{{prefix.translate(_ESCAPED)}::shared}}:".encode()

    def fact(self, key: str) -> bytes:
        name = key.partition(":")[2]
        if name.startswith(OWN):
            return Keys(self._prefix, name.removeprefix(OWN)).fact(key)
        return super().fact(key)


class RedisStore(BaseStore):
    """The facts of the queue ``name`` at ``connection``, which is what a RedisQueue takes."""

    options = frozenset({"PREFIX"})

    def __init__(self, name: str, connection: object = None, prefix: str = "djqueue"):
        self._prefix = prefix
        self._keys, self._link = Keys(prefix, name), RedisLink(connection)

    @cached_property
    def shared(self) -> RedisStore:
        """What all queues of this prefix share on this server."""
        shared = copy(self)
        shared.__dict__.pop("shared", None)
        shared._keys = SharedKeys(self._prefix)
        return shared

    @property
    def place(self) -> Hashable:
        return ("redis", id(self._link.client), self._prefix)

    def now(self) -> float:
        return self._link.run(script("now"), [self._keys.part("meta")], ()) / 1e6

    def get(self, key: str) -> bytes | None:
        return self._link.execute("GET", self._keys.fact(key))

    def get_many(self, keys: Sequence[str]) -> list[bytes | None]:
        """Of facts of one queue, which on a cluster are in one slot."""
        read = self._link.execute
        return [value for some in slices(map(self._keys.fact, keys)) for value in read("MGET", *some)]

    def put(self, key: str, value: bytes, ttl: float | None = None) -> None:
        self._set(key, value, *(() if ttl is None else ("PX", milliseconds(ttl))))

    def put_many(self, facts: Sequence[tuple[str, bytes, float | None]]) -> None:
        """As in the contract. More than 1,000 facts or 8 MiB go in several calls, of which a later one may raise."""
        results = [fact for fact in facts if fact[0].startswith(RESULTS)]
        others = [fact for fact in facts if not fact[0].startswith(RESULTS)]
        for alike, more in ((results, [self._results]), (others, [])):
            for some in portions(alike, size=lambda fact: len(fact[1])):
                keys = [*(self._keys.fact(key) for key, _, _ in some), *more]
                ends = [(value, "" if ttl is None else milliseconds(ttl)) for _, value, ttl in some]
                self._link.run(script("put_many"), keys, [told for end in ends for told in end])

    def trim_results(self, count: int, limit: int = 1000) -> int:
        """As in the contract. What a process that dies meanwhile leaves goes when its time is over."""
        keys = self._link.run(script("trim_results"), [self._results], (count, min(limit, AT_ONCE)))
        if keys:
            self._link.execute("UNLINK", *keys)
        return len(keys)

    @property
    def _results(self) -> bytes:
        """The key that has the keys of all results."""
        return self._keys.part("results")

    def swap(self, key: str, was: bytes | None, value: bytes, ttl: float) -> bool:
        if was is None:
            return self._set(key, value, "NX", "PX", milliseconds(ttl))
        if was == value:  # a full server takes this too
            return self._if_still(key, was, "PEXPIRE", milliseconds(ttl))
        return self._if_still(key, was, "SET", value, "PX", milliseconds(ttl))

    def swap_many(self, changes: Sequence[Change], ttl: float) -> bool:
        keys = [self._keys.fact(key) for key, _, _ in changes]
        values = [told for _, *pair in changes for value in pair for told in (int(value is not None), value or b"")]
        return not keys or bool(self._run("swap_many", keys, [milliseconds(ttl), *values]))

    def drop(self, key: str, value: bytes | None = None) -> bool:
        if value is None:
            return bool(self._link.execute("DEL", self._keys.fact(key)))
        return self._if_still(key, value, "DEL")

    def _if_still(self, key: str, value: bytes, verb: str, *args: bytes | str | int) -> bool:
        """Run a command on a fact if it has that value; whether it had."""
        return bool(self._run("when_equal", [self._keys.fact(key)], (value, verb, *args)))

    # ---- rate limits

    def rate_limit_keys(self, rate_limit: RateLimit, *others: bytes) -> list[bytes]:
        """The keys of its rate and, if others share it, of its spacing.

        Raises NotSupported if these and ``others`` live in several slots of a cluster: no step can be atomic there.
        """
        keys = [self._keys.fact(name) for name in keys_of(rate_limit) if name]
        if self._link.is_cluster and len({key.partition(b"}")[0] for key in (*keys, *others)}) > 1:
            text = "live in different slots of the Redis cluster, where no step reaches both"
            hint = "let the queue have a throttle of its own, without window_name and mod_name."
            raise NotSupported(f"The rate limit {rate_limit.name!r} and what it bounds {text}: {hint}")
        return keys

    def _run(self, name: str, keys: Sequence[bytes], args: Sequence) -> Any:
        return self._link.run(script(name), keys, args)

    def _set(self, key: str, value: bytes, *how: str | int) -> bool:
        return bool(self._link.execute("SET", self._keys.fact(key), value, *how))
