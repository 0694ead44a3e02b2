"""Fills a store, and prints what operators' pages and commands cost there as lines of JSON: see ``operations.py``."""

from __future__ import annotations

import json
import random
import resource
import sys
import time
from collections.abc import Callable, Iterator
from io import StringIO
from typing import Any, NamedTuple
from urllib.parse import urlencode

from django.core.management import CommandError, call_command
from django.db import connections

from tests.benchmarks.measure import set_up

ROOT = "/admin/djqueue/dashboard/"
DAY = 86_400.0
FILL = 2_000
ROUNDS = 3
COMMANDS = [f"shop.commands.command_{number:02}" for number in range(20)]
EXCEPTIONS = ["ConnectionError", "builtins.KeyError", "shop.errors.OutOfStock", "TimeoutError"]
RARE = "shop.commands.rare"
"""The command of the last message of each state: a filter that looks for it has to pass all others."""
TRACEBACK = "\n".join(f'  File "/srv/shop/commands.py", line {line}, in send\n    post(letter)' for line in range(9))
GATE = '{"o":1}'
RUNNING = 500
CONSUMERS = 50


class Sizes(NamedTuple):
    waiting: int
    failed: int
    lanes: int
    schedules: int
    history: int


# ---- Filling


def fill(queue, sizes: Sizes) -> None:
    """A tenth of what waits is in lanes, a twentieth is delayed."""
    from djqueue.backends.base import Entry

    def put(target, count: int, make: Callable[[int], dict]) -> None:
        for start in range(0, count, FILL):
            target.put([entry(start + at, **make(start + at)) for at in range(min(FILL, count - start))])

    def entry(number: int, **more: Any) -> Entry:
        from djqueue.messages.envelope import new_id

        return Entry(**{"body": b"x" * 150, "id": new_id(), "command": COMMANDS[number % 20], **more})

    lanes, delayed = sizes.waiting // 10, sizes.waiting // 20
    put(queue, RUNNING, lambda number: {})
    for start in range(0, RUNNING, 100):
        queue.claim(100, DAY, f"web-{start // 100}:{1000 + start}:abc")
    put(queue, sizes.waiting - lanes - delayed, lambda number: {})
    put(queue, delayed, lambda number: {"delay": 3600.0 + number})
    put(queue, lanes, lambda number: {"lane": f"lane {number % sizes.lanes:06}", "gate": GATE})
    for _ in range(0, sizes.lanes, 1000):
        queue.lanes.get("")  # which puts lanes in their places
    now = time.time()
    put(queue.failed, sizes.failed, lambda number: {"errors": errors(number, now), "attempts": 3, "failures": 3})
    for target, more in ((queue, {}), (queue, {"delay": DAY}), (queue.failed, {"errors": errors(-1, now)})):
        put(target, 1, lambda _, more=more: {"command": RARE, **more})
    remember(queue, sizes.history, now)
    beside(queue, sizes.schedules)


def errors(number: int, now: float) -> str:
    kind = EXCEPTIONS[number % 4] if number >= 0 else "shop.errors.Rare"
    told = {"at": now, "attempt": 3, "reason": f"{kind}: order {number}", "exception": kind, "traceback": TRACEBACK}
    return json.dumps([told])


def remember(queue, count: int, now: float) -> None:
    """A history, of which one in fifty has failed."""
    from djqueue.messages.envelope import new_id

    def record(number: int) -> bytes:
        how, error = ("done", "") if number % 50 else ("failed", "KeyError")
        at = f"{int((now - count + number) * 1e6):016}\t{how}\t1\t{int(now * 1e6)}\t2000"
        return f"{at}\tweb-1:1:abc\t{COMMANDS[number % 20]}\t{error}\t".encode()

    for start in range(0, count, 200):
        records = [record(number) for number in range(start, min(start + 200, count))]
        queue.history.keep([new_id() for _ in records], records)


def beside(queue, count: int) -> None:
    """Consumers, pauses, the actions of operators, and schedules."""
    from djqueue import schedules
    from djqueue.operations.actions import record
    from djqueue.running import consumers
    from djqueue.running.consumers import ConsumerRecord, Running
    from djqueue.running.pauses import Pause, add
    from tests.benchmarks.commands import noted

    store = queue.store.shared
    for number in range(200):
        record(queue, "requeue", f"message {number}", 1, "ann")
    for number, command in enumerate(COMMANDS[:5]):
        add(store, Pause("command", command, "", "ann", "out of paper", store.now() - number, None), store.now())
    for number in range(0, 500, 10):
        queue.lanes.pause(f"lane {number:06}", "out of paper")
    known = dict.fromkeys([*COMMANDS, RARE], "0123456789abcdef")
    consumers.write_commands(store, known)
    for number in range(CONSUMERS):
        name = f"web-{number}:{1000 + number}:abc"
        running = [Running(str(one), COMMANDS[one], 1.0) for one in range(10)]
        facts = {"threads": 10, "busy": 10, "running": running, "commands": consumers.digest_of(known)}
        consumers.enter(store, name)
        consumers.write(store, ConsumerRecord(name=name, host=f"web-{number}", queues=(queue.base_name,), **facts))
    for number in range(count):
        schedules.add(f"schedule {number:05}", noted, args=(number, "text"), every=3600 + number)
        queue.store.put(f"last:schedule:schedule {number:05}", b"2020-01-01T00:00:00+00:00", DAY)


