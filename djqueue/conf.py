"""Settings, read late, as plain values. Nothing here imports a backend."""

from __future__ import annotations

import os
import reprlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from math import prod
from types import MappingProxyType
from typing import Any, NamedTuple

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.utils.functional import empty

from djqueue.exceptions import InvalidQueueError
from djqueue.utils import is_exception, priority, seconds, whole

# ---- What a setting may be


class SettingType(NamedTuple):
    """What the system checks accept as the value of a setting, and the words for it in their messages."""

    accepts: Callable[[Any], bool]
    words: str
    keys: Mapping[str, Any] = MappingProxyType({})
    """Of a dictionary: the Kind of each key that it may have."""

    def or_none(self) -> SettingType:
        return SettingType(lambda value: value is None or self.accepts(value), f"{self.words}, or None", self.keys)


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting of djqueue."""

    default: Any
    kind: SettingType
    parse: Callable[[str], Any] | None = None
    """Reads the environment variable of the same name, which counts where the project has no such setting."""
    aliases: tuple[str, ...] = ()
    """Other names that the environment variable may have, as sharded-queue calls it."""


def _one_of(*choices: str) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, str) and value in choices


def _list_of(accepts: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list | tuple | set | frozenset) and all(map(accepts, value))


def _passes(check: Callable[..., object], **bounds: float) -> Callable[[Any], bool]:
    """Whether a check of an argument accepts the value."""

    def passes(value: object) -> bool:
        try:
            check(value, "it", **bounds)
        except (TypeError, ValueError):
            return False
        return True

    return passes


def _duration(least: float, words: str) -> SettingType:
    return SettingType(_passes(seconds, least=least), f"{words}, as a number or a timedelta")


def _is_batch_size(value: Any) -> bool:
    return _COUNT.accepts(value) and value <= 1000


def _is_name(value: object) -> bool:
    return isinstance(value, str) and value.isidentifier()


def _is_dotted_name(value: object) -> bool:
    return isinstance(value, str) and all(map(str.isidentifier, value.split(".")))


def _is_shard(value: object) -> bool:
    return isinstance(value, int | str) and not isinstance(value, bool)


def _are_serializers(value: Any) -> bool:
    return _list_of(_SERIALIZER.accepts)(value) and bool(value)


def _is_history(value: Any) -> bool:
    if not isinstance(value, Mapping) or not value.keys() <= _OF_HISTORY.keys():
        return False
    return all(_OF_HISTORY[name].accepts(given) for name, given in value.items())


def _thread(text: str) -> int | str:
    try:
        return int(text)
    except ValueError:
        return text


_ANY = SettingType(lambda value: True, "")  # QUEUES has checks of its own; a backend judges its connection
_TEXT = SettingType(lambda value: isinstance(value, str), "a text")
_PATH = SettingType(_TEXT.accepts, "the dotted path of a class")
_DICT = SettingType(lambda value: isinstance(value, Mapping), "a dictionary")
_FLAG = SettingType(lambda value: isinstance(value, bool), "True or False")
_COUNT = SettingType(_passes(whole, least=1), "a whole number, at least 1")
_MODULES = SettingType(_list_of(_is_name), "a list of names of modules without dots, as in ('commands', 'tasks')")
_PACKAGES = SettingType(_list_of(_is_dotted_name), "a list of dotted names of packages, as in ('company.jobs',)")
_SECONDS = SettingType(_passes(seconds, least=0), "seconds, or a timedelta")
_SERIALIZER = SettingType(_one_of("pickle", "json"), "'pickle' or 'json'")

LEAST_HISTORY = 2
_OF_HISTORY = {
    "age": _duration(1, "at least a second"),
    "count": SettingType(_passes(whole, least=LEAST_HISTORY), "a whole number from 2 to 10**15"),
    "arguments": _FLAG,
    "value": _FLAG,
}
_HISTORY = SettingType(
    _is_history,
    "a dictionary of 'age' (seconds, or a timedelta), 'count' (a whole number from 2 to 10**15), 'arguments' and "
    "'value' (True or False)",
    _OF_HISTORY,
)

WORKER_EMPTY: dict[str, tuple[type, float]] = {
    "QUEUE_WORKER_EMPTY_LIMIT": (int, 16),
    "QUEUE_WORKER_EMPTY_PAUSE": (float, 0.1),
}
"""sharded-queue's idle timeout: a number of looks, and the seconds between two of them; each with its default."""

