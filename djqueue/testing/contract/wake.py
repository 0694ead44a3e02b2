"""The contract of queues whose bell rings when work comes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from select import POLLIN, poll

from djqueue.backends.base import BaseQueue
from djqueue.backends.bells import Bell
from djqueue.testing.contract.lane_steps import ORDERED, LaneSuite, fill, unit
from djqueue.testing.contract.steps import put
from djqueue.testing.patience import PATIENCE, eventually, together


class WakeContract(LaneSuite):
    """For queues whose bell rings when work comes. One thread waits in the test itself; another makes work."""

    share_a_connection = True
    """Whether two queues of this backend have the same :attr:`connection_key`, so that one bell may serve both."""

    def test_to21_a_bell_rings_when_work_comes(self):
        queue = self.queue()
        with self._armed(queue) as bell:
            self._elsewhere(lambda: put(queue, "work"), queue)
            assert rings(bell)

    def test_to21_a_bell_rings_when_work_comes_to_a_queue_beside(self):
        queue, beside = self.queue(), self.queue()
        assert (queue.connection_key == beside.connection_key) is self.share_a_connection
        if self.share_a_connection:
            with self._armed(queue, beside) as bell:
                self._elsewhere(lambda: put(beside, "work"), beside)
                assert rings(bell)

    def test_work_that_comes_before_a_bell_is_armed_is_not_missed(self):
        queue = self.queue()
        assert queue.claim(1) == []
        with closing(queue.bell()) as bell:
            put(queue, "work")
            assert bell.arm() or rings(bell)

    def test_work_that_comes_between_the_claim_and_the_wait_is_not_missed(self):
        queue = self.queue()
        with self._armed(queue) as bell:
            bell.disarm()
            assert queue.claim(1) == []
            self._elsewhere(lambda: put(queue, "work"), queue)
            assert bell.arm() or rings(bell)

    def test_a_bell_rings_again_after_a_claim(self):
        queue = self.queue()
        with self._armed(queue) as bell:
            for name in "abc":
                self._elsewhere(partial(put, queue, name), queue)
                assert rings(bell)
                bell.disarm()
                assert eventually(lambda: queue.claim(1))
                self._arm(bell, queue)

    def test_a_bell_that_is_not_armed_takes_no_ring_from_others(self):
        queue = self.queue()
        with self._armed(queue) as busy:
            busy.disarm()
            assert queue.claim(1) == []
            self._elsewhere(partial(self._ring_another, queue), queue)

    def _ring_another(self, queue: BaseQueue) -> None:
        with self._armed(queue) as idle:
            put(queue, "work")
            assert rings(idle)

    def test_a_bell_rings_when_what_is_settled_may_have_opened_its_lane(self):
        for verb in ("complete", "fail", "release"):
            queue = self.with_lane("a", *"12")
            leases = unit(queue)
            with self._armed(queue) as bell:
                self._elsewhere(partial(getattr(queue, verb), leases), queue)
                assert rings(bell)

    def test_a_bell_rings_when_what_the_dead_held_comes_back(self):
        for lane in ({}, {"lane": "a", "gate": ORDERED.written()}):
            queue = self.reclaiming()
            put(queue, "work", **lane)
            eventually(lambda queue=queue: queue.claim(1, owner="dead"))
            with self._armed(queue) as bell:
                self._elsewhere(partial(queue.reclaim, "dead"), queue)
                assert rings(bell)

    def test_a_bell_rings_when_an_operator_opens_a_lane(self):
        queue = self.queue("lanes")
        queue.lanes.pause("a", "closed")
        fill(queue, "a", "1")
        with self._armed(queue) as bell:
            self._elsewhere(lambda: queue.lanes.resume("a"), queue)
            assert rings(bell)

    def test_a_bell_rings_when_an_operator_makes_work_due(self):
        queue = self.queue("inspect")
        ids = [one.id for one in put(queue, "later", delay=3600).values()]
        with self._armed(queue) as bell:
            self._elsewhere(lambda: queue.promote(ids), queue)
            assert rings(bell)

    def test_a_wait_without_work_lasts(self):
        queue = self.queue()
        with self._armed(queue) as bell:
            started = queue.now()
            assert not bell.wait(0.2)
            assert queue.now() - started >= 0.15

    def test_a_wait_ends_when_work_comes(self):
        queue, armed = self.queue(), threading.Event()

        def wait() -> bool:
            with self._armed(queue) as bell:
                armed.set()
                return bell.wait(PATIENCE)

        def feed() -> None:
            assert armed.wait(PATIENCE)
            put(queue, "work")

        started = queue.now()
        assert together(wait, feed, last=queue.close)[0]
        assert queue.now() - started < PATIENCE / 2

    def test_a_bell_may_be_closed_at_any_time_and_twice(self):
        queue = self.queue()
        for steps in ((), (Bell.arm.__name__,), (Bell.arm.__name__, Bell.disarm.__name__)):
            bell = queue.bell()
            for step in steps:
                getattr(bell, step)()
            bell.close()
            bell.close()
        put(queue, "work")
        assert eventually(lambda: queue.claim(1))

    @contextmanager
    def _armed(self, queue: BaseQueue, *beside: BaseQueue) -> Iterator[Bell]:
        """A bell that is armed, after all that rang before was heard."""
        with closing(queue.bell(beside)) as bell:
            self._arm(bell, queue, *beside)
            yield bell

    def _arm(self, bell: Bell, *queues: BaseQueue) -> None:
        """As an idle consumer does: claim until nothing is there, and nothing rings."""
        while bell.arm() or not bell.is_heard or rings(bell, 0.05):
            bell.disarm()
            assert not any(queue.claim(1) for queue in queues)

    def _elsewhere(self, act: Callable[[], object], queue: BaseQueue) -> None:
        """In another thread, which has a connection of its own."""
        together(act, last=queue.close)


def rings(bell: Bell, seconds: float = PATIENCE) -> bool:
    """Whether it rings in time."""
    poller = poll()
    while (descriptor := bell.fileno()) is not None:
        poller.register(descriptor, POLLIN)
        if not poller.poll(seconds * 1000):
            return False
        if bell.hear():
            return True
        if bell.arm():
            return True
        poller.unregister(descriptor)
    return False
