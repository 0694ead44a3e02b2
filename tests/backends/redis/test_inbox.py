"""What was put by one command lies in the inbox until a script takes it in: no verb shows a difference."""

import os
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import replace
from functools import partial

import pytest
import redis
from redis.exceptions import ConnectionError, ResponseError

from djqueue.backends.base import Entry
from djqueue.backends.redis import protocol
from djqueue.backends.redis.connection import RedisKeyOfWrongType
from djqueue.backends.redis.queue import LONGEST_IN_INBOX, TAKEN_IN_BY, RedisBlockingQueue, RedisQueue, connections
from djqueue.exceptions import QueueFull, StoreUnreachable
from djqueue.flow.gates import Gate
from djqueue.messages.envelope import new_id
from djqueue.messages.failures import errors_of
from djqueue.testing import (
    GuardContract,
    LaneContract,
    LeaseContract,
    QueueContract,
    RateLimitContract,
    StressContract,
    WakeContract,
    eventually,
    together,
)
from tests.backends.contract.test_backends import OnEachBackend
from tests.backends.redis.support import LosesReplies, broken, calls, counted, held, keys, once, work
from tests.support import backends, servers
from tests.support.bells import waited

pytestmark = pytest.mark.server("redis")

TAG = "{djqueue:mail}:"
INBOX = f"{TAG}inbox"
RECORD = b"%016d cancelled" % 1795432125500000


@pytest.fixture(autouse=True)
def _by_one_command(monkeypatch):
    """No call takes the inbox in."""
    monkeypatch.setattr("djqueue.backends.redis.queue.TAKEN_IN_BY", 2**64)


class IntoInbox:
    """A queue whose plain entries go into the inbox, one by one, if they are new."""

    asking, sent = threading.Lock(), set()
    """The second has the ids that were put in the inbox of some queue."""

    def put(self, entries, guards=None):
        with self.asking:  # nobody else may put an id that was not there
            if guards or not all(map(self.goes_there, entries)):
                return super().put(entries, guards)
            # One id twice is refused whatever became of it between the two: a put is one step.
            first = {entry.id: number for number, entry in reversed([*enumerate(entries)])}
            return [
                first[entry.id] == number and not self.is_there(entry.id) and self.put_new(entry)
                for number, entry in enumerate(entries)
            ]

    def put_new(self, entry):
        return RedisQueue.put_new(self, entry)

    def goes_there(self, entry):
        fits = len(entry.body) <= LONGEST_IN_INBOX and " " not in entry.id
        return self._inbox_is_open and fits and not entry.priority and protocol.is_plain(entry)

    def is_there(self, id):
        """Asked without a script, so that the inbox stays as it is."""
        execute, text = self._link.execute, protocol.text(id)
        arrivals = execute("XRANGE", self._inbox, "-", "+") if id in self.sent else ()
        self.sent.add(id)
        lies_there = any(fields[0].partition(b" ")[0] == text for _, fields in arrivals)
        return lies_there or execute("HEXISTS", self._keys.part("env"), text)


class InboxQueue(IntoInbox, RedisQueue):
    pass


class BlockingInboxQueue(IntoInbox, RedisBlockingQueue):
    pass


class OverInbox(OnEachBackend):
    def make_queue(self, name, **options):
        config = self.backend.config(name)
        cls = InboxQueue if self.backend.id == "redis" else BlockingInboxQueue
        queue = cls(config["NAME"], config["CONNECTION"], prefix=config["OPTIONS"]["PREFIX"], **options)
        self.made.append(queue)
        return queue


KINDS = pytest.mark.backends("redis", "redis-blocking")


@KINDS
class TestQueue(OverInbox, QueueContract):
    pass


@KINDS
class TestLeases(OverInbox, LeaseContract):
    pass


@KINDS
class TestGuards(OverInbox, GuardContract):
    pass


@pytest.mark.backends("redis")
class TestLanes(OverInbox, LaneContract):
    pass


@pytest.mark.backends("redis")
class TestRateLimits(OverInbox, RateLimitContract):
    pass


@KINDS
class TestStress(OverInbox, StressContract):
    examples = 60 if backends.FULL else 6


@pytest.mark.backends("redis-blocking")
class TestWake(OverInbox, WakeContract):
    pass


def arrive(queue, count=1, **fields):
    """Entries that lie in the inbox now."""
    entries = work(count, **fields)
    before = queue._link.execute("XLEN", queue._inbox)
    assert [queue.put_new(entry) for entry in entries] == [True] * count
    assert queue._link.execute("XLEN", queue._inbox) == before + count
    return [entry.id for entry in entries]


