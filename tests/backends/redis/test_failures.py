"""A server that is full, forgets its scripts, restarts, or loses replies."""

import threading
from dataclasses import replace
from unittest import mock

import pytest
import redis
from redis.exceptions import ConnectionError

from djqueue.backends.base import DebounceGuard, OnceGuard, UniqueGuard
from djqueue.backends.redis.queue import RedisBlockingQueue, RedisQueue
from djqueue.exceptions import QueueFull
from djqueue.flow.gates import Gate
from djqueue.testing import eventually, together
from tests.backends.redis.support import broken, held, keys, work
from tests.support import servers
from tests.support.bells import waited

pytestmark = pytest.mark.server("redis")


def test_a_full_server_refuses_work_and_lets_go_of_what_it_has(private_server):
    server = private_server("redis")
    queue = RedisBlockingQueue("mail", server.url, remember_done=60)
    queue.put(work(30))
    queue.put(work(3, delay=0.001))
    queue.store.put("fact", b"1", 60)
    dead = queue.claim()[0]
    queue.fail([dead])
    client = redis.Redis(port=server.port)
    client.config_set("maxmemory", 1)
    before = keys(client), queue.stats()
    for guards in (None, [OnceGuard(f"g{number}", 60) for number in range(3)]):
        with pytest.raises(QueueFull, match="maxmemory"):
            queue.put(work(3), guards)
    for write in (lambda: queue.store.put("other", b"1"), lambda: queue.store.add("other", b"1", 60)):
        with pytest.raises(QueueFull):
            write()
    assert (keys(client), queue.stats().ready, queue.find("x")) == (before[0], before[1].ready, None)
    done, held, again, sooner, lost, bad = queue.claim(6, owner="me")
    assert len(queue.complete([done])) == len(queue.touch([held], 120)) == len(queue.release([again])) == 1
    assert len(queue.release([replace(sooner, entry=replace(sooner.entry, delay=60))])) == 1
    queue.touch([lost], 0.001)
    eventually(lambda: queue.reap().count)
    assert len(queue.touch([lost])) == 1
    assert len(queue.fail([bad])) == queue.requeue([dead.entry.id]) == queue.remove([again.entry.id]) == 1
    assert queue.store.swap("fact", b"1", b"1", 60)
    assert queue.store.drop("fact", b"1")
    assert len(queue.peek("ready", 100)) == queue.stats().ready
    while queue.complete(queue.claim(5)):
        pass
    assert (queue.stats().ready, queue.stats().leased) == (0, 2)
    client.config_set("maxmemory", 0)
    assert queue.put(work()) == [True]
    client.close()


def test_a_full_server_decides_no_guard_by_half_sets_no_facts_and_amends_and_trims(private_server):
    server = private_server("redis")
    queue = RedisQueue("mail", server.url)
    extend = DebounceGuard("waits", 60, extend=True)
    (waits,) = work()
    queue.put([waits], [extend])
    queue.store.put("fact", b"1", 60)
    queue.fail(held(queue))
    was = queue.find(waits.id), queue.store.get("waits")
    facts = [("other", b"1", 60), ("fact", b"2", None)]
    with redis.Redis(port=server.port) as client:
        client.config_set("maxmemory", 1)
        before = keys(client)
        for guard in (
            extend,
            UniqueGuard("key"),
            DebounceGuard("key", 60),
            DebounceGuard("key", 60, always_delay=True),
        ):
            with pytest.raises(QueueFull):
                queue.put(work(2), [guard, guard])
        for write in (lambda: queue.store.put_many(facts), lambda: queue.store.swap("fact", b"1", b"2", 60)):
            with pytest.raises(QueueFull):
                write()
        assert (keys(client), queue.find(waits.id), queue.store.get("waits")) == (before, *was)
        assert (queue.store.get("fact"), queue.store.get("other")) == (b"1", None)
        assert queue.amend(waits.id, b"work", b"x" * 1000)
        assert queue.find(waits.id).entry.body == b"x" * 1000
        assert queue.failed.trim(most=0) == 1
        client.config_set("maxmemory", 0)
    assert queue.put(work(2), [extend, UniqueGuard("key")]) == [False, True]


@pytest.mark.alone  # it flushes the scripts of all
def test_scripts_may_be_flushed_under_load(queue, redis_client):
    done, stop = [], threading.Event()

    def flush():
        while not stop.is_set():
            redis_client.script_flush()

    def run():
        for _ in range(100):
            done.extend(queue.complete(held(queue, 2)))

    def runs():
        try:
            together(run, run, run)
        finally:
            stop.set()

    together(flush, runs)
    assert (len(done), queue.stats().done, len(queue)) == (600, 600, 0)


def test_a_server_that_restarts_is_ridden_out(private_server):
    server = private_server("redis", *servers.Redis.DURABLE)
    queue = RedisBlockingQueue("mail", server.url)
    queue.put(work(3))
    held, *_ = queue.claim(2)
    server.kill9()
    for call in (queue.claim, queue.now, lambda: waited(queue, 5), lambda: queue.put(work())):
        with pytest.raises(ConnectionError):
            call()
    server.restart()
    assert len(queue.complete([held])) == 1
    assert (len(queue), queue.stats().leased) == (1, 1)
    assert len(queue.claim(5)) == 1


