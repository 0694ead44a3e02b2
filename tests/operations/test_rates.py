"""What was counted per minute: consumers add up, those too that are gone; what comes in is told by what is there."""

from dataclasses import dataclass, field
from functools import partial

import pytest

from djqueue import Consumer, Discard, operations, queue_command
from djqueue.backends.base import Entry
from djqueue.backends.memory import MemoryStore
from djqueue.consumer import operators
from djqueue.consumer.counters import Counters, Counts
from djqueue.consumer.loop import Options
from djqueue.consumer.maintenance import Reaper
from djqueue.consumer.operators import OperatorChannels
from djqueue.consumer.rates import RateRecorder, Sampler, counts_in, spans_of
from djqueue.messages.envelope import new_id
from djqueue.testing import together
from tests.support.clock import Clock
from tests.support.consumer import only, unreachable

EVERYWHERE = pytest.mark.backends("memory", "sqlite", "postgres", "redis")
MEMORY = pytest.mark.backends("memory")
BEGIN = 1_800_000_000.0  # the begin of a quarter of an hour


@queue_command(retry_on=[KeyError], backoff=0.001, max_attempts=2)
def work(how="done"):
    if how == "fail":
        raise KeyError("no")
    if how == "discard":
        raise Discard("not wanted")


@pytest.fixture(autouse=True)
def _this_command(monkeypatch):
    monkeypatch.setattr(MemoryStore, "_common", None)  # in which other tests have counted
    with only(work):
        yield


@pytest.fixture
def store_clock(queue, monkeypatch):
    """The time by the clock of the store."""
    time = Clock(BEGIN)
    monkeypatch.setattr(type(queue.store), "now", lambda store: time.now)
    monkeypatch.setattr(operators, "clock", time)
    return time


@dataclass
class Served:
    """A consumer as its operator channels see it."""

    time: Clock
    queue: object
    name: str = field(default_factory=lambda: f"web-1:42:{new_id()}")
    options: Options = field(default_factory=Options)
    ran: int = 0

    def __post_init__(self):
        self.counters = Counters([self.queue])
        channels = OperatorChannels()
        channels.open([self.queue], self, list, lambda: None)
        [self.channel] = channels.channels

    def stop(self):
        raise NotImplementedError

    def count(self, seconds=0.01, **outcomes):
        """Count some messages, which ran for a while."""
        counts = self.counters._recent.setdefault((self.queue.alias, work.name), Counts())
        for outcome, number in outcomes.items():
            counts.add(outcome, number)
            counts.ran.add([seconds] * number)

    def beat(self, seconds=5.0):
        self.time.now += seconds
        self.channel.tick()


def shown(period="hour"):
    """The minutes in which something was counted, from the beginning of the test."""
    found = operations.rates(period=period)
    return {int(p.start - BEGIN): (p.done, p.failed, p.retried) for p in found[0].points if p.done} if found else {}


@EVERYWHERE
def test_consumers_add_up_and_those_that_left_still_count(queue, store_clock):
    one, other = Served(store_clock, queue), Served(store_clock, queue)
    one.count(done=3, failed=1)
    other.count(done=2, retried=1, discarded=1)
    for served in (one, other, one):
        served.beat()
    assert shown() == {0: (5, 1, 1)}, "what is written twice counts once"
    one.count(done=10)
    one.channel.end()
    other.count(done=100)
    other.beat(60)
    third = Served(store_clock, queue)
    third.count(done=1000)
    third.beat(0)
    third.beat(1)
    assert shown() == {0: (15, 1, 1), 60: (1100, 0, 0)}
    assert shown("day") == {0: (1115, 1, 1)}
    [counted] = operations.rates("default", "work")
    assert (counted.total.done, counted.total.others, len(counted.points)) == (1115, {"discarded": 1}, 60)
    assert counted.points[0].start == BEGIN + 60 - 59 * 60
    assert operations.rates(command="other") == []


@MEMORY
def test_many_consumers_after_each_other_leave_as_many_facts_as_one(queue, store_clock):
    facts = queue.store.shared._facts
    for number in range(150):
        served = Served(store_clock, queue)
        served.count(done=number)
        served.channel.end()
        if number == 1:
            few = len(facts)
    assert shown() == {0: (sum(range(150)), 0, 0)}
    assert len(facts) == few, "a fact for the minute, and one for the quarter of an hour"
    assert max(map(len, facts.values())) < 3_000


