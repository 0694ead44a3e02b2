"""Collections of values: each is read when it changes, whatever processes change at the same time."""

import random

import pytest
from django.db import connections, transaction

from djqueue.backends.collections import FOR_EVER, NOTHING, PARTS, Collection, number_of
from djqueue.backends.stores import BaseStore
from djqueue.exceptions import QueueError
from djqueue.testing import together
from tests.support.backends import SERVED

pytestmark = pytest.mark.backends(*SERVED)


class PlainStore(BaseStore):
    """A store that does no more than it has to."""

    def __init__(self):
        self.facts = {}

    def get(self, key):
        return self.facts.get(key)

    def put(self, key, value, ttl=None):
        self.facts[key] = value

    def swap(self, key, was, value, ttl):
        same = self.get(key) == was
        if same:
            self.put(key, value)
        return same

    def drop(self, key, value=None):
        same = key in self.facts and value in (None, self.facts[key])
        if same:
            del self.facts[key]
        return same


@pytest.fixture
def store(queue):
    return queue.store


@pytest.fixture
def collection(store):
    return Collection(store, "things")


def put(things, name, value):
    return things.change(name, lambda was: value)


def test_a_value_is_set_read_changed_and_removed(collection):
    known = collection.read()
    assert known.values == {}
    assert collection.read(known) is known
    assert put(collection, "a", b"1")
    assert put(collection, "name \0 of 'any' kind é", bytes(range(256)))
    known = collection.read(known)
    assert known.values == {"a": b"1", "name \0 of 'any' kind é": bytes(range(256))}
    assert (collection.get("a"), collection.get("none")) == (b"1", None)
    assert not put(collection, "a", b"1")
    assert collection.read(known) is known
    assert collection.change("a", lambda was: was + b"2")
    known = collection.read(known)
    assert known.values["a"] == b"12"
    assert put(collection, "a", None)
    assert not put(collection, "a", None)
    known = collection.read(known)
    assert (set(known.values), collection.get("a")) == ({"name \0 of 'any' kind é"}, None)
    assert collection.read(known) is known


def test_a_state_that_was_there_before_is_a_change_too(collection):
    put(collection, "a", b"1")
    one = collection.read()
    put(collection, "a", b"2")
    other = collection.read(one)
    put(collection, "a", b"1")
    assert collection.read(other).values == {"a": b"1"}
    assert collection.read(one).version not in (one.version, other.version)
    put(collection, "a", None)
    assert collection.read(one).values == {}


def test_a_version_that_is_lost_is_a_change_and_none_comes_twice(store, collection):
    """As where a server drops facts, for want of memory: a number would begin again."""
    put(collection, "a", b"1")
    known = collection.read()
    store.drop("things:changed:")
    assert collection.read(known) is not known
    put(collection, "a", b"2")
    assert collection.read(known).values == {"a": b"2"}


def test_two_collections_of_a_store_have_values_of_their_own(store):
    put(Collection(store, "one"), "a", b"1")
    assert Collection(store, "other").read().values == {}


def test_many_who_change_at_once_lose_nothing(collection):
    names = [f"name {number}" for number in range(4)]

    def work(worker):
        for name in random.Random(worker).sample(names, len(names)):
            collection.change(name, lambda was: (was or b"") + b"%d" % worker)

    together(*[lambda worker=worker: work(worker) for worker in range(5)], last=connections.close_all)
    known = collection.read()
    assert {name: sorted(known.values[name]) for name in names} == dict.fromkeys(names, sorted(b"01234"))
    assert collection.read(known) is known


def test_who_reads_while_others_change_knows_the_last_state_in_the_end(collection):
    known = NOTHING

    def change(worker):
        for turn in range(12):
            put(collection, f"name {turn % 3}", None if turn % 4 == 3 else b"%d of %d" % (turn, worker))

    def read():
        nonlocal known
        for _ in range(20):
            known = collection.read(known)

    together(lambda: change(1), lambda: change(2), read, last=connections.close_all)
    assert collection.read(known).values == collection.read().values


def test_who_reads_in_the_middle_of_a_change_sees_it_in_the_next_read(store, collection, monkeypatch):
    """Between the version and the values."""
    put(collection, "a", b"1")
    get_many = store.get_many

    def get_slowly(keys):
        found = get_many(keys)
        if "things:value:a" not in keys:
            monkeypatch.undo()
            put(collection, "a", b"2")
            put(collection, "b", b"2")
        return found

    monkeypatch.setattr(store, "get_many", get_slowly)
    known = collection.read()
    assert known.values == {"a": b"2"}
    assert collection.read(known).values == {"a": b"2", "b": b"2"}


@pytest.mark.backends("sqlite", "postgres", "mariadb")
def test_in_a_database_a_change_is_part_of_the_transaction(collection, queue):
    with transaction.atomic(using=queue.database):
        put(collection, "a", b"1")
        transaction.set_rollback(True, using=queue.database)
    assert collection.read().values == {}


