"""Random sequences of verbs on a queue, compared with a model. Only here is hypothesis needed, and imported late."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from djqueue.backends.base import BaseQueue, Entry, Lease
from djqueue.backends.entries import DEAD, DELAYED, LEASED, READY
from djqueue.testing.patience import eventually
from djqueue.testing.steps import entry, with_counts

AGES_AGO = 1_000_000_000.0
"""A moment in the past: entries that fell due then go before those that fall due on arrival."""
NEVER = 100_000.0
"""Seconds that no test lasts."""


@dataclass
class Known:
    """What the model knows of one entry."""

    entry: Entry
    place: tuple[float, int]
    state: str
    counts: tuple[int, int, int] = (0, 0, 0)
    """Attempts, failures, lost."""
    holder: Lease | None = None

    def turn(self) -> tuple:
        return (-self.entry.priority, *self.place)


class Model:
    """A queue as a plain dictionary. Delays never end here; leases run out only by :meth:`lose`."""

    def __init__(self) -> None:
        self.known: dict[str, Known] = {}
        self.arrivals = 0
        self.done = 0

    def put(self, entries: list[Entry]) -> list[bool]:
        return [self._put(one) for one in entries]

    def _put(self, one: Entry) -> bool:
        if one.id in self.known:
            return False
        self.arrivals += 1
        place = (one.run_at or 2 * AGES_AGO, self.arrivals)
        self.known[one.id] = Known(one, place, DELAYED if one.delay else READY)
        return True

    def ids(self, state: str) -> list[str]:
        found = sorted((known for known in self.known.values() if known.state == state), key=Known.turn)
        return [known.entry.id for known in found]

    def claim(self, leases: list[Lease]) -> None:
        for lease in leases:
            known = self.known[lease.entry.id]
            attempts, failures, lost = known.counts
            known.state, known.counts, known.holder = LEASED, (attempts + 1, failures, lost), lease

    def ours(self, lease: Lease) -> bool:
        known = self.known.get(lease.entry.id)
        return known is not None and known.holder is not None and known.holder.token == lease.token

    def complete(self, lease: Lease) -> None:
        del self.known[lease.entry.id]
        self.done += 1

    def give_up(self, lease: Lease, state: str) -> None:
        says, known = lease.entry, self.known[lease.entry.id]
        known.state, known.holder = state, None
        known.counts = (says.attempts, says.failures, says.lost)

    def lose(self, lease: Lease) -> None:
        known = self.known[lease.entry.id]
        attempts, failures, lost = known.counts
        known.state, known.counts = READY, (attempts, failures, lost + 1)

    def drop(self, ids: list[str]) -> int:
        waiting = [id for id in ids if id in self.known and self.known[id].state in (READY, DELAYED)]
        for id in waiting:
            del self.known[id]
        return len(waiting)


def queue_machine(make_queue: Callable[[], BaseQueue]) -> type:
    """A hypothesis ``RuleBasedStateMachine`` over new, empty queues with leases; its ``TestCase`` is a test class."""
    from hypothesis import strategies as st
    from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

    kinds = st.sampled_from([{}, {}, {}, {"run_at": AGES_AGO}, {"run_at": AGES_AGO + 1}, {"delay": NEVER}])
    whats = st.lists(st.tuples(st.integers(-1, 1), kinds), min_size=1, max_size=4)

    class QueueMachine(RuleBasedStateMachine):
        ids, leases = Bundle("ids"), Bundle("leases")

        def __init__(self) -> None:
            super().__init__()
            self.queue, self.model = make_queue(), Model()

        @rule(target=ids, whats=whats)
        def put(self, whats: list[tuple[int, dict]]) -> Any:
            entries = [entry(priority=priority, **kind) for priority, kind in whats]
            assert self.queue.put(entries) == self.model.put(entries)
            return multiple(*[one.id for one in entries])

        @rule(id=ids)
        def put_again_what_is_there(self, id: str) -> None:
            known = self.model.known.get(id)
            if known is not None and known.state != DEAD:
                assert self.queue.put([known.entry]) == [False]

        @rule(target=leases, limit=st.integers(1, 5))
        def claim(self, limit: int) -> Any:
            leases = self.queue.claim(limit, NEVER)
            assert [lease.entry.id for lease in leases] == self.model.ids(READY)[:limit]
            self.model.claim(leases)
            return multiple(*leases)

        @rule(lease=leases)
        def complete(self, lease: Lease) -> None:
            if self._agreed(lease, self.queue.complete([lease])):
                self.model.complete(lease)

        @rule(lease=leases, failures=st.integers(0, 2), delay=st.sampled_from([0, 0, NEVER]), untried=st.booleans())
        def release(self, lease: Lease, failures: int, delay: float, untried: bool) -> None:
            lease = with_counts(lease, failures=failures, delay=delay, attempts=lease.entry.attempts - untried)
            if self._agreed(lease, self.queue.release([lease])):
                self.model.give_up(lease, DELAYED if delay else READY)

        @rule(lease=leases)
        def bury(self, lease: Lease) -> None:
            if self._agreed(lease, self.queue.bury([lease])):
                self.model.give_up(lease, DEAD)

        @rule(lease=leases)
        def lose(self, lease: Lease) -> None:
            known = self.model.known.get(lease.entry.id)
            if known is not None and known.state == LEASED and self._agreed(lease, self.queue.touch([lease], 0.001)):
                eventually(lambda: self.queue.reap().count == 1)
                self.model.lose(lease)

        @rule(ids=st.lists(ids, max_size=4, unique=True))
        def revive(self, ids: list[str]) -> None:
            dead = [id for id in ids if id in self.model.known and self.model.known[id].state == DEAD]
            assert self.queue.revive(ids) == len(dead)
            for id in dead:
                self.model.known[id].state, self.model.known[id].counts = READY, (0, 0, 0)

        @rule(id=consumes(ids))
        def remove(self, id: str) -> None:
            assert self.queue.remove([id]) == self.model.drop([id])

        @rule(sure=st.sampled_from([False, False, True]))
        def flush(self, sure: bool) -> None:
            if sure:
                self.queue.flush()
                self.model.drop(list(self.model.known))

        @invariant()
        def counts_agree(self) -> None:
            stats = self.queue.stats()
            states = (READY, DELAYED, LEASED, DEAD)
            assert [getattr(stats, state) for state in states] == [len(self.model.ids(state)) for state in states]
            assert stats.done == self.model.done

        @invariant()
        def order_and_counts_of_the_ready_agree(self) -> None:
            shown = [record.entry for record in self.queue.peek(READY, 1000)]
            assert [one.id for one in shown] == self.model.ids(READY)
            counts = [(one.attempts, one.failures, one.lost) for one in shown]
            assert counts == [self.model.known[one.id].counts for one in shown]

        def _agreed(self, lease: Lease, told: list[Lease]) -> bool:
            assert bool(told) == self.model.ours(lease)
            return bool(told)

    return QueueMachine


def run_machine(make_queue: Callable[[], BaseQueue], examples: int = 20, steps: int = 30) -> None:
    """Try that many random sequences of verbs; the shortest that goes wrong is raised."""
    from hypothesis import HealthCheck, settings
    from hypothesis.stateful import run_state_machine_as_test

    how = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(queue_machine(make_queue), settings=how)
