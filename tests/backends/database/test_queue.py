"""What only the database backend has: transactions, statements and plans, tables, vendors, lost connections."""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise

import pytest
from django.core.management import call_command
from django.db import InterfaceError, OperationalError, connections, transaction
from django.db.models import F
from django.db.utils import ConnectionHandler
from django.test.utils import CaptureQueriesContext

from djqueue.backends.base import FEATURES, DebounceGuard, Entry, Lease, OnceGuard, UniqueGuard
from djqueue.backends.database import checks, session
from djqueue.backends.database.queue import DatabaseQueue
from djqueue.backends.database.rows import BATCH_BYTES, Token, arrival_of, batches, rounds
from djqueue.backends.entries import DELAYED, READY
from djqueue.backends.guards import DedupMark
from djqueue.backends.memory.queue import MemoryStore
from djqueue.exceptions import InvalidQueueError, NotSupported
from djqueue.flow.gates import Gate
from djqueue.messages.envelope import new_id
from djqueue.models import QueueFact, QueueHistory, QueueLane, QueueMessage, QueueTicket
from djqueue.testing import eventually, together
from djqueue.testing.contract.steps import claim, entry, leased, names, put, until_now_is, with_counts
from djqueue.testing.patience import PATIENCE
from tests.support.backends import FULL
from tests.support.database import as_another_connection, in_four_processes

pytestmark = pytest.mark.backends("sqlite", "postgres", "mariadb")


def make(backend, name="queue", **options) -> DatabaseQueue:
    return DatabaseQueue(f"{name}-{backend.tag}", backend.alias, **options)


def atomic(queue):
    return transaction.atomic(using=queue.database)


class RolledBack(Exception):
    pass


@contextmanager
def rolled_back(queue):
    """A transaction of the caller's that comes to nothing."""
    with pytest.raises(RolledBack), atomic(queue):
        yield
        raise RolledBack


# ---- transactions


def test_a_put_is_part_of_the_callers_transaction(queue):
    with rolled_back(queue):
        put(queue, "never")
        assert len(queue) == 1
    assert len(queue) == 0
    with atomic(queue):
        put(queue, "work")
        assert as_another_connection(queue, lambda: (len(queue), queue.claim(1))) == (0, [])
    assert as_another_connection(queue, lambda: len(queue)) == 1


def test_every_verb_works_inside_a_transaction_and_leaves_it_to_its_owner(queue):
    """As in a TestCase; on MariaDB a block of statements would commit what the caller had done."""
    with rolled_back(queue):
        put(queue, *"abcde")
        put(queue, "late", delay=60)
        leases = claim(queue, 5)
        assert len(queue.touch(leases, 30)) == 5
        assert len(queue.release(leases[:2])) == 2
        assert len(queue.fail(leases[2:3])) == 1
        assert len(queue.complete(leases[3:])) == 2
        assert queue.requeue([leases[2].entry.id]) == 1
        assert queue.reap().count == 0
        assert [len(queue.peek(state)) for state in ("ready", "delayed", "leased")] == [3, 1, 0]
        assert queue.store.add("key", b"1", 60)
        assert queue.remove([leases[0].entry.id]) == 1
        assert queue.stats().done == 2
        queue.flush()
        queue.close()
        assert connections[queue.database].in_atomic_block
    assert QueueMessage.objects.using(queue.database).count() == 0
    assert QueueFact.objects.using(queue.database).count() == 0


def test_what_a_transaction_completed_is_leased_again_when_it_is_rolled_back(queue):
    (lease,) = leased(queue, "work")
    with rolled_back(queue):
        assert queue.complete([lease]) == [lease]
    assert (queue.stats().leased, queue.stats().done) == (1, 0)
    assert queue.complete([lease]) == [lease]


def put_one(queue, guard, name="work"):
    """Whether it was accepted."""
    return queue.put([entry(name)], [guard])[0]


LATE = DebounceGuard("key", 0.1, always_delay=True)
"""The first is delayed for a moment; those that come while it waits are refused."""


def late(queue, guard):
    """An entry that waits and is due, for whose sake others are refused."""
    assert put_one(queue, guard, "late")
    for record in queue.peek(DELAYED):
        until_now_is(queue, record.at)


def be_impatient(queue):
    """On SQLite, let this thread's connection not wait for whoever writes."""
    if queue.database == "default":
        with connections[queue.database].cursor() as cursor:
            cursor.execute("PRAGMA busy_timeout = 0")


def claimed_elsewhere(queue):
    """What another connection can claim at this moment; on SQLite it cannot while somebody writes."""

    def look():
        be_impatient(queue)
        try:
            return names(queue.claim(5))
        except OperationalError as error:
            assert session.passing(error)
            return []

    return as_another_connection(queue, look)


@pytest.mark.parametrize("guard", [LATE, UniqueGuard("key"), UniqueGuard("key", running=False)])
@pytest.mark.parametrize("promoted", [False, True])
def test_what_others_are_refused_for_does_not_begin_before_their_callers_commit(queue, monkeypatch, guard, promoted):
    """It would not see what they wrote, and nothing else comes to see it."""
    monkeypatch.setattr(session, "PAUSES", ())
    late(queue, guard)
    if promoted:
        assert len(queue.peek(READY)) == 1
    with atomic(queue):
        assert put_one(queue, guard) is False
        assert claimed_elsewhere(queue) == []
    assert claimed_elsewhere(queue) == ["late"]


@pytest.mark.backends("postgres", "mariadb")
@pytest.mark.parametrize(
    ("guard", "accepted"), [(LATE, True), (UniqueGuard("key", False), True), (UniqueGuard("key"), False)]
)
def test_what_somebody_is_about_to_lease_counts_as_leased(queue, guard, accepted):
    assert put_one(queue, guard, "first")
    until_now_is(queue, queue.now() + 0.01)
    with atomic(queue):
        assert names(claim(queue)) == ["first"]
        assert as_another_connection(queue, lambda: put_one(queue, guard)) is accepted


