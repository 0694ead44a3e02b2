"""What one worker is handed: a message, or a run of a shard, one after another."""

import threading
from dataclasses import replace

import pytest

from djqueue import Consumer, Retry, current_message
from djqueue.backends.bells import Bell
from djqueue.consumer.suspects import Suspects
from djqueue.decorators import queue_command
from djqueue.testing import eventually
from tests.support.backends import FULL
from tests.support.consumer import Release, message_for, recorded_signals, serving
from tests.support.notes import cleared_per_test
from tests.support.pump import claimed_once

pytestmark = pytest.mark.backends("memory", "redis", *(["sqlite", "postgres"] if FULL else []))

ran = cleared_per_test([])
once = cleared_per_test(set())
release = cleared_per_test(Release())


def by_user(user, *_):
    return user


def note(user, number):
    ran.append((user, number, current_message().attempt, threading.get_ident()))


@queue_command(shard=by_user)
def work(user, number=0):
    note(user, number)


@queue_command(shard=by_user)
def wait_for_release(user, number=0):
    release.wait()
    note(user, number)


def fail_once(user, number):
    note(user, number)
    if number == 2 and number not in once:
        once.add(number)
        raise Retry(0.05)


@queue_command(shard=by_user)
def stumble(user, number):
    fail_once(user, number)


@queue_command(shard=by_user, failure_policy="skip")
def stumble_and_go_on(user, number):
    fail_once(user, number)


@queue_command(shard=by_user, retry_on=[KeyError], retries=1, backoff=0.01, failure_policy="pause")
def pause(user, number):
    note(user, number)
    if number == 2:
        raise KeyError(number)


@queue_command
def plain(number):
    note(None, number)


def numbers(user=1):
    return [number for who, number, _, _ in ran if who == user]


class TestRuns:
    def test_a_run_is_one_unit_for_one_worker_in_order(self, queue):
        work.enqueue_many([(1, number) for number in range(20)])
        harness = claimed_once(queue)
        assert (harness.pool.waiting, len(harness.in_flight)) == (1, 20)

    def test_sq1_a_shard_runs_in_order_whatever_the_number_of_threads(self, queue):
        wait_for_release.enqueue_many([(user, number) for number in range(40) for user in (1, 2, 3)])
        with serving(threads=8, limit=120) as consumer:
            release.await_waiting(3)
            release.set()
            assert consumer.code() == 0
        assert [numbers(user) for user in (1, 2, 3)] == [list(range(40))] * 3
        assert release.most_waiting == 3
        assert {attempt for _, _, attempt, _ in ran} == {1}

    def test_sq2_shards_run_beside_each_other(self, queue):
        wait_for_release.enqueue_many([(user, 0) for user in range(4)])
        with serving(threads=4, limit=4) as consumer:
            release.await_waiting(4)
            release.set()
            assert consumer.code() == 0
        assert len({thread for _, _, _, thread in ran}) == 4

    def test_each_is_settled_as_it_ends(self, queue, monkeypatch):
        handles = wait_for_release.using(result_ttl=60).enqueue_many([(1, number) for number in range(3)])
        passing = threading.Semaphore(0)
        monkeypatch.setattr(release, "wait", lambda: passing.acquire(timeout=30))
        with serving(threads=2, limit=3) as consumer:
            passing.release()
            eventually(lambda: handles[0].status == "done")
            seen = [handle.status for handle in handles]
            passing.release(2)
            assert consumer.code() == 0
        assert seen == ["done", "running", "running"]

    def test_un_laned_work_beside_it_stays_one_unit_each(self, queue):
        work.enqueue_many([(1, number) for number in range(5)])
        plain.enqueue_many([(number,) for number in range(5)])
        harness = claimed_once(queue, threads=8)
        assert (harness.pool.waiting, len(harness.in_flight)) == (6, 10)