def ids_of(found):
    return [one.entry.id for one in found]


# ---- what goes there


@pytest.mark.alone  # the server counts the commands of all
def test_a_plain_entry_is_one_command_and_a_bell(make, redis_client):
    for cls, bell in ((RedisQueue, {}), (RedisBlockingQueue, {"lpush": 1})):
        queue = make(cls=cls)
        arrive(queue)
        assert counted(redis_client, lambda queue=queue: queue.put_new(*work())) == {"xadd": 1, **bell}


OTHERS = [
    {"priority": 1},
    {"priority": -1},
    {"delay": 60.0},
    {"run_at": 5.0},
    {"attempts": 1},
    {"errors": "[]"},
    {"lane": "a"},
    {"lane": "a", "gate": Gate(ordered=True).written()},
]


@pytest.mark.parametrize("fields", OTHERS, ids=str)
def test_an_entry_that_is_not_plain_does_not_go_there(queue, redis_client, fields):
    assert queue.put_new(*work(**fields))
    assert not redis_client.exists(INBOX)
    assert len(queue) == 1


@pytest.mark.parametrize("options", [{"lifo": True}, {"remember_done": 60}, {"keep_done": 5}])
def test_a_queue_with_other_orders_or_a_memory_has_none(make, redis_client, options):
    queue = make(**options)
    assert queue.put_new(*work()) and queue.failed.put_new(*work()) and make().failed.put_new(*work())
    assert not redis_client.exists(INBOX, f"{TAG}failed:inbox")


def test_a_large_body_does_not_go_there(queue, redis_client):
    arrive(queue)
    assert queue.put_new(Entry(b"x" * (LONGEST_IN_INBOX + 1), new_id()))
    assert (redis_client.exists(INBOX), len(queue)) == (0, 2)
    assert queue.put_new(Entry(b"x" * LONGEST_IN_INBOX, new_id()))
    assert redis_client.xlen(INBOX) == 1


@pytest.mark.parametrize("words", ["", "plain", "two\nlines", "žluťoučký 🐎", "\ud800 alone", "0 0 0 0 0 1\n"])
def test_id_body_and_command_are_any(queue, words):
    sent = Entry(bytes(range(256)), f"id {words}", command=words)
    before = queue.now()
    queue.put_new(sent)
    [lease] = queue.claim()
    assert lease.entry == replace(sent, attempts=1, created=lease.entry.created)
    assert before <= lease.entry.created <= lease.claimed


# ---- order


def test_the_order_is_that_of_the_arrivals_whatever_way_they_take(queue):
    order = []
    for number in range(200):
        order += arrive(queue) if number % 3 else [entry.id for entry in work() if queue.put([entry])]
    found = []
    while leases := queue.claim(7):
        found += ids_of(queue.complete(leases))
    assert found == order


def test_a_claim_takes_in_as_many_as_it_claims_and_leaves_the_order(queue, redis_client):
    lower = work(5, priority=-1)
    queue.put(lower)
    order = arrive(queue, 300)
    higher = work(3, priority=1)
    queue.put(higher[:1])
    assert ids_of(queue.claim(1)) == [higher[0].id]
    order += arrive(queue, 200)
    assert ids_of(queue.claim(250)) == order[:250]
    assert ids_of(queue.claim(1)) == order[250:251]
    assert ids_of(queue.claim(1000)) == [*order[251:], *(entry.id for entry in lower)]
    assert not redis_client.exists(INBOX)


def test_a_small_claim_leaves_most_in_the_inbox(queue, redis_client):
    order = arrive(queue, 200)
    assert ids_of(queue.claim(2)) == order[:2]
    assert 0 < redis_client.xlen(INBOX) < 200
    claimed = queue.claim(3)
    assert (ids_of(claimed), claimed.retry_after) == (order[2:5], 0)


def test_what_is_delayed_keeps_its_order_next_to_them_to_the_millisecond(queue):
    due = queue.now() + 0.05
    later = work(run_at=due)
    first = arrive(queue)
    queue.put(later)
    eventually(lambda: queue.now() > due + 0.002)
    last = arrive(queue)
    assert ids_of(queue.claim(3)) == [*first, later[0].id, *last]


