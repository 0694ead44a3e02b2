"""Fingerprints: equal for equal arguments, however they were written down; different for all others."""

import subprocess
import sys
import threading
from collections import OrderedDict, deque, namedtuple
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from djqueue.decorators import queue_command
from djqueue.enqueueing.command import Call
from djqueue.exceptions import EncodeError
from djqueue.messages.fingerprint import DEEPEST, fingerprint
from tests.app.models import Thing
from tests.support.backends import FULL

Pair = namedtuple("Pair", "a b")


class Colour(Enum):
    RED = 1
    BLUE = 2


@dataclass(frozen=True)
class Point:
    x: int
    y: object = None
    seen: int = field(default=0, compare=False)


@dataclass
class Place:
    x: int
    y: object = None


@dataclass
class Bare:
    x: int


class Plain:
    def __init__(self, value):
        self.value = value


@queue_command
def draw(shape, width=1, *points, colour="red", **more):
    pass


PLAIN = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False).map(lambda value: value or 0.0)  # 0.0 equals -0.0, and is written otherwise
    | st.text(st.characters())
    | st.binary()
    | st.dates()
    | st.datetimes(timezones=st.none() | st.just(UTC))
    | st.timedeltas()
    | st.uuids()
)
KEYS = st.text(max_size=3) | st.integers()
VALUES = st.recursive(
    PLAIN,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(KEYS, inner, max_size=4)
        | st.sets(KEYS, max_size=4)
        | st.frozensets(KEYS, max_size=4)
        | st.builds(Point, st.integers(), inner)
    ),
    max_leaves=12,
)


def typed(value):
    """The same value, but equal only to what is of the same types all through."""
    kind = type(value)
    if isinstance(value, dict):
        return kind, frozenset((typed(name), typed(one)) for name, one in value.items())
    if isinstance(value, set | frozenset):
        return kind, frozenset(map(typed, value))
    if isinstance(value, list | tuple):
        return kind, tuple(map(typed, value))
    if isinstance(value, Point):
        return kind, value.x, typed(value.y)
    return kind, repr(value)


def anew(value):
    """An equal value, with every container made again, from its contents in the opposite order where there is none."""
    if isinstance(value, dict):
        return {anew(name): anew(one) for name, one in reversed(value.items())}
    if isinstance(value, set | frozenset):
        return type(value)(anew(one) for one in reversed(list(value)))
    if isinstance(value, list | tuple):
        return type(value)(map(anew, value))
    if isinstance(value, Point):
        return Point(value.x, anew(value.y), seen=value.seen + 1)
    return value


class TestProperties:
    @given(VALUES)
    def test_df17_equal_values_have_one(self, value):
        assert fingerprint(value) == fingerprint(anew(value))

    @settings(max_examples=300 if FULL else 100)
    @given(VALUES, VALUES)
    def test_others_have_another(self, one, other):
        assert (fingerprint(one) == fingerprint(other)) == (typed(one) == typed(other))

    @given(st.lists(VALUES, max_size=3), st.lists(VALUES, max_size=3))
    def test_where_one_argument_ends_and_the_next_begins_counts(self, one, other):
        if typed(one) != typed(other):
            assert fingerprint([one, other]) != fingerprint([other, one])
        assert fingerprint([[*one, *other]]) != fingerprint([one, other])
        assert fingerprint([one, []]) != fingerprint([one])

    @given(st.dictionaries(st.text(min_size=1, max_size=2), PLAIN, max_size=3), st.text(max_size=3), PLAIN)
    def test_nor_does_what_stands_beside_a_dictionary_pass_for_a_part_of_it(self, value, name, one):
        fuller = {**value, name: one}
        if fuller != value:
            assert fingerprint([value, (name, one)]) != fingerprint([fuller])
            assert fingerprint([value, name, one]) != fingerprint([fuller])


