"""What ``manage.py check`` reports of a backend of tasks."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from typing import cast

from django.apps import apps
from django.core.checks import CheckMessage, Error, Warning

from djqueue.backends.base import BaseQueue
from djqueue.enqueueing.command import Command
from djqueue.policies.policy import Policy
from djqueue.registry import registry
from djqueue.tasks.compat import PACKAGE
from djqueue.tasks.options import BY_NAME, NOT_OF_A_TASK, WILDCARDS, is_pattern, matches
from djqueue.utils import near, near_and_all, nearest
from djqueue.wiring import why_no_facts

KEYS = ("BACKEND", "OPTIONS", "QUEUES")
"""What TASKS may say of a backend."""
NEEDED = {"priority", "facts", "inspect"}
"""What a queue must be able to do for all that tasks have."""


def check_apps(where: str) -> Iterator[CheckMessage]:
    """E403, W401."""
    if not apps.is_installed("djqueue"):
        yield Error(
            f"{where} is a backend of djqueue, which is not in INSTALLED_APPS.",
            hint="Add 'djqueue' to INSTALLED_APPS: its tables, its checks and queue_consumer come with the app.",
            id="djqueue.E403",
        )
    if PACKAGE == "django_tasks" and not apps.is_installed(PACKAGE):
        yield Warning(
            f"{where} needs the app of the package django-tasks.",
            hint="Add 'django_tasks' to INSTALLED_APPS: its signals are logged, and its checks run, only there.",
            id="djqueue.W401",
        )


def check_keys(where: str, given: Iterable[object]) -> Iterator[CheckMessage]:
    """W403."""
    for key in given:
        if key not in KEYS:
            yield Warning(
                f"{where} has the unknown key {key!r}.",
                hint=f"Rename or remove it: {near(key, KEYS)}",
                id="djqueue.W403",
            )


def check_needs(where: str, policy: Policy, served: Sequence[BaseQueue]) -> Iterator[CheckMessage]:
    """E404."""
    if served and not any(policy.needs <= queue.features for queue in served):
        queue = served[0]
        lacking = policy.unsupported(queue.features) + why_no_facts(queue, policy.needs)
        yield Error(
            f"{where} needs what the queue {queue.alias!r} ({type(queue).__name__}) cannot do: {lacking}.",
            hint="Remove these options, or give its tasks a queue that can.",
            id="djqueue.E404",
        )


def check_options(
    where: str, refusal: str, queue_names: Mapping[str, str], aliases: Collection[str]
) -> Iterator[CheckMessage]:
    """E401, E402. Without aliases QUEUES itself is wrong, which another check reports."""
    if refusal:
        yield Error(
            refusal,
            hint="Correct or remove it. QUEUES is a list, OPTIONS a dictionary of options of queue_command, without "
            f"{', '.join(sorted(NOT_OF_A_TASK))}; {BY_NAME!r} in it has such a dictionary for each name of a task.",
            id="djqueue.E402",
        )
        return
    for place, name in queue_names.items():
        if aliases and name not in aliases:
            yield Error(
                f"{where}['OPTIONS']{place}['queue_name'] is {name!r}, which is not in QUEUES of djqueue.",
                hint=f"Give an alias of QUEUES: {near_and_all(name, aliases)}",
                id="djqueue.E401",
            )


def check_names(where: str, names: Iterable[str]) -> Iterator[CheckMessage]:
    """W404. Of modules that are not imported yet only those that do not exist are reported."""
    known = [command.name for command in registry if cast(Command, command).origin is not None]
    for name in names:
        if not any(matches(one, name) for one in known) and (why := _why_of_no_task(name)):
            meant = nearest(name, known)
            yield Warning(
                f"{where}['OPTIONS'][{BY_NAME!r}][{name!r}] is for no task: {why}.",
                hint=f"Give the module path of a task, or a pattern such as 'shop.tasks.*'"
                f"{f': did you mean {meant!r}?' if meant else '.'}",
                id="djqueue.W404",
            )


def _why_of_no_task(name: str) -> str:
    """Why a name, or a pattern, can be of no task; "" if that is not certain."""
    plain = name[: min((name.find(one) for one in WILDCARDS if one in name), default=len(name))]
    module, _, attribute = plain.rpartition(".")
    if not module:
        return "" if is_pattern(name) else "it is no dotted path"
    try:
        if find_spec(module) is None:
            return f"there is no module {module}"
    except ModuleNotFoundError:
        return f"there is no module {module}"
    except Exception:  # of a package around it, which may raise anything
        return ""
    is_missing = not is_pattern(name) and module in sys.modules and attribute not in vars(sys.modules[module])
    return f"{module} has no {attribute!r}" if is_missing else ""


def check_queues(where: str, served: Iterable[BaseQueue]) -> Iterator[CheckMessage]:
    """W402."""
    for queue in served:
        if lacking := NEEDED - queue.features:
            yield Warning(
                f"{where}: the queue {queue.alias!r} ({type(queue).__name__}) lacks {', '.join(sorted(lacking))}"
                f"{why_no_facts(queue, lacking)}.",
                hint="Tasks with a priority need the first, results of tasks the two others. Where neither is used, "
                "silence djqueue.W402.",
                id="djqueue.W402",
            )