def test_a_clock_that_was_set_back_leaves_the_order(queue, redis_client):
    """As if it had been set back: the ids of the stream are ahead of the clock, and go on from there."""
    ahead = int((queue.now() + 3600) * 1000)
    order = [entry.id for entry in work()]
    redis_client.xadd(INBOX, {f"{order[0]} ": b"work"}, id=f"{ahead}-5")
    order += arrive(queue, 2)
    assert redis_client.xinfo_stream(INBOX)["last-generated-id"] == f"{ahead}-7".encode()
    order += [entry.id for entry in work() if queue.put([entry])]
    order += arrive(queue)
    leases = queue.claim(9)
    assert ids_of(leases) == order
    assert max(lease.entry.created for lease in leases) <= queue.now()


# ---- every verb takes them in


def test_operators_see_and_change_what_lies_there(queue):
    [found, gone, cancelled, changed, amended] = arrive(queue, 5)
    assert queue.stats().ready == len(queue) == 5
    assert 0 <= queue.stats().oldest < 5
    assert queue.find(found).state == "ready"
    other = arrive(queue)[0]
    assert [queue.remove([other], history=[RECORD]) for _ in range(2)] == [1, 0]
    other = arrive(queue)[0]
    assert queue.amend(other, b"work", b"other")
    assert queue.find(other).entry.body == b"other"
    other = arrive(queue)[0]
    assert queue.reprioritise([other], 5) == 1
    assert ids_of(queue.claim(1)) == [other]
    other = arrive(queue)[0]
    assert ids_of(queue.peek("ready", 1, last=True)) == [other]
    other = arrive(queue)[0]
    assert ids_of(queue.peek("ready", 100))[-1] == other
    assert queue.remove(arrive(queue, 2)) == 2
    assert queue.remove([cancelled], history=[RECORD]) and queue.remove([gone]) == 1


def test_what_is_requeued_or_promoted_comes_behind_what_lies_there(queue):
    dead = held(queue, 1)
    queue.fail(dead)
    delayed = work(delay=60)
    queue.put(delayed)
    first = arrive(queue)
    assert queue.requeue(ids_of(dead)) == 1
    second = arrive(queue)
    assert queue.promote([delayed[0].id]) == 1
    assert ids_of(queue.claim(9)) == [*first, *ids_of(dead), *second, delayed[0].id]


def test_a_trim_counts_what_lies_there(queue):
    order = arrive(queue, 10)
    assert queue.trim(most=4) == 6
    assert ids_of(queue.claim(9)) == order[6:]


def test_holders_are_asked_for_what_lies_there(make):
    one, other = make("one"), make("other")
    [id] = arrive(one)
    assert one.holders([one, other], id) == [one]


@pytest.mark.parametrize("count", [1, 5])
def test_a_flush_deletes_what_lies_there_and_nothing_that_comes_meanwhile(queue, monkeypatch, count):
    queue.put(work(3, delay=60))
    queue.put(work(2, priority=-1))
    arrive(queue, count)
    run, later = queue._link.run, []

    def and_one_comes(script, *given):
        reply = run(script, *given)
        if script.name == "flush":
            later.extend(arrive(queue))
        return reply

    monkeypatch.setattr(queue._link, "run", and_one_comes)
    queue.flush()
    monkeypatch.undo()
    monkeypatch.setattr("djqueue.backends.redis.queue.TAKEN_IN_BY", 2**64)
    assert len(later) >= 2
    assert ids_of(queue.claim(99)) == later
    assert len(queue) == 0


def test_a_known_id_is_refused_when_it_is_taken_in(queue):
    [entry, other] = work(2)
    queue.put([other])
    for one in (entry, entry, other):
        assert queue.put_new(one)
    [first, second] = queue.claim(9)
    assert ids_of([first, second]) == [other.id, entry.id]
    queue.put_new(entry)  # it is leased
    assert queue.claim(9) == []
    queue.complete([first, second])
    assert (queue.stats().ready, queue.stats().done) == (0, 2)


def test_a_claim_goes_on_behind_known_ids(queue):
    [entry] = work()
    for _ in range(300):
        queue.put_new(entry)
    last = arrive(queue)
    assert ids_of(queue.claim(2)) == [entry.id, *last]


# ---- it stays short


def test_it_stays_short_where_nothing_takes_it_in(queue, redis_client, monkeypatch):
    monkeypatch.setattr("djqueue.backends.redis.queue.TAKEN_IN_BY", TAKEN_IN_BY)
    longest = 0
    for entry in work(1500):
        queue.put_new(entry)
        longest = max(longest, redis_client.xlen(INBOX))
    assert 0 < longest < 1000
    assert len(queue) == 1500


