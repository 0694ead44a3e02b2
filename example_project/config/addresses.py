"""DEMO_QUEUE, one address, as the settings DATABASES and QUEUES."""

import re
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from django.core.exceptions import ImproperlyConfigured

DATABASE_QUEUE = "djqueue.backends.database.DatabaseQueue"
REDIS_QUEUE = "djqueue.backends.redis_backend.RedisBlockingQueue"
KINDS = {
    "": "sqlite",
    "sqlite": "sqlite",
    "postgres": "postgres",
    "postgresql": "postgres",
    "redis": "redis",
    "rediss": "redis",
    "unix": "redis",
}
"""What stands before the colon of an address, and what it means."""
DRIVERS = {"postgres": "psycopg", "redis": "redis"}


def kind(address: str) -> str:
    """Which of "sqlite", "postgres" and "redis" it is. Raises ImproperlyConfigured for anything else."""
    given = address.partition(":")[0]
    if given not in KINDS:
        raise ImproperlyConfigured(
            f"The queue address begins with {given!r}: give sqlite, redis://host:port/number "
            "or postgres://user:password@host/name."
        )
    found = KINDS[given]
    if found in DRIVERS and not find_spec(DRIVERS[found]):
        raise ImproperlyConfigured(f"{DRIVERS[found]} is not installed: pip install 'django-djqueue[{found}]'.")
    return found


def checked_name(name: str) -> str:
    """The name, if it can be that of a PostgreSQL schema and a Redis prefix. Raises ImproperlyConfigured."""
    if name and not re.fullmatch("[a-z][a-z0-9_]{0,50}", name):
        raise ImproperlyConfigured(f"DEMO_NAME is {name!r}: give small letters, digits and _.")
    return name


def database(address: str, file: Path, schema: str = "") -> dict:
    """The database of the site: PostgreSQL where the address names one, else SQLite in this file."""
    return _postgres(address, schema) if kind(address) == "postgres" else _sqlite(file)


def queue(address: str, prefix: str) -> dict:
    """One queue, in the database or on Redis under a prefix of its own."""
    if kind(address) != "redis":
        return {"CLASS": DATABASE_QUEUE}
    return {"CLASS": REDIS_QUEUE, "CONNECTION": address, "OPTIONS": {"PREFIX": prefix}}


def _sqlite(file: Path) -> dict:
    return {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": str(file),
        "OPTIONS": {
            # Site and consumer write at the same time: readers go on meanwhile, writers wait for each other.
            "timeout": 20,
            "transaction_mode": "IMMEDIATE",
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL",
        },
    }


def _postgres(address: str, schema: str) -> dict:
    url = urlsplit(address)
    options = dict(parse_qsl(url.query))
    host = options.pop("host", unquote(url.hostname or ""))
    if schema:
        options["options"] = f"-c search_path={schema}"
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": unquote(url.path.lstrip("/")),
        "USER": unquote(url.username or ""),
        "PASSWORD": unquote(url.password or ""),
        "HOST": host,
        "PORT": str(url.port or ""),
        "OPTIONS": options,
    }
