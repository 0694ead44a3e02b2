"""What TASKS says of a backend: the options that its tasks share, those of tasks by name, and what cannot be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from django.apps import apps
from django.core.signals import setting_changed
from django.utils.module_loading import import_string

from djqueue.policies.options import OPTIONS, refuse_unknown
from djqueue.policies.policy import Policy

BY_NAME = "tasks"
"""The key of OPTIONS with the options of tasks by their names, or by patterns of names."""
WILDCARDS = "*?["
"""What makes a name a pattern."""

NOT_OF_A_TASK = {
    "priority": "it is a field of the task: give it to the decorator, or to using()",
    "run_after": "it is for one call: give it to using()",
    "batch": "Django calls the function of a task with the arguments of one call. Declare a function that takes many "
    "at once with queue_command(batch=...)",
    "idle_timeout": "it is for how long a worker keeps the object of a BatchCommand. Give it in the options of such a "
    "class",
}
"""Options of commands that tasks do not share, and what to do instead."""
OF_TASKS = tuple(sorted(OPTIONS.keys() - NOT_OF_A_TASK.keys()))


def refuse_what_tasks_lack(given: Mapping[str, Any], known: tuple[str, ...] = OF_TASKS) -> None:
    """Raises TypeError for options that tasks do not have."""
    for name in sorted(given.keys() & NOT_OF_A_TASK.keys()):
        raise TypeError(f"{name} is no option of tasks: {NOT_OF_A_TASK[name]}.")
    refuse_unknown(given, known)


class TaskOptions(NamedTuple):
    """What the settings say of one task."""

    given: Mapping[str, Any]
    policy: Policy
    queue_name: str | None = None
    """The queue that is given for it by its name."""


class SharedOptions:
    """What ``TASKS[alias]["OPTIONS"]`` says."""

    def __init__(self, alias: str, given: Any):
        self.where = f"TASKS[{alias!r}]['OPTIONS']"
        self.refusal = ""
        """Why it cannot be used; then there are no options."""
        self.given: Mapping[str, Any] = {}
        """The options of all tasks."""
        self.policy = Policy()
        self.by_name: dict[str, Mapping[str, Any]] = {}
        """The options of some tasks, by names and patterns; the most specific last."""
        self._of_task: dict[str, TaskOptions] = {}
        try:
            self._read(given)
        except (TypeError, ValueError) as error:
            self.refusal, self.given, self.policy, self.by_name = str(error), {}, Policy(), {}

    def of(self, name: str) -> TaskOptions:
        """The options of the task of a name. Of one option the most specific name that has it counts.

        Raises TypeError or ValueError for options that contradict each other.
        """
        if not self.by_name:
            return TaskOptions(self.given, self.policy)
        if name not in self._of_task:
            self._of_task[name] = self._combined(name)
        return self._of_task[name]

    @property
    def queue_names(self) -> dict[str, str]:
        """The aliases of queues that it gives, each by its place in the setting."""
        given = {f"[{BY_NAME!r}][{name!r}]": self.of(name).queue_name for name in self.by_name}
        return {"": self.policy.queue_name, **{place: alias for place, alias in given.items() if alias is not None}}

    @property
    def policies(self) -> dict[str, Policy]:
        """The options of all tasks and of some, each by its place in the setting."""
        return {"": self.policy} | {f"[{BY_NAME!r}][{name!r}]": self.of(name).policy for name in self.by_name}

    def _combined(self, name: str) -> TaskOptions:
        given: dict[str, Any] = {}
        for pattern, options in self.by_name.items():
            if matches(name, pattern):
                given |= options
        policy = _policy(f"{self.where}[{BY_NAME!r}] for {name!r}", self.policy, given)
        return TaskOptions({**self.given, **given}, policy, given.get("queue_name"))

    def _read(self, given: Any) -> None:
        """Raises TypeError or ValueError that names the setting."""
        if not isinstance(given, Mapping):
            raise TypeError(f"{self.where} is {given!r}: give a dictionary of options.")
        shared = {name: value for name, value in given.items() if name != BY_NAME}
        self.given = _checked(self.where, shared, (*OF_TASKS, BY_NAME))
        self.policy = _policy(self.where, Policy(), self.given)
        where, by_name = f"{self.where}[{BY_NAME!r}]", given.get(BY_NAME, {})
        if not isinstance(by_name, Mapping) or not all(isinstance(name, str) for name in by_name):
            raise TypeError(
                f"{where} is {by_name!r}: give a dictionary, as in {{'shop.tasks.*': {{'time_limit': 60}}}}."
            )
        for name in sorted(by_name, key=specificity):
            self.by_name[name] = _checked(f"{where}[{name!r}]", by_name[name], OF_TASKS)
            self._combined(name)  # refused here, for all tasks that it may be for


def specificity(pattern: str) -> tuple[bool, int]:
    """A name is more specific than any pattern, and a pattern than one with fewer characters that stand for themselves.

    Of equals the later one counts.
    """
    return not is_pattern(pattern), sum(character not in WILDCARDS for character in pattern)


def is_pattern(name: str) -> bool:
    return any(character in WILDCARDS for character in name)


def matches(name: str, pattern: str) -> bool:
    return name == pattern or fnmatchcase(name, pattern)


def _checked(where: str, given: Any, known: tuple[str, ...]) -> Mapping[str, Any]:
    """Options with objects in place of dotted paths. Raises TypeError or ValueError that names the setting."""
    if not isinstance(given, Mapping):
        raise TypeError(f"{where} is {given!r}: give a dictionary of options.")
    try:
        refuse_what_tasks_lack(given, known)
        return {name: IMPORTED[name](value, name) if name in IMPORTED else value for name, value in given.items()}
    except (TypeError, ValueError) as error:
        raise _refused(where, error) from error


def _policy(where: str, before: Policy, given: Mapping[str, Any]) -> Policy:
    """Raises TypeError or ValueError that names the setting."""
    try:
        return before.using(**given)
    except (TypeError, ValueError) as error:
        raise _refused(where, error) from error


def _refused(where: str, error: Exception) -> Exception:
    return type(error)(f"{where} cannot be used: {error}")


# ---- Dotted paths, as settings cannot always import what they name


def _object(path: str, name: str) -> Any:
    """Raises ValueError."""
    try:
        return import_string(path)
    except Exception as error:  # a module may raise anything
        raise ValueError(f"{name} names {path!r}, which cannot be imported: {error}") from error


def _function(value: Any, name: str) -> Any:
    return _object(value, name) if isinstance(value, str) else value


def _shard(value: Any, name: str) -> Any:
    """A text without a dot is a shard, as it is for a command."""
    return _function(value, name) if isinstance(value, str) and "." in value else value


def _exception(value: Any, name: str) -> Any:
    """A name without a dot is one of Python's own exceptions."""
    return _object(value if "." in value else f"builtins.{value}", name) if isinstance(value, str) else value


