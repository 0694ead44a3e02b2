"""Lanes on Redis: what memory does, what stays behind, what waiting costs."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from djqueue.backends.base import Entry
from djqueue.backends.entries import untried
from djqueue.backends.gates import HOLD_LANE, HOLD_PARK, Gate
from djqueue.backends.memory import MemoryQueue
from djqueue.backends.windows import Window
from tests.redis_backend.kit import keys

pytestmark = pytest.mark.server("redis")

OUTER = Gate(most=3, run=5)
GATES = [
    Gate(ordered=True),
    Gate(ordered=True, run=3),
    Gate(most=2),
    Gate(run=4),
    Gate(most=4, run=3),
    Gate(windows=(Window(5, 3600.0),)),
    Gate(ordered=True, run=2, windows=(Window(3, 3600.0), Window(7, 7200.0))),
    Gate(ordered=True, within="both", outer=OUTER),
    Gate(run=2, within="both", outer=OUTER),
]
LANES = {f"lane {number}": gate.written() for number, gate in enumerate(GATES)} | {"": ""}


def left(client):
    """The keys that do not vanish by themselves, without the tag."""
    return {key.partition("}:")[2] for key in keys(client) if client.ttl(key) == -1}


class Twins:
    """A queue on Redis and one in memory to which the same is done; what they answer must be the same."""

    def __init__(self, queue):
        self.queues, self.out, self.count = (queue, MemoryQueue("twin")), [], 0

    def put(self, lane, priorities):
        entries = [Entry(b"", f"{self.count + n}", p, lane=lane, gate=LANES[lane]) for n, p in enumerate(priorities)]
        self.count += len(entries)
        self.same(lambda queue: queue.put(entries))

    def claim(self, limit, ahead):
        claims = [queue.claim(limit, ahead=ahead) for queue in self.queues]
        assert told(claims[0]) == told(claims[1])
        assert [one.again == 0 for one in claims][0] == (claims[1].again == 0)
        self.out += zip(*claims, strict=True)

    def settle(self, verb, picks, **changes):
        pairs = [self.out.pop(pick % len(self.out)) for pick in picks if self.out]
        for number, queue in enumerate(self.queues):
            leases = [pair[number] for pair in pairs]
            changed = [replace(lease, entry=replace(lease.entry, **changes)) for lease in leases]
            assert len(getattr(queue, verb)(changed)) == len(pairs)

    def hand_back(self, picks):
        pairs = [self.out.pop(pick % len(self.out)) for pick in picks if self.out]
        for number, queue in enumerate(self.queues):
            queue.release([replace(pair[number], entry=untried(pair[number].entry)) for pair in pairs])

    def same(self, do):
        first, second = map(do, self.queues)
        assert first == second
        return first

    def look(self):
        """All that can be seen, but for times."""
        self.same(lambda queue: replace(queue.stats(), oldest=None))
        self.same(lambda queue: {one.entry.id for one in queue.peek("ready", 1000)})
        self.same(lambda queue: [(one.name, one.state, one.waiting, one.out) for one in queue.lanes(100)])

    def drain(self):
        for name in [one.name for one in self.queues[0].lanes(100)]:
            self.same(lambda queue, name=name: queue.open_lane(name))
        self.settle("complete", [0] * len(self.out))
        for _ in range(self.count + 1):
            self.claim(100, 0)
            self.settle("complete", [0] * len(self.out))
        self.look()


def told(claimed):
    """Which entries, in what order, and which of them are one unit."""
    units = {}
    return [(one.entry.id, one.entry.attempts, one.run and units.setdefault(one.run, len(units) + 1)) for one in claimed]


PICKS = st.lists(st.integers(0, 50), max_size=6)
STEP = st.one_of(
    st.tuples(st.just("put"), st.sampled_from(sorted(LANES)), st.lists(st.integers(-1, 1), min_size=1, max_size=6)),
    st.tuples(st.just("claim"), st.integers(1, 12), st.just(0)),
    st.tuples(st.just("claim"), st.integers(3, 12), st.integers(0, 2)),
    st.tuples(st.just("complete"), PICKS),
    st.tuples(st.just("bury"), PICKS),
    st.tuples(st.just("retry"), PICKS),
    st.tuples(st.just("hand_back"), PICKS),
    st.tuples(st.just("block"), st.integers(0, 50)),
    st.tuples(st.just("park"), st.integers(0, 50)),
    st.tuples(st.just("shut"), st.sampled_from(sorted(LANES)[1:])),
    st.tuples(st.just("open"), st.sampled_from(sorted(LANES)[1:])),
    st.tuples(st.just("remove"), st.lists(st.integers(0, 60), max_size=4)),
    st.tuples(st.just("reprioritise"), st.lists(st.integers(0, 60), max_size=4), st.integers(-1, 1)),
    st.tuples(st.just("revive"), st.lists(st.integers(0, 60), max_size=4)),
    st.tuples(st.just("flush")),
)
DOES = {
    "put": Twins.put,
    "claim": Twins.claim,
    "complete": lambda twins, picks: twins.settle("complete", picks),
    "bury": lambda twins, picks: twins.settle("bury", picks),
    "retry": lambda twins, picks: twins.settle("release", picks, failures=1),
    "hand_back": Twins.hand_back,
    "block": lambda twins, pick: twins.settle("release", [pick], hold=HOLD_LANE, delay=3600.0),
    "park": lambda twins, pick: twins.settle("release", [pick], hold=HOLD_PARK),
    "shut": lambda twins, name: twins.same(lambda queue: queue.park_lane(name, "by hand")),
    "open": lambda twins, name: twins.same(lambda queue: queue.open_lane(name)),
    "remove": lambda twins, ids: twins.same(lambda queue: queue.remove(map(str, ids))),
    "reprioritise": lambda twins, ids, to: twins.same(lambda queue: queue.reprioritise([str(i) for i in ids], to)),
    "revive": lambda twins, ids: twins.same(lambda queue: queue.revive([str(i) for i in ids])),
    "flush": lambda twins: twins.same(lambda queue: queue.flush()),
}


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(STEP, max_size=40))
def test_whatever_is_done_redis_and_memory_give_the_same(make, redis_client, steps):
    redis_client.flushdb()
    twins = Twins(make())
    for name, *args in steps:
        DOES[name](twins, *args)
        twins.look()
    twins.drain()
