"""The envelope: what was sealed opens in its own queue under its own id, and nothing else is ever decoded."""

import hashlib
import hmac
import multiprocessing
import os
import pickle
import re
import subprocess
import sys
import time
from dataclasses import replace

import pytest
from django import db
from django.conf import settings as django_settings
from django.contrib.auth.models import User
from django.core import signing
from django.test import override_settings
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from djqueue.exceptions import EncodeError, InvalidMessage, MessageTooLarge, QueueError
from djqueue.messages import envelope as envelopes
from djqueue.messages.envelope import (
    DEFAULT_MAX_SIZE,
    Encoder,
    Message,
    encode,
    new_id,
    new_ids,
    open_envelope,
    pack_item,
    unpack_item,
)
from tests.app.models import Thing

unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
SERIALIZERS = ("pickle", "json")
AT = {"id": "0123456789abcdef0123456789abcdef", "queue": "default"}


class Touch:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return open, (self.path, "w")


class Unreadable:
    """Pickles well; raises when it is read."""

    error = LookupError("a word from the class")

    def __reduce__(self):
        return self._raise, ()

    @classmethod
    def _raise(cls):
        raise cls.error


class Unlucky(Unreadable):
    error = db.OperationalError("the server went away")


def message(*args, metadata=None, **kwargs):
    return Message(AT["id"], AT["queue"], "app.commands.churn", args, kwargs, metadata or {})


def opened(data, **changes):
    return open_envelope(data, **(AT | changes))


@pytest.fixture
def canary(tmp_path):
    """The file that Touch makes. At the end Touch shows that it can, so that its absence before proves something."""
    path = tmp_path / "canary"
    yield path
    assert not path.exists()
    pickle.loads(pickle.dumps(Touch(path))).close()
    assert path.exists()


# Round trips


@pytest.mark.parametrize("serializer", SERIALIZERS)
def test_an_encoder_makes_of_many_messages_what_each_is_encoded_to(serializer):
    encoder = Encoder("app.commands.work", "queue", {"ttl": 5}, serializer=serializer)
    calls = [(new_id(), (1,), {}, None), (new_id(), (), {"a": 2}, {"tenant": "t"}), ("ü", ("x",), {"b": 3}, {})]
    for id, args, kwargs, metadata in calls:
        data = encoder.encode(id, args, kwargs, metadata)
        whole = Message(id, "queue", "app.commands.work", args, kwargs, metadata or {}, {"ttl": 5})
        assert data == encode(whole, serializer=serializer)
        envelope = open_envelope(data, id=id, queue="queue")
        assert (envelope.arguments(), envelope.metadata, envelope.options) == (
            (args, kwargs),
            metadata or {},
            {"ttl": 5},
        )


@pytest.mark.parametrize("serializer", SERIALIZERS)
def test_dj1_what_was_encoded_is_what_is_opened(serializer):
    metadata = {"language": "de", "n": [1, (2, None)], "ключ": "\ud800"}
    envelope = opened(encode(message(1, "two", key={"a": {3}}, metadata=metadata), serializer=serializer))
    assert (envelope.id, envelope.queue) == (AT["id"], AT["queue"])
    assert (envelope.command, envelope.serializer) == ("app.commands.churn", serializer)
    assert envelope.metadata == metadata
    assert envelope.arguments() == ((1, "two"), {"key": {"a": {3}}})


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(st.characters()) | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters()), inner, max_size=3),
    max_leaves=6,
).filter(lambda value: "inf" not in repr(value))


@unhurried
@given(
    id=st.text(st.characters(), max_size=40),
    queue=st.text(st.characters(), max_size=40),
    command=st.text(st.characters(), min_size=1, max_size=40),
    args=st.lists(json_values, max_size=3).map(tuple),
    kwargs=st.dictionaries(st.text(), json_values, max_size=3),
    metadata=st.dictionaries(st.text(st.characters()), json_values, max_size=3),
    serializer=st.sampled_from(SERIALIZERS),
)
def test_any_message_comes_back(id, queue, command, args, kwargs, metadata, serializer):
    data = encode(Message(id, queue, command, args, kwargs, metadata), serializer=serializer)
    envelope = open_envelope(data, id=id, queue=queue)
    assert (envelope.command, envelope.metadata, envelope.arguments()) == (command, metadata, (args, kwargs))


def test_arguments_are_decoded_anew_each_time():
    envelope = opened(encode(message([1])))
    envelope.arguments()[0][0].append(2)
    assert envelope.arguments() == (([1],), {})


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_bytes_as_database_drivers_give_them(kind):
    assert opened(kind(encode(message(1)))).arguments() == ((1,), {})
    assert unpack_item(kind(pack_item("item", **AT)), **AT) == "item"