@MEMORY
def test_what_one_that_stood_still_had_counted_counts_when_it_goes_on(queue, store_clock):
    still, other = Served(store_clock, queue), Served(store_clock, queue)
    for served in (still, other):
        served.channel.tick()
        served.beat(1)
    still.count(done=1)
    other.count(done=10)
    other.beat(61)
    still.count(done=100)
    still.beat(0)
    other.count(done=1000)
    other.beat(5)
    assert shown() == {60: (1111, 0, 0)}


@MEMORY
def test_a_clock_that_is_set_back_over_the_end_of_a_minute_loses_nothing(queue, store_clock):
    counters = Counters([queue])
    recorder = RateRecorder(queue.store.shared, [queue], counters)
    for seconds in (1, 58, 61, 59, 62):
        counters._recent[queue.alias, work.name] = Counts({"done": 1})
        recorder.gather(BEGIN + seconds)
        recorder.add()
    store_clock.now += 62
    assert shown() == {0: (3, 0, 0), 60: (2, 0, 0)}


@pytest.fixture
def losing(queue, monkeypatch):
    """The store of shared facts does what it is asked for next, and the answer is lost."""
    kind, left = type(queue.store.shared), []
    swap_many = kind.swap_many

    def swap(store, *args):
        swapped = swap_many(store, *args)
        if left and swapped:
            raise ConnectionError(left.pop())
        return swapped

    monkeypatch.setattr(kind, "swap_many", swap)
    return lambda: left.append("the answer was lost")


@EVERYWHERE
@pytest.mark.parametrize("lost", [1, 2])
def test_an_addition_whose_answer_was_lost_counts_once(queue, store_clock, losing, lost):
    one, other = Served(store_clock, queue), Served(store_clock, queue)
    for served in (one, other):
        served.beat(1)
    one.count(done=1)
    for _ in range(lost):
        losing()
        with pytest.raises(ConnectionError):
            one.beat()
        one.count(done=10)
        other.count(done=100)
        other.beat(0)
    one.beat()
    expected = 1 + lost * 110
    assert shown() == shown("day") == {0: (expected, 0, 0)}
    one.count(done=1000)
    losing()
    with pytest.raises(ConnectionError):
        one.channel.end()
    one.channel.end()
    assert shown() == shown("day") == {0: (expected + 1000, 0, 0)}


@EVERYWHERE
def test_an_addition_that_the_store_did_not_get_counts_when_it_does(queue, store_clock, monkeypatch):
    one, kind = Served(store_clock, queue), type(queue.store.shared)
    one.beat(1)
    one.count(done=1)
    with monkeypatch.context() as patch:
        patch.setattr(kind, "swap_many", unreachable)
        for _ in range(2):
            with pytest.raises(ConnectionError):
                one.beat()
            one.count(done=10)
    assert shown() == {}
    one.beat()
    assert shown() == shown("day") == {0: (21, 0, 0)}


@MEMORY
def test_what_is_over_by_the_time_the_store_is_back_is_forgotten(queue, store_clock, monkeypatch):
    one = Served(store_clock, queue)
    one.beat(1)
    with monkeypatch.context() as patch:
        patch.setattr(MemoryStore, "swap_many", unreachable)
        for _ in range(200):
            one.count(done=1)
            with pytest.raises(ConnectionError):
                one.beat(60)
    recorder = one.channel._rates
    assert len(recorder._gathered) + len(recorder._adding) <= 80, "for an hour and a day"
    one.beat()
    assert sum(done for done, _, _ in shown().values()) == 60
    assert sum(done for done, _, _ in shown("day").values()) == 200


@EVERYWHERE
def test_what_many_add_at_the_same_moment_is_all_there(queue):
    recorders = []
    for _ in range(12):
        counters = Counters([queue])
        counters._recent[queue.alias, work.name] = Counts({"done": 1})
        recorders.append(RateRecorder(queue.store.shared, [queue], counters))
    together(*[partial(one.end, lambda: BEGIN) for one in recorders], last=queue.close)
    rows = counts_in(queue.store.shared, [queue.base_name], spans_of(BEGIN))
    assert [counts[queue.base_name, work.name].outcomes["done"] for counts in rows.values()] == [12, 12]


