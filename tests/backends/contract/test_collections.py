"""Collections of values: each is read when it changes, whatever processes change at the same time."""

import json
import random
from base64 import b64encode

import pytest
from django.db import connections, transaction

from djqueue.backends.collections import Collection, CollectionState, number_of
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
    known, values = collection.read()
    assert (known, values) == (CollectionState(None), {})
    assert put(collection, "a", b"1")
    assert put(collection, "name \0 of 'any' kind é", bytes(range(256)))
    known, values = collection.read(known)
    assert values == {"a": b"1", "name \0 of 'any' kind é": bytes(range(256))}
    assert (collection.get("a"), collection.get("none")) == (b"1", None)
    assert not put(collection, "a", b"1")
    assert collection.read(known) == (known, {})
    assert collection.change("a", lambda was: was + b"2")
    known, values = collection.read(known)
    assert values == {"a": b"12"}
    assert put(collection, "a", None)
    assert not put(collection, "a", None)
    known, values = collection.read(known)
    assert (set(known.names()), values, collection.get("a")) == ({"name \0 of 'any' kind é"}, {}, None)


def test_a_state_that_was_there_before_is_a_change_too(collection):
    put(collection, "a", b"1")
    one = collection.read()[0]
    put(collection, "a", b"2")
    other = collection.read(one)[0]
    put(collection, "a", b"1")
    assert collection.read(other) == (one, {"a": b"1"})
    put(collection, "a", None)
    assert collection.read(one) == (CollectionState(None), {})


def test_two_collections_of_a_store_have_values_of_their_own(store):
    put(Collection(store, "one"), "a", b"1")
    assert Collection(store, "other").read()[1] == {}


def test_many_who_change_at_once_lose_nothing(collection):
    names = [f"name {number}" for number in range(4)]

    def work(worker):
        for name in random.Random(worker).sample(names, len(names)):
            collection.change(name, lambda was: (was or b"") + b"%d" % worker)

    together(*[lambda worker=worker: work(worker) for worker in range(5)], last=connections.close_all)
    known, values = collection.read()
    assert {name: sorted(values[name]) for name in names} == dict.fromkeys(names, sorted(b"01234"))
    assert collection.read(known) == (known, {})


def test_who_reads_while_others_change_knows_the_last_state_in_the_end(collection):
    known, seen = CollectionState(), {}

    def change(worker):
        for turn in range(12):
            put(collection, f"name {turn % 3}", None if turn % 4 == 3 else b"%d of %d" % (turn, worker))

    def read():
        nonlocal known
        for _ in range(20):
            known, values = collection.read(known)
            note(values)

    def note(values):
        seen.update(values)
        for name in seen.keys() - set(known.names()):
            del seen[name]

    together(lambda: change(1), lambda: change(2), read, last=connections.close_all)
    known, values = collection.read(known)
    note(values)
    assert seen == collection.read()[1]


@pytest.mark.backends("sqlite", "postgres", "mariadb")
def test_in_a_database_a_change_is_part_of_the_transaction(collection, queue):
    with transaction.atomic(using=queue.database):
        put(collection, "a", b"1")
        transaction.set_rollback(True, using=queue.database)
    assert collection.read() == (CollectionState(None), {})


@pytest.mark.backends("postgres", "mariadb")
def test_two_transactions_that_change_the_same_in_another_order_do_not_deadlock(collection, queue):
    def work(names):
        for turn in range(5):
            with transaction.atomic(using=queue.database):
                for name in names:
                    put(collection, name, b"%d" % turn)

    together(lambda: work("abc"), lambda: work("cba"), lambda: work("bca"), last=connections.close_all)
    assert collection.read()[1] == dict.fromkeys("abc", b"4")