@pytest.mark.parametrize("item", [None, 0, "text", ("a", "tuple"), {"a": [1]}, b"\xff", {1, 2}])
@pytest.mark.parametrize("serializer", SERIALIZERS)
def test_items_come_back(item, serializer):
    assert unpack_item(pack_item(item, serializer=serializer, **AT), **AT) == item


@pytest.mark.parametrize("count", [0, 1, 2, 1000])
def test_ids_that_are_made_together_are_new_ids(count):
    before = new_id()[:12]
    ids = new_ids(count)
    assert len(set(ids)) == len(ids) == count
    assert all(re.fullmatch("[0-9a-f]{32}", id) and before <= id[:12] <= new_id()[:12] for id in ids)


def test_a_small_call_is_a_small_message_and_arguments_are_in_no_repr():
    assert len(encode(message(1, "two"))) < 120
    call = message("secret", token="secret", metadata={"token": "secret"})
    assert "secret" not in repr(call) + repr(opened(encode(call)))


# Forged and tampered


@pytest.mark.parametrize("serializer", SERIALIZERS)
def test_every_changed_byte_is_refused(serializer):
    data = encode(message(1, "two", metadata={"language": "de"}), serializer=serializer)
    for position in range(len(data)):
        for flip in range(1, 256):
            with pytest.raises(InvalidMessage):
                opened(data[:position] + bytes([data[position] ^ flip]) + data[position + 1 :])


def test_every_changed_byte_of_a_dangerous_pickle_is_refused_before_it_runs(canary):
    sealed = encode(message(Touch(canary))), pack_item(Touch(canary), **AT)
    for data, read in zip(sealed, (opened, lambda data: unpack_item(data, **AT)), strict=True):
        for position in range(len(data)):
            with pytest.raises(InvalidMessage):
                read(data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :])


def test_every_truncation_and_every_extension_is_refused():
    data = encode(message(1, "two"))
    for length in range(len(data)):
        with pytest.raises(InvalidMessage):
            opened(data[:length])
        with pytest.raises(InvalidMessage):
            opened(data[length + 1 :])
    for extra in (b"\0", b"x", data):
        with pytest.raises(InvalidMessage, match="bad signature"):
            opened(data + extra)


def test_opening_decodes_nothing(canary):
    opened(encode(message(Touch(canary))))


def test_unsigned_pickle_never_runs(canary):
    bare = pickle.dumps(((Touch(canary),), {}))
    header = b'{"c":"app.commands.churn"}'
    content = len(header).to_bytes(4, "big") + header + bare
    macs = [b"", bytes(32), b"\xff" * 32, *(hmac.digest(key, content, "sha256") for key in (b"", b"guess"))]
    for mac in macs:
        for kind in (b"", b"djq1", b"djq1c", b"djq1i", b"djq2c"):
            for data in (kind + mac + content, kind + mac + bare):
                with pytest.raises(InvalidMessage):
                    opened(data)
                with pytest.raises(InvalidMessage):
                    unpack_item(data, **AT)


@unhurried
@given(st.binary(max_size=200) | st.binary(max_size=200).map(lambda tail: b"djq1c" + tail))
def test_garbage_is_refused(data):
    with pytest.raises(InvalidMessage):
        opened(data)
    with pytest.raises(InvalidMessage):
        unpack_item(data, **AT)


@pytest.mark.parametrize("data", [None, "djq1c", 5, ["djq1c"], object()])
def test_what_is_not_bytes_is_refused(data):
    with pytest.raises(InvalidMessage, match="not bytes"):
        opened(data)


@pytest.mark.parametrize(
    "changes",
    [
        {"queue": "mail"},
        {"queue": ""},
        {"queue": "default "},
        {"id": "f" * 32},
        {"id": ""},
        {"queue": "default0", "id": AT["id"][1:]},  # the same text, cut elsewhere
        {"queue": "defaul", "id": "t" + AT["id"]},
        {"queue": AT["id"], "id": AT["queue"]},
    ],
)
def test_a_message_is_good_in_its_own_queue_under_its_own_id_only(changes):
    data = encode(message(1))
    with pytest.raises(InvalidMessage, match="bad signature"):
        opened(data, **changes)
    with pytest.raises(InvalidMessage, match="bad signature"):
        unpack_item(pack_item(1, **AT), **(AT | changes))


