"""Django's tasks, from Django 6 or from the package django-tasks: the only module that knows which of the two it is."""

from __future__ import annotations

import django
from django.core.exceptions import ImproperlyConfigured

__all__ = [
    "PACKAGE",
    "BaseTaskBackend",
    "InvalidTask",
    "InvalidTaskBackend",
    "Task",
    "TaskContext",
    "TaskError",
    "TaskResult",
    "TaskResultDoesNotExist",
    "TaskResultStatus",
    "django_task",
    "normalize_json",
    "task_backends",
    "task_enqueued",
    "task_finished",
    "task_started",
]

PACKAGE = "django.tasks" if django.VERSION >= (6, 0) else "django_tasks"
"""Where they are."""
MISSING = (
    "djqueue.tasks needs the package django-tasks on Django 5.2: pip install django-tasks, and add 'django_tasks' to "
    "INSTALLED_APPS. Django 6 has it built in."
)

if PACKAGE == "django.tasks":
    from django.tasks import TaskContext, TaskResult, TaskResultStatus, task_backends
    from django.tasks import task as django_task
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import Task, TaskError
    from django.tasks.exceptions import InvalidTask, InvalidTaskBackend, TaskResultDoesNotExist
    from django.tasks.signals import task_enqueued, task_finished, task_started
    from django.utils.json import normalize_json
else:
    try:
        import django_tasks.exceptions
    except ImportError as error:
        raise ImproperlyConfigured(MISSING) from error
    from django_tasks import TaskContext, TaskResult, TaskResultStatus, task_backends
    from django_tasks import task as django_task
    from django_tasks.backends.base import BaseTaskBackend
    from django_tasks.base import Task, TaskError
    from django_tasks.exceptions import TaskResultDoesNotExist
    from django_tasks.signals import task_enqueued, task_finished, task_started
    from django_tasks.utils import normalize_json

    _exceptions = vars(django_tasks.exceptions)  # releases after 0.12 have the names of Django
    InvalidTask = _exceptions.get("InvalidTask") or _exceptions["InvalidTaskError"]
    InvalidTaskBackend = _exceptions.get("InvalidTaskBackend") or _exceptions["InvalidTaskBackendError"]