class TestEarlierForm:
    """All values in one fact, in base64."""

    def old(self, store, **values):
        texts = {name: b64encode(value).decode() for name, value in values.items()}
        store.put("things", json.dumps(texts).encode())

    def test_it_is_taken_over_by_whatever_comes_first(self, store, collection):
        values = {f"name {number}": b"%d" % number for number in range(200)}
        self.old(store, **values)
        assert collection.read()[1] == values
        assert store.get("things") is None
        self.old(store, more=b"1")
        assert collection.get("more") == b"1"
        self.old(store, gone=b"1")
        assert put(collection, "gone", None)
        assert collection.read()[1] == values | {"more": b"1"}

    def test_what_an_old_process_adds_beside_is_the_latest(self, store, collection):
        put(collection, "a", b"new")
        put(collection, "b", b"new")
        known = collection.read()[0]
        self.old(store, a=b"old")
        assert collection.read(known)[1] == {"a": b"old"}
        assert collection.read()[1] == {"a": b"old", "b": b"new"}

    def test_many_who_take_it_over_at_once_lose_nothing(self, store, collection):
        values = {f"name {number}": b"%d" % number for number in range(30)}
        self.old(store, **values)
        found = together(*[lambda: collection.read()[1]] * 5, last=connections.close_all)
        assert found == [values] * 5

    def test_a_value_that_is_no_base64_is_kept_as_it_is(self, store, collection):
        store.put("things", b'{"a": "\\u00e9!", "b": 7, "c": "MQ=="}')
        assert collection.read()[1] == {"a": "é!".encode(), "b": b"7", "c": b"1"}


class TestUnreadable:
    @pytest.mark.parametrize("junk", [b"junk", b"null", b"\xff", b"[1]", b'"text"'])
    def test_an_earlier_form_is_put_aside(self, store, collection, caplog, junk):
        store.put("things", junk)
        put(collection, "a", b"1")
        assert collection.read()[1] == {"a": b"1"}
        assert "Some things cannot be read, and rest" in caplog.text
        assert (store.get("things"), store.get("things:unreadable")) == (None, junk)

    def test_an_index_is_made_anew_of_the_parts(self, store, collection, caplog):
        names = [f"name {number}" for number in range(20)]
        for name in names:
            put(collection, name, b"1")
        store.put("things:index:", b"junk")
        assert set(collection.read()[1]) == set(names)
        assert "index of things cannot be read" in caplog.text
        put(collection, "more", b"1")
        caplog.clear()
        assert set(collection.read()[1]) == {*names, "more"}
        assert caplog.text == ""

    def test_values_of_a_part_rest_until_they_are_set_again(self, store, collection, caplog):
        put(collection, "a", b"1")
        put(collection, "b", b"2")
        assert number_of("a") != number_of("b")
        known = collection.read()[0]
        store.put(f"things:part:{number_of('a')}", b"junk")
        assert collection.read()[1] == {"b": b"2"}
        assert "Some things cannot be read, and rest" in caplog.text
        assert put(collection, "a", b"1")
        assert collection.read(known)[1] == {}
        assert collection.read()[1] == {"a": b"1", "b": b"2"}
        assert store.get("things:unreadable") == b"junk"

    def test_values_that_were_changed_or_deleted_by_hand_are_as_they_are_found(self, store, collection):
        put(collection, "a", b"1")
        put(collection, "b", b"2")
        store.put("things:value:a", b"3")
        store.drop("things:value:b")
        known, values = collection.read()
        assert (set(known.names()), values) == ({"a"}, {"a": b"3"})
        assert collection.read(known)[1] == {}
        assert put(collection, "b", b"4")
        assert collection.read(known)[1] == {"b": b"4"}


@pytest.mark.backends("memory")
def test_a_store_that_has_only_single_changes_does_for_it():
    store = PlainStore()
    things = Collection(store, "things")
    put(things, "a", b"1")
    put(things, "b", b"2")
    before = dict(store.facts)
    assert not store.swap_many([("new", None, b"1"), ("things:value:a", b"1", None), ("none", b"1", b"2")], 60)
    assert store.facts == before
    put(things, "b", None)
    assert things.read()[1] == {"a": b"1"}


@pytest.mark.backends("memory")
def test_who_cannot_change_anything_is_told(collection, store, monkeypatch):
    monkeypatch.setattr(store, "swap_many", lambda changes, ttl: False)
    with pytest.raises(QueueError, match="The things could not be changed"):
        put(collection, "a", b"1")