@pytest.mark.backends("postgres", "mariadb")
@pytest.mark.parametrize("count", [1, 4, 20])
def test_nobody_waits_for_a_transaction_that_has_put(queue, count, monkeypatch):
    """Though it is open for long, and the tables are small: a plan that reads them whole would wait for its rows."""
    monkeypatch.setattr(session, "PAUSES", ())
    gate = Gate(concurrency=1).written()
    waiting = "lock_timeout = 500" if queue.database == "postgres" else "SESSION innodb_lock_wait_timeout = 1"

    def verbs():
        with connections[queue.database].cursor() as cursor:
            cursor.execute(f"SET {waiting}")
        for number, verb in enumerate((queue.complete, queue.release, queue.fail, queue.touch, queue.begin)):
            laned = [entry(lane=f"{number}/{lane}", gate=gate) for lane in range(count)]
            queue.put([*laned, *(entry() for _ in range(count)), entry(delay=0.001)])
            leases = claim(queue, 2 * count)
            assert len(queue.begin(leases)) == len(queue.touch(leases)) == len(verb(leases)) == len(leases)
        queue.touch(leases, 0.001)
        eventually(lambda: queue.reap().count)
        queue.sweep()
        dead = [record.entry.id for record in queue.failed.peek(READY)]
        assert queue.requeue(dead[:1]) == queue.reprioritise(dead[:1], 3) == 1
        assert queue.failed.remove(dead) == len(dead) - 1
        queue.failed.trim(most=0)
        return len(queue.lanes.page()) > 0

    with transaction.atomic(queue.database):
        queue.put([entry(lane="0", gate=gate), entry(lane="mine", gate=gate), entry(), entry(delay=60)])
        assert as_another_connection(queue, verbs)


@pytest.mark.backends("postgres", "mariadb")
def test_nobody_waits_for_those_who_are_refused_because_it_is_leased(queue):
    put_one(queue, UniqueGuard("key"), "first")
    leases = claim(queue)
    with atomic(queue):
        assert put_one(queue, UniqueGuard("key")) is False
        assert as_another_connection(queue, lambda: queue.touch(leases) and queue.complete(leases)) == leases


@pytest.mark.backends("postgres", "mariadb")
def test_a_first_one_that_still_waits_is_not_held_back_by_the_second(queue):
    guard = DebounceGuard("key", 60)
    put_one(queue, guard, "first")
    with atomic(queue):
        assert put_one(queue, guard, "second")
        assert claimed_elsewhere(queue) == ["first"]


GUARDS = [
    DebounceGuard("key", 60),
    LATE,
    DebounceGuard("key", 60, extend=True),
    UniqueGuard("key"),
    OnceGuard("key", 60),
]


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: type(guard).__name__)
def test_df16_a_caller_that_is_rolled_back_leaves_neither_mark_nor_entry(queue, guard):
    with rolled_back(queue):
        assert put_one(queue, guard) is True
    assert (queue.store.get("key"), len(queue)) == (None, 0)
    assert put_one(queue, guard) is True


def test_df16_nor_a_postponement(queue):
    guard = DebounceGuard("key", 60, extend=True)
    assert put_one(queue, guard)
    (was,) = queue.peek(DELAYED)
    with rolled_back(queue):
        assert put_one(queue, DebounceGuard("key", 90, extend=True)) is False
        assert queue.find(was.entry.id).at > was.at
    assert queue.find(was.entry.id) == was
    assert DedupMark.read(queue.store.get("key")).at == round(was.at * 1e6)


WAITING = {
    "postgres": "SELECT count(*) FROM pg_locks w JOIN pg_locks h ON h.transactionid = w.transactionid "
    "WHERE NOT w.granted AND h.granted AND h.pid = pg_backend_pid()",
    "mariadb": "SELECT variable_value FROM information_schema.global_status "
    "WHERE variable_name = 'Innodb_row_lock_current_waits'",
}


def somebody_waits_for_us(queue):
    """On MariaDB, for anybody."""
    with connections[queue.database].cursor() as cursor:
        cursor.execute(WAITING[queue.database])
        return int(cursor.fetchone()[0]) > 0


@pytest.mark.backends("postgres", "mariadb")
def test_df15_of_two_transactions_with_one_key_the_second_waits_for_the_first(queue):
    guard = DebounceGuard("key", 60)

    def second():
        try:
            return put_one(queue, guard, "second")
        finally:
            queue.close()

    with ThreadPoolExecutor(1) as pool:
        with atomic(queue):
            assert put_one(queue, guard, "first")
            told = pool.submit(second)
            eventually(lambda: somebody_waits_for_us(queue))
            assert not told.done()
        assert told.result(PATIENCE) is True
    assert [record.entry.body for record in queue.peek(DELAYED)] == [b"second"]


@pytest.mark.backends("sqlite")
def test_df15_of_two_transactions_with_one_key_only_one_can_be_open(queue, monkeypatch):
    monkeypatch.setattr(session, "PAUSES", ())

    def second():
        be_impatient(queue)
        return put_one(queue, DebounceGuard("key", 60))

    with atomic(queue):
        assert put_one(queue, DebounceGuard("key", 60))
        with pytest.raises(OperationalError, match="locked"):
            as_another_connection(queue, second)
    assert as_another_connection(queue, second) is True
    assert len(queue.peek(DELAYED)) == 1


@pytest.mark.backends("sqlite")
def test_an_idle_claim_does_not_wait_for_a_writer(queue):
    put(queue, "later", delay=60)
    with atomic(queue):
        put(queue, "held back")
        assert as_another_connection(queue, lambda: (queue.claim(1), queue.reap().count)) == ([], 0)


# ---- statements

ODD = ["", "NULL", "a,b", 'a"b', "a\\b", '"', "\\", "{}", " ", "\n", "'", "é\U0001f600", "None", "%s"]


