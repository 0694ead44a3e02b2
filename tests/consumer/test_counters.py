"""What a consumer counts: each attempt by how it ended, how long it ran, how long its message had waited."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from djqueue import Consumer, Discard, queue_command
from djqueue.consumer.counters import BOUNDS, LEASE_LOST, OTHER, Counters, Counts, Durations, SupervisedTotals, Totals
from djqueue.testing import eventually
from tests.support.consumer import Release, claim_one, message_for, only, recorded_signals, serving
from tests.support.notes import cleared_per_test

release = cleared_per_test(Release())


@queue_command
def work(number=0):
    pass


@queue_command(retry_on=[KeyError], backoff=0.001, max_attempts=2)
def fail():
    raise KeyError("no")


@queue_command(ttl=60)
def discard():
    raise Discard("not wanted")


@queue_command
def wait_for_release():
    release.wait()


@pytest.fixture(autouse=True)
def _these_commands():
    with only(work, fail, discard, wait_for_release):
        yield


def counted_of(attempts):
    consumer = Consumer(periodic=False)
    assert consumer.run(attempts) == 0
    return consumer.totals().counts


@pytest.mark.backends("redis", "memory")
def test_what_the_store_has_answered_is_final_though_it_cannot_be_counted(queue, monkeypatch, caplog):
    """Of those that are done and of those that fail, which are settled with a claim and apart; and none is held on."""

    def broken(self, settled):
        raise MemoryError("no room to count")

    monkeypatch.setattr(Counters, "add", broken)
    work.enqueue_many([(number,) for number in range(30)])
    fail()
    with recorded_signals("lease_lost", "failed") as told, serving(drain=True) as running:
        eventually(lambda: [name for name, _ in told] == ["failed"])
        assert running.code() == 0
    assert [name for name, _ in told] == ["failed"]
    stats = queue.stats()
    assert (stats.ready, stats.leased, len(queue.failed)) == (0, 0, 1)
    texts = [record.getMessage() for record in caplog.records]
    assert any("not all is done that follows" in text for text in texts)
    assert not any("another consumer" in text or "failed (" in text for text in texts)


@pytest.mark.backends("redis", "sqlite", "memory")
def test_each_attempt_is_counted_by_its_outcome(queue):
    work.enqueue_many([(number,) for number in range(30)])
    fail()
    discard()
    counts = {command: one.outcomes for (_, command), one in counted_of(33).items()}
    nothing = {"done": 0, "retried": 0, "failed": 0}
    assert counts == {
        work.name: {**nothing, "done": 30},
        fail.name: {**nothing, "retried": 1, "failed": 1},
        discard.name: {**nothing, "discarded": 1},
        wait_for_release.name: nothing,
    }


@pytest.mark.backends("redis", "sqlite", "memory")
def test_how_long_attempts_ran_and_how_long_the_message_waited_for_the_first(queue):
    fail()
    counts = counted_of(2)["default", fail.name]
    assert sum(counts.ran.counts) == 2 and 0 < counts.ran.sum < 20
    assert sum(counts.waited.counts) == 1 and 0 < counts.waited.sum < 60


@pytest.mark.backends("memory")
class TestBeside:
    def test_what_it_can_run_and_runs_just_now(self, queue):
        wait_for_release()
        with serving(threads=3, coroutines=7) as running:
            release.await_waiting(1)
            room = {"processes": 1, "threads": 3, "coroutines": 7}
            assert running.consumer.totals().gauges == {**room, "claimed": 1, "running": 1}
            release.set()
            eventually(lambda: running.consumer.totals().gauges["claimed"] == 0)

    def test_what_another_worker_holds_by_the_end_is_counted_as_lost(self, queue):
        wait_for_release()
        with serving(threads=1) as running:  # so that it claims nothing while it runs this
            release.await_waiting(1)
            [message] = running.consumer._supervisor.crew.messages()
            queue.release([message.lease])
            assert claim_one(queue).entry.id == message.lease.entry.id
            release.set()
            outcomes = {"done": 0, "retried": 0, "failed": 0, LEASE_LOST: 1}
            eventually(lambda: running.consumer.totals().counts["default", wait_for_release.name].outcomes == outcomes)

    def test_a_command_that_is_not_known_here_has_no_series_of_its_own(self, queue):
        queue.put([message_for(queue, "shop.commands.elsewhere")])
        with serving() as running:
            counts = eventually(lambda: running.consumer.totals().counts.get(("default", OTHER)))
            assert counts.outcomes["postponed"] >= 1  # again after a second


def test_a_duration_is_in_the_first_class_whose_bound_is_not_less():
    durations = Durations()
    durations.add([3601.0, 0.0, 0.005, 0.0051, 3600.0])
    assert [durations.counts[place] for place in (0, 1, len(BOUNDS) - 1, len(BOUNDS))] == [2, 1, 1, 1]


@given(st.lists(st.floats(min_value=-1, max_value=5000), max_size=50))
def test_durations_are_counted_alike_however_many_there_are(seconds):
    alone, together = Durations(), Durations()
    for one in seconds:
        alone.add([one])
    together.add([*seconds])
    assert together.counts == alone.counts
    assert together.sum == pytest.approx(alone.sum) == pytest.approx(sum(one for one in seconds if one > 0))


def test_of_a_process_that_has_ended_the_counts_stay_and_the_gauges_go():
    def told(done):
        ran = Durations()
        ran.add([0.2])
        return Totals({("default", "a.b"): Counts({"done": done}, ran)}, {"threads": 4}).written()

    processes = SupervisedTotals()
    processes.hear(1, told(3))
    processes.hear(2, told(4))
    processes.hear(1, told(5))  # since its start, not since the last time
    assert processes.sum().counts["default", "a.b"].outcomes["done"] == 9
    assert processes.sum().gauges == {"threads": 8}
    processes.end(1)
    totals = processes.sum()
    assert (totals.counts["default", "a.b"].outcomes["done"], totals.gauges) == (9, {"threads": 4})
    assert totals.counts["default", "a.b"].ran.sum == pytest.approx(0.4)
