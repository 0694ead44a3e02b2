"""The reaper, a tick at a time, and what the loops of a consumer have in common."""

import logging
import threading
from datetime import timedelta

import pytest

from djqueue import queues, signals
from djqueue.backends.base import BaseStore, Entry, Fact, Reaped
from djqueue.consumer import Consumer, maintenance
from djqueue.consumer.loop import Loop
from djqueue.consumer.maintenance import Reaper
from djqueue.decorators import queue_command
from djqueue.exceptions import NotSupported
from djqueue.testing import eventually
from tests.support.consumer import unreachable


@queue_command
def work(number=0):
    return number


@queue_command(shard="all", lease=2)
def in_order(number):
    return number


def a_minute(queue):
    return 60.0


@pytest.mark.backends("memory", "sqlite", "redis")
class TestReaper:
    def test_an_expired_lease_is_given_back_and_counted_as_lost(self, queue, caplog):
        handle = work()
        [lease] = queue.claim(1, 0.05)
        reaper = Reaper([queue], a_minute)
        pause = reaper.tick()
        assert 0 < pause <= max(0.06, lease.until - queue.now() + 0.06) or queue.find(handle.id).state == "ready"
        eventually(lambda: reaper.tick() and queue.find(handle.id).state != "leased")
        record = queue.find(handle.id)
        assert (record.state, record.entry.lost, record.entry.attempts) == ("ready", 1, 1)
        assert "ran out" in caplog.text

    def test_it_comes_back_within_a_quarter_of_a_lease(self, queue):
        pauses = {Reaper([queue], a_minute).tick() for _ in range(20)}
        assert all(12 <= pause <= 15 for pause in pauses)
        assert len(pauses) > 1  # not all consumers at once

    @pytest.mark.backends("memory")
    def test_it_goes_on_at_once_while_there_is_more(self, queue, monkeypatch):
        monkeypatch.setattr(queue, "reap", lambda limit, by: Reaped(limit, 5.0))
        assert Reaper([queue], a_minute).tick() <= 0.05

    @pytest.mark.parametrize("fails", [False, True])
    def test_when_it_comes_late_it_lets_those_speak_who_could_not(self, queue, monkeypatch, fails):
        """As after an outage of the store, or when this process stood still."""
        work()
        keeper = Reaper([queue], lambda queue: 2.0)
        assert 0 < keeper.tick() <= 0.5
        [lease] = queue.claim(1, 0.05)
        if fails:
            with monkeypatch.context() as patch:
                patch.setattr(queue, "reap", unreachable)
                with pytest.raises(ConnectionError):
                    keeper._reap(queue, 2.0)
        eventually(lambda: queue.now() > lease.until + 1.6)
        assert 2.0 <= keeper._reap(queue, 2.0) <= 6.0
        [lease] = queue.touch([lease], 0.05)
        eventually(lambda: queue.now() > lease.until + 0.1)
        assert 0 < keeper._reap(queue, 2.0) <= 0.5
        assert queue.find(lease.entry.id).state == "ready"

    def test_who_is_always_late_reaps_all_the_same(self, queue):
        work()
        late = Reaper([queue], lambda queue: 2.0)
        assert queue.claim(1, 0.001)
        for times in range(maintenance.LATE_TIMES):
            late._by[id(queue)] = (1.0, times)
            assert late._reap(queue, 2.0) > 1
        assert queue.stats().leased == 1
        eventually(lambda: late._reap(queue, 2.0) and queue.stats().leased == 0)

    @pytest.mark.backends("memory")
    def test_sq9_each_queue_is_looked_at_as_often_as_its_own_lease_asks_for(self, backend, settings, monkeypatch):
        settings.QUEUES = backend.queues("default", "long")
        looks, now = [], [1000.0]
        monkeypatch.setattr(maintenance.time, "monotonic", lambda: now[0])
        served = [queues["long"], queues["default"]]
        for queue in served:
            monkeypatch.setattr(queue, "reap", lambda limit, by, alias=queue.alias: looks.append(alias) or Reaped())
        loop = Reaper(served, lambda queue: 60.0 if queue.alias == "long" else 2.0)
        for _ in range(10):
            pause = loop.tick()
            assert 0.4 <= pause <= 0.5
            now[0] += pause
        assert looks == ["long", *["default"] * 10]

    @pytest.mark.backends("memory")
    def test_df22_a_command_that_wants_less_has_all_queues_looked_at_more_often(self, queue):
        assert Consumer(["default"]).shortest_lease_of(queue) <= in_order.policy.lease < queue.lease
        assert Consumer(["default"], lease=0.1).shortest_lease_of(queue) == 0.1

    @pytest.mark.backends("memory")
    def test_it_prunes_now_and_then(self, queue, monkeypatch):
        pruned = []
        monkeypatch.setattr(queue.store, "prune", lambda limit: pruned.append(1) or 0)
        reaper = Reaper([queue], a_minute)
        for _ in range(3):
            reaper.tick()
        assert len(pruned) == 1
        reaper._pruned -= 61
        reaper.tick()
        assert len(pruned) == 2


