"""The settings of a benchmark: BENCH_BACKEND says what it measures, BENCH_CONNECTION where that is."""

import os
from urllib.parse import parse_qs, urlsplit

BACKEND = os.environ["BENCH_BACKEND"]
CONNECTION = os.environ["BENCH_CONNECTION"]

CLASSES = {
    "memory": "djqueue.backends.memory.MemoryQueue",
    "redis": "djqueue.backends.redis_backend.RedisQueue",
    "redis-blocking": "djqueue.backends.redis_backend.RedisBlockingQueue",
}
ENGINES = {"postgres": "postgresql", "mariadb": "mysql"}


def _sqlite() -> dict:
    pragmas = "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL"
    options = {"timeout": 20, "transaction_mode": "IMMEDIATE", "init_command": pragmas}
    return {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": CONNECTION if BACKEND == "sqlite" else ":memory:",
        "OPTIONS": options,
    }


def _server() -> dict:
    url = urlsplit(CONNECTION)
    host = parse_qs(url.query).get("host", [url.hostname or ""])[0]
    engine = f"django.db.backends.{ENGINES[BACKEND]}"
    return {
        "ENGINE": engine,
        "NAME": url.path.lstrip("/"),
        "USER": url.username or "",
        "HOST": host,
        "PORT": url.port or "",
    }


if BACKEND == "mariadb":
    import pymysql

    pymysql.install_as_MySQLdb()

DATABASES = {"default": _server() if BACKEND in ENGINES else _sqlite()}
if name := os.environ.get("BENCH_EMPTY"):  # a second database of the same server, to compare with
    DATABASES["empty"] = DATABASES["default"] | {"NAME": name}
INSTALLED_APPS = ["djqueue", *filter(None, [__package__])]  # in none, it serves another checkout
SECRET_KEY = "only-for-benchmarks-0123456789-abcdefghijklmnopqrstuvwxyz"
USE_TZ = True
QUEUES = {
    "default": {
        "CLASS": CLASSES.get(BACKEND, "djqueue.backends.database.DatabaseQueue"),
        "CONNECTION": CONNECTION if "redis" in BACKEND else "",
    }
}
