"""The contract of every store. Mix StoreContract into a test class, as QueueContract."""

from __future__ import annotations

import unittest
from collections.abc import Callable

from djqueue.backends.base import BaseStore, Fact
from djqueue.testing.contract.steps import Contract, leased
from djqueue.testing.patience import eventually, together


def keep_short(store: BaseStore, extend: Callable[[], bool]) -> None:
    """Put a short fact, extend it before it ends (again, should the machine be too slow), and wait for that end."""

    def in_time() -> bool:
        store.put("key", b"1", ttl=0.3)
        return extend()

    eventually(in_time)
    until = store.now() + 0.3
    eventually(lambda: store.now() > until)


class StoreContract(Contract):
    """The contract of every store."""

    def store(self) -> BaseStore:
        """A store that no other test has."""
        return self.queue().store

    def test_a_fact_is_kept_until_it_or_its_value_is_dropped(self):
        store = self.store()
        assert store.get("key") is None
        store.put("key", bytes(range(256)))
        assert store.get("key") == bytes(range(256))
        store.put("key", b"")
        assert store.get("key") == b""
        assert store.drop("key") is True
        assert (store.drop("key"), store.get("key")) == (False, None)
        store.put("key", b"1")
        assert store.drop("key", b"2") is False
        assert store.get("key") == b"1"
        assert store.drop("key", b"1") is True

    def test_keys_are_any_text(self):
        store = self.store()
        keys = ["a", "A", "a:b", "a b", "ä", "k" * 150, "%s", "*", "tick:app.commands.digest:29000000", "é", "e\u0301"]
        for key in keys:
            store.put(key, key.encode())
        assert [store.get(key) for key in keys] == [key.encode() for key in keys]

    def test_two_queues_never_see_each_others_facts(self):
        one, other = self.store(), self.store()
        one.put("key", b"1")
        assert other.get("key") is None
        assert other.add("key", b"2", 60) is True
        assert other.drop("key") is True
        assert one.get("key") == b"1"

    def test_stores_share_facts_if_they_are_of_one_place(self):
        one, other = self.store(), self.store()
        one.shared.put("shared", b"1", 60)
        assert one.shared.get("shared") == b"1"
        assert (other.shared.get("shared") == b"1") == (one.place == other.place)

    def test_a_fact_ends_with_its_time_and_put_replaces_value_and_time(self):
        store = self.store()
        store.put("key", b"1", ttl=0.05)
        store.put("long", b"1", ttl=60)
        store.put("kept", b"1", ttl=0.05)
        store.put("kept", b"2")
        store.put("over", b"1")
        store.put("over", b"2", ttl=0.05)
        eventually(lambda: store.get("key") is store.get("over") is None)
        assert store.drop("key") is False
        assert store.swap("key", b"1", b"1", 60) is False
        assert (store.get("long"), store.get("kept")) == (b"1", b"2")

    def test_add_sets_what_is_absent(self):
        store = self.store()
        store.put("for ever", b"1")
        assert store.add("for ever", b"2", 60) is False
        assert store.add("key", b"1", 60) is True
        assert store.add("key", b"2", 60) is False
        assert store.get("key") == b"1"
        assert store.add("short", b"1", 0.05) is True
        eventually(lambda: store.add("short", b"2", 60))
        assert store.get("short") == b"2"

    def test_swap_sets_only_what_is_still_the_same(self):
        store = self.store()
        store.put("key", b"1")
        assert store.swap("key", b"2", b"3", 60) is False
        assert store.swap("key", None, b"3", 60) is False
        assert store.swap("none", b"1", b"3", 60) is False
        assert (store.get("key"), store.get("none")) == (b"1", None)
        assert store.swap("key", b"1", b"", 60) is True
        assert store.swap("key", b"", b"2", 60) is True
        assert store.get("key") == b"2"

    def test_swap_of_nothing_sets_what_is_absent_or_over(self):
        store = self.store()
        assert store.swap("key", None, b"1", 60) is True
        assert store.swap("key", None, b"2", 60) is False
        store.put("short", b"1", ttl=0.05)
        eventually(lambda: store.get("short") is None)
        assert store.swap("short", b"1", b"2", 60) is False
        assert store.swap("short", None, b"2", 60) is True
        assert (store.get("key"), store.get("short")) == (b"1", b"2")

    def test_swap_gives_a_fact_its_time(self):
        store = self.store()
        store.put("key", b"1")
        assert store.swap("key", b"1", b"1", 0.05) is True
        assert store.swap("other", None, b"1", 0.05) is True
        eventually(lambda: store.get("key") is store.get("other") is None)
        keep_short(store, lambda: store.swap("key", b"1", b"2", 60))
        assert store.get("key") == b"2"

    def test_of_twenty_who_swap_one_value_one_succeeds(self):
        queue = self.queue()
        for was in (None, b"first"):
            swaps = [lambda n=n, was=was: queue.store.swap("key", was, b"%d" % n, 60) for n in range(20)]
            assert sorted(won := together(*swaps, last=queue.close)) == [False] * 19 + [True]
            assert queue.store.get("key") == b"%d" % won.index(True)
            queue.store.put("key", b"first")

    def test_several_changes_are_made_together_or_not_at_all(self):
        one, other = self.store(), self.store()
        one.put_many([("set", b"1", None), ("gone", b"\0", None), ("short", b"1", 0.05)])
        eventually(lambda: one.get("short") is None)
        changes = [("set", b"1", b"2"), ("new", None, b""), ("gone", b"\0", None), ("none", None, None)]
        keys = [key for key, _, _ in changes] + ["short"]
        before, after = [b"1", None, b"\0", None, None], [b"2", b"", None, None, b"3"]
        for wrong in [("key", b"1", b"2"), ("short", b"1", b"2"), ("set", None, b"2"), ("gone", b"", None)]:
            assert one.swap_many([*changes[wrong[0] == "set" :], wrong], 60) is False
            assert one.get_many(keys) == before
        assert one.swap_many([*changes, ("short", None, b"3")], 60) is True
        assert one.get_many(keys) == after
        assert other.get_many(keys) == [None] * 5
        assert one.swap_many([("set", b"2", b"4")], 0.05) is True
        eventually(lambda: one.get("set") is None)
        assert one.swap_many([], 60) is True

    def test_of_twenty_who_change_several_one_succeeds(self):
        queue = self.queue()
        keys = ["a", "b", "c"]
        for was in (None, b"first"):

            def change(number: int, was: bytes | None = was) -> bool:
                at = number % len(keys)  # in any order
                return queue.store.swap_many([(key, was, b"%d" % number) for key in keys[at:] + keys[:at]], 60)

            won = together(*[lambda n=n: change(n) for n in range(20)], last=queue.close)
            assert sorted(won) == [False] * 19 + [True]
            assert queue.store.get_many(keys) == [b"%d" % won.index(True)] * 3
            queue.store.put_many([(key, b"first", None) for key in keys])

    def test_several_are_read_at_once(self):
        store = self.store()
        store.put("a", b"1")
        store.put("b", b"2", 60)
        store.put("over", b"3", 0.05)
        eventually(lambda: store.get("over") is None)
        assert store.get_many(["b", "none", "a", "over", "b", "nul \0"]) == [b"2", None, b"1", None, b"2", None]
        assert store.get_many([]) == []

    def test_several_are_put_at_once(self):
        one, other = self.store(), self.store()
        one.put("old", b"1", ttl=60)
        one.put_many([])
        one.put_many([("old", b"2", 0.05), ("new", b"", None), ("short", b"1", 0.05), ("short", b"2", None)])
        one.put_many([(f"key {number}", bytes([number]), 60) for number in range(200)])
        assert (one.get("new"), one.get("short"), other.get("new")) == (b"", b"2", None)
        assert [one.get(f"key {number}") for number in range(200)] == [bytes([number]) for number in range(200)]
        eventually(lambda: one.get("old") is None)
        assert one.get("short") == b"2"

    def test_several_who_put_the_same_at_once_do_not_lock_each_other_out(self):
        queue = self.queue()

        def put(turn: int) -> None:
            keys = [f"key {(number * 7 + turn * 3) % 20}" for number in range(20)]
            queue.store.put_many([(key, b"1", 60) for key in keys])

        together(*[lambda turn=turn: put(turn) for turn in range(6)], last=queue.close)
        assert [queue.store.get(f"key {number}") for number in range(20)] == [b"1"] * 20

    def test_a_swap_for_the_same_value_extends_only_that(self):
        store = self.store()
        store.put("key", b"1", ttl=60)
        assert store.swap("key", b"2", b"2", 60) is False
        keep_short(store, lambda: store.swap("key", b"1", b"1", 60))
        assert store.get("key") == b"1"
        assert store.swap("none", b"1", b"1", 60) is False

    def test_to17_prune_deletes_what_is_over_and_nothing_else(self):
        store = self.store()
        store.put("for ever", b"1")
        store.put("long", b"1", ttl=60)
        for number in range(5):
            store.put(f"short {number}", b"1", ttl=0.01)
        eventually(lambda: all(store.get(f"short {number}") is None for number in range(5)))
        assert store.prune(limit=2) <= 2
        assert store.prune() <= 5
        assert store.prune() == 0
        assert (store.get("for ever"), store.get("long")) == (b"1", b"1")

    def test_of_results_beyond_a_number_those_go_that_would_be_over_first(self):
        queue, keys = self.queue(), [f"result:{number}" for number in range(6)]
        store = queue.store
        if type(store).trim_results is BaseStore.trim_results:
            raise unittest.SkipTest(f"{type(store).__name__} does not count results")
        store.put("progress:0", b"1", 30)
        facts = list(map(Fact, keys, [b"1"] * 6, (61, 66, 62, 65, 63, 64)))
        leases = leased(queue, "a", "b", "c")
        assert queue.complete(leases, facts[:3]) == leases
        store.put_many(facts[3:])
        assert [store.trim_results(4, limit=1), store.trim_results(4), store.trim_results(4)] == [1, 1, 0]
        assert store.get_many(keys) == [None, b"1", None, b"1", b"1", b"1"]
        assert store.get("progress:0") == b"1"

    def test_of_twenty_who_add_one_key_and_of_eight_who_drop_it_one_succeeds(self):
        queue = self.queue()
        adds = [lambda number=number: queue.store.add("key", str(number).encode(), 60) for number in range(20)]
        assert sorted(won := together(*adds, last=queue.close)) == [False] * 19 + [True]
        value = str(won.index(True)).encode()
        assert queue.store.get("key") == value
        assert sorted(together(*[lambda: queue.store.drop("key", value)] * 8, last=queue.close)) == [False] * 7 + [True]
