"""A connection with a Redis server, or with those of a cluster, that run scripts; and the system checks of them."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from math import inf
from operator import attrgetter
from shlex import quote
from typing import Any

from django.core.checks import CheckMessage, Error, Warning
from redis import Redis
from redis.client import Connection
from redis.cluster import RedisCluster
from redis.exceptions import (
    ClusterDownError,
    ClusterError,
    ConnectionError,
    MovedError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisClusterException,
    RedisError,
    ResponseError,
    TimeoutError,
)
from redis.sentinel import SentinelConnectionPool

try:
    import hiredis
except ImportError:  # redis-py does without it, and so do we
    hiredis = None  # type: ignore[assignment]

from djqueue.backends.deadlines import current
from djqueue.backends.redis.address import FORMS, invalid, several, url_of
from djqueue.backends.redis.discovery import Cluster, by_sentinel, cluster_of, once
from djqueue.backends.redis.protocol import type_of, untext
from djqueue.backends.redis.scripts import Script
from djqueue.exceptions import InvalidQueueError, QueueFull, StoreError, StoreUnreachable

FIX = "Start it, or correct CONNECTION."
MEND_CLUSTER = "Give CONNECTION redis+cluster:// and the addresses of some nodes."
MEND_NUMBER = "Correct the number in CONNECTION, or the setting databases of the server."
CLUSTER_FAULTS = (ClusterDownError, ClusterError, RedisClusterException)
"""A slot has no server at this moment, or is moving to another."""
FAULTS = (ConnectionError, TimeoutError, ResponseError, *CLUSTER_FAULTS)
UNBOUNDED = 2**20
TIME_OUTS = ("socket_timeout", "socket_connect_timeout")


class ClientCommands:
    """Commands of a client, through all layers of redis-py."""

    def __init__(self, client: Any):
        self.client = client

    def execute(self, *args: Any) -> Any:
        """The reply; raises as the client does."""
        return self.client.execute_command(*args)

    def execute_many(self, commands: Sequence[tuple]) -> list[Any]:
        """The replies to commands, of one that fails its error. Raises as the client does if a reply is missing."""
        together = self.client.pipeline(transaction=False)
        for command in commands:
            together.execute_command(*command)
        return list(together.execute(raise_on_error=False))

    def send_first(self, client: Any, command: tuple) -> None:
        """Send a command to the server of a client, before the next command of this thread; its reply is not read.

        Here it is sent at once. Raises as the client does.
        """
        with suppress(ResponseError):
            client.execute_command(*command)

    def forget_first(self) -> bool:
        """Forget what is to be sent first by this thread; whether there was anything."""
        return False


class ClusterCommands(ClientCommands):
    """Commands of the client of a cluster."""

    def execute_many(self, commands: Sequence[tuple]) -> list[Any]:
        """One by one: the client would repeat commands together whose replies were lost."""
        return [self._answer(command) for command in commands]

    def _answer(self, command: tuple) -> Any:
        try:
            return self.execute(*command)
        except ResponseError as error:
            return error


class DirectCommands:
    """Commands of a client without the layers of redis-py around them, which cost more than the commands.

    Connections of the client's pool are kept in between. After an error all go back to the pool.
    """

    def __init__(self, client: Redis):
        self._client = client
        self._kept: list[Any] = []
        """Clients that have one connection each. Threads take them and put them back."""
        self._first: dict[int, list[tuple]] = {}
        """By thread: commands that travel before its next one, in the same packet."""
        os.register_at_fork(after_in_child=self._leave)

    def execute(self, *args: Any) -> Any:
        """The reply as the server gave it; raises as the client does, and repeats nothing."""
        first = self._first.pop(threading.get_ident(), ()) if self._first else ()
        borrowed = self._borrow()
        connection = borrowed.connection
        try:
            connection.send_packed_command([_packet(connection, (*first, args))])
            for _ in first:
                with suppress(ResponseError):
                    connection.read_response()
            reply = connection.read_response()
        except ReadOnlyError:  # a replica now: the next connection may lead to the primary
            self._give_up(borrowed)
            raise
        except ResponseError:  # an answer like others
            self._kept.append(borrowed)
            raise
        except BaseException:
            self._give_up(borrowed)
            raise
        self._kept.append(borrowed)
        return reply

    def execute_many(self, commands: Sequence[tuple]) -> list[Any]:
        """The replies to commands that are sent as one packet, as :meth:`ClientCommands.execute_many` gives them."""
        first = self._first.pop(threading.get_ident(), ()) if self._first else ()
        borrowed = self._borrow()
        connection = borrowed.connection
        replies: list[Any] = []
        try:
            connection.send_packed_command([_packet(connection, (*first, *commands))])
            for _ in (*first, *commands):
                try:
                    replies.append(connection.read_response())
                except ResponseError as error:
                    replies.append(error)
        except BaseException:
            self._give_up(borrowed)
            raise
        self._kept.append(borrowed)
        return replies[len(first) :]

    def send_first(self, client: Any, command: tuple) -> None:
        """As of :class:`ClientCommands`; it travels in the packet of the next command."""
        self._first.setdefault(threading.get_ident(), []).append(command)

    def forget_first(self) -> bool:
        """As of :class:`ClientCommands`."""
        return self._first.pop(threading.get_ident(), None) is not None

    def _borrow(self) -> Any:
        try:
            borrowed = self._kept.pop()
        except IndexError:
            return self._client.client()
        try:
            if not borrowed.connection.can_read():  # neither a reply too many, nor its end
                return borrowed
        except (ConnectionError, TimeoutError):
            pass
        self._give_up(borrowed)
        return self._client.client()

    def _leave(self) -> None:
        """In a forked child: keep no connection, as their sockets are shared with the parent."""
        # redis-py takes this lock to free a client; a thread of the parent may have held it at the fork.
        self._client.connection_pool._lock = threading.RLock()
        self._kept.clear()
        self._first.clear()

    def _give_up(self, borrowed: Any) -> None:
        borrowed.connection.disconnect()  # a late reply on it would be taken for another one
        borrowed.close()
        with suppress(IndexError):
            while True:
                self._kept.pop().close()


def _packet(connection: Connection, commands: Sequence[tuple]) -> bytes:
    """Commands as they are sent. redis-py packs what hiredis does not know, after a look at each argument."""
    try:
        return b"".join(map(hiredis.pack_command, commands))
    except (TypeError, AttributeError):
        return b"".join(connection.pack_commands(commands))


Commands = ClientCommands | DirectCommands


class Connections:
    """A client for each URL, shared by all queues and threads. Its pool drops the connections of a forked child."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, float | None], tuple[Redis | Cluster, Commands]] = {}

    def client(self, url: str, seconds: float | None = None) -> tuple[Redis | Cluster, Commands]:
        """A client, and what executes commands for it, each within some seconds. Does not connect."""
        key = url, seconds
        return self._made.get(key) or self._made.setdefault(key, _made(url, seconds))

    def reset(self) -> None:
        """Close all connections, and forget them."""
        made, self._made = self._made, {}
        for client, _ in made.values():
            client.close()


