"""What only the history in a table has: rows of many records, statements and plans, transactions, values by hand."""

from functools import partial

import pytest
from django.db import DatabaseError, connections, transaction
from django.db.models import Sum
from django.test import override_settings

from djqueue.backends.base import Fact
from djqueue.backends.database.queue import DatabaseQueue
from djqueue.models import QueueHistory
from djqueue.testing.contract.history import ids, kept, records
from djqueue.testing.contract.steps import claim, entry, leased, put
from tests.support.database import as_another_process, rolled_back, statements

pytestmark = pytest.mark.backends("sqlite", "postgres", "mariadb")


def rows(queue):
    return QueueHistory.objects.using(queue.database).filter(queue=queue.name)


def sent(queue, call, *args, **named) -> int:
    with statements(queue) as found:
        call(*args, **named)
    return len([one for one in found if not one["sql"].startswith(("BEGIN", "COMMIT", "SAVEPOINT", "RELEASE"))])


def test_what_is_settled_at_once_has_one_row_and_takes_at_most_one_statement_more(queue, monkeypatch):
    monkeypatch.setattr("djqueue.backends.database.queue.UNSEEN", 3600)  # a look at the lanes is a statement too
    put(queue, *"abcdefghijkl")
    more = 1 if connections[queue.database].vendor == "sqlite" else 0
    first, second = claim(queue, 2), claim(queue, 2)
    told = records(queue, 2)
    assert sent(queue, queue.complete, second, history=told) <= sent(queue, queue.complete, first) + more
    third, fourth = queue.exchange(claim(queue, 1), 1)[1], claim(queue, 1)
    assert sent(queue, queue.exchange, fourth, 1, history=told[:1]) <= sent(queue, queue.exchange, third, 1) + more
    fifth, sixth = claim(queue, 1), claim(queue, 1)
    assert sent(queue, queue.fail, sixth, history=told[:1]) <= sent(queue, queue.fail, fifth) + more
    assert [row.count for row in rows(queue).order_by("seq")] == [2, 1, 1]


def test_it_is_part_of_the_callers_transaction(queue):
    a, b, c, d = leased(queue, *"abcd")
    told = records(queue, 4)
    queue.complete([d])
    with rolled_back(queue.database):
        queue.complete([a, d], history=[told[0], told[3]])
        queue.fail([b, d], history=[told[1], told[3]])
        queue.exchange([c, d], 1, history=[told[2], told[3]])
        assert kept(queue) == dict(zip(ids([a, b, c]), told, strict=False))
    assert kept(queue) == {}
    with transaction.atomic(using=queue.database):
        queue.complete([a], history=told[:1])
    assert kept(queue) == {a.entry.id: told[0]}


def test_some_of_what_is_settled_with_a_claim_is_not_held_any_more(queue):
    a, b, c, d = leased(queue, *"abcd")
    put(queue, "next")
    queue.complete([b, d])
    told = records(queue, 4)
    held, claimed = queue.exchange([a, b, c], 1, history=told[:3])
    assert (ids(held), len(claimed)) == (ids([a, c]), 1)
    assert queue.exchange([b, d], 1, history=told[:2]) == ([], [])
    assert kept(queue) == {a.entry.id: told[0], c.entry.id: told[2]}
    assert queue.stats().done == 4


def test_it_is_kept_though_an_older_entry_gives_way(queue):
    (old,) = leased(queue, "old")
    queue.fail([old])
    put(queue, "new", id=old.entry.id)
    (told,) = records(queue, 1)
    queue.fail(claim(queue), history=[told])
    assert kept(queue) == {old.entry.id: told}
    assert len(queue.failed) == 1


def test_ids_of_any_text_are_told_apart(queue):
    named = ["a", "a b", "a%20b", "ab", "a/b", "ž 🐎", "A"]
    told = records(queue, len(named))
    queue.history.keep(named, told)
    assert [queue.history.get(id) for id in named] == told
    assert [queue.history.get(id) for id in ("b", "a ", "a%2520b", "ž")] == [None] * 4
    assert kept(queue) == dict(zip(named, told, strict=True))


def test_a_look_up_reads_the_index_alone_though_the_table_was_empty_when_it_was_analysed(queue):
    connection = connections[queue.database]
    with connection.cursor() as cursor:
        cursor.execute(f"ANALYZE {'TABLE ' if connection.vendor == 'mysql' else ''}djqueue_history")
    for _ in range(300):
        queue.history.keep([entry().id], records(queue, 1))
    cursor = queue.history.page(5)[-1].cursor
    with statements(queue) as found:
        queue.history.get(entry().id)
        queue.history.page(5)
        queue.history.page(5, cursor)
    explain = "EXPLAIN QUERY PLAN " if connection.vendor == "sqlite" else "EXPLAIN "
    with connection.cursor() as cursor:
        cursor.execute(explain + found[0]["sql"])
        assert "djqueue_history_place" in str(cursor.fetchall())
        cursor.execute(explain + found[1]["sql"])
        plan = str(cursor.fetchall())
        assert "last_id >=" in found[-1]["sql"]
        cursor.execute(explain + found[-1]["sql"])
        assert "djqueue_history_place" in str(cursor.fetchall())
    assert "Seq Scan" not in plan and "SCAN djqueue_history" not in plan, plan


