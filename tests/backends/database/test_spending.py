"""Claims that spend rates in one statement, on PostgreSQL: by the rule of the other stores, whoever else claims."""

import random
import threading
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace

import pytest
from django.db import connections, transaction

from djqueue.backends.database import lanes
from djqueue.backends.database.sql import postgresql
from djqueue.backends.database.sql.postgresql import PostgreSQL
from djqueue.flow.gates import RATE_UNREADABLE, Gate
from djqueue.flow.rates import Rate, capacity, expires_at, spend
from djqueue.flow.windows import Window
from djqueue.models import QueueLane, QueueTicket
from djqueue.testing import eventually
from djqueue.testing.contract.lane_steps import fill, nothing_known, unit
from djqueue.testing.contract.steps import entry, names, put, until_now_is
from djqueue.testing.patience import together
from tests.support.backends import FULL
from tests.support.database import as_another_connection, as_another_process, statements
from tests.support.processes import until
from tests.support.windows import WINDOWS

pytestmark = [pytest.mark.backends("postgres"), pytest.mark.django_db(transaction=True)]

CLAIMS = 1000 if FULL else 60


def row_of(queue, name="a") -> QueueLane:
    return QueueLane.objects.using(queue.database).get(queue=queue.name, name=name)


@pytest.fixture
def answers(monkeypatch):
    """Whether each claim was answered by the one statement."""
    found, spend = [], PostgreSQL.spend

    def noted(sql, *args):
        found.append(spend(sql, *args))
        return found[-1]

    monkeypatch.setattr(PostgreSQL, "spend", noted)
    return found


@pytest.mark.parametrize("window", [*WINDOWS, Window(3, 3600.0)], ids=str)
def test_the_statement_decides_as_the_rule_of_the_other_stores_and_writes_the_same(queue, answers, window):
    choose, gate = random.Random(str(window)), Gate(windows=(window,))
    fill(queue, "a", *map(str, range(CLAIMS * 4)), gate=gate)
    left, before = CLAIMS * 4, Rate(window)
    for _ in range(CLAIMS):
        asked = choose.randint(1, 4)
        claimed = queue.claim(asked)
        row = row_of(queue)
        after = Rate.read(row.rates) if row.rates else Rate(window)
        if not claimed:
            assert after == before
            assert row.state == QueueLane.State.SCHEDULED or capacity(before, round(queue.now() * 1e6)).free
            continue
        now = round(claimed[0].claimed * 1e6)
        count, (expected,) = spend([before], asked, now)
        assert (len(claimed), after) == (count, expected)
        has, left = capacity(after, now), left - count
        if has.free or not left:
            assert not left or (row.state, row.sort_at) == (QueueLane.State.READY, now)
        else:
            assert (row.state, now < row.sort_at <= now + has.wait) == (QueueLane.State.SCHEDULED, True)
        before = after
        if choose.random() < 0.3 and queue.defer(claimed[:1], 0.01):  # it is counted as leaving a little later
            before = Rate.read(row_of(queue).rates)
    assert all(answers)


def test_a_lane_that_is_empty_is_looked_at_when_it_is_to_be_forgotten(queue, answers):
    fill(queue, "a", "1", gate=Gate(windows=(Window(5, 0.05),)))
    (lease,) = queue.claim(5)
    row = row_of(queue)
    assert (row.state, row.sort_at) == (QueueLane.State.SCHEDULED, expires_at(Rate.read(row.rates)))
    queue.complete([lease])
    eventually(lambda: queue.claim(1) == [] and not QueueLane.objects.using(queue.database).filter(queue=queue.name))
    assert all(answers)


def test_a_throttled_message_takes_three_statements_and_one_with_a_new_key_four(queue, monkeypatch):
    monkeypatch.setattr("djqueue.backends.database.queue.UNSEEN", 3600)  # a look at the lanes is a statement too
    gate = Gate(windows=(Window(100, 3600),))
    fill(queue, "a", "first", gate=gate)
    queue.complete(queue.claim(1))
    for lane, count in (("a", 3), ("b", 4), ("c", 4), ("b", 3)):
        with statements(queue) as log:
            fill(queue, lane, "1", gate=gate)
            assert len(queue.complete(queue.claim(1))) == 1
        assert len([one for one in log if not one["sql"].startswith(("BEGIN", "COMMIT"))]) == count


