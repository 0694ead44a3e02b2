"""What somebody, or an older version, wrote into the keys of a queue costs what it is of, and nothing else."""

import json
import logging
import re
import shlex
from contextlib import closing, contextmanager, suppress
from dataclasses import replace

import pytest
from redis.exceptions import ResponseError

from djqueue import queues
from djqueue.backends.base import Entry, Fact, OnceGuard, RateLimit, UniqueGuard, walk
from djqueue.backends.redis import protocol
from djqueue.backends.redis.connection import RedisKeyOfWrongType
from djqueue.backends.redis.queue import RedisBlockingQueue
from djqueue.backends.stores import KEY
from djqueue.exceptions import RateUnreadable
from djqueue.flow.gates import Gate
from djqueue.flow.windows import Window
from djqueue.messages.envelope import new_id
from djqueue.messages.failures import errors_of
from djqueue.testing import eventually
from djqueue.testing.contract.history import records
from djqueue.testing.contract.steps import until_now_is
from tests.backends.redis.support import held, work
from tests.support.backends import redis_connection
from tests.support.bells import waited
from tests.support.consumer import serving

pytestmark = pytest.mark.server("redis")

TAG = "{djqueue:mail}:"
GARBAGE = [
    "garbage",
    "",
    "2|new-format|x",
    "1 2 3 4 5 6 7 8 9\n",
    "0" * 28 + " 1 1 0 0 0 0 0 0",
    "0" * 28 + " due 1 0 0 0 0 0 0\n",
    "0" * 28 + " 1 1 first 0 0 0 0 0\n",
    "0" * 28 + " 1 1 0 0 0 0 0 0",
    "0" * 28 + " 1 1 0 0 0 none",
    "0" * 28 + f" {'9' * 400} 1 0 0 0 0 0 0\n",
    "\x00\xff",
    "9" * 5000,
]
ORDERED = Gate(ordered=True, max_run=3).written()


def drain(queue):
    """The ids of all that can be claimed, completed."""
    found = []
    while leases := queue.claim(5):
        found += [lease.entry.id for lease in leases]
        assert len(queue.complete(leases)) == len(leases)
    return found


def spoil(client, id, envelope):
    client.hset(f"{TAG}env", id, envelope)


@pytest.mark.parametrize("envelope", GARBAGE)
def test_an_envelope_that_cannot_be_read_costs_its_message_alone(queue, redis_client, caplog, envelope):
    entries = work(20)
    queue.put(entries)
    bad = entries[7]
    spoil(redis_client, bad.id, envelope)
    assert drain(queue) + drain(queue) == [entry.id for entry in entries if entry is not bad]
    (record,) = queue.failed.peek("ready")
    (note,) = errors_of(record.entry.errors)
    assert (record.entry.id, record.entry.body, queue.stats().failed) == (bad.id, b"work", 1)
    assert note["reason"].startswith("its envelope cannot be read")
    assert envelope[:20].strip("\x00\xff\n") in note["reason"]
    assert any(bad.id in one.getMessage() for one in caplog.records if one.levelno == logging.ERROR)
    assert queue.find(bad.id) is None
    assert queue.failed.find(bad.id).entry == record.entry
    assert queue.requeue([bad.id]) == 1
    assert drain(queue) == [bad.id]


@pytest.mark.parametrize("gate", ["", ORDERED])
@pytest.mark.parametrize("part", ["env", "body"])
def test_what_has_lost_half_of_itself_is_told_and_put_aside(queue, redis_client, caplog, gate, part):
    entries = [replace(entry, lane="a" if gate else "", gate=gate) for entry in work(6)]
    queue.put(entries)
    redis_client.hdel(f"{TAG}{part}", entries[2].id)
    found = drain(queue) + drain(queue)
    assert found == [entry.id for entry in entries if entry is not entries[2]]
    assert [one.entry.id for one in queue.failed.peek("ready")] == [entries[2].id]
    assert (queue.stats().leased, len(queue), queue.lanes.get("a")) == (0, 0, None)
    assert queue.find(entries[2].id) is None
    assert part == "env" or "had no body" in caplog.text


