"""One consumer of queues on two databases and on Redis: none of them is held up by the server of another."""

import json

import pytest

from tests.faults.conftest import APPS
from tests.faults.processes import Consumers, full
from tests.support import servers
from tests.support.backends import config_at
from tests.support.processes import until

pytestmark = [pytest.mark.slow, pytest.mark.server("redis", "postgres")]
QUEUES = "default,orders,mail"
"""On the database "default", on the database "shop", and on Redis."""


@pytest.fixture
def databases(private_server) -> dict[str, servers.Postgres]:
    """Two PostgreSQL servers of the test's own, by alias."""
    return {alias: private_server("postgres") for alias in ("default", "shop")}


@pytest.fixture
def consumers(databases, private_server, make_site):
    path = "djqueue.backends.database.DatabaseQueue"
    queues = {"default": {"CLASS": path}, "orders": {"CLASS": path, "CONNECTION": "shop"}}
    queues["mail"] = config_at(private_server("redis").url)
    own = {alias: servers.database("postgres", server.url) for alias, server in databases.items()}
    site = make_site(queues, INSTALLED_APPS=APPS, DATABASES=own)
    for alias in databases:
        site.run("migrate", "-v", 0, "--database", alias)
    return Consumers(site)


def sent(consumers: Consumers, *args) -> dict[str, set[str]]:
    """The ids by the alias of the queue."""
    found = json.loads(consumers.site.run("send_across", *args).splitlines()[-1])
    return {alias: set(ids) for alias, ids in found.items()}


def all_of(found: dict[str, set[str]]) -> set[str]:
    return set().union(*found.values())


def test_a_call_is_part_of_the_transaction_on_the_database_of_its_queue(consumers):
    """On Redis the call waits for the commit on ``default``."""
    back = sent(consumers, 2, QUEUES, "--databases", "shop", "--roll-back")
    none = sent(consumers, 2, QUEUES, "--databases", "default,shop", "--roll-back")
    both = sent(consumers, 2, QUEUES, "--databases", "default,shop")
    consumers.start("-t", 4)
    kept = back["default"] | back["mail"] | all_of(both)
    consumers.ledger.wait_all("end", kept)
    assert consumers.stop() == [0]
    assert {event.id for event in consumers.ledger.of("start")} == kept
    assert not kept & (back["orders"] | all_of(none))


def test_one_consumer_serves_all_and_a_database_that_is_away_holds_up_no_other(consumers, databases):
    consumers.start("-t", 4, "--lease", 4)
    first = sent(consumers, full(50, 500), QUEUES)
    consumers.ledger.wait_all("end", all_of(first))
    databases["shop"].kill9()
    others = sent(consumers, full(50, 500), "default,mail")
    consumers.ledger.wait_all("end", all_of(others))
    databases["shop"].start()
    until(lambda: databases["shop"].ready())
    later = sent(consumers, 5, QUEUES)
    consumers.ledger.wait_all("end", all_of(later))
    ids = all_of(first) | all_of(others) | all_of(later)
    assert consumers.stop() == [0]
    found = consumers.ledger.check(ids)
    assert (found.lost, found.unexpected, found.dup_runs) == (set(), set(), 0)
    assert len(consumers.ledger.pids()) == 1
