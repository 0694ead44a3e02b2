"""The race: djqueue and its peers in one run on this machine: ``make race``.

    python -m tests.benchmarks.race.run [--quick] [ENTRANT …]

Each figure is the median of three rounds, with the least and the most; the entrants take turns, in another order each
round. A whole run writes its results into ``docs/performance``; a quick one, or one of some entrants, only prints them.
"""

from __future__ import annotations

import argparse
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from tests.benchmarks import reference
from tests.benchmarks.measure import ends, percentiles
from tests.benchmarks.processes import Failed
from tests.benchmarks.race import measures, report
from tests.benchmarks.race.entrants import ENTRANTS, Entrant
from tests.benchmarks.race.figures import floor, machine, versions
from tests.benchmarks.race.measures import Resting, Stand
from tests.benchmarks.race.stores import STORES
from tests.support import servers

BEGUN = time.monotonic()


@dataclass(frozen=True)
class Size:
    rounds: int
    scale: float
    """Of the messages of a drain, and of the seconds for latencies."""
    settling: float
    """Seconds that a worker gets before it is weighed."""
    resting: float
    watched: float
    """Seconds after a kill."""


WHOLE = Size(rounds=3, scale=1.0, settling=5, resting=15, watched=130)
QUICK = Size(rounds=1, scale=0.3, settling=3, resting=6, watched=70)


class Race:
    """The entrants that could be started, and what was found of each."""

    def __init__(self, entrants: Iterable[Entrant], size: Size):
        self._size = size
        self.failed: dict[str, str] = {}
        self.figures: dict[str, dict[str, list]] = {}
        self._stands: list[Stand] = []
        for entrant in entrants:
            self.figures[entrant.id] = defaultdict(list)
            with self._excluding(entrant):
                self._stands.append(Stand(entrant, servers.run_dir() / entrant.id))

    def run(self) -> dict:
        say("reference loop and floors")
        about = machine()
        stores = {stand.entrant.store: stand.store for stand in self._stands}
        floors = {store: floor(store, self._size.scale) for store in STORES if store in stores}
        for number in range(self._size.rounds):
            say(f"drains, round {number + 1} of {self._size.rounds}")
            self._drain(number)
        say("latencies")
        self._latencies()
        say(f"idle cost, and a kill with what becomes of the messages in {self._size.watched:g} s")
        self._rest()
        return {
            "made": datetime.now(UTC).strftime("%Y-%m-%d"),
            "machine": about,
            "rounds": self._size.rounds,
            "versions": versions(stand.entrant for stand in self._stands),
            "servers": [store.version for store in stores.values()],
            "reference": {"cpu": reference.microseconds()},
            "floors": floors,
            "entrants": [self._found(entrant) for entrant in ENTRANTS if entrant.id in self.figures],
        }

    def _drain(self, number: int) -> None:
        """One after the other; every second round the other way round."""
        for stand in self._stands[:: -1 if number % 2 else 1]:
            for kind, workers in (("", stand.entrant.one), ("best_", stand.entrant.best)):
                with self._excluding(stand.entrant):
                    found = measures.drain(stand, workers, self._size.scale)
                    self._note(stand.entrant, kind, found)

    def _note(self, entrant: Entrant, kind: str, found: dict) -> None:
        figures = self.figures[entrant.id]
        for name in ("drain", "cpu", "asked"):
            if name in found:
                figures[f"{kind}{name}"].append(found[name])
        for verb in ("single", "bulk"):
            if verb in found and not kind:
                figures[verb].append(found[verb]["rate"])
                figures[f"{verb}_cpu"].append(found[verb]["cpu"])
        say(f"  {entrant.id:26}{kind:6}{found['drain']:>9,.0f}/s {found['cpu']:>7,.1f} µs")

    def _latencies(self) -> None:
        for stand in self._stands:
            with self._excluding(stand.entrant):
                taken = measures.latency(stand, self._size.scale)
                self.figures[stand.entrant.id]["latency"] = taken

    def _rest(self) -> None:
        """Started one by one, and then all at the same time: they do next to nothing."""
        with ExitStack() as stack:
            resting = [stack.enter_context(Resting(stand)) for stand in self._stands]
            self._each(Resting.start, resting, self._size.settling)
            self._each(Resting.weigh, resting, self._size.resting)
            self._each(Resting.weighed, resting)
            self._each(Resting.kill, resting)
            end = time.monotonic() + self._size.watched
            while time.monotonic() < end and not all(one.is_over() for one in resting):
                time.sleep(0.2)
            self._each(Resting.end, resting)
        for one in resting:
            self.figures[one.stand.entrant.id] |= one.figures

    def _each(self, step: Callable[[Resting], None], resting: list[Resting], seconds: float = 0) -> None:
        """Who fails takes no part in what follows."""
        for one in [*resting]:
            with self._excluding(one.stand.entrant):
                step(one)
                continue
            resting.remove(one)
        time.sleep(seconds)

    @contextmanager
    def _excluding(self, entrant: Entrant) -> Iterator[None]:
        """An entrant that fails has no such figure, and its reason is kept; the others go on."""
        try:
            yield
        except (Failed, subprocess.TimeoutExpired, OSError, RuntimeError) as error:
            self.failed.setdefault(entrant.id, str(error))
            say(f"  {entrant.id}: {error}")

    def _found(self, entrant: Entrant) -> dict:
        figures = self.figures[entrant.id]
        lists = {name: ends(found) for name, found in figures.items() if isinstance(found, list) and name != "latency"}
        return {
            "name": entrant.name,
            "store": entrant.store,
            "one": entrant.one.words,
            "best": entrant.best.words,
            "kept": entrant.kept,
            "failed": self.failed.get(entrant.id, ""),
            **lists,
            **{name: found for name, found in figures.items() if not isinstance(found, list)},
            "latency": percentiles(figures["latency"]) if figures["latency"] else None,
        }


def say(text: str) -> None:
    print(f"{time.monotonic() - BEGUN:5.0f} s  {text}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("entrants", nargs="*", metavar="ENTRANT", help="a part of an id, such as redis or sqlite-huey")
    parser.add_argument("--quick", action="store_true", help="fewer messages, one round, nothing written")
    options = parser.parse_args()
    chosen = [one for one in ENTRANTS if not options.entrants or any(part in one.id for part in options.entrants)]
    results = Race(chosen, QUICK if options.quick else WHOLE).run()
    print(report.text(results))
    if not options.quick and chosen == ENTRANTS:
        report.write(results)
    say(f"{len(chosen)} entrants")


if __name__ == "__main__":
    main()
