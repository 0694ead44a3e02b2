"""What TASKS says of a backend: the options of commands that its tasks share, and what cannot be."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from typing import Any, NamedTuple

from django.core.signals import setting_changed

from djqueue.policies.options import OPTIONS, refuse_unknown
from djqueue.policies.policy import Policy

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


def refuse_what_tasks_lack(given: Mapping[str, Any]) -> None:
    """Raises TypeError for options that tasks do not have."""
    for name in sorted(given.keys() & NOT_OF_A_TASK.keys()):
        raise TypeError(f"{name} is no option of tasks: {NOT_OF_A_TASK[name]}.")
    refuse_unknown(given, OF_TASKS)


class SharedOptions(NamedTuple):
    """What ``TASKS[alias]["OPTIONS"]`` says."""

    given: Mapping[str, Any]
    """The options, none if they cannot be used."""
    policy: Policy
    refusal: str = ""
    """Why they cannot be used."""


_read: dict[str, tuple[Any, SharedOptions]] = {}
"""By the alias of the backend: Django makes a backend anew in each context, such as that of a message."""


def shared_options(alias: str, given: Any) -> SharedOptions:
    """The options of all tasks of a backend. Nothing is raised, as that would hide what checks have to say."""
    before, shared = _read.get(alias, (None, None))
    if shared is None or before != given:
        shared = _checked(alias, given)
        _read[alias] = copy(given), shared
    return shared


def _checked(alias: str, given: Any) -> SharedOptions:
    where = f"TASKS[{alias!r}]['OPTIONS']"
    if not isinstance(given, Mapping):
        return SharedOptions({}, Policy(), f"{where} is {given!r}: give a dictionary of options.")
    try:
        refuse_what_tasks_lack(given)
        return SharedOptions(given, Policy.of(**given))
    except (TypeError, ValueError) as error:
        return SharedOptions({}, Policy(), f"{where} cannot be used: {error}")


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