def test_short_processes_take_it_in_as_well(redis_client):
    """Each draws anew, so it does not matter how few calls one makes."""
    program = (
        "import django, sys\n"
        "from django.conf import settings\n"
        "settings.configure(INSTALLED_APPS=['djqueue'], SECRET_KEY='x', DATABASES={})\n"
        "django.setup()\n"
        "from djqueue.backends.redis import queue\n"
        "from djqueue.backends.base import Entry\n"
        "from djqueue.messages.envelope import new_id\n"
        "queue.TAKEN_IN_BY = 2\n"
        "queue.RedisQueue('mail', sys.argv[1]).put_new(Entry(b'', new_id()))\n"
    )
    for number in range(40):
        subprocess.run([sys.executable, "-c", program, backends.redis_connection()], check=True, env=os.environ)
        if redis_client.xlen(INBOX) <= number:
            return
    pytest.fail("none of forty processes has taken it in")


def test_the_bell_stays_short(make, redis_client):
    queue = make(cls=RedisBlockingQueue)
    for _ in range(3):
        arrive(queue, 100)
        queue.claim(1)
    assert redis_client.llen(f"{TAG}bell") <= queue.rings + 100
    queue.claim(1000)
    assert redis_client.llen(f"{TAG}bell") <= queue.rings
    queue.complete(held(queue))
    assert keys(redis_client) >= {f"{TAG}bell", f"{TAG}meta"}


# ---- faults


def test_a_full_server_refuses_it_and_takes_in_what_it_has(private_server):
    server = private_server("redis")
    queue = RedisBlockingQueue("mail", server.url)
    order = arrive(queue, 100)
    with redis.Redis(port=server.port) as client:
        client.config_set("maxmemory", 1)
        for _ in range(2):
            with pytest.raises(QueueFull, match="maxmemory"):
                queue.put_new(*work())
        assert client.xlen(INBOX) == 100
        assert ids_of(queue.complete(queue.claim(10))) == order[:10]
        assert queue.find(order[20]).state == "ready"
        assert ids_of(queue.exchange([], 90)[1]) == order[10:]
        client.config_set("maxmemory", 0)
    queue.put_new(*work())
    arrive(queue)


def test_a_lost_answer_is_one_entry(make, lossy_queue, redis_client):
    _, client = lossy_queue
    for cls in (RedisQueue, RedisBlockingQueue):
        queue, [one] = cls("mail", client), work()
        assert broken(client, lambda queue=queue, one=one: queue.put_new(one)) is True
        assert (queue.put([one]), len(queue)) == ([False], 1)
        queue.flush()


@pytest.mark.parametrize("verb", ["complete", "fail"])
def test_what_ended_before_its_put_was_repeated_is_not_put_again(lossy_queue, verb):
    queue, client = lossy_queue
    consumer = RedisQueue("mail", client.client)
    client.meanwhile = lambda: getattr(consumer, verb)(consumer.claim(1))
    assert broken(client, lambda: queue.put_new(*work())) is True
    assert (len(queue), consumer.claim(1)) == (0, [])


def test_what_arrives_after_it_was_repeated_and_has_run_counts_no_more(lossy_queue, redis_client):
    """A command of a broken connection may be run after those that follow on another."""
    queue, client = lossy_queue
    run, late = client.execute_command, []

    def lose(*args):
        if args[0] == b"XADD" and not late:
            late.append(args)
            raise ConnectionError("it is still on its way")
        return run(*args)

    client.execute_command = lose
    assert queue.put_new(*work())
    [lease] = queue.complete(queue.claim(5))
    redis_client.execute_command(*late[0])
    other = arrive(queue)
    assert ids_of(queue.claim(5)) == other
    assert (len(queue), queue.find(lease.entry.id)) == (0, None)
    assert 3000 < redis_client.ttl(f"{TAG}repeated") <= 3600


def test_a_call_that_broke_before_its_ring_rings_when_it_is_repeated(redis_client):
    """A large packet may arrive in parts."""
    client = LosesReplies(redis_client)
    queue = RedisBlockingQueue("mail", client)
    assert broken(client, lambda: queue.put_new(*work()))  # this client sends one command after the other
    assert waited(RedisBlockingQueue("mail", redis_client), 5)
    assert len(queue.claim(5)) == 1


def test_repeated_ids_are_forgotten(lossy_queue, redis_client):
    queue, client = lossy_queue
    redis_client.zadd(f"{TAG}repeated", {"old": 1})
    assert broken(client, lambda: queue.put_new(*work()))
    assert redis_client.zcard(f"{TAG}repeated") == 1


