"""How soon an idle consumer begins, and what its idleness costs. Loose bounds; the figures are in the benchmarks."""

import statistics
import time

import pytest

from tests.faults import ledger
from tests.faults.commands import work
from tests.faults.conftest import APPS
from tests.faults.processes import Consumers
from tests.support.backends import config_at
from tests.support.processes import until

pytestmark = pytest.mark.slow


def delays(consumers, count):
    """Seconds from the call to the start, each time with an idle consumer."""
    found = []
    for number in range(count):
        called = ledger.now()
        id = work().id
        consumers.ledger.wait("end", number + 1)
        found.append(consumers.ledger.of("start", {id})[0].at - called)
    return found


@pytest.mark.alone
@pytest.mark.backends("postgres", "redis-blocking")
def test_a_blocking_consumer_begins_at_once_dj23_to21(consumers):
    """DJ-23, TO-21: though it may sleep for ten seconds, it wakes within 50 ms, in the middle of many."""
    consumers.args = ("-n", "-d", 10, "-m", 10)
    consumers.start()
    assert statistics.median(delays(consumers, 25)) < 0.05


@pytest.mark.alone
@pytest.mark.backends("sqlite", "postgres", "mariadb", "redis")
def test_a_polling_consumer_begins_within_its_longest_pause_dj14(consumers):
    """DJ-14, DJ-23"""
    consumers.args = ("-n", "-d", 0.3, "-m", 0.3)
    consumers.start()
    assert statistics.median(delays(consumers, 5)) < 0.3 + 0.1


@pytest.mark.server("redis")
def test_idleness_is_cheap_to21(private_server, make_site):
    """TO-21: fewer than 5 commands per second from a consumer that has been idle until its pauses are longest."""
    redis = pytest.importorskip("redis")
    server = private_server("redis")
    site = make_site({"default": config_at(server.url)}, INSTALLED_APPS=APPS)
    consumers = Consumers(site, args=("-n", "-d", 1, "-m", 1))
    consumers.start()
    consumers.site.run("send_work", 1, 0)
    consumers.ledger.wait("end")
    with redis.Redis.from_url(server.url) as client:
        until(lambda: client.exists("{djqueue::shared}:fact:consumers"))  # written last of what is so once
    with redis.Redis.from_url(server.url) as client, client.monitor() as monitor:
        began = time.monotonic()
        time.sleep(20)  # some things are done every five or thirty seconds, and at once then
        with redis.Redis.from_url(server.url) as other:
            other.echo("over")
        seconds = time.monotonic() - began
        sent = commands_until(monitor, "ECHO over")
    assert 0 < len(sent) < 5 * seconds, sent


def commands_until(monitor, last):
    """What clients sent, without what scripts did."""
    sent = []
    while (seen := monitor.next_command())["command"] != last:
        if seen["client_type"] != "lua" and not seen["command"].startswith(("CLIENT", "HELLO")):
            sent.append(seen["command"])
    return sent
