"""The contract of queues whose ``wait_for_work`` ends when work comes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

from djqueue.backends.base import BaseQueue
from djqueue.testing.contract.lane_steps import ORDERED, LaneSuite, fill, unit
from djqueue.testing.contract.steps import put
from djqueue.testing.patience import PATIENCE, eventually, together


class WakeContract(LaneSuite):
    """For queues whose ``wait_for_work`` ends when work comes."""

    share_a_connection = True
    """Whether two queues of this backend have the same :attr:`connection_key`, so that one nap may serve both."""

    def test_to21_a_nap_ends_when_work_comes(self):
        queue = self.queue()
        self._woken(queue, queue, lambda: put(queue, "work"))

    def test_to21_a_nap_ends_when_work_comes_to_a_queue_beside(self):
        queue, beside = self.queue(), self.queue()
        assert (queue.connection_key == beside.connection_key) is self.share_a_connection
        fed = beside if self.share_a_connection else queue
        self._woken(queue, fed, lambda: put(fed, "work"))

    def test_work_that_comes_between_the_look_and_the_nap_is_not_missed(self):
        queue = self.queue()
        assert queue.claim(1) == []
        put(queue, "work")
        started = queue.now()
        assert queue.wait_for_work(PATIENCE) is True
        assert queue.now() - started < PATIENCE / 2

    def test_a_nap_ends_when_what_is_settled_may_have_opened_its_lane(self):
        for verb in ("complete", "fail", "release"):
            queue = self.with_lane("a", *"12")
            leases = unit(queue)
            self._woken(queue, queue, partial(getattr(queue, verb), leases))

    def test_a_nap_ends_when_what_the_dead_held_comes_back(self):
        for lane in ({}, {"lane": "a", "gate": ORDERED.written()}):
            queue = self.reclaiming()
            put(queue, "work", **lane)
            eventually(lambda queue=queue: queue.claim(1, owner="dead"))
            self._woken(queue, queue, partial(queue.reclaim, "dead"))

    def test_a_nap_ends_when_an_operator_opens_a_lane(self):
        queue = self.queue("lanes")
        queue.lanes.pause("a", "closed")
        fill(queue, "a", "1")
        self._woken(queue, queue, lambda: queue.lanes.resume("a"))

    def test_a_nap_ends_when_an_operator_makes_work_due(self):
        queue = self.queue("inspect")
        ids = [one.id for one in put(queue, "later", delay=3600).values()]
        self._woken(queue, queue, lambda: queue.promote(ids))

    def test_a_nap_without_work_lasts(self):
        queue = self.queue()
        started = queue.now()
        assert not queue.wait_for_work(0.2)
        assert queue.now() - started >= 0.15

    def _woken(self, queue: BaseQueue, fed: BaseQueue, wake: Callable[[], object]) -> None:
        looked, moments = threading.Event(), []

        def sleep() -> bool:
            assert queue.claim(1) == fed.claim(1) == []
            looked.set()
            woken = queue.wait_for_work(PATIENCE, beside=[fed] if fed is not queue else [])
            moments.append(queue.now())
            return woken

        def feed() -> None:
            assert looked.wait(PATIENCE)
            moments.append(queue.now())
            wake()

        woken, _ = together(sleep, feed, last=queue.close)
        assert woken
        assert moments[1] - moments[0] < PATIENCE / 2
