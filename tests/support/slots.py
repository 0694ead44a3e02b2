"""Where in a cluster a queue lives, and what moves it to another node."""

from collections.abc import Iterator
from contextlib import contextmanager

import redis
from redis.crc import key_slot

from tests.support.redis_servers import SLOTS, Cluster, ClusterNode


def slot_of(name: str, prefix: str = "djqueue") -> int:
    """The slot of the queue with that name."""
    return key_slot(f"{{{prefix}:{name}}}".encode())


def node_of(cluster: Cluster, slot: int) -> ClusterNode:
    """The node that had a slot when the cluster began."""
    return cluster.members[slot // (SLOTS // 3 + 1)]


def on_each_node(cluster: Cluster, count: int = 1, prefix: str = "djqueue") -> list[str]:
    """Names of queues, so many on each node."""
    found: dict[int, list[str]] = {}
    for number in range(1000):
        name = f"mail{number}"
        found.setdefault(node_of(cluster, slot_of(name, prefix)).port, []).append(name)
    return [name for names in found.values() for name in names[:count]]


def other_node(cluster: Cluster, slot: int) -> ClusterNode:
    """A node that did not have the slot when the cluster began."""
    return next(node for node in cluster.members[:3] if node is not node_of(cluster, slot))


@contextmanager
def moving(cluster: Cluster, slot: int) -> Iterator[None]:
    """Within the block one of the keys of a slot is at the next node already; after it all are, and it has the slot."""
    source, target = node_of(cluster, slot), other_node(cluster, slot)
    target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", source.id)
    source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", target.id)
    _migrate(source, target, slot, 1)
    yield
    while _migrate(source, target, slot, 100):
        pass
    for node in (target, source, *cluster.members):
        node.ask("CLUSTER", "SETSLOT", slot, "NODE", target.id)


def _migrate(source: ClusterNode, target: ClusterNode, slot: int, count: int) -> int:
    """Move some keys of a slot; how many."""
    with redis.Redis(port=source.port) as client:
        keys = client.execute_command("CLUSTER", "GETKEYSINSLOT", slot, count)
        if keys:
            client.execute_command("MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", *keys)
        return len(keys)
