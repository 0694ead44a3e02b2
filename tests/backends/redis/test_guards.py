"""Guards, decided by the server: their marks, their price, and what is moved for them."""

from dataclasses import replace
from math import inf

import pytest

from djqueue.backends.base import DebounceGuard, Entry, OnceGuard, UniqueGuard
from djqueue.backends.guards import DedupMark, decide
from djqueue.backends.redis.protocol import FAR
from djqueue.backends.redis.queue import RedisBlockingQueue
from djqueue.messages.envelope import new_id
from djqueue.testing import eventually
from tests.backends.redis.support import calls, counted, keys, whole_life, work
from tests.support import backends

pytestmark = pytest.mark.server("redis")

GUARDS = [
    OnceGuard("key", 1.5),
    UniqueGuard("key"),
    UniqueGuard("key", running=False),
    DebounceGuard("key", 1.005),
    DebounceGuard("key", 7200),
    DebounceGuard("key", 60, always_delay=True),
    DebounceGuard("key", 60, extend=True, max_wait=61),
]
MARK = "{djqueue:mail}:fact:key"


def states(queue, entries):
    return [queue.find(entry.id).state for entry in entries]


@pytest.mark.parametrize("guard", GUARDS)
@pytest.mark.parametrize("fields", [{}, {"delay": 30}, {"run_at": 4e9}])
def test_marks_are_those_of_the_rules_in_form_and_in_time(queue, redis_client, guard, fields):
    """Whatever moment the server took, it is told by what it stored."""
    mark = None
    for entry in work(4, **fields):
        was = redis_client.get(MARK)
        state = mark and queue.find(mark.id).state
        began, [accepted], ended = queue.now(), queue.put([entry], [guard]), queue.now()
        decision = decide(guard, entry, mark, state, queue.find(entry.id).entry.created if accepted else ended)
        assert decision.accept is accepted
        mark, stored = DedupMark.read(redis_client.get(MARK)), redis_client.get(MARK)
        assert stored == mark.written()
        if decision.mark is None:
            assert stored == was
            continue
        assert mark._replace(at=0, first=0) == decision.mark._replace(at=0, first=0)
        assert decision.mark.at - (ended - began) * 1e6 - 1 <= mark.at <= decision.mark.at + 1
        assert decision.ttl - 5 < redis_client.pttl(MARK) / 1000 <= decision.ttl + 0.005


@pytest.mark.parametrize("id", ["plain", "5 6 1 +other", " +", "two\nlines +x", "žluťoučký 🐎", "\ud800 alone"])
@pytest.mark.parametrize("guard", GUARDS)
def test_any_id_is_told_from_its_mark(queue, redis_client, guard, id):
    assert queue.put([Entry(b"work", id)], [guard]) == [True]
    assert DedupMark.read(redis_client.get(MARK)).id == id
    assert queue.put(work(2), [guard, guard])[1] is False


def test_every_mark_ends(queue, redis_client):
    spans = [
        OnceGuard("a", 60),
        UniqueGuard("b"),
        DebounceGuard("c", 60),
        DebounceGuard("d", 60, always_delay=True),
        OnceGuard("e", inf),
    ]
    queue.put(work(8), [*spans, DebounceGuard("c", 60), UniqueGuard("b"), DebounceGuard("f", inf, extend=True)])
    queue.put(work(3, delay=1e12), [UniqueGuard("g"), DebounceGuard("h", 1e-6), OnceGuard("i", 1e-9)])
    assert all(redis_client.pttl(key) > 0 for key in redis_client.keys("*:fact:[a-g]"))
    eventually(lambda: not redis_client.keys("*:fact:[hi]"))
    assert len(redis_client.keys("*:fact:*")) == 7


def test_a_mark_is_kept_no_shorter_than_its_window(queue, redis_client):
    """Redis ends it at a whole millisecond; the next entry must not come before the window is over."""
    moments = []
    for _ in range(100):
        queue.put([entry := work()[0]], [DebounceGuard("key", 0.01)])
        if record := queue.find(entry.id):
            moments.append(record.at)
        queue.complete(queue.claim(5))
    assert len(moments) > 1
    assert min(later - earlier for earlier, later in zip(moments, moments[1:], strict=False)) >= 0.01 - 2e-6


def test_a_window_longer_than_all_time_is_kept(queue):
    entries = work(3)
    assert queue.put(entries, [DebounceGuard("key", inf)] * 3) == [True, True, False]
    assert states(queue, entries[:2]) == ["ready", "delayed"]
    assert DedupMark.read(queue.store.get("key")).at == FAR
    assert queue.put(work(2), [DebounceGuard("other", 1e15, extend=True, max_wait=inf)] * 2) == [True, False]
    assert queue.stats().delayed == 2


