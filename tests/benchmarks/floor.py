"""The floor: a bare loop with the same guarantees and nothing else, on the store that BENCH_BACKEND names.

Four threads claim batches of 32 under a lease and acknowledge each in the round trip of the next claim. A message is a
signed pickle, verified and called. No Django, no hooks, no logging: what is lost against it is what the library costs.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import pickle
import sqlite3
import sys
import threading
import uuid
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

from tests.benchmarks.measure import cost

BATCH, THREADS, LEASE = 32, 4, 60
KEY = hashlib.sha256(b"only for benchmarks").digest()

Step = Callable[[list], list]
"""Acknowledges the ids that it is given and claims the next batch of (id, body)."""


def pack(number: int) -> bytes:
    body = pickle.dumps(("nothing", (number, "some text"), {}))
    return hmac.digest(KEY, body, "sha256") + body


def run(message: bytes) -> None:
    assert hmac.compare_digest(message[:32], hmac.digest(KEY, message[32:], "sha256"))
    pickle.loads(message[32:])


REDIS = """
for i = 3, #ARGV do redis.call('HDEL', KEYS[2], ARGV[i]); redis.call('ZREM', KEYS[3], ARGV[i]) end
local popped, out = redis.call('ZPOPMIN', KEYS[1], ARGV[1]), {}
local time = redis.call('TIME')
for i = 1, #popped, 2 do
  redis.call('ZADD', KEYS[3], time[1] + ARGV[2], popped[i])
  out[#out + 1] = popped[i]
  out[#out + 1] = redis.call('HGET', KEYS[2], popped[i])
end
return out
"""


class Redis:
    def __init__(self, address: str):
        import redis

        self._client = redis.Redis.from_url(address)
        self._script = self._client.register_script(REDIS)

    def fill(self, messages: Iterable[bytes]) -> None:
        bodies = {f"{number:08}{uuid.uuid4().hex}": body for number, body in enumerate(messages)}
        self._client.hset("floor:body", mapping=bodies)
        self._client.zadd("floor:ready", dict.fromkeys(bodies, 0))

    def step(self) -> Step:
        def claim(done: list) -> list:
            flat = self._script(["floor:ready", "floor:body", "floor:leases"], [BATCH, LEASE, *done])
            return list(zip(flat[::2], flat[1::2], strict=True))

        return claim


class Postgres:
    TABLE = "CREATE TABLE floor (seq bigserial PRIMARY KEY, state smallint DEFAULT 0, until float8, body bytea)"
    CLAIM = """
        WITH done AS (DELETE FROM floor WHERE seq = ANY(%s)), pick AS MATERIALIZED (
            SELECT seq FROM floor WHERE state = 0 ORDER BY seq LIMIT %s FOR UPDATE SKIP LOCKED)
        UPDATE floor SET state = 1, until = extract(epoch FROM clock_timestamp()) + %s
        WHERE seq = ANY(ARRAY(SELECT seq FROM pick)) RETURNING seq, body"""

    def __init__(self, address: str):
        self._address = address
        connection = self._connect()
        connection.execute("DROP TABLE IF EXISTS floor")
        connection.execute(self.TABLE)
        connection.execute("CREATE INDEX floor_ready ON floor (seq) WHERE state = 0")

    def fill(self, messages: Iterable[bytes]) -> None:
        self._connect().execute("INSERT INTO floor (body) SELECT unnest(%s::bytea[])", [list(messages)])

    def step(self) -> Step:
        connection = self._connect()
        return lambda done: connection.execute(self.CLAIM, [done, BATCH, LEASE]).fetchall()

    def _connect(self):
        import psycopg

        return psycopg.connect(self._address, autocommit=True)


class Sqlite:
    TABLE = "CREATE TABLE floor (seq INTEGER PRIMARY KEY, state INTEGER DEFAULT 0, until REAL, body BLOB)"
    CLAIM = """
        UPDATE floor SET state = 1, until = unixepoch() + ?
        WHERE seq IN (SELECT seq FROM floor WHERE state = 0 ORDER BY seq LIMIT ?) RETURNING seq, body"""

    def __init__(self, address: str):
        self._address, self._lock = f"{address}.floor", threading.Lock()
        connection = self._connect()
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute(self.TABLE)
        connection.execute("CREATE INDEX floor_ready ON floor (seq) WHERE state = 0")

    def fill(self, messages: Iterable[bytes]) -> None:
        connection = self._connect()
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany("INSERT INTO floor (body) VALUES (?)", [(message,) for message in messages])
        connection.execute("COMMIT")

    def step(self) -> Step:
        connection = self._connect()

        def claim(done: list) -> list:
            with self._lock:
                connection.execute("BEGIN IMMEDIATE")
                connection.executemany("DELETE FROM floor WHERE seq = ?", [(seq,) for seq in done])
                rows = connection.execute(self.CLAIM, [LEASE, BATCH]).fetchall()
                connection.execute("COMMIT")
            return rows

        return claim

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._address, isolation_level=None, check_same_thread=False, timeout=20)
        connection.execute("PRAGMA synchronous=NORMAL")
        return connection


FLOORS = {"redis": Redis, "redis-blocking": Redis, "postgres": Postgres, "sqlite": Sqlite}


def drain(floor, count: int) -> dict:
    """Messages per second, and microseconds of processor for each."""
    floor.fill(map(pack, range(count)))
    steps = [floor.step() for _ in range(THREADS)]
    with ThreadPoolExecutor(THREADS) as pool:
        found = cost(count, lambda: list(pool.map(_work, steps)))
    return {"drain": found["rate"], "cpu": found["cpu"]}


def _work(claim: Step) -> None:
    done: list = []
    while batch := claim(done):
        for _, message in batch:
            run(message)
        done = [id for id, _ in batch]


def main(count: int) -> None:
    """Print the figures of three drains as JSON."""
    floor = FLOORS[os.environ["BENCH_BACKEND"]](os.environ["BENCH_CONNECTION"])
    print(json.dumps([drain(floor, count) for _ in range(3)]))


if __name__ == "__main__":
    main(int(sys.argv[1]))