def beat(queue) -> None:
    """The consumers live: each writes a heartbeat now."""
    from djqueue.running import consumers

    store = queue.store.shared
    for one in consumers.read(store):
        consumers.write(store, consumers.changed(one, at=store.now() + DAY, state="running"))


# ---- Measuring


class Meter:
    """CPU seconds of this process and of the server, round trips, and rows that the server read."""

    def __init__(self, queue):
        from tests.benchmarks.scaling import Server

        self._queue, self._server, self._trips, self.longest = queue, Server(queue), 0, 0.0
        if queue.database:
            connections[queue.database].execute_wrappers.append(self._statement)
        else:
            self._watch_redis()

    def cost(self, call: Callable[[], object]) -> dict[str, Any]:
        """The cheapest of some rounds; one is enough where it is long."""
        rounds = [self._once(call)]
        while len(rounds) < ROUNDS and rounds[0]["cpu"] < 3:
            rounds.append(self._once(call))
        return min(rounds, key=lambda one: one["cpu"])

    def _once(self, call: Callable[[], object]) -> dict[str, Any]:
        rows, spent, began, at = self._rows(), self._server.read()[0], time.process_time(), time.monotonic()
        self._trips, self.longest = 0, 0.0
        said = call()
        own, wall, trips, longest = time.process_time() - began, time.monotonic() - at, self._trips, self.longest
        there = (self._server.read()[0] - spent) / 1e6
        read = None if rows is None else self._rows() - rows
        figures = {"cpu": own + there, "server": there, "wall": wall, "longest": longest}
        return {name: round(value, 4) for name, value in figures.items()} | {"trips": trips, "rows": read, "said": said}

    def _statement(self, execute: Callable, sql, params, many, context):
        self._trips += 1
        began = time.monotonic()
        try:
            return execute(sql, params, many, context)
        finally:
            self.longest = max(self.longest, time.monotonic() - began)

    def _watch_redis(self) -> None:
        from redis.connection import AbstractConnection

        send, read = AbstractConnection.send_packed_command, AbstractConnection.read_response

        def sent(connection, *args, **options):
            self._trips += 1
            return send(connection, *args, **options)

        def answered(connection, *args, **options):
            began = time.monotonic()
            try:
                return read(connection, *args, **options)
            finally:
                self.longest = max(self.longest, time.monotonic() - began)

        AbstractConnection.send_packed_command, AbstractConnection.read_response = sent, answered

    def _rows(self) -> int | None:
        if not self._queue.database or connections[self._queue.database].vendor != "postgresql":
            return None
        with connections[self._queue.database].connection.cursor() as cursor:
            cursor.execute("SELECT pg_stat_force_next_flush()")
            cursor.execute(
                "SELECT (SELECT sum(seq_tup_read) FROM pg_stat_user_tables) + "
                "(SELECT sum(idx_tup_read) FROM pg_stat_user_indexes)"
            )
            return int(cursor.fetchone()[0])


# ---- What is measured


def pages(queue) -> Iterator[tuple[str, Callable[[], object]]]:
    browser = superuser()

    def load(address: str, query: dict[str, str]) -> str:
        answer = browser.get(f"{ROOT}{address}?{urlencode(query)}")
        assert answer.status_code in (200, 302, 404), (address, answer.status_code)
        return f"{len(answer.content) // 1024} kB"

    for words, address, query in (
        ("Overview", "", {}),
        ("Queues", "queues/", {}),
        ("Failed", "failed/", {}),
        *((f"Messages, {words}" if words else "Messages", "messages/", query) for words, query in filters(queue)),
        ("a message that waits", "message/", {"id": last(queue, "ready"), "queue": "default"}),
        ("a message in a lane", "message/", {"id": laned(queue), "queue": "default"}),
        ("a message that failed", "message/", {"id": last(queue.failed, "ready"), "queue": "default"}),
        ("a message that is not known", "message/", {"id": "none"}),
        ("Consumers", "consumers/", {}),
        ("Lanes", "lanes/", {}),
        ("Lanes, by name", "lanes/", {"name": "lane 009"}),
        ("Schedules", "schedules/", {}),
        ("History", "history/", {}),
        ("History, failed", "history/", {"status": "failed"}),
        ("History, a command that is rare", "history/", {"command": RARE}),
        ("Commands", "commands/", {}),
    ):
        yield f"page {words}", lambda address=address, query=query: load(address, query)


def superuser():
    """A browser of someone who may do all."""
    from django.contrib.auth.models import User
    from django.test import Client

    browser = Client()
    browser.force_login(User.objects.create(username=f"superuser{random.random()}", is_staff=True, is_superuser=True))
    return browser


