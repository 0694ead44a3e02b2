"""What is carried, in which order, and at what price."""

from dataclasses import replace

import pytest

from djqueue.backends.base import Entry, OnceGuard
from djqueue.backends.redis.queue import RedisBlockingQueue
from djqueue.messages.envelope import new_id
from djqueue.testing import eventually
from tests.backends.redis.support import calls, counted, held, whole_life, work
from tests.support import backends

pytestmark = pytest.mark.server("redis")


TEXTS = ["", "plain", "two\nlines", "1 2 3", "\x00\x1f", "žluťoučký 🐎", "\ud800 alone", '["json"]', "%s {}"]


@pytest.mark.parametrize("words", TEXTS)
def test_to19_bodies_are_any_bytes_and_texts_any_text(queue, words):
    sent = Entry(bytes(range(256)), f"id {words}", -7, 5.5, 0.0, f"lane{words}", 3, 2, 1, 0.0, words, words * 2)
    queue.put([sent])
    (lease,) = queue.claim(1, owner=f"host {words}")
    assert lease.entry == replace(sent, attempts=4, created=lease.entry.created)
    assert queue.find(sent.id).owner == f"host {words}"
    assert queue.peek("leased")[0].entry == lease.entry
    again = replace(lease.entry, errors="n" + words, priority=9)
    queue.release([replace(lease, entry=again)])
    assert queue.find(sent.id).entry == again
    queue.fail(queue.claim())
    assert queue.failed.find(sent.id).entry == replace(again, attempts=5)


def test_moments_too_far_to_count_are_kept_delayed(queue):
    queue.put([*work(delay=1e12), *work(run_at=1e15)])
    assert queue.claim(5) == []
    assert queue.stats().delayed == 2


@pytest.mark.alone  # the server counts the commands of all
def test_a_large_put_goes_in_portions_and_keeps_its_order(queue, redis_client):
    queue.remove([entry.id for entry in work() if queue.put([entry])])
    redis_client.config_resetstat()
    entries = [Entry(str(number).encode(), new_id()) for number in range(2500)]
    assert queue.put(entries) == [True] * 2500
    assert calls(redis_client, "evalsha") == {"evalsha": 3}
    claimed = [*queue.claim(2000), *queue.claim(2000), *queue.claim(2000)]
    assert [lease.entry.body for lease in claimed] == [entry.body for entry in entries]
    assert len(queue.touch(claimed)) == len(queue.release(claimed)) == 2500
    queue.flush()
    assert len(queue) == 0


def test_large_bodies_go_in_portions(queue):
    entries = [Entry(b"x" * 3_000_000, new_id()) for _ in range(5)]
    assert queue.put(entries) == [True] * 5
    assert [len(lease.entry.body) for lease in queue.claim(5)] == [3_000_000] * 5


def test_more_due_entries_than_one_claim_promotes_all_come(queue):
    queue.put(work(200, delay=0.001))
    eventually(lambda: queue.stats().delayed == 0)
    assert queue.stats().ready == 200
    taken = 0
    while claimed := queue.claim(3):
        taken += len(claimed)
    assert taken == 200


def test_trimming_goes_by_age_whatever_the_priorities(queue):
    names = {}
    for number, priority in enumerate((5, -3, 0, 5, 9, -3)):
        (entry,) = work(run_at=1000.0 + number, priority=priority)
        queue.put([entry])
        names[entry.id] = number
    assert queue.trim(most=5) == 1
    assert queue.trim(age=queue.now() - 1003.5, limit=1) == 1
    assert sorted(names[record.entry.id] for record in queue.peek("ready")) == [2, 3, 4, 5]
    assert queue.trim(age=queue.now() - 1003.5) == 2
    assert queue.trim(most=4, age=queue.now()) == 0


def test_more_are_trimmed_than_one_call_carries(queue):
    queue.put(work(2500))
    while leases := queue.claim(1000):
        queue.fail(leases)
    order = [record.entry.id for record in queue.failed.peek("ready", 1000)]
    assert queue.failed.trim(most=2499, limit=0) == 0
    assert queue.failed.trim(most=100, limit=2300) == 2300
    assert queue.failed.peek("ready", 1)[0].entry.id not in order
    assert queue.failed.trim(most=100, limit=2300) == 100
    assert len(queue.failed) == 100