def test_any_text_and_any_bytes_are_read_as_they_were_put(queue):
    entries = [entry(body, command=text, lane=text, errors=text) for body, text in zip(ODD, reversed(ODD), strict=True)]
    entries.append(Entry(bytes(range(256)), new_id()))
    assert all(queue.put(entries))
    assert [replace(record.entry, created=0.0) for record in queue.peek(READY)] == entries
    leases = queue.claim(len(entries))
    assert [replace(lease.entry, created=0.0, attempts=0) for lease in leases] == entries
    queue.release([with_counts(lease, errors=lease.entry.command) for lease in leases])
    assert [record.entry.errors for record in queue.peek(READY)] == [one.command for one in entries]


def test_an_owner_whose_name_was_cut_keeps_its_leases_as_others_may_begin_alike(queue):
    owners = [f"{'x' * 100}{number}" for number in range(2)]
    put(queue, *"ab")
    for owner in owners:
        assert queue.claim(1, owner=owner)
    assert (queue.reclaim(owners[0]), queue.stats().leased) == (0, 2)


ONE_EACH = dict.fromkeys(("idle", "put", "one", "claim", "touch", "reap", "release", "fail", "complete"), 1)
STATEMENTS = {
    "sqlite": ONE_EACH | {"claim": 2, "complete": 2},
    "postgres": ONE_EACH,
    "mariadb": ONE_EACH | {"put": 2, "claim": 2},
}


@contextmanager
def statements(queue):
    """The statements but for those that open and end a transaction."""
    found = []
    with CaptureQueriesContext(connections[queue.database]) as captured:
        yield found
    control = ("BEGIN", "COMMIT", "SAVEPOINT", "RELEASE SAVEPOINT", "SET @")
    found += [
        sql
        for query in captured
        if (sql := query["sql"]).startswith("BEGIN NOT ATOMIC") or not sql.lstrip().startswith(control)
    ]


def verbs(queue):
    """Each verb over a hundred entries, and the put of one, by name, in an order in which they can be called."""
    leases = []
    return {
        "idle": lambda: queue.claim(100),
        "put": lambda: queue.put([entry(str(number)) for number in range(100)]),
        "one": lambda: queue.put([entry()]),
        "claim": lambda: leases.extend(queue.claim(102)),  # one that is full may look for lanes
        "touch": lambda: queue.touch(leases),
        "reap": lambda: queue.reap(),
        "release": lambda: queue.release(leases[:30]),
        "fail": lambda: queue.fail(leases[30:60]),
        "complete": lambda: queue.complete(leases[60:]),
    }


def test_to22_a_hundred_entries_are_one_statement_of_each_verb(backend, queue):
    queue.now()  # connects
    counts = {}
    for verb, call in verbs(queue).items():
        with statements(queue) as found:
            call()
        counts[verb] = len(found)
    assert counts == STATEMENTS[backend.id]
    assert (len(queue), len(queue.failed), queue.stats().done) == (30, 30, 41)


GUARDED = {
    "sqlite": {"once": 3, "accepted": 4, "refused": 2},
    "postgres": {"once": 1, "accepted": 4, "refused": 3},
    "mariadb": {"once": 4, "accepted": 4, "refused": 3},
}


def test_the_statements_of_a_put_with_guards(backend, queue):
    queue.now()
    counts = {}
    for name, guard in (("once", OnceGuard("once", 60)), ("accepted", LATE), ("refused", LATE)):
        with statements(queue) as found:
            assert put_one(queue, guard) is (name != "refused")
        counts[name] = len(found)
    assert counts == GUARDED[backend.id]


def test_many_guards_are_as_many_statements_as_one(queue):
    queue.now()
    guards = [UniqueGuard(f"key {number}") for number in range(100)]
    with statements(queue) as found:
        assert queue.put([entry() for _ in guards], guards) == [True] * 100
    assert len(found) <= 5
    with statements(queue) as found:
        assert queue.put([entry() for _ in guards], guards) == [False] * 100
    assert len(found) <= 4


def test_several_facts_are_one_statement_and_what_is_too_large_together_goes_in_several(queue):
    queue.now()
    with statements(queue) as found:
        queue.store.put_many([(f"key {number}", b"1", 60) for number in range(100)])
    assert len(found) == 1
    with statements(queue) as found:
        queue.store.put_many([(f"key {number}", b"x" * 2_000_000, 60) for number in range(5)])
    assert len(found) == 3
    with statements(queue) as found:
        queue.put([Entry(b"x" * 2_000_000, new_id()) for _ in range(5)])
    assert (len([sql for sql in found if "INSERT" in sql]), len(queue)) == (3, 5)


def test_trimming_nothing_is_a_read_for_each_bound(queue):
    queue.fail(leased(queue, *"abc"))
    with statements(queue) as found:
        assert queue.failed.trim(most=3, age=60) == 0
    assert [sql.split()[0] for sql in found] == ["SELECT", "SELECT"]


def crowd(queue):
    """A few thousand entries in each state, here and in another queue."""
    other = DatabaseQueue(queue.name + "2", queue.database)
    for one in (queue, other):
        one.put([entry(str(number), priority=number % 3) for number in range(1500)])
        one.claim(500, 60)
        one.put([entry(delay=60 + number) for number in range(1000)])
        one.store.put("key", b"1", 60)
    for _ in range(2):  # lanes, and tickets of what came to them
        other.put([entry(lane=f"lane {number}", gate=Gate(ordered=True).written()) for number in range(1000)])
        while len(other.claim(100)) == 100:
            pass
    other.put([entry(lane=f"lane {number}", gate=Gate(ordered=True).written()) for number in range(2000)])
    facts = [QueueFact(name=f"{queue.name}:{number}", value=b"", until=2**60) for number in range(3000)]
    QueueFact.objects.using(queue.database).bulk_create(facts, 500)
    history = [
        QueueHistory(queue=one.name, at=1, count=1, first_id=id, last_id=id, records=f"\n{id} 1")
        for id in map(str, range(1500))
        for one in (queue, other)
    ]
    QueueHistory.objects.using(queue.database).bulk_create(history, 500)
    models = (QueueMessage, QueueFact, QueueLane, QueueTicket, QueueHistory)
    tables = f" TABLE {', '.join(model._meta.db_table for model in models)}" if queue.database == "mariadb" else ""
    with connections[queue.database].cursor() as cursor:
        cursor.execute(f"ANALYZE{tables}")
        cursor.fetchall() if cursor.description else None


