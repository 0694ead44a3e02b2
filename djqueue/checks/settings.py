"""System checks of the settings, of QUEUES, and of the commands that name its queues. Nothing here connects."""

from __future__ import annotations

import os
from collections.abc import Collection, Hashable, Iterator, Mapping
from dataclasses import replace

from django.conf import settings
from django.core.checks import CheckMessage, register
from django.core.exceptions import ImproperlyConfigured
from django.db import connections

from djqueue import conf
from djqueue.backends.base import BaseQueue
from djqueue.backends.memory.queue import MemoryQueue
from djqueue.checks import TAG, near_or_moved, say
from djqueue.discovery import modules_nowhere, packages_nowhere
from djqueue.exceptions import InvalidQueueError
from djqueue.registry import Runnable, registry
from djqueue.throttle import REQUIRED as THROTTLE_REQUIRED
from djqueue.throttle import SETTINGS as THROTTLE_KEYS
from djqueue.throttle import ThrottledQueue, unthrottled
from djqueue.timetables import Crontab
from djqueue.utils import near, nearest, seconds
from djqueue.wiring import ClassNotUsable, build, load_class, why_no_facts


@register(TAG)
def check_names(app_configs=None, **kwargs) -> Iterator[CheckMessage]:
    """E001, W001: names similar to settings of djqueue; without a similar one it may be another package's."""
    for name in dir(settings):
        if name.startswith("QUEUE") and name.isupper() and name not in conf.SETTINGS:
            id = "E001" if nearest(name, conf.SETTINGS) else "W001"
            yield say(id, where=name, near=near_or_moved(name, conf.SETTINGS))


@register(TAG)
def check_values(app_configs=None, **kwargs) -> Iterator[CheckMessage]:
    """E003, E007, E013."""
    for name, setting in conf.SETTINGS.items():
        if not is_valid(name):
            variable = conf.variable_of(name)
            where = f"The environment variable {variable}" if variable else name
            value = os.environ[variable] if variable else conf.get(name)
            if setting.kind.keys and isinstance(value, Mapping):
                yield from _keys(where, value, setting.kind.keys)
            else:
                yield say("E007", where=where, value=repr(value), wanted=setting.kind.words)
    if is_valid("QUEUE_SERIALIZER") and not accepted(conf.get("QUEUE_SERIALIZER")):
        yield say("E013", where="QUEUE_SERIALIZER", serializer=conf.get("QUEUE_SERIALIZER"))


def _keys(where: str, given: Mapping, kinds: Mapping[str, conf.SettingType]) -> Iterator[CheckMessage]:
    """What is wrong with a setting that is a dictionary, by key."""
    yield from _unknown(where, given, kinds)
    for key, kind in kinds.items():
        if key in given and not kind.accepts(given[key]):
            yield say("E007", where=f"{where}[{key!r}]", value=repr(given[key]), wanted=kind.words)


def is_valid(name: str) -> bool:
    """Whether the value of a setting can be read, and is one that it may have."""
    try:
        return conf.SETTINGS[name].kind.accepts(conf.get(name))
    except ImproperlyConfigured:
        return False


def accepted(serializer: str) -> bool:
    """Whether a consumer would decode it; yes while QUEUE_ACCEPT itself is wrong."""
    return not is_valid("QUEUE_ACCEPT") or serializer in conf.get("QUEUE_ACCEPT")


# ---- QUEUES: can queues be made of it, and do they agree about what they share?

TWINS = ("QUEUE_CLASS", "QUEUE_NAME", "QUEUE_OPTIONS")
"""What the default queue is made of, unless it is in QUEUES."""

KEYS: dict[str, tuple[type | tuple[type, ...], str]] = {
    "CLASS": (str, "the dotted path of a class"),
    "NAME": (str, "a text"),
    "STORE": (
        (str, Mapping, type(None), bool),
        "a dotted path, a dictionary with CLASS, CONNECTION and OPTIONS, or False for none",
    ),
    "OPTIONS": (Mapping, "a dictionary"),
    "THROTTLE": ((Mapping, type(None)), f"a dictionary with keys of {', '.join(THROTTLE_KEYS)}"),
}
"""The types of the keys in QUEUES[alias]; a CONNECTION is what its backend makes of it."""

GIVE_CLASS = "Give the dotted path of a subclass of djqueue.backends.base.BaseQueue as CLASS (or QUEUE_CLASS)."
STORE_KEYS = ("CLASS", "CONNECTION", "OPTIONS")


@register(TAG)
def check_shape(app_configs=None, **kwargs) -> Iterator[CheckMessage]:
    """E002, E003, E010."""
    given = conf.get("QUEUES")
    if not isinstance(given, Mapping):
        yield say("E002", where="QUEUES", value=_kind(given), wanted="a dictionary of dictionaries, like CACHES")
        return
    for alias, config in given.items():
        yield from _shape(alias, config)
    if conf.DEFAULT_ALIAS in given:
        yield from (say("E010", where=name) for name in TWINS if settings.is_overridden(name))


