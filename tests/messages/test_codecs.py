"""The codecs: what they carry comes back the same, what they cannot carry is refused by name."""

import enum
import pickle
import threading
from collections import OrderedDict, namedtuple
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from django import db
from django.contrib.auth.models import User
from django.utils.functional import SimpleLazyObject
from django.utils.safestring import mark_safe
from django.utils.translation import gettext_lazy, override
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from djqueue.exceptions import EncodeError, InvalidMessage
from djqueue.messages.codecs import MAX_DEPTH, PICKLE_PROTOCOL, SERIALIZERS, to_json
from tests.app.models import Thing

unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
JSON, PICKLE = SERIALIZERS["json"], SERIALIZERS["pickle"]
ZONES = ["UTC", "Europe/Zurich", "America/New_York", "Australia/Lord_Howe"]
Point = namedtuple("Point", "x y")


class Colour(enum.StrEnum):
    RED = "red"


class FromAFile(tzinfo):
    def utcoffset(self, moment):
        return timedelta(hours=1)


def shape(value):
    """A value with every type in it written out, so that 1, True and 1.0, or a list and a tuple, are not equal."""
    kind = type(value)
    if kind in (list, tuple):
        return kind, [shape(item) for item in value]
    if kind in (set, frozenset):
        return kind, sorted((shape(item) for item in value), key=repr)
    if kind is dict:
        return kind, [(shape(key), shape(item)) for key, item in value.items()]
    if kind in (datetime, time):
        return kind, value.replace(tzinfo=None), value.fold, zone(value)
    return kind, repr(value)


def zone(value):
    return value.tzinfo if type(value.tzinfo) is ZoneInfo else value.utcoffset()


def offsets():
    return st.integers(-86_399, 86_399).map(lambda seconds: timezone(timedelta(seconds=seconds)))


zones = st.none() | st.sampled_from(ZONES).map(ZoneInfo) | offsets()
text = st.text(st.characters())  # lone surrogates, and two of them side by side, are among them
hashable_scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | text
    | st.sampled_from(["$", "$tuple", "$dict", "$model", "$new"])
    | st.binary()
    | st.decimals(allow_nan=False, allow_infinity=False)
    | st.uuids()
    | st.dates()
    | st.builds(lambda at, fold: at.replace(fold=fold), st.datetimes(timezones=zones), st.integers(0, 1))
    | st.builds(lambda at, fold: at.replace(fold=fold), st.times(timezones=zones), st.integers(0, 1))
    | st.timedeltas()
)
hashables = st.recursive(
    hashable_scalars,
    lambda inner: st.lists(inner, max_size=3).map(tuple) | st.frozensets(inner, max_size=3),
    max_leaves=6,
)
values = st.recursive(
    hashables,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.sets(hashables, max_size=4)
        | st.dictionaries(hashables, inner, max_size=4)
        | st.dictionaries(st.sampled_from(["$tuple", "$dict", "$", "plain"]), inner, max_size=2)
    ),
    max_leaves=12,
)


@pytest.mark.parametrize("serializer", [JSON, PICKLE], ids=["json", "pickle"])
@unhurried
@given(args=st.lists(values, max_size=3).map(tuple), kwargs=st.dictionaries(text, values, max_size=3))
def test_each_gives_back_equal_values_of_the_same_types(serializer, args, kwargs):
    read_args, read_kwargs = serializer.loads(serializer.dumps(args, kwargs))
    assert (read_args, read_kwargs) == (args, kwargs)
    assert (shape(read_args), shape(read_kwargs)) == (shape(args), shape(kwargs))


