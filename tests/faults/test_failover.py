"""A primary is replaced, or a slot moves, while a consumer works: it goes on by itself.

Replication is asynchronous: what the dead primary had accepted and not yet sent to its replica is gone. A ``WAIT``
behind it tells that all before has arrived.
"""

import time

import pytest
import redis

from djqueue.exceptions import StoreUnreachable
from tests.faults.commands import work
from tests.faults.conftest import APPS
from tests.faults.processes import Consumers, at_rest, full, ids_of
from tests.support import servers
from tests.support.backends import config_at
from tests.support.processes import until
from tests.support.slots import moving, node_of, slot_of

pytestmark = [pytest.mark.slow, pytest.mark.server("redis")]
THREADS, MILLISECONDS = 4, 5
AHEAD = 48
"""More than 4 threads finish in the 50 ms for which a consumer claims ahead."""
QUICK = ("--cluster-node-timeout", "1500")


@pytest.fixture
def consumer_at(make_site, settings):
    """A consumer of a queue at an address; a test's own process knows the same queue."""

    def start(url: str) -> Consumers:
        settings.QUEUES = {"default": config_at(url)}
        consumers = Consumers(make_site(settings.QUEUES, INSTALLED_APPS=APPS))
        consumers.start("-t", THREADS, "--lease", 4)
        return consumers

    return start


def send(count: int) -> set[str]:
    return set(ids_of(work.enqueue_many([(MILLISECONDS,)] * count)))


def sent_if_accepted() -> str | None:
    """The id of one more message, if it is accepted."""
    try:
        return work(MILLISECONDS).id
    except StoreUnreachable:
        return None


def replicated(primary: servers.Redis) -> None:
    """Wait until the replica has all that the primary has accepted before."""
    with redis.Redis(port=primary.port, single_connection_client=True) as client:
        client.set("{djqueue:default}:barrier", 1)
        until(lambda: client.wait(1, 1000))


def lose_primary(consumers: Consumers, primary: servers.Redis) -> None:
    """The primary dies in the middle of the work; what had arrived at its replica is run, and what comes later too."""
    safe = send(full(300, 3000))
    consumers.ledger.wait("end", 50)
    replicated(primary)
    unknown = send(20)
    primary.kill9()
    assert sent_if_accepted() is None
    later = {until(sent_if_accepted, 60), *send(full(100, 1000))}
    consumers.ledger.wait_all("end", safe | later)
    at_rest()
    found = consumers.ledger.check(safe | later, unknown)
    assert not found.lost
    assert found.dup_runs <= THREADS + AHEAD
    assert consumers.ledger.pids() == {member.pid for member in consumers.members}


def test_a_consumer_goes_on_with_the_primary_that_sentinels_choose(private_server, consumer_at):
    server = private_server("sentinel-quick")
    consumers = consumer_at(server.url)
    lose_primary(consumers, server.primary)
    server.primary.start()  # and comes back as a replica
    until(lambda: server.primary.has_role("slave"), 60)
    consumers.ledger.wait_all("end", send(20))
    assert consumers.stop() == [0]


def test_a_consumer_goes_on_with_the_replica_that_a_cluster_promotes(private_server, consumer_at):
    server = private_server("cluster", *QUICK)
    primary = node_of(server, slot_of("default"))
    server.add_replica(primary)
    consumers = consumer_at(server.url)
    lose_primary(consumers, primary)
    primary.start()
    until(lambda: primary.has_role("slave"), 60)
    consumers.ledger.wait_all("end", send(20))
    assert consumers.stop() == [0]


def test_a_consumer_follows_a_slot_that_moves_to_another_node(private_server, consumer_at):
    server = private_server("cluster")
    consumers = consumer_at(server.url)
    ids = send(full(300, 3000))
    consumers.ledger.wait("end", 50)
    with moving(server, slot_of("default")):
        with pytest.raises(StoreUnreachable):  # as several keys are asked for, of which some are not there yet
            send(2)
        began = len(consumers.ledger.of("start"))
        time.sleep(full(1, 5))
        assert len(consumers.ledger.of("start")) <= began + AHEAD
    ids.add(until(sent_if_accepted))
    ids |= send(100)
    consumers.ledger.wait_all("end", ids)
    stats, found = at_rest(), consumers.ledger.check(ids)
    assert (stats.done, stats.failed, found.lost) == (len(ids), 0, set())
    assert found.dup_runs <= THREADS + AHEAD
    assert consumers.stop() == [0]