def _shape(alias: object, config: object) -> Iterator[CheckMessage]:
    where = f"QUEUES[{alias!r}]"
    if not isinstance(alias, str):
        yield say("E002", where=where, value=f"under {_kind(alias)}", wanted="a text as its alias")
    elif not isinstance(config, Mapping):
        wanted = f"a dictionary with keys of {', '.join(conf.QUEUE_KEYS)}"
        yield say("E002", where=where, value=_kind(config), wanted=wanted)
    else:
        yield from _unknown(where, config, conf.QUEUE_KEYS)
        yield from _types(where, config)


def _types(where: str, config: Mapping) -> Iterator[CheckMessage]:
    for key, (kind, wanted) in KEYS.items():
        if key in config and not isinstance(config[key], kind):
            yield say("E002", where=f"{where}[{key!r}]", value=_kind(config[key]), wanted=wanted)
    store, throttle = config.get("STORE"), config.get("THROTTLE")
    if isinstance(store, Mapping):
        yield from _unknown(f"{where}['STORE']", store, STORE_KEYS)
        yield from _types(f"{where}['STORE']", {"CLASS": None, **store})
    if isinstance(throttle, Mapping):
        yield from _unknown(f"{where}['THROTTLE']", throttle, THROTTLE_KEYS)


def _unknown(where: str, given: Mapping, valid: Collection[str]) -> Iterator[CheckMessage]:
    unknown = [key for key in given if key not in valid]
    return (say("E003", where=where, key=key, near=near(key, sorted(valid))) for key in unknown)


def _kind(value: object) -> str:
    return "None" if value is None else f"of the type {type(value).__name__}"


def configs() -> list[conf.QueueConfig]:
    """The queues of the settings; none while check_shape or check_values say that they have the wrong type."""
    is_wrong = any(message.id == "djqueue.E002" for message in check_shape()) or not all(map(is_valid, TWINS))
    return [] if is_wrong else list(conf.queue_configs().values())


def made() -> Iterator[tuple[conf.QueueConfig, BaseQueue]]:
    """The queues that can be made, each with its settings."""
    for config in configs():
        queue = _make(config)
        if isinstance(queue, BaseQueue):
            yield config, queue


def _make(config: conf.QueueConfig) -> BaseQueue | CheckMessage:
    """The queue, made without common and unknown options, for the other checks; or why it cannot be made."""
    cls = _class(config)
    if isinstance(cls, CheckMessage):
        return cls
    own = {key: value for key, value in config.options.items() if key in cls.options}
    try:
        return build(replace(config, options=own, throttle=_throttle(config)))
    except InvalidQueueError as error:
        return say("E006", alias=config.alias, error=error)
    except Exception as error:  # a backend's class may raise anything
        return say("E006", alias=config.alias, error=f"{type(error).__name__}: {error}")


def _throttle(config: conf.QueueConfig) -> Mapping | None:
    """The known keys of THROTTLE; None if one that is required may be among the unknown keys, which E003 reports."""
    given = config.throttle or {}
    known = {key: value for key, value in given.items() if key in THROTTLE_KEYS}
    lacks = any(key not in known for key in THROTTLE_REQUIRED)
    return None if config.throttle is None or (lacks and known != given) else known


def _class(config: conf.QueueConfig) -> type[BaseQueue] | CheckMessage:
    try:
        return load_class(config)
    except ClassNotUsable as error:
        return say("E005", alias=config.alias, error=error.why, fix=error.fix or GIVE_CLASS)
    except Exception as error:  # its module may raise anything
        text = f"importing {config.path} raised {type(error).__name__}: {error}"
        return say("E005", alias=config.alias, error=text, fix=GIVE_CLASS)


@register(TAG)
def check_queues(app_configs=None, **kwargs) -> Iterator[CheckMessage]:
    """E005, E006."""
    return (made for made in map(_make, configs()) if isinstance(made, CheckMessage))


@register(TAG)
def check_options(app_configs=None, **kwargs) -> Iterator[CheckMessage]:
    """E004, E008, E009."""
    for config in configs():
        where = f"QUEUES[{config.alias!r}]['OPTIONS']" if config.alias in conf.get("QUEUES") else "QUEUE_OPTIONS"
        cls = _class(config)
        if not isinstance(cls, CheckMessage):
            valid = {*conf.COMMON_OPTIONS, *cls.options}
            unknown = [key for key in config.options if key not in valid]
            yield from (say("E004", where=where, key=key, near=near_or_moved(key, valid)) for key in unknown)
        try:
            seconds(config.options.get("LEASE", 60), "LEASE", least=0.1)
        except (TypeError, ValueError) as error:
            yield say("E008", where=f"{where}['LEASE']", error=error)
        alias = config.options.get("ON_COMMIT")
        if alias is not None and not (isinstance(alias, str) and alias in connections):
            known = ", ".join(map(repr, connections))
            yield say("E009", where=f"{where}['ON_COMMIT']", value=repr(alias), known=known)