FOREIGN = [
    {"a c": "b", "d": "e"},
    {"x": "y"},
    {"id": "a", "body": "b"},
    {"body": "b", "id": "a", "command": "c"},
    {"id": "a", "body": "b", "order": "c"},
    {b"\xff": b"\x00"},
]


@pytest.mark.parametrize("fields", FOREIGN, ids=str)
@pytest.mark.parametrize("id", ["*", "0-1", f"{2**64 - 1}-{2**64 - 1}"])
def test_what_somebody_else_wrote_there_is_among_the_failed_and_stops_nothing(queue, redis_client, caplog, fields, id):
    before = arrive(queue, 2) if id != "0-1" else []
    redis_client.xadd(INBOX, fields, id=id)
    assert queue.put_new(*work())  # where the stream has no more ids, by a script
    assert len(ids_of(queue.claim(10))) == len(before) + 1
    queue.claim(1)
    [record] = queue.failed.peek("ready")
    assert record.entry.id.startswith("inbox-")
    assert "envelope cannot be read" in errors_of(record.entry.errors)[0]["reason"]
    assert record.entry.id in caplog.text
    arrive(queue)
    assert len(queue.claim(10)) == 1


@pytest.mark.parametrize("id", ["0" * 65, "x" * 65, "\xff" * 65, "a b"])
def test_an_id_of_any_text_is_among_many(queue, id):
    entries = [*work(40), Entry(b"its own", id), *work(40)]
    assert queue.put(entries) == [True] * 81
    leases = [lease for size in (64, 64) for lease in queue.claim(size)]
    assert [(lease.entry.id, lease.entry.body) for lease in leases] == [(one.id, one.body) for one in entries]
    assert len(queue.complete(leases)) == 81


def test_a_command_that_is_not_utf8_stops_nothing(queue, redis_client):
    redis_client.xadd(INBOX, {b"\xff \xff\x80 x": b"\xff"})
    order = arrive(queue)
    assert ids_of(queue.claim(9))[-1:] == order


@pytest.mark.parametrize("part", ["inbox", "repeated", "ready", "env", "body", "meta"])
def test_a_key_of_a_wrong_type_stops_the_calls_that_go_by_a_script_and_then_all(queue, redis_client, part):
    """One of many calls finds out: then no more is left where no script can take it in."""
    arrive(queue)
    key = TAG + part
    redis_client.delete(key)
    redis_client.rpush(key, "x")
    stopped = part in ("ready", "env", "body", "meta")
    if part != "inbox":
        assert queue.put_new(*work())
    with pytest.raises(RedisKeyOfWrongType, match=part):
        queue.claim(1)
    with pytest.raises(RedisKeyOfWrongType, match=part):
        queue.put_new(*work(priority=1))
    length = redis_client.xlen(INBOX) if part != "inbox" else 0
    with pytest.raises(RedisKeyOfWrongType, match=part):
        queue.put_new(*work())
    redis_client.delete(key)
    assert queue.put_new(*work())
    assert stopped is (length > 0 and part != "repeated")
    arrive(queue)


@pytest.mark.parametrize("part", ["own", "leases", "env", "body", "ready"])
def test_a_claim_that_a_key_of_a_wrong_type_stops_leaves_all_there(queue, redis_client, part):
    order = arrive(queue, 5)
    redis_client.set(TAG + part, "x")
    for verb in (queue.claim, queue.sweep, partial(queue.exchange, [], 3)):
        with suppress(RedisKeyOfWrongType):
            verb()
    assert redis_client.xlen(INBOX) == 5
    redis_client.delete(TAG + part)
    assert queue.sweep() == 0
    assert ids_of(queue.complete(queue.claim(9))) == order
    assert (queue.stats().failed, queue.stats().done) == (0, 5)


def test_a_class_that_writes_put_has_it_called(redis_client):
    class Own(RedisQueue):
        def put(self, entries, guards=None):
            return super().put([replace(entry, priority=3) for entry in entries], guards)

    queue = Own("mail", backends.redis_connection())
    assert queue.put_new(*work())
    assert queue.claim()[0].entry.priority == 3


def test_a_base_that_writes_put_before_the_queue_has_it_called(redis_client):
    class Ranked:
        def put(self, entries, guards=None):
            return super().put([replace(entry, priority=3) for entry in entries], guards)

    class Own(Ranked, RedisQueue):
        pass

    class OwnBlocking(Own, RedisBlockingQueue):
        pass

    for cls in (Own, OwnBlocking):
        queue = cls("mail", backends.redis_connection())
        assert queue.put_new(*work())
        assert queue.claim()[0].entry.priority == 3