def scans(queue, sql) -> list[str]:
    """What the plan of a statement says of reading one of our tables from end to end."""
    connection = connections[queue.database]
    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            cursor.execute("EXPLAIN QUERY PLAN " + sql)
            steps = [row[3] for row in cursor.fetchall()]
            return [step for step in steps if step.startswith("SCAN") and "djqueue" in step and "INDEX" not in step]
        if connection.vendor == "postgresql":
            cursor.execute("EXPLAIN " + sql)
            return [row[0] for row in cursor.fetchall() if "Seq Scan on djqueue" in row[0]]
        cursor.execute("EXPLAIN FORMAT=JSON " + sql)
        return list(_full(json.loads(cursor.fetchone()[0])))


def _full(plan):
    """The tables of MariaDB's plan that are read whole; what is derived is small."""
    for value in plan.values() if isinstance(plan, dict) else plan:
        if isinstance(value, dict) and value.get("access_type") in ("ALL", "index"):
            if not str(value.get("table_name", "")).startswith(("<", "u", "x")):
                yield json.dumps(value)
        if isinstance(value, dict | list):
            yield from _full(value)


def test_to12_no_statement_reads_a_table_from_end_to_end(backend, queue):
    crowd(queue)
    other = DatabaseQueue(queue.name + "2", queue.database)
    assert other.lanes.get("") is None  # its lanes are in their places now
    leases, more = queue.claim(3), queue.claim(20)
    queue.put([entry(delay=0.001)])
    until_now_is(queue, queue.now() + 0.001)
    calls = {
        "claim what fell due": lambda: queue.claim(5),
        "claim": lambda: queue.claim(5),
        "reap": queue.reap,
        "reclaim": lambda: queue.reclaim("nobody"),
        "touch one": lambda: queue.touch(leases[:1]),
        "touch": lambda: queue.touch(leases),
        "release one": lambda: queue.release(leases[:1]),
        "fail one": lambda: queue.fail(leases[1:2]),
        "complete one": lambda: queue.complete(leases[2:]),
        "exchange one": lambda: queue.exchange(more[:1], 5),
        "exchange": lambda: queue.exchange(more[1:], 5),
        "find": lambda: queue.find("none"),
        "peek": lambda: queue.peek("ready", 10, after=queue.peek("delayed", 10)[-1].cursor),
        "peek into a lane": lambda: other.lanes.peek("lane 7", 10, after=other.lanes.peek("lane 7", 1)[-1].cursor),
        "lanes": lambda: (other.lanes.page(200), other.lanes.get("lane 7")),
        "page of what failed": lambda: queue.failed.peek("ready", 10, after=queue.failed.peek("ready", 1)[-1].cursor),
        "remove": lambda: queue.remove([leases[0].entry.id]),
        "requeue": lambda: queue.requeue([leases[1].entry.id]),
        "fact": lambda: (queue.store.get("key"), queue.store.swap("key", b"1", b"1", 9), queue.store.drop("key")),
        "prune": lambda: queue.store.prune(),
        "debounced": lambda: queue.put([entry(), entry()], [DebounceGuard("a", 60), DebounceGuard("b", 60)]),
        "scheduled": lambda: queue.put(
            [entry(), entry()], [DebounceGuard("a", 60), DebounceGuard("b", 60, extend=True)]
        ),
        "refused": lambda: queue.put([entry(), entry()], [DebounceGuard("a", 60), DebounceGuard("b", 90, extend=True)]),
        "unique": lambda: queue.put([entry(), entry()], [UniqueGuard("c"), UniqueGuard("c")]),
        "swap": lambda: (queue.store.swap("new", None, b"1", 9), queue.store.swap("new", b"1", b"2", 9)),
        "put many": lambda: queue.store.put_many([("new", b"1", 9), ("newer", b"1", 9)]),
        "swap many": lambda: queue.store.swap_many([("new", b"1", b"2"), ("newer", b"1", None)], 9),
        "amend": lambda: queue.amend(queue.peek("ready", 1)[0].entry.id, b"other", b"new"),
        "trim nothing": lambda: queue.trim(age=60),
        "trim": lambda: (queue.trim(age=0, limit=5), queue.trim(most=5, limit=5)),
        "complete, with a record": lambda: queue.complete(queue.claim(1), history=[b"1"]),
        "history": lambda: (queue.history.get("none"), queue.history.page(2)),
    }
    found = {}
    for name, call in calls.items():
        with atomic(queue), statements(queue) as texts:  # in a transaction MariaDB's blocks come apart
            call()
        found[name] = [(scan, sql) for sql in texts for scan in scans(queue, sql)]
        assert texts
    assert {name: scans for name, scans in found.items() if scans} == {}


def test_what_is_picked_is_picked_by_the_hot_index(queue):
    crowd(queue)
    leases = queue.claim(1)
    calls = {
        "reap": queue.reap,
        "reclaim": lambda: queue.reclaim("nobody"),
        "claim": lambda: queue.claim(1),
        "exchange": lambda: queue.exchange(leases, 1),
        "promote": lambda: queue.peek("delayed", 1),
        "trim older": lambda: queue.trim(age=0, limit=5),
        "trim surplus": lambda: queue.trim(most=5, limit=5),
    }
    connection = connections[queue.database]
    explain = "EXPLAIN QUERY PLAN " if connection.vendor == "sqlite" else "EXPLAIN "
    for verb, call in calls.items():
        with statements(queue) as texts:
            call()
        with connection.cursor() as cursor:
            for sql in texts:
                if "@djqueue AND" not in sql and "djqueue_message" in sql and "LIMIT" in sql:
                    cursor.execute(explain + sql)
                    assert "djqueue_message_hot" in str(cursor.fetchall()), (verb, sql)


