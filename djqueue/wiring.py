"""The composition root: the only module that knows both the settings and the classes."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from typing import Any, NoReturn

from django.apps import apps
from django.core.signals import setting_changed
from django.utils.module_loading import import_string

from djqueue import conf
from djqueue.backends.base import BaseQueue, BaseStore, NoStore
from djqueue.exceptions import InvalidQueueError
from djqueue.hints import answering
from djqueue.throttle import throttled, unthrottled
from djqueue.utils import nearest, seconds

_NAME = re.compile(r"[^\s:{}\x00-\x1f]{1,64}")
DESCRIBING = ("QUEUES", "QUEUE_CLASS", "QUEUE_NAME", "QUEUE_CONNECTION", "QUEUE_OPTIONS")
"""The settings that describe queues."""
ADD_APP = "Add 'djqueue' to INSTALLED_APPS."
_DEFAULT_STORE: dict[str, Any] = {"CLASS": "djqueue.backends.database.DatabaseStore", "CONNECTION": ""}


_DATABASE, _MEMORY = "djqueue.backends.database.DatabaseQueue", "djqueue.backends.memory.MemoryQueue"
_REDIS, _SQS = "djqueue.backends.redis_backend.RedisQueue", "djqueue.backends.sqs.SqsQueue"
_CLASSES = (
    _DATABASE,
    _MEMORY,
    "djqueue.backends.redis_backend.RedisBlockingQueue",
    _REDIS,
    _SQS,
    "djqueue.backends.database.DatabaseStore",
    "djqueue.backends.memory.MemoryStore",
)
"""What a CLASS that cannot be imported may have meant."""
_ALIKE = 0.8
_KINDS = {"redis": _REDIS, "sqs": _SQS, "memory": _MEMORY} | dict.fromkeys(
    ("database", "django", "postgres", "sql"), _DATABASE
)
"""What a CLASS may have meant that only names a kind of store."""
MISSING = "pip install"
"""What a backend says of the package that it lacks."""


class ClassNotUsable(InvalidQueueError):
    """A class that the settings name cannot be used: ``why``, and the ``fix``."""

    def __init__(self, why: str, fix: str = "") -> None:
        super().__init__(f"{why} {fix}".rstrip())
        self.why, self.fix = why, fix


@answering("queues")
class Queues:
    """The queues of this project by alias, like ``django.core.cache.caches``: one object each, made when asked for."""

    def __init__(self) -> None:
        self.made: dict[str, BaseQueue] = {}
        """Those that were asked for. The dictionary is replaced when all are forgotten."""
        self._version: conf.Version | None = None
        self._described: tuple[Any, ...] = ()
        self._lock = threading.RLock()

    def __getitem__(self, alias: str) -> BaseQueue:
        """Raises InvalidQueueError for an alias that no setting names."""
        if conf.version(DESCRIBING, self._version) is not self._version:
            self._read_again()
        queue = self.made.get(alias)
        return queue if queue is not None else self._make(alias)

    def __iter__(self) -> Iterator[str]:
        return iter(conf.queue_configs())

    def __contains__(self, alias: str) -> bool:
        return alias in conf.queue_configs()

    def __call__(self, alias: object = "default", /) -> NoReturn:
        raise TypeError(f"queues is no function: queues[{alias!r}] is the queue of an alias.")

    def reset(self) -> None:
        """Forget all queues; they are made again from the settings when asked for."""
        self.made = {}
        self._lock = threading.RLock()

    def _read_again(self) -> None:
        with self._lock:
            self._version, described = conf.version(DESCRIBING), tuple(map(conf.get, DESCRIBING))
            if described != self._described:
                self.made, self._described = {}, described

    def _make(self, alias: str) -> BaseQueue:
        with self._lock:
            if alias not in self.made:
                configs = conf.queue_configs()
                if alias not in configs:
                    meant, known = nearest(alias, configs), ", ".join(sorted(configs))
                    hint = f"did you mean {meant!r}?" if meant else f"there are: {known}."
                    raise InvalidQueueError(f"There is no queue {alias!r} in QUEUES; {hint}")
                self.made[alias] = build(configs[alias])
            return self.made[alias]


def build(config: conf.QueueConfig) -> BaseQueue:
    """The queue that a configuration describes. Raises InvalidQueueError; does not connect."""
    if not _NAME.fullmatch(config.name):
        rule = "a name has 1 to 64 characters, without white space, ':', '{' or '}'."
        raise InvalidQueueError(f"QUEUES[{config.alias!r}]['NAME'] is {config.name!r}: {rule}")
    # Options are passed only when they are set, so that a class may take nothing but name and connection.
    own = {key.lower(): value for key, value in config.options.items() if key not in conf.COMMON_OPTIONS}
    queue = load_class(config)(config.name, config.connection, **own)
    queue.alias = config.alias
    if "LEASE" in config.options:
        queue.lease = seconds(config.options["LEASE"], "OPTIONS['LEASE']", least=0.1)
    if "ON_COMMIT" in config.options:
        queue.on_commit = config.options["ON_COMMIT"]
    if config.store is False:
        queue.store, queue.features = NoStore(config.alias), queue.features - {"facts"}
    elif config.store is not None or queue.store is None:
        queue.store = _store(config)
    if config.throttle is None:
        return queue
    return throttled(queue, config.throttle, f"QUEUES[{config.alias!r}]['THROTTLE']")


def load_class(config: conf.QueueConfig) -> type[BaseQueue]:
    """The class that a configuration names. Raises InvalidQueueError if there is none."""
    is_own = "CLASS" in conf.get("QUEUES").get(config.alias, {})
    return _load(config.path, f"QUEUES[{config.alias!r}]['CLASS']" if is_own else "QUEUE_CLASS", BaseQueue)


def _load(path: str, where: str, base: type) -> type:
    try:
        found = import_string(path)
    except ImportError as error:
        why = f"{where} is {path!r}, which cannot be imported: {str(error).rstrip('.')}."
        raise ClassNotUsable(why, _mend(path, error)) from (None if MISSING in str(error) else error)
    except RuntimeError:  # Django's, of models whose app is not installed
        if apps.is_installed("djqueue"):
            raise
        raise ClassNotUsable(f"{where} is {path!r}, which needs the tables of djqueue.", ADD_APP) from None
    if not (isinstance(found, type) and issubclass(found, base)):
        raise ClassNotUsable(f"{where} is {path!r}, which is not a subclass of {base.__module__}.{base.__name__}.")
    return found


def _mend(path: str, error: ImportError) -> str:
    """What to do about a class that cannot be imported, if that is known."""
    if MISSING in str(error):
        return "Install that, or name another class."
    names = {known.rpartition(".")[2]: known for known in _CLASSES}
    meant = [names[name] for name in get_close_matches(path.rpartition(".")[2], names, 1, _ALIKE)]
    if not meant and (path.startswith("djqueue.") or "." not in path):
        meant = [one for kind, one in _KINDS.items() if kind in path.removeprefix("djqueue.").lower()]
    return f"Did you mean {meant[0]!r}?" if meant and meant[0] != path else ""


def why_no_facts(queue: BaseQueue, needed: Iterable[str]) -> str:
    """The setting by which a queue has no store, if a store is needed: the rest of a sentence, else ""."""
    if "facts" not in needed or not isinstance(unthrottled(queue).store, NoStore):
        return ""
    return f", as QUEUES[{queue.alias!r}]['STORE'] is False: remove that, or drop what needs facts"


def _store(config: conf.QueueConfig) -> BaseStore:
    given = config.store or _DEFAULT_STORE
    if isinstance(given, str):
        given = {"CLASS": given, "CONNECTION": config.connection}
    cls = _load(given["CLASS"], f"QUEUES[{config.alias!r}]['STORE']", BaseStore)
    options = {key.lower(): value for key, value in given.get("OPTIONS", {}).items()}
    return cls(config.name, given.get("CONNECTION", ""), **options)


queues = Queues()


def _forget(*, setting: str, **kwargs) -> None:
    if setting in (*DESCRIBING, "DATABASES"):
        queues.reset()  # all others are read when they are needed, and a queue in memory keeps its entries


setting_changed.connect(_forget, dispatch_uid="djqueue.wiring")
os.register_at_fork(after_in_child=queues.reset)  # a child must not share sockets with its parent
