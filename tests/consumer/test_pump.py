"""What the pump claims, from which queue, and what it gives back: a turn at a time."""

import time
from dataclasses import replace

import pytest

from djqueue import Cancelled, queues
from djqueue.consumer.claiming import UNSETTLED, Claiming
from djqueue.consumer.pace import Pace
from djqueue.consumer.pump import Pump
from djqueue.decorators import queue_command
from djqueue.flow.limits import Throttle
from djqueue.policies.outcomes import Outcome, Verdict
from djqueue.testing import eventually
from djqueue.utils import clock
from tests.support.consumer import claim_one, message_for, recorded_signals, unreachable
from tests.support.pump import PumpHarness, claimed_once, set_clock


@queue_command
def work(number=0):
    return number


@queue_command(shard="all")
def in_order(number):
    return number


@queue_command(throttle=Throttle(1000, 1))
def gently(number):
    return number


class TestClaims:
    def test_it_claims_what_the_pool_can_begin_now(self, queue):
        handles = work.enqueue_many([(number,) for number in range(10)])
        harness = claimed_once(queue, threads=4)
        assert harness.ids() == {handle.id for handle in handles[:4]}
        assert harness.pool.waiting == 4
        harness.turn()
        assert len(harness.in_flight) == 4

    def test_a_worker_that_ends_makes_room(self, queue):
        handles = work.enqueue_many([(number,) for number in range(3)])
        harness = claimed_once(queue, threads=1)
        first = harness.begin()
        harness.pump.claiming.prefetch.measure = lambda now: 0
        harness.turn()
        assert len(harness.in_flight) == 1
        harness.end(first)
        harness.settle()
        harness.turn()
        assert harness.ids() == {handles[1].id}

    @pytest.mark.backends("memory")
    def test_of_what_may_wait_it_holds_no_more_than_the_workers_are_seen_to_finish_soon(self, queue):
        work.enqueue_many([(number,) for number in range(40)])
        harness = PumpHarness(queue, threads=1)
        harness.pump.claiming.prefetch.measure = lambda now: 10
        harness.turn()
        assert len(harness.in_flight) == 1 + 10
        first = harness.begin()
        harness.turn()
        assert len(harness.in_flight) == 1 + 10
        harness.end(first)
        harness.turn()
        assert (len(harness.ids()), queue.stats().done) == (1 + 10, 1)

    def test_it_asks_once_which_of_those_that_ran_before_were_cancelled(self, queue, monkeypatch):
        handles = work.enqueue_many([(number,) for number in range(4)])
        leases = queue.claim(3)
        assert [handle.cancel() for handle in handles[:2]] == [Cancelled.RUNNING] * 2
        queue.release(leases)
        read, asked = queue.store.get_many, []
        monkeypatch.setattr(queue.store, "get_many", lambda keys: asked.append(len(keys)) or read(keys))
        harness = PumpHarness(queue, threads=4)
        eventually(lambda: harness.turn() or len(harness.in_flight) == 4)
        assert sum(asked) == 3
        assert {message.lease.entry.id for message in harness.in_flight if message.cancelled} == {
            one.id for one in handles[:2]
        }

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
        harness = PumpHarness(queue, threads=1)
        harness.pump.claiming.prefetch.measure = lambda now: 5
        harness.turn()
        message = harness.begin()
        harness.pump.pace = Pace(1, 1, 1)
        assert len(harness.in_flight) == 1
        assert harness.turn() == pytest.approx(0.05)
        assert harness.pump.mail.dry is None
        harness.end(message)
        harness.settle()
        harness.turn()
        assert len(harness.in_flight) == 1

    def test_it_takes_no_more_than_its_rate_limit(self, queue):
        work.enqueue_many([(number,) for number in range(10)])
        harness = PumpHarness(queue, threads=4, limit=3)
        for _ in range(3):
            harness.turn()
        assert len(harness.in_flight) == 3
        assert harness.run_limit.take(1) == 0

    def test_an_empty_claim_costs_no_rate_limit(self, queue):
        harness = claimed_once(queue, threads=4, limit=3)
        assert harness.pump.mail.dry is not None
        assert harness.run_limit.take(10) == 3

    @pytest.mark.backends("memory")
    def test_a_claim_that_raises_costs_no_rate_limit(self, queue, monkeypatch):
        harness = PumpHarness(queue, threads=4, limit=3)
        monkeypatch.setattr(queue, "claim", unreachable)
        harness.turn()
        assert harness.pump.failures == 1
        assert harness.run_limit.take(10) == 3

    def test_work_that_no_worker_begins_goes_back_to_its_place(self, queue):
        handles = work.enqueue_many([(number,) for number in range(4)])
        harness = claimed_once(queue, threads=2)
        harness.begin()
        message = next(one for one in harness.in_flight if one.began is None)
        harness.pump.leases._look_at = 0.0
        harness.settle()
        assert harness.ids() == {handles[0].id, handles[1].id}  # it has not waited for long
        message.asked -= 10
        harness.pump.leases._look_at = 0.0
        with recorded_signals("released") as told:
            harness.settle()
        assert [about["id"] for _, about in told] == [handles[1].id]
        entry = queue.find(handles[1].id).entry
        assert entry.attempts == 0
        assert claim_one(queue).entry.id == handles[1].id

    @pytest.mark.backends("memory")
    def test_what_a_worker_is_about_to_begin_does_not_go_back(self, queue):
        """Between taking a message and beginning it a worker may stand still; a stop must wait for it."""
        handle = work()
        harness = claimed_once(queue)
        [message] = harness.pool.next()
        harness.pump.claiming._hand_back("the consumer stops")
        harness.settle()
        assert harness.ids() == {handle.id}
        harness.end(message)
        assert harness.ids() == set()

    @pytest.mark.backends("memory")
    def test_what_has_lapsed_is_not_begun(self, queue):
        work()
        harness = claimed_once(queue, threads=1)
        [message] = harness.in_flight
        message.touched -= 1000
        harness.pool.start()
        with recorded_signals("started", "released") as told:
            eventually(lambda: len(harness.pump.settling))
            harness.settle()
        harness.pool.stop()
        [(name, about)] = told
        assert (name, about["reason"]) == ("released", "its lease ran out before it was begun")
        assert claim_one(queue).entry.attempts == 1

    @pytest.mark.backends("memory", "redis")
    def test_after_a_stop_nothing_is_claimed(self, queue):
        handle = work()
        harness = PumpHarness(queue)
        harness.pump.mail.stop()
        harness.turn()
        assert (len(harness.in_flight), harness.pump.mail.has_stopped.is_set()) == (0, True)
        assert claim_one(queue).entry.id == handle.id

    @pytest.mark.backends("memory", "redis")
    def test_what_is_being_claimed_at_a_stop_goes_back(self, queue, monkeypatch):
        handle, exchange = work(), queue.exchange
        harness = PumpHarness(queue)
        monkeypatch.setattr(queue, "exchange", lambda *args: harness.pump.mail.stop() or exchange(*args))
        for _ in range(2):
            harness.turn()
        assert (len(harness.in_flight), harness.pool.waiting) == (0, 0)
        assert (queue.find(handle.id).entry.attempts, claim_one(queue).entry.id) == (0, handle.id)


