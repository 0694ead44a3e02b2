"""A place of one's own on a server: a PostgreSQL schema, or the keys of one prefix on Redis."""

from config.addresses import checked_name, kind


def make(address: str, name: str) -> None:
    """See that the place exists. SQLite and Redis need nothing."""
    if name and kind(address) == "postgres":
        _on_postgres(address, f'CREATE SCHEMA IF NOT EXISTS "{checked_name(name)}"')


def drop(address: str, name: str) -> None:
    """Delete the place and all that is in it."""
    if kind(address) == "postgres":
        _on_postgres(address, f'DROP SCHEMA IF EXISTS "{checked_name(name)}" CASCADE')
    elif kind(address) == "redis":
        _delete_keys(address, f"{{{checked_name(name)}:*")


def _on_postgres(address: str, statement: str) -> None:
    import psycopg

    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(statement)


def _delete_keys(address: str, pattern: str) -> None:
    import redis

    with redis.Redis.from_url(address) as client:
        for key in client.scan_iter(pattern, count=1000):
            client.unlink(key)