@pytest.mark.parametrize("gate", ["", ORDERED])
def test_garbage_among_the_delayed_and_in_lanes_holds_up_nobody(queue, redis_client, gate):
    entries = [replace(one, lane="a" if gate else "", gate=gate) for one in [*work(5), *work(5, delay=0.001)]]
    queue.put(entries)
    eventually(lambda: queue.stats().delayed == 0)
    for bad in (entries[1], entries[6]):
        spoil(redis_client, bad.id, "garbage")
    found = drain(queue) + drain(queue)
    assert sorted(found) == sorted(one.id for one in entries if one not in (entries[1], entries[6]))
    assert {one.entry.id for one in queue.failed.peek("ready")} == {entries[1].id, entries[6].id}
    assert (queue.stats().leased, len(queue)) == (0, 0)


def test_a_lease_that_runs_out_over_garbage_costs_its_message_alone(queue, redis_client):
    entries = work(6)
    queue.put(entries)
    queue.claim(6, lease=0.001)
    spoil(redis_client, entries[2].id, "garbage")
    eventually(lambda: queue.reap().count == 0 and queue.stats().leased == 0)
    assert drain(queue) == [entry.id for entry in entries if entry is not entries[2]]
    assert [one.entry.id for one in queue.failed.peek("ready")] == [entries[2].id]


@pytest.mark.parametrize("verb", ["complete", "release", "fail", "touch", "begin"])
@pytest.mark.parametrize("reaped", [False, True])
def test_what_its_holder_says_counts_whatever_became_of_the_envelope(queue, redis_client, verb, reaped):
    queue.put(work(3))
    leases = queue.claim(3, lease=0.001 if reaped else 60)
    if reaped:
        eventually(lambda: queue.reap().count)
    spoil(redis_client, leases[1].entry.id, "garbage")
    assert len(getattr(queue, verb)(leases)) == (0 if reaped and verb == "begin" else 3)
    stats = queue.stats()
    told = {"complete": stats.done, "release": stats.ready, "fail": stats.failed}
    assert told.get(verb, 3) == 3
    if verb in ("release", "fail") and not reaped:
        place = queue if verb == "release" else queue.failed
        assert {one.entry.errors for one in place.peek("ready")} == {""}


@pytest.mark.parametrize("field", ["done", "seq", "turn", "lane"])
def test_counters_that_are_no_numbers_begin_anew(queue, redis_client, field):
    queue.put([Entry(b"", new_id(), lane="first", gate=ORDERED)])
    redis_client.hset(f"{TAG}meta", field, "garbage")
    assert queue.put([*work(2), *[Entry(b"", new_id(), lane="a", gate=ORDERED)] * 1]) == [True] * 3
    assert len(drain(queue)) == 4
    assert queue.stats().done == (1 if field == "done" else 4) or field == "done"


def test_lanes_go_on_if_their_turns_have_no_more_room(queue, redis_client):
    entries = [Entry(b"", new_id(), lane=lane, gate=ORDERED) for lane in "ab" * 4]
    queue.put(entries[:4])
    redis_client.hset(f"{TAG}meta", "turn", 2**63 - 1)
    queue.put(entries[4:])
    assert len(drain(queue)) == 8


@pytest.mark.parametrize("part", ["lanes_ready", "out"])
def test_a_sweep_lets_lanes_go_on_whose_line_or_count_was_deleted(queue, redis_client, part):
    queue.put([Entry(b"", new_id(), lane=lane, gate=ORDERED) for lane in "abc" * 2])
    leases = queue.claim(1)
    assert queue.sweep() == 0
    redis_client.delete(TAG + part)
    if part == "out":
        assert queue.complete(leases) == leases
    assert queue.sweep() > 0
    drain(queue)
    queue.complete(leases)
    assert (queue.stats().done, queue.sweep()) == (6, 0)


