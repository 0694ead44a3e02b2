"""A site with Wagtail, whose tasks djqueue runs: in the database, or in Redis with WAGTAIL_QUEUE=redis."""

import os
from pathlib import Path

from tests.support import servers

FOLDER = Path(os.environ["WAGTAIL_FOLDER"])
STORES = {
    "database": {"CLASS": "djqueue.backends.database.DatabaseQueue"},
    "redis": {"CLASS": "djqueue.backends.redis_backend.RedisQueue", "CONNECTION": servers.address("redis")},
}
QUEUES = {"default": STORES[os.environ["WAGTAIL_QUEUE"]]}
TASKS = {"default": {"BACKEND": "djqueue.tasks.DjqueueBackend"}}

INSTALLED_APPS = [
    "tests.tasks.third_party",
    "wagtail.images",
    "wagtail.documents",
    "wagtail.search",
    "wagtail.snippets",
    "wagtail.users",
    "wagtail.admin",
    "wagtail",
    "modelcluster",
    "taggit",
    "django.contrib.contenttypes",
    "django.contrib.auth",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django_tasks",
    "djqueue",
]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": FOLDER / "db.sqlite3",
        "OPTIONS": {"timeout": 20, "transaction_mode": "IMMEDIATE"},
    }
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
MEDIA_ROOT = FOLDER / "media"
SECRET_KEY = "only-for-the-tests-of-djqueue-0123456789-abcdefghijklmnopqrstuvwxyz"
SILENCED_SYSTEM_CHECKS = ["wagtailadmin.W003"]
STATIC_URL = "/static/"
USE_TZ = True
WAGTAIL_SITE_NAME = "djqueue"
WAGTAILADMIN_BASE_URL = "http://localhost"
TEMPLATES = [{"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True}]
