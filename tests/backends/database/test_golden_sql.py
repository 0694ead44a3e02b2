"""The statements of each verb as each vendor gets them, in the folder golden_sql: to be read, and reviewed, as SQL.

``DJQUEUE_WRITE_SQL=1 pytest THIS_FILE`` writes the files anew. In them NOW stands for the vendor's
clock; parameters are not shown, and numbers that differ from run to run have names such as ``:moment``.
"""

import os
import re
from collections.abc import Callable, Iterator
from difflib import unified_diff
from itertools import groupby
from operator import attrgetter, itemgetter
from pathlib import Path

import pytest
from django.db import connections

from djqueue.backends.base import DebounceGuard, OnceGuard, RateLimit, UniqueGuard
from djqueue.backends.database.queue import DatabaseQueue
from djqueue.backends.database.session import dialect_of
from djqueue.backends.entries import DELAYED, READY, Fact
from djqueue.flow.gates import Gate
from djqueue.flow.windows import Window
from djqueue.testing.contract.history import records
from djqueue.testing.contract.steps import claim, entry, put, until_now_is, with_counts
from tests.support.sql_layout import layout

pytestmark = pytest.mark.backends("sqlite", "postgres", "mariadb")

FOLDER = Path(__file__).parent / "golden_sql"
WRITE = "DJQUEUE_WRITE_SQL"
CONTROL = ("BEGIN", "COMMIT", "SAVEPOINT", "RELEASE SAVEPOINT", "ROLLBACK")
VARYING = {
    r"\b(1[6-9]|2\d)\d{14}\b": ":moment",
    r"\b\d{17,19}\b": ":lane",
    r"\bseq IN \(\d[\d, ]*\)": "seq IN (:seqs)",
    r"(<= \(-?\d+, :moment), \d+\)": r"\1, :seq)",
    r"\bseq <= \d+": "seq <= :seq",
    r"\((\d{10}), \d+\)": r"(\1, :bucket)",
    r"'djqueue_\d+'": "':channel'",
}
"""Numbers that are part of the text of a statement, and what is written instead."""
ORDERED = Gate(ordered=True).written()
LIMITED = Gate(concurrency=2, windows=(Window(10, 60.0),)).written()
SHARED = Gate(ordered=True, parent="all", parent_gate=Gate(concurrency=5)).written()
RATE_LIMIT = RateLimit("rate_limit", Window(10, 60.0))

Case = Callable[[DatabaseQueue, DatabaseQueue], Callable[[], object]]
"""Prepares the first queue and gives the call of a verb on the second, which is the same as another process has it: so
a call does not depend on what an object remembers."""


def laned(queue: DatabaseQueue, count: int = 2, gate: str = ORDERED, **fields) -> list[str]:
    entries = [entry(lane="lane", gate=gate, **fields) for _ in range(count)]
    assert all(queue.put(entries))
    return [one.id for one in entries]


def held(queue: DatabaseQueue, count: int = 2, lease: float = 60.0) -> list:
    put(queue, *"abcdefgh"[:count])
    return claim(queue, count, lease)


def held_in_lane(queue: DatabaseQueue, lease: float = 60.0) -> list:
    laned(queue)
    return claim(queue, 1, lease)


def failed(queue: DatabaseQueue, count: int = 2) -> list[str]:
    leases = held(queue, count)
    queue.fail(leases)
    return [lease.entry.id for lease in leases]


def delayed(leases: list) -> list:
    return [with_counts(lease, delay=30.0) for lease in leases]


def expired(queue: DatabaseQueue, leases: list) -> None:
    until_now_is(queue, leases[0].until + 0.005)


def due(queue: DatabaseQueue, **fields) -> None:
    put(queue, "a", delay=0.001, **fields)
    until_now_is(queue, queue.now() + 0.01)


def put_beside(guard, **fields) -> Case:
    """A put of two entries next to guards of one kind."""
    return lambda one, two: lambda: two.put([entry(**fields), entry(**fields)], [guard("a"), guard("b")])


def on_held(verb: str, prepare: Callable = held, said: Callable = list, **args) -> Case:
    """A verb of those who hold leases."""

    def case(one, two):
        leases = said(prepare(one))
        return lambda: getattr(two, verb)(leases, **args)

    return case