def test_rows_stay_bounded_while_two_processes_settle(queue):
    """Each lets it grow by a tenth."""
    most, size = 1000, 20
    with override_settings(QUEUE_HISTORY={"count": most}):
        for turn in range(120):
            one = as_another_process(queue) if turn % 40 == 0 else one  # noqa: F821  # a process that begins
            for each in (queue, one):
                each.complete(leased(each, *map(str, range(size))), history=records(each, size))
    assert most <= rows(queue).aggregate(Sum("count"))["count__sum"] <= most * 1.2
    assert rows(queue).count() <= most * 1.2 / size


def test_it_is_trimmed_to_the_record_and_counted_only_if_something_was_kept(queue):
    leases = leased(queue, *map(str, range(10)))
    told = records(queue, 10)
    queue.complete(leases[:6], history=told[:6])
    queue.complete(leases[6:], history=told[6:])
    assert queue.history.trim(7, 3600) == 3
    assert list(kept(queue).values()) == told[:2:-1]
    assert [(row.count, row.records.count("\n")) for row in rows(queue).order_by("seq")] == [(3, 3), (4, 4)]
    idle = sent(queue, queue.history.trim, 7, 3600)
    queue.history.keep(["one"], records(queue, 1))
    assert idle == 2 < sent(queue, queue.history.trim, 8, 3600)
    assert queue.history.trim(5, 3600) == 3
    assert len(kept(queue)) == 5


def test_what_was_settled_is_settled_though_the_history_cannot_be_trimmed(queue, caplog):
    def fail(execute, sql, *args):
        if "newer" in sql:
            raise DatabaseError("no room")
        return execute(sql, *args)

    put(queue, "a", "b")
    (first,), (told,) = claim(queue), records(queue, 1)
    with override_settings(QUEUE_HISTORY={"count": 2}), connections[queue.database].execute_wrapper(fail):
        held, claimed = queue.exchange([first], 1, history=[told])
    assert (held, len(claimed)) == ([first], 1)
    assert [record.levelname for record in caplog.records if "could not be trimmed" in record.message] == ["ERROR"]
    assert kept(queue) == {first.entry.id: told}


def test_what_is_cancelled_waits_if_its_record_cannot_be_kept(queue):
    def fail(execute, sql, *args):
        if "INSERT INTO djqueue_history" in sql:
            raise DatabaseError("no room")
        return execute(sql, *args)

    (waits,) = put(queue, "a").values()
    with connections[queue.database].execute_wrapper(fail), pytest.raises(DatabaseError, match="no room"):
        queue.remove([waits.id], [Fact("result:a", b"1", 60)], records(queue, 1))
    assert queue.find(waits.id).state == "ready"
    assert (queue.store.get("result:a"), kept(queue)) == (None, {})


def test_records_that_make_no_sense_harm_no_others(queue):
    told = records(queue, 2)
    queue.history.keep(["a", "b"], told)
    queue.history.keep(["c"], told[:1])
    rows(queue).filter(first_id="c").update(records="c no line break\n\nd\n%ff%zz what\n ")
    assert {"a": told[0], "b": told[1]}.items() <= kept(queue).items()
    assert queue.history.get("c") is None
    queue.history.trim(1, 3600)
    queue.history.trim(0, 3600)
    assert kept(queue) == {}


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize("column", ["first_id", "last_id", "records"])
def test_text_that_cannot_be_decoded_stops_nothing(queue, column):
    (told,) = records(queue, 1)
    calls = [
        partial(queue.history.get, "odd"),
        partial(queue.history.page, 10),
        partial(queue.history.trim, 100, 3600),
        partial(queue.history.trim, 1, 3600),
    ]
    for call in calls:
        queue.history.keep(["odd"], [told])
        with connections[queue.database].cursor() as cursor:
            row = f"{column} = CAST(x'fffe61' AS TEXT) WHERE queue = %s"
            cursor.execute(f"UPDATE djqueue_history SET {row}", [queue.name])
        call()
        queue.complete(leased(queue, "next"), history=[told])
        assert queue.history.page(1)[0].record == told
    queue.history.trim(0, 3600)
    assert kept(queue) == {}


def test_queues_of_one_table_have_a_history_each(queue, backend):
    other = DatabaseQueue(f"other-{backend.tag}", backend.alias)
    told = records(queue, 2)
    queue.history.keep(["a"], told[:1])
    other.history.keep(["a"], told[1:])
    assert (kept(queue), kept(other)) == ({"a": told[0]}, {"a": told[1]})
    queue.history.trim(0, 3600)
    assert (kept(queue), kept(other)) == ({}, {"a": told[1]})