@pytest.mark.backends("postgres")
def test_its_tables_are_vacuumed_by_the_number_of_rows_that_are_gone(queue):
    """In proportion to a backlog of millions it would be too late. The history has few rows, and large ones."""
    with connections[queue.database].cursor() as cursor:
        cursor.execute("SELECT relname, reloptions FROM pg_class WHERE relname LIKE 'djqueue%%' AND relkind = 'r'")
        options = dict(cursor.fetchall())
    assert options.pop("djqueue_history") == ["vacuum_truncate=off"]
    found = list(options.values())
    assert len(found) == 4
    assert all("autovacuum_vacuum_scale_factor=0" in options for options in found)
    assert all("vacuum_index_cleanup=on" in options for options in found)


@pytest.mark.backends("postgres")
def test_an_id_is_looked_up_by_itself_though_the_table_was_empty_when_it_was_analysed(queue):
    """As it mostly is. By way of the queue alone a look-up would read all of a sudden burst."""
    put(queue, "only")
    with connections[queue.database].cursor() as cursor:
        cursor.execute("ANALYZE djqueue_message")
    queue.put([entry() for _ in range(2000)])
    calls = [
        lambda: queue.find("none"),
        lambda: queue.remove(["none", "nobody"]),
        lambda: queue.put([entry() for _ in range(20)], [OnceGuard(f"key {number}", 60) for number in range(20)]),
    ]
    for call in calls:
        with statements(queue) as sql:
            call()
        with connections[queue.database].cursor() as cursor:
            cursor.execute("EXPLAIN " + sql[0])
            plan = str(cursor.fetchall())
        assert "Index Scan using djqueue_message_id" in plan
        assert "Index Cond: (((id)" in plan, plan


@pytest.mark.backends("postgres")
def test_a_busy_consumer_reads_no_index_whole_though_the_queue_was_empty_when_it_was_vacuumed(queue):
    """As it mostly is. The planner knows of no rows then, so that to read all of an index seems to cost nothing."""
    bodies = [f"{number:1500}" for number in range(600)]  # which take pages
    queue.complete(leased(queue, *bodies))
    with connections[queue.database].cursor() as cursor:
        cursor.execute("VACUUM ANALYZE djqueue_message")
    done, held = leased(queue, *bodies[:200]), leased(queue, *bodies[200:400])
    calls = [lambda: queue.begin(held), lambda: queue.touch(held, 60), lambda: queue.exchange(done, 200)]
    for call in (*calls, lambda: queue.complete(held)):
        with statements(queue) as sql:
            call()
        with connections[queue.database].cursor() as cursor:
            cursor.execute("EXPLAIN " + sql[0])
            plan = [row[0].strip() for row in cursor.fetchall()]
        for line, next in pairwise(plan):
            if " using djqueue_message_" in line:
                expected = "Index Cond: ((state" if "djqueue_message_hot" in line else "Index Cond: (seq"
                assert next.startswith(expected), (line, next)
        assert not any("Seq Scan on djqueue_message" in line for line in plan)


def test_counting_what_waits_in_a_lane_stops_at_a_cap(queue, monkeypatch):
    for module in ("sql.dialect", "sql.postgresql", "queue"):
        monkeypatch.setattr(f"djqueue.backends.database.{module}.LANE_CAP", 3)
    gate = Gate(ordered=True).written()
    queue.put([entry(lane=lane, gate=gate) for lane in [*["long"] * 5, *["short"] * 2]])
    assert [(one.name, one.waiting, one.capped) for one in queue.lanes.page()] == [("long", 3, 3), ("short", 2, None)]


def test_reading_counts_stops_at_the_cap(queue, monkeypatch):
    monkeypatch.setattr("djqueue.backends.database.sql.dialect.CAP", 10)
    monkeypatch.setattr("djqueue.backends.database.queue.CAP", 10)
    queue.put([entry() for _ in range(25)])
    stats = queue.stats()
    assert (stats.ready, stats.capped, len(queue)) == (10, 10, 25)


# ---- many at once


def _drain(queue):
    mine = []
    while leases := queue.claim(3):
        mine += [lease.entry.id for lease in queue.complete(leases)]
    return mine


def test_dj19_four_processes_take_each_entry_once(queue):
    ids = [entry().id for _ in range(200)]
    queue.put([entry(id=id) for id in ids])
    assert sorted(in_four_processes(queue, _drain)) == sorted(ids)
    assert queue.stats().done == 200


def test_bulk_puts_of_the_same_ids_at_once_are_repeated_until_they_pass(queue):
    """Their rows come in different orders, which deadlocks where nobody sorts or repeats."""
    ids = [new_id() for _ in range(120)]
    orders = [ids[turn * 17 :] + ids[: turn * 17] for turn in range(6)]
    put_all = [lambda order=order: queue.put([entry(id=id) for id in order]) for order in orders]
    told = together(*put_all, last=queue.close)
    assert sum(sum(one) for one in told) == len(queue) == 120


# ---- names and values


def test_dj21_names_and_ids_are_compared_byte_by_byte(backend):
    texts = ["a", "A", "a ", "á", "a\u0301", "ß", "ss", "ａ"]  # noqa: RUF001
    for text in texts:
        queue = DatabaseQueue(f"{backend.tag}{text}", backend.alias)
        assert queue.put([entry(text, id=id) for id in texts]) == [True] * len(texts)
    for text in texts:
        queue = DatabaseQueue(f"{backend.tag}{text}", backend.alias)
        assert [lease.entry.id for lease in queue.claim(99)] == texts
        queue.store.put("name", text.encode())
    stores = [DatabaseQueue(f"{backend.tag}{text}", backend.alias).store for text in texts]
    assert [store.get("name") for store in stores] == [text.encode() for text in texts]


@pytest.mark.parametrize("field", ["id", "command", "lane"])
def test_what_a_column_would_cut_is_refused(queue, field):
    with pytest.raises(ValueError, match=f"Entry.{field} has 256 characters"):
        queue.put([entry(**{field: "x" * 256})])
    with pytest.raises(ValueError, match="Entry.priority is 2147483648; it may have 32 bits"):
        queue.put([entry(priority=2**31)])
    assert len(queue) == 0


