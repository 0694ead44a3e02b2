"""What the fetcher claims, from which queue, and what it gives back: a tick at a time."""

import time
from dataclasses import replace

import pytest

from djqueue import Cancelled, queues
from djqueue.consumer.fetcher import UNSETTLED, Pace
from djqueue.decorators import queue_command
from djqueue.flow.limits import Throttle
from djqueue.policies.outcomes import Outcome, Verdict
from djqueue.testing import eventually
from djqueue.utils import clock
from tests.support.consumer import claim_one, message_for, recorded_signals, unreachable
from tests.support.fetcher import FetcherHarness, claimed_once


@queue_command
def work(number=0):
    return number


@queue_command(shard="all")
def in_order(number):
    return number


@queue_command(throttle=Throttle(1000, 1))
def gently(number):
    return number


class TestFeeder:
    def test_it_claims_what_the_pool_can_begin_now(self, queue):
        handles = work.enqueue_many([(number,) for number in range(10)])
        harness = claimed_once(queue, threads=4)
        assert harness.ids() == {handle.id for handle in handles[:4]}
        assert harness.pool.waiting == 4
        harness.fetcher.tick()
        assert len(harness.in_flight) == 4

    def test_a_worker_that_ends_makes_room(self, queue):
        handles = work.enqueue_many([(number,) for number in range(3)])
        harness = claimed_once(queue, threads=1)
        first = harness.begin()
        harness.fetcher._prefetch.measure = lambda now: 0
        harness.fetcher.tick()
        assert len(harness.in_flight) == 1
        harness.end(first)
        harness.settle()
        harness.fetcher.tick()
        assert harness.ids() == {handles[1].id}

    @pytest.mark.backends("memory")
    def test_of_what_may_wait_it_claims_one_half_while_the_other_is_run(self, queue):
        work.enqueue_many([(number,) for number in range(40)])
        harness = FetcherHarness(queue, threads=1)
        harness.fetcher._prefetch.measure = lambda now: 10
        harness.fetcher.tick()
        assert len(harness.in_flight) == 1 + 5
        harness.begin()
        harness.fetcher.tick()
        assert len(harness.in_flight) == 1 + 10
        harness.pool.room.wait = lambda seconds: True
        harness.fetcher.tick()
        assert len(harness.in_flight) == 1 + 10

    def test_it_asks_once_which_of_those_that_ran_before_were_cancelled(self, queue, monkeypatch):
        handles = work.enqueue_many([(number,) for number in range(4)])
        leases = queue.claim(3)
        assert [handle.cancel() for handle in handles[:2]] == [Cancelled.RUNNING] * 2
        queue.release(leases)
        read, asked = queue.store.get_many, []
        monkeypatch.setattr(queue.store, "get_many", lambda keys: asked.append(len(keys)) or read(keys))
        harness = FetcherHarness(queue, threads=4)
        eventually(lambda: harness.fetcher.tick() or len(harness.in_flight) == 4)
        assert sum(asked) == 3
        assert {held.lease.entry.id for held in harness.in_flight if held.cancelled} == {one.id for one in handles[:2]}

    @pytest.mark.backends("memory")
    def test_if_the_store_cannot_say_so_they_are_run(self, queue, monkeypatch, caplog):
        work()
        queue.release(queue.claim(1))
        monkeypatch.setattr(queue.store, "get_many", lambda keys: 1 / 0)
        harness = claimed_once(queue)
        assert harness.begin().cancelled is False
        assert "cannot be known" in caplog.text

    @pytest.mark.backends("memory")
    def test_what_may_not_wait_for_a_worker_is_not_asked_for_again_before_one_is_free(self, queue):
        gently.enqueue_many([(number,) for number in range(3)])
        harness = FetcherHarness(queue, threads=1)
        harness.fetcher._prefetch.measure = lambda now: 5
        harness.fetcher.tick()
        held = harness.begin()
        assert len(harness.in_flight) == 1
        waits = []
        harness.fetcher._nap = lambda *times: waits.append(min(times))
        harness.pool.room.wait = waits.append  # for a worker that ends
        harness.fetcher.tick()
        assert (waits, harness.fetcher.dry) == ([0.05], None)
        harness.end(held)
        harness.settle()
        harness.fetcher.tick()
        assert len(harness.in_flight) == 1

    def test_it_takes_no_more_than_its_rate_limit(self, queue):
        work.enqueue_many([(number,) for number in range(10)])
        harness = FetcherHarness(queue, threads=4, limit=3)
        for _ in range(3):
            harness.fetcher.tick()
        assert len(harness.in_flight) == 3
        assert harness.run_limit.take(1) == 0

    def test_an_empty_claim_costs_no_rate_limit(self, queue):
        harness = claimed_once(queue, threads=4, limit=3)
        assert harness.fetcher.dry is not None
        assert harness.run_limit.take(10) == 3

    @pytest.mark.backends("memory")
    def test_a_claim_that_raises_costs_no_rate_limit(self, queue, monkeypatch):
        harness = FetcherHarness(queue, threads=4, limit=3)
        monkeypatch.setattr(queue, "claim", unreachable)
        with pytest.raises(ConnectionError):
            harness.fetcher.tick()
        assert harness.run_limit.take(10) == 3

    def test_work_that_no_worker_begins_goes_back_to_its_place(self, queue, monkeypatch):
        handles = work.enqueue_many([(number,) for number in range(4)])
        harness = claimed_once(queue, threads=2)
        harness.begin()
        held = next(held for held in harness.in_flight if held.began is None)
        held.since += 60
        harness.fetcher._await_room()
        assert harness.ids() == {handles[0].id, handles[1].id}  # it has not waited for long
        held.since -= 70
        harness.pool.room.clear()
        with recorded_signals("released") as told:
            harness.fetcher._await_room()
            harness.settle()
        assert [about["id"] for _, about in told] == [handles[1].id]
        entry = queue.find(handles[1].id).entry
        assert entry.attempts == 0
        assert claim_one(queue).entry.id == handles[1].id

    @pytest.mark.backends("memory")
    def test_what_a_worker_is_about_to_begin_counts_as_running(self, queue):
        """Between taking a message and beginning it a worker may stand still; a stop must wait for it."""
        work()
        harness = claimed_once(queue)
        [held] = harness.pool.next()
        harness.fetcher.hand_back("the consumer stops")
        assert harness.in_flight.running() == [held]
        harness.end(held)
        assert harness.in_flight.running() == []

    @pytest.mark.backends("memory")
    def test_what_has_lapsed_is_not_begun(self, queue):
        work()
        harness = claimed_once(queue, threads=1)
        [held] = harness.in_flight
        held.touched -= 1000
        harness.pool.start()
        with recorded_signals("started", "released") as told:
            eventually(lambda: len(harness.settler))
            harness.settle()
        harness.pool.stop()
        [(name, about)] = told
        assert (name, about["reason"]) == ("released", "its lease ran out before it was begun")
        assert claim_one(queue).entry.attempts == 1

    @pytest.mark.backends("memory", "redis")
    def test_after_a_stop_what_was_claimed_goes_back(self, queue):
        handle = work()
        harness = FetcherHarness(queue)
        harness.fetcher.stop()
        harness.fetcher.tick()
        harness.settle()
        assert len(harness.in_flight) == 0
        assert claim_one(queue).entry.id == handle.id


