"""Django's settings for django-tasks-db: those of the benchmarks, with connections that are kept."""

from tests.benchmarks.settings import *  # noqa: F403
from tests.benchmarks.settings import DATABASES

INSTALLED_APPS = ["django_tasks", "django_tasks_db"]
TASKS = {"default": {"BACKEND": "django_tasks_db.DatabaseBackend"}}
DATABASES["default"]["CONN_MAX_AGE"] = None
