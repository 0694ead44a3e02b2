"""Claims by a rate limit in a database: what they ask, and what they do when others are faster or in the way."""

import re
import threading
from contextlib import contextmanager

import pytest
from django.db import connections, transaction

from djqueue.backends.base import RateLimit
from djqueue.backends.database.sql import postgresql
from djqueue.backends.database.sql.postgresql import PostgreSQL
from djqueue.flow.gates import Gate
from djqueue.flow.windows import Window
from djqueue.models import QueueFact, QueueMessage
from djqueue.testing import eventually
from djqueue.testing.contract.steps import entry, names, until_now_is
from djqueue.testing.patience import PATIENCE
from tests.support.database import as_another_process, statements

pytestmark = pytest.mark.backends("sqlite", "postgres", "mariadb")

HOUR = 3600


def a_rate_limit(queue, limit, seconds=HOUR, **ways) -> RateLimit:
    return RateLimit(queue.own_rate_limit, Window(limit, seconds, **ways))


def filled(queue, count, rate_limit):
    """One of the entries has left already: the rate limit is known."""
    queue.put([entry("0"), *(entry(str(number)) for number in range(1, count))])
    assert names(queue.claim_within(rate_limit)) == ["0"]
    return queue


def test_who_is_refused_asks_for_the_rate_limit_and_nothing_else(queue):
    rate_limit = a_rate_limit(queue, 1)
    with statements(queue) as log:
        assert queue.claim_within(rate_limit) == []
    assert len(log) == 1
    queue.put([entry("1"), entry("2")])
    assert names(queue.claim_within(rate_limit)) == ["1"]
    for _ in range(2):
        with statements(queue) as log:
            assert queue.claim_within(rate_limit).reason == "limited"
        assert len(log) == 1
        assert "djqueue_message" not in log[0]["sql"]


def test_who_was_refused_and_may_claim_again_finds_lanes_too(queue):
    rate_limit = a_rate_limit(queue, 1, 0.05)
    queue.put([entry("1"), entry("2")])
    assert names(queue.claim_within(rate_limit)) == ["1"]
    assert as_another_process(queue).put([entry("3", lane="a", gate=Gate(ordered=True).written())]) == [True]
    found = []
    eventually(lambda: found.extend(names(queue.claim_within(rate_limit))) or len(found) == 2)
    assert sorted(found) == ["2", "3"]
    assert queue.claim_within(rate_limit) == []


def test_a_queue_that_was_found_empty_is_glanced_at(queue):
    rate_limit = a_rate_limit(queue, 9)
    filled(queue, 2, rate_limit)
    assert names(queue.claim_within(rate_limit)) == ["1"]
    assert queue.claim_within(rate_limit) == []
    for _ in range(3):
        with statements(queue) as log:
            assert queue.claim_within(rate_limit) == []
        assert len(log) == 1


def test_what_has_failed_is_claimed_by_a_rate_limit_too(queue):
    rate_limit = a_rate_limit(queue, 1)
    queue.put([entry("1"), entry("2")])
    queue.fail(queue.claim(2))
    assert names(queue.failed.claim_within(rate_limit, 2)) == ["1"]
    assert queue.failed.claim_within(rate_limit, 2).reason == "limited"


# ---- in one statement


@contextmanager
def meanwhile(monkeypatch, do):
    """``do`` is done once, between the look at the rate limit and the statement that claims."""
    claim_paid, tried = PostgreSQL.claim_paid, []

    def after(sql, ask, payment):
        tried.append(ask.limit)
        if len(tried) == 1:
            do()
        return claim_paid(sql, ask, payment)

    with monkeypatch.context() as patch:
        patch.setattr(PostgreSQL, "claim_paid", after)
        yield tried


@contextmanager
def locked(queue, *which):
    """Somebody has the rows of these entries."""
    other = connections.create_connection(queue.database)
    rows = QueueMessage.objects.filter(queue=queue.name, body__in=[one.encode() for one in which])
    sql, params = rows.values("seq").query.sql_with_params()
    try:
        with other.cursor() as cursor:
            cursor.execute("BEGIN")
            cursor.execute(f"{sql} FOR UPDATE", params)
        yield
    finally:
        other.close()


@pytest.fixture
def nobody_is_late(monkeypatch):
    """However slow the machine is, nobody is late."""
    late = rf"\b({postgresql.STALE}|{postgresql.LATE})\b"
    whenever = {way: re.sub(late, "60000000", sql) for way, sql in postgresql.PAID.items()}
    assert whenever != postgresql.PAID
    monkeypatch.setattr(postgresql, "PAID", whenever)


