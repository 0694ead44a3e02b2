"""Completing and claiming in one transaction: who is told what, and what a row that was reaped becomes."""

from dataclasses import replace

import pytest
from django.db import OperationalError, transaction

from djqueue.backends.database.queue import DatabaseQueue
from djqueue.flow.gates import Gate
from djqueue.testing.contract.steps import claim, entry, leased, names, put, run_out, until_now_is
from tests.support.database import as_another_process, in_four_processes, statements

pytestmark = pytest.mark.backends("sqlite", "postgres", "mariadb")

ORDERED = Gate(ordered=True).written()


def test_what_is_held_is_completed_and_the_next_is_claimed(queue):
    done = leased(queue, *"ab")
    put(queue, *"cdef")
    held, claimed = queue.exchange(done, 3)
    assert (held, names(claimed), claimed.retry_after) == (done, ["c", "d", "e"], 0.0)
    assert [(lease.begun, lease.entry.attempts) for lease in claimed] == [(False, 1)] * 3
    held, rest = queue.exchange(claimed, 3)
    assert (held, names(rest), rest.retry_after > 0) == (claimed, ["f"], True)
    assert (queue.stats().done, queue.stats().leased) == (5, 1)


def test_leases_that_are_not_held_are_told_apart(queue):
    lost, done = leased(queue, "lost", "done")
    queue.release([lost])
    (next,) = claim(queue)
    held, claimed = queue.exchange([lost, done, replace(done, token="of another backend")], 5)
    assert (held, claimed) == ([done], [])
    assert queue.exchange([lost, next], 5)[0] == [next]
    assert queue.exchange([next, lost], 5) == ([], [])
    assert queue.stats().done == 2


def test_of_two_leases_of_one_entry_the_one_that_is_held_completes_it(queue):
    (first,) = leased(queue, "a")
    queue.release([first])
    (second,) = claim(queue)
    assert queue.exchange([first, second], 5)[0] == [second]


def test_a_lease_that_ran_out_and_was_reaped_is_completed_and_not_claimed(queue):
    late = run_out(queue, leased(queue, "late", lease=0.001))
    put(queue, "next")
    held, claimed = queue.exchange(late, 5)
    assert (held, names(claimed)) == (late, ["next"])
    assert queue.exchange(claimed, 5) == (claimed, [])
    assert len(queue) == 0


def test_what_fell_due_is_claimed_in_its_order(queue):
    done = leased(queue, "done")
    put(queue, "later", delay=0.001)
    put(queue, "urgent", delay=0.001, priority=1)
    put(queue, "next")
    until_now_is(queue, queue.now() + 0.01)
    held, claimed = queue.exchange(done, 5)
    assert held == done
    assert names(claimed)[0] == "urgent"
    assert sorted(names(claimed)) == ["later", "next", "urgent"]


def test_entries_of_lanes_go_and_come_with_the_others(queue):
    put(queue, *"ab", lane="lane", gate=ORDERED)
    (first,) = claim(queue)
    (plain,) = leased(queue, "plain")
    held, claimed = as_another_process(queue).exchange([plain, first], 5)
    assert (held, names(claimed)) == ([plain, first], ["b"])
    (plain,) = leased(queue, "plain")
    put(queue, "c", lane="other", gate=ORDERED)
    assert (names(as_another_process(queue).exchange([plain], 5)[1]), queue.stats().done) == (["c"], 3)


def test_ids_are_remembered_here_too(backend):
    queue = DatabaseQueue(f"queue-{backend.tag}", backend.alias, remember_done=60)
    (done,) = leased(queue, "a")
    put(queue, "b")
    held, claimed = queue.exchange([done], 1)
    assert (held, names(claimed), queue.put([done.entry])) == ([done], ["b"], [False])


def test_what_a_transaction_exchanged_is_as_before_when_it_is_rolled_back(queue):
    done = leased(queue, "done")
    put(queue, "next")
    with pytest.raises(ZeroDivisionError), transaction.atomic(queue.database):
        held, claimed = queue.exchange(done, 1)
        assert (held, names(claimed)) == (done, ["next"])
        raise ZeroDivisionError
    assert names(queue.complete(done)) == ["done"]
    assert names(claim(queue)) == ["next"]


def test_an_exchange_whose_claim_fails_is_repeated_without_harm(queue, monkeypatch):
    done = leased(queue, "done")
    put(queue, "next", lane="lane", gate=ORDERED)
    with monkeypatch.context() as patched, pytest.raises(OperationalError):
        patched.setattr(queue._claims, "_laned", lost_connection)
        as_another_process(queue).exchange([], 0)
        queue._claims._stirred = False
        queue.exchange(done, 2)
    held, claimed = queue.exchange(done, 2)
    assert (held, names(claimed), queue.stats().done) == ([], ["next"], 1)


def lost_connection(*args):
    raise OperationalError("the connection is lost")


STATEMENTS = {"sqlite": 6, "postgres": 1, "mariadb": 2}


def test_a_full_exchange_is_so_many_statements(backend, queue, monkeypatch):
    monkeypatch.setattr("djqueue.backends.database.queue.UNSEEN", 3600.0)
    put(queue, *"abcdefgh")
    done = queue.exchange(claim(queue, 1), 1)[1]
    with statements(queue) as found:
        held, claimed = queue.exchange(done, 3)
    assert (len(held), len(claimed), len(found)) == (1, 3, STATEMENTS[backend.id])


def _drain(queue):
    mine, claimed = [], queue.claim(7)
    while claimed:
        held, claimed = queue.exchange(claimed, 7)
        mine += [lease.entry.id for lease in held]
    return mine


def test_four_processes_exchange_each_entry_once(queue):
    ids = [entry().id for _ in range(300)]
    queue.put([entry(id=id) for id in ids])
    assert sorted(in_four_processes(queue, _drain)) == sorted(ids)
    assert (queue.stats().done, queue.stats().leased) == (300, 0)