def test_a_put_whose_reply_was_lost_is_repeated_and_accepted_once(lossy_queue):
    queue, client = lossy_queue
    queue.put(work(1), [OnceGuard("used", 60)])
    guards = [None, OnceGuard("new", 60), OnceGuard("used", 60)]
    assert broken(client, lambda: queue.put(work(3), guards)) == [True, True, False]
    assert len(queue) == 3


@pytest.mark.parametrize("cls", [RedisQueue, RedisBlockingQueue])
def test_a_single_put_whose_reply_was_lost_is_repeated_and_accepted_once(lossy_queue, cls):
    _, client = lossy_queue
    queue, [one] = cls("mail", client), work()
    assert broken(client, lambda: queue.put([one])) == [True]
    assert (queue.put([one]), len(queue)) == ([False], 1)


@pytest.mark.parametrize("options", [{}, {"always_delay": True}, {"extend": True}])
def test_a_debounced_put_whose_reply_was_lost_is_repeated_and_accepted_once(lossy_queue, options):
    queue, client = lossy_queue
    guard, entries = DebounceGuard("key", 60, **options), work(4)
    expected = [True, not options, False]
    assert broken(client, lambda: queue.put(entries[:3], [guard] * 3)) == expected
    assert [queue.find(entry.id) is not None for entry in entries[:3]] == expected
    assert queue.put(entries[3:], [guard]) == [False]
    assert len(queue) == sum(expected)


@pytest.mark.parametrize("guard", [OnceGuard("key", 60), UniqueGuard("key"), DebounceGuard("key", 60)])
def test_what_ran_before_its_put_was_repeated_is_accepted_and_not_put_again(lossy_queue, guard):
    queue, client = lossy_queue
    consumer = RedisQueue("mail", client.client)
    client.meanwhile = lambda: consumer.complete(consumer.claim())
    assert broken(client, lambda: queue.put(work(), [guard])) == [True]
    assert (len(queue), queue.stats().done) == (0, 1)


def test_a_debounced_put_that_never_arrived_is_put_by_its_repetition(lossy_queue, monkeypatch):
    queue, client = lossy_queue
    run, failures = client.client.execute_command, iter([ConnectionError("unreachable")])

    def execute(*args):
        for error in failures:
            raise error
        return run(*args)

    monkeypatch.setattr(client, "execute_command", execute)
    assert queue.put(work(3), [DebounceGuard("key", 60)] * 3) == [True, True, False]


def test_facts_whose_reply_was_lost_are_not_put_again(lossy_queue):
    queue, client = lossy_queue
    client.sent = 0
    with pytest.raises(ConnectionError):
        broken(client, lambda: queue.store.put_many([("a", b"1", 60), ("b", b"2", 60)]))
    with pytest.raises(ConnectionError):
        broken(client, lambda: queue.store.swap("a", b"1", b"3", 60))
    assert (client.sent, queue.store.get("a"), queue.store.get("b")) == (2, b"3", b"2")


def test_a_settlement_whose_reply_was_lost_is_still_ours(lossy_queue):
    queue, client = lossy_queue
    one, two, three, four = held(queue, 4)
    assert broken(client, lambda: queue.complete([one])) == [one]
    assert broken(client, lambda: queue.release([two])) == [two]
    assert broken(client, lambda: queue.fail([three])) == [three]
    assert [lease.entry.id for lease in broken(client, lambda: queue.touch([four]))] == [four.entry.id]
    stats = queue.stats()
    assert (stats.done, stats.ready, stats.failed, stats.leased) == (1, 1, 1, 1)


def test_a_settlement_whose_lease_ran_out_is_not_ours_by_repetition(lossy_queue):
    queue, client = lossy_queue
    queue.put(work())
    (late,) = queue.claim(1, lease=0.001)
    eventually(lambda: queue.reap().count)
    (now,) = queue.claim()
    assert broken(client, lambda: queue.complete([late])) == []
    assert queue.complete([now]) == [now]


@pytest.mark.parametrize("gate", ["", Gate(ordered=True).written()])
def test_an_exchange_whose_reply_was_lost_is_made_good(lossy_queue, gate):
    queue, client = lossy_queue
    queue.put([entry for lane in "ab" for entry in work(2, lane=gate and lane, gate=gate)])
    done = queue.claim(2)
    held, claimed = broken(client, lambda: queue.exchange(done, 2))
    assert held == done
    assert [(lease.entry.attempts, lease.entry.lost, lease.begun) for lease in claimed] == [(1, 0, False)] * 2
    assert (queue.exchange(claimed), queue.stats().done) == ((claimed, []), 4)


def test_an_exchange_that_never_arrives_raises_and_may_be_repeated(lossy_queue, monkeypatch):
    queue, client = lossy_queue
    queue.put(work(3))
    done = queue.claim(1)
    with monkeypatch.context() as patch:
        patch.setattr(client, "execute_command", mock.Mock(side_effect=ConnectionError("unreachable")))
        with pytest.raises(ConnectionError):
            queue.exchange(done, 2)
    held, claimed = queue.exchange(done, 2)
    assert (held, len(claimed), queue.stats().leased) == (done, 2, 2)


def test_a_claim_whose_reply_was_lost_is_not_repeated(lossy_queue):
    queue, client = lossy_queue
    queue.put(work(4))
    with pytest.raises(ConnectionError):
        broken(client, lambda: queue.claim(2))
    assert queue.stats().leased == 2
