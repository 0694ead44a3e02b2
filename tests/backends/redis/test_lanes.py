"""Lanes on Redis: what memory does, what stays behind, what waiting costs."""

from dataclasses import replace

import pytest

from djqueue.backends.base import Entry, walk
from djqueue.backends.memory.queue import MemoryQueue
from djqueue.backends.redis.queue import RedisBlockingQueue
from djqueue.exceptions import QueueFull
from djqueue.flow.gates import HOLD_PAUSE, Gate
from djqueue.flow.windows import Window
from djqueue.messages.envelope import new_id
from djqueue.testing import eventually
from tests.backends.redis.support import calls, counted, left, work

pytestmark = pytest.mark.server("redis")


def of_lane(name, count=1, **gate):
    return [Entry(b"work", new_id(), lane=name, gate=Gate(**gate).written()) for _ in range(count)]


def test_when_all_is_done_no_key_of_a_lane_is_left(make, redis_client):
    queue = make()
    outer = Gate(concurrency=5, windows=(Window(1000, 0.001),))
    entries = [
        one for n in range(30) for one in of_lane(f"{n}", 4, ordered=True, max_run=3, parent="o", parent_gate=outer)
    ]
    queue.put([*entries, *work(10)])
    queue.lanes.pause("empty", "by hand")
    queue.fail(queue.claim())
    done = 0
    while done < len(entries) + 9:
        queue.reap()
        done += len(queue.complete(queue.claim(7)))
    assert [one.name for one in queue.lanes.page()] in (["empty"], ["empty", "o"])
    queue.lanes.resume("empty")
    queue.failed.flush()
    eventually(lambda: not queue.claim() and left(redis_client) == {"meta"})


def test_what_was_due_while_lanes_were_taken_by_thousands_is_all_handed_out(make):
    queue, seen = make(), set()
    queue.put([one for n in range(3) for one in of_lane(f"{n}", 1500, ordered=True, max_run=5000)])
    while claimed := queue.claim(1000):
        assert len({one.run for one in claimed}) <= 3
        seen.update(one.entry.id for one in queue.complete(claimed))
    assert len(seen) == 4500


@pytest.mark.alone  # the server counts the commands of all
@pytest.mark.parametrize(
    "gate", [{"ordered": True}, {"parent": "o", "parent_gate": Gate(windows=(Window(1, 3600.0),))}]
)
def test_what_waits_in_lanes_costs_an_idle_claim_nothing(make, redis_client, gate):
    queue, counts = make(), []
    for first, past in ((0, 10), (10, 3000)):
        queue.put([one for n in range(first, past) for one in of_lane(f"lane {n}", 2, **gate)])
        while queue.claim(1000):
            pass
        counts.append(counted(redis_client, lambda: queue.claim(32)))
    assert counts[0] == counts[1]
    assert sum(counts[0].values()) < 15


@pytest.mark.alone  # the server counts the commands of all
def test_what_is_in_no_lane_pays_one_look_at_the_lanes(make, redis_client):
    queue = make()
    queue.put(work(10))
    redis_client.config_resetstat()
    queue.complete(queue.claim(10))
    counted = calls(redis_client, "exists", "zrange", "zpopmin", "zrangebylex", "zrangebyscore")
    assert counted == {"exists": 2, "zrange": 1, "zpopmin": 0, "zrangebylex": 0, "zrangebyscore": 1}


def test_on_a_full_server_lanes_go_on(private_server):
    server = private_server("redis")
    queue = RedisBlockingQueue("mail", server.url)
    queue.put([one for n in range(5) for one in of_lane(f"{n}", 4, ordered=True)])
    client = queue._link.client
    client.config_set("maxmemory", 1)
    with pytest.raises(QueueFull):
        queue.put(of_lane("new"))
    first, second, third, *_ = queue.claim(5)
    assert len(queue.complete([first])) == len(queue.fail([second])) == 1
    assert len(queue.release([replace(third, entry=replace(third.entry, hold=HOLD_PAUSE))])) == 1
    queue.lanes.pause("0", "by hand")
    assert queue.lanes.resume("0")
    assert queue.reprioritise([one.entry.id for one in queue.peek("ready", 3)], 9) == 3
    assert queue.requeue([second.entry.id]) == 1
    assert queue.claim(5)
    queue.flush()
    assert len(queue) == 0
    client.config_set("maxmemory", 0)