def test_a_message_is_no_item_and_an_item_no_message():
    command, item = encode(message(1)), pack_item(1, **AT)
    with pytest.raises(InvalidMessage, match="a command, where a plain item is expected"):
        unpack_item(command, **AT)
    with pytest.raises(InvalidMessage, match="a plain item, where a command is expected"):
        opened(item)
    with pytest.raises(InvalidMessage, match="bad signature"):
        unpack_item(item[:5] + command[5:], **AT)
    with pytest.raises(InvalidMessage, match="bad signature"):
        opened(command[:5] + item[5:])


def test_parts_of_two_messages_do_not_mix():
    one, other = encode(message(1, metadata={"a": 1})), encode(message(2, metadata={"b": 2}))
    assert len(one) == len(other)
    for cut in range(1, len(one)):
        mixed = one[:cut] + other[cut:]
        if mixed not in (one, other):
            with pytest.raises(InvalidMessage):
                opened(mixed)


def test_a_signature_of_django_is_no_signature_here():
    with pytest.raises(InvalidMessage):
        opened(signing.dumps([1], salt="djqueue.messages.envelope").encode())


@pytest.mark.parametrize("prefix", [b"djq2c", b"djq9i", b"djq2"])
def test_a_newer_format_says_so(prefix):
    with pytest.raises(InvalidMessage, match="a newer djqueue wrote it"):
        opened(prefix + encode(message(1))[len(prefix) :])


def test_reasons_are_short_and_one_family():
    with pytest.raises(QueueError) as caught:
        opened(b"x" * 10_000)
    assert caught.value.reason == str(caught.value) == "not a message of djqueue"


# What a reader accepts


def test_codecs_that_are_not_accepted_are_not_decoded(canary):
    with pytest.raises(InvalidMessage, match="'pickle' is not accepted"):
        opened(encode(message(Touch(canary))), accept=("json",))
    with pytest.raises(InvalidMessage, match="'pickle' is not accepted"):
        unpack_item(pack_item(Touch(canary), **AT), accept=("json",), **AT)
    with pytest.raises(InvalidMessage, match="'json' is not accepted"):
        opened(encode(message(1), serializer="json"), accept=("pickle",))
    assert opened(encode(message(1), serializer="json"), accept=("json",)).arguments() == ((1,), {})


def test_unknown_header_fields_are_ignored(monkeypatch):
    to_json = envelopes.to_json
    monkeypatch.setattr(envelopes, "to_json", lambda fields, **options: to_json(fields | {"z": [1], "y": 2}, **options))
    envelope = opened(encode(message(1, metadata={"a": 1})))
    assert (envelope.command, envelope.metadata, envelope.arguments()) == ("app.commands.churn", {"a": 1}, ((1,), {}))


def test_a_codec_or_way_of_models_that_is_not_there():
    with pytest.raises(ValueError, match="no serializer is called 'yaml'; choose from pickle, json"):
        encode(message(1), serializer="yaml")
    with pytest.raises(ValueError, match="models='whole'; choose from pickle, reference"):
        encode(message(1), models="whole")


# Keys


def key_settings(current, *fallbacks):
    return override_settings(SECRET_KEY=current, SECRET_KEY_FALLBACKS=list(fallbacks))


def test_key_rotation():
    with key_settings("old"):
        data, item = encode(message(1)), pack_item(2, **AT)
    with key_settings("new", "older", "old"):
        assert opened(data).arguments() == ((1,), {})
        assert unpack_item(item, **AT) == 2
        fresh = encode(message(3))
    with key_settings("new"):
        assert opened(fresh).arguments() == ((3,), {})
        for read in (lambda: opened(data), lambda: unpack_item(item, **AT)):
            with pytest.raises(InvalidMessage, match="bad signature"):
                read()
    with key_settings("old", "new"):  # consumers of before, told of the new key first
        assert opened(fresh).arguments() == ((3,), {})


def test_keys_may_be_bytes():
    with key_settings(b"\xff\x00key"):
        data = encode(message(1))
        assert opened(data).arguments() == ((1,), {})
    with key_settings("other", b"\xff\x00key"):
        assert opened(data).arguments() == ((1,), {})


@pytest.mark.parametrize("empty", ["", b""])
def test_an_empty_fallback_key_verifies_nothing(empty, canary):
    with key_settings("good"):
        data = signed_by_hand(empty, encode(message(Touch(canary))))
    with key_settings("good", empty), pytest.raises(InvalidMessage, match="bad signature"):
        opened(data)


