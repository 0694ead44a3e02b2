"""Shards on a FIFO queue are its message groups: what leaves together, what waits, and in which order it goes on."""

import threading
import time

import pytest

from djqueue import current_message, queue_command, queues
from djqueue.backends.entries import Lease, untried
from djqueue.backends.sqs.messages import runs, units
from djqueue.exceptions import NotSupported
from djqueue.flow.gates import HOLD_LANE, Gate
from djqueue.testing.contract.steps import claim, entry, names, put, with_counts
from djqueue.testing.patience import eventually
from tests.backends.sqs.support import counts
from tests.support.consumer import recorded_signals, serving

ORDERED = Gate(ordered=True, max_run=32).written()
ALONE = Gate(ordered=True).written()

pytestmark = pytest.mark.backends("sqs-fifo")


def fill(queue, lane, ids, gate=ORDERED, **fields):
    return put(queue, *ids, lane=lane, gate=gate, **fields)


def drained(queue):
    """The ids in the order in which they are run, one unit after the other."""
    order = []
    while leases := queue.claim(4):
        order += names(leases)
        queue.complete(leases)
    return order


@pytest.mark.backends("sqs", "sqs-fifo")
def test_only_a_fifo_queue_can_shard(queue):
    assert ("shards" not in queue.features) == (not queue.is_fifo)
    assert "lanes" not in queue.features
    assert ("shards" not in queue.failed.features) == (not queue.is_fifo)


def test_the_limit_counts_units(queue):
    fill(queue, "a", ["a1", "a2", "a3"])
    fill(queue, "b", ["b1", "b2", "b3"])
    put(queue, "alone")
    claimed = queue.claim(3)
    assert units(claimed) == 3
    by_run = {}
    for lease in claimed:
        by_run.setdefault(lease.run, []).append(*names([lease]))
    assert by_run[""] == ["alone"]
    for run, ids in by_run.items():
        assert not run or ids == [f"{run}1", f"{run}2", f"{run}3"][: len(ids)]


def test_what_is_claimed_of_one_shard_is_one_unit_in_its_order_and_nothing_leaves_while_something_is_out(queue):
    fill(queue, "a", ["a1", "a2", "a3", "a4"])
    first = claim(queue, 3)
    assert names(first) == ["a1", "a2", "a3"]
    assert len({lease.run for lease in first} - {""}) == 1
    assert queue.claim(2) == []
    queue.complete(first[:2])
    assert queue.claim(2) == []
    queue.complete(first[2:])
    assert names(claim(queue)) == ["a4"]


def test_a_run_is_not_longer_than_its_gate_says(queue):
    fill(queue, "a", ["a1", "a2", "a3"], gate=ALONE)
    first = queue.claim(3)
    assert names(first) == ["a1"]
    queue.complete(first)
    second = queue.claim(3)
    assert names(second) == ["a2"]
    assert counts(second[0]) == (1, 0, 0)  # that it was received before counts as nothing


def test_a_retry_holds_its_shard_and_the_rest_stays_behind_it_in_order(queue):
    fill(queue, "a", ["a1", "a2", "a3"])
    head, *rest = claim(queue, 3)
    queue.release([with_counts(head, failures=1, delay=1.5, hold=HOLD_LANE), *map(untried, rest)])
    fill(queue, "b", ["b1"])
    assert drained(queue) == ["b1"]
    assert names(again := claim(queue, 3)) == ["a1", "a2", "a3"]
    assert [counts(lease) for lease in again] == [(2, 1, 0), (1, 0, 0), (1, 0, 0)]


def test_what_is_handed_back_from_the_middle_is_in_its_place_again(queue):
    fill(queue, "a", ["a1", "a2", "a3"])
    first, *rest = claim(queue, 3)
    queue.complete([first])
    queue.release(list(map(untried, rest)))
    fill(queue, "a", ["a4"])
    assert drained(queue) == ["a2", "a3", "a4"]


