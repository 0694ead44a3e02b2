"""The settings of the test suite. A database alias exists where its server and driver do (tests/support/servers.py).

A process that a test starts has those of its databases alone: drivers take long to import.
"""

import json
import os
from importlib.util import find_spec

import django

from tests.support import servers

DRIVERS = {"postgres": "psycopg", "mariadb": "MySQLdb"}
OPTIONS = {"postgres": {}, "mariadb": {"ssl_disabled": True}}
"""PyMySQL reads all certificates of the machine for each connection, which takes longer than a short test."""


def sqlite(name: str) -> dict:
    """A file, because threads and other processes must see it."""
    path = servers.run_dir() / name
    return {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": str(path),
        "OPTIONS": {
            "timeout": 20,
            "transaction_mode": "IMMEDIATE",
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL",
        },
        "TEST": {"NAME": str(path.with_suffix(".test.sqlite3"))},
    }


def server(kind: str) -> dict:
    test = {"NAME": "test_djqueue", "DEPENDENCIES": []}
    return servers.database(kind, servers.address(kind)) | {"OPTIONS": OPTIONS[kind], "TEST": test}


def available(kind: str) -> bool:
    driver = DRIVERS[kind]
    return not servers.missing(kind) and (driver == "MySQLdb" and find_spec("pymysql") or find_spec(driver)) is not None


def find_driver(databases: dict):
    """Have PyMySQL be the driver for MariaDB, if one of these databases needs it."""
    if find_spec("pymysql") and any("mysql" in database["ENGINE"] for database in databases.values()):
        import pymysql

        pymysql.install_as_MySQLdb()


DATABASES = {"default": sqlite("default.sqlite3")}
ALIASES = json.loads(os.environ.get("DJQUEUE_SITE_DATABASES", "{}")) or DRIVERS
DATABASES |= {kind: server(kind) for kind in DRIVERS if kind in ALIASES and available(kind)}
find_driver(DATABASES)
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "djqueue",
    "tests.app",
]
if django.VERSION < (6, 0) and find_spec("django_tasks"):
    INSTALLED_APPS.append("django_tasks")
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
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
SESSION_ENGINE = "django.contrib.sessions.backends.signed_cookies"
"""In cookies, as a table more would cost each test that empties all tables."""
STATIC_URL = "static/"
SECRET_KEY = "only-for-the-tests-of-djqueue-0123456789-abcdefghijklmnopqrstuvwxyz"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
TIME_ZONE = "UTC"
USE_TZ = True

QUEUES = {"default": {"CLASS": "djqueue.backends.memory.MemoryQueue"}}