@pytest.mark.parametrize("part", ["lanes", "out", "ready", "lanes_scheduled"])
def test_a_record_of_a_lane_that_cannot_be_read_loses_nothing(make, redis_client, part):
    queue = make(cls=RedisBlockingQueue)
    entries = [Entry(b"", new_id(), lane=lane, gate=ORDERED) for lane in "ab" * 4]
    queue.put(entries)
    held = queue.claim(1)
    if part in ("lanes", "out"):
        for name in redis_client.hkeys(TAG + part):
            redis_client.hset(TAG + part, name, "garbage")
    else:
        redis_client.zadd(TAG + part, {"garbage": -1e9, "0" * 16 + "nobody": 1})
    assert len(queue.complete(held)) == len(held)
    queue.sweep()
    assert sorted(drain(queue) + [one.entry.id for one in held]) == sorted(entry.id for entry in entries)
    assert (queue.stats().ready, queue.stats().leased) == (0, 0)


@pytest.mark.parametrize("value", ["garbage", ""])
def test_operators_see_and_remove_what_cannot_be_read(queue, redis_client, value):
    entries = work(4)
    queue.put(entries)
    spoil(redis_client, entries[1].id, value)
    assert queue.find(entries[1].id).entry.body == b"work"
    assert {one.entry.id for one in queue.peek("ready")} == {entry.id for entry in entries}
    assert queue.stats().ready == 4
    assert queue.reprioritise([entry.id for entry in entries], 5) == 3
    assert queue.trim(most=100) == 0
    assert queue.remove([entries[1].id]) == 1
    assert queue.find(entries[1].id) is None
    assert set(drain(queue)) == {entry.id for entry in entries} - {entries[1].id}
    assert queue.stats().failed == 0


def test_garbage_in_a_failed_queue_stays_there(queue, redis_client):
    ids = [lease.entry.id for lease in queue.fail(held(queue, 3))]
    redis_client.hset(f"{TAG}failed:env", ids[1], "garbage")
    assert {lease.entry.id for lease in queue.failed.claim(3)} == {ids[0], ids[2]}
    assert queue.failed.find(ids[1]).entry.body == b"work"
    assert queue.requeue([ids[1]]) == 1


@contextmanager
def occupied(client, part):
    """A key of the queue has a wrong type, and whoever did that puts the right one back."""
    key, kept = f"{TAG}{part}", f"{TAG}kept"
    with suppress(ResponseError):  # there is none
        client.rename(key, kept)
    client.set(key, "x") if protocol.type_of(key.encode()) != "string" else client.rpush(key, "x")
    yield key
    assert not client.exists(key), "it was moved aside"
    if client.exists(kept):
        client.rename(kept, key)


def move_aside(client, error):
    """Do what the error says, once for each key that it names."""
    commands = [shlex.split(line) for line in re.findall(r"redis-cli (.*?)(?:; Redis|$)", str(error))]
    assert commands and all(words[:3] == ["-n", words[1], "RENAMENX"] for words in commands)
    assert [client.execute_command(*words[2:]) for words in commands] == [True] * len(commands)


class Calls:
    """Calls of a queue some of which a key stops: what came of those that it did not stop."""

    lane = {"lane": "a", "gate": ORDERED}
    inner = {"lane": "b", "gate": Gate(concurrency=2, parent="all", parent_gate=Gate(concurrency=9)).written()}

    def __init__(self, queue, forgetful):
        self.forgetful = forgetful  # the same queue, with an inbox
        self.queue, self.errors, self.put_ids, self.done, self.failed = queue, [], [], [], []
        self.put([*work(6), *work(3, **self.lane), *work(3, **self.inner), *work(2, delay=0.001)])
        self.held = list(queue.claim(10))
        self.each, self.record = iter(list(self.held)), records(queue, 1)

    def ask(self, verb, *args):
        try:
            return verb(*args)
        except RedisKeyOfWrongType as error:
            self.errors.append(error)
            return None

    def put(self, entries, guards=None):
        if accepted := self.ask(self.queue.put, entries, guards):
            assert accepted == [True] * len(entries)
            self.put_ids += [entry.id for entry in entries]

    def put_new(self, entry):
        if self.ask(self.forgetful.put_new, entry):
            self.put_ids.append(entry.id)

    def settle(self, verb, into, *args):
        """Settle the next lease."""
        ended = self.ask(verb, [next(self.each)], *args) or []
        into += [lease.entry.id for lease in ended]
        self.held = [lease for lease in self.held if lease not in ended]

    def exchange(self, leases):
        ended, claimed = self.queue.exchange(leases, 2)
        self.held += claimed
        return ended

    def make_all(self):
        queue = self.queue
        self.put(work())
        self.put_new(*work())
        self.put([*work(2), *work(1, delay=0.001)])
        self.put([*work(1, **self.lane), *work(2, **self.inner)])
        self.put(work(2), [OnceGuard("key", 60), UniqueGuard("other")])
        self.held += self.ask(queue.claim, 2) or []
        self.settle(self.exchange, self.done)
        self.settle(self.exchange, self.done)
        self.settle(queue.complete, self.done, [Fact("result:x", b"value", 60)], self.record)
        self.settle(queue.fail, self.failed, [Fact("result:y", b"value", 60)], self.record)
        self.settle(queue.release, [])
        self.ask(queue.touch, self.held)
        for verb in (queue.reap, queue.sweep, queue.failed.sweep, queue.stats, queue.lanes.page, queue.history.page):
            self.ask(verb)
        self.ask(waited, queue, 0.01)
        self.ask(queue.store.trim_results, 10)

    def is_drained(self):
        self.queue.reap()
        self.queue.sweep()
        self.done += drain(self.queue)
        return len(set(self.done)) + self.queue.stats().failed == len(self.put_ids)


