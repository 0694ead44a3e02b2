"""The settings of the example site. What may differ from place to place comes from the environment; see README.rst."""

import os
from pathlib import Path

import django

from config import addresses
from config.secret import secret_key

BASE_DIR = Path(__file__).resolve().parent.parent
DATA_DIR = Path(os.environ.get("DEMO_DATA") or BASE_DIR / "var").resolve()
NAME = addresses.checked_name(os.environ.get("DEMO_NAME", ""))
ADDRESS = os.environ.get("DEMO_QUEUE", "")

SECRET_KEY = secret_key(DATA_DIR / "secret-key")
DEBUG = False
ALLOWED_HOSTS = ["localhost", "127.0.0.1", "[::1]", *os.environ.get("DEMO_HOSTS", "").split()]

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    "djqueue",
    "activity",
    "gallery",
    "tryit",
    "trouble",
    *(["django_tasks"] if django.VERSION < (6, 0) else []),
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "gallery.middleware.only_our_own",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
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
ROOT_URLCONF = "config.urls"
WSGI_APPLICATION = "config.wsgi.application"
LOGIN_URL = "login"
LOGIN_REDIRECT_URL = LOGOUT_REDIRECT_URL = "gallery"

DATABASES = {"default": addresses.database(ADDRESS, DATA_DIR / "site.sqlite3", schema=NAME)}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# Two queues, so that no e-mail waits behind a thousand pictures. One consumer serves both in turn.
QUEUES = {alias: addresses.queue(ADDRESS, prefix=NAME or "gallery") for alias in ("default", "pictures")}

# Django's own tasks wait in the same queues. Before Django 6 they are the package django-tasks.
TASKS = {"default": {"BACKEND": "djqueue.tasks.DjqueueBackend"}}

TIME_ZONE = "UTC"
USE_TZ = True
STATIC_URL = "static/"
MEDIA_ROOT = DATA_DIR / "media"
MAIL_DIR = DATA_DIR / "mails"
DEFAULT_FROM_EMAIL = "gallery@example.com"
TO_FILES = "django.core.mail.backends.filebased.EmailBackend"
if django.VERSION >= (6, 1):
    MAILERS = {"default": {"BACKEND": TO_FILES, "OPTIONS": {"file_path": str(MAIL_DIR)}}}
else:
    EMAIL_BACKEND, EMAIL_FILE_PATH = TO_FILES, MAIL_DIR

THUMBNAIL_SIZES = {"small": 320, "medium": 800, "large": 1600}
"""The names of the thumbnails and the longest side of each, in pixels."""
DIGEST_TIMES = {"hour": "*", "minute": "*"}
"""When the daily digest is written: every minute, to be seen at work. Once a day is {"hour": 7, "minute": 0}."""
DIGEST_DIR = DATA_DIR / "digests"

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "handlers": {"console": {"class": "logging.StreamHandler"}},
    "loggers": {"django": {"handlers": ["console"], "level": "INFO"}},
}
