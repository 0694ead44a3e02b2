"""Queues in a database whose answers are lost, whose rows somebody else wrote, or whose file was replaced."""

import gc
import json
import os
import sqlite3
import time
from contextlib import closing, contextmanager, suppress
from itertools import islice

import pytest
from django.db import IntegrityError, OperationalError, connections, models, transaction

from djqueue import queues
from djqueue.backends.base import Fact, RateLimit, walk
from djqueue.backends.database import session
from djqueue.backends.database.queue import REPLAYED, DatabaseQueue
from djqueue.backends.entries import LEASED, READY, Entry, untried
from djqueue.exceptions import RateUnreadable
from djqueue.flow.gates import UNREADABLE, Gate
from djqueue.flow.rates import Rate
from djqueue.flow.windows import Window
from djqueue.messages.envelope import new_id
from djqueue.messages.failures import errors_of
from djqueue.models import Bytewise, QueueFact, QueueHistory, QueueLane, QueueMessage, QueueTicket
from djqueue.policies.outcomes import Outcome, Verdict
from djqueue.testing import eventually
from djqueue.testing.contract.history import records
from djqueue.testing.contract.lane_steps import drained, fill, runs_of, unit
from djqueue.testing.contract.steps import claim, leased, names, nothing_to_claim, put, with_counts
from tests.app.commands import note
from tests.support.consumer import recorded_signals
from tests.support.database import as_another_connection, as_another_process
from tests.support.processes import until
from tests.support.pump import claimed_once

pytestmark = pytest.mark.backends("sqlite", "postgres", "mariadb")
MOST = 2**31 - 1
SHORT = 0.05


@contextmanager
def unheard(*verbs, times=1):
    """The first answers of these are lost, when the server has done all that it was asked for."""
    lost = []

    run = session.Database.run

    def losing(database, verb, *args):
        answer = run(database, verb, *args)
        named = {getattr(one, "__name__", "") for one in (verb, *args)}  # what holders say is an argument of others
        if named & set(verbs) and len(lost) < times:
            lost.append(verb)
            raise OperationalError("the answer was lost")
        return answer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session.Database, "run", losing)
        yield lost


def rows(queue):
    return QueueMessage.objects.using(queue.database).filter(queue=queue.name)


def write(queue, name, **columns):
    """Into the row of the entry with that body."""
    assert rows(queue).filter(body=name.encode()).update(**columns) == 1


def starts(leases):
    return [(lease.entry.body.decode(), lease.entry.attempts, lease.entry.lost) for lease in leases]


def lose_a_claim(queue, *verbs, **asked):
    with unheard(*verbs) as lost, pytest.raises(OperationalError):
        queue.claim(5, **asked)
    assert lost


# ---- answers that are lost


def test_a_claim_whose_answer_never_came_counts_as_nothing(queue):
    put(queue, "a", "b")
    lose_a_claim(queue, "claim")
    leases = queue.claim(5)
    assert starts(leases) == [("a", 1, 0), ("b", 1, 0)]
    queue.fail(leases)
    lose_a_claim(queue.failed, "claim")
    assert starts(queue.failed.claim(5)) == [("a", 2, 0), ("b", 2, 0)]


def test_nor_does_one_of_a_lane_which_lets_go(queue):
    fill(queue, "lane", *"123", gate=runs_of(10))
    lose_a_claim(queue, "claim_turns")
    assert starts(unit(queue)) == [("1", 1, 0), ("2", 1, 0), ("3", 1, 0)]


def test_reaping_gives_it_back_too(queue):
    put(queue, "a")
    lose_a_claim(queue, "claim")
    queue.reap()
    assert (queue.stats().leased, starts(as_another_process(queue).claim(5))) == (0, [("a", 1, 0)])


def test_nor_one_by_a_rate_limit(queue):
    put(queue, "a", "b")
    rate_limit = RateLimit("rate_limit", Window(10, 60))
    with unheard("claim_within", "claim_paid"), pytest.raises(OperationalError):
        queue.claim_within(rate_limit, 2)
    assert starts(queue.claim_within(rate_limit, 2)) == [("a", 1, 0), ("b", 1, 0)]