@pytest.mark.parametrize("part", [*protocol.TYPES, *(f"failed:{part}" for part in ("body", "env", "ready", "own"))])
def test_a_key_of_a_wrong_type_stops_its_queue_and_nothing_is_lost_or_done_twice(make, redis_client, monkeypatch, part):
    monkeypatch.setattr("djqueue.backends.redis.queue.TAKEN_IN_BY", 2**64)
    queue = make(cls=RedisBlockingQueue, remember_done=60)
    calls = Calls(queue, make(cls=RedisBlockingQueue))
    with occupied(redis_client, part) as key:
        calls.make_all()
        assert calls.errors
        assert all(key in str(error) and error.keys == [key.encode()] for error in calls.errors)
        move_aside(redis_client, calls.errors[-1])
    calls.done += [lease.entry.id for lease in queue.complete(calls.held)]
    eventually(calls.is_drained)
    gone = [record.entry.id for record in queue.failed.peek("ready")]
    assert sorted(calls.done + gone) == sorted(calls.put_ids)
    assert set(calls.failed) <= set(gone)
    assert (queue.stats().ready, queue.stats().leased) == (0, 0)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("part", ["ready", "env", "bell"])
def test_a_consumer_serves_its_other_queue_and_this_one_once_the_key_was_moved(settings, redis_client, caplog, part):
    path = "djqueue.backends.redis_backend.RedisBlockingQueue"
    config = {"CLASS": path, "CONNECTION": redis_connection(), "OPTIONS": {"PREFIX": "djqueue"}}
    settings.QUEUES = {"mail": config, "default": config}
    redis_client.set(f"{TAG}{part}", "x")
    mail, other = queues["mail"], queues["default"]
    with serving("mail", "default"):
        for count in (1, 2):
            other.put(work())
            eventually(lambda count=count: other.stats().failed == count)
        with pytest.raises(RedisKeyOfWrongType) as told:
            mail.put(work())
        assert part != "ready" or str(told.value) in caplog.text
        move_aside(redis_client, told.value)
        mail.put(work())
        eventually(lambda: mail.stats().failed == 1)


@pytest.mark.parametrize("moderate", [False, True])
def test_a_rate_limit_of_a_wrong_type_stops_what_it_bounds(queue, redis_client, moderate):
    rate_limit = RateLimit("queue:mail", Window(10, 1.0, moderate), "queue:mail too" if moderate else "")
    entries = work(4)
    queue.put(entries)
    assert len(queue.claim_within(rate_limit, 1)) == 1
    for key in redis_client.keys("*fact:*"):
        redis_client.delete(key)
        redis_client.hset(key, "x", 1)
        with pytest.raises(RedisKeyOfWrongType) as told:
            queue.claim_within(rate_limit, 1)
        move_aside(redis_client, told.value)
    assert len(eventually(lambda: queue.claim_within(rate_limit, 1))) == 1


