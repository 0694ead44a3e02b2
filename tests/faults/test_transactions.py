"""A message about a row runs if and when the row is there."""

import pytest
from django.db import transaction

from tests.app.models import Thing
from tests.faults.commands import check_row
from tests.faults.processes import assert_done, full, seeded

pytestmark = pytest.mark.slow
DATABASES = ("sqlite", "postgres", "mariadb")


class Undone(Exception):
    pass


def business(chance, alias, count):
    """Transactions of which about half are rolled back; the ids of the messages that are to run."""
    kept = {}
    for number in range(count):
        try:
            with transaction.atomic(using=alias):
                thing = Thing.objects.using(alias).create(name="a row", number=number)
                message = check_row(thing.pk, alias)
                if chance.random() < 0.5:
                    raise Undone
        except Undone:
            continue
        kept[message.id] = thing.pk
    return kept


def assert_ran_if_kept(consumers, kept):
    assert 0 < len(kept)
    consumers.ledger.wait_all("end", kept)
    assert_done(consumers, kept)
    assert {event.id for event in consumers.ledger.of("seen")} == kept.keys()
    assert consumers.ledger.of("absent") == []
    assert len(consumers.ledger.of("start")) == len(kept)


def ran_if_kept(consumers, alias):
    """Half of the transactions are rolled back, while consumers poll hard; one producer dies before its commit."""
    consumers.args = ("-n", "-d", 0.001, "-m", 0.002)
    consumers.start_many(2)
    kept = business(seeded(), alias, full(100, 1000))
    assert_ran_if_kept(consumers, kept)
    producer = consumers.site.start("hang_before_commit", alias)
    producer.wait_for("about to commit")
    producer.kill9()
    assert_ran_if_kept(consumers, kept)
    return kept


@pytest.mark.backends(*DATABASES)
def test_a_message_belongs_to_its_transaction(consumers, backend):
    kept = ran_if_kept(consumers, backend.alias)
    assert set(Thing.objects.using(backend.alias).values_list("pk", flat=True)) == set(kept.values())


@pytest.mark.backends("redis", "redis-blocking", database=True)
def test_a_message_is_sent_on_commit(consumers):
    """The same on a store apart from the database."""
    ran_if_kept(consumers, "default")
