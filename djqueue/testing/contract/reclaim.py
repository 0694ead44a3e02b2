"""The contract of ``reclaim``: the leases of an owner that is dead come back before they run out."""

from __future__ import annotations

from djqueue.backends.base import BaseQueue, Lease
from djqueue.flow.gates import Gate
from djqueue.messages.envelope import new_id
from djqueue.testing.contract.steps import Contract, claim, names, nothing_to_claim, put
from djqueue.testing.patience import eventually, together

DEAD, ALIVE = f"host:7:{'d' * 6}", f"host:77:{'a' * 6}"


def claimed_by(queue: BaseQueue, owner: str, count: int = 1, begin: bool = True) -> list[Lease]:
    """Exactly ``count`` leases of an owner."""
    found: list[Lease] = []
    eventually(lambda: found.extend(queue.claim(count - len(found), owner=owner, begin=begin)) or len(found) == count)
    return found


def reclaimed(queue: BaseQueue, count: int) -> None:
    """Wait until so many leases of the dead owner have come back, and no more do."""
    back: list[int] = []
    eventually(lambda: back.append(queue.reclaim(DEAD)) or sum(back) == count)
    assert queue.reclaim(DEAD) == 0


class ReclaimContract(Contract):
    """What a dead owner held, at once."""

    def test_what_a_dead_owner_held_comes_back_in_its_order_and_nothing_else_does(self):
        queue = self.reclaiming("order")
        put(queue, *"abcd")
        claimed_by(queue, DEAD), claimed_by(queue, ALIVE), claimed_by(queue, DEAD)
        reclaimed(queue, 2)
        assert names(claim(queue, 3)) == ["a", "c", "d"]
        assert nothing_to_claim(queue)

    def test_what_had_begun_is_lost_and_what_had_not_is_not(self):
        queue = self.reclaiming("begin", "order", "inspect")
        made = put(queue, *"ab")
        claimed_by(queue, DEAD), claimed_by(queue, DEAD, begin=False)
        reclaimed(queue, 2)
        found = [queue.find(made[name].id).entry for name in "ab"]
        assert [(one.attempts, one.lost) for one in found] == [(1, 1), (1, 0)]

    def test_an_owner_that_lives_after_all_may_finish_what_nobody_else_has_and_nothing_else(self):
        queue = self.reclaiming("order")
        put(queue, *"abc")
        held = claimed_by(queue, DEAD, 3)
        reclaimed(queue, 3)
        assert queue.complete(held[1:2]) == held[1:2]
        (again,) = claim(queue)
        late = held[:1]
        assert queue.complete(late) == queue.touch(late) == queue.release(late) == queue.fail(late) == []
        assert len(queue.touch(held[2:])) == 1
        assert nothing_to_claim(queue)
        assert (names([again]), len(queue.complete([again, held[2]]))) == (["a"], 2)

    def test_what_waits_has_no_owner_though_a_dead_one_had_held_it(self):
        queue = self.reclaiming("begin", "inspect")
        (lease,) = put(queue, "work") and claimed_by(queue, DEAD)
        reclaimed(queue, 1)
        assert queue.find(lease.entry.id).entry.lost == 1
        (again,) = claimed_by(queue, ALIVE)
        assert queue.reclaim(DEAD) == 0
        assert queue.complete([again]) == [again]

    def test_no_more_than_the_limit_come_back_at_once(self):
        queue = self.reclaiming()
        put(queue, *"abcde")
        claimed_by(queue, DEAD, 5)
        assert [queue.reclaim(DEAD, 3) for _ in range(3)] == [3, 2, 0]
        assert len(claim(queue, 5)) == 5

    def test_of_several_who_reclaim_one_gets_each(self):
        queue = self.reclaiming()
        put(queue, *map(str, range(30)))
        claimed_by(queue, DEAD, 30)
        back = together(*[lambda: queue.reclaim(DEAD)] * 4, last=queue.close)
        eventually(lambda: back.append(queue.reclaim(DEAD)) or sum(back) >= 30)
        assert sum(back) == 30
        again = claim(queue, 30)
        assert sorted(names(again), key=int) == [str(number) for number in range(30)]
        assert {lease.entry.lost for lease in again} == {1}

    def test_hundreds_come_back_and_the_names_of_others_that_begin_alike_are_others(self):
        queue = self.reclaiming("order")
        put(queue, *map(str, range(300)))
        claimed_by(queue, DEAD, 250), claimed_by(queue, DEAD + "0", 50)
        assert queue.reclaim(DEAD, 1000) == 250
        assert queue.reclaim(DEAD[:-1]) == queue.reclaim("") == 0
        assert names(claim(queue, 250)) == [str(number) for number in range(250)]

    def test_a_lane_goes_on_with_what_a_dead_owner_had_of_it(self):
        queue = self.reclaiming("lanes")
        put(queue, *"abc", lane=f"lane-{new_id()}", gate=Gate(ordered=True).written())
        (held,) = claimed_by(queue, DEAD)
        assert nothing_to_claim(queue)
        reclaimed(queue, 1)
        assert queue.complete([held]) == queue.touch([held]) == []
        for name in "abc":
            (lease,) = claim(queue)
            assert names([lease]) == [name]
            assert queue.complete([lease]) == [lease]

    def test_a_run_of_a_lane_comes_back_whole(self):
        queue = self.reclaiming("lanes")
        put(queue, *"abc", lane=f"lane-{new_id()}", gate=Gate(ordered=True, max_run=3).written())
        held: list[Lease] = []
        eventually(lambda: held.extend(queue.claim(1, owner=DEAD)) or held)
        assert (names(held), nothing_to_claim(queue)) == (["a", "b", "c"], True)
        reclaimed(queue, 3)
        (first,) = claim(queue)  # alone, as it was lost
        assert (names([first]), first.entry.lost) == (["a"], 1)
        assert queue.complete([first]) == [first]
        rest: list[Lease] = []
        eventually(lambda: rest.extend(queue.claim(1)) or rest)
        assert (names(rest), [lease.entry.lost for lease in rest]) == (["b", "c"], [0, 0])