class TestResults:
    """The reaper keeps no more results of a queue than QUEUE_MAX_RESULTS."""

    def test_those_go_that_would_be_over_first(self, queue, settings, monkeypatch):
        monkeypatch.setattr(maintenance, "PRUNE_BATCH", 2)
        facts = [Fact(f"result:{place}", b"1", 60 + place) for place in range(7)]
        queue.store.put_many(facts)
        Reaper([queue], a_minute).tick()
        assert queue.store.get(facts[0].key) == b"1"
        settings.QUEUE_MAX_RESULTS = 2
        Reaper([queue], a_minute).tick()
        assert queue.store.get_many([fact.key for fact in facts]) == [None] * 5 + [b"1"] * 2

    @pytest.mark.backends("memory")
    def test_a_store_that_cannot_count_them_says_so(self, queue, settings, monkeypatch):
        settings.QUEUE_MAX_RESULTS = 2
        monkeypatch.setattr(type(queue.store), "trim_results", BaseStore.trim_results)
        with pytest.raises(NotSupported, match="MemoryStore cannot count results: leave QUEUE_MAX_RESULTS at None"):
            Reaper([queue], a_minute).tick()


class TestBounds:
    """The reaper keeps the failed queues within QUEUE_MAX_ERRORS and QUEUE_MAX_ERROR_AGE."""

    @pytest.fixture
    def dropped_errors(self):
        told = []

        def receiver(sender, **named):
            told.append((sender, named["queue_name"], named["count"]))

        signals.errors_dropped.connect(receiver)
        yield told
        signals.errors_dropped.disconnect(receiver)

    def fill(self, queue, number):
        assert all(queue.put([Entry(b"", f"{place:02}") for place in range(number)]))
        queue.fail(queue.claim(number))

    def ids(self, queue):
        return [int(record.entry.id) for record in queue.failed.peek("ready", 100)]

    def test_what_died_first_leaves_a_full_failed_queue_and_nothing_leaves_without_bounds(
        self, queue, settings, caplog, dropped_errors
    ):
        self.fill(queue, 7)
        Reaper([queue], a_minute).tick()
        assert (len(queue.failed), dropped_errors) == (7, [])
        settings.QUEUE_MAX_ERRORS = 4
        Reaper([queue], a_minute).tick()
        assert self.ids(queue) == [3, 4, 5, 6]
        assert dropped_errors == [("default", "default", 3)]
        [record] = [record for record in caplog.records if "failed queue" in record.getMessage()]
        assert (record.levelname, record.queue) == ("WARNING", "default")
        assert record.getMessage().startswith("default: 3 entries left the failed queue")
        Reaper([queue], a_minute).tick()
        assert (len(queue.failed), len(dropped_errors)) == (4, 1)

    def test_what_died_long_ago_leaves_too(self, queue, settings, dropped_errors):
        settings.QUEUE_MAX_ERROR_AGE = timedelta(seconds=1)
        self.fill(queue, 2)
        eventually(lambda: Reaper([queue], a_minute).tick() and not len(queue.failed))
        assert sum(count for _, _, count in dropped_errors) == 2
        assert len(queue) == 0

    def test_more_than_a_batch_is_told_as_one(self, queue, settings, monkeypatch, dropped_errors):
        monkeypatch.setattr(maintenance, "PRUNE_BATCH", 3)
        settings.QUEUE_MAX_ERRORS = 1
        self.fill(queue, 8)
        Reaper([queue], a_minute).tick()
        assert (self.ids(queue), dropped_errors) == ([7], [("default", "default", 7)])

    @pytest.mark.backends("memory")
    def test_what_has_left_is_told_even_if_the_store_goes_away(self, queue, settings, monkeypatch, dropped_errors):
        monkeypatch.setattr(maintenance, "PRUNE_BATCH", 3)
        settings.QUEUE_MAX_ERRORS = 1
        answers = iter([3, 3])
        monkeypatch.setattr(queue.failed, "trim", lambda *bounds: next(answers, None) or unreachable())
        with pytest.raises(ConnectionError):
            Reaper([queue], a_minute).tick()
        assert dropped_errors == [("default", "default", 6)]

    @pytest.mark.backends("memory")
    @pytest.mark.parametrize(("name", "value"), [("QUEUE_MAX_ERRORS", 0), ("QUEUE_MAX_ERROR_AGE", 0)])
    def test_a_nought_that_means_no_bound_empties_no_failed_queue(self, queue, settings, name, value):
        setattr(settings, name, value)
        self.fill(queue, 2)
        with pytest.raises(ValueError, match=name):
            Reaper([queue], a_minute).tick()
        assert len(queue.failed) == 2

    @pytest.mark.backends("memory")
    def test_a_queue_without_a_failed_queue_has_no_bounds(self, queue, settings, dropped_errors):
        settings.QUEUE_MAX_ERRORS = 1
        assert queue.failed.failed is None
        assert Reaper([queue.failed], a_minute).tick() > 0