class TestFailures:
    def test_what_comes_back_to_its_shard_takes_the_rest_with_it(self, queue):
        stumble.enqueue_many([(1, number) for number in range(6)])
        with recorded_signals("released") as told:
            assert Consumer(periodic=False, threads=4).run(limit=7) == 0
        assert numbers() == [0, 1, 2, 2, 3, 4, 5]
        assert [attempt for _, _, attempt, _ in ran] == [1, 1, 1, 2, 1, 1, 1]  # what was handed back counts as nothing
        assert {about["reason"] for _, about in told} == {"what was before it in its lane comes again first"}

    def test_skip_goes_on_without_it(self, queue):
        stumble_and_go_on.enqueue_many([(1, number) for number in range(5)])
        with recorded_signals("released") as told:
            assert Consumer(periodic=False, threads=2).run(limit=6) == 0
        assert numbers() == [0, 1, 2, 3, 4, 2]
        assert told == []

    def test_a_paused_shard_goes_on_where_it_stopped(self, queue):
        pause.enqueue_many([(1, number) for number in (1, 2, 3)])
        pause.enqueue_many([(2, 1)])
        with recorded_signals("paused") as told, serving(threads=2) as consumer:
            eventually(lambda: told)
            eventually(lambda: numbers(2) == [1])
            assert consumer.end() == 0
        assert numbers() == [1, 2, 2]
        [paused] = [record for record in queue.lanes.page() if record.paused_reason]
        assert (paused.waiting, paused.in_flight) == (2, 0)

    def test_a_lost_lease_takes_the_rest_with_it(self, queue, monkeypatch, caplog):
        """What was lost is at the head of its shard again, for whoever comes."""
        first, *others = wait_for_release.enqueue_many([(1, number) for number in range(3)])
        touch = queue.touch
        with serving(threads=1, lease=0.5, limit=3) as consumer, recorded_signals("released") as told:
            release.await_waiting(1)
            monkeypatch.setattr(
                queue, "touch", lambda leases, lease: touch([one for one in leases if one.entry.id != first.id], lease)
            )
            eventually(lambda: f"The lease of message {first.id} is lost" in caplog.text)
            release.set()
            assert consumer.code() == 0
        back = dict.fromkeys(about["id"] for _, about in told)  # on a busy machine again, behind what was lost
        assert [*back] == [handle.id for handle in others]
        assert {about["reason"] for _, about in told} == {"what was before it in its lane comes again first"}


class TestLimits:
    def test_sq7_a_limit_is_exact_across_runs_and_shards(self, queue):
        work.enqueue_many([(user, number) for number in range(10) for user in (1, 2)])
        assert Consumer(periodic=False, threads=3).run(limit=7) == 0
        assert len(ran) == 7
        assert queue.stats().leased == 0
        assert Consumer(periodic=False, threads=3).run(limit=13) == 0
        assert [numbers(1), numbers(2)] == [list(range(10))] * 2
        assert {attempt for _, _, attempt, _ in ran} == {1}

    def test_draining_runs_all_of_a_shard(self, queue):
        work.enqueue_many([(1, number) for number in range(100)])
        assert Consumer(periodic=False, threads=2, drain=True).run() == 0
        assert numbers() == list(range(100))


class TestStops:
    def test_sq11_the_current_one_ends_and_the_rest_goes_back(self, queue):
        wait_for_release.enqueue_many([(1, number) for number in range(5)])
        with serving(threads=2) as consumer:
            release.await_waiting(1)
            consumer.stop()
            eventually(lambda: not consumer.claims())
            release.set()
            assert consumer.code() == 0
        assert numbers() == [0]
        assert Consumer(periodic=False).run(limit=4) == 0
        assert numbers() == [0, 1, 2, 3, 4]
        assert {attempt for _, _, attempt, _ in ran} == {1}

    def test_a_second_stop_gives_back_what_runs_and_leaves_the_rest_untried(self, queue):
        handles = wait_for_release.enqueue_many([(1, number) for number in range(3)])
        with serving(threads=1) as consumer:
            release.await_waiting(1)
            consumer.stop()
            assert consumer.end() == 1
            assert [queue.find(handle.id).entry.attempts for handle in handles] == [1, 0, 0]
            release.set()
            eventually(lambda: ran)  # its thread was left behind, and would note it in the next test


class TestWaking:
    def test_a_pump_that_found_only_closed_shards_asks_again_when_one_is_settled(self, queue, monkeypatch):
        """And not after its pause, which may be long."""
        monkeypatch.setattr(queue, "bell", lambda beside: Bell())
        wait_for_release.using(max_run=1).enqueue_many([(1, number) for number in range(3)])
        with serving(threads=2, delay=1000.0, max_delay=1000.0, limit=3) as consumer:
            release.await_waiting(1)
            release.set()
            assert consumer.code() == 0
        assert numbers() == [0, 1, 2]


class TestSuspects:
    def test_what_is_behind_others_goes_back_when_a_suspect_is_to_run_alone(self, queue, monkeypatch):
        met, await_ = threading.Event(), Suspects.await_
        monkeypatch.setattr(Suspects, "await_", lambda self, pump: (await_(self, pump), met.set())[0])
        wait_for_release.enqueue_many([(1, number) for number in range(3)])
        with serving(threads=2, limit=4) as consumer, recorded_signals("released") as told:
            release.await_waiting(1)
            queue.put([replace(message_for(queue, plain.name, 9), lost=1)])
            assert met.wait(30)
            release.set()
            assert consumer.code() == 0
        assert (numbers(), numbers(None)) == ([0, 1, 2], [9])
        reasons = [about["reason"] for _, about in told]
        assert reasons[:3] == ["a suspect is claimed alone", *["a suspect is to run alone"] * 2]