class TestTypes:
    @pytest.mark.parametrize(
        "values",
        [
            (1, True, 1.0, "1", b"1", 1j, Decimal(1), None, [1], (1,), {1}, frozenset({1}), {1: None}, Colour.RED),
            (0, False, 0.0, "", b"", None, (), [], {}, set(), timedelta(0)),
            (date(2026, 1, 1), datetime(2026, 1, 1), datetime(2026, 1, 1, tzinfo=UTC), "2026-01-01"),
            ((1, 2), Pair(1, 2), [1, 2], Point(1, 2), Place(1, 2)),
            ({"a": 1}, OrderedDict(a=1), {"a": True}, {"a": "1"}),
            (Point, Place, Bare, Plain, Colour, int),
            (Plain(1), Plain(2), Plain("1"), deque([1]), deque([2])),
            ("ab", ["ab"], ["a", "b"], ["a", ["b"]], [["a"], "b"], {"a", "b"}),
            ({"a": {"b": 1}}, {"a": {}, "b": 1}, {"b": {"a": 1}}),
        ],
    )
    def test_values_of_other_types_are_other_values(self, values):
        assert len({fingerprint(value) for value in values}) == len(values)

    @pytest.mark.parametrize(
        "make",
        [
            lambda: {"b": [1, {2, 3}], "a": None},
            lambda: Plain("žluť"),
            lambda: Colour.BLUE,
            lambda: Decimal("1.10"),
            lambda: UUID(int=7),
            lambda: datetime(2026, 1, 1, 12, tzinfo=ZoneInfo("Europe/Prague")),
            lambda: deque([1, "x"]),
            lambda: "\ud800",
            lambda: float("nan"),
            lambda: Place(1, {"a": {1, 2}}),
            lambda: len,
            lambda: open,
            lambda: Point,
        ],
    )
    def test_the_same_made_twice_is_the_same(self, make):
        assert fingerprint(make()) == fingerprint(make())

    def test_what_a_dataclass_does_not_compare_does_not_count(self):
        assert fingerprint(Point(1, 2, seen=1)) == fingerprint(Point(1, 2, seen=2))

    @pytest.mark.parametrize("value", [lambda: None, (n for n in ()), sys, threading.Lock()])
    def test_what_cannot_be_told_from_others_is_refused(self, value):
        for holder in ([value], Plain(value), {"key": value}):
            with pytest.raises(EncodeError, match=rf"a {type(value).__name__} cannot be .*: give a key= function"):
                fingerprint(holder)

    def test_within_an_object_it_is_the_same(self):
        """Neither the order of its dictionaries counts, nor whether two equal values are one."""
        text, other = "a text", "".join(["a ", "text"])
        assert fingerprint(Plain([text, text])) == fingerprint(Plain([text, other]))
        assert fingerprint(deque([text, text])) == fingerprint(deque([text, other]))
        assert fingerprint(Plain({"a": 1, "b": {1, 2}})) == fingerprint(Plain({"b": {2, 1}, "a": 1}))
        assert fingerprint(Plain(Point(1, seen=1))) == fingerprint(Plain(Point(1, seen=2)))
        assert fingerprint(Plain(Plain(1))) != fingerprint(Plain(1)) != fingerprint(Plain(True))

    def test_depth_is_bounded_and_what_contains_itself_is_refused(self):
        endless: list = []
        endless.append(endless)
        circle = Plain(None)
        circle.value = [circle, circle]
        for value in (endless, circle, {"a": circle}):
            with pytest.raises(EncodeError, match="nested deeper than 64"):
                fingerprint(value)
        nested: object = 1
        for _ in range(DEEPEST - 1):
            nested = [nested]
        assert fingerprint(nested)
        with pytest.raises(EncodeError):
            fingerprint([nested])

    def test_every_process_gives_the_same(self):
        """Whatever order its sets have."""
        made = "[{'a', 'b', 'c', 'd'}, {'x': {1, 'y'}}, UUID(int=1), deque([{'k', 'l', 'm'}])]"
        code = (
            "from collections import deque; from uuid import UUID; from djqueue.messages.fingerprint import fingerprint"
        )
        command = [sys.executable, "-c", f"{code}; print(fingerprint({made}))"]
        printed = {
            subprocess.run(command, env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True).stdout
            for seed in "123"
        }
        assert printed == {f"{fingerprint(eval(made))}\n"}


@pytest.mark.django_db
class TestModels:
    def test_a_row_is_its_primary_key_whatever_its_fields_say_and_two_rows_are_two(self):
        thing = Thing.objects.create(name="one", number=1)
        again = Thing.objects.get(pk=thing.pk)
        again.name = "changed"
        assert fingerprint([thing]) == fingerprint([again]) == fingerprint([Thing.objects.only("pk").get(pk=thing.pk)])
        one, other = Thing.objects.create(name="same"), Thing.objects.create(name="same")
        assert len({fingerprint(value) for value in (one, other, one.pk, str(one.pk))}) == 4

    def test_one_that_is_not_saved_is_refused(self):
        with pytest.raises(EncodeError, match="this app.Thing is not in the database; save it before enqueueing"):
            fingerprint(Thing(name="new"))


class TestCalls:
    @staticmethod
    def of(*args, **kwargs):
        arguments, _ = draw.identity(Call(args, kwargs), draw.policy)
        return fingerprint(arguments)

    def test_df17_it_does_not_matter_how_an_argument_is_given_nor_in_which_order_keywords_stand(self):
        of = self.of
        same = [of("square"), of(shape="square"), of("square", 1), of("square", width=1), of(width=1, shape="square")]
        assert {*same, of("square", 1, colour="red")} == {same[0]}
        assert of("a", z=1, y=2, colour="blue") == of("a", colour="blue", y=2, z=1)

    def test_other_arguments_are_another_call(self):
        of = self.of
        others = [of("square"), of("circle"), of("square", 2), of("square", True), of("square", 1, 5)]
        others += [of("square", 1, (5,)), of("square", colour="blue"), of("square", points=5), of("square", more=5)]
        others += [of("square", more={"more": 5})]
        assert len(set(others)) == len(others)

    @given(st.tuples(VALUES, VALUES), st.dictionaries(st.sampled_from("abc"), VALUES))
    def test_df17_equal_calls_are_equal(self, args, kwargs):
        assert self.of(*args, **kwargs) == self.of(*anew(args), **anew(kwargs))