@pytest.mark.parametrize(
    "value",
    [
        -0.0,
        10**4000,
        Decimal("1E+999999"),
        Decimal("-0.00"),
        "\ud83d\ude00",  # two code points, not one emoji
        "nul \0 and \u2028",
        {"$datetime": "not one"},
        {"$dict": [["a", 1]]},
        {"$tuple": [1], "other": 2},
        {1: "int", "1": "text", None: "none", (1, 2): "tuple"},
        datetime(2024, 10, 27, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Zurich")),
        datetime(2024, 3, 31, 2, 30, tzinfo=ZoneInfo("Europe/Zurich")),  # never was
        datetime(1, 1, 1, tzinfo=UTC),
        datetime.max,
        time(23, 59, 59, 999999, tzinfo=timezone(timedelta(hours=-5, minutes=-30, seconds=-1))),
        timedelta.min,
        UUID(int=0),
        bytes(range(256)),
        [set(), frozenset(), (), {}, b"", ""],
        [date(2024, 1, 1), datetime(2024, 1, 1)],
    ],
    ids=lambda value: f"{type(value).__name__} {str(value)[:20]!a}",
)
def test_json_edge_cases_come_back_exactly(value):
    (read,), _ = JSON.loads(JSON.dumps((value,), {}))
    assert shape(read) == shape(value)


def test_json_equal_sets_have_equal_bytes():
    one, other = {0, 8}, {8, 0}
    assert list(one) != list(other)  # they collide in the table, so the first to come is the first
    assert to_json(one) == to_json(other)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (float("nan"), "finite"),
        (float("inf"), "finite"),
        (Decimal("NaN"), "finite"),
        (Decimal("sNaN"), "finite"),
        (Decimal("-Infinity"), "finite"),
        (10**5000, "limit"),
        (object(), "builtins.object"),
        (bytearray(b"x"), "bytearray"),
        (range(3), "range"),
        (Point(1, 2), "Point"),
        (Colour.RED, "Colour"),
        (OrderedDict(a=1), "OrderedDict"),
        (1j, "complex"),
        (datetime(2024, 1, 1, tzinfo=FromAFile()), "FromAFile"),
        (time(0, tzinfo=timezone(timedelta(microseconds=1))), "whole seconds"),
        (ValueError("x"), "ValueError"),
        (User, "ModelBase"),
    ],
    ids=lambda value: f"{type(value).__name__}"[:30],
)
@pytest.mark.parametrize("wrap", [lambda value: value, lambda value: [{"deep": (value,)}]], ids=["bare", "nested"])
def test_json_refuses_what_would_not_come_back(value, says, wrap):
    with pytest.raises(EncodeError, match=says) as caught:
        JSON.dumps((1, wrap(value)), {})
    assert caught.value.argument == 1


def nested(levels):
    value = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize("wrap", [list, tuple, lambda one: {"key": one[0]}, lambda one: {1: one[0]}])
def test_json_depth_limit(wrap):
    deepest = wrap([nested(MAX_DEPTH - 1)])
    assert JSON.loads(JSON.dumps((deepest,), {"a": deepest})) == ((deepest,), {"a": deepest})
    with pytest.raises(EncodeError, match=f"positional argument 1 .*more than {MAX_DEPTH} deep"):
        JSON.dumps((wrap([nested(MAX_DEPTH)]),), {})
    with pytest.raises(EncodeError, match="argument 'a' .*more than"):
        JSON.dumps((), {"a": wrap([nested(MAX_DEPTH)])})


