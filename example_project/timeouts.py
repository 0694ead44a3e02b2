"""A work queue with time-outs: worker processes share a queue, some are killed with kill -9, and no item is lost.

python example_project/timeouts.py [--items 200] [--workers 4] [--kill 3] [--lease 2] [--queue redis://localhost:6379/0]

Workers take an item for so many seconds (its lease), work, and report it done. What a killed worker held comes back
when its lease is over: a reaper sees to that. Who works on an item that needs longer extends its lease meanwhile.
"""

import argparse
import contextlib
import multiprocessing
import os
import random
import secrets
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path

import django
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command

from config import addresses, servers
from djqueue import queues
from djqueue.backends.base import BaseQueue, Lease

GIVE_UP = 120.0
"""Seconds without any progress, after which something must be wrong."""


@dataclass(frozen=True)
class Place:
    """What all processes must agree on."""

    address: str
    name: str
    folder: Path
    secret: str
    lease: float

    def open(self) -> BaseQueue:
        """The queue; sets up Django, without a project."""
        settings.configure(
            DATABASES={"default": addresses.database(self.address, self.folder / "timeouts.sqlite3", self.name)},
            INSTALLED_APPS=["djqueue"],
            QUEUES={"default": addresses.queue(self.address, prefix=self.name)},
            SECRET_KEY=self.secret,
            USE_TZ=True,
        )
        django.setup()
        return queues["default"]


# ---- a worker


def work(place: Place, reports: Connection):
    """Take, work, report it done, until nobody listens any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that started us decides
    queue, parent = place.open(), os.getppid()
    with contextlib.suppress(BrokenPipeError):
        while os.getppid() == parent:
            lease, item = queue.take(lease=place.lease, wait=0.5)
            if lease is not None:
                work_on(queue, lease, item, place, reports)


def work_on(queue: BaseQueue, lease: Lease, item: dict, place: Place, reports: Connection):
    reports.send("took")
    for _ in range(item["steps"]):
        time.sleep(item["seconds"] / item["steps"])
        queue.touch([lease], place.lease)  # still at it
    ours = queue.complete([lease])
    reports.send("done" if ours else "late")  # late: the lease was over, and somebody else has the item


# ---- the process that watches over them


class Crew:
    """Worker processes, and what they say."""

    def __init__(self, place: Place, size: int):
        self._place = place
        self._context = multiprocessing.get_context("spawn")
        self._workers: dict[Connection, multiprocessing.Process] = {}
        self.said = {"took": 0, "done": 0, "late": 0}
        self.killed = 0
        for _ in range(size):
            self._hire()

    def _hire(self):
        ours, theirs = self._context.Pipe(duplex=False)
        worker = self._context.Process(target=work, args=(self._place, theirs), daemon=True)
        worker.start()
        theirs.close()
        self._workers[ours] = worker

    def listen(self, seconds: float, kill: bool):
        """Hear what the workers say for so long; kill one that has just taken an item, if told to."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            for reports in wait(list(self._workers), left):
                if self._hear(reports) == "took" and kill and not reports.poll():
                    self._kill(reports)
                    return

    def _hear(self, reports: Connection) -> str:
        try:
            word = reports.recv()
        except (EOFError, OSError):
            raise SystemExit("A worker ended of its own accord; its traceback is above.") from None
        self.said[word] += 1
        return word

    def _kill(self, reports: Connection):
        """With SIGKILL, while it holds an item; another one takes its place."""
        worker = self._workers.pop(reports)
        worker.kill()
        worker.join()
        with contextlib.suppress(EOFError, OSError):
            while True:
                self.said[reports.recv()] += 1  # its last words
        reports.close()
        self.killed += 1
        self._hire()

    def dismiss(self):
        for worker in self._workers.values():
            worker.terminate()
        for worker in self._workers.values():
            worker.join()


@dataclass
class Watch:
    """Reaper, killer and teller of one run."""

    queue: BaseQueue
    crew: Crew
    items: int
    kills: int
    given_again: int = 0

    def until_done(self) -> bool:
        """Reap, kill, and tell the counts until all is done; whether it came to that."""
        began = seen = time.monotonic()
        counts = None
        while counts is None or counts[-1] < self.items:
            now, last = time.monotonic(), counts
            self.given_again += self.queue.reap().count
            counts = self._tell(now - began)
            seen = now if counts != last else seen
            if now - seen > GIVE_UP:
                return False
            self.crew.listen(0.25, kill=self._is_time_to_kill(counts[-1]))
        return counts[-1] == self.items and not any(counts[:-1])

    def _is_time_to_kill(self, done: int) -> bool:
        """Spread over the run."""
        return self.crew.killed < self.kills and done >= self.items * (self.crew.killed + 1) // (self.kills + 2)

    def _tell(self, seconds: float) -> tuple[int, int, int]:
        stats = self.queue.stats()
        print(
            f"{seconds:6.1f} s   ready {stats.ready:5}   leased {stats.leased:3}   done {stats.done:5}   "
            f"killed {self.crew.killed}   given again {self.given_again}",
            flush=True,
        )
        return stats.ready, stats.leased, stats.done


def main() -> int:
    options = parser().parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        return run(options)
    except ImproperlyConfigured as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def run(options: argparse.Namespace) -> int:
    """Items, workers, and a watch over them; 0 if all came to be done."""
    with place(options) as here:
        queue = open_with_items(here, options.items)
        crew = Crew(here, options.workers)
        try:
            watch = Watch(queue, crew, options.items, options.kill)
            good = watch.until_done()
        finally:
            crew.dismiss()
    print(
        f"{'All' if good else 'NOT all'} {options.items} items are done: {crew.said['took']} starts, "
        f"{crew.killed} workers killed, {watch.given_again} items given again, {crew.said['late']} reports too late."
    )
    return 0 if good else 1


def open_with_items(place: Place, count: int) -> BaseQueue:
    """The queue with its items: most are quick, one in fifty needs longer than a lease."""
    queue, chance = place.open(), random.Random(4)
    if addresses.kind(place.address) != "redis":
        call_command("migrate", verbosity=0)
    for number in range(1, count + 1):
        slow = {"seconds": 1.5 * place.lease, "steps": 6}
        quick = {"seconds": chance.uniform(0.02, 0.08), "steps": 1}
        queue.push({"url": f"https://example.com/{number}", **(quick if number % 50 else slow)})
    return queue


@contextlib.contextmanager
def place(options: argparse.Namespace) -> Iterator[Place]:
    """A place of this run's own, gone when it ends."""
    name = f"timeouts_{secrets.token_hex(4)}"
    with tempfile.TemporaryDirectory() as folder:
        servers.make(options.queue, name)
        try:
            yield Place(options.queue, name, Path(folder), secrets.token_urlsafe(50), options.lease)
        finally:
            servers.drop(options.queue, name)


def parser() -> argparse.ArgumentParser:
    main = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = main.add_argument
    add("--items", type=number_from(1), default=200, help="how many there are to do (default: %(default)s)")
    add("--workers", type=number_from(1), default=4, help="how many processes (default: %(default)s)")
    add("--kill", type=number_from(0), default=3, help="how many of them to kill (default: %(default)s)")
    add("--lease", type=number_from(0.1), default=2.0, help="seconds that an item is held for (default: %(default)s)")
    add("--queue", default="", metavar="ADDRESS", help="redis://… or postgres://… (default: SQLite)")
    return main


def number_from(least: int | float):
    """A type of argument: numbers like ``least``, and not below it."""

    def number(text: str) -> int | float:
        value = type(least)(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"{text}: give at least {least}")
        return value

    return number


if __name__ == "__main__":
    sys.exit(main())