def test_what_the_server_still_does_for_a_lost_claim_is_given_back_later(queue, monkeypatch):
    asked, run = [], session.Database.run

    def cut(database, verb, *args):
        asked.append((database, verb, *args))
        raise OperationalError("the connection was cut")

    with monkeypatch.context() as patch:
        patch.setattr(session.Database, "run", cut)
        with pytest.raises(OperationalError):
            queue.claim(5)
    assert queue.claim(5) == []
    put(queue, "late")
    run(*asked[0])
    assert queue.stats().leased == 1
    assert starts(queue.claim(5)) == [("late", 1, 0)]


def test_a_lost_claim_is_forgotten_when_its_leases_are_over(queue):
    put(queue, "a")
    lose_a_claim(queue, "claim", lease=SHORT)
    eventually(lambda: not queue._unanswered.tokens())
    assert eventually(lambda: queue.reap().count) == 1
    assert starts(claim(queue)) == [("a", 2, 1)]


def test_a_claim_that_fails_in_the_callers_transaction_is_the_callers_to_roll_back(queue):
    put(queue, "a")
    with pytest.raises(OperationalError), transaction.atomic(using=queue.database), unheard("claim"):
        queue.claim(5)
    assert (queue._unanswered.tokens(), starts(claim(queue))) == ([], [("a", 1, 0)])


def test_what_others_hold_is_not_given_back(queue):
    put(queue, "theirs")
    theirs = as_another_process(queue).claim(5)
    put(queue, "mine")
    lose_a_claim(queue, "claim")
    assert starts(queue.claim(5)) == [("mine", 1, 0)]
    assert queue.complete(theirs) == theirs


# ---- results are part of the completion


def settled_with_results(queue, count, outcome):
    """Have a pump settle so many, each with a result; how many results are kept."""
    put(queue, *map(str, range(count)))
    harness = claimed_once(queue, threads=count)
    ids = harness.ids()
    for _ in range(count):
        harness.end(harness.begin(), Verdict(outcome, "reason", packed=b"result", keep=600))
    eventually(lambda: harness.settle() or not harness.in_flight)
    return sum(queue.store.get(f"result:{id}") is not None for id in ids)


@pytest.mark.parametrize(("outcome", "signal"), [(Outcome.DONE, "completed"), (Outcome.FAILED, "failed")])
def test_results_are_kept_though_the_answers_of_those_who_settle_are_lost(queue, outcome, signal):
    with recorded_signals(signal, "lease_lost") as told, unheard("say", times=3) as lost:
        assert settled_with_results(queue, 40, outcome) == 40
    assert (len(lost), [name for name, _ in told]) == (3, [signal] * 40)


def test_a_connection_that_died_without_autocommit_is_not_used_for_ever(queue):
    """As Django leaves one that is cut before it could be told to commit by itself."""
    put(queue, "a")
    harness = claimed_once(queue)
    harness.end(harness.begin())
    connection = connections[queue.database]
    connection.ensure_connection()
    connection.connection.close()
    connection.autocommit = False
    eventually(lambda: harness.settle() or not harness.in_flight)
    assert queue.stats().done == 1


@pytest.mark.parametrize("verb", ["complete", "fail"])
@pytest.mark.parametrize("laned", [False, True])
def test_a_kill_between_the_end_and_its_result_cannot_be(queue, verb, laned):
    """The statement that keeps the result fails: the message has not ended either."""
    fill(queue, "lane", "a") if laned else put(queue, "a")
    leases = unit(queue)

    def fail(execute, sql, params, many, context):
        if "djqueue_fact" in sql and "the result" in str(params):
            raise KeyboardInterrupt
        return execute(sql, params, many, context)

    with connections[queue.database].execute_wrapper(fail), pytest.raises(KeyboardInterrupt):
        getattr(queue, verb)(leases, [Fact("kept", b"the result", 60)])
    assert (queue.store.get("kept"), queue.stats().leased, queue.stats().failed) == (None, 1, 0)
    assert getattr(queue, verb)(leases, [Fact("kept", b"the result", 60)]) == leases
    assert queue.store.get("kept") == b"the result"