connections = Connections()


def _made(url: str, seconds: float | None) -> tuple[Redis | Cluster, Commands]:
    """A client that never repeats a command: a claim that ran twice would lease two batches, and lose one.

    It uses RESP 2: with notices of maintenance redis-py does not check a connection for a surplus reply.
    """
    defaults: dict[str, Any] = {"socket_timeout": 5.0, "max_connections": UNBOUNDED, "protocol": 2}
    if not url.startswith("unix:"):
        defaults |= {"socket_connect_timeout": 5.0, "socket_keepalive": True}
    said = several(url) if "+" in url.partition("://")[0] else None
    if said and not said.service:
        cluster = Cluster(said.hosts, _in_time(defaults | said.options, seconds))
        return cluster, ClusterCommands(cluster)
    if said:
        client = by_sentinel(said, _in_time(defaults | said.options, seconds))
    else:
        client = Redis.from_url(url, retry=once(), **defaults)
        client.connection_pool.connection_kwargs |= _in_time(client.connection_pool.connection_kwargs, seconds)
    is_bounded = client.connection_pool.max_connections != UNBOUNDED  # a kept connection would be missing to others
    return client, ClientCommands(client) if is_bounded else DirectCommands(client)


def _in_time(options: Mapping[str, Any], seconds: float | None) -> dict[str, Any]:
    """Options of connections with time-outs of at most some seconds."""
    limits = {name: min(options[name] or inf, seconds or inf) for name in TIME_OUTS if name in options}
    return {**options, **limits} if seconds else dict(options)


