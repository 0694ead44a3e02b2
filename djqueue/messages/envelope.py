"""What a call is, and the signed envelope in which it travels.

An envelope is `djq1`, a byte for its kind, 32 bytes of HMAC-SHA256, the length of the header (4 bytes), the header
(JSON), and the body (the arguments, by the serializer that the header names). The signature covers all of it, and the
message's id and its queue's logical name, which are not inside: a message is good in one queue, under one id. Nothing
is decoded before the signature was verified.
"""

import hashlib
import os
import re
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from functools import lru_cache, partial
from hmac import compare_digest
from struct import Struct
from typing import Any

from djqueue import conf
from djqueue.exceptions import BadSignature, EncodeError, InvalidMessage, MessageTooLarge
from djqueue.messages.codecs import SERIALIZERS, TRANSIENT, Arguments, Codec, encode_error, from_json, to_json
from djqueue.utils import value

DEPTH = 2
"""How many containers enclose a value of metadata, or of an option, in the header of its message."""
DEFAULT_MAX_SIZE = 2**20
"""The most bytes of a whole encoded message, unless the settings have another limit."""

OTHER_KEY = (
    "bad signature: its sender has another SECRET_KEY, or it was changed since. Let this process have the sender's key "
    "as SECRET_KEY or in SECRET_KEY_FALLBACKS."
)

_ID = re.compile(r"[0-9a-f]{32}")
_COMMAND, _ITEM = b"djq1c", b"djq1i"
_KINDS = {_COMMAND: "a command", _ITEM: "a plain item"}
_SALT = b"djqueue.messages.envelope"
_KIND_END = len(_COMMAND)
_MAC_END, _BLOCK = _KIND_END + hashlib.sha256().digest_size, hashlib.sha256().block_size
_LENGTH, _LENGTHS = Struct(">I"), Struct(">II")

Fields = dict[str, Any]
"""Of a header."""
States = tuple[Any, Any]
"""The two hash states of an HMAC. What is passed on is these: a report of an error may show variables, but no key."""

clock = time.time_ns
"""The time of ids, in nanoseconds since the epoch; tests may replace it."""


def new_id() -> str:
    """Return a new id: 32 hex characters, milliseconds first, so that ids made together are neighbours in an index."""
    # The kernel's randomness: a forked child cannot repeat its parent's ids.
    return f"{clock() // 1_000_000:012x}{os.urandom(10).hex()}"


def made_at(id: str) -> float | None:
    """The moment at which an id was made, in epoch seconds; None for one that :func:`new_id` has not made."""
    return int(id[:12], 16) / 1000 if _ID.fullmatch(id) else None


def new_ids(count: int) -> list[str]:
    """Return as many new ids."""
    moment, random = f"{clock() // 1_000_000:012x}", os.urandom(10 * count).hex()
    return [moment + random[at : at + 20] for at in range(0, 20 * count, 20)]


@value
class Message:
    """One call of a command. `queue` is the queue's logical name.

    `metadata` takes what the JSON serializer takes, with any serializer, but no model instances. `options`
    are the options of this call that differ from its command's.
    """

    id: str
    queue: str
    command: str
    args: tuple[Any, ...] = field(default=(), repr=False)
    kwargs: dict[str, Any] = field(default_factory=dict, repr=False)
    metadata: dict[str, Any] = field(default_factory=dict, repr=False)
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Envelope:
    """A message whose signature was verified, and whose arguments are still bytes."""

    id: str
    queue: str
    command: str
    serializer: str
    metadata: dict[str, Any] = field(repr=False)
    options: dict[str, Any]
    body: bytes = field(repr=False)

    def arguments(self) -> Arguments:
        """Return (args, kwargs), decoded again at each call, so that no run sees what an earlier one changed.

        Model references are read from the database here. Raises InvalidMessage, with what went wrong as its cause.
        Errors of the database itself are not the message's fault, and are raised as they are.
        """
        return _decode_body(self.serializer, self.body)


class Encoder:
    """Makes the signed bytes of messages of one command in one queue. What they have in common is prepared once.

    ``queue`` is the queue's logical name. ``serializer`` is "pickle" or "json"; ``models`` is "pickle" (instances
    whole) or "reference" (read again at run time; always so in JSON). ``options`` are those of the calls that differ
    from their command's. It signs with the SECRET_KEY of the moment at which it was made. Raises EncodeError for
    options that cannot be carried, ValueError for an unknown serializer.
    """

    def __init__(
        self,
        command: str,
        queue: str,
        options: Fields | None = None,
        *,
        serializer: str = "pickle",
        models: str = "pickle",
        max_size: int = DEFAULT_MAX_SIZE,
    ):
        self._command, self._queue, self._options = command, queue, options
        self._serializer, self._models, self._max_size = serializer, models, max_size
        self._dumps = _serializer(serializer).dumps
        self._header = _header(serializer, command, None, options)
        self._states = partial(_states, conf.of_django("SECRET_KEY"), _COMMAND, queue)

    def encode(self, id: str, args: tuple[Any, ...], kwargs: dict[str, Any], metadata: Fields | None = None) -> bytes:
        """The signed bytes of one message. Raises EncodeError that names the argument which cannot be carried,
        MessageTooLarge beyond ``max_size`` bytes.
        """
        body = self._dumps(args, kwargs, self._models)
        header = _header(self._serializer, self._command, metadata, self._options) if metadata else self._header
        which = id.encode("utf-8", "surrogatepass")
        return _seal(_COMMAND, self._states(len(which)), which, header + body, self._max_size)


