"""Lanes in a database: under threads, next to open transactions, and what they leave behind."""

import threading

import pytest
from django.db import connections, transaction

from djqueue.backends.database import lanes
from djqueue.backends.entries import DELAYED, READY
from djqueue.backends.guards import UniqueGuard
from djqueue.flow.gates import Gate
from djqueue.flow.windows import Window
from djqueue.models import QueueLane, QueueMessage, QueueTicket
from djqueue.testing import eventually, together
from djqueue.testing.contract.inspection import bodies
from djqueue.testing.contract.steps import entry, names
from djqueue.testing.contract.stress import LaneStress
from djqueue.testing.patience import PATIENCE
from tests.support.database import as_another_process, statements

pytestmark = pytest.mark.backends("sqlite", "postgres", "mariadb")

ORDERED = Gate(ordered=True).written()
RUNS = Gate(ordered=True, max_run=3).written()
TWO = Gate(concurrency=2).written()
SHARED = Gate(ordered=True, parent="all", parent_gate=Gate(concurrency=5)).written()
GATES = {"runs": RUNS, "one": ORDERED, "two": TWO, "shared": SHARED}


def fill(queue, lane, *ids, gate=ORDERED, **fields):
    assert all(queue.put([entry(id, lane=lane, gate=gate, **fields) for id in ids]))


def rows_left(queue) -> list[int]:
    """Of lanes, tickets and messages, once a claim has looked at them."""
    queue.claim(1)
    return [
        model.objects.using(queue.database).filter(queue__startswith=queue.name).count()
        for model in (QueueLane, QueueTicket, QueueMessage)
    ]


# ---- threads


def test_no_more_are_out_than_a_gate_lets_while_many_claim(queue):
    LaneStress(queue, entries=60, lease=0.2, kinds=["three"], lanes=1).run()
    assert rows_left(queue) == [0, 0, 0]


# ---- transactions


def test_two_who_put_into_one_lane_do_not_wait_for_each_other(backend, queue):
    if backend.id == "sqlite":
        return  # it has one writer
    other, written, seen = as_another_process(queue), threading.Event(), threading.Event()

    def first():
        with transaction.atomic(using=queue.database):
            fill(queue, "a", "1")
            written.set()
            assert seen.wait(PATIENCE)

    def second():
        assert written.wait(PATIENCE)
        with transaction.atomic(using=queue.database):
            fill(other, "a", "2")
        assert names(other.claim(2)) == ["2"]
        seen.set()

    together(first, second, last=connections.close_all)
    assert queue.claim(2) == []
    assert queue.lanes.get("a").waiting == 1


def test_what_a_transaction_put_or_settled_is_as_it_was_when_it_is_rolled_back(queue):
    with transaction.atomic(using=queue.database):
        fill(queue, "a", "never")
        transaction.set_rollback(True, using=queue.database)
    assert queue.claim(1) == []
    assert rows_left(queue) == [0, 0, 0]
    fill(queue, "a", *"12")
    claimed = queue.claim(2)
    with transaction.atomic(using=queue.database):
        assert queue.complete(claimed) == claimed
        transaction.set_rollback(True, using=queue.database)
    assert (queue.claim(1), queue.lanes.get("a").in_flight) == ([], 1)
    queue.complete(claimed)
    assert names(queue.claim(2)) == ["2"]


# ---- what others did


def test_who_is_busy_with_other_work_sees_lanes_that_others_filled_soon(queue):
    queue.put([entry() for _ in range(50)])
    queue.complete(queue.claim(1))
    fill(as_another_process(queue), "a", "1")
    eventually(lambda: "1" in names(queue.claim(1)))
    assert len(queue) > 0


def test_a_delayed_entry_enters_its_lane_when_it_is_due(queue):
    fill(queue, "a", "much later", delay=60, priority=9)
    fill(queue, "a", "now")
    assert bodies(queue.peek(DELAYED)) == ["much later"]
    fill(queue, "a", "late", delay=0.1, priority=5)
    first = eventually(lambda: [one for one in queue.peek(READY) if one.entry.body == b"late"])
    assert first[0].entry.gate == ORDERED
    assert names(queue.claim(2)) == ["late"]