class TestLoop:
    class Duty(Loop):
        def __init__(self, *outcomes):
            super().__init__("duty")
            self.outcomes, self.ticks = list(outcomes), 0
            self.over = threading.Event()

        def tick(self):
            self.ticks += 1
            outcome = self.outcomes.pop(0) if self.outcomes else self.over.set() or 3600
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

    def test_it_waits_longer_after_each_failure_up_to_a_bound_and_reports_only_the_first_in_full(self, caplog):
        caplog.set_level(logging.INFO, "djqueue")
        duty = self.Duty(*[ConnectionError("away")] * 12, 7)
        pauses = [duty.guarded_tick() for _ in range(12)]
        assert pauses == sorted(pauses)
        assert pauses[0] < 1
        assert pauses[-1] == 5.0
        assert duty.guarded_tick() == 7
        told = [(record.levelname, bool(record.exc_info)) for record in caplog.records]
        assert told == [("ERROR", True), *[("WARNING", False)] * 11, ("INFO", False)]
        assert "goes on" in caplog.records[-1].getMessage()

    def test_its_thread_goes_on_and_stops_when_told(self):
        duty = self.Duty(ConnectionError("away"), 0, 0.001)
        duty.start()
        assert duty.over.wait(20)
        duty.stop()
        duty.join(20)
        assert not duty.is_alive()
        assert duty.ticks == 4

    def test_a_word_wakes_it(self):
        duty = self.Duty(3600)
        duty.start()
        deadline = timedelta(seconds=20)
        while not duty.over.wait(0.001) and (deadline := deadline - timedelta(seconds=0.001)):
            duty.wake()
        duty.stop()
        duty.join(20)
        assert duty.ticks >= 2