@pytest.mark.parametrize("gate", [Gate(ordered=True), Gate(concurrency=2), Gate(max_run=3), Gate()], ids=str)
def test_next_to_other_lanes_rates_are_spent_as_these_are(queue, answers, gate):
    fill(queue, "rate", *"1234", gate=Gate(windows=(Window(2, 3600),)))
    fill(queue, "other", "5", gate=replace(gate, max_run=max(2, gate.max_run)))
    put(queue, "6")
    claimed = []
    eventually(lambda: claimed.extend(names(queue.claim(10))) or len(claimed) >= 4)
    assert sorted(claimed) == ["1", "2", "5", "6"]
    assert not all(answers)


def test_several_windows_and_parents_are_not_for_the_statement(queue, answers):
    two = Gate(windows=(Window(5, 3600), Window(1, 60)))
    inner = Gate(windows=(Window(5, 3600),), parent="all", parent_gate=Gate(windows=(Window(3, 3600),)))
    fill(queue, "two", *"12", gate=two)
    fill(queue, "a", *"34", gate=inner)
    fill(queue, "b", *"56", gate=inner)
    claimed = []
    eventually(lambda: claimed.extend(names(queue.claim(10))) or len(claimed) >= 4)
    assert queue.claim(10) == []
    assert len([name for name in claimed if name in "12"]) == 1
    assert not any(answers)


def test_the_gate_that_came_last_counts_and_what_has_left_counts_by_it(queue):
    fill(queue, "a", *"1234", gate=Gate(windows=(Window(2, 3600),)))
    assert names(queue.claim(9)) == ["1", "2"]
    fill(queue, "a", "5", gate=Gate(windows=(Window(3, 3600),)))
    assert names(queue.claim(9)) == ["3"]
    fill(queue, "a", "6", gate=Gate(concurrency=1))
    assert len(queue.claim(9)) == 1


LOCK = 1234567
LOOKED, HELD = "WITH\ntickets", "(SELECT 1 FROM at_work)))\n    ORDER BY l.seq FOR UPDATE"
WAITING = f"""SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = {LOCK} AND NOT granted
AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"""


def rows_of(cursor, sql) -> list[tuple]:
    cursor.execute(sql)
    return cursor.fetchall()


@contextmanager
def stopped_before_it_locks(queue, monkeypatch):
    """A claim of another thread that has its snapshot, and has locked nothing yet; it goes on at the end."""
    sql = postgresql.SPENT[False]
    assert LOOKED in sql and HELD in sql
    sql = sql.replace(LOOKED, f"WITH stop AS MATERIALIZED (SELECT pg_advisory_xact_lock({LOCK})),\ntickets")
    sql = sql.replace(HELD, HELD.replace("at_work)))", "at_work))) AND (SELECT count(*) FROM stop) = 1"))
    found = []
    with transaction.atomic(queue.database), connections[queue.database].cursor() as cursor:
        cursor.execute(f"SELECT pg_advisory_xact_lock({LOCK})")
        with monkeypatch.context() as patch:
            patch.setitem(postgresql.SPENT, False, sql)
            other = as_another_process(queue)
            other._claims.stir()
            thread = threading.Thread(target=lambda: (found.extend(names(other.claim(9))), connections.close_all()))
            thread.start()
            until(lambda: rows_of(cursor, WAITING)[0][0])
        yield found
    thread.join()