def test_facts_that_are_too_large_together_go_in_several_statements(queue):
    leases = leased(queue, *"abcdef")
    facts = [Fact(f"of {number}", bytes(range(number, 256)) * 2**12, 60) for number in range(6)]
    assert len(queue.complete(leases, facts)) == 6
    assert [queue.store.get(fact.key) == fact.value for fact in facts] == [True] * 6


def test_facts_of_one_key_are_one_fact(queue):
    assert len(queue.complete(leased(queue, "a", "b"), [Fact("same", b"1", 60), Fact("same", b"1", 60)])) == 2
    assert queue.store.get("same") == b"1"


def test_a_long_note_is_kept_whole(queue):
    put(queue, "a", "b")
    released, failed = (with_counts(lease, errors="é" * 70_000) for lease in claim(queue, 2))
    assert (queue.release([released]), queue.fail([failed])) == ([released], [failed])
    assert [each.peek(READY)[0].entry.errors == "é" * 70_000 for each in (queue, queue.failed)] == [True, True]


# ---- rows that somebody else wrote


REFUSED = {
    QueueMessage: [
        {"state": 7},
        {"state": -1},
        {"state": 3, "lane_number": 0},
        {"state": 4, "lane_number": -99},
        {"state": 99},
        {"lane_number": 12345},
    ],
    QueueLane: [{"state": 7}, {"state": -1}, {"number": 0}],
    QueueTicket: [{"number": 0}, {"number": -99}],
    QueueFact: [{"counter": -1, "until": None}, {"counter": 2**62, "until": None}],
    QueueHistory: [{"count": 0}, {"count": -5}, {"count": 5000}],
}


@pytest.mark.parametrize("model, values", [(model, values) for model in REFUSED for values in REFUSED[model]])
def test_values_that_no_verb_could_handle_are_refused(queue, model, values):
    for lane in "ab":
        fill(queue, lane, "1", "2", gate=Gate(concurrency=1))
    [lease] = claim(queue)
    assert queue.complete([lease], history=records(queue, 1)) == [lease]
    fill(queue, "c", "3")
    rows = model.objects.using(queue.database)
    assert rows.exists()
    with pytest.raises(IntegrityError), transaction.atomic(using=queue.database):
        rows.update(**values)
    assert queue.sweep() == 0
    assert len(drained(queue, 4)) == 4


def test_no_column_is_ever_without_a_value_but_the_end_of_a_fact():
    fields = [field for model in REFUSED for field in model._meta.concrete_fields]
    assert [field.column for field in fields if field.null] == ["until"]


@pytest.mark.parametrize("within", ["", "all"])
def test_a_sweep_lets_a_lane_go_on_whose_running_entry_was_deleted(queue, within):
    gate = Gate(ordered=True, parent=within, parent_gate=Gate(concurrency=1) if within else None)
    fill(queue, "a", "one", "two", "three", gate=gate)
    unit(queue)
    assert (queue.sweep(), queue.claim(1)) == (0, [])
    rows(queue).filter(body=b"one").delete()
    assert queue.sweep() == (2 if within else 1)
    (two,) = unit(queue)
    assert (names([two]), queue.sweep(), queue.claim(1)) == (["two"], 0, [])
    queue.complete([two])
    assert names(unit(queue)) == ["three"]


def test_a_sweep_leaves_lanes_alone_in_which_all_is_delayed(queue, caplog):
    fill(queue, "lane", "later", delay=60)
    assert queue.claim(1) == []
    assert (queue.sweep(), queue.sweep(), caplog.text) == (0, 0, "")


def test_a_sweep_restores_lanes_whose_rows_are_gone(queue):
    fill(queue, "a", "one", "two", gate=Gate(ordered=True))
    fill(queue, "b", "three", "four", gate=Gate(concurrency=1))
    assert queue.sweep() == 0
    assert names(queue.claim(1, SHORT)) == ["one"]
    QueueLane.objects.using(queue.database).filter(queue=queue.name).delete()
    assert queue.sweep() > 0
    found = []
    eventually(lambda: queue.reap() and found.extend(names(queue.complete(queue.claim(10)))) or len(found) == 4)
    assert (sorted(found), found.index("one") < found.index("two")) == (["four", "one", "three", "two"], True)
    assert queue.sweep() == 0