@pytest.fixture
def three_queues(backend, settings):
    """Three queues."""
    settings.QUEUES = backend.queues("default", "a", "b", "c")
    return [queues[alias] for alias in "abc"]


@pytest.mark.backends("memory")
class TestTurns:
    def served(self, harness, ticks):
        harness.pump.claiming.prefetch.measure = lambda now: 0
        order = []
        for _ in range(ticks):
            before = set(harness.in_flight)
            harness.turn()
            [message] = set(harness.in_flight) - before
            order.append(message.queue.alias)
            harness.begin()
            harness.end(message)
            harness.settle()
        return order

    def fill(self, *aliases):
        for alias in aliases:
            work.using(queue_name=alias).enqueue_many([(number,) for number in range(20)])

    @pytest.mark.parametrize("filled", ["abc", "ac"])
    def test_those_with_work_have_fair_turns(self, three_queues, filled):
        self.fill(*filled)
        assert self.served(PumpHarness(*three_queues, threads=1), 6) == [*filled] * (6 // len(filled))

    def test_strict_is_the_order_given(self, three_queues):
        self.fill("b", "c")
        harness = PumpHarness(*three_queues, threads=1, strict=True)
        assert self.served(harness, 4) == ["b"] * 4
        work.using(queue_name="a").enqueue()
        assert self.served(harness, 2) == ["a", "b"]


class TestWhatComesAgain:
    """While a store is away what is message cannot be extended, and the reaper of the same process may come first."""

    def lose(self, queue, some):
        queue.touch([message.lease for message in some], 0.001)
        for message in some:
            message.touched -= message.span
        eventually(lambda: queue.reap().count == len(some))

    def test_what_runs_here_is_not_started_beside_itself(self, queue):
        work()
        harness = claimed_once(queue, limit=2)
        message = harness.begin()
        first = message.lease
        self.lose(queue, [message])
        harness.turn()
        assert (harness.pool.waiting, len(harness.in_flight), harness.run_limit.take(2)) == (0, 1, 1)
        assert (message.lease.entry, message.lease.token != first.token, message.lapsed(clock())) == (
            first.entry,
            True,
            False,
        )
        harness.end(message)
        harness.settle()
        assert (queue.stats().done, queue.stats().leased, len(harness.in_flight)) == (1, 0, 0)

    def test_what_has_ended_is_not_begun_again(self, queue):
        work()
        harness = claimed_once(queue)
        message = harness.begin()
        harness.end(message)
        self.lose(queue, [message])
        with recorded_signals("completed", "lease_lost") as told:
            harness.turn()
            harness.settle()
        assert [name for name, _ in told] == ["completed"]
        assert (harness.pool.waiting, queue.stats().done, len(harness.in_flight)) == (0, 1, 0)

    def test_what_goes_back_comes_again_as_ever(self, queue):
        work()
        harness = claimed_once(queue)
        message = harness.begin()
        harness.pool.workers[0].finished += 1
        harness.pool.finish(message, Verdict(Outcome.RETRY, "again"))
        self.lose(queue, [message])
        harness.turn()
        assert harness.pool.waiting == 1
        harness.settle()
        assert queue.stats().leased == 1

    def test_what_went_back_unknown_to_us_is_held_when_it_comes_again(self, queue, monkeypatch):
        handle, release = work(), queue.release
        harness = claimed_once(queue)
        with monkeypatch.context() as broken:
            broken.setattr(queue, "release", lambda leases: release(leases) and unreachable())
            harness.pump.claiming._hand_back("every worker is busy")
            harness.turn()
        message = harness.begin()
        with recorded_signals("released", "lease_lost") as told:
            eventually(lambda: harness.turn() is not None and not len(harness.pump.settling))
        assert [name for name, _ in told] == ["released"]
        assert (harness.pump.mail.holds(message), harness.ids()) == (True, {handle.id})

    def test_what_was_said_to_be_lost_goes_on_once_it_is_ours_again(self, queue, monkeypatch, caplog):
        work()
        harness = claimed_once(queue)
        message = harness.begin()
        self.lose(queue, [message])
        harness.pump.leases._look_at = 0.0
        with monkeypatch.context() as gone:
            gone.setattr(queue, "touch", lambda *args: [])
            harness.settle()
        assert (message.lost, "is lost" in caplog.text) == (True, True)
        harness.turn()
        assert (message.lost, message.lapsed(clock())) == (False, False)

    def test_of_a_lane_all_that_its_worker_has_goes_on(self, queue):
        handles = in_order.enqueue_many([(number,) for number in range(3)])
        harness = claimed_once(queue, limit=4)
        unit = harness.pool.next()
        unit[0].began = clock()
        self.lose(queue, unit)
        harness.turn()
        assert (harness.pool.waiting, harness.in_flight) == (0, unit)
        for message in unit:
            harness.end(message)
        harness.settle()
        assert [queue.find(handle.id) for handle in handles] == [None] * 3
        assert (queue.stats().done, harness.run_limit.take(10)) == (3, 1)

    @pytest.mark.parametrize("limit", [2, 6])
    def test_what_is_behind_it_in_its_lane_comes_later(self, queue, limit):
        handles = [in_order(0)]
        harness = claimed_once(queue, limit=limit)
        message = harness.begin()
        handles += in_order.enqueue_many([(number,) for number in (1, 2)])
        self.lose(queue, [message])
        harness.turn()
        assert harness.pool.waiting == 0
        harness.settle()
        assert [queue.find(handle.id).state for handle in handles] == ["leased", "ready", "ready"]
        assert harness.run_limit.take(10) == limit - 1


@pytest.mark.backends("memory")
class TestOneThatFails:
    """A queue that cannot be asked holds up no other; a store that is away is one failure."""

    @pytest.mark.parametrize("strict", [False, True])
    def test_the_others_are_served(self, three_queues, strict, monkeypatch, caplog):
        monkeypatch.setattr(three_queues[0], "claim", unreachable)
        harness = PumpHarness(*three_queues, threads=4, strict=strict)
        handles = [work.using(queue_name=alias).enqueue() for alias in "bc"]
        for _ in handles:
            assert harness.turn() == 0
            harness.begin()
        assert harness.ids() == {handle.id for handle in handles}
        assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == [
            "claim() of a failed (1 in a row): the store is unreachable; trying again in 0.2 s"
        ]

    def test_it_is_asked_again_less_and_less_often_and_then_as_ever(self, three_queues, monkeypatch, caplog):
        caplog.set_level("INFO", "djqueue")
        asked = []
        harness = PumpHarness(*three_queues, threads=4)
        began = time.monotonic()
        with monkeypatch.context() as broken:
            broken.setattr(three_queues[0], "claim", lambda *args, **how: asked.append(1) or unreachable())
            for _ in range(10):
                harness.turn()
            assert len(asked) == 1 or time.monotonic() > began + 0.2
            eventually(lambda: harness.turn() and len(asked) >= 2)
        handle = work.using(queue_name="a").enqueue()
        eventually(lambda: harness.turn() is not None and harness.ids() == {handle.id})
        assert "claim() of a goes on" in caplog.text

    def test_it_is_not_drained_and_nobody_sleeps_past_the_moment_when_it_is_asked_again(
        self, three_queues, monkeypatch
    ):
        monkeypatch.setattr(three_queues[0], "claim", unreachable)
        harness = PumpHarness(*three_queues, threads=4)
        harness.pump.pace = Pace(60, 1, 60)
        assert 0 <= harness.turn() <= 0.2
        assert harness.pump.mail.dry is None

    def test_for_want_of_memory_the_pump_starves_though_others_are_served(self, three_queues, monkeypatch):
        def starve(*args, **how):
            raise MemoryError

        monkeypatch.setattr(three_queues[0], "claim", starve)
        harness = PumpHarness(*three_queues, threads=4)
        handle = work.using(queue_name="b").enqueue()
        harness.turn()
        assert harness.ids() == {handle.id}
        eventually(lambda: harness.turn() is not None and harness.pump.starves)

    def test_if_all_fail_that_is_reported_once(self, three_queues, monkeypatch, caplog):
        for queue in three_queues:
            monkeypatch.setattr(queue, "claim", unreachable)
        harness = PumpHarness(*three_queues, threads=4, limit=3)
        assert harness.turn() > 0
        eventually(lambda: harness.turn() > 0 and harness.pump.failures == 2)
        assert [(record.levelname, record.getMessage().partition(":")[0]) for record in caplog.records] == [
            ("ERROR", f"{harness.pump.name} failed (1 in a row)"),
            ("WARNING", f"{harness.pump.name} failed (2 in a row)"),
        ]
        assert harness.run_limit.take(10) == 3

    def test_a_server_that_does_not_answer_is_asked_once_and_then_for_another_queue(self, three_queues, monkeypatch):
        asked, now = [], [1000.0]

        def claim(alias):
            asked.append(alias)
            now[0] += 5
            raise ConnectionError("away")

        set_clock(monkeypatch, lambda: now[0])
        monkeypatch.setattr("djqueue.consumer.loop.pause_after", lambda failures: 0.0)
        for queue in three_queues:
            monkeypatch.setattr(queue, "claim", lambda *args, alias=queue.alias, **how: claim(alias))
        harness = PumpHarness(*three_queues, threads=4)
        for _ in range(8):  # after each call that fails late, a turn only extends and settles
            harness.turn()
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
            harness.turn()
            harness.settle()
            if harness.ids():
                seen.append(harness.ids())
                while harness.pool.waiting:
                    harness.end(harness.begin())
                harness.settle()
        assert seen == [{before}, {suspect}, {after}]

    def test_two_suspects_do_not_run_at_once(self, queue):
        first, second = self.put(queue, 1), self.put(queue, 2)
        harness = PumpHarness(queue)
        for _ in range(4):
            harness.turn()
            harness.settle()
        assert harness.ids() == {first}
        message = harness.begin()
        harness.turn()
        harness.settle()
        assert harness.ids() == {first}
        assert queue.find(second).entry.attempts == 0
        harness.end(message)

    def test_nothing_begins_while_one_runs(self, queue):
        suspect = self.put(queue, 1)
        harness = claimed_once(queue)
        message = harness.begin()
        fresh = self.put(queue, 0)
        harness.turn()
        harness.settle()
        assert harness.ids() == {suspect}
        harness.end(message)
        harness.settle()
        harness.turn()
        assert harness.ids() == {fresh}

    def test_it_waits_for_what_runs_but_not_for_ever(self, queue, monkeypatch):
        running = self.put(queue, 0)
        harness = claimed_once(queue)
        harness.begin()
        suspect, fresh = self.put(queue, 1), self.put(queue, 0)
        for _ in range(4):
            harness.turn()
            harness.settle()
        assert harness.ids() == {running}
        assert harness.crew.suspects.awaited
        monkeypatch.setattr("djqueue.consumer.suspects.PATIENCE", 0.0)
        harness.turn()
        assert harness.ids() == {running, suspect}
        harness.turn()
        harness.settle()
        assert harness.ids() == {running, suspect}
        assert queue.find(fresh).entry.attempts == 0

    def test_where_a_process_of_its_own_can_be_had_it_is_claimed_with_others(self, queue):
        ids = {self.put(queue, lost) for lost in (0, 1, 2)}
        harness = PumpHarness(queue, alone=())
        harness.turn()
        assert harness.ids() == ids


@pytest.mark.backends("memory", "sqlite")
class TestStepsThatRaise:
    """What was claimed and could not be given to a worker goes back, whichever step between the two raised."""

    STEPS = {
        "enter": "djqueue.consumer.claiming.Claiming._enter",
        "entered": "djqueue.consumer.claiming.Claiming._entered",
        "paused": "djqueue.consumer.operators.OperatorChannels.has_paused_commands",
        "suspects": "djqueue.consumer.suspects.Suspects.among",
        "units": "djqueue.consumer.claiming.units_of",
        "cancelled": "djqueue.consumer.claiming.Claiming._note_cancelled",
        "submit": "djqueue.consumer.pool.Pool.submit",
        "inbox": "djqueue.consumer.pool.Affinity.inbox_of",
        "others": "djqueue.consumer.pool.Pool._release_for_others",
    }

    @pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
    def test_it_goes_back_uncounted_and_within_the_limit(self, queue, monkeypatch, step):
        ids = {work.enqueue(number).id for number in range(3)}
        queue.release(queue.claim(3))  # so that they may be of those that still run here
        harness = PumpHarness(queue, threads=3, limit=3)
        with monkeypatch.context() as patch:
            patch.setattr(step, lambda *args, **named: (_ for _ in ()).throw(MemoryError("injected")))
            harness.turn()
        for _ in range(4):
            harness.turn()
            harness.settle()
        assert harness.ids() == ids
        assert (len(harness.in_flight), harness.pool.waiting, harness.run_limit.take(9)) == (3, 3, 0)
        while harness.pool.waiting:
            harness.end(harness.begin())
        harness.settle()
        assert (len(harness.in_flight), queue.stats().done) == (0, 3)

    def test_of_those_that_were_taken_over_by_half_each_goes_back(self, queue, monkeypatch):
        ids = {work.enqueue(number).id for number in range(3)}
        harness, calls, enter = PumpHarness(queue, threads=3, limit=3), [], Claiming._enter

        def fail_at_the_second(*args):
            calls.append(args)
            return 1 / 0 if len(calls) == 2 else enter(*args)

        with monkeypatch.context() as patch:
            patch.setattr(Claiming, "_enter", fail_at_the_second)
            harness.turn()
        for _ in range(4):
            harness.turn()
            harness.settle()
        assert harness.ids() == ids
        assert (len(harness.in_flight), harness.pool.waiting, harness.run_limit.take(9)) == (3, 3, 0)
        assert {queue.find(id).entry.attempts for id in ids} == {1}

    def test_nor_does_one_raise_the_limit_that_settles(self, queue, monkeypatch):
        work.enqueue_many([(number,) for number in range(3)])
        harness = PumpHarness(queue, threads=1, limit=3)
        harness.turn()
        harness.end(harness.begin())
        with monkeypatch.context() as patch:
            patch.setattr(harness.announcer, "settled", lambda event: 1 / 0)
            harness.turn()
        for _ in range(4):
            eventually(lambda: harness.turn() is not None and harness.pool.waiting == 1)
        assert (len(harness.ids()), harness.run_limit.take(9)) == (1, 1)


class TestSettling:
    """A pump settles with its claims."""

    def test_what_is_settled_with_a_claim_that_finds_nothing_leaves_nothing_to_drain(self, queue):
        """Else a drain waits for another claim, which an idle pump makes once a second."""
        for keep in (0.0, 60.0):
            work()
            harness = claimed_once(queue)
            harness.end(harness.begin(), Verdict(Outcome.DONE, keep=keep))
            harness.turn()
            assert not harness.in_flight
            assert harness.pump.mail.has_nothing_since(harness.pump.mail.settled_at)

    def end_of(self, queue, count, **options):
        """A harness with so many that are done."""
        work.enqueue_many([(number,) for number in range(count + 10)])
        harness = PumpHarness(queue, **options)
        while left := count - len(harness.in_flight):
            harness.pump.claiming._adopt(queue, queue.claim(left, begin=False), clock(), 0)
        while harness.pool.waiting:
            harness.end(harness.begin())
        return harness

    @pytest.mark.backends("memory", "sqlite", "redis")
    @pytest.mark.parametrize("count", [UNSETTLED - 1, UNSETTLED + 1])
    def test_much_that_is_done_is_settled_in_one_turn(self, queue, count):
        """Also while workers ask for more all the time."""
        harness = self.end_of(queue, count)
        harness.turn()
        assert (len(harness.pump.settling), queue.stats().done) == (0, count)
        assert len(harness.in_flight) == (4 if count < UNSETTLED else 0)

    @pytest.mark.backends("memory", "sqlite", "redis")
    def test_what_the_store_does_not_take_holds_up_claims(self, queue, monkeypatch):
        """A kill would repeat it."""
        harness = self.end_of(queue, UNSETTLED + 1)
        with monkeypatch.context() as broken:
            broken.setattr(queue, "complete", unreachable)
            for _ in range(3):
                harness.turn()
        assert (len(harness.pump.settling), harness.pool.waiting) == (UNSETTLED + 1, 0)
        eventually(lambda: harness.turn() is not None and not len(harness.pump.settling))
        assert queue.stats().done == UNSETTLED + 1

    @pytest.mark.backends("memory")
    def test_what_one_queue_is_to_be_sent_does_not_wait_for_a_claim_from_it(self, backend, settings):
        settings.QUEUES = backend.queues("default", "other")
        for alias in ("default", "other"):
            work.using(queue_name=alias).enqueue()
        harness = PumpHarness(queues["default"], queues["other"], strict=True, threads=1)
        for _ in range(2):
            harness.turn()
            harness.end(harness.begin())
        work()
        harness.turn()
        assert len(harness.in_flight) == 2
        eventually(lambda: harness.turn() is not None and len(harness.in_flight) == 1)
        assert [queues[alias].stats().done for alias in ("default", "other")] == [1, 1]


@pytest.mark.backends("memory")
class TestStrictOverServers:
    """Each server has a pump; one whose queues come later claims what those before it leave to it."""

    def pumps(self, first, later, **options):
        harness = PumpHarness(*first, strict=True, threads=1, **options)
        return harness, Pump(later, harness.crew, Pace(0.001, 1, 0.001))

    def test_the_first_server_is_asked_before_each_claim_from_a_later_one(self, three_queues):
        a, b, _ = three_queues
        harness, later = self.pumps([a], [b])
        work.using(queue_name="b").enqueue()
        later.turn(clock())
        assert harness.ids() == set()
        harness.turn()
        later.turn(clock())
        assert [one.queue.alias for one in harness.in_flight] == ["b"]

    def test_a_queue_that_fails_does_not_hold_up_a_later_server(self, three_queues, monkeypatch):
        a, b, c = three_queues
        monkeypatch.setattr(a, "claim", unreachable)
        harness, later = self.pumps([a, c], [b])
        handle = work.using(queue_name="b").enqueue()
        eventually(lambda: harness.turn() is not None and later.turn(clock()) is not None and harness.ids())
        assert harness.ids() == {handle.id}

    def test_a_suspect_of_a_later_server_runs_though_nothing_else_is_claimed(self, three_queues):
        a, b, _ = three_queues
        harness, later = self.pumps([a], [b], alone=[b])
        entry = replace(message_for(b, work.name), lost=1)
        b.put([entry])
        b.put([replace(message_for(b, work.name), lost=1)])
        eventually(lambda: harness.turn() is not None and later.turn(clock()) is not None and harness.ids())
        assert harness.ids() == {entry.id}


@pytest.mark.backends("memory")
def test_what_is_claimed_as_the_consumer_stops_is_given_to_no_worker(queue, monkeypatch):
    handle = work()
    queue.release(queue.claim(1))
    harness, read = PumpHarness(queue), queue.store.get_many
    monkeypatch.setattr(queue.store, "get_many", lambda keys: harness.pump.mail.stop() or read(keys))
    harness.turn()
    assert harness.pool.waiting == 0
    harness.turn()
    assert (harness.in_flight, claim_one(queue).entry.id) == ([], handle.id)