@pytest.mark.parametrize("value", ["x", b"\xff", "[10, 60000000, 0, 0, 1700000000000000, 0, 0, 0]", b"\x9a\x0a"])
def test_a_rate_limit_that_cannot_be_read_stops_what_it_bounds_by_name_until_it_is_forgotten(
    queue, redis_client, value
):
    rate_limit, other = RateLimit("queue:mail", Window(10, 60.0)), RateLimit("second", Window(10, 60.0))
    queue.put(work(3))
    assert len(queue.claim_within(rate_limit)) == 1
    redis_client.set(f"{TAG}fact:{KEY}queue:mail", value)
    shared = queue.store.shared
    for ask in (queue.claim_within, shared.used, shared.change_rate_limit, lambda limit: shared.acquire(limit, 1)):
        with pytest.raises(RateUnreadable, match="'queue:mail' cannot be read"):
            ask(rate_limit)
    assert len(queue.claim_within(other)) == 1
    shared.forget_rate_limit(rate_limit)
    assert len(queue.claim_within(rate_limit)) == 1


@pytest.mark.parametrize("rates", [["x"], [{"text": "", "sum": 0, "last": 0, "warm": 0, "newest": 0}], "x", [b""] * 2])
def test_a_rate_of_a_lane_that_cannot_be_read_stops_its_lane_alone_until_somebody_opens_it(queue, redis_client, rates):
    gate = Gate(windows=(Window(10, 60.0),)).written()
    queue.put([Entry(b"", id, lane="a", gate=gate) for id in "12"])
    assert [lease.entry.id for lease in queue.claim(1)] == ["1"]
    put_rates = "local r = {cmsgpack.unpack(redis.call('HGET', KEYS[1], 'a'))} r[15] = cjson.decode(ARGV[1]) "
    put_rates += "redis.call('HSET', KEYS[1], 'a', cmsgpack.pack(unpack(r)))"
    redis_client.eval(put_rates, 1, f"{TAG}lanes", json.dumps(rates, default=bytes.decode))
    queue.put([Entry(b"", "3", lane="b", gate=gate), Entry(b"", "4")])
    assert sorted(lease.entry.id for lease in queue.claim(9)) == ["3", "4"]
    record = queue.lanes.get("a")
    assert (record.state, record.waiting, "cannot be read" in record.paused_reason) == ("closed", 1, True)
    assert queue.claim(9) == []
    assert queue.lanes.resume("a")
    assert [lease.entry.id for lease in queue.claim(1)] == ["2"]


FACTS = {
    "get": lambda queue: queue.store.get("key") is None,
    "swap": lambda queue: not queue.store.swap("key", b"was", b"is", 60),
    "swap_many": lambda queue: not queue.store.swap_many([("other", None, b""), ("key", b"was", b"is")], 60),
    "drop": lambda queue: not queue.store.drop("key", b"value"),
    "take": lambda queue: queue.store.acquire(RateLimit("key", Window(10, 60.0)), 10).count == 10,
    "change": lambda queue: queue.store.change_rate_limit(RateLimit("key", Window(10, 60.0))) is None,
    "put": lambda queue: queue.put(work(2), [None, OnceGuard("key", 60)]) == [True, True],
}


@pytest.mark.parametrize("ask", FACTS.values(), ids=FACTS)
def test_a_fact_of_a_wrong_type_stops_what_needs_it(queue, redis_client, ask):
    for key in ("key", f"{KEY}key"):
        redis_client.rpush(f"{TAG}fact:{key}", "x")
    with pytest.raises(RedisKeyOfWrongType) as told:
        ask(queue)
    assert (queue.stats().ready, queue.store.get("other")) == (0, None)
    move_aside(redis_client, told.value)
    assert ask(queue)


@pytest.mark.parametrize("by", ["put", "get"])
def test_the_command_that_moves_a_key_aside_is_safe_in_a_shell(queue, redis_client, by):
    key = "a 'b' $(c); \\d"
    redis_client.rpush(f"{TAG}fact:{key}", "x")
    with pytest.raises(RedisKeyOfWrongType) as told:
        queue.store.get(key) if by == "get" else queue.put(work(), [OnceGuard(key, 60)])
    move_aside(redis_client, told.value)
    assert redis_client.keys("*:aside") == [f"{TAG}fact:{key}:aside".encode()]


