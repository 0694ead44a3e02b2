"""The settings of a benchmark, with the admin: its pages are measured too."""

from tests.benchmarks.settings import *  # noqa: F403
from tests.benchmarks.settings import INSTALLED_APPS as OWN

INSTALLED_APPS = [
    *OWN,
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
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
ROOT_URLCONF = "tests.dashboard.urls"
SESSION_ENGINE = "django.contrib.sessions.backends.signed_cookies"
STATIC_URL = "/static/"
ALLOWED_HOSTS = ["*"]