def on_waiting(verb: str, prepare: Callable, *args) -> Case:
    """A verb of operators that takes ids."""

    def case(one, two):
        ids = prepare(one)
        return lambda: getattr(two, verb)(ids, *args)

    return case


def on(verb: str, *args, prepare: Callable = lambda queue: None, **named) -> Case:
    """Any other verb."""

    def case(one, two):
        prepare(one)
        return lambda: attrgetter(verb)(two)(*args, **named)

    return case


def on_store(verb: str, *args) -> Case:
    def case(one, two):
        one.store.put("there", b"was", 60.0)
        return lambda: getattr(two.store, verb)(*args)

    return case


def fail_again(one, two):
    """The failed queue has an older entry of the same id."""
    (id,) = failed(one, 1)
    one.put([entry(id=id)])
    leases = claim(one)
    return lambda: two.fail(leases)


def reap(prepare: Callable) -> Case:
    def case(one, two):
        expired(one, prepare(one, lease=0.001))
        return two.reap

    return case


def reclaim(prepare: Callable) -> Case:
    def case(one, two):
        prepare(one)
        one.claim(2, owner="dead")
        return lambda: two.reclaim("dead")

    return case


def postpone(one, two):
    guard = DebounceGuard("a", 60.0, extend=True)
    one.put([entry()], [guard])
    until_now_is(one, one.now() + 0.005)
    return lambda: two.put([entry()], [guard])


def peek_behind(one, two):
    put(one, *"ab")
    (first,) = one.peek(READY, 1)
    return lambda: two.peek(READY, 1, after=first.cursor)


def amend(one, two):
    (waits,) = put(one, "a").values()
    return lambda: two.amend(waits.id, b"a", b"new")


def exchange_for(prepare: Callable) -> Case:
    """Complete one entry, and claim what was put."""

    def case(one, two):
        leases = held(one, 1)
        prepare(one)
        return lambda: two.exchange(leases, 2)

    return case


def find(one, two):
    (waits,) = put(one, "a").values()
    return lambda: two.find(waits.id)


def trim(**bounds) -> Case:
    def case(one, two):
        failed(one)
        until_now_is(one, one.now() + 0.01)
        return lambda: two.failed.trim(**bounds)

    return case


def ids(queue: DatabaseQueue) -> list[str]:
    return [one.id for one in put(queue, *"ab").values()]


def keep_with(verb: str) -> Case:
    """Settle, and keep a fact for each in the same step."""

    def case(one, two):
        leases = held(one)
        facts = [Fact(f"fact {number}", b"value", 60.0) for number, _ in enumerate(leases)]
        return lambda: getattr(two, verb)(leases, facts)

    return case


def record_with(verb: str, prepare: Callable = held, **args) -> Case:
    """Settle, and keep a record of each in the same step."""

    def case(one, two):
        leases = prepare(one)
        told = records(one, len(leases))
        return lambda: getattr(two, verb)(leases, history=told, **args)

    return case


def one_is_gone(queue: DatabaseQueue) -> list:
    leases = held(queue)
    queue.complete(leases[1:])
    return leases


def recorded(queue: DatabaseQueue) -> None:
    queue.history.keep(["a", "b", "c"], records(queue, 3))


def history_behind(one, two):
    one.history.keep(["a"], records(one, 1))
    recorded(one)
    cursor = one.history.page(1)[0].cursor
    return lambda: two.history.page(2, cursor)


def cancel(one, two):
    (waits,) = put(one, "a").values()
    fact, told = Fact("fact", b"value", 60.0), records(one, 1)
    return lambda: two.remove([waits.id], [fact], told)


def take_back(one, two):
    grant = one.store.acquire(RATE_LIMIT, 3)
    return lambda: two.store.release(RATE_LIMIT, grant, 2)