@pytest.mark.parametrize("score", ["inf", "-inf", "1e300"])
@pytest.mark.parametrize("state", ["delayed", "leased"])
def test_what_is_due_at_no_moment_of_any_clock_can_be_looked_at(queue, redis_client, state, score):
    entries = work(3, delay=60 if state == "delayed" else 0)
    queue.put(entries)
    queue.claim(3)
    key = f"{TAG}{'leases' if state == 'leased' else state}"
    [member] = [name for name in redis_client.zrange(key, 0, -1) if name.endswith(entries[1].id.encode())]
    redis_client.zadd(key, {member: score})
    seen = {record.entry.id for record in walk(queue, state)}
    assert seen >= {entries[0].id, entries[2].id}
    assert (entries[1].id in seen) is (score != "-inf" or state == "leased")
    assert queue.find(entries[1].id).entry.id == entries[1].id


@pytest.mark.parametrize("junk", ["", "x", "0", "nan", b"\xff", "9" * 32, "9" * 32 + "x", "0" * 32 + "\xc1"])
def test_junk_in_the_log_of_what_was_completed_stops_nothing(queue, redis_client, junk):
    redis_client.lpush(f"{TAG}recent", junk)
    for lease in held(queue, 100):
        assert queue.complete([lease]) == [lease]
    first = redis_client.lindex(f"{TAG}recent", 0)
    assert queue.sweep() == 0
    assert (first, redis_client.llen(f"{TAG}recent")) == (redis_client.lindex(f"{TAG}recent", 0), 100)
    redis_client.rpush(f"{TAG}recent", junk)
    [again] = work()
    queue.put([again])
    queue.complete(queue.claim(1))
    args = (queue.rings, queue._remember, *protocol.accepted(again, None))
    assert queue.call("put_again", *args)[0] == [1]


@pytest.mark.parametrize("part", ["env", "body"])
def test_what_was_written_over_by_a_key_of_a_wrong_type_is_among_the_failed(queue, redis_client, part):
    queue.put(work(10))
    redis_client.set(TAG + part, "x")
    with pytest.raises(RedisKeyOfWrongType) as told:
        queue.claim(5)
    move_aside(redis_client, told.value)
    eventually(lambda: drain(queue) == [] and queue.stats().failed == 10)
    assert queue.put(work()) == [True]
    assert len(drain(queue)) == 1


@pytest.mark.parametrize("part", ["ready", "delayed", "leases", "wait", "lanes", "own", "out", "meta", "done"])
def test_what_stood_in_a_line_that_was_written_over_goes_back_to_it(make, redis_client, part):
    queue = make(cls=RedisBlockingQueue, remember_done=60)
    entries = [*work(4), *work(2, delay=0.001), *work(4, lane="a", gate=ORDERED)]
    queue.put(entries)
    held = queue.claim(2, lease=0.001)
    until_now_is(queue, held[1].until)
    redis_client.set(TAG + part, "x")
    with pytest.raises(RedisKeyOfWrongType) as told:
        for verb in (lambda: queue.claim(1, lease=0.001), queue.reap, queue.lanes.page, queue.sweep):
            verb()
    move_aside(redis_client, told.value)
    found = set()

    def is_drained():
        queue.reap()
        queue.sweep()
        found.update(drain(queue))
        return len(found) == len(entries)

    eventually(is_drained)


def test_a_key_of_a_wrong_type_stops_no_other_queue_of_its_server(make, redis_client):
    queue, other = make(cls=RedisBlockingQueue), make(name="other", cls=RedisBlockingQueue)
    redis_client.set(f"{TAG}bell", "x")
    with pytest.raises(RedisKeyOfWrongType):
        waited(queue, 1)
    with pytest.raises(RedisKeyOfWrongType):
        queue.put(work())
    assert other.put(work()) == [True]
    with closing(queue.bell([other])) as bell:
        assert bell.wait(5)  # the queue says itself what is wrong with it
        assert bell.wait(5)
        assert not bell.wait(0.1)
    assert len(drain(other)) == 1