@pytest.mark.backends("postgres")
@pytest.mark.usefixtures("nobody_is_late")
class TestAtOnce:
    def test_what_leaves_takes_a_look_and_one_statement(self, queue, monkeypatch):
        monkeypatch.setattr("djqueue.backends.database.queue.UNSEEN", 3600)  # a look at the lanes is a statement too
        rate_limit = a_rate_limit(queue, 6)
        filled(queue, 8, rate_limit)
        with statements(queue) as log:
            claimed = queue.claim_within(rate_limit, 2)
        assert (names(claimed), claimed.retry_after, len(log)) == (["1", "2"], 0, 2)
        with statements(queue) as log:
            claimed = queue.claim_within(rate_limit, 9)
        assert (names(claimed), claimed.reason, len(log)) == (["3", "4", "5"], "limited", 2)
        assert {lease.claimed for lease in claimed} == {claimed[0].claimed}
        assert len(queue.complete(claimed)) == 3

    def test_of_fewer_than_may_leave_all_leave(self, queue):
        rate_limit = a_rate_limit(queue, 9)
        filled(queue, 4, rate_limit)
        claimed = queue.claim_within(rate_limit, 5)
        assert (names(claimed), claimed.retry_after) == (["1", "2", "3"], 0)
        assert queue.claim_within(rate_limit) == []
        queue.put([entry(str(number)) for number in range(4, 12)])
        assert len(queue.claim_within(rate_limit, 9)) == 5

    def test_who_is_overtaken_spends_nothing_twice(self, queue, monkeypatch):
        rate_limit, other = a_rate_limit(queue, 3), as_another_process(queue)
        filled(queue, 9, rate_limit)
        taken = []
        with meanwhile(monkeypatch, lambda: taken.extend(names(other.claim_within(rate_limit)))) as tried:
            taken += names(queue.claim_within(rate_limit, 5))
        assert sorted(taken) == ["1", "2"]
        assert tried == [2, 1, 1]
        assert queue.claim_within(rate_limit, 5).reason == "limited"

    def test_who_is_overtaken_and_finds_the_window_full_is_told_so(self, queue, monkeypatch):
        rate_limit, other = a_rate_limit(queue, 2), as_another_process(queue)
        filled(queue, 9, rate_limit)
        with meanwhile(monkeypatch, lambda: other.claim_within(rate_limit)):
            claimed = queue.claim_within(rate_limit)
        assert (claimed, claimed.reason) == ([], "limited")

    def test_what_somebody_else_has_is_passed_over_and_not_paid_for(self, queue):
        rate_limit = a_rate_limit(queue, 4)
        filled(queue, 6, rate_limit)
        with locked(queue, "1", "2"):
            claimed = queue.claim_within(rate_limit, 2)
            assert set(names(claimed)) <= {"3", "4"}
        rest = eventually(lambda: queue.claim_within(rate_limit, 9))
        assert len(claimed) + len(rest) == 3
        assert queue.claim_within(rate_limit).reason == "limited"

    def test_what_falls_due_keeps_its_rank(self, queue):
        rate_limit = a_rate_limit(queue, 9)
        filled(queue, 3, rate_limit)
        queue.put([entry("urgent", priority=5, delay=0.05)])
        until_now_is(queue, queue.now() + 0.06)
        assert [*names(queue.claim_within(rate_limit)), *names(queue.claim_within(rate_limit))] == ["urgent", "1"]

    def test_the_last_come_leave_first_if_the_queue_says_so(self, queue):
        rate_limit, queue = a_rate_limit(queue, 9), as_another_process(queue, lifo=True)
        queue.put([entry(str(number)) for number in range(4)])
        assert [names(queue.claim_within(rate_limit, count)) for count in (1, 2, 1)] == [["3"], ["2", "1"], ["0"]]

    def test_in_a_transaction_of_the_caller_it_is_part_of_that(self, queue):
        rate_limit = a_rate_limit(queue, 2)
        filled(queue, 3, rate_limit)
        with pytest.raises(ZeroDivisionError), transaction.atomic(queue.database):
            assert names(queue.claim_within(rate_limit)) == ["1"]
            raise ZeroDivisionError
        assert names(queue.claim_within(rate_limit)) == ["1"]


@pytest.mark.backends("postgres")
class TestLate:
    def test_who_held_on_for_long_after_the_look_looks_again(self, queue, monkeypatch):
        rate_limit, went_on = a_rate_limit(queue, 9), []
        filled(queue, 3, rate_limit)

        def dawdle():
            until_now_is(queue, queue.now() + 0.1)
            went_on.append(queue.now())

        with meanwhile(monkeypatch, dawdle):
            (lease,) = queue.claim_within(rate_limit)
        assert lease.claimed > went_on[0]

    def test_who_looks_again_is_told_that_the_window_is_full_by_what_it_gets(self, queue, monkeypatch):
        rate_limit = a_rate_limit(queue, 4)
        filled(queue, 9, rate_limit)
        with meanwhile(monkeypatch, lambda: until_now_is(queue, queue.now() + 0.1)) as tried:
            claimed = queue.claim_within(rate_limit, 9)
        assert (len(claimed), claimed.reason, tried[:2]) == (3, "limited", [3, 3])

    def test_who_waited_long_for_the_rate_limit_looks_again(self, queue, monkeypatch):
        rate_limit, let_go, has_it = a_rate_limit(queue, 9), [], threading.Event()
        filled(queue, 3, rate_limit)

        def hold():
            with transaction.atomic(queue.database):
                facts = QueueFact.objects.using(queue.database).select_for_update()
                assert len(facts.filter(name__endswith=queue.own_rate_limit)) == 1
                has_it.set()
                until_now_is(queue, queue.now() + 0.1)
                let_go.append(queue.now())
            connections.close_all()

        def begin():
            threading.Thread(target=hold).start()
            assert has_it.wait(PATIENCE)

        with meanwhile(monkeypatch, begin):
            (lease,) = queue.claim_within(rate_limit)
        assert lease.claimed > let_go[0] - postgresql.LATE / 1e6