def test_what_is_requeued_in_one_call_comes_in_its_order(queue):
    leases = held(queue, 50, priority=3)[::-1]
    ids = [lease.entry.id for lease in queue.fail(leases)[::3]]
    assert queue.requeue(ids) == len(ids)
    assert [lease.entry.id for lease in queue.claim(50)] == ids


def test_a_dead_one_that_is_due_later_goes_back_to_its_place(queue):
    queue.put([*work(2, priority=1), *work(priority=5)])
    queue.fail(queue.claim(3)[::-1])
    order = [record.entry.id for record in queue.failed.peek("ready")]
    leases = queue.failed.claim(3)
    queue.failed.release([replace(lease, entry=replace(lease.entry, delay=0.01)) for lease in leases[1:]])
    queue.failed.release(leases[:1])
    eventually(lambda: queue.failed.stats().ready == 3)
    assert [record.entry.id for record in queue.failed.peek("ready")] == order
    queue.failed.touch(queue.failed.claim(3), 0.001)
    eventually(lambda: queue.failed.reap() and queue.failed.stats().ready == 3)
    assert [lease.entry.id for lease in queue.failed.claim(3)] == order


@pytest.mark.parametrize("state", ["ready", "delayed", "leased"])
def test_a_cursor_goes_on_where_its_record_has_gone(queue, state):
    entries = work(40, delay=60 if state == "delayed" else 0)
    queue.put(entries)
    leases = queue.claim(40) if state == "leased" else []
    order = [record.entry.id for record in queue.peek(state, 50)]
    assert sorted(order) == sorted(entry.id for entry in entries)
    seen, page = [], queue.peek(state, 7)
    while page:
        seen += [record.entry.id for record in page]
        queue.complete([lease for lease in leases if lease.entry.id == seen[-1]])
        queue.remove([seen[-1]])
        page = queue.peek(state, 7, page[-1].cursor)
    assert seen == order


@pytest.mark.alone  # the server counts the commands of all
def test_to22_a_hundred_items_are_one_round_trip(queue, redis_client):
    whole_life(RedisBlockingQueue("warm", backends.redis_connection()))
    redis_client.config_resetstat()
    queue.put(work(100), [OnceGuard(str(number), 60) for number in range(100)])
    assert len(queue.complete(queue.claim(100))) == 100
    assert len(queue.release(queue.touch(held(queue, 100)))) == 100
    assert len(queue.fail(queue.claim(100))) == 100
    assert calls(redis_client, "evalsha", "eval") == {"evalsha": 9, "eval": 0}


@pytest.mark.alone  # the server counts the commands of all
def test_an_idle_trim_looks_at_one_of_the_dead_however_many_there_are(queue, redis_client):
    for priority in (0, 5):
        queue.put(work(1000, priority=priority))
        assert len(queue.fail(queue.claim(1000))) == 1000
    queue.failed.trim(most=2000)
    trimmed = []
    commands = counted(redis_client, lambda: trimmed.append(queue.failed.trim(most=2000, age=60)))
    assert (trimmed, commands) == ([0], {"evalsha": 1, "time": 1, "zcard": 1, "zrangebyscore": 3})


@pytest.mark.alone  # the server counts the commands of all
def test_a_hundred_facts_are_one_round_trip(queue, redis_client):
    queue.store.put_many([("key", b"1", None)])
    redis_client.config_resetstat()
    queue.store.put_many([(str(number), b"1", 60) for number in range(100)])
    assert calls(redis_client, "evalsha", "set") == {"evalsha": 1, "set": 100}


def test_many_or_large_facts_go_in_portions(queue):
    queue.store.put_many([(str(number), b"%d" % number, None) for number in range(2500)])
    assert [queue.store.get(str(number)) for number in (0, 999, 1000, 2499)] == [b"0", b"999", b"1000", b"2499"]
    queue.store.put_many([(f"large {number}", b"x" * 3_000_000, 60) for number in range(5)])
    assert [len(queue.store.get(f"large {number}")) for number in range(5)] == [3_000_000] * 5


@pytest.mark.alone  # the server counts the commands of all
def test_to12_an_idle_reap_looks_at_one_lease_however_many_there_are(queue, redis_client):
    for _ in range(10):
        assert len(held(queue, 1000)) == 1000
    queue.reap()
    commands = counted(redis_client, queue.reap)
    reaped = queue.reap()
    assert (reaped.count, 0 < reaped.next <= 60) == (0, True)
    assert commands == {"evalsha": 1, "time": 1, "zrangebyscore": 1, "zrange": 1}