def signed_by_hand(secret, data, id=AT["id"], queue=AT["queue"]):
    """The message with the signature that the standard library's HMAC makes of it."""
    where, which = queue.encode("utf-8", "surrogatepass"), id.encode("utf-8", "surrogatepass")
    signed = data[:5] + len(where).to_bytes(4, "big") + len(which).to_bytes(4, "big") + where + which + data[37:]
    key = hashlib.sha256(b"djqueue.messages.envelope" + (secret.encode() if isinstance(secret, str) else secret))
    return data[:5] + hmac.digest(key.digest(), signed, "sha256") + data[37:]


@unhurried
@given(
    secret=st.text(min_size=1, max_size=200) | st.binary(min_size=1, max_size=200),
    id=st.text(st.characters(), max_size=80),
    queue=st.text(st.characters(), max_size=80),
    argument=st.binary(max_size=300),
)
def test_signatures_are_those_of_the_standard_library(secret, id, queue, argument):
    with key_settings(secret):
        data = encode(Message(id, queue, "app.commands.churn", (argument,), {}))
        assert data == signed_by_hand(secret, data, id, queue)
        item = pack_item(argument, id=id, queue=queue)
        assert item == signed_by_hand(secret, item, id, queue)


def test_a_key_that_is_assigned_at_run_time_counts_at_once():
    with key_settings("old"):
        data = encode(message(1))
        django_settings.SECRET_KEY = "new"
        with pytest.raises(InvalidMessage, match="bad signature"):
            opened(data)
        django_settings.SECRET_KEY_FALLBACKS = ["old"]
        assert opened(data).arguments() == ((1,), {})
        assert encode(message(1)) == signed_by_hand("new", data)


# Size


@pytest.mark.parametrize("serializer", SERIALIZERS)
def test_size_limit_at_the_byte(serializer):
    call = message("x" * 1000, metadata={"language": "de"})
    size = len(encode(call, serializer=serializer))
    for limit in (size, size + 1):
        envelope = opened(encode(call, serializer=serializer, max_size=limit), max_size=limit)
        assert envelope.arguments() == (call.args, {})
    with pytest.raises(MessageTooLarge, match=f"has {size} bytes, {size - 1} are allowed"):
        encode(call, serializer=serializer, max_size=size - 1)
    with pytest.raises(InvalidMessage, match=f"{size} bytes, {size - 1} are allowed"):
        opened(encode(call, serializer=serializer), max_size=size - 1)


def test_size_limit_of_items():
    size = len(pack_item("x" * 1000, **AT))
    data = pack_item("x" * 1000, max_size=size, **AT)
    assert unpack_item(data, max_size=size, **AT) == "x" * 1000
    with pytest.raises(MessageTooLarge):
        pack_item("x" * 1000, max_size=size - 1, **AT)
    with pytest.raises(InvalidMessage):
        unpack_item(data, max_size=size - 1, **AT)


def test_size_limit_is_one_mebibyte_by_default():
    overhead = len(encode(message(b"x" * 2**19))) - 2**19
    fits = message(b"x" * (DEFAULT_MAX_SIZE - overhead))
    assert len(encode(fits)) == DEFAULT_MAX_SIZE == 1_048_576
    assert opened(encode(fits)).arguments() == (fits.args, {})
    with pytest.raises(MessageTooLarge, match="1048577"):
        encode(message(b"x" * (DEFAULT_MAX_SIZE - overhead + 1)))
    assert issubclass(MessageTooLarge, ValueError)


# What cannot be carried


@pytest.mark.parametrize("serializer", SERIALIZERS)
def test_the_argument_that_cannot_be_carried_is_named(serializer):
    with pytest.raises(EncodeError, match="positional argument 2 ") as caught:
        encode(message(1, lambda: None), serializer=serializer)
    assert caught.value.argument == 1
    with pytest.raises(EncodeError, match="argument 'worse' ") as caught:
        encode(message(1, worse=object if serializer == "json" else (i for i in ())), serializer=serializer)
    assert caught.value.argument == "worse"
    assert isinstance(caught.value, TypeError)
    with pytest.raises(EncodeError, match="^the item "):
        pack_item(lambda: None, serializer=serializer, **AT)


@pytest.mark.parametrize("value", [object(), float("nan"), {1, object()}, User(pk=1)])
def test_metadata_that_cannot_be_carried(value):
    with pytest.raises(EncodeError, match="^metadata 'x' .of type ") as caught:
        encode(message(1, metadata={"good": 1, "x": value}))
    assert caught.value.argument == "x"