class RedisUnreachable(StoreUnreachable, ConnectionError):
    """A Redis server cannot be reached, or has closed the connection."""


class RedisSilent(StoreUnreachable, TimeoutError):
    """A Redis server does not answer in time; what was asked of it may have been done."""


class RedisIsClusterNode(StoreError, InvalidQueueError):
    """A Redis server is a node of a cluster, and the queue is at another one."""


class RedisLacksDatabase(StoreError, InvalidQueueError):
    """A Redis server has no database of that number."""


class RedisKeyOfWrongType(StoreError, ResponseError):
    """Some ``keys`` of a queue have a type that they cannot have: it stands still until they are moved aside."""

    stops_one = True

    def __init__(self, text: str, keys: Sequence[bytes]):
        super().__init__(text)
        self.keys = keys


def _reason(error: Exception) -> str:
    """Why a call failed: what the system says of the socket if the client quotes that, else what the client says."""
    cause, text = error.__cause__ or error.__context__, str(error)
    said = cause.strerror if isinstance(cause, OSError) else None
    return said if said and said in text else text.rstrip(".")


class RedisLink:
    """A server: a client of our own, shared by its URL, or one that was given."""

    def __init__(self, connection: object):
        self.client: Any
        self._url = url_of(connection) if connection is None or isinstance(connection, str) else None
        if self._url is not None:
            self.client, self._commands = connections.client(self._url)
        else:
            self.client = _accepted(connection)
            self._commands = ClusterCommands(self.client) if self.is_cluster else ClientCommands(self.client)

    @property
    def commands(self) -> Commands:
        """Executes commands within the deadline of this thread, and raises as the client does."""
        return self._within(current.seconds)[1]

    def _within(self, seconds: float | None) -> tuple[Any, Commands]:
        """The client with a deadline. One that was given keeps its own time-outs."""
        if self._url is None or seconds is None:
            return self.client, self._commands
        return connections.client(self._url, seconds)

    def run(self, script: Script, keys: Sequence[bytes], args: Sequence) -> Any:
        """The script's reply. Raises as :meth:`execute` does."""
        execute = (self._commands if current.seconds is None else self.commands).execute
        try:
            try:
                return execute("EVALSHA", script.sha, len(keys), *keys, *args)
            except NoScriptError:  # a server that was restarted, or flushed its scripts; it ran nothing
                return execute("EVAL", script.source, len(keys), *keys, *args)
        except FAULTS as error:
            raise self.told(error, keys) from None

    def execute(self, *args: object) -> Any:
        """The reply to a command whose first argument is its key, if it has any.

        Raises StoreUnreachable, QueueFull if the server has no memory for it, RedisKeyOfWrongType, RedisLacksDatabase,
        else whatever the client raises.
        """
        try:
            return (self._commands if current.seconds is None else self.commands).execute(*args)
        except FAULTS as error:
            raise self.told(error, args[1:2]) from None

    def execute_many(self, commands: Sequence[tuple]) -> list[Any]:
        """The replies to commands that are sent together; of one that fails its error. Raises as :meth:`execute`."""
        try:
            return (self._commands if current.seconds is None else self.commands).execute_many(commands)
        except FAULTS as error:
            raise self.told(error) from None

    def told(self, error: Exception, keys: Sequence[Any] = ()) -> Exception:
        """The error of a client in our words, if we have any; ``keys`` are those of the call."""
        if isinstance(error, ConnectionError):
            return RedisUnreachable(f"{self.where} cannot be reached: {_reason(error)}. {FIX}")
        if isinstance(error, TimeoutError):
            return RedisSilent(f"{self.where} does not answer: {_reason(error)}. {FIX}")
        if isinstance(error, OutOfMemoryError) or "-OOM" in str(error):  # Redis 6 wraps the error of a script
            return QueueFull(f"{self.where} is full (maxmemory) and takes no more.")
        if "WRONGTYPE" in str(error):
            return self._of_wrong_type(keys) or error
        if "DB index is out of range" in str(error):
            return RedisLacksDatabase(f"{self.where} is no database of that server{self._databases()}. {MEND_NUMBER}")
        return self._refused(error)

    def _refused(self, error: Exception) -> Exception:
        """The error of a server that does not serve the queue, or takes no writes, because others do or should."""
        if isinstance(error, MovedError):
            text = f"{self.where} is a node of a cluster, and the queue is at another one"
            return RedisIsClusterNode(f"{text}. {MEND_CLUSTER}")
        if isinstance(error, CLUSTER_FAULTS):
            return RedisUnreachable(f"{self.where} does not serve this queue now: {_reason(error)}.")
        if isinstance(error, ReadOnlyError) or "-READONLY" in str(error):  # Redis 6 wraps the error of a script
            self.client.connection_pool.disconnect(inuse_connections=False)  # its name may lead elsewhere by now
            return RedisUnreachable(f"{self.where} is a replica and takes no writes. Give CONNECTION its primary.")
        if "NOREPLICAS" in str(error):
            return RedisUnreachable(f"{self.where} takes no writes: it has fewer replicas than min-replicas-to-write.")
        return error

    def _databases(self) -> str:
        """How many databases the server has; asks it."""
        with suppress(Exception):  # it may refuse to tell
            first = self.client.connection_pool.connection_class(**{**self._settings, "db": 0})
            first.send_command("CONFIG", "GET", "databases")
            count = int(first.read_response()[1])
            first.disconnect()
            return f", which has {count}, from 0 to {count - 1}"
        return ""

    def _of_wrong_type(self, keys: Sequence[bytes]) -> RedisKeyOfWrongType | None:
        """The error that names those of some keys that have a wrong type; None if none has by now."""
        found = self.execute_many([("TYPE", key) for key in keys])
        odd = {key: type.decode() for key, type in zip(keys, found, strict=True) if isinstance(type, bytes)}
        odd = {key: type for key, type in odd.items() if type not in ("none", type_of(key))}
        where = "-c" if self.is_cluster else f"-n {self._settings.get('db') or 0}"
        texts = []
        for key, type in odd.items():
            name = untext(key)
            command = f"redis-cli {where} RENAMENX {quote(name)} {quote(f'{name}:aside')}"
            texts.append(f"{self.where} has a {type} at the key {name}, not a {type_of(key)}. Move it aside: {command}")
        return RedisKeyOfWrongType("; ".join(texts), list(odd)) if odd else None

    def client_at(self, key: bytes) -> Any:
        """The client of the server that has a key. May connect."""
        client, _ = self._within(current.seconds)
        if (cluster := cluster_of(client)) is None:
            return client
        return cluster.get_redis_connection(cluster.get_node_from_key(key))

    def servers(self) -> list[tuple[str, Any]]:
        """The name and the client of each server that has queues; of a cluster these are the primaries. May connect."""
        if (cluster := cluster_of(self.client)) is None:
            return [(self.where, self.client)]
        nodes = sorted(cluster.get_primaries(), key=attrgetter("name"))
        return [(f"Redis at {node.name}", cluster.get_redis_connection(node)) for node in nodes]

    @property
    def is_cluster(self) -> bool:
        """Whether the client sends each command to the server of its slot."""
        return isinstance(self.client, Cluster | RedisCluster)

    @property
    def has_connections(self) -> bool:
        """Whether a connection of one's own can be made as the client makes its own."""
        return self.is_cluster or isinstance(self.client, Redis)

    @property
    def where(self) -> str:
        if isinstance(self.client, Cluster):
            return f"Redis cluster at {', '.join(f'{host}:{port}' for host, port in self.client.hosts)}"
        at = getattr(self.client, "connection_pool", None) and self._settings
        if not at:
            return type(self.client).__name__
        if isinstance(pool := self.client.connection_pool, SentinelConnectionPool):
            return f"Redis at {pool.service_name}/{at.get('db') or 0} (by Sentinel)"
        place = at.get("path") or f"{at.get('host', 'localhost')}:{at.get('port', 6379)}"
        return f"Redis at {place}/{at.get('db') or 0}"

    @property
    def _settings(self) -> dict:
        """The options of its connections."""
        if isinstance(self.client, Cluster):
            return self.client.options
        if isinstance(self.client, RedisCluster):
            return self.client.get_connection_kwargs()
        return getattr(getattr(self.client, "connection_pool", None), "connection_kwargs", {})