def test_a_put_of_more_than_a_statement_takes_keeps_its_order(queue):
    numbers = [str(number) for number in range(2100)]
    assert queue.put([entry(number) for number in numbers]) == [True] * 2100
    assert names(claim(queue, 2100)) == numbers


@pytest.mark.backends(*(["sqlite", "postgres"] if FULL else []), "mariadb")
def test_notes_that_are_too_large_together_go_in_several_statements(queue):
    """MariaDB takes 16 MiB, in which quotes count twice."""
    note = json.dumps(['say "no"\n' * 2000])
    queue.put([entry(errors=note) for _ in range(1000)])
    leases = [with_counts(lease, errors=note) for lease in claim(queue, 1000)]
    assert len(queue.release(leases[:500])) == 500
    assert len(queue.fail(leases[500:])) == 500
    assert queue.peek("ready", 1)[0].entry.errors == queue.failed.peek("ready", 1)[0].entry.errors == note


@pytest.mark.backends("sqlite")
def test_batches_count_notes_and_never_leave_one_out(queue):
    sizes = [1, BATCH_BYTES, 10, BATCH_BYTES + 1, 5]
    arrivals = [arrival_of(entry(errors="x" * size)) for size in sizes]
    assert [[len(one.row[7]) for one in batch] for batch in batches(arrivals)] == [[size] for size in sizes]
    leases = [Lease(entry(errors="x" * size), Token(seq, 1, "id")) for seq, size in enumerate(sizes)]
    assert [list(batch) for batch in rounds(leases, {}, {})] == [[0, 2, 4], [1], [3]]


def test_entries_due_at_one_moment_come_in_the_order_of_their_arrival(queue):
    """Whatever their ids, in whose order some databases insert them. One that was due has no moment of its own."""
    ids = ["m", "z", "a", "name"]
    queue.put([entry(id, id=id, run_at=12.5) for id in ids])
    put(queue, "last", run_at=12.5)
    put(queue, "now")
    leases = claim(queue, 6)
    assert names(leases) == [*ids, "last", "now"]
    assert [lease.entry.run_at for lease in leases] == [12.5] * 5 + [0.0]


def test_a_failed_entry_replaces_an_older_one_of_its_id_and_is_not_requeued_over_one(queue):
    first = entry("first")
    queue.put([first])
    queue.fail(claim(queue))
    queue.put([entry("second", id=first.id)])
    leases = [with_counts(lease, failures=7) for lease in claim(queue)]
    assert len(queue.fail(leases)) == 1
    (record,) = queue.failed.peek("ready")
    assert (record.entry.body, record.entry.failures, len(queue.failed)) == (b"second", 7, 1)
    queue.put([entry("third", id=first.id)])
    assert queue.requeue([first.id]) == 0
    assert (len(queue), len(queue.failed)) == (1, 1)


def test_the_same_inside_a_transaction(queue):
    with atomic(queue):
        test_a_failed_entry_replaces_an_older_one_of_its_id_and_is_not_requeued_over_one(queue)


def test_what_died_before_the_failed_queue_was_in_order_is_trimmed_too(queue):
    """Then it stood at its priority and at its old place, before all that died since."""
    queue.put([entry("old", priority=number % 4) for number in range(8)])
    queue.fail(claim(queue, 8))
    rows = QueueMessage.objects.using(queue.database).filter(queue=queue.failed.name)
    rows.update(sort_key=F("neg_priority"), sort_at=F("sort_at") - 3_600_000_000)
    queue.fail(leased(queue, "new"))
    assert queue.failed.trim(age=7200) == 0
    assert queue.failed.trim(most=6) == 3
    assert [queue.failed.trim(age=1800) for _ in range(4)] == [1, 2, 2, 0], "a priority at a time"
    assert names(claim(queue.failed)) == ["new"]


def test_df17_moments_are_exact_to_the_microsecond(queue):
    guard = DebounceGuard("key", 1.000001, extend=True)
    rows = QueueMessage.objects.using(queue.database)
    for accepted in (True, False):
        assert put_one(queue, guard) is accepted
        mark, row = DedupMark.read(queue.store.get("key")), rows.get()
        assert (row.due_since, row.sort_at) == (mark.at, mark.at)
        if accepted:
            assert mark.at - mark.first == 1_000_001


def test_peek_refuses_a_state_that_is_none(queue):
    with pytest.raises(ValueError, match="the states are ready, delayed, leased"):
        queue.peek("asleep")


# ---- facts


def test_the_mark_of_a_guard_is_a_fact_of_the_queue(queue):
    one = entry()
    queue.put([one], [OnceGuard("tick:digest:1", 60)])
    assert queue.store.get("tick:digest:1") == one.id.encode()
    assert queue.failed.store.get("tick:digest:1") == one.id.encode()


def test_keys_of_any_length_are_told_apart(queue):
    keys = ["name" * 300, "name" * 301, "K" * 300, "nul\0", "nul"]
    for key in keys:
        queue.store.put(key, key.encode())
    assert [queue.store.get(key) for key in keys] == [key.encode() for key in keys]


@pytest.mark.backends("mariadb")
def test_a_fact_is_added_in_one_transaction(queue):
    queue.now()
    with CaptureQueriesContext(connections[queue.database]) as captured:
        assert queue.store.add("key", b"1", 60)
    told = [query["sql"].split()[0] for query in captured]
    assert (told[0], told[-1]) == ("BEGIN", "COMMIT"), told
    assert {"INSERT", "UPDATE"} <= set(told)


def test_guards_are_decided_by_the_store_of_the_queue_wherever_it_is(queue):
    queue.store = MemoryStore(queue.name)
    assert queue.put([entry(), entry()], [OnceGuard("key", 60), OnceGuard("key", 60)]) == [True, False]
    late = DebounceGuard("late", 60, always_delay=True)
    assert queue.put([entry(), entry(), entry()], [late, late, None]) == [True, False, True]
    assert [queue.peek(state)[-1].state for state in (READY, DELAYED)] == [READY, DELAYED]
    assert queue.store.get("key") is not None
    assert QueueFact.objects.using(queue.database).count() == 0


