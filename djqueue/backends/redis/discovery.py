"""Clients that find their servers by themselves: of a Redis cluster, and of the primary that Sentinels watch."""

from __future__ import annotations

import threading
from typing import Any

from redis import Redis
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode, RedisCluster
from redis.retry import Retry
from redis.sentinel import Sentinel

from djqueue.backends.redis.address import Several

ALIKE = ("ssl", "socket_", "protocol")
"""How the names of those options begin with which Sentinels are reached as their servers are."""


def once() -> Retry:
    """For clients that repeat no command."""
    return Retry(NoBackoff(), 0)


class Cluster:
    """A client of a cluster that connects when it is first used, as other clients of redis-py do.

    A slot without a server stops only the queues in that slot.
    """

    def __init__(self, hosts: list[tuple[str, int]], options: dict[str, Any]) -> None:
        self.hosts, self.options = hosts, options
        self._lock = threading.Lock()
        self._client: RedisCluster | None = None

    @property
    def client(self) -> RedisCluster:
        """Asks the cluster once where its slots are."""
        if self._client is None:
            with self._lock:
                self._client = self._client or self._made()
        return self._client

    def execute_command(self, *args: object) -> Any:
        return self.client.execute_command(*args)

    def close(self) -> None:
        """Close all connections."""
        if self._client is not None:
            self._client.close()

    def _made(self) -> RedisCluster:
        nodes = [ClusterNode(host, port) for host, port in self.hosts]
        client = RedisCluster(startup_nodes=nodes, require_full_coverage=False, retry=once(), **self.options)
        vars(client)["cluster_error_retry_attempts"] = 0  # where redis-py 5 reads it
        return client


def cluster_of(client: object) -> RedisCluster | None:
    """The client of a cluster, ours or one that was given; None for that of one server. May connect."""
    if isinstance(client, Cluster):
        return client.client
    return client if isinstance(client, RedisCluster) else None


def by_sentinel(said: Several, options: dict[str, Any]) -> Redis:
    """A client of a primary, which asks for its address at each new connection. Does not connect."""
    own = {name.removeprefix("sentinel_"): value for name, value in said.options.items() if _of_sentinel(name)}
    alike = {name: value for name, value in options.items() if name.startswith(ALIKE)}
    sentinel = Sentinel(said.hosts, sentinel_kwargs={**alike, **own, "retry": once()})
    others = {name: value for name, value in options.items() if not _of_sentinel(name)}
    return sentinel.master_for(said.service, retry=once(), **others)


def _of_sentinel(name: str) -> bool:
    return name.startswith("sentinel_")