def test_on_a_full_server_a_lane_opens_by_itself_though_its_outer_lane_was_forgotten(private_server):
    queue = RedisBlockingQueue("mail", private_server("redis").url)
    gate = {"windows": (Window(1, 0.2),), "parent": "o", "parent_gate": Gate(concurrency=5)}
    queue.put(of_lane("a", 2, **gate))
    queue.complete(queue.claim(5))
    assert [one.name for one in queue.lanes.page()] == ["a"]
    queue._link.client.config_set("maxmemory", 1)
    assert len(eventually(lambda: queue.claim(5))) == 1
    queue._link.client.config_set("maxmemory", 0)


@pytest.mark.alone  # the server counts the changes of all
def test_an_idle_claim_writes_nothing_whatever_left_last(make, redis_client):
    queue = make()
    queue.put(of_lane("a", ordered=True))
    queue.complete(queue.claim(5))
    changes = redis_client.info("persistence")["rdb_changes_since_last_save"]
    for _ in range(20):
        assert queue.claim(8) == []
    assert redis_client.info("persistence")["rdb_changes_since_last_save"] == changes


@pytest.mark.alone  # the server counts the commands of all
def test_a_lane_that_goes_first_again_and_again_does_not_have_the_others_read_anew(make, redis_client):
    queue = make()
    queue.put([one for number in range(60) for one in of_lane(f"{number}", ordered=True)])
    queue.put([replace(one, priority=1) for one in of_lane("hot", 40, concurrency=99)])
    redis_client.config_resetstat()
    assert {one.entry.lane for one in queue.claim(40)} == {"hot"}
    assert calls(redis_client, "zrange")["zrange"] < 10


@pytest.mark.parametrize("limit", [2, 3, 5, 20])
def test_within_one_claim_too_a_lane_of_higher_priority_goes_first_again_and_equals_take_turns(make, limit):
    queue, seen = make(), []
    queue.put(of_lane("low", 2, concurrency=9))
    for name in ("high", "other"):
        queue.put([replace(one, priority=1) for one in of_lane(name, 2, concurrency=9)])
    while claimed := queue.claim(limit):
        seen += [one.entry.lane for one in claimed]
    assert seen == ["high", "other", "high", "other", "low", "low"]


@pytest.mark.parametrize("make_queue", [lambda make: make(lifo=True), lambda _: MemoryQueue("m", lifo=True)])
def test_with_lifo_of_equals_the_last_leaves_first(make, make_queue):
    queue = make_queue(make)
    entries = [Entry(b"", name, priority) for name, priority in [("a", 0), ("b", 5), ("c", 5), ("d", 0), ("e", -1)]]
    queue.put(entries)
    queue.put([Entry(b"", name, lane="l", gate=Gate(ordered=True).written()) for name in "xy"])
    assert [one.entry.id for one in queue.peek("ready")] == [*"cbdaexy"]
    pages = list(walk(queue, "ready"))
    assert queue.peek("ready", 2, pages[0].cursor)[0].entry.id == "b"
    first = queue.claim(2)
    assert [one.entry.id for one in first] == ["c", "b"]
    queue.release(first[:1])
    queue.fail(first[1:])
    queue.complete(queue.claim(1))
    assert queue.remove("xy") == 2
    assert queue.trim(most=3, limit=1) == 0
    assert queue.trim(most=2) == 1  # the oldest
    assert [one.entry.id for one in queue.peek("ready")] == [*"de"]
    assert queue.remove(["e"]) == 1
    assert (queue.requeue(["b"]), queue.claim()[0].entry.id) == (1, "b")