def test_what_stands_in_no_lane_of_its_own_can_be_looked_at(queue):
    fill(queue, "a", "one", "two")
    unit(queue)
    write(queue, "two", state=12345, lane_number=12345)
    assert {record.entry.body for record in queue.peek(READY)} <= {b"two"}


@pytest.mark.parametrize("value", [MOST, -MOST - 1])
@pytest.mark.parametrize("laned", [False, True])
def test_extreme_counts_stop_nothing(queue, value, laned):
    fill(queue, "lane", "odd") if laned else put(queue, "odd")
    put(queue, "other")
    write(queue, "odd", attempts=value, failures=value, lost=value, begun=max(-(2**15), min(value, 2**15 - 1)))
    assert sorted(names(claim(queue, 2))) == ["odd", "other"]
    write(queue, "odd", begun=-1, sort_at=1)
    assert queue.reap().count == 1
    (odd,) = unit(queue)
    assert queue.touch([odd]) and queue.begin([odd]) and queue.release([untried(odd)])
    (odd,) = unit(queue)
    more = with_counts(odd, failures=odd.entry.failures + 1, lost=odd.entry.lost + 1, attempts=odd.entry.attempts + 1)
    assert queue.release([more]) == [more]
    assert queue.fail([with_counts(unit(queue)[0], failures=MOST + 1)])
    assert queue.requeue([odd.entry.id]) == 1
    assert names(unit(queue)) == ["odd"]


ODD = {
    models.IntegerField: ["odd", "", "12x", b"\xff\x00", 1.5e300, 0.5],
    Bytewise: [b"\xff\x00", b""],
    models.BinaryField: ["odd", "", 5, 0.5],
}
USUAL = {models.IntegerField: 100, Bytewise: "x", models.BinaryField: b"x"}
COLUMNS = [(model, field) for model in REFUSED for field in model._meta.concrete_fields if field.column != "seq"]


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize("model, field", COLUMNS, ids=[f"{model.__name__}.{field.column}" for model, field in COLUMNS])
def test_a_value_of_another_type_is_refused(queue, model, field):
    """By itself SQLite takes whatever is written."""
    row = {one.column: of_its_kind(one, USUAL) for one in model._meta.concrete_fields}
    sql = f"INSERT INTO {model._meta.db_table} ({', '.join(row)}) VALUES ({', '.join(['%s'] * len(row))})"
    for value in of_its_kind(field, ODD):
        with connections[queue.database].cursor() as cursor, pytest.raises(IntegrityError, match=field.column):
            cursor.execute(sql, [*(row | {field.column: value}).values()])


def of_its_kind(field, values):
    return next(value for kind, value in values.items() if isinstance(field, kind))


@pytest.mark.backends("sqlite")
def test_a_number_that_was_written_as_text_is_a_number(queue):
    put(queue, "odd")
    with connections[queue.database].cursor() as cursor:
        cursor.execute("UPDATE djqueue_message SET attempts = '5', lost = 2.0, command = 7")
    [lease] = queue.claim(1)
    assert (lease.entry.attempts, lease.entry.lost, lease.entry.command) == (6, 2, "7")