CASES: dict[str, Case] = {
    "put: one entry": on("put", [entry()]),
    "put: two entries": on("put", [entry(), entry()]),
    "put: eight entries": on("put", [entry() for _ in range(8)]),
    "put: in a lane": on("put", [entry(lane="lane", gate=ORDERED)]),
    "put: once in 60 seconds": put_beside(lambda key: OnceGuard(key, 60.0)),
    "put: unique": put_beside(UniqueGuard),
    "put: debounced": put_beside(lambda key: DebounceGuard(key, 60.0)),
    "put: debounced, one waits and is postponed": postpone,
    "claim: nothing is there": on("claim", 2),
    "claim: two are ready": on("claim", 2, prepare=lambda queue: put(queue, *"ab")),
    "claim: more are asked for than are ready": on("claim", 3, prepare=lambda queue: put(queue, *"ab")),
    "claim: one is delayed and due": on("claim", 1, prepare=due),
    "claim: from a lane, to which something came": on("claim", 2, prepare=laned),
    "claim: from a lane with a limit and a window": on("claim", 2, prepare=lambda queue: laned(queue, 3, LIMITED)),
    "claim: from a lane within another": on("claim", 2, prepare=lambda queue: laned(queue, 2, SHARED)),
    "claim: from lanes and in no lane": on("claim", 4, prepare=lambda queue: (laned(queue), put(queue, *"ab"))),
    "claim: delayed and due in a lane": on("claim", 1, prepare=lambda queue: due(queue, lane="lane", gate=ORDERED)),
    "claim: from the failed queue": lambda one, two: (failed(one), lambda: two.failed.claim(2))[1],
    "claim: within a rate limit": on("claim_within", RATE_LIMIT, 2, prepare=lambda queue: put(queue, *"abc")),
    "claim: within a rate limit, nothing is there": on("claim_within", RATE_LIMIT, 2),
    "exchange": on_held("exchange", limit=2),
    "exchange: two more are ready": exchange_for(lambda queue: put(queue, *"ab")),
    "exchange: one is delayed and due": exchange_for(due),
    "begin": on_held("begin"),
    "touch": on_held("touch", lease=90.0),
    "complete": on_held("complete"),
    "complete: and keep facts": keep_with("complete"),
    "complete: in a lane": on_held("complete", held_in_lane),
    "release": on_held("release"),
    "release: with a delay": on_held("release", said=delayed),
    "release: in a lane": on_held("release", held_in_lane),
    "fail": on_held("fail"),
    "fail: and keep facts": keep_with("fail"),
    "fail: in a lane": on_held("fail", held_in_lane),
    "fail: the failed queue has one of the same id": fail_again,
    "defer: in a lane": on_held("defer", held_in_lane, seconds=5.0),
    "reap: nothing has expired": on("reap", prepare=held),
    "reap": reap(held),
    "reap: in a lane": reap(held_in_lane),
    "reclaim": reclaim(lambda queue: put(queue, *"ab")),
    "reclaim: in a lane": reclaim(laned),
    "sweep": on("sweep", prepare=held_in_lane),
    "find": find,
    "peek: ready": on("peek", READY, prepare=ids),
    "peek: ready, behind a cursor": peek_behind,
    "peek: ready, in lanes": on("peek", READY, prepare=laned),
    "newest": on("peek", "ready", 1, last=True, prepare=ids),
    "peek_lane": on("lanes.peek", "lane", prepare=laned),
    "peek: delayed": on("peek", DELAYED, prepare=ids),
    "stats": on("stats"),
    "length": on("__len__"),
    "remove": on_waiting("remove", ids),
    "cancel": cancel,
    "remove: from a lane": on_waiting("remove", laned),
    "remove: from the failed queue": lambda one, two: (lambda gone: lambda: two.failed.remove(gone))(failed(one)),
    "reprioritise": on_waiting("reprioritise", ids, 5),
    "promote": on_waiting("promote", lambda one: [later.id for later in put(one, "later", delay=60).values()]),
    "amend": amend,
    "requeue": on_waiting("requeue", failed),
    "trim: nothing": trim(most=5, age=60.0),
    "trim: by count": trim(most=1),
    "trim: by age": trim(age=0.001),
    "flush": on("flush", prepare=laned),
    "lanes": on("lanes.page", prepare=laned),
    "lane": on("lanes.get", "lane", prepare=laned),
    "pause_lane": on("lanes.pause", "lane", "why", prepare=held_in_lane),
    "resume_lane": on(
        "lanes.resume", "lane", prepare=lambda queue: (held_in_lane(queue), queue.lanes.pause("lane", "why"))
    ),
    "history: complete": record_with("complete"),
    "history: complete what is not all held": record_with("complete", one_is_gone),
    "history: exchange": record_with("exchange", limit=2),
    "history: fail": record_with("fail"),
    "history: remember": on("history.keep", ["a", "b"], [b"one", b"two"]),
    "history: history_of": on("history.get", "b", prepare=recorded),
    "history: history": on("history.page", 2, prepare=recorded),
    "history: history, a later page": history_behind,
    "history: trim_history": on("history.trim", 1, 3600.0, prepare=recorded),
    "history: trim_history, nothing": on("history.trim", 3, 3600.0, prepare=recorded),
    "facts: now": on_store("now"),
    "facts: get": on_store("get", "there"),
    "facts: get_many": on_store("get_many", ["there", "none"]),
    "facts: put": on_store("put", "key", b"value", 60.0),
    "facts: put_many": on_store("put_many", [("a", b"1", 60.0), ("b", b"2", 60.0)]),
    "facts: add": on_store("add", "key", b"value", 60.0),
    "facts: swap": on_store("swap", "there", b"was", b"is", 60.0),
    "facts: swap_many": on_store("swap_many", [("there", b"was", b"is"), ("none", None, None)], 60.0),
    "facts: drop": on_store("drop", "there"),
    "facts: drop, if it has this value": on_store("drop", "there", b"was"),
    "facts: acquire of a rate limit": on_store("acquire", RATE_LIMIT, 3),
    "facts: give back": take_back,
    "facts: prune": on_store("prune"),
}