@EVERYWHERE
def test_consumers_that_end_at_once_count(queue):
    for _ in range(2):
        for how in ("done", "done", "fail", "discard"):
            work(how)
        assert Consumer(periodic=False).run(5) == 0
    for period in ("hour", "day"):
        [one] = operations.rates(period=period)
        assert (one.total.done, one.total.failed, one.total.retried, one.total.others) == (4, 2, 2, {"discarded": 2})
        assert 0 < one.total.run.p50 <= one.total.run.p95 and one.total.wait.p95 > 0
    [lately] = operations.queue_rates(["default"], "minutes")
    assert 4 / 6 <= lately.done <= 4 / 5 and lately.failed == lately.retried == lately.done / 2


@MEMORY
def test_quantiles_are_interpolated_within_the_classes_of_durations(queue, store_clock):
    served = Served(store_clock, queue)
    served.count(seconds=0.07, done=80)  # between 50 and 100 ms
    served.count(seconds=4000.0, done=20)
    served.channel.end()
    [one] = operations.rates()
    assert one.total.run == (pytest.approx(0.05 + 0.05 * 50 / 80), 3600.0)
    assert one.total.wait == (None, None)


@MEMORY
@pytest.mark.parametrize(
    "text", ["[]", "no", '{"counts": []}', '{"counts": {"c": [{}, [], []]}}', '{"counts": {"c": [1]}, "writers": [1]}']
)
def test_what_others_wrote_into_the_facts_harms_nothing(queue, store_clock, text):
    served, store = Served(store_clock, queue), queue.store.shared
    served.count(done=1)
    served.channel.end()
    for key in [key for key in store._facts if key.startswith("rates:")]:
        store.put(key, text.encode(), 600)
    assert shown() == shown("day") == {}
    served.count(done=1)
    served.channel.end()
    assert {one.command: one.total.done for one in operations.rates()} | {"c": 0} == {work.name: 1, "c": 0}


@MEMORY
def test_a_period_has_a_name_of_these(queue):
    with pytest.raises(ValueError, match="period is 'week': give 'minutes', 'hour', 'day'"):
        operations.rates(period="week")


@EVERYWHERE
def test_what_came_in_and_the_time_to_drain_are_told_by_samples_of_the_queue(queue, store_clock):
    one, other = Sampler(), Sampler()
    queue.put([Entry(b"", new_id()) for _ in range(4)])
    for sampler in (one, other, one):
        sampler.look(queue, store_clock.now)
    assert operations.time_to_drain("default") is None, "one look tells nothing"
    store_clock.now += 60
    queue.complete(queue.claim(3))
    queue.put([Entry(b"", new_id())])
    other.look(queue, store_clock.now)
    one.look(queue, store_clock.now)
    [rates] = operations.queue_rates()
    assert [(int(p.start - BEGIN), p.ready, p.enqueued) for p in rates.points[-2:]] == [(0, 4, 1), (60, 2, None)]
    assert (rates.enqueued, rates.time_to_drain) == (1.0, 60.0), "two of four went in a minute"
    store_clock.now += 15
    assert operations.time_to_drain("default") == 45.0
    assert operations.queue_rates(period="day")[0].points[-1].ready == 4
    store_clock.now += 45
    queue.put([Entry(b"", new_id())])
    one.look(queue, store_clock.now)
    queue.complete(queue.claim(9))
    store_clock.now += 60
    one.look(queue, store_clock.now)
    assert operations.time_to_drain("default") == 0.0
    store_clock.now += 3600
    assert operations.time_to_drain("default") is None


@EVERYWHERE
def test_the_reaper_takes_the_samples(queue):
    queue.put([Entry(b"", new_id())])
    reaper = Reaper([queue], lambda queue: 3600)
    assert reaper.tick() <= 15, "it looks again soon, though no lease may run out"
    reaper._swept -= 16
    reaper.tick()
    [rates] = operations.queue_rates()
    assert [point.ready for point in rates.points if point.ready is not None] == [1]