def test_what_is_requeued_enters_its_lane_behind(queue):
    fill(queue, "a", *"12")
    (lease,) = queue.fail(queue.claim(1))
    assert names(queue.failed.claim(1, lease=0.001)) == ["1"]
    eventually(lambda: queue.failed.reap().count)
    assert queue.requeue([lease.entry.id]) == 1
    found = []
    while claimed := queue.claim(2):
        found += names(queue.complete(claimed))
    assert found == ["2", "1"]
    assert rows_left(queue) == [0, 0, 0]


def test_an_idle_claim_is_as_cheap_beside_a_thousand_lanes_that_may_not_open(queue):
    shut = Gate(parent="all", parent_gate=Gate(windows=(Window(1, 3600),))).written()
    queue.put([entry(lane=f"lane {number}", gate=shut) for number in range(1000)])
    while queue.claim(10) or queue.claim(10).retry_after < 60:
        continue
    with statements(queue) as log:
        assert queue.claim(10) == []
    assert len(log) == 1


# ---- last in, first out


def test_the_last_come_leave_first_among_those_of_one_priority(queue):
    queue = as_another_process(queue, lifo=True)
    queue.put([entry("low", priority=-1), entry("1"), entry("2")])
    queue.put([entry("3"), entry("high", priority=1), entry("later", delay=0.001)])
    eventually(lambda: len(queue.peek(READY)) == 6)
    assert bodies(queue.peek(READY)) == ["high", "later", "3", "2", "1", "low"]
    page = queue.peek(READY, 2)
    assert bodies(queue.peek(READY, 2, page[-1].cursor)) == ["3", "2"]
    claimed = queue.claim(6)
    assert [lease.entry.priority for lease in claimed] == [1, 0, 0, 0, 0, -1]
    assert names(claimed) == ["high", "later", "3", "2", "1", "low"]


def test_lanes_keep_their_order_where_the_last_come_first(queue):
    queue = as_another_process(queue, lifo=True)
    fill(queue, "a", *"12")
    fill(queue, "a", "first", priority=1)
    queue.put([entry("x", priority=-5), entry("y", priority=5)])
    found = []
    while claimed := queue.claim(1):
        found += names(queue.complete(claimed))
    assert found == ["y", "first", "1", "2", "x"]


# ---- tickets


WITHIN = Gate(windows=(Window(1, 3600),), parent="all", parent_gate=Gate(concurrency=5)).written()
ELSEWHERE = Gate(ordered=True, parent="others", parent_gate=Gate(concurrency=5)).written()


def test_a_lane_whose_outer_lane_is_forgotten_is_looked_at_and_does_not_lock_out_others(queue):
    fill(queue, "a", *"12", gate=WITHIN)
    queue.complete(queue.claim(2))
    (waits,) = queue.peek(READY)
    assert queue.remove([waits.entry.id]) == 1
    queue.claim(1)
    assert queue.claim(1).retry_after > 60
    assert rows_left(queue)[1:] == [0, 0]
    fill(queue, "b", "3")
    assert names(queue.claim(1)) == ["3"]


def test_of_two_gates_that_were_put_one_after_the_other_the_last_holds(queue):
    fill(queue, "a", "1", gate=SHARED)
    fill(queue, "a", "2", gate=ELSEWHERE)
    assert queue.lanes.get("a").gate == ELSEWHERE
    assert [record.name for record in queue.lanes.page()] == ["a", "others"]


def test_a_gate_that_others_took_in_meanwhile_does_not_come_back(queue, monkeypatch):
    fill(queue, "a", "1", gate=ORDERED)
    read = lanes.take_tickets

    def read_and_be_late(*args):
        tickets = read(*args)
        monkeypatch.setattr(lanes, "take_tickets", read)
        other = as_another_process(queue)
        fill(other, "a", "2", gate=TWO)
        assert other.lanes.get("a").gate == TWO
        return tickets

    monkeypatch.setattr(lanes, "take_tickets", read_and_be_late)
    assert names(queue.claim(2)) == ["1", "2"]
    assert queue.lanes.get("a").gate == TWO


