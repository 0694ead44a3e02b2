"""A place of one's own on a server: a PostgreSQL schema, or the keys of one prefix on Redis."""

from collections.abc import Callable
from urllib.parse import urlsplit

from config.addresses import checked_name, kind


class Unreachable(Exception):
    """The server of the address does not answer; the message says what to do."""


def make(address: str, name: str) -> None:
    """See that the server answers and the place exists. Raises Unreachable."""
    if kind(address) == "postgres":
        schema = f'CREATE SCHEMA IF NOT EXISTS "{checked_name(name)}"' if name else "SELECT 1"
        _on_postgres(address, schema)
    elif kind(address) == "redis":
        _on_redis(address, lambda client: client.ping())


def drop(address: str, name: str) -> None:
    """Delete the place and all that is in it. Raises Unreachable."""
    if kind(address) == "postgres":
        _on_postgres(address, f'DROP SCHEMA IF EXISTS "{checked_name(name)}" CASCADE')
    elif kind(address) == "redis":
        _on_redis(address, lambda client: _delete_keys(client, f"{{{checked_name(name)}:*"))


def _on_postgres(address: str, statement: str) -> None:
    import psycopg

    try:
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute(statement)
    except psycopg.OperationalError as error:
        raise _unreachable("PostgreSQL", address, error) from error


def _on_redis(address: str, do: Callable) -> None:
    import redis

    try:
        with redis.Redis.from_url(address, retry=None) as client:
            do(client)
    except redis.ConnectionError as error:
        raise _unreachable("Redis", address, error) from error


def _delete_keys(client, pattern: str) -> None:
    for key in client.scan_iter(pattern, count=1000):
        client.unlink(key)


def _unreachable(name: str, address: str, error: Exception) -> Unreachable:
    url = urlsplit(address)
    place = url.netloc.rpartition("@")[2] or url.path  # without the password
    reason = str(error).partition("\n")[0].rstrip(".")
    return Unreachable(f"{name} at {place} cannot be reached: start it, or correct DEMO_QUEUE ({reason}).")