def encode(message: Message, **how: Any) -> bytes:
    """Return the signed bytes of a message; ``how`` are the named arguments of an :class:`Encoder`."""
    encoder = Encoder(message.command, message.queue, message.options, **how)
    return encoder.encode(message.id, message.args, message.kwargs, message.metadata)


def readdressed(envelope: Envelope, queue: str, max_size: int = DEFAULT_MAX_SIZE) -> bytes:
    """Return the signed bytes of a verified message for another queue; its arguments are not decoded.

    Raises MessageTooLarge beyond `max_size` bytes.
    """
    header = _header(envelope.serializer, envelope.command, envelope.metadata, envelope.options)
    which = envelope.id.encode("utf-8", "surrogatepass")
    return _seal(_COMMAND, _own_states(_COMMAND, queue, which), which, header + envelope.body, max_size)


def open_envelope(
    data: bytes, *, id: str, queue: str, accept: Collection[str] = ("pickle", "json"), max_size: int = DEFAULT_MAX_SIZE
) -> Envelope:
    """Return the envelope of a message found in `queue` under `id`, once its signature is verified.

    `accept` names the codecs that may be decoded. Raises InvalidMessage whatever the data is.
    """
    header, body = _unseal(_COMMAND, data, id, queue, max_size)
    serializer, metadata, options = _accepted(header, accept), header.get("m") or {}, header.get("o") or {}
    return Envelope(id, queue, header.get("c", ""), serializer, metadata, options, body)


def pack_item(
    item: Any,
    *,
    id: str,
    queue: str,
    serializer: str = "pickle",
    models: str = "pickle",
    max_size: int = DEFAULT_MAX_SIZE,
) -> bytes:
    """Return the signed bytes of a plain item; raises as `encode` does."""
    try:
        body = _serializer(serializer).dumps((item,), {}, models)
    except EncodeError as error:
        raise EncodeError(str(error).replace("positional argument 1", "the item", 1), 0) from error.__cause__
    which = id.encode("utf-8", "surrogatepass")
    return _seal(_ITEM, _own_states(_ITEM, queue, which), which, _header(serializer) + body, max_size)


def unpack_item(
    data: bytes, *, id: str, queue: str, accept: Collection[str] = ("pickle", "json"), max_size: int = DEFAULT_MAX_SIZE
) -> Any:
    """Return the item found in `queue` under `id`, once its signature is verified; raises InvalidMessage."""
    header, body = _unseal(_ITEM, data, id, queue, max_size)
    (item,), _ = _decode_body(_accepted(header, accept), body)
    return item


# The header: short names, defaults left out, unknown fields ignored.


def _header(serializer: str, command: str = "", metadata: Fields | None = None, options: Fields | None = None) -> bytes:
    """Return the header with its length."""
    if not (metadata or options):
        return _plain_header(serializer, command)
    own = {name: values for name, values in (("m", metadata), ("o", options)) if values}
    try:
        return _measured(to_json(_fields(serializer, command) | own, models=False))
    except (TypeError, ValueError) as error:
        raise encode_error(partial(to_json, models=False, depth=DEPTH), _titled(metadata, options), error) from error


def _titled(metadata: Fields | None, options: Fields | None) -> Iterator[tuple[str, str, Any]]:
    yield from ((name, f"option {name!r}", value) for name, value in (options or {}).items())
    yield from ((name, f"metadata {name!r}", value) for name, value in (metadata or {}).items())


@lru_cache(maxsize=1024)
def _plain_header(serializer: str, command: str) -> bytes:
    """All messages of a command that carry nothing of their own have the same header."""
    fields = _fields(serializer, command)
    return _measured(to_json(fields, models=False) if fields else b"")


def _measured(header: bytes) -> bytes:
    return _LENGTH.pack(len(header)) + header


def _fields(serializer: str, command: str) -> Fields:
    fields = {"c": command} if command else {}
    return fields if serializer == "pickle" else fields | {"e": serializer}


def _parsed(header: bytes) -> Fields:
    if not header:
        return {}
    try:
        fields: Fields = from_json(header)
    except Exception as error:
        raise InvalidMessage(f"the header cannot be decoded: {error}") from error
    return fields


_parsed_once = lru_cache(maxsize=1024)(_parsed)
"""For verified headers that carry nothing of their own, and so nothing that a run could change."""