def _accepted(client: object) -> object:
    if not callable(getattr(client, "execute_command", None)):
        raise invalid(f"a {type(client).__name__}", f"{FORMS}, or a client of redis-py")
    link_settings = getattr(getattr(client, "connection_pool", None), "connection_kwargs", {})
    if link_settings.get("decode_responses"):
        raise invalid("a client with decode_responses", "make it without: bodies are bytes")
    retry = getattr(client, "retry", None) or getattr(client, "get_retry", lambda: None)()
    if getattr(retry, "_retries", 0) > 0:
        hint = "make it with retry=Retry(NoBackoff(), 0): a claim that ran twice hides what it took first"
        raise invalid("a client that repeats commands", hint)
    return client


# ---- What can be wrong with a Redis server behind a queue


FLOORS = {"valkey": (7, 2), "redis": (6, 2)}


def check_server(link: RedisLink) -> list[CheckMessage]:
    """The checks of each server; connects. Skips what a server does not reveal, as managed servers may not."""
    try:
        servers = link.servers()
    except FAULTS as error:
        return [Error(f"{link.where} cannot be reached: {_reason(error)}.", hint=FIX, id="djqueue.E101")]
    return [message for where, client in servers for message in _check(link, where, client)]


def _check(link: RedisLink, where: str, client: Any) -> list[CheckMessage]:
    try:
        info = client.info()
    except (ConnectionError, TimeoutError) as error:
        return [Error(f"{where} cannot be reached: {_reason(error)}.", hint=FIX, id="djqueue.E101")]
    except RedisError as error:
        if not isinstance(told := link.told(error), RedisLacksDatabase):
            return []
        return [Error(str(told).removesuffix(f" {MEND_NUMBER}"), hint=MEND_NUMBER, id="djqueue.E104")]
    return [*_check_version(where, info), *_check_safety(where, info, client), *_check_role(link, where, info)]