@pytest.mark.backends("postgres", "mariadb")
def test_two_transactions_that_change_the_same_in_another_order_do_not_deadlock(collection, queue):
    def work(names):
        for turn in range(5):
            with transaction.atomic(using=queue.database):
                for name in names:
                    put(collection, name, b"%d" % turn)

    together(lambda: work("abc"), lambda: work("cba"), lambda: work("bca"), last=connections.close_all)
    assert collection.read().values == dict.fromkeys("abc", b"4")


class TestEarlierForms:
    def test_all_values_in_one_fact_are_named_and_rest(self, store, collection, caplog):
        store.put("things", b'{"a": "MQ==", "b": "Mg=="}')
        put(collection, "c", b"3")
        assert collection.read().values == {"c": b"3"}
        assert "These things are in a form that is not read any more" in caplog.text
        assert caplog.text.rstrip().endswith("'things': a, b")

    def test_parts_with_digests_are_read_and_written_again(self, store, collection, caplog):
        for name in "ab":
            store.put(f"things:value:{name}", b"1", FOR_EVER)
        store.put(f"things:part:{number_of('a')}", b'{"a": "00ff"}', FOR_EVER)
        store.put(f"things:part:{(number_of('b') + 1) % PARTS}", b'{"b": "00ff"}', FOR_EVER)
        assert collection.read().values == {"a": b"1", "b": b"1"}
        assert put(collection, "a", b"2")
        assert put(collection, "b", None)
        assert collection.read().values == {"a": b"2"}
        assert caplog.text == ""


class TestUnreadable:
    @pytest.mark.parametrize("junk", [b"junk", b"null", b"\xff", b"7", b'"text"', b"", b"[" * 100_000])
    def test_values_of_a_part_rest_until_they_are_set_again(self, store, collection, caplog, junk):
        put(collection, "a", b"1")
        put(collection, "b", b"2")
        assert number_of("a") != number_of("b")
        known = collection.read()
        store.put(f"things:part:{number_of('a')}", junk)
        assert collection.read().values == {"b": b"2"}
        assert "Some things cannot be read, and rest" in caplog.text
        assert put(collection, "a", b"1")
        assert collection.read(known).values == {"a": b"1", "b": b"2"}

    @pytest.mark.parametrize("junk", [b"junk", b"", b"\xff", b"7"])
    def test_a_version_may_be_anything(self, store, collection, junk):
        put(collection, "a", b"1")
        store.put("things:changed:", junk)
        known = collection.read()
        assert collection.read(known) is known
        put(collection, "a", b"2")
        assert collection.read(known).values == {"a": b"2"}

    def test_values_that_were_changed_or_deleted_by_hand_are_as_they_are_found(self, store, collection):
        put(collection, "a", b"1")
        put(collection, "b", b"2")
        store.put("things:value:a", b"3")
        store.drop("things:value:b")
        known = collection.read()
        assert known.values == {"a": b"3"}
        assert put(collection, "b", b"4")
        assert collection.read(known).values == {"a": b"3", "b": b"4"}


@pytest.mark.backends("memory")
class TestPlainStore:
    def test_a_store_that_has_only_single_changes_does_for_it(self):
        store = PlainStore()
        things = Collection(store, "things")
        put(things, "a", b"1")
        put(things, "b", b"2")
        before = dict(store.facts)
        assert not store.swap_many([("new", None, b"1"), ("things:value:a", b"1", None), ("none", b"1", b"2")], 60)
        assert store.facts == before
        put(things, "b", None)
        assert things.read().values == {"a": b"1"}

    def test_the_version_changes_after_the_value(self, monkeypatch):
        """So a reader that comes in between reads again."""
        store, seen = PlainStore(), []
        things = Collection(store, "things")
        swap = store.swap
        monkeypatch.setattr(store, "swap", lambda *args: seen.append(things.read()) or swap(*args))
        put(things, "a", b"1")
        monkeypatch.undo()
        assert len(seen) == 3
        assert [things.read(known).values for known in seen] == [{"a": b"1"}] * 3

    def test_a_change_that_a_process_did_not_end_is_seen_by_who_reads_all(self, monkeypatch):
        store = PlainStore()
        things = Collection(store, "things")
        known, swap = things.read(), store.swap

        def die_at_the_version(key, *args):
            if key == "things:changed:":
                raise SystemExit
            return swap(key, *args)

        monkeypatch.setattr(store, "swap", die_at_the_version)
        with pytest.raises(SystemExit):
            put(things, "a", b"1")
        assert things.read(known) is known
        assert things.read().values == {"a": b"1"}


@pytest.mark.backends("memory")
def test_who_cannot_change_anything_is_told(collection, store, monkeypatch):
    monkeypatch.setattr(store, "swap_many", lambda changes, ttl: False)
    with pytest.raises(QueueError, match="The things could not be changed"):
        put(collection, "a", b"1")
