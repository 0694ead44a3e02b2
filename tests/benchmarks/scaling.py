"""Fills one backend step by step, and prints what its verbs cost at each step as lines of JSON: see ``scale.py``."""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from itertools import cycle
from statistics import median
from typing import NamedTuple

from django.core.management import call_command
from django.db import connections

from tests.benchmarks.measure import cpu_of, server_pid, set_up

DAY = 86_400.0
ROUNDS = 7
SINGLE, BULK, BATCH = 100, 1000, 32
"""Messages of a round that are put one by one, those that are put at once, and those of a claim."""
GATE = '{"o":1}'
"""Entries of a lane leave in order, one at a time."""
FRACTIONS = (0, 0.01, 0.1, 1)
FILL = 2_000
PER_QUEUE = 100


class Cost(NamedTuple):
    """Of one message or call."""

    cpu: float
    """µs, in this process and in the server."""
    statements: float


def entries(count: int, delay: float = 0.0, lanes: Iterator[int] | None = None) -> list:
    from djqueue.backends.base import Entry
    from djqueue.messages.envelope import new_id

    def lane() -> dict:
        return {} if lanes is None else {"lane": f"lane {next(lanes)}", "gate": GATE}

    return [Entry(b"x" * 150, new_id(), delay=delay, **lane()) for _ in range(count)]


def fill(queue, count: int, **how) -> None:
    for start in range(0, count, FILL):
        queue.put(entries(min(FILL, count - start), **how))


def lease(queue, count: int) -> None:
    """Put entries and hold them for a day. What waited already leaves first, and the new ones wait in its place."""
    for start in range(0, count, FILL):
        queue.put(entries(min(FILL, count - start)))
        queue.claim(min(FILL, count - start), DAY, "holder")


class Server:
    """The CPU time and the number of statements of the server of a queue."""

    def __init__(self, queue):
        self._queue, self._statements = queue, 0
        self._pid = server_pid(queue)
        if queue.database:
            connections[queue.database].execute_wrappers.append(self._count)

    def read(self) -> tuple[float, int]:
        """µs of CPU, and statements or scripts, so far."""
        return cpu_of(self._pid), self._statements if self._queue.database else self._scripts()

    def _count(self, execute: Callable, sql, params, many, context):
        self._statements += 1
        return execute(sql, params, many, context)

    def _scripts(self) -> int:
        stats = self._queue._link.client.info("commandstats")
        return sum(stats[name]["calls"] for name in ("cmdstat_evalsha", "cmdstat_eval") if name in stats)

    def cost(self, verb: Callable[[], int]) -> Cost:
        """What one message or call costs; ``verb`` returns how many it was."""
        (spent, asked), began = self.read(), time.process_time_ns()
        count = verb()
        own = (time.process_time_ns() - began) / 1000
        spent_then, asked_then = self.read()
        return Cost((own + spent_then - spent) / count, (asked_then - asked) / count)


class Load:
    """The verbs of a message, and those that a consumer or an operator calls, in one queue or in several by turns."""

    def __init__(self, queues: list, lanes: Iterator[int] | None = None):
        self._server, self._queues, self._lanes = Server(queues[0]), cycle(queues), lanes

    def round(self) -> dict[str, Cost]:
        """The cost of each verb. The queue is then as long as it was before."""
        queue = next(self._queues)
        verbs = (self.put, self.put_many, self.claim, self.reap, self.stats)
        return {verb.__name__: self._server.cost(lambda verb=verb: verb(queue)) for verb in verbs}

    def put(self, queue) -> int:
        for entry in entries(SINGLE, lanes=self._lanes):
            queue.put([entry])
        return SINGLE

    def put_many(self, queue) -> int:
        queue.put(entries(BULK, lanes=self._lanes))
        return BULK

    def claim(self, queue) -> int:
        """Claim and complete as many as the two have put."""
        done, claimed, wanted = 0, [], SINGLE + BULK
        while done < wanted:
            held, claimed = queue.exchange(claimed, min(BATCH, wanted - done - len(claimed)), 60.0, "bench")
            done += len(held)
        return done

    def reap(self, queue) -> int:
        for _ in range(10):
            queue.reap()
        return 10

    def stats(self, queue) -> int:
        queue.stats()
        return 1


def compared(load: Load, base: Load) -> dict[str, dict]:
    """The median of some rounds that alternate between a load and the same on an empty database: what each verb costs,
    and how many times as much as there."""
    rounds = [(load.round(), base.round()) for _ in range(ROUNDS + 1)][1:]
    found = {}
    for verb in rounds[0][0]:
        pairs = [(own[verb], other[verb]) for own, other in rounds]
        found[verb] = {
            "cpu": round(median(cost.cpu for cost, _ in pairs), 1),
            "statements": round(median(cost.statements for cost, _ in pairs), 3),
            "ratio": round(median(cost.cpu / base.cpu for cost, base in pairs), 2),
        }
    return found


def twin(queue):
    """The same queue in an empty database of the same server."""
    if not queue.database:
        return type(queue)(queue.name, queue.connection.replace("/0", "/1"))
    if "sqlite" not in os.environ["BENCH_BACKEND"]:
        with connections["default"].cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {os.environ['BENCH_EMPTY']}")
    call_command("migrate", database="empty", verbosity=0)
    return type(queue)(queue.name, "empty")


def main(waiting: int, delayed: int, leased: int, many: int, lanes: int) -> None:
    queue, sizes, filled = set_up(), (waiting, delayed, leased), (0, 0, 0)
    empty = twin(queue)
    plain, laned = Load([empty]), Load([type(empty)("lanes", empty.connection)], cycle(range(BULK)))

    def tell(kind: str, size: int, load: Load, base: Load = plain) -> None:
        print(json.dumps({"kind": kind, "size": size, "verbs": compared(load, base)}), flush=True)

    for fraction in FRACTIONS:
        wanted = tuple(int(size * fraction) for size in sizes)
        more = [size - before for size, before in zip(wanted, filled, strict=True)]
        fill(queue, more[0])
        fill(queue, more[1], delay=DAY)
        lease(queue, more[2])
        filled = wanted
        tell("waiting", wanted[0], Load([queue]))
    others = [type(queue)(f"queue {number}", queue.connection) for number in range(many)]
    for other in others:
        fill(other, PER_QUEUE)
    tell("queues", many, Load(random.Random(1).sample(others, min(many, ROUNDS + 1))))
    for count in (lanes // 100, lanes // 10, lanes):
        many_laned = type(queue)(f"lanes {count}", queue.connection)
        fill(many_laned, count, lanes=cycle(range(count)))
        for _ in range(0, count, 1000):
            many_laned.lanes.get("")  # which puts lanes in their places, as far as claims have not done so
        tell("lanes", count, Load([many_laned], cycle(range(max(count, BULK)))), laned)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
