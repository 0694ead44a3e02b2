"""What can be wrong with a Redis server behind a queue."""

from __future__ import annotations

from django.core.checks import CheckMessage, Error, Warning
from redis.exceptions import ConnectionError, RedisError, TimeoutError

from djqueue.backends.redis.connection import Link

FLOORS = {"valkey": (7, 2), "redis": (6, 2)}


def check_server(link: Link) -> list[CheckMessage]:
    """Connects. Says nothing of what the server does not tell, as managed ones may not."""
    try:
        info = link.client.info()
    except (ConnectionError, TimeoutError) as error:
        hint = "Start it, or correct CONNECTION."
        return [Error(f"{link.where} cannot be reached: {error}", hint=hint, id="djqueue.E101")]
    except RedisError:
        return []
    return [*_version(link, info), *_eviction(link, info), *_persistence(link, info)]


def _version(link: Link, info: dict) -> list[CheckMessage]:
    kind = "valkey" if "valkey_version" in info else "redis"
    version = str(info.get(f"{kind}_version", ""))
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if len(numbers) < 2 or numbers >= FLOORS[kind]:
        return []
    floor = ".".join(map(str, FLOORS[kind]))
    return [Error(f"{link.where} is {kind} {version}.", hint=f"Use {kind} {floor} or later.", id="djqueue.E102")]


def _eviction(link: Link, info: dict) -> list[CheckMessage]:
    policy = info.get("maxmemory_policy", "noeviction")
    if policy == "noeviction":
        return []
    hint = "Set maxmemory-policy to noeviction: a full server then refuses new work instead of deleting what it has."
    return [Error(f"{link.where} may delete queues: its maxmemory-policy is {policy}.", hint=hint, id="djqueue.E103")]


def _persistence(link: Link, info: dict) -> list[CheckMessage]:
    if info.get("aof_enabled", 1) or _config(link, "save") != "":
        return []
    hint = "Turn on appendonly, unless queues may be lost when it restarts."
    return [Warning(f"{link.where} keeps nothing on disk.", hint=hint, id="djqueue.W101")]


def _config(link: Link, name: str) -> str | None:
    try:
        value = link.client.config_get(name).get(name)
    except RedisError:
        return None
    return value.decode() if isinstance(value, bytes) else value