def filters(queue) -> list[tuple[str, dict[str, str]]]:
    return [
        ("", {}),
        *((state, {"state": state}) for state in ("ready", "delayed", "running", "failed")),
        ("command", {"command": COMMANDS[7]}),
        ("a command that is rare", {"command": RARE}),
        ("lane", {"lane": "lane 000007"}),
        ("exception", {"exception": "shop.errors.Rare"}),
        ("text of the error", {"reason": "no such text"}),
        ("older", {"older": "4w"}),
        ("newer", {"newer": "1s"}),
        ("a part of an id", {"id": last(queue, "ready")[-8:]}),
    ]


def commands(queue) -> Iterator[tuple[str, Callable[[], object]]]:
    def run(*words: str) -> str:
        out = StringIO()
        try:
            call_command(*words, stdout=out, stderr=out)
        except (CommandError, SystemExit) as error:
            out.write(str(error))
        return out.getvalue().rpartition("\n")[0][-60:] or out.getvalue()[-60:]

    looks = [["list", *(f"--{name}={value}" for name, value in query.items())] for _, query in filters(queue)]
    for words in (
        ["queue_stats"],
        *(["queue_messages", *look] for look in looks if not look[-1].startswith("--id")),
        ["queue_messages", "show", last(queue, "ready")[-8:]],
        ["queue_errors", "list"],
        ["queue_errors", "list", "--exception=shop.errors.Rare"],
        ["queue_errors", "summary"],
        ["queue_explain", last(queue, "ready")],
        ["queue_explain", laned(queue)],
        ["queue_explain", "-q", "default"],
        ["queue_health"],
        ["queue_history"],
        ["queue_history", "--status=failed"],
        ["queue_history", f"--command={RARE}"],
        ["queue_history", "--id=ffffffff"],
        ["queue_lanes"],
        ["queue_lanes", "--limit=10000"],
        ["queue_schedules"],
        ["queue_consumers"],
    ):
        yield " ".join(words).replace(laned(queue), "(in a lane)"), lambda words=words: run(*words)
    yield "metrics", _metrics


def _metrics() -> str:
    from django.test import RequestFactory

    from djqueue.integrations.prometheus import queue_metrics

    return f"{len(queue_metrics(RequestFactory().get('/')).content) // 1024} kB"


def changes(queue) -> Iterator[tuple[str, Callable[[], object]]]:
    """Each of a part of what waits, or of what has failed; each can be done once."""
    browser = superuser()

    def submit(action: str, **query: str) -> str:
        said = {"which": "all", "action": action, "confirmed": "1", **query}
        assert browser.post(f"{ROOT}act/", said).status_code == 302, action
        return ""

    for action, query in (("requeue", {"state": "failed"}), ("cancel", {}), ("remove", {"state": "ready"})):
        yield f"page: {action} all that match", lambda action=action, query=query: submit(action, **query)

    def run(*words: str) -> str:
        out = StringIO()
        call_command(*words, *(() if words[0] == "queue_errors" else ("--no-input",)), stdout=out, stderr=out)
        return out.getvalue().strip().splitlines()[-1]

    for words in (
        ("queue_messages", "cancel", f"--command={COMMANDS[1]}", "--state=delayed"),
        ("queue_messages", "remove", f"--command={COMMANDS[2]}"),
        ("queue_messages", "reprioritise", "--priority=5", f"--command={COMMANDS[3]}"),
        ("queue_messages", "run-now", "--all"),
        ("queue_messages", "requeue", f"--exception={EXCEPTIONS[0]}"),
        ("queue_errors", "retry", "--all"),
        ("queue_purge", "-q", "default"),
    ):
        yield " ".join(words), lambda words=words: run(*words)


def last(queue, state: str) -> str:
    """The id of a message that is far from the first: it was put last."""
    from djqueue.backends.base import walk

    key = (queue.name, state)
    if key not in _LAST:
        _LAST[key] = next(record.entry.id for record in walk(queue, state) if record.entry.command == RARE)
    return _LAST[key]


def laned(queue) -> str:
    from djqueue.backends.base import walk

    if "laned" not in _LAST:
        _LAST["laned"] = [record.entry.id for record in walk(queue, "ready") if record.entry.lane][-1]
    return _LAST["laned"]


_LAST: dict[Any, str] = {}


def main(steps: str, *numbers: str) -> None:
    queue = set_up("tests.benchmarks.operating_settings")
    if "fill" in steps:
        fill(queue, Sizes(*map(int, numbers)))
        analyse(queue)
    beat(queue)
    meter = Meter(queue)
    kinds = {"look": (pages, commands), "change": (changes,)}
    for kind in [kind for name, kinds in kinds.items() if name in steps for kind in kinds]:
        for name, call in kind(queue):
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            found = meter.cost(call) if kind is not changes else meter._once(call)
            grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory) // 1024
            print(json.dumps({"name": name, **found, "memory": grown, "is_change": kind is changes}), flush=True)


def analyse(queue) -> None:
    if queue.database:
        with connections[queue.database].cursor() as cursor:
            cursor.execute("VACUUM ANALYZE" if connections[queue.database].vendor == "postgresql" else "SELECT 1")


if __name__ == "__main__":
    main(*sys.argv[1:])