OF_TEXT = ["command", "errors", "lane", "gate", "owner", "id", "queue"]


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize(
    "column, laned, first",
    [(column, laned, "claim") for column in OF_TEXT for laned in (False, True)]
    + [(column, True, first) for column in ("command", "lane", "gate") for first in ("walk", "sweep")],
)
def test_text_that_cannot_be_decoded_stops_at_most_its_message(queue, column, laned, first):
    """Written with another encoding, say: what SQLite takes for text."""
    for lane in "abc":
        fill(queue, lane, lane, gate=Gate(concurrency=1)) if laned else put(queue, lane)
    with connections[queue.database].cursor() as cursor:
        row = "(SELECT min(seq) FROM djqueue_message)"
        cursor.execute(f"UPDATE djqueue_message SET {column} = CAST(x'fffe61' AS TEXT) WHERE seq = {row}")
    verbs = {"claim": (), "walk": (lambda: list(walk(queue, READY)),), "sweep": (queue.sweep, queue.lanes.page)}
    for verb in verbs[first]:
        verb()
    done = names(queue.complete(queue.claim(3)))
    eventually(lambda: done.extend(names(queue.complete(queue.claim(3)))) or {"b", "c"} <= set(done))
    assert queue.stats().leased == 0


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize("table, column", [("lane", "name"), ("lane", "gate"), ("ticket", "name"), ("fact", "name")])
def test_text_that_cannot_be_decoded_stops_at_most_its_lane(queue, table, column):
    for lane in "abc":
        fill(queue, lane, f"{lane}1", f"{lane}2", gate=Gate(concurrency=1))
    if table != "ticket":
        assert len(queue.complete(claim(queue, 3))) == 3
    queue.store.put("known", b"value")
    with connections[queue.database].cursor() as cursor:
        row = f"(SELECT min(rowid) FROM djqueue_{table})"
        cursor.execute(f"UPDATE djqueue_{table} SET {column} = CAST(x'fffe61' AS TEXT) WHERE rowid = {row}")
    queue.lanes.page()
    queue.sweep()
    done = []
    eventually(lambda: done.extend(names(queue.complete(queue.claim(6)))) or {"b2", "c2"} <= set(done))


@pytest.mark.backends("sqlite")
def test_text_of_the_project_that_cannot_be_decoded_still_raises_there(queue):
    put(queue, "a")
    with connections[queue.database].cursor() as cursor, pytest.raises(sqlite3.OperationalError, match="decode"):
        cursor.execute("SELECT CAST(x'fffe61' AS TEXT)").fetchone()
    assert names(unit(queue)) == ["a"]


@pytest.mark.parametrize("field", ["due_since", "created", "sort_at"])
@pytest.mark.parametrize("value", [2**62, -(2**62)])
def test_moments_far_out_stop_nothing(queue, field, value):
    put(queue, "odd", "other")
    write(queue, "odd", **{field: value})
    assert sorted(record.entry.body for record in queue.peek(READY)) == [b"odd", b"other"]
    leases = claim(queue, 2)
    assert (len(queue.peek(LEASED)), queue.stats().leased) == (2, 2)
    assert len(queue.release(leases)) == 2
    assert sorted(names(queue.fail(claim(queue, 2)))) == ["odd", "other"]


@pytest.mark.parametrize("lane", ["", "other"])
def test_a_walk_ends_whatever_lane_a_row_names(queue, lane):
    fill(queue, "lane", *"123", gate=runs_of(10))
    fill(queue, "other", "4", gate=runs_of(10))
    write(queue, "2", lane=lane)
    assert [[record.entry.body for record in islice(walk(queue, READY, most), 10)] for most in (2, 9)] == [
        [b"1", b"2"],
        [b"1", b"2", b"3", b"4"],
    ]
    cursors = [record.cursor for record in queue.peek(READY)]
    assert [len(queue.peek(READY, 10, cursor)) for cursor in cursors] == [3, 2, 1, 0]


@pytest.mark.parametrize("delay", [1e300, float("inf")])
def test_a_delay_without_end_can_be_said(queue, delay):
    assert len(queue.release([with_counts(leased(queue, "a")[0], delay=delay)])) == 1
    assert queue.stats().delayed == 1


GATES = [
    "no JSON", "[]", "{}}", "7", "null", '{"r":"x"}', '{"m":-5}', '{"w":[[0,0]]}', '{"w":5}', '{"in":7}', '{"t":NaN}',
    '{"in":"b","by":{"in":"lane"}}', '{"by":' * 100_000, json.dumps({"in": "x" * 300}),
]  # fmt: skip


def test_a_gate_that_cannot_be_read_lets_one_leave_at_a_time():
    assert {Gate.read(text) for text in GATES} == {UNREADABLE}