def _exceptions(value: Any, name: str) -> Any:
    match value:
        case Mapping():
            return {_exception(one, name): rule for one, rule in value.items()}
        case list() | tuple() | set() | frozenset():
            return [_exception(one, name) for one in value]
        case _:
            return _exception(value, name)


IMPORTED: dict[str, Callable[[Any, str], Any]] = {
    "retry_on": _exceptions,
    "shard": _shard,
    **dict.fromkeys(("key", "merge", "describe"), _function),
}
"""The options that may be dotted paths in TASKS, and what makes objects of these."""

# ---- Kept, as Django asks for it often


_read: dict[str, tuple[Any, SharedOptions]] = {}
"""By the alias of the backend: Django makes a new backend in each context, such as that of a message."""


def shared_options(alias: str, given: Any) -> SharedOptions:
    """The options of the tasks of a backend. Nothing is raised, as that would hide what checks report."""
    before, shared = _read.get(alias, (None, None))
    if shared is None or before != given:
        shared = SharedOptions(alias, given)
        if apps.models_ready or not shared.refusal:  # what cannot be imported yet may be later
            _read[alias] = copy(given), shared
    return shared


def why_no_names(alias: str, given: Any) -> str:
    """Why a value cannot be ``TASKS[alias]["QUEUES"]``; "" if it can."""
    if isinstance(given, list | tuple | set | frozenset) and all(isinstance(name, str) for name in given):
        return ""
    return f"TASKS[{alias!r}]['QUEUES'] is {given!r}: give a list of names, as in ['default'], or [] for any."


def _forget(*, setting: str, **kwargs: Any) -> None:
    """Tasks keep their commands with these options, and settings of djqueue may say another queue for them."""
    if setting.startswith("QUEUE"):
        _read.clear()


setting_changed.connect(_forget, dispatch_uid="djqueue.tasks")