def test_to17_prune_keeps_the_last_of_what_is_remembered(backend):
    queue = make(backend, remember_done=60, keep_done=300)
    works = [entry() for _ in range(5)]
    queue.put(works)
    queue.complete(claim(queue, 5))
    queue.store.bound = (queue.store.bound[0], 2)
    queue.store.prune()
    assert queue.put(works) == [True, True, True, False, False]


def test_what_is_done_is_counted_by_each_thread_in_a_row_of_its_own(queue):
    queue.put([entry() for _ in range(40)])
    together(*[lambda: [queue.complete(queue.claim(1)) for _ in range(10)]] * 4, last=queue.close)
    eventually(lambda: queue.complete(queue.claim(40)) == [])
    assert queue.stats().done == 40


# ---- the clock


@pytest.mark.backends("postgres", "mariadb")
@pytest.mark.parametrize("zone", ["+05:30", "-08:00"])
def test_to20_the_time_zone_of_the_session_does_not_matter(queue, zone):
    with connections[queue.database].cursor() as cursor:
        variable = "time_zone" if queue.database == "mariadb" else "timezone"
        cursor.execute(f"SET {variable} = %s", [zone])
    assert abs(queue.now() - time.time()) < 5
    put(queue, "now")
    put(queue, "later", delay=3600)
    (lease,) = claim(queue)
    assert abs(lease.entry.created - time.time()) < 5
    assert 3590 < queue.claim(1).retry_after <= 3600


def test_the_clock_moves_inside_a_transaction(queue):
    with atomic(queue):
        assert names(leased(queue, "soon", delay=0.02)) == ["soon"]


# ---- connections


def kill_connection(queue):
    """As a restart of the server would, from another connection."""
    with connections[queue.database].cursor() as cursor:
        mariadb = queue.database == "mariadb"
        cursor.execute("SELECT connection_id()" if mariadb else "SELECT pg_backend_pid()")
        (number,) = cursor.fetchone()

    def kill():
        with connections[queue.database].cursor() as cursor:
            cursor.execute(f"KILL {number}" if mariadb else f"SELECT pg_terminate_backend({number}, 5000)")

    together(kill, last=queue.close)


@pytest.mark.backends("postgres", "mariadb")
def test_dj22_after_a_lost_connection_the_next_call_has_a_new_one(queue):
    put(queue, "work")
    kill_connection(queue)
    with pytest.raises((OperationalError, InterfaceError)):
        queue.claim(1)
    assert names(claim(queue)) == ["work"]


@pytest.mark.backends("postgres", "mariadb")
def test_a_connection_lost_inside_a_transaction_is_the_callers_to_see(queue):
    with pytest.raises((OperationalError, InterfaceError)), atomic(queue):
        put(queue, "never")
        kill_connection(queue)
        queue.put([entry()])
    connections[queue.database].close()
    assert len(queue) == 0


class Failing:
    """A verb that meets a deadlock so many times first."""

    def __init__(self, times: int, *args):
        self.times, self.args = times, args

    def __call__(self, run):
        self.times -= 1
        if self.times >= 0:
            raise OperationalError(*self.args) from Cause(*self.args)
        return "done"


class Cause(Exception):
    """What the driver raised."""

    @property
    def sqlstate(self):
        return self.args[0]


DEADLOCKS = {"sqlite": ("database is locked",), "postgres": ("40P01",), "mariadb": (1213, "Deadlock found")}


def test_a_deadlock_is_repeated_but_not_inside_the_callers_transaction(backend, queue, monkeypatch):
    monkeypatch.setattr(session, "PAUSES", (0, 0, 0))
    args = DEADLOCKS[backend.id]
    assert queue._db.run(Failing(3, *args)) == "done"
    with pytest.raises(OperationalError):
        queue._db.run(Failing(4, *args))
    with pytest.raises(OperationalError), atomic(queue):
        queue._db.run(Failing(1, *args))
    with pytest.raises(OperationalError):
        queue._db.run(Failing(1, "the disk is full"))
    assert len(queue) == 0


@pytest.mark.backends("postgres", "mariadb")
def test_nor_where_the_caller_commits_by_hand(backend, queue, monkeypatch):
    monkeypatch.setattr(session, "PAUSES", (0, 0, 0))
    connection = connections[queue.database]
    connection.set_autocommit(False)
    try:
        held = connection.connection
        put(queue, "never")
        with pytest.raises(OperationalError):
            queue._db.run(Failing(1, *DEADLOCKS[backend.id]))
        with pytest.raises(OperationalError):
            queue._db.run(Failing(1, "the disk is full"))
        queue.close()
        assert connection.connection is held
        connection.rollback()
    finally:
        connection.set_autocommit(True)
    assert len(queue) == 0


def test_a_lock_that_is_met_on_connecting_is_waited_for(backend, queue, monkeypatch):
    monkeypatch.setattr(session, "PAUSES", (0, 0, 0))
    queue.now()
    connection, failing = connections[queue.database], Failing(2, *DEADLOCKS[backend.id])
    real = connection.get_new_connection
    monkeypatch.setattr(connection, "get_new_connection", lambda params: failing(None) and real(params))
    connection.close()
    connection.autocommit = False  # as before a first connection
    assert len(queue) == 0


def test_describe_tells_where_and_no_password(queue, monkeypatch):
    connection = connections[queue.database]
    monkeypatch.setitem(connection.settings_dict, "PASSWORD", "s3cret")
    told = queue.describe()
    assert str(connection.settings_dict["NAME"]) in told
    assert connection.vendor in told
    assert "s3cret" not in told


def test_queues_of_one_database_are_one_feed(backend, queue):
    assert queue.connection_key == make(backend, "other").connection_key == ("database", backend.alias)
    assert (queue.features, queue.on_commit) == (FEATURES, None)


