"""The backend of Django's tasks: a task becomes a command, and what became of its message becomes a result."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from types import NoneType
from typing import Any, cast

from django.apps import apps
from django.core.checks import CheckMessage
from django.db import transaction

from djqueue import conf
from djqueue.backends.base import BaseQueue
from djqueue.decorators import make_periodic, refuse_arguments
from djqueue.enqueueing.command import Command, PeriodicCommand, as_command, with_policy
from djqueue.enqueueing.on_commit import when_committed
from djqueue.enqueueing.producer import Call, refuse_what_it_cannot
from djqueue.exceptions import InvalidQueueError, NotSupported, UnknownCommand
from djqueue.policies.policy import Policy
from djqueue.registry import Runnable, registry
from djqueue.results import Result
from djqueue.tasks.checks import check_apps, check_keys, check_names, check_needs, check_options, check_queues
from djqueue.tasks.compat import (
    BaseTaskBackend,
    InvalidTask,
    InvalidTaskBackend,
    Task,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultStatus,
    normalize_json,
    task_enqueued,
)
from djqueue.tasks.declaring import DEFAULT, DjqueueTask, TaskDeclarer
from djqueue.tasks.options import SharedOptions, refuse_what_tasks_lack, shared_options, why_no_names
from djqueue.tasks.results import ID, QueuedResult, ResultSource, enqueued_at, find, search, task_result
from djqueue.tasks.running import OBSERVER, function_of, send
from djqueue.wiring import queues

RESULT_TTL = 86_400.0
"""Seconds for which the result of a task is kept, unless an option or a setting says otherwise."""


class DjqueueBackend(TaskDeclarer, ResultSource, BaseTaskBackend):
    """Tasks wait in the queues of djqueue, and its consumers run them.

    ``OPTIONS`` are options of :func:`djqueue.queue_command` for all tasks of this backend, and ``OPTIONS["tasks"]`` for
    some of them by name. A task goes to the queue whose alias in ``QUEUES`` of djqueue is its ``queue_name``; if there
    is none, to ``OPTIONS["queue_name"]``.
    """

    task_class = DjqueueTask
    supports_async_task = True
    supports_defer = True

    def __init__(self, alias: str, params: dict[str, Any]):
        self._keys = [*params]
        self._wrong_queues = why_no_names(alias, params.get("QUEUES", []))
        super().__init__(alias, {**params, "QUEUES": []} if self._wrong_queues else params)

    @property
    def policy(self) -> Policy:
        """The options of all of its tasks; the defaults if OPTIONS cannot be used, as long as nothing is enqueued."""
        return self._shared.policy

    def policy_by_name(self, name: str) -> Policy:
        """What the settings say of the task of a name. Raises TypeError or ValueError for what contradicts itself."""
        return self._shared.of(name).policy

    @property
    def _shared(self) -> SharedOptions:
        return shared_options(self.alias, self.options)

    @property
    def _refusal(self) -> str:
        """Why its settings cannot be used; nothing is raised before a task is enqueued, as checks report it."""
        return self._wrong_queues or self._shared.refusal

    def _refuse_wrong_settings(self) -> None:
        if self._refusal:
            raise InvalidTaskBackend(self._refusal)

    # ---- what it can do: as much as each of its queues

    @property
    def supports_priority(self) -> bool:  # type: ignore[override]
        return self._all_can("priority")

    @property
    def supports_get_result(self) -> bool:  # type: ignore[override]
        return self._all_can("facts", "inspect")

    def _all_can(self, *features: str) -> bool:
        """Whether all queues have these features, as far as it is known."""
        return all(queue.features.issuperset(features) for queue in map(_queue_of, self._aliases()) if queue)

    def _aliases(self) -> list[str]:
        """The queues of its tasks: those of ``QUEUES``, or all if it takes tasks of any queue."""
        names = self.queues or {self.policy.queue_name, *_known_aliases()}
        return sorted({self.alias_of(name) for name in names} | {*self._shared.queue_names.values()})

    def alias_of(self, queue_name: str) -> str:
        """The alias of the queue for a name that a task gives."""
        return queue_name if queue_name in _known_aliases() else self.policy.queue_name

    def _alias_for(self, task: Task) -> str:
        """The alias of the queue of a task. The queue by its name counts if the task names none."""
        by_name = self._shared.of(task.module_path).queue_name
        if by_name is not None and (task.queue_name == DEFAULT or task.queue_name not in _known_aliases()):
            return by_name
        return self.alias_of(task.queue_name)

    def validate_task(self, task: Task) -> None:
        """Raises InvalidTask, and TypeError or ValueError for options that cannot be."""
        if not isinstance(task.run_after, datetime | NoneType):
            raise InvalidTask(f"run_after is {task.run_after!r}: give a datetime, or delay=seconds to a djqueue.task.")
        super().validate_task(task)
        if self._kept(task) is None:
            self._refuse_what_it_cannot(task)

    def _refuse_what_it_cannot(self, task: Task) -> None:
        if not apps.models_ready and self._shared.refusal:  # it may name what cannot be imported yet
            return
        policy = self.policy_for(task)
        queue = _queue_of(policy.queue_name)
        # A check reports what options of the settings need: a task that is declared must not hinder that.
        if queue is not None and self.policy_by_name(task.module_path).needs <= queue.features:
            try:
                refuse_what_it_cannot(queue, policy)
            except NotSupported as error:
                raise InvalidTask(f"{task.module_path}: {error}") from None

    # ---- from a task to a command

    def policy_for(self, task: Task, base: Policy | None = None) -> Policy:
        """The options of a task. Raises TypeError or ValueError that names the option."""
        given = task.options if isinstance(task, DjqueueTask) else {}
        refuse_what_tasks_lack(given)
        own = {"queue_name": self._alias_for(task), "priority": int(task.priority)}
        if task.run_after is not None:
            own["run_after"] = task.run_after
        shared = self._shared.of(task.module_path)
        policy = (base or shared.policy).using(**given, **own)
        said = {**shared.given, **given} if base is None else given  # a command has not the options of the backend
        if "result_ttl" not in said and not policy.keeps_result and self._keeps(policy.queue_name):
            kept = shared.policy.result_ttl if "result_ttl" in shared.given else RESULT_TTL
            policy = replace(policy, result_ttl=kept)
        return replace(policy, task=(self.alias, task.queue_name))

    @staticmethod
    def _keeps(alias: str) -> bool:
        queue = _queue_of(alias)
        return queue is None or "facts" in queue.features

    def declare(self, task: Task) -> None:
        if apps.models_ready and not _is_of(registry.get(task.module_path), task):
            registry.register(_made(task, self.policy_for(task)))

    def command_of(self, task: Task) -> Command:
        """The command that enqueues a task with its options; it is kept with the task. Raises InvalidTaskBackend."""
        if (kept := self._kept(task)) is not None:
            return kept
        self._refuse_wrong_settings()
        declared = _declared(task)
        is_plain = declared.origin is not None and declared.rule is None
        policy = self.policy_for(task, None if is_plain else declared.policy)
        command = declared
        if policy != declared.policy:
            policy.overrides(declared.policy)  # so that what cannot travel is refused here
            command = with_policy(declared, policy)
        if isinstance(task, DjqueueTask):
            object.__setattr__(task, "_sent", (self.policy, command))
        return command

    def _kept(self, task: Task) -> Command | None:
        """The command that was made of a task before, with the options and the registry as they are now."""
        policy, command = vars(task).get("_sent", (None, None)) if isinstance(task, DjqueueTask) else (None, None)
        is_valid = policy is self.policy and command is not None and command.declared is registry.get(command.name)
        return command if is_valid else None

    # ---- enqueueing

    def enqueue(self, task: Task, args: Sequence[Any], kwargs: dict[str, Any]) -> TaskResult:
        """Put a call into the queue: in the open transaction of its database, or when the transaction commits.

        Raises TypeError if the arguments do not fit the function, or are nothing that JSON has.
        """
        return self.enqueue_many(task, [Call(tuple(args), kwargs)])[0]

    def enqueue_many(self, task: Task, calls: Sequence[Call]) -> list[TaskResult]:
        self.validate_task(task)
        command = self.command_of(task)
        calls = [_as_json(task, call) for call in calls]
        handles = command.enqueue_many(calls)
        result_of = self._found if conf.get("QUEUE_ALWAYS_EAGER") else self._sent
        return [result_of(task, handle, call) for handle, call in zip(handles, calls, strict=True)]

    def _sent(self, task: Task, handle: Result, call: Call) -> TaskResult:
        """The result of a call that was sent, or of the call that counts for it; its signal is sent on commit."""
        if handle.enqueued is False and (other := handle.duplicate_of) is not None:
            return self._found(task, other, call)
        result, queue = self._ready(task, handle, call), queues[handle.queue_name]
        alias = queue.database or queue.on_commit
        if alias is not None and transaction.get_connection(alias).in_atomic_block:
            when_committed(alias, self._report_enqueued, handle, result)
        else:
            self._report_enqueued(handle, result)
        return result

    def _report_enqueued(self, handle: Result, result: TaskResult) -> None:
        if handle.enqueued:
            send(task_enqueued, result, type(self))

    def _found(self, task: Task, handle: Result, call: Call) -> TaskResult:
        """The result of a call that was sent before, or has ended already."""
        queue = queues[handle.queue_name]
        end = find(queue, handle.id)
        return self._ready(task, handle, call) if end is None else task_result(queue, end)

    def _ready(self, task: Task, handle: Result, call: Call) -> TaskResult:
        return QueuedResult(
            task=task,
            id=handle.id,
            status=TaskResultStatus.READY,
            enqueued_at=None if handle.enqueued is False else enqueued_at(handle.id),
            started_at=None,
            finished_at=None,
            last_attempted_at=None,
            args=list(call.args),
            kwargs=call.kwargs,
            backend=self.alias,
            errors=[],
            worker_ids=[],
        )

    # ---- results

    def get_result(self, result_id: str) -> TaskResult:
        """What is known of a task, from any process.

        Raises TaskResultDoesNotExist; NotImplementedError if it may be in a queue that keeps no results.
        """
        self._refuse_wrong_settings()
        return self._result(result_id, self._aliases())

    def result_of(self, task: Task, result_id: str) -> TaskResult:
        self._refuse_wrong_settings()
        first = self._alias_for(task)
        return self._result(result_id, [first], [alias for alias in self._aliases() if alias != first])

    def _result(self, result_id: str, *turns: Sequence[str]) -> TaskResult:
        """What the queues of some aliases know of a call, or else those of the next ones."""
        if isinstance(result_id, str) and ID.fullmatch(result_id):
            known = search([[queues[alias] for alias in aliases] for aliases in turns], result_id)
            if known is not None:
                return task_result(*known)
        if not self.supports_get_result:
            return super().get_result(result_id)
        raise TaskResultDoesNotExist(result_id)

    # ---- manage.py check

    def check(self, **kwargs: Any) -> Iterator[CheckMessage]:
        where = f"TASKS[{self.alias!r}]"
        yield from check_apps(where)
        yield from check_keys(where, self._keys)
        shared = self._shared
        if wrong := list(check_options(where, self._refusal, shared.queue_names, _known_aliases())):
            yield from wrong
        else:
            served = [queue for alias in self._aliases() if (queue := _queue_of(alias)) is not None]
            for place, policy in shared.policies.items():
                yield from check_needs(f"{where}['OPTIONS']{place}", policy, served)
            yield from check_queues(where, served)
            yield from check_names(where, shared.by_name)


def _known_aliases() -> list[str]:
    """The aliases of QUEUES; none if that is no dictionary of dictionaries, which ``manage.py check`` reports."""
    try:
        return [*queues]
    except InvalidQueueError:
        return []


def _queue_of(alias: str) -> BaseQueue | None:
    """A queue, if it is known what it can do. It is not before the models are loaded, nor if settings are wrong: then
    ``manage.py check`` reports it, and enqueueing raises it."""
    if not apps.models_ready:
        return None
    try:
        return queues[alias]
    except Exception:  # a backend's class may raise anything
        return None


def _as_json(task: Task, call: Call) -> Call:
    try:
        return Call(tuple(normalize_json(list(call.args))), normalize_json(call.kwargs))
    except (TypeError, ValueError) as error:
        error.add_note(f"In the arguments of a call of {task.module_path}: a task takes what JSON has.")
        raise


# ---- a task as a command, for what else takes commands


def _declared(task: Task) -> Command:
    """The registered command of a task's function. A process that runs it finds the same one by the task's name."""
    command: Runnable | None = registry.get(task.module_path)
    if not _is_of(command, task):
        try:
            command = registry.find(task.module_path)
        except UnknownCommand:
            command = None
    if _is_of(command, task):
        return cast(Command, command)
    made = _made(task, _policy_of(task))
    registry.register(made)
    return made


def _is_of(command: Any, task: Task) -> bool:
    return command is not None and inspect.unwrap(command.func) is inspect.unwrap(task.func)


def _policy_of(task: Task) -> Policy:
    backend = task.get_backend()
    if isinstance(backend, DjqueueBackend):
        return backend.policy_for(task)
    return Policy(task=(task.backend, task.queue_name))


def _made(task: Task, policy: Policy, kind: type[Command] = Command, *rest: Any) -> Command:
    """The command that a task becomes."""
    command = kind(function_of(task), policy, *rest)
    command.origin, command.observer = task, OBSERVER
    return command


def _adapted(found: object, name: str) -> Command | None:
    """The command of a task that a module has by that name."""
    return _made(found, _policy_of(found)) if isinstance(found, Task) and found.module_path == name else None


def _backend_of(task: Task) -> DjqueueBackend:
    backend = task.get_backend()
    if not isinstance(backend, DjqueueBackend):
        raise TypeError(
            f"{task.module_path}: TASKS[{task.backend!r}] is no backend of djqueue, so it is no command of djqueue."
        )
    return backend


registry.adapters.append(_adapted)


@as_command.register
def _(given: Task) -> Command:
    return _backend_of(given).command_of(given)


@make_periodic.register
def _(given: Task, policy: Policy, *rest: Any) -> Task:
    """The task itself. Another backend, as in tests, has its schedule ignored, as it ignores the options of a task."""
    refuse_arguments(function_of(given))
    backend = given.get_backend()
    if not isinstance(backend, DjqueueBackend):
        return given
    shared = replace(backend.policy_by_name(given.module_path), **policy.beside(Policy()))
    registry.register(_made(given, backend.policy_for(given, shared), PeriodicCommand, *rest))
    return given