@pytest.mark.parametrize("text", ["no JSON", '{"in":"lane"}', '{"in":"other"}', json.dumps({"in": "x" * 300})])
def test_a_strange_gate_of_an_entry_stops_nothing(queue, text):
    put(queue, "1", "2", lane="lane", gate=text)
    fill(queue, "other", "3")
    put(queue, "4")
    assert sorted(drained(queue, 4)) == ["1", "2", "3", "4"]


@pytest.mark.parametrize("text", ["no JSON", '{"in":"lane"}', '{"in":"other"}'])
def test_a_strange_gate_of_a_lane_stops_nothing(queue, text):
    fill(queue, "lane", "1", "2", gate=Gate(concurrency=1))
    fill(queue, "other", "3", "4", gate=Gate(concurrency=1))
    first = claim(queue, 2)
    assert QueueLane.objects.using(queue.database).filter(name="lane", queue=queue.name).update(gate=text) == 1
    assert len(queue.complete(first)) == 2
    put(queue, "5")
    fill(queue, "third", "6")
    assert sorted(drained(queue, 4)) == ["2", "4", "5", "6"]
    assert {lane.name for lane in queue.lanes.page()} <= {"lane", "other", "third"}


OLD_LOGS = "[[[[1700000000000000,1]],0,0]]"


@pytest.mark.parametrize("rates", ["x", "{}", OLD_LOGS, Rate(Window(9, 60.0)).written(), "1 1 0 0 0 0 0 0 0 0|\n" * 2])
def test_a_rate_that_cannot_be_read_stops_its_lane_alone_until_somebody_opens_it(queue, rates):
    gate = Gate(windows=(Window(10, 60.0),))
    fill(queue, "lane", "1", "2", gate=gate)
    assert names(unit(queue)) == ["1"]
    QueueLane.objects.using(queue.database).filter(queue=queue.name).update(rates=rates, in_flight=MOST)
    put(queue, "other")
    fill(queue, "next", "3", gate=gate)
    assert {names(unit(queue))[0] for _ in range(2)} == {"3", "other"}
    assert nothing_to_claim(queue)
    record = queue.lanes.get("lane")
    assert (record.state, record.waiting, "cannot be read" in record.paused_reason) == ("closed", 1, True)
    assert queue.lanes.resume("lane")
    assert names(unit(queue)) == ["2"]


@pytest.mark.parametrize("value", [b"x", b"\xff", b"[10, 60000000, 0, 0, 1700000000000000, 0, 0, 0]"])
def test_a_rate_limit_that_cannot_be_read_stops_what_it_bounds_by_name_until_it_is_forgotten(queue, value):
    rate_limit, other = RateLimit("first", Window(10, 60)), RateLimit("second", Window(10, 60))
    put(queue, "1", "2", "3")
    assert names(queue.claim_within(rate_limit)) == ["1"]
    QueueFact.objects.using(queue.database).filter(name__endswith="first").update(value=value)
    shared = queue.store.shared
    for ask in (queue.claim_within, shared.used, shared.change_rate_limit, lambda limit: shared.acquire(limit, 1)):
        with pytest.raises(RateUnreadable, match="'first' cannot be read"):
            ask(rate_limit)
    assert names(queue.claim_within(other)) == ["2"]
    shared.forget_rate_limit(rate_limit)
    assert names(queue.claim_within(rate_limit)) == ["3"]


# ---- locks


def cursors():
    return [one for one in gc.get_objects() if issubclass(type(one), sqlite3.Cursor)]


@pytest.mark.backends("sqlite")
def test_a_statement_that_failed_leaves_no_cursor_to_the_garbage_collection_of_another_thread(queue, monkeypatch):
    """That would wait for this connection, which may be waiting for a lock that the other thread holds."""
    monkeypatch.setattr(session, "PAUSES", ())
    fill(queue, "lane", "1")

    def fail():
        connections[queue.database].ensure_connection()
        connections[queue.database].connection.execute("PRAGMA busy_timeout = 0").close()
        for verb in (lambda: queue.claim(1), lambda: queue.put([Entry(b"", new_id())]), queue.reap, queue.sweep):
            with suppress(OperationalError):
                verb()
        # Threads of other tests may have one, for a moment; what is left to the collection stays.
        return until(lambda: not [cursor for cursor in cursors() if id(cursor) not in earlier])

    gc.collect()
    others = cursors()  # kept, so that no new one gets the id of an old one
    earlier = set(map(id, others))
    gc.disable()
    try:
        with transaction.atomic(queue.database):
            QueueFact.objects.using(queue.database).create(name="any", value=b"")
            assert as_another_connection(queue, fail)
    finally:
        gc.enable()