def test_a_gate_whose_outer_lane_is_not_there_is_taken_in_by_the_next_claim(queue, monkeypatch):
    """Others took in the later gate meanwhile; the lane of this one was made by nobody."""
    fill(queue, "a", "1", gate=SHARED)
    fill(queue, "a", "2", gate=ORDERED)
    read = lanes.take_tickets

    def read_and_lose_the_last(*args):
        tickets = read(*args)
        monkeypatch.setattr(lanes, "take_tickets", read)
        assert QueueTicket.objects.using(queue.database).filter(seq=tickets[-1].seq).delete()[0] == 1
        return tickets

    monkeypatch.setattr(lanes, "take_tickets", read_and_lose_the_last)
    queue.claim(1)
    assert QueueTicket.objects.using(queue.database).filter(queue=queue.name).count() == 1
    assert queue.lanes.get("a").gate == SHARED


def test_a_lane_that_was_not_read_to_its_end_goes_on(queue, monkeypatch):
    monkeypatch.setattr(lanes, "MOST_READ", 3)
    fill(queue, "a", *"123456", gate=Gate(max_run=2).written())
    assert [names(queue.claim(2)), names(queue.claim(2))] == [[*"1234"], [*"56"]]


def test_a_throttled_message_is_claimed_and_settled_by_few_statements(backend, queue):
    if backend.id != "sqlite":
        return  # the others have other statements
    fill(queue, "a", *"123", gate=Gate(windows=(Window(10, 3600),)).written())
    queue.complete(queue.claim(1))
    with statements(queue) as queries:
        assert names(queue.complete(queue.claim(1))) == ["2"]
    written = [one["sql"] for one in queries if not one["sql"].startswith(("BEGIN", "COMMIT", "DELETE FROM djqueue_t"))]
    assert len(written) == 7


def test_what_is_due_before_it_is_inserted_is_claimed(queue):
    for number in range(10):
        queue.put([entry(lane=f"lane {number}", gate=ORDERED, delay=0.000001)], [UniqueGuard(str(number))])
    eventually(lambda: sum(len(queue.complete(queue.claim(10))) for _ in range(10)) and not len(queue))
    assert rows_left(queue)[1:] == [0, 0]


def test_what_is_removed_from_a_failed_queue_leaves_no_ticket(queue):
    fill(queue, "a", "1")
    (lease,) = queue.fail(queue.claim(1))
    assert queue.failed.reprioritise([lease.entry.id], 5) == queue.failed.remove([lease.entry.id]) == 1
    assert rows_left(queue) == [0, 0, 0]


def test_a_turn_in_which_nothing_left_spends_nothing(backend, queue):
    if backend.id == "sqlite":
        return  # it has one writer
    fill(queue, "a", "1", gate=Gate(windows=(Window(10, 3600, moderate=True),)).written())
    (waits,) = queue.peek(READY)
    amended, claimed = threading.Event(), threading.Event()

    def amend():
        with transaction.atomic(using=queue.database):
            assert as_another_process(queue).amend(waits.entry.id, b"1", b"one")
            amended.set()
            assert claimed.wait(PATIENCE)

    def claim():
        assert amended.wait(PATIENCE)
        assert queue.claim(1) == []
        claimed.set()

    together(amend, claim, last=connections.close_all)
    assert names(queue.claim(1)) == ["one"]


def test_a_queue_that_was_emptied_has_no_open_lanes(queue):
    queue.put([entry(lane=f"{kind} {number}", gate=GATES[kind]) for kind in GATES for number in range(3)])
    assert len(queue.lanes.page()) == 13
    queue.flush()
    assert queue.lanes.page() == []
    assert rows_left(queue) == [0, 0, 0]