def test_a_bell_of_a_wrong_type_is_noticed_by_the_next_call(make, redis_client):
    queue = make(cls=RedisBlockingQueue)
    redis_client.set(f"{TAG}bell", "x")
    entries = work(2)
    assert queue.put_new(entries[0])
    with pytest.raises(RedisKeyOfWrongType, match="bell"):
        queue.put_new(entries[1])
    assert ids_of(queue.claim(5)) == [entries[0].id]


def test_what_reads_serves_where_nothing_can_be_written(private_server):
    server = private_server("redis")
    queue = RedisQueue("mail", server.url)
    queue.put(work(2))
    there = arrive(queue, 3)
    with redis.Redis(port=server.port) as client:
        client.config_set("min-replicas-to-write", 1)
        assert queue.stats().ready == len(queue) == 5
        assert (queue.find(there[0]), len(queue.peek("ready"))) == (None, 2)
        assert len(queue.peek("ready", 5, last=True)) == 2
        cancel = partial(queue.remove, there[:1], history=[RECORD])
        for verb in (partial(queue.put_new, *work()), queue.claim, cancel, queue.trim):
            with pytest.raises(StoreUnreachable, match="min-replicas-to-write"):
                verb()
        client.config_set("min-replicas-to-write", 0)
        assert queue.find(there[0]).state == "ready"
        client.replicaof("127.0.0.1", 1)
        arrivals = queue.stats()
        assert arrivals.ready == 5
        client.replicaof("NO", "ONE")
    assert queue.put_new(*work())
    arrive(queue)


def test_a_forked_child_puts_there_on_its_own_connection(queue):
    arrive(queue, 2)
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            for entry in work(20):
                queue.put_new(entry)
            status = 0
        finally:
            os._exit(status)
    arrived = arrive(queue, 1) if os.waitpid(pid, 0)[1] == 0 else []
    assert (len(arrived), len(queue)) == (1, 23)


def test_many_threads_put_and_claim_each_once(make):
    queue, done = make(cls=RedisBlockingQueue), []

    def puts():
        for entry in work(300):
            assert queue.put_new(entry)

    def claims():
        while len(done) < 900:
            for lease in queue.complete(queue.claim(20)):
                done.append(lease.entry.id)

    together(puts, puts, puts, claims, claims)
    assert len(done) == len(set(done)) == queue.stats().done == 900


def test_a_given_client_puts_there_as_a_url_does(redis_client, make):
    queue = RedisBlockingQueue("mail", redis_client)
    arrive(queue, 3)
    assert len(queue.complete(queue.claim(5))) == 3
    with pytest.raises(ResponseError):
        redis_client.execute_command("NOTHING")
    assert make()._has_inbox


def test_a_cluster_has_none_and_takes_in_what_is_there(cluster_server):
    client = redis.Redis(port=cluster_server.port)
    with client, redis.cluster.RedisCluster("127.0.0.1", cluster_server.port, retry=once()) as cluster:
        for connection in (f"redis+cluster://127.0.0.1:{cluster_server.port}", cluster):
            queue, entries = RedisBlockingQueue("mail", connection), work(2)
            assert queue.put_new(entries[0])
            assert not client.exists(INBOX)
            client.xadd(INBOX, {f"{entries[1].id} ": b"work"})
            assert ids_of(queue.complete(queue.claim(5))) == [entry.id for entry in entries]
            client.set(f"{TAG}bell", "x")
            with pytest.raises(RedisKeyOfWrongType, match="bell"):
                queue.put_new(*work())
            client.delete(f"{TAG}bell")
    connections.reset()


@pytest.mark.slow
def test_what_lies_there_survives_a_kill(private_server):
    server = private_server("redis", *servers.Redis.DURABLE)
    queue = RedisQueue("mail", server.url)
    order = arrive(queue, 5)
    server.kill9()
    with pytest.raises(ConnectionError):
        queue.put_new(*work())
    server.restart()
    assert ids_of(queue.claim(9)) == order


@pytest.mark.alone  # the server counts the commands of all
def test_an_empty_inbox_costs_a_claim_one_look(queue, redis_client):
    queue.claim()
    assert calls(redis_client, "xlen")["xlen"] > 0
    commands = counted(redis_client, queue.claim)
    assert (commands["xlen"], "xrange" in commands) == (1, False)
