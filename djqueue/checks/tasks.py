"""System checks of TASKS, Django's own setting, for what no other check reports."""

from __future__ import annotations

from collections.abc import Iterator

from django.apps import apps
from django.core.checks import CheckMessage, register

from djqueue import conf
from djqueue.checks import TAG


@register(TAG)
def check_task_backends(app_configs=None, **kwargs) -> Iterator[CheckMessage]:
    """E4…, W4…, where the app is not installed whose own check asks the backends of TASKS."""
    aliases = conf.task_backends()
    if not aliases:
        return
    from djqueue.tasks.compat import PACKAGE, task_backends  # here, as not every project has tasks

    if PACKAGE == "django_tasks" and not apps.is_installed(PACKAGE):
        for alias in aliases:
            yield from task_backends[alias].check()