def test_json_circular_value_is_refused():
    circle = []
    circle.append(circle)
    with pytest.raises(EncodeError, match="deep"):
        JSON.dumps((circle,), {})


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[",
        b"1",
        b"{}",
        b"[[],[]]",
        b"[{},{}]",
        b"[[]]",
        b"[[],{},{}]",
        b'[[],{"a":1,"a":2}]',
        b'[[{"a":1,"b":2,"a":3}],{}]',
        b'[[{"$dict":[["a",1],["a",2]]}],{}]',
        b'[[{"$dict":[[[],1]]}],{}]',
        b'[[{"$set":[[]]}],{}]',
        b"[[NaN],{}]",
        b"[[-Infinity],{}]",
        b'[[{"$new":1}],{}]',
        b'[[{"$datetime":"yesterday"}],{}]',
        b'[[{"$datetime":["2024-01-01T00:00:00","No/Where",0]}],{}]',
        b'[[{"$uuid":"x"}],{}]',
        b'[[{"$bytes":"!!!!"}],{}]',
        b'[[{"$model":["auth.Nobody",1,"default"]}],{}]',
        b'[["\xff"],{}]',
        b"[[" + b"9" * 5000 + b"],{}]",
        b"[" * 100_000,
        b'{"a":' * 100_000,
    ],
    ids=lambda data: str(data[:30]),
)
def test_json_garbage_raises(data):
    with pytest.raises((ValueError, TypeError, LookupError, ArithmeticError, RecursionError)):
        JSON.loads(data)


def test_json_texts_and_keys_that_are_lazy_or_safe_become_str():
    with override("de"):
        data = JSON.dumps((gettext_lazy("Yes"), mark_safe("<b>")), {})
    args, _ = JSON.loads(data)
    assert shape(args) == shape(("Ja", "<b>"))
    (read,), _ = JSON.loads(JSON.dumps(({mark_safe("a"): 1, gettext_lazy("b"): 2},), {}))
    assert shape(read) == shape({"a": 1, "b": 2})


@pytest.mark.parametrize(("serializer", "lock"), [(JSON, threading.Lock()), (PICKLE, threading.Lock())])
def test_the_argument_at_fault_is_named(serializer, lock):
    with pytest.raises(EncodeError, match=r"positional argument 3 \(of type lock\)") as caught:
        serializer.dumps((1, "two", lock), {"fine": 1})
    assert caught.value.argument == 2
    with pytest.raises(EncodeError, match=r"argument 'worse' \(of type list\)") as caught:
        serializer.dumps((1,), {"fine": 1, "worse": [lock]})
    assert caught.value.argument == "worse"
    assert isinstance(caught.value, TypeError)
    assert isinstance(caught.value.__cause__, TypeError)


@pytest.mark.parametrize("models", ["pickle", "reference"])
def test_pickle_names_the_argument_whatever_it_raises(models):
    class Spiteful:
        def __reduce__(self):
            raise LookupError("no")

    for bad in (Spiteful(), lambda: None, nested(100_000), Spiteful):
        with pytest.raises(EncodeError, match="argument 'bad'"):
            PICKLE.dumps((1,), {"bad": bad}, models)


def test_pickle_protocol_is_one_that_every_supported_python_reads():
    assert PICKLE.dumps((), {})[:2] == bytes([0x80, PICKLE_PROTOCOL])
    assert PICKLE_PROTOCOL <= 5


class Unreachable:
    def __reduce__(self):
        raise db.OperationalError("the server went away")


@pytest.mark.parametrize("models", ["pickle", "reference"])
def test_a_database_error_while_encoding_is_not_the_arguments_fault(models):
    with pytest.raises(db.OperationalError):
        PICKLE.dumps((Unreachable(),), {}, models)


BY_REFERENCE = pytest.mark.parametrize(("serializer", "models"), [(JSON, "pickle"), (PICKLE, "reference")])


@BY_REFERENCE
@pytest.mark.django_db
def test_models_by_reference_are_read_afresh_wherever_they_are_and_hold_no_fields(serializer, models):
    user, thing = User.objects.create(username="before", password="a hash of it"), Thing.objects.create(name="before")
    data = serializer.dumps((user, [{"deep": (thing,)}]), {"by": {"user": user}}, models)
    assert b"a hash of it" not in data
    User.objects.update(username="after")
    Thing.objects.update(name="after")
    (read, [deep]), kwargs = serializer.loads(data)
    assert type(read) is User and type(deep["deep"][0]) is Thing
    assert (read.pk, read.username) == (user.pk, "after")
    assert (deep["deep"][0].pk, deep["deep"][0].name) == (thing.pk, "after")
    assert kwargs["by"]["user"].username == "after"