SETTINGS: dict[str, Setting] = {
    "QUEUES": Setting({}, _ANY),
    "QUEUE_CLASS": Setting("djqueue.backends.database.DatabaseQueue", _PATH),
    "QUEUE_NAME": Setting("default", _TEXT),
    "QUEUE_CONNECTION": Setting("", _ANY),
    "QUEUE_OPTIONS": Setting({}, _DICT),
    "QUEUE_ALWAYS_EAGER": Setting(False, _FLAG),
    "QUEUE_SERIALIZER": Setting("pickle", _SERIALIZER),
    "QUEUE_ACCEPT": Setting(("pickle", "json"), SettingType(_are_serializers, "a list of 'pickle', 'json' or both")),
    "QUEUE_MODELS": Setting("pickle", SettingType(_one_of("pickle", "reference"), "'pickle' or 'reference'")),
    "QUEUE_MODULES": Setting(("commands", "tasks"), _MODULES),
    "QUEUE_IMPORT": Setting((), _PACKAGES),
    "QUEUE_MAX_MESSAGE_SIZE": Setting(2**20, SettingType(_COUNT.accepts, "a whole number of bytes, at least 1")),
    "QUEUE_MAX_LOST": Setting(3, _COUNT),
    "QUEUE_MAX_STARTS": Setting(1000, _COUNT.or_none()),
    "QUEUE_UNKNOWN_AFTER": Setting(3600, _SECONDS),
    "QUEUE_RETRY_ON": Setting((), SettingType(_list_of(is_exception), "a list of exception classes")),
    "QUEUE_MAX_ATTEMPTS": Setting(5, _COUNT),
    "QUEUE_TIME_LIMIT_GRACE": Setting(5, _SECONDS),
    "QUEUE_RESULT_TTL": Setting(None, _SECONDS.or_none()),
    "QUEUE_MAX_RESULTS": Setting(None, _COUNT.or_none()),
    "QUEUE_MAX_ERRORS": Setting(None, _COUNT.or_none()),
    "QUEUE_MAX_ERROR_AGE": Setting(None, _duration(1, "at least a second").or_none()),
    "QUEUE_HISTORY": Setting({"age": 7 * 86_400, "count": 100_000}, _HISTORY.or_none()),
    "QUEUE_MAX_POLL_INTERVAL": Setting(
        1.0, _duration(0.001, "at least a millisecond"), float, ("QUEUE_COORDINATOR_DELAY",)
    ),
    "QUEUE_RELEASE": Setting("", _TEXT, str),
    "QUEUE_CONSUMER_PREFIX": Setting("", _TEXT, str, ("QUEUE_COORDINATOR_PREFIX",)),
    "QUEUE_LOCK_DIR": Setting("", _TEXT, str),
    "QUEUE_LEASE": Setting(30.0, _duration(0.1, "at least 0.1 seconds"), float, ("QUEUE_COORDINATOR_TIMEOUT",)),
    "QUEUE_DEFAULT_PRIORITY": Setting(0, SettingType(_passes(priority), "a whole number of 32 bits"), int),
    "QUEUE_DEFAULT_THREAD": Setting(0, SettingType(_is_shard, "a whole number, or a text"), _thread),
    "QUEUE_LANE_PREFIX": Setting("", _TEXT, str, ("QUEUE_TUBE_PREFIX",)),
    "QUEUE_BATCH_SIZE": Setting(
        128, SettingType(_is_batch_size, "a whole number from 1 to 1000"), int, ("QUEUE_WORKER_BATCH_SIZE",)
    ),
    "QUEUE_IDLE_TIMEOUT": Setting(1.6, _SECONDS, float, tuple(WORKER_EMPTY)),
}
"""Every setting of djqueue."""

# ---- Reading them

_UNSAID = object()

DEFAULT_ALIAS = "default"
QUEUE_KEYS = ("CLASS", "NAME", "CONNECTION", "STORE", "OPTIONS", "THROTTLE")
COMMON_OPTIONS = ("LEASE", "ON_COMMIT")
"""The options of every queue, of any class."""


_READ: dict[str, Any] = vars(settings)
"""Where Django keeps the settings that were read before; one that is assigned leaves it until it is read again."""
_unsaid: dict[str, Any] = {}
"""The values of settings that the project does not have."""
_forgotten = 0
"""How often these were forgotten."""


def get(name: str) -> Any:
    """The value of a setting of djqueue, or its default; what is assigned at run time counts at once.

    Asked for several times per message, so it looks into dictionaries only. An environment variable is read once.
    Raises ImproperlyConfigured for one that cannot be read.
    """
    value = _READ.get(name, _UNSAID)
    if value is not _UNSAID:
        return value
    value = _unsaid.get(name, _UNSAID)
    if value is _UNSAID or name in _READ["_wrapped"].__dict__:
        value = getattr(settings, name, _UNSAID)
        if value is _UNSAID:
            value = _unsaid[name] = _default(name)
    return value