def test_what_is_postponed_moves_its_place(queue, redis_client):
    """It comes behind what fell due before its new moment, and nothing of it stays at the old one."""
    first, second = work(1)[0], work(1, delay=0.4)[0]
    assert queue.put([first, second], [DebounceGuard("key", 0.3, extend=True), None]) == [True, True]
    assert queue.put(work(), [DebounceGuard("key", 0.5, extend=True)]) == [False]
    due = queue.find(first.id)
    assert due.entry.run_at == due.at
    eventually(lambda: queue.stats().delayed == 0)
    leases = queue.claim(2)
    assert [lease.entry.id for lease in leases] == [second.id, first.id]
    assert len(queue.complete(leases)) == 2
    assert redis_client.exists(*[f"{{djqueue:mail}}:{part}" for part in ("body", "env", "ready", "delayed")]) == 0


@pytest.mark.parametrize("verb", ["remove", "flush", "claim"])
def test_what_was_postponed_can_be_taken_out(queue, redis_client, verb):
    guards = [DebounceGuard("key", 0.01, extend=True), DebounceGuard("key", 0.03, extend=True)]
    (entry, _) = entries = work(2)
    assert queue.put(entries, guards) == [True, False]
    if verb == "remove":
        assert queue.remove([entry.id]) == 1
    elif verb == "flush":
        queue.flush()
    else:
        eventually(lambda: queue.complete(queue.claim()))
    assert keys(redis_client) == {"{djqueue:mail}:meta", MARK}


def test_a_guard_of_a_portion_is_its_own(queue):
    """A put of more than a thousand is several calls, each with the keys of its own guards."""
    entries = work(2300)
    guards = [UniqueGuard(f"key {number % 1150}") if number % 2 else None for number in range(2300)]
    accepted = queue.put(entries, guards)
    assert sum(accepted) == len(queue) == 1150 + 575


# ---- the price


PUT = {"evalsha": 1, "time": 1, "hincrby": 1, "xlen": 1}
STORED = {"hset": 2, "zadd": 1}


@pytest.fixture
def loaded_queue(queue):
    """The server knows the scripts: those of whole_life, and those of puts without guards."""
    other = RedisBlockingQueue("warm", backends.redis_connection())
    other.put(work())
    other.put(work(2))
    other.flush()
    whole_life(other)
    return queue


@pytest.mark.alone  # the server counts the commands of all
def test_a_put_without_guards_asks_for_no_mark(loaded_queue, redis_client):
    checks = {"hlen": 1, "zcard": 2, "llen": 1}
    assert counted(redis_client, lambda: loaded_queue.put(work())) == PUT | STORED | checks | {"hmget": 1}
    assert counted(redis_client, lambda: loaded_queue.put(work(delay=60))) == PUT | STORED | checks | {"hmget": 1}


@pytest.mark.alone  # the server counts the commands of all
def test_a_debounced_put_is_one_call_of_few_commands(loaded_queue, redis_client):
    guard, checks = DebounceGuard("key", 60), {"hlen": 1, "zcard": 3, "llen": 1, "strlen": 1}
    for _ in ("at once", "scheduled"):
        assert counted(redis_client, lambda: loaded_queue.put(work(), [guard])) == PUT | STORED | checks | {
            "hexists": 1,
            "get": 1,
            "set": 1,
        }
    refused = PUT | checks | {"hexists": 2, "get": 1, "zscore": 1}
    assert counted(redis_client, lambda: loaded_queue.put(work(), [guard])) == refused
    postponed = refused | {"set": 1, "hget": 1, "zrem": 1, "hset": 1, "zadd": 1}
    assert counted(redis_client, lambda: loaded_queue.put(work(), [replace(guard, extend=True)])) == postponed


@pytest.mark.alone  # the server counts the commands of all
def test_a_hundred_guards_of_all_kinds_are_one_round_trip(loaded_queue, redis_client):
    kinds = [lambda key: OnceGuard(key, 60), UniqueGuard, lambda key: DebounceGuard(key, 60, extend=True)]
    guards = [kinds[number % 3](new_id()) for number in range(100)]
    redis_client.config_resetstat()
    assert loaded_queue.put(work(100), guards) == [True] * 100
    assert calls(redis_client, "evalsha", "eval") == {"evalsha": 1, "eval": 0}