@pytest.fixture
def three_queues(backend, settings):
    """Three queues."""
    settings.QUEUES = backend.queues("default", "a", "b", "c")
    return [queues[alias] for alias in "abc"]


@pytest.mark.backends("memory")
class TestTurns:
    def served(self, harness, ticks):
        harness.fetcher._prefetch.measure = lambda now: 0
        order = []
        for _ in range(ticks):
            before = set(harness.in_flight)
            harness.fetcher.tick()
            [held] = set(harness.in_flight) - before
            order.append(held.queue.alias)
            harness.begin()
            harness.end(held)
            harness.settle()
        return order

    def fill(self, *aliases):
        for alias in aliases:
            work.using(queue_name=alias).enqueue_many([(number,) for number in range(20)])

    @pytest.mark.parametrize("filled", ["abc", "ac"])
    def test_those_with_work_have_fair_turns(self, three_queues, filled):
        self.fill(*filled)
        assert self.served(FetcherHarness(*three_queues, threads=1), 6) == [*filled] * (6 // len(filled))

    def test_strict_is_the_order_given(self, three_queues):
        self.fill("b", "c")
        harness = FetcherHarness(*three_queues, threads=1, strict=True)
        assert self.served(harness, 4) == ["b"] * 4
        work.using(queue_name="a").enqueue()
        assert self.served(harness, 2) == ["a", "b"]


class TestWhatComesAgain:
    """While a store is away what is held cannot be extended, and the reaper of the same process may come first."""

    def lose(self, queue, some):
        queue.touch([held.lease for held in some], 0.001)
        for held in some:
            held.touched -= held.span
        eventually(lambda: queue.reap().count == len(some))

    def test_what_runs_here_is_not_started_beside_itself(self, queue):
        work()
        harness = claimed_once(queue, limit=2)
        held = harness.begin()
        first = held.lease
        self.lose(queue, [held])
        harness.fetcher.tick()
        assert (harness.pool.waiting, len(harness.in_flight), harness.run_limit.take(2)) == (0, 1, 1)
        assert (held.lease.entry, held.lease.token != first.token, held.lapsed(clock())) == (first.entry, True, False)
        harness.end(held)
        harness.settle()
        assert (queue.stats().done, queue.stats().leased, len(harness.in_flight)) == (1, 0, 0)

    def test_what_has_ended_is_not_begun_again(self, queue):
        work()
        harness = claimed_once(queue)
        held = harness.begin()
        harness.end(held)
        self.lose(queue, [held])
        with recorded_signals("completed", "lease_lost") as told:
            harness.fetcher.tick()
            harness.settle()
        assert [name for name, _ in told] == ["completed"]
        assert (harness.pool.waiting, queue.stats().done, len(harness.in_flight)) == (0, 1, 0)

    def test_nor_if_the_store_was_just_being_told(self, queue, monkeypatch):
        work()
        harness, complete, comes = FetcherHarness(queue), queue.complete, [True]
        harness.fetcher.tick()
        held = harness.begin()
        harness.end(held)

        def slowly(*args):
            while comes:
                self.lose(queue, [held])
                harness.fetcher.tick()
                comes.clear()
            return complete(*args)

        monkeypatch.setattr(queue, "complete", slowly)
        harness.settle()
        assert (harness.pool.waiting, queue.stats().done, len(harness.in_flight)) == (0, 1, 0)

    def test_what_goes_back_comes_again_as_ever(self, queue):
        work()
        harness = claimed_once(queue)
        held = harness.begin()
        harness.pool.workers[0].finished += 1
        harness.pool.finish(held, Verdict(Outcome.RETRY, "again"))
        self.lose(queue, [held])
        harness.fetcher.tick()
        assert harness.pool.waiting == 1
        harness.settle()
        assert queue.stats().leased == 1

    @pytest.mark.parametrize("limit", [4, 6])
    def test_what_is_behind_it_in_its_lane_comes_later(self, queue, limit):
        handles = in_order.enqueue_many([(number,) for number in range(3)])
        harness = claimed_once(queue, limit=limit)
        unit = harness.pool.next()
        unit[0].began = clock()
        self.lose(queue, unit)
        harness.fetcher.tick()
        assert harness.pool.waiting == 0
        harness.settle()
        assert [queue.find(handle.id).state for handle in handles] == ["leased", "ready", "ready"]
        assert harness.run_limit.take(10) == limit - 3


@pytest.mark.backends("memory")
class TestOneThatFails:
    """A queue that cannot be asked holds up no other; a store that is away is one failure."""

    @pytest.mark.parametrize("strict", [False, True])
    def test_the_others_are_served(self, three_queues, strict, monkeypatch, caplog):
        monkeypatch.setattr(three_queues[0], "claim", unreachable)
        harness = FetcherHarness(*three_queues, threads=4, strict=strict)
        handles = [work.using(queue_name=alias).enqueue() for alias in "bc"]
        for _ in handles:
            assert harness.fetcher.guarded_tick() == 0
            harness.begin()
        assert harness.ids() == {handle.id for handle in handles}
        assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == [
            "claim() of a failed (1 in a row): the store is unreachable; trying again in 0.2 s"
        ]

    def test_it_is_asked_again_less_and_less_often_and_then_as_ever(self, three_queues, monkeypatch, caplog):
        caplog.set_level("INFO", "djqueue")
        asked = []
        harness = FetcherHarness(*three_queues, threads=4)
        began = time.monotonic()
        with monkeypatch.context() as broken:
            broken.setattr(three_queues[0], "claim", lambda *args, **how: asked.append(1) or unreachable())
            for _ in range(10):
                harness.fetcher._nap = lambda *times: None
                harness.fetcher.tick()
            assert len(asked) == 1 or time.monotonic() > began + 0.2
            eventually(lambda: harness.fetcher.tick() or len(asked) >= 2)
        handle = work.using(queue_name="a").enqueue()
        eventually(lambda: harness.fetcher.tick() or harness.ids() == {handle.id})
        assert "claim() of a goes on" in caplog.text

    def test_it_is_not_drained_and_nobody_sleeps_past_the_moment_when_it_is_asked_again(
        self, three_queues, monkeypatch
    ):
        waits = []
        monkeypatch.setattr(three_queues[0], "claim", unreachable)
        harness = FetcherHarness(*three_queues, threads=4)
        harness.fetcher._pace = Pace(60, 1, 60)
        harness.fetcher._nap = lambda *times: waits.append(min(times))
        harness.fetcher.tick()
        assert 0 <= waits[0] <= 0.2
        assert harness.fetcher.dry is None

    def test_for_want_of_memory_the_feeder_starves_though_others_are_served(self, three_queues, monkeypatch):
        def starve(*args, **how):
            raise MemoryError

        monkeypatch.setattr(three_queues[0], "claim", starve)
        harness = FetcherHarness(*three_queues, threads=4)
        handle = work.using(queue_name="b").enqueue()
        assert harness.fetcher.guarded_tick() > 0
        assert harness.ids() == {handle.id}
        eventually(lambda: harness.fetcher.guarded_tick() and harness.fetcher.starves)

    def test_if_all_fail_that_is_told_once(self, three_queues, monkeypatch, caplog):
        for queue in three_queues:
            monkeypatch.setattr(queue, "claim", unreachable)
        harness = FetcherHarness(*three_queues, threads=4, limit=3)
        assert harness.fetcher.guarded_tick() > 0
        assert harness.fetcher.guarded_tick() > 0
        assert [(record.levelname, record.getMessage().partition(":")[0]) for record in caplog.records] == [
            ("ERROR", f"{harness.fetcher.name} failed (1 in a row)"),
            ("WARNING", f"{harness.fetcher.name} failed (2 in a row)"),
        ]
        assert harness.run_limit.take(10) == 3

    def test_a_server_that_does_not_answer_is_asked_once_and_then_for_another_queue(self, three_queues, monkeypatch):
        asked, now = [], [1000.0]

        def claim(alias):
            asked.append(alias)
            now[0] += 5
            raise ConnectionError("away")

        monkeypatch.setattr("djqueue.consumer.fetcher.clock", lambda: now[0])
        for queue in three_queues:
            monkeypatch.setattr(queue, "claim", lambda *args, alias=queue.alias, **how: claim(alias))
        harness = FetcherHarness(*three_queues, threads=4)
        for _ in range(4):
            harness.fetcher.guarded_tick()
        assert asked == ["a", "b", "c", "a"]


@pytest.mark.backends("memory", "sqlite", "redis")
class TestSuspects:
    """What a worker has died with is claimed alone, so that its neighbours are not blamed."""

    def put(self, queue, lost):
        entry = replace(message_for(queue, work.name), lost=lost)
        queue.put([entry])
        return entry.id

    def test_a_suspect_is_claimed_alone(self, queue):
        before, suspect, after = self.put(queue, 0), self.put(queue, 1), self.put(queue, 0)
        harness = claimed_once(queue)
        harness.settle()
        assert harness.ids() == {before}  # the others went back, uncounted and in their places
        assert [queue.find(id).entry.attempts for id in (suspect, after)] == [0, 0]
        seen = []
        for _ in range(8):
            harness.fetcher.tick()
            harness.settle()
            if harness.ids():
                seen.append(harness.ids())
                while harness.pool.waiting:
                    harness.end(harness.begin())
                harness.settle()
        assert seen == [{before}, {suspect}, {after}]

    def test_two_suspects_do_not_run_at_once(self, queue):
        first, second = self.put(queue, 1), self.put(queue, 2)
        harness = FetcherHarness(queue)
        for _ in range(4):
            harness.fetcher.tick()
            harness.settle()
        assert harness.ids() == {first}
        held = harness.begin()
        harness.fetcher.tick()
        harness.settle()
        assert harness.ids() == {first}
        assert queue.find(second).entry.attempts == 0
        harness.end(held)

    def test_nothing_begins_while_one_runs(self, queue):
        suspect = self.put(queue, 1)
        harness = claimed_once(queue)
        held = harness.begin()
        fresh = self.put(queue, 0)
        harness.fetcher.tick()
        harness.settle()
        assert harness.ids() == {suspect}
        harness.end(held)
        harness.settle()
        harness.fetcher.tick()
        assert harness.ids() == {fresh}

    def test_it_waits_for_what_runs_but_not_for_ever(self, queue, monkeypatch):
        running = self.put(queue, 0)
        harness = claimed_once(queue)
        harness.begin()
        suspect, fresh = self.put(queue, 1), self.put(queue, 0)
        for _ in range(4):
            harness.fetcher.tick()
            harness.settle()
        assert harness.ids() == {running}
        assert harness.fetcher._parts.quarantine.awaited
        monkeypatch.setattr("djqueue.consumer.fetcher.SUSPECT_PATIENCE", 0.0)
        harness.fetcher.tick()
        assert harness.ids() == {running, suspect}
        harness.fetcher.tick()
        harness.settle()
        assert harness.ids() == {running, suspect}
        assert queue.find(fresh).entry.attempts == 0

    def test_where_a_process_of_its_own_can_be_had_it_is_claimed_with_others(self, queue):
        ids = {self.put(queue, lost) for lost in (0, 1, 2)}
        harness = FetcherHarness(queue, alone=())
        harness.fetcher.tick()
        assert harness.ids() == ids


@pytest.mark.backends("memory", "sqlite")
class TestStepsThatRaise:
    """What was claimed and could not be given to a worker goes back, whichever step between the two raised."""

    STEPS = {
        "continue": "djqueue.consumer.in_flight.InFlight.resume",
        "paused": "djqueue.consumer.operators.OperatorChannels.has_paused_commands",
        "units": "djqueue.consumer.fetcher.units_of",
        "cancelled": "djqueue.consumer.fetcher.note_cancelled",
        "submit": "djqueue.consumer.pool.Pool.submit",
        "inbox": "djqueue.consumer.pool.Affinity.inbox_of",
        "others": "djqueue.consumer.pool.Pool._release_for_others",
    }

    @pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
    def test_it_goes_back_uncounted_and_within_the_limit(self, queue, monkeypatch, step):
        ids = {work.enqueue(number).id for number in range(3)}
        queue.release(queue.claim(3))  # so that they may be of those that still run here
        harness = FetcherHarness(queue, threads=3, limit=3)
        with monkeypatch.context() as patch:
            patch.setattr(step, lambda *args, **named: (_ for _ in ()).throw(MemoryError("injected")))
            harness.fetcher.guarded_tick()
        assert len(harness.in_flight) == 3
        harness.fetcher.guarded_tick()
        harness.settle()
        for _ in range(3):
            harness.fetcher.guarded_tick()
            harness.settle()
        assert harness.ids() == ids
        assert (len(harness.in_flight), harness.pool.waiting, harness.run_limit.take(9)) == (3, 3, 0)
        while harness.pool.waiting:
            harness.end(harness.begin())
        harness.settle()
        assert (len(harness.in_flight), queue.stats().done) == (0, 3)


class TestSettling:
    """A busy fetcher settles with its claims."""

    @pytest.mark.backends("memory", "sqlite", "redis")
    def test_much_that_is_done_is_settled_before_more_is_claimed(self, queue):
        """Also while workers ask for more all the time."""
        work.enqueue_many([(number,) for number in range(UNSETTLED + 10)])
        harness = FetcherHarness(queue)
        harness.fetcher._submit(harness.in_flight.take(queue, queue.claim(UNSETTLED + 1, begin=False), clock()))
        for _ in range(UNSETTLED + 1):
            harness.end(harness.begin())
        harness.pool.room.wait = lambda seconds: True
        harness.fetcher.tick()
        assert (len(harness.settler), len(harness.in_flight), queue.stats().done) == (0, 0, UNSETTLED + 1)

    @pytest.mark.backends("memory")
    def test_what_one_connection_is_to_be_told_does_not_wait_for_another(self, backend, settings, monkeypatch):
        settings.QUEUES = backend.queues("default", "other")
        for alias in ("default", "other"):
            work.using(queue_name=alias).enqueue()
        monkeypatch.setattr(type(queues["other"]), "connection_key", property(id))
        harness = FetcherHarness(queues["default"], queues["other"], strict=True)
        for _ in range(2):
            harness.fetcher.tick()
            harness.end(harness.begin())
        harness.fetcher.tick()
        assert [queues[alias].stats().done for alias in ("default", "other")] == [0, 0]
        harness.settle()
        assert [queues[alias].stats().done for alias in ("default", "other")] == [1, 1]