def of_django(name: str) -> Any:
    """The value of a setting of Django, as fast as :func:`get` and as current."""
    value = _READ.get(name, _UNSAID)
    return getattr(settings, name) if value is _UNSAID else value


class Version:
    """Some settings as they were at a moment. Opaque: a report of an error may show variables, and some are secret."""

    __slots__ = ("_were",)

    def __init__(self, were: tuple[Any, ...]):
        self._were = were


def version(names: Collection[str], known: Version | None = None) -> Version:
    """The version that is known if none of these settings of djqueue or Django has changed since; else a new one.

    Code that keeps what was made of settings asks before they are read: then no change is missed, though the first
    reading of a setting counts as one. Django sends no signal of an assignment.
    """
    holder = _READ["_wrapped"]
    if holder is empty:
        settings._setup()
        holder = _READ["_wrapped"]
    now = holder, _forgotten, *map(_READ.get, names), *map(vars(holder).get, names)
    return known if known is not None and known._were == now else Version(now)


def _default(name: str) -> Any:
    setting, variable = SETTINGS[name], variable_of(name)
    if variable is None or setting.parse is None:
        return setting.default
    if variable in WORKER_EMPTY:
        return prod(_parsed(name, *rest) for name, rest in WORKER_EMPTY.items())
    return _parsed(variable, setting.parse)


def _parsed(variable: str, parse: Callable[[str], Any], default: Any = None) -> Any:
    text = os.environ.get(variable)
    if text is None:
        return default
    try:
        return parse(text)
    except ValueError as error:
        wanted = "a whole number" if parse is int else "seconds"
        raise ImproperlyConfigured(f"The environment variable {variable} is {text!r}: give {wanted}.") from error


def variable_of(name: str) -> str | None:
    """The environment variable that sets a setting, by the setting's name or an alias; None if none counts."""
    setting = SETTINGS[name]
    if setting.parse is None or getattr(settings, name, _UNSAID) is not _UNSAID:
        return None
    return next((variable for variable in (name, *setting.aliases) if variable in os.environ), None)


def forget(**kwargs: Any) -> None:
    """Read settings and environment variables again."""
    global _forgotten
    _unsaid.clear()
    _forgotten += 1


setting_changed.connect(forget, dispatch_uid="djqueue.conf")


@dataclass(frozen=True, slots=True)
class QueueConfig:
    """One entry of QUEUES, completed."""

    alias: str
    path: str
    name: str
    connection: Any = ""
    store: Any = None
    options: Mapping[str, Any] = field(default_factory=dict)
    throttle: Mapping[str, Any] | None = None


def queue_configs() -> dict[str, QueueConfig]:
    """The queues of this project by alias. Without ``QUEUES["default"]`` the QUEUE_… settings make the default one.

    Raises InvalidQueueError if QUEUES is no dictionary of dictionaries.
    """
    given = get("QUEUES")
    _refuse_no_mapping("QUEUES", given, "a dictionary of dictionaries, like CACHES")
    configs = {alias: _config(alias, one) for alias, one in given.items()}
    if DEFAULT_ALIAS not in configs:
        configs[DEFAULT_ALIAS] = _config(DEFAULT_ALIAS, {"NAME": get("QUEUE_NAME"), "OPTIONS": get("QUEUE_OPTIONS")})
    return configs


def _refuse_no_mapping(where: str, given: object, wanted: str) -> None:
    if not isinstance(given, Mapping):
        raise InvalidQueueError(f"{where} is {reprlib.repr(given)}: give {wanted}.")


def _config(alias: str, given: Mapping[str, Any]) -> QueueConfig:
    _refuse_no_mapping(f"QUEUES[{alias!r}]", given, f"a dictionary with keys of {', '.join(QUEUE_KEYS)}")
    return QueueConfig(
        alias,
        given.get("CLASS", get("QUEUE_CLASS")),
        given.get("NAME", alias),
        given.get("CONNECTION", "" if "CLASS" in given else get("QUEUE_CONNECTION")),
        given.get("STORE"),
        given.get("OPTIONS", {}),
        given.get("THROTTLE"),
    )


def task_backends() -> list[str]:
    """The aliases in TASKS, Django's setting, whose backends are of djqueue."""
    given = getattr(settings, "TASKS", {})
    return [alias for alias, params in given.items() if str(params.get("BACKEND")).startswith("djqueue.")]