def test_a_lane_that_another_transaction_changed_since_the_statement_began_is_let_go(queue, monkeypatch):
    """It would lock it in its new state, and not see what arrived in it: that would be stranded."""
    gate, taken = Gate(windows=(Window(9, 3600),)), []
    fill(queue, "a", "1", gate=gate)
    queue.complete(unit(queue))
    queue.put([entry("gone", id="gone", lane="a", gate=gate.written())])
    assert queue.remove(["gone"]) == 1  # it has left a ticket

    def meanwhile():
        own = as_another_process(queue)
        fill(own, "a", "2", "3", gate=gate)
        taken.extend(names(own.claim(1)))

    with stopped_before_it_locks(queue, monkeypatch) as found:
        as_another_connection(queue, meanwhile)
    assert (taken, found) == (["2"], [])
    assert names(as_another_process(queue).claim(9)) == ["3"]


def test_nothing_is_stranded_and_no_window_is_exceeded_while_many_put_and_claim(queue):
    gate, keys = Gate(windows=(Window(5, 0.05),)), 4
    count = 400 if FULL else 60
    claimed, done = [], []

    def send(sender):
        own = as_another_process(queue)
        for number in range(count):
            fill(own, f"key {(sender + number) % keys}", f"{sender} {number}", gate=gate)

    def take():
        own = as_another_process(queue)
        while len(done) < 2 * count:
            leases = own.claim(3)
            claimed.extend((lease.entry.lane, lease.claimed) for lease in leases)
            done.extend(names(own.complete(leases)))

    together(lambda: send(0), lambda: send(1), take, take, take, last=queue.close)
    assert Counter(done) == Counter(f"{sender} {number}" for sender in (0, 1) for number in range(count))
    for key in range(keys):
        moments = sorted(at for lane, at in claimed if lane == f"key {key}")
        assert all(later - earlier >= 0.05 - 1e-6 for earlier, later in zip(moments, moments[5:], strict=False))
    assert not QueueTicket.objects.using(queue.database).filter(queue=queue.name)


def test_what_no_lane_counts_comes_back_to_it_though_it_was_forgotten(queue):
    gate = Gate(windows=(Window(5, 0.01),))
    for end in ("release", "reap"):
        fill(queue, "a", end, gate=gate)
        (lease,) = unit(queue) if end == "release" else queue.claim(1, 0.01)
        eventually(lambda: queue.claim(1) == [] and queue.lanes.get("a") is None)
        if end == "release":
            assert len(queue.release([lease])) == 1
        else:
            eventually(lambda: queue.reap().count == 1)
        assert names(queue.complete(unit(queue))) == [end]


def test_a_lane_shows_what_is_in_flight_though_it_does_not_count_it(queue):
    fill(queue, "a", *"123", gate=Gate(windows=(Window(5, 3600),)))
    leases = queue.claim(2)
    assert (queue.lanes.get("a").in_flight, row_of(queue).in_flight) == (2, 0)
    queue.complete(leases)
    assert (queue.lanes.get("a").in_flight, queue.sweep()) == (0, 0)


def test_what_came_back_while_a_claim_began_is_not_stranded(queue, monkeypatch):
    """Its lane stays where it is, and the statement that took the rest does not see it."""
    fill(queue, "a", *"12", gate=Gate(windows=(Window(9, 3600),)))
    (first,) = queue.claim(1)
    assert row_of(queue).state == QueueLane.State.READY
    with stopped_before_it_locks(queue, monkeypatch) as found:
        as_another_connection(queue, lambda: as_another_process(queue).release([first]))
    assert found in (["2"], [])
    assert sorted([*found, *names(as_another_process(queue).claim(9))]) == ["1", "2"]


def test_what_another_claim_was_told_of_while_a_claim_began_is_not_stranded(queue, monkeypatch):
    gate = Gate(windows=(Window(9, 3600),))
    fill(queue, "a", "1", "2", gate=gate)
    queue.complete(queue.claim(1))

    def meanwhile():
        own = as_another_process(queue)
        fill(own, "a", "3", gate=gate)
        own.lanes.page()  # takes the ticket

    with stopped_before_it_locks(queue, monkeypatch) as found:
        as_another_connection(queue, meanwhile)
    assert sorted([*found, *names(as_another_process(queue).claim(9))]) == ["2", "3"]


