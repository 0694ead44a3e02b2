"""What is measured of an entrant. Every message is looked up in the ledger: who loses one has no figure."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

from tests.benchmarks import ledger
from tests.benchmarks.processes import PATIENCE, Failed, Processes
from tests.benchmarks.programs import ROOT, environment
from tests.benchmarks.race.entrants import Entrant, Workers
from tests.benchmarks.race.stores import STORES, lacking

LEAST = 100
"""Messages of a drain at least."""
SINGLES = 1_000
"""Messages that are enqueued one by one, where there is a bulk call too."""
LATENCIES, LATENCY_SECONDS = 100, 8
HELD = 20
"""Slow messages that wait when a worker is killed."""


class Stand:
    """Where an entrant is measured: its store, its ledger and its log."""

    def __init__(self, entrant: Entrant, folder: Path):
        if reason := lacking(entrant.store):
            raise Failed(reason)
        folder.mkdir(mode=0o711)
        self.entrant, self._log, self._ledger = entrant, folder / "log", folder / "ledger"
        self.store = STORES[entrant.store](folder)
        ledger.make(self._ledger)
        own = {"BENCH_LEDGER": str(self._ledger), "RQ_REDIS_URL": self.store.url, **entrant.env}
        self._env = environment({"redis": "redis-blocking"}.get(entrant.store, entrant.store), self.store.url, **own)
        self.produce(entrant.one, "prepare")
        self.store.prepared()

    def produce(self, workers: Workers, *words: object) -> dict:
        """What ``produce.py`` prints."""
        command = [sys.executable, "-m", "tests.benchmarks.race.produce", self.entrant.peer, *map(str, words)]
        env = self._env | workers.env
        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=2 * PATIENCE)
        if done.returncode:
            raise Failed(f"{' '.join(map(str, words))}: {done.stderr.strip()[-500:]}")
        return json.loads(done.stdout.strip().splitlines()[-1])

    def start(self, workers: Workers) -> Processes:
        return Processes(workers.command, self._env | workers.env, self._log, workers.processes)

    def renew(self) -> ledger.Reader:
        """An empty store, and an empty ledger."""
        self.store.renew()
        self._ledger.unlink()
        ledger.make(self._ledger)
        return ledger.Reader(self._ledger)


def drain(stand: Stand, workers: Workers, scale: float) -> dict:
    """Enqueue all, start the workers, and wait until all is run; what they ask the server includes their start."""
    reader, count = stand.renew(), max(LEAST, int(workers.count * scale))
    filled = stand.produce(workers, "fill", count, min(SINGLES, count // 2))
    asked = stand.store.asked()
    with stand.start(workers) as processes:
        found = processes.drain(reader, count)
    stand.store.rest()
    if asked is not None:
        found["asked"] = (stand.store.asked() - asked) / count
    return found | filled


def latency(stand: Stand, scale: float) -> list[float]:
    """Milliseconds from a call to the start of its message, in the order of the calls."""
    stand.renew()
    seconds = max(2, int(LATENCY_SECONDS * scale))
    with stand.start(stand.entrant.one):
        taken = stand.produce(stand.entrant.one, "latency", LATENCIES, seconds)["latencies"]
    if len(taken) < 2:
        raise Failed(f"fewer than two lone messages were run within {seconds} s")
    return taken


class Resting:
    """A worker without messages is weighed. Another one is killed with some, and a third one has what it leaves."""

    def __init__(self, stand: Stand):
        self.stand = stand
        self.figures: dict = {}
        self._one = stand.entrant.one
        self._processes: Processes | None = None

    def __enter__(self) -> Resting:
        return self

    def __exit__(self, *exc) -> None:
        if self._processes:
            self._processes.kill()

    def start(self) -> None:
        """Start a worker, until it has run something."""
        self._reader = self.stand.renew()
        self.stand.produce(self._one, "fill", 2, 2)
        self._processes = self.stand.start(self._one)
        self._processes.wait_for_all(self._reader, 2)

    def weigh(self) -> None:
        self._since = time.monotonic(), self._processes.cpu(), self.stand.store.asked()

    def weighed(self) -> None:
        began, used, asked = self._since
        took, now = time.monotonic() - began, self.stand.store.asked()
        self.figures["idle_cpu"] = (self._processes.cpu() - used) / took * 100
        self.figures["idle_asked"] = None if now is None else (now - asked) / took
        self.figures["memory"] = self._processes.memory()
        self._processes.kill()

    def kill(self) -> None:
        """Start a worker over slow messages, kill it when it has begun some, and start another one."""
        self._reader = self.stand.renew()
        self.stand.produce(self._one, "slow", HELD)
        self._processes = self.stand.start(self._one)
        self._processes.wait_until(lambda: self._reader.any(2 * HELD), "a slow message")
        time.sleep(ledger.SLOW / 2)
        self._processes.kill()
        self._killed = time.monotonic()
        begun = [number for number in range(HELD) if self._reader.times[2 * number]]
        self._held = [number for number in begun if not self._end_of(number)]
        self._processes = self.stand.start(self._one)

    def is_over(self) -> bool:
        """Whether all messages were run."""
        return all(map(self._end_of, range(HELD)))

    def end(self) -> None:
        self._processes.kill()
        again = [end for end in map(self._end_of, self._held) if end]
        missing = [number for number in range(HELD) if not self._end_of(number)]
        self.figures["kill"] = {
            "held": len(self._held),
            "again": len(again),
            "after": max(again) - ledger.SLOW - self._killed if again else None,
            "others": len([number for number in missing if number not in self._held]),
        }

    def _end_of(self, number: int) -> float:
        return self._reader.times[2 * number + 1]
