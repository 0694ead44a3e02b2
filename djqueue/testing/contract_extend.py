"""Calls that postpone what waits for them."""

from __future__ import annotations

from djqueue.backends.base import Debounce
from djqueue.backends.entries import DELAYED, READY
from djqueue.backends.guards import Mark
from djqueue.testing.contract_debounce import LONG, ROUNDED, SHORT, due
from djqueue.testing.patience import together
from djqueue.testing.steps import Contract, claim, names, send, until_now_is, with_counts


class ExtendContract(Contract):
    """Debounce that postpones what waits."""

    def test_the_first_is_delayed_and_each_call_postpones_it_to_a_window_from_then(self):
        queue = self.guarded("inspect")
        guard = Debounce("key", LONG, extend=True)
        (first,) = send(queue, guard, "first").values()
        for _ in range(3):
            was = due(queue, first)
            until_now_is(queue, was - LONG + 0.01)
            called = queue.now()
            assert send(queue, guard, "refused") == {}
            assert max(called + LONG, was + 0.01) - ROUNDED <= due(queue, first) <= queue.now() + LONG + ROUNDED
        record = queue.find(first.id)
        assert (record.state, record.entry.data, len(queue)) == (DELAYED, b"first", 1)

    def test_what_is_postponed_comes_at_its_new_moment(self):
        queue = self.guarded("inspect")
        first = send(queue, Debounce("key", 30, extend=True), "first")["first"]
        send(queue, Debounce("key", 0.2, extend=True), "refused")
        second = send(queue, Debounce("other", 40, extend=True), "second")["second"]
        send(queue, Debounce("key", LONG, extend=True), "refused")
        assert [record.entry.id for record in queue.peek(DELAYED)] == [second.id, first.id]
        assert 30 < queue.claim(1).again <= 40
        queue.remove([second.id])
        assert 50 < queue.claim(1).again <= LONG

    def test_what_is_postponed_is_not_claimed_before(self):
        queue = self.guarded("inspect")
        first = send(queue, Debounce("key", 1.0, extend=True), "first")["first"]
        was = due(queue, first)
        send(queue, Debounce("key", 1.5, extend=True), "refused")
        postponed = due(queue, first)
        assert postponed > was + 0.4
        (lease,) = claim(queue)
        assert lease.claimed >= postponed - ROUNDED

    def test_it_is_postponed_no_further_than_its_longest_wait_after_the_first_call(self):
        queue = self.guarded("inspect")
        guard = Debounce("key", LONG, extend=True, max_wait=LONG + 0.05)
        first = send(queue, guard, "first")["first"]
        latest = due(queue, first) + 0.05
        for moment in (0.06, 0.12):
            until_now_is(queue, latest - LONG - 0.05 + moment)
            assert send(queue, guard, "refused") == {}
            assert abs(due(queue, first) - latest) < ROUNDED

    def test_it_is_never_brought_forward(self):
        queue = self.guarded("inspect")
        first = send(queue, Debounce("key", LONG, extend=True), "first")["first"]
        was = due(queue, first)
        for guard in (Debounce("key", 1, extend=True), Debounce("key", LONG, extend=True, max_wait=1)):
            assert send(queue, guard, "refused") == {}
            assert abs(due(queue, first) - was) < ROUNDED

    def test_what_is_due_and_still_waits_is_not_postponed(self):
        queue = self.guarded("inspect")
        first = send(queue, Debounce("key", SHORT, extend=True), "first")["first"]
        was = due(queue, first)
        until_now_is(queue, was)
        assert send(queue, Debounce("key", LONG, extend=True), "refused") == {}
        assert (queue.find(first.id).state, abs(due(queue, first) - was) < ROUNDED) == (READY, True)
        assert names(claim(queue)) == ["first"]

    def test_what_is_tried_again_is_not_postponed(self):
        queue = self.guarded("inspect")
        first = send(queue, Debounce("key", SHORT, extend=True), "first")["first"]
        queue.release([with_counts(lease, delay=10) for lease in claim(queue)])
        was = due(queue, first)
        assert send(queue, Debounce("key", LONG, extend=True), "refused") == {}
        assert abs(due(queue, first) - was) < ROUNDED

    def test_a_call_after_it_was_claimed_is_a_first_one(self):
        queue = self.guarded("inspect")
        send(queue, Debounce("key", SHORT, extend=True), "first")
        claim(queue)
        called = queue.now()
        sent = send(queue, Debounce("key", LONG, extend=True), "second")
        assert called + LONG - ROUNDED <= due(queue, sent["second"]) <= queue.now() + LONG

    def test_a_call_after_it_was_removed_is_a_first_one(self):
        queue = self.guarded("inspect")
        guard = Debounce("key", LONG, extend=True)
        first = send(queue, guard, "first")["first"]
        queue.remove([first.id])
        called = queue.now()
        sent = send(queue, guard, "second")
        assert called + LONG - ROUNDED <= due(queue, sent["second"]) <= queue.now() + LONG

    def test_of_twenty_simultaneous_calls_one_is_accepted_and_postponed(self):
        queue = self.guarded("inspect")
        guard = Debounce("key", LONG, extend=True)
        started = queue.now()
        sent = together(*[lambda: len(send(queue, guard, "work"))] * 20, last=queue.close)
        assert sorted(sent) == [0] * 19 + [1]
        (record,) = queue.peek(DELAYED)
        assert started + LONG - ROUNDED <= record.at <= queue.now() + LONG
        assert abs(record.at - Mark.read(queue.store.get("key")).at / 1e6) < ROUNDED