def _check_version(where: str, info: dict) -> Iterator[CheckMessage]:
    kind = "valkey" if "valkey_version" in info else "redis"
    version = str(info.get(f"{kind}_version", ""))
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if len(numbers) == 2 and numbers < FLOORS[kind]:
        hint = f"Use {kind} {'.'.join(map(str, FLOORS[kind]))} or later."
        yield Error(f"{where} is {kind} {version}.", hint=hint, id="djqueue.E102")


def _check_safety(where: str, info: dict, client: Any) -> Iterator[CheckMessage]:
    policy = info.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        text = f"{where} may delete queues: its maxmemory-policy is {policy}."
        hint = "Set maxmemory-policy to noeviction: then a full server refuses new work instead of deleting old work."
        yield Error(text, hint=hint, id="djqueue.E103")
    if not info.get("aof_enabled", 1) and _config(client, "save") == "":
        hint = "Turn on appendonly, unless queues may be lost when it restarts."
        yield Warning(f"{where} keeps nothing on disk.", hint=hint, id="djqueue.W101")


def _check_role(link: RedisLink, where: str, info: dict) -> Iterator[CheckMessage]:
    if info.get("cluster_enabled") and not link.is_cluster:
        yield Error(f"{where} is a node of a cluster.", hint=MEND_CLUSTER, id="djqueue.E105")
    if info.get("role") == "slave":
        hint = "Give CONNECTION the address of its primary, or redis+sentinel:// and those of its Sentinels."
        yield Error(f"{where} is a replica and takes no writes.", hint=hint, id="djqueue.E106")


def _config(client: Any, name: str) -> str | None:
    try:
        value = client.config_get(name).get(name)
    except RedisError:
        return None
    return value.decode() if isinstance(value, bytes) else value
