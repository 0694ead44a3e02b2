"""The Django app."""

from collections.abc import Mapping
from typing import Any

from django import conf
from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class DjqueueConfig(AppConfig):
    name = "djqueue"
    label = "djqueue"
    verbose_name = _("Queue")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from djqueue.checks import servers, settings  # noqa: F401  registers them
        from djqueue.discovery import autodiscover

        if any(is_ours(params) for params in getattr(conf.settings, "TASKS", {}).values()):
            import djqueue.tasks  # noqa: F401  so that its tasks are found, wherever they are declared
        autodiscover()


def is_ours(params: Mapping[str, Any]) -> bool:
    """Whether a backend of TASKS is one of djqueue."""
    return str(params.get("BACKEND")).startswith("djqueue.")