@register(TAG)
def check_twins(app_configs=None, **kwargs) -> Iterator[CheckMessage]:
    """W002: two aliases of one queue. Queues in memory are apart even if their names are the same."""
    seen: dict[tuple, str] = {}
    for config, queue in made():
        place = (unthrottled(queue).connection_key, config.name, config.options.get("PREFIX"))
        if place in seen and not isinstance(unthrottled(queue), MemoryQueue):
            yield say("W002", alias=config.alias, other=seen[place])
        seen.setdefault(place, config.alias)


@register(TAG)
def check_throttles(app_configs=None, **kwargs) -> Iterator[CheckMessage]:
    """E017, E018: each queue against the first that has the same name."""
    first: dict[tuple[str, str], tuple[conf.QueueConfig, ThrottledQueue]] = {}
    for config, queue in made():
        if not isinstance(queue, ThrottledQueue):
            continue
        for kind, name in (("window_name", queue.window_name), ("mod_name", queue.mod_name)):
            if not name:
                continue
            other, before = first.setdefault((kind, name), (config, queue))
            named = {"alias": config.alias, "other": other.alias, "name": name}
            if _place(config, queue) != _place(other, before):
                yield say("E018", **named)
            elif kind == "window_name" and before.rate_limit != queue.rate_limit:
                yield say("E017", **named, ours=_shown(queue), theirs=_shown(before))


def _shown(queue: ThrottledQueue) -> str:
    spacing = f", spaced as {queue.mod_name!r}" if queue.mod_name else ""
    return f"{queue.rate_limit.window}{spacing}"


def _place(config: conf.QueueConfig, queue: ThrottledQueue) -> Hashable:
    """Queues of one place share facts: a database; a server (of a cluster a slot) and the prefix of all keys there."""
    if queue.store is not None and queue.store.database:
        return (queue.store.database,)
    key = unthrottled(queue).connection_key
    server = key[1:] if isinstance(key, tuple) else key  # queues of two classes may be on one server
    return (server, config.options.get("PREFIX"))


# ---- Commands: can each be sent to the queue of its options, and run there?


@register(TAG)
def check_commands(app_configs=None, **kwargs) -> Iterator[CheckMessage]:
    """E011, E012, E013."""
    aliases = [config.alias for config in configs()]
    queues = {config.alias: queue for config, queue in made()}
    for command in registry:
        alias = command.policy.queue_name
        if aliases and alias not in aliases:
            yield say("E011", command=command.name, key=alias, near=near(alias, sorted(aliases)))
        if alias in queues and (lacking := command.policy.unsupported(queues[alias].features)):
            backend = type(unthrottled(queues[alias])).__name__
            lacking += why_no_facts(queues[alias], command.policy.needs)
            yield say("E012", command=command.name, alias=alias, backend=backend, lacking=lacking)
        serializer = command.policy.serializer
        if serializer and not accepted(serializer):
            yield say("E013", where=f"The serializer of the command {command.name}", serializer=serializer)


@register(TAG)
def check_schedules(app_configs=None, **kwargs) -> Iterator[CheckMessage]:
    """W010: ``crontab(hour=3)`` is due sixty times."""
    for command in registry.periodic():
        schedule = getattr(command, "validate_datetime", None)
        if isinstance(schedule, Crontab) and schedule.lacks_minute:
            yield say("W010", command=command.name, schedule=schedule)


NOWHERE = {
    "QUEUE_MODULES": "no installed app has a module of that name",
    "QUEUE_IMPORT": "no package of that name can be imported",
}


@register(TAG)
def check_places(app_configs=None, **kwargs) -> Iterator[CheckMessage]:
    """W006, W007, W008."""
    if not (is_valid("QUEUE_MODULES") and is_valid("QUEUE_IMPORT")):
        return
    for name, missing in (("QUEUE_MODULES", modules_nowhere()), ("QUEUE_IMPORT", packages_nowhere())):
        if missing:
            yield say("W008", where=name, names=", ".join(map(repr, missing)), why=NOWHERE[name])
    if unfound := [command.name for command in registry.unfound()]:
        yield say("W006", commands=", ".join(unfound))
    if unscheduled := [command.name for command in registry.unscheduled()]:
        modules = " or ".join(f"{module}.py" for module in conf.get("QUEUE_MODULES"))
        yield say("W007", commands=", ".join(unscheduled), modules=modules or "commands.py")


@register(TAG)
def check_shared_throttles(app_configs=None, **kwargs) -> Iterator[CheckMessage]:
    """E016: a throttle that commands share by its name is of one queue."""
    first: dict[str, Runnable] = {}
    for command in registry:
        shared = command.policy.plan and command.policy.plan.shared
        other = first.setdefault(shared, command) if shared else command
        if other.policy.queue_name != command.policy.queue_name:
            aliases = f"{other.policy.queue_name!r} and {command.policy.queue_name!r}"
            yield say("E016", command=other.name, other=command.name, key=shared, aliases=aliases)