# ---- settings


@pytest.mark.backends("sqlite")
def test_an_unknown_connection_is_refused_by_name(backend):
    with pytest.raises(
        InvalidQueueError, match="CONNECTION is 'nowhere', which is no alias in DATABASES; there are: .*default"
    ):
        DatabaseQueue("mail", "nowhere")
    with pytest.raises(InvalidQueueError, match="NAME .* is too long: it may have 95 characters"):
        DatabaseQueue("x" * 96)
    assert DatabaseQueue("x" * 95, None).failed.database == "default"


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize("vendor", ["oracle", "mysql"])
def test_a_database_of_another_kind_is_refused_at_the_first_verb(queue, monkeypatch, vendor):
    monkeypatch.setattr(type(connections[queue.database]), "vendor", vendor)
    monkeypatch.setattr(type(connections[queue.database]), "mysql_is_mariadb", False, raising=False)
    with pytest.raises(NotSupported, match=f"is {vendor}; a queue can be on: mariadb, postgresql, sqlite"):
        len(queue)


# ---- tables


@pytest.mark.backends("sqlite")
def test_migrations_are_complete(backend, capsys):
    call_command("makemigrations", "djqueue", check=True, dry_run=True)
    assert "No changes" in capsys.readouterr().out


def test_tables_and_their_indexes(queue):
    connection = connections[queue.database]
    with connection.cursor() as cursor:
        hot = connection.introspection.get_constraints(cursor, "djqueue_message")
        facts = connection.introspection.get_constraints(cursor, "djqueue_fact")
    hot_index, unique = hot["djqueue_message_hot"], hot["djqueue_message_id"]
    assert hot_index["columns"] == ["state", "queue", "sort_key", "sort_at", "seq"]
    assert (unique["columns"], unique["unique"]) == (["id", "queue"], True)
    assert len([one for one in hot.values() if one["index"] or one["unique"]]) == 3 - (connection.vendor == "sqlite")
    assert facts["djqueue_fact_until"]["columns"] == ["until"]
    assert len([one for one in facts.values() if one["index"] and not one["primary_key"]]) == 1


@pytest.mark.backends("postgres")
def test_records_of_the_history_are_compressed_by_what_takes_the_least_time(queue):
    with connections[queue.database].cursor() as cursor:
        cursor.execute("SELECT 'lz4' = ANY (enumvals) FROM pg_settings WHERE name = 'default_toast_compression'")
        is_built_in = cursor.fetchone() == (True,)
        of_history = "attrelid = 'djqueue_history'::regclass"
        cursor.execute(f"SELECT attname FROM pg_attribute WHERE attcompression = 'l' AND {of_history}")
        assert cursor.fetchall() == [("records",)] * is_built_in


@pytest.mark.backends("mariadb")
def test_columns_do_not_depend_on_the_character_set_of_the_server(queue):
    with connections[queue.database].cursor() as cursor:
        cursor.execute(
            "SELECT column_name, column_type, collation_name FROM information_schema.columns "
            "WHERE table_schema = DATABASE() AND table_name LIKE 'djqueue%%'"
        )
        columns = cursor.fetchall()
    assert {collation for _, _, collation in columns} == {"utf8mb4_nopad_bin", None}
    assert {kind for name, kind, _ in columns if name in ("body", "value")} == {"longblob"}


# ---- checks


@pytest.mark.backends("sqlite")
def test_checks_of_sqlite(backend, tmp_path, monkeypatch):
    handler = ConnectionHandler(
        {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": tmp_path / "bare.sqlite3"}}
    )
    monkeypatch.setattr(checks, "connections", handler)
    found = {message.id: message for message in checks.check("default")}
    assert set(found) == {"djqueue.W202", "djqueue.W203", "djqueue.W204", "djqueue.W205"}
    assert "manage.py migrate djqueue " in found["djqueue.W205"].hint
    handler["default"].close()


def test_checks_name_the_database_to_migrate_and_one_without_autocommit(backend, queue, monkeypatch):
    assert queue.check() == []
    with monkeypatch.context() as patch:
        patch.setattr(QueueMessage._meta, "db_table", "nowhere")
        (found,) = queue.check()
    assert found.id == "djqueue.W205"
    assert "nowhere" in found.msg
    assert (f"--database {backend.alias}" in found.hint) is (backend.alias != "default")
    monkeypatch.setitem(connections[queue.database].settings_dict, "AUTOCOMMIT", False)
    (found,) = queue.check()
    assert (found.id, "djqueue cannot serve it" in found.msg) == ("djqueue.W206", True)


def test_checks_of_old_strange_and_absent_servers(backend, queue, monkeypatch):
    vendor, version = checks._vendor(connections[queue.database])
    assert version >= checks.FLOORS[vendor]
    for told, id in (((vendor, (1, 2)), "E203"), (("oracle", ()), "E202"), (("mysql", (8, 0)), "E202")):
        monkeypatch.setattr(checks, "_vendor", lambda connection, told=told: told)
        assert f"djqueue.{id}" in [message.id for message in queue.check()]
    monkeypatch.setattr(checks, "_vendor", lambda connection: Failing(1, "gone")(None))
    assert [message.id for message in queue.check()] == ["djqueue.E201"]


def dead_rows(queue) -> int:
    return queue._db.run(queue._db.sql.dead_rows)[0]


@pytest.mark.backends("postgres")
def test_what_was_completed_is_vacuumed_if_it_is_much(queue, monkeypatch):
    monkeypatch.setattr("djqueue.backends.database.vacuum.LEAST", 10)
    assert queue.vacuum() == 2.0
    put(queue, *"abcdefghijkl")
    queue.complete(claim(queue, 12))
    queue.close()  # which tells the server what it counts
    eventually(lambda: dead_rows(queue) >= 20)
    with transaction.atomic(queue.database):
        assert not queue._vacuum.run()
    assert (queue._vacuum.run(), queue._vacuum.run(), dead_rows(queue) < 20) == (True, False, True)
