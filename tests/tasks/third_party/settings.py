"""A site with Wagtail, whose tasks djqueue runs: in the database, or in Redis with WAGTAIL_QUEUE=redis.

WAGTAIL_OPTIONS names the options of its tasks.
"""

import os
from pathlib import Path

from tests.support import servers

FOLDER = Path(os.environ["WAGTAIL_FOLDER"])
STORES = {
    "database": {"CLASS": "djqueue.backends.database.DatabaseQueue"},
    "redis": {"CLASS": "djqueue.backends.redis_backend.RedisQueue", "CONNECTION": servers.address("redis")},
}
QUEUES = {"default": STORES[os.environ["WAGTAIL_QUEUE"]]}
INDEX = "modelsearch.tasks.insert_or_update_object_task"
RETRIED = {"modelsearch.*": {"retry_on": ["django.db.IntegrityError"], "retries": 5, "backoff": 0.1}}
ORDERED = {INDEX: {"shard": "tests.tasks.third_party.keys.of_object", "max_run": 1}}
OPTIONS = {"none": {}, "retried": RETRIED, "ordered": ORDERED, "once": {INDEX: {**ORDERED[INDEX], "unique": "queued"}}}
TASKS = {
    "default": {
        "BACKEND": "djqueue.tasks.DjqueueBackend",
        "OPTIONS": {"tasks": OPTIONS[os.environ.get("WAGTAIL_OPTIONS", "none")]},
    }
}

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
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": FOLDER / "db.sqlite3",
        "OPTIONS": {"timeout": 20, "transaction_mode": "IMMEDIATE"},
    }
}
ALLOWED_HOSTS = ["testserver"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
MEDIA_ROOT = FOLDER / "media"
ROOT_URLCONF = "tests.tasks.third_party.urls"
SECRET_KEY = "only-for-the-tests-of-djqueue-0123456789-abcdefghijklmnopqrstuvwxyz"
SILENCED_SYSTEM_CHECKS = ["wagtailadmin.W003"]
STATIC_URL = "/static/"
USE_TZ = True
WAGTAIL_SITE_NAME = "djqueue"
WAGTAILADMIN_BASE_URL = "http://localhost"
LOGGING = {"version": 1, "disable_existing_loggers": False, "loggers": {"django_tasks": {"level": "CRITICAL"}}}
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