def test_grants_that_are_not_in_their_order_are_counted_as_by_the_rule(queue, answers):
    """As after a step of the clock, or a grant that was moved to a later moment."""
    gate = Gate(windows=(Window(9, 0.3),))
    fill(queue, "a", *"12345", gate=gate)
    (first,) = queue.claim(1)
    assert queue.defer([first], 0.25)
    assert len(queue.claim(1)) == 1
    until_now_is(queue, first.claimed + 0.4)
    assert len(queue.claim(1)) == 1
    assert sum(number for _, number in Rate.read(row_of(queue).rates).grants) == 3
    assert len(queue.claim(9)) == 2
    assert not row_of(queue).paused_reason


@pytest.mark.parametrize(
    "log", [" " * 28, "1" * 28, f"{'1' * 16}  {'1' * 10}", "1 " * 14, "|" + "1" * 27], ids=lambda log: log.strip()
)
def test_a_log_that_cannot_be_read_stops_its_own_lane(queue, log):
    gate = Gate(windows=(Window(9, 3600),))
    fill(queue, "a", *"12", gate=gate)
    fill(queue, "b", "3", gate=gate)
    claimed = [names(queue.claim(1)), names(queue.claim(1))]
    rates = row_of(queue).rates
    QueueLane.objects.using(queue.database).filter(queue=queue.name, name="a").update(
        rates=f"{rates.partition('|')[0]}|{log}"
    )
    fill(queue, "a", "4", gate=gate)
    fill(queue, "b", "5", gate=gate)
    eventually(lambda: claimed.append(names(queue.claim(9))) or ["5"] in claimed)
    assert queue.lanes.get("a").paused_reason == RATE_UNREADABLE


def test_a_lane_that_is_forgotten_while_something_comes_back_is_made_again(queue, monkeypatch):
    gate = Gate(windows=(Window(5, 0.01),))
    fill(queue, "a", "1", gate=gate)
    (lease,) = unit(queue)
    make_again = lanes._make_again

    def then_forgotten(sql, out):
        make_again(sql, out)
        with connections[queue.database].cursor() as cursor:
            cursor.execute("DELETE FROM djqueue_lane")

    monkeypatch.setattr(lanes, "_make_again", then_forgotten)
    assert len(queue.release([lease])) == 1
    assert names(unit(queue)) == ["1"]


def test_a_lane_made_for_what_has_ended_meanwhile_is_forgotten(queue, monkeypatch):
    """Next to one that ends late, and while another transaction has locked the lane."""
    gate = Gate(ordered=True, parent="outer", parent_gate=Gate(concurrency=2))
    fill(queue, "a", "1", gate=gate)
    (lease,) = unit(queue)
    queue.complete([lease])
    with monkeypatch.context() as patched:
        patched.setattr(queue._db.sql, "expired", lambda sql, limit: [(lease.token.seq, "a", gate.written())])
        patched.setattr(lanes.LaneTransaction, "hold_named", lambda self, names, wait: None)
        assert queue._db.run(lanes.reap, 9, 2**62) == 0
    assert QueueLane.objects.using(queue.database).filter(queue=queue.name).count() == 2
    assert nothing_known(queue)


def test_what_a_parent_bounds_is_counted_whatever_the_lane_knew_of_it(queue):
    rate = (Window(9, 3600),)
    fill(queue, "a", *"123", gate=Gate(windows=rate, parent="all", parent_gate=Gate(windows=rate)))
    queue.complete(queue.claim(1))
    fill(queue, "b", *"45", gate=Gate(windows=rate, parent="all", parent_gate=Gate(concurrency=1)))
    assert len(queue.claim(9)) == 1
    assert queue.claim(9) == []


def test_a_lane_of_batches_is_known_as_long_as_something_of_it_is_in_flight(queue):
    fill(queue, "a", *"123", gate=Gate(max_run=3))
    leases = unit(queue)
    assert queue.lanes.get("a").in_flight == 3
    queue.complete(leases)
    assert queue.lanes.get("a") is None