def test_what_nobody_can_read_is_given_up_though_the_put_aside_fails(queue, redis_client, monkeypatch):
    entries = work(3)
    queue.put(entries)
    spoil(redis_client, entries[0].id, "garbage")
    call = queue.call

    def fails(name, *args, **keys):
        if name == "aside":
            raise OSError("away")
        return call(name, *args, **keys)

    monkeypatch.setattr(queue, "call", fails)
    assert len(queue.claim(3, lease=0.001)) == 2
    monkeypatch.undo()
    eventually(lambda: queue.reap() and queue.stats().failed == 1)


def test_a_completed_message_that_comes_back_by_hand_is_refused(make, redis_client):
    queue = make(remember_done=60)
    queue.put(work())
    (id,) = redis_client.hkeys(f"{TAG}env")
    kept = [(part, redis_client.hgetall(TAG + part)) for part in ("body", "env")]
    ready = redis_client.zrange(f"{TAG}ready", 0, -1, withscores=True)
    queue.complete(queue.claim())
    for part, fields in kept:
        redis_client.hset(TAG + part, mapping=fields)
    redis_client.zadd(f"{TAG}ready", dict(ready))
    assert queue.claim(5) == []
    (record,) = queue.failed.peek("ready")
    assert record.entry.id == id.decode()
    assert "completed before" in errors_of(record.entry.errors)[0]["reason"]


@pytest.mark.parametrize("gate", ["", ORDERED])
def test_a_sweep_puts_back_what_is_whole_and_stands_in_no_line(queue, redis_client, caplog, gate):
    entries = [replace(one, lane="a" if gate else "", gate=gate) for one in [*work(5), *work(2, delay=60)]]
    queue.put(entries)
    assert queue.sweep() == 0
    redis_client.delete(*(TAG + part for part in ("ready", "delayed", "wait", "aged", "ready", "names", "lanes")))
    assert (queue.stats().ready, queue.claim(5)) == (0, [])
    assert queue.sweep() == 7
    assert (queue.stats().ready, queue.stats().delayed, queue.sweep()) == (5, 2, 0)
    assert entries[0].id in caplog.text
    assert set(drain(queue)) == {entry.id for entry in entries[:5]}


def test_a_sweep_takes_nothing_that_is_delayed_leased_or_dead(queue):
    gated = [replace(one, lane="a", gate=ORDERED) for one in work(5)]
    queue.put([*work(5), *gated, *work(2, delay=60)])
    queue.fail(queue.claim(1))
    leases = queue.claim(3)
    queue.touch(leases[:1], 0.001)
    eventually(lambda: queue.reap().count)
    before = queue.stats()
    assert (queue.sweep(), queue.failed.sweep()) == (0, 0)
    assert replace(queue.stats(), oldest=0) == replace(before, oldest=0)
    assert len(queue.complete(leases)) == len(leases)


@pytest.mark.parametrize("part", ["env", "body"])
def test_a_sweep_puts_among_the_failed_what_is_not_whole(queue, redis_client, part):
    queue.put(work())
    (id,) = redis_client.hkeys(f"{TAG}env")
    redis_client.delete(f"{TAG}ready", TAG + part)
    eventually(lambda: queue.sweep() == 1)
    assert [one.entry.id for one in queue.failed.peek("ready")] == [id.decode()]
    assert queue.sweep() == queue.failed.sweep() == 0


def test_a_sweep_looks_at_some_and_goes_on_from_there(queue, redis_client):
    queue.put(work(3000))
    redis_client.delete(f"{TAG}ready")
    swept = [queue.sweep(1000) for _ in range(6)]
    assert (sum(swept), max(swept) < 3000) == (3000, True)


def test_a_sweep_cuts_the_log_of_what_was_completed(queue, redis_client):
    queue.put(work(3))
    drain(queue)
    (old,) = redis_client.lrange(f"{TAG}recent", 0, -1)
    redis_client.lset(f"{TAG}recent", 0, old[:16] + b"%016d" % 1 + old[32:])
    queue.sweep()
    assert not redis_client.exists(f"{TAG}recent")