def received(*told):
    """Leases as one answer of SQS might bring them: names, lanes and how often they were lost."""
    return [Lease(entry(name, lane=lane, lost=lost, gate=ORDERED if lane else "")) for name, lane, lost in told]


@pytest.mark.parametrize(
    ("told", "waiting", "leave", "stay"),
    [
        ([("a1", "a", 1), ("a2", "a", 1)], (), ["a1"], ["a2"]),
        ([("a1", "a", 0), ("a2", "a", 1), ("a3", "a", 0)], (), ["a1"], ["a2", "a3"]),
        ([("a1", "a", 1), ("b1", "b", 0), ("b2", "b", 0), ("c", "", 1)], (), ["a1", "b1", "b2", "c"], []),
        ([("a2", "a", 0), ("b1", "b", 0), ("c", "", 0)], ["a"], ["b1", "c"], ["a2"]),
        ([("c", "", 1), ("d", "", 1)], [""], ["c", "d"], []),
    ],
    ids=["lost-heads", "lost-behind", "lanes-apart", "behind-what-is-early", "no-lane"],
)
def test_what_was_lost_once_leaves_alone_and_nothing_overtakes(told, waiting, leave, stay):
    """SQS's imitation brings the last of a group first when leases run out: here are the answers as SQS gives them."""
    together, behind = runs(received(*told), waiting)
    assert (names(together), names(behind)) == (leave, stay)


def test_what_failed_and_is_requeued_goes_behind(queue):
    gone = fill(queue, "a", ["a1", "a2"])
    queue.fail(claim(queue, 2))
    fill(queue, "a", ["a3"])
    assert queue.requeue([one.id for one in gone.values()]) == 2
    order = drained(queue)
    assert (order[0], sorted(order[1:])) == ("a3", ["a1", "a2"])


def test_the_failed_queue_knows_no_shards(queue):
    fill(queue, "a", ["a1", "a2"])
    queue.fail(claim(queue, 2))
    found = claim(queue.failed, 2)
    assert sorted(names(found)) == ["a1", "a2"]
    assert {lease.run for lease in found} == {""}
    assert {lease.entry.lane for lease in found} == {"a"}


# ---- with a consumer


@queue_command(shard=lambda shard, number: shard, retry_on=[ConnectionError], backoff=1, max_attempts=3)
def move(shard, number):
    """The third of each shard fails once; it takes so long that another would overtake it."""
    with moving:
        beside[shard] = beside.get(shard, 0) + 1
        assert beside[shard] == 1
    time.sleep(0.01)
    with moving:
        beside[shard] -= 1
    if number == 3 and current_message().attempt == 1:
        raise ConnectionError("once")
    with moving:
        ran.append((shard, number))


moving, beside, ran = threading.Lock(), {}, []


@pytest.fixture
def default_queue(backend, settings):
    settings.QUEUES = {"default": backend.config()}
    return queues["default"]


def test_a_consumer_keeps_each_shard_in_order_through_retries(default_queue):
    for number in range(8):
        move.enqueue_many([(shard, number) for shard in "abc"])
    with recorded_signals("completed", "failed") as told, serving(threads=4):
        eventually(lambda: len(told) == 24, 60)
    assert {name for name, _ in told} == {"completed"}
    assert {shard: [number for one, number in ran if one == shard] for shard in "abc"} == dict.fromkeys(
        "abc", list(range(8))
    )


@pytest.mark.backends("sqs", "sqs-fifo")
def test_what_sqs_cannot_is_refused_at_the_call(default_queue):
    with pytest.raises(NotSupported, match="lanes"):
        move.using(failure_policy="skip").enqueue("a", 1)
    with pytest.raises(NotSupported, match="lanes"):
        move.using(shard=None, concurrency=2).enqueue("a", 1)
    if not default_queue.is_fifo:
        with pytest.raises(NotSupported, match="shards"):
            move("a", 1)
