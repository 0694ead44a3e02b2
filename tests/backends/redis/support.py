"""Help for these tests."""

from dataclasses import replace

from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError
from redis.retry import Retry

from djqueue.backends.base import DebounceGuard, Entry, OnceGuard, RateLimit, UniqueGuard
from djqueue.flow.gates import HOLD_PAUSE, Gate
from djqueue.flow.windows import Window
from djqueue.messages.envelope import new_id
from djqueue.testing import eventually
from tests.support.bells import waited


def once():
    """For clients that repeat no command."""
    return Retry(NoBackoff(), 0)


def work(count=1, **fields):
    return [Entry(b"work", new_id(), **fields) for _ in range(count)]


def keys(client):
    """All but the log of what has just been completed, which a sweep cuts."""
    return {key.decode() for key in client.keys("*") if not key.endswith(b":recent")}


def left(client):
    """The keys that do not vanish by themselves, without their tags."""
    return {key.partition("}:")[2] for key in keys(client) if client.ttl(key) == -1}


def calls(client, *names):
    """How often the server ran each command since `config_resetstat`; all of them without names."""
    stats = {name.removeprefix("cmdstat_"): value["calls"] for name, value in client.info("commandstats").items()}
    return {name: stats.get(name, 0) for name in names} if names else stats


def counted(client, call):
    """The commands by which the server did one call."""
    client.config_resetstat()
    call()
    return {name: count for name, count in calls(client).items() if name[:4] not in ("info", "conf")}


def held(queue, count=1, **fields):
    """Leases of so many new entries."""
    queue.put(work(count, **fields))
    return queue.claim(count)


def whole_life(queue):
    """Every verb once."""
    assert queue.put([*work(5), *work(delay=60)], [OnceGuard("a", 60), OnceGuard("b", 60), *[None] * 4]) == [True] * 6
    done, held, again, dead, late = queue.claim(5)
    assert waited(queue, 5)
    assert len(queue.complete([done])) == len(queue.touch([held])) == len(queue.release([again])) == 1
    assert len(queue.fail([dead])) == 1
    assert queue.find(held.entry.id).state == "leased"
    assert len(queue.peek("ready")) == len(queue.peek("delayed")) == queue.requeue([dead.entry.id]) == 1
    queue.touch([late], 0.001)
    eventually(lambda: queue.reap().count)
    assert queue.remove([late.entry.id]) == 1
    stats = queue.stats()
    assert (stats.ready, stats.delayed, stats.leased, stats.failed, stats.done) == (2, 1, 1, 0, 1)
    assert queue.store.swap("a", done.entry.id.encode(), done.entry.id.encode(), 60)
    assert queue.store.swap("a", done.entry.id.encode(), b"1", 60)
    assert queue.store.drop("a")
    queue.store.put_many([("a", b"1", 60), ("c", b"2", None)])
    assert queue.store.drop("c", b"2")
    queue.flush()
    guards = [
        UniqueGuard("u"),
        UniqueGuard("u"),
        DebounceGuard("d", 60),
        DebounceGuard("d", 60),
        *[DebounceGuard("e", 60, extend=True)] * 2,
    ]
    assert queue.put(work(6), guards) == [True, False, True, True, True, False]
    (dead, last) = queue.claim(2)
    assert len(queue.fail([dead])) == queue.failed.trim(most=0) == len(queue.release([last])) == 1
    assert queue.amend(last.entry.id, b"work", b"other")
    queue.flush()
    lanes_and_rate_limits(queue)
    assert (len(queue), queue.now() > 0) == (0, True)


def lanes_and_rate_limits(queue):
    """Every verb that lanes and rate limits have, once."""
    gate = Gate(ordered=True, max_run=2, parent="outer", parent_gate=Gate(concurrency=2, max_run=2)).written()
    ids = [entry.id for entry in work(5)]
    queue.put([Entry(b"work", id, lane="a", gate=gate) for id in ids], [OnceGuard(id, 60) for id in ids])
    own = RateLimit(f"queue:{queue.name}", Window(3, 60.0))
    run = queue.claim_within(own, 9)
    assert (queue.lanes.get("a").in_flight, [one.name for one in queue.lanes.page()]) == (2, ["a", "outer"])
    queue.complete(run[:1])
    queue.release([replace(run[1], entry=replace(run[1].entry, hold=HOLD_PAUSE))])
    assert (queue.lanes.get("a").paused_reason, queue.lanes.resume("a")) == (f"{run[1].entry.id} failed", True)
    queue.lanes.pause("outer", "")
    assert (queue.claim(), queue.lanes.resume("outer"), queue.reprioritise(ids[2:], 5)) == ([], True, 3)
    assert [one.entry.id for one in queue.claim_within(own, 9)] == ids[2:3]
    grant = queue.store.shared.acquire(own, 1)
    assert (grant.count, grant.reason) == (0, "limited")
    queue.store.shared.forget_rate_limit(own)
    grant = queue.store.shared.acquire(own, 2)
    queue.store.shared.release(own, grant, 1)
    assert queue.store.shared.acquire(own, 3).count == 2
    queue.flush()


class LosesReplies:
    """A client whose connection breaks after the server did the next command."""

    def __init__(self, client):
        self.client, self.connection_pool, self.broken, self.sent = client, client.connection_pool, False, 0
        self.meanwhile = lambda: None

    def execute_command(self, *args):
        self.sent += 1
        reply = self.client.execute_command(*args)
        if self.broken:
            self.broken = False
            self.meanwhile()
            raise ConnectionError("the reply was lost")
        return reply

    def pipeline(self, transaction):
        """Commands that are sent together: the first is the one whose reply may be lost."""
        return Together(self)


class Together:
    def __init__(self, client):
        self.client, self.commands = client, []

    def execute_command(self, *args):
        self.commands.append(args)

    def execute(self, raise_on_error):
        return [self.client.execute_command(*args) for args in self.commands]


def broken(client, call):
    """The call's result, of whose first command the reply is lost."""
    client.broken = True
    return call()