# ---- replays


def test_what_was_completed_before_and_is_put_again_by_hand_has_failed(backend):
    queue = DatabaseQueue(f"queue-{backend.tag}", backend.alias, remember_done=60)
    put(queue, "once", "other")
    row = rows(queue).get(body=b"once")
    assert len(queue.complete(queue.claim(1))) == 1
    row.seq = None
    row.save(using=queue.database, force_insert=True)
    assert names(queue.claim(5)) == ["other"]
    assert [note["reason"] for note in errors_of(queue.failed.find(row.entry_id).entry.errors)] == [REPLAYED]
    assert (queue.stats().done, queue.stats().leased) == (1, 1)


def test_without_the_option_nothing_is_looked_up(queue):
    put(queue, "once")
    row = rows(queue).get()
    queue.complete(claim(queue))
    row.seq = None
    row.save(using=queue.database, force_insert=True)
    assert names(claim(queue)) == ["once"]


# ---- an SQLite file that is replaced


def copied(path, to):
    with closing(sqlite3.connect(path)) as here, closing(sqlite3.connect(to)) as there:
        here.backup(there)


def restore(path):
    """Put a copy of the database in its place, so late that every connection looks at its file again."""
    copied(path, path.with_name("copy"))
    copied_at = time.monotonic()
    until(lambda: time.monotonic() - copied_at > session.EVERY)
    os.replace(path.with_name("copy"), path)
    for beside in ("-wal", "-shm"):
        path.with_name(path.name + beside).unlink(missing_ok=True)


@pytest.fixture
def own_database(backend, tmp_path, monkeypatch):
    """A database of the test's own in the place of the usual one."""
    usual, path = connections["default"], tmp_path / "own.sqlite3"
    copied(usual.settings_dict["NAME"], path)
    usual.close()
    with monkeypatch.context() as patch:
        patch.setitem(usual.settings_dict, "NAME", str(path))
        yield path
        usual.close()


def warnings_of(caplog):
    return [record.levelname for record in caplog.records if "was replaced" in record.message]


@pytest.mark.backends("sqlite")
def test_a_file_that_was_replaced_is_opened_anew(own_database, queue, caplog):
    put(queue, "before")
    restore(own_database)
    as_another_connection(queue, lambda: put(queue, "after"))
    assert names(queue.claim(5)) == ["before", "after"]
    assert warnings_of(caplog) == ["WARNING"]


@pytest.mark.backends("sqlite")
def test_a_transaction_of_the_caller_is_to_be_begun_anew(own_database, queue, caplog):
    put(queue, "before")
    with pytest.raises(OperationalError, match="begin the transaction again"), transaction.atomic(using=queue.database):
        put(queue, "lost with it")
        restore(own_database)
        put(queue, "refused")
    assert warnings_of(caplog) == ["WARNING"]
    with transaction.atomic(using=queue.database):
        put(queue, "after")
    assert as_another_connection(queue, lambda: names(queue.claim(5))) == ["before", "after"]


@pytest.mark.backends("sqlite")
def test_a_running_consumer_goes_on_with_the_file_that_was_put_in_place(own_database, site):
    note.enqueue("before")
    consumer = site.consumer()
    until(lambda: site.ledger.exists() and site.ledger.read_text() == "before\n")
    until(lambda: queues["default"].stats().done == 1)
    restore(own_database)
    connections["default"].close()
    note.enqueue("after")
    until(lambda: site.ledger.read_text() == "before\nafter\n")
    consumer.wait_for("was replaced")