def test_an_option_that_cannot_be_carried_is_named():
    call = replace(message(1, metadata={"good": 1}), options={"ttl": 1.0, "max_lost": object()})
    with pytest.raises(EncodeError, match="^option 'max_lost' .of type object") as caught:
        encode(call)
    assert caught.value.argument == "max_lost"


@pytest.mark.parametrize("error", [EncodeError("no", "name"), InvalidMessage("why"), MessageTooLarge("big")])
def test_errors_pickle(error):
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), vars(copy)) == (type(error), str(error), vars(error))


# What cannot be decoded


def test_arguments_that_cannot_be_decoded_have_reason_and_cause():
    envelope = opened(encode(message(Unreadable())))
    with pytest.raises(InvalidMessage, match="LookupError: a word from the class") as caught:
        envelope.arguments()
    assert caught.value.__cause__ is Unreadable.error
    with pytest.raises(InvalidMessage, match="LookupError"):
        unpack_item(pack_item(Unreadable(), **AT), **AT)


def test_a_class_that_is_gone_here_is_an_invalid_message(monkeypatch):
    data = encode(message(Unreadable()))
    monkeypatch.delattr(sys.modules[__name__], "Unreadable")
    with pytest.raises(InvalidMessage, match="AttributeError"):
        opened(data).arguments()


def test_a_database_that_is_away_does_not_condemn_the_message():
    with pytest.raises(db.OperationalError):
        opened(encode(message(Unlucky()))).arguments()
    with pytest.raises(db.OperationalError):
        unpack_item(pack_item(Unlucky(), **AT), **AT)


def test_long_reasons_are_cut(monkeypatch):
    monkeypatch.setattr(Unreadable, "error", LookupError("x" * 10_000))
    with pytest.raises(InvalidMessage) as caught:
        opened(encode(message(Unreadable()))).arguments()
    assert len(caught.value.reason) <= 300


@pytest.mark.parametrize(
    ("options", "seen"),
    [({"serializer": "json"}, "after"), ({"models": "reference"}, "after"), ({}, "before")],
    ids=str,
)
@pytest.mark.django_db
def test_a_late_run_sees_the_row_as_it_is_now_unless_it_was_pickled_whole(options, seen):
    user = User.objects.create(username="before")
    envelope = opened(encode(message(user, other=[user]), **options))
    User.objects.update(username="after")
    (read,), kwargs = envelope.arguments()
    assert (type(read), read.username, kwargs["other"][0].username) == (User, seen, seen)


@pytest.mark.parametrize("options", [{"serializer": "json"}, {"models": "reference"}], ids=str)
@pytest.mark.django_db
def test_a_deleted_row_makes_the_message_invalid_and_says_which(options):
    thing = Thing.objects.create(name="gone")
    envelope, pk = opened(encode(message(thing), **options)), thing.pk
    thing.delete()
    with pytest.raises(InvalidMessage, match=rf"^app\.Thing {pk} is gone from the database 'default'$") as caught:
        envelope.arguments()
    assert isinstance(caught.value.__cause__, Thing.DoesNotExist)


@pytest.mark.django_db
def test_opening_reads_no_row(django_assert_num_queries):
    data = encode(message(User.objects.create(username="x")), models="reference")
    with django_assert_num_queries(0):
        opened(data)


# Ids


def test_ids_are_distinct_hex_and_begin_with_the_time():
    before = time.time_ns() // 1_000_000
    ids = [new_id() for _ in range(10_000)]
    after = time.time_ns() // 1_000_000
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch("[0-9a-f]{32}", id) for id in ids)
    assert all(before <= int(id[:12], 16) <= after for id in ids)


def _send_ids(pipe):
    pipe.send([new_id()[12:] for _ in range(100)])


def test_ids_after_a_fork_differ():
    context = multiprocessing.get_context("fork")
    new_id()
    ends = [context.Pipe() for _ in range(3)]
    children = [context.Process(target=_send_ids, args=(sender,)) for _, sender in ends]
    for child in children:
        child.start()
    tails = [tail for receiver, _ in ends for tail in receiver.recv()]
    for child in children:
        child.join()
    tails += [new_id()[12:] for _ in range(100)]
    assert len(set(tails)) == 400


def test_messages_need_no_models_to_be_imported():
    program = (
        "import sys, djqueue.messages.envelope, djqueue.messages.codecs, djqueue.exceptions as all;"
        "assert all.QueueException is all.QueueError;"
        "sys.exit('django.db.models' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", program], env=os.environ | {"DJANGO_SETTINGS_MODULE": ""})
    assert result.returncode == 0