@BY_REFERENCE
@pytest.mark.django_db
def test_lazy_objects_around_models_and_sets_of_models_go_by_reference(serializer, models):
    user = User.objects.create(username="somebody")
    things = {Thing.objects.create(name=name) for name in "abc"}
    (read, some), _ = serializer.loads(serializer.dumps((SimpleLazyObject(lambda: user), things), {}, models))
    assert type(read) is User and (read, some) == (user, things)


@BY_REFERENCE
@pytest.mark.django_db
def test_a_model_without_a_row_cannot_go_by_reference(serializer, models):
    deleted = Thing.objects.create(name="gone")
    deleted.delete()
    for thing in (Thing(name="new"), Thing(pk=7, name="with a key of its own"), deleted):
        with pytest.raises(EncodeError, match=r"argument 'thing' .*app\.Thing is not in the database; save it"):
            serializer.dumps((), {"thing": thing}, models)


@BY_REFERENCE
@pytest.mark.django_db
def test_a_row_deleted_since_says_which(serializer, models):
    thing = Thing.objects.create(name="gone")
    data, pk = serializer.dumps((thing,), {}, models), thing.pk
    thing.delete()
    with pytest.raises(InvalidMessage, match=rf"app\.Thing {pk} is gone from the database 'default'") as caught:
        serializer.loads(data)
    assert isinstance(caught.value.__cause__, Thing.DoesNotExist)


@BY_REFERENCE
@pytest.mark.django_db
def test_the_database_alias_of_a_model_is_kept(serializer, models):
    thing = Thing.objects.create(name="elsewhere")
    thing._state.db = "nowhere"
    data = serializer.dumps((thing,), {}, models)
    with pytest.raises(db.utils.ConnectionDoesNotExist, match="nowhere"):
        serializer.loads(data)


@pytest.mark.django_db
def test_pickled_by_reference_one_instance_stays_one_and_is_read_once(django_assert_num_queries):
    user = User.objects.create(username="somebody")
    data = PICKLE.dumps((user, [user]), {"again": user}, "reference")
    with django_assert_num_queries(1):
        (first, [second]), kwargs = PICKLE.loads(data)
    assert first is second is kwargs["again"]


@pytest.mark.django_db
def test_pickled_whole_a_model_is_as_it_was_and_needs_no_query(django_assert_num_queries):
    user = User.objects.create(username="before")
    with pytest.warns(RuntimeWarning, match="a app.Thing that is not saved is sent as it is"):
        data = PICKLE.dumps((user, Thing(name="unsaved")), {})
    User.objects.update(username="after")
    with django_assert_num_queries(0):
        (read, unsaved), _ = PICKLE.loads(data)
    assert (read.username, unsaved.name, unsaved.pk) == ("before", "unsaved", None)


@pytest.mark.django_db
def test_a_queryset_is_pickled_with_its_rows_and_a_warning():
    User.objects.create(username="ann")
    with pytest.warns(RuntimeWarning, match="a queryset of auth.User is sent with all its rows"):
        data = PICKLE.dumps((), {"users": User.objects.all()})
    User.objects.all().delete()
    assert [user.username for user in PICKLE.loads(data)[1]["users"]] == ["ann"]


def test_json_without_models_refuses_them():
    with pytest.raises(TypeError, match="primary key"):
        to_json({"user": User(pk=1)}, models=False)


# ---- names in pickles that were stored


@pytest.mark.parametrize(
    "path", ["messages.codecs.read_reference", "registry.registered", "results.Result", "timetables.Crontab"]
)
def test_a_name_that_stored_pickles_have_goes_on_resolving(path):
    module, _, name = f"djqueue.{path}".rpartition(".")
    found = pickle.loads(f"c{module}\n{name}\n.".encode())
    assert (found.__name__, pickle.loads(pickle.dumps(found))) == (name, found)