def _serializer(name: str) -> Codec:
    try:
        return SERIALIZERS[name]
    except KeyError:
        raise ValueError(f"no serializer is called {name!r}; choose from {', '.join(SERIALIZERS)}") from None


def _accepted(header: Fields, accept: Collection[str]) -> str:
    serializer: str = header.get("e", "pickle")
    if serializer not in accept or serializer not in SERIALIZERS:
        raise InvalidMessage(f"the serializer {serializer!r} is not accepted here")
    return serializer


def _decode_body(serializer: str, body: bytes) -> Arguments:
    try:
        return SERIALIZERS[serializer].loads(body)
    except (InvalidMessage, *TRANSIENT):
        raise
    except Exception as error:
        raise InvalidMessage(f"cannot be decoded: {type(error).__name__}: {error}"[:300]) from error


# Signing


def _seal(kind: bytes, states: States, which: bytes, content: bytes, max_size: int) -> bytes:
    """``which`` is the id, as bytes."""
    size = _MAC_END + len(content)
    if size > max_size:
        raise MessageTooLarge(
            f"the message has {size} bytes, {max_size} are allowed: pass a reference to large data, or raise "
            "QUEUE_MAX_MESSAGE_SIZE."
        )
    return b"".join((kind, _mac(states, which, content), content))


def _own_states(kind: bytes, queue: str, which: bytes) -> States:
    return _states(conf.of_django("SECRET_KEY"), kind, queue, len(which))


def _unseal(kind: bytes, data: Any, id: str, queue: str, max_size: int) -> tuple[Fields, bytes]:
    if type(data) is not bytes:
        data = _as_bytes(data)
    if len(data) > max_size:
        raise InvalidMessage(f"it has {len(data)} bytes, {max_size} are allowed")
    if data[:_KIND_END] != kind:
        raise InvalidMessage(_misfit(kind, data[:_KIND_END]))
    mac, content = data[_KIND_END:_MAC_END], data[_MAC_END:]
    which = id.encode("utf-8", "surrogatepass")
    if not compare_digest(mac, _mac(_own_states(kind, queue, which), which, content)):
        _verify_by_fallbacks(mac, kind, which, queue, content)
    start = _LENGTH.size + _LENGTH.unpack_from(content)[0]
    header = content[_LENGTH.size : start]
    parsed = _parsed_once if header.find(b"{", 1) < 0 else _parsed  # metadata and options are objects within it
    return parsed(header), content[start:]


def _as_bytes(data: Any) -> bytes:
    if not isinstance(data, bytes | bytearray | memoryview):  # some database drivers give the latter
        raise InvalidMessage(f"not bytes but {type(data).__qualname__}")
    return bytes(data)


def _misfit(kind: bytes, found: bytes) -> str:
    if found in _KINDS:
        return f"{_KINDS[found]}, where {_KINDS[kind]} is expected"
    if found[:3] == b"djq" and found[3:4] > b"1" and found[3:4].isdigit():
        return "a newer djqueue wrote it; upgrade this one"
    return "not a message of djqueue"


def _verify_by_fallbacks(mac: bytes, kind: bytes, which: bytes, queue: str, content: bytes) -> None:
    # An empty fallback, as an unset environment variable leaves it, would be a publicly known key.
    secrets = filter(None, conf.of_django("SECRET_KEY_FALLBACKS"))
    found = (_mac(_states(secret, kind, queue, len(which)), which, content) for secret in secrets)
    if not any(compare_digest(mac, one) for one in found):
        raise BadSignature(OTHER_KEY)


def _mac(states: States, which: bytes, content: bytes) -> bytes:
    """Return the signature: HMAC-SHA256 of kind, queue, id and content. Lengths make that unambiguous; content has its
    own."""
    inner, outer = states[0].copy(), states[1].copy()
    inner.update(which)
    inner.update(content)
    outer.update(inner.digest())
    mac: bytes = outer.digest()
    return mac


@lru_cache(maxsize=1024)
def _states(secret: str | bytes, kind: bytes, queue: str, size: int) -> States:
    """Return the two hash states of an HMAC (RFC 2104), the first of which has read what comes before the id.

    To copy them takes less time than ``hmac.digest``, which also gives up the interpreter lock at each call.
    """
    key, where = _key(secret).ljust(_BLOCK, b"\0"), queue.encode("utf-8", "surrogatepass")
    inner, outer = (hashlib.sha256(bytes(byte ^ pad for byte in key)) for pad in (0x36, 0x5C))
    inner.update(b"".join((kind, _LENGTHS.pack(len(where), size), where)))
    return inner, outer


def _key(secret: str | bytes) -> bytes:
    """Return the signing key of a secret, derived as django.utils.crypto.salted_hmac does."""
    return hashlib.sha256(_SALT + (secret.encode() if isinstance(secret, str) else secret)).digest()