REMEMBERING: dict[str, Case] = {
    "put: with REMEMBER_DONE": CASES["put: two entries"],
    "put: with REMEMBER_DONE, once in 60 seconds": CASES["put: once in 60 seconds"],
    "claim: with REMEMBER_DONE": CASES["claim: two are ready"],
    "complete: with REMEMBER_DONE": CASES["complete"],
    "facts: prune, with KEEP_DONE": CASES["facts: prune"],
}


def test_the_statements_are_those_of_the_golden_file(backend):
    connection, told = connections[backend.alias], {}
    connection.ensure_connection()
    dialect = dialect_of(connection)
    text = f"-- {dialect.name}\n-- NOW is {dialect.now.replace('%%', '%')}\n"
    for number, (title, case, options) in enumerate(_all_cases()):
        name = f"golden-{number}-{backend.tag}"
        call = case(DatabaseQueue(name, backend.alias, **options), DatabaseQueue(name, backend.alias, **options))
        found = [(within, _shown(sql, dialect.now)) for within, sql in _recorded(connection, call)]
        text += f"\n\n-- {title}\n\n" + "".join(f"{line}\n" for line in _lines(title, found, told))
    path = FOLDER / f"{dialect.name}.sql"
    if os.environ.get(WRITE) == "1":
        path.write_text(text)
    diff = "".join(unified_diff(path.read_text().splitlines(True), text.splitlines(True), "golden", "now"))
    assert not diff, f"{path.name} is not what is sent; {WRITE}=1 writes it anew.\n{diff}"


def _all_cases() -> Iterator[tuple[str, Case, dict]]:
    yield from ((title, case, {}) for title, case in CASES.items())
    yield from ((title, case, {"remember_done": 60, "keep_done": 1000}) for title, case in REMEMBERING.items())


def _recorded(connection, call: Callable) -> list[tuple[bool, str]]:
    """The statements of a call, with their placeholders, and whether each was within a transaction."""
    found = []

    def record(execute, sql, params, many, context):
        if sql.startswith("BEGIN NOT ATOMIC") or not sql.startswith(CONTROL):
            found.append((connection.in_atomic_block, sql))
        return execute(sql, params, many, context)

    with connection.execute_wrapper(record):
        call()
    return found


def _shown(sql: str, now: str) -> str:
    text = sql.replace(now, "NOW").replace("%%", "%")
    for pattern, name in VARYING.items():
        text = re.sub(pattern, name, text)
    return layout(text)


def _lines(title: str, found: list[tuple[bool, str]], told: dict[str, str]) -> Iterator[str]:
    """What a case sends. A long statement that another case has already shown is not shown again."""
    for within, statements in groupby(found, key=itemgetter(0)):
        yield from ["BEGIN;"] * within
        for _, sql in statements:
            shown = told.setdefault(sql, title)
            yield f"{sql};" if shown == title or sql.count("\n") < 3 else f"-- {sql.split()[0]} as in: {shown}"
        yield from ["COMMIT;"] * within
