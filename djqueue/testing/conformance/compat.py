"""The names of ``django.tasks``, which Django 5.2 has from the package django-tasks."""

from __future__ import annotations

from importlib import import_module

import django
from django.core.exceptions import ImproperlyConfigured

NAMESPACE = "django.tasks" if django.VERSION >= (6, 0) else "django_tasks"
"""The module of the interface; also the name of its logger."""

try:
    _root = import_module(NAMESPACE)
except ModuleNotFoundError as error:
    raise ImproperlyConfigured(
        f"Django {django.get_version()} has no django.tasks: pip install django-tasks, and put 'django_tasks' into "
        "INSTALLED_APPS."
    ) from error
_base, _exceptions, _signals = (import_module(f"{NAMESPACE}.{name}") for name in ("base", "exceptions", "signals"))


def _exception(name: str) -> type[Exception]:
    """By Django's name, or by that of the package, which ends in Error."""
    return getattr(_exceptions, name, None) or getattr(_exceptions, f"{name}Error")


task = _root.task
task_backends = _root.task_backends
TaskResultStatus = _root.TaskResultStatus
Task = _base.Task
TaskContext = _base.TaskContext
TaskResult = _base.TaskResult
InvalidTask = _exception("InvalidTask")
InvalidTaskBackend = _exception("InvalidTaskBackend")
TaskResultDoesNotExist = _exceptions.TaskResultDoesNotExist
TaskResultMismatch = _exceptions.TaskResultMismatch
task_enqueued = _signals.task_enqueued
task_started = _signals.task_started
task_finished = _signals.task_finished
