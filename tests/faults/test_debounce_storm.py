"""Fifty producers debounce one call at random moments, while consumers run it."""

import json
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from random import Random

import pytest

from djqueue import queues
from tests.faults import ledger
from tests.faults.debouncing.commands import WINDOW, debounced
from tests.faults.debouncing.management.commands.call_debounced import call_debounced
from tests.faults.processes import PATIENCE, at_rest, full, seeded
from tests.faults.stores import STORES
from tests.support.consumer import only, serving

OWN_APPS = ["tests.faults.debouncing"]
PROCESSES, THREADS = 5, 10
SECONDS = full(2, 60)
ROUNDED = 0.001
"""Seconds by which a moment may be rounded."""


@pytest.mark.slow
@pytest.mark.backends(*STORES)
def test_df14_df15_runs_keep_their_distance_and_no_call_is_lost(consumers):
    """From five processes, with two consumers."""
    consumers.start_many(2, "-t", 2)
    chance = seeded()
    producers = [consumers.site.start("call_debounced", THREADS, SECONDS, chance.random()) for _ in range(PROCESSES)]
    assert [producer.wait(SECONDS + PATIENCE) for producer in producers] == [0] * PROCESSES
    told = [one for producer in producers for one in json.loads(producer.lines[-1])]
    at_rest()
    check(consumers.ledger, told)
    assert consumers.stop() == [0, 0]


@pytest.mark.slow
@pytest.mark.backends("memory")
def test_df14_df15_in_memory_too(backend, settings, tmp_path, monkeypatch):
    settings.QUEUES = backend.queues()
    monkeypatch.setenv("DJQUEUE_LEDGER", str(tmp_path / "ledger"))
    seed = seeded()
    chances = [Random(seed.random()) for _ in range(PROCESSES * THREADS)]
    with only(debounced), serving(threads=2), ThreadPoolExecutor(len(chances)) as pool:
        told = list(pool.map(lambda chance: call_debounced(chance, SECONDS), chances))
        at_rest()
    check(ledger.Ledger(tmp_path / "ledger"), told)


def check(kept, told):
    """What was put ran, once; it fell due no more often than once a window; and something began after the last call."""
    put = {id for _, _, ids in told for id in ids}
    due = sorted(float(event.what[4:]) for event in kept.look() if event.what.startswith("due="))
    starts = kept.of("start")
    nearest = min(later - earlier for earlier, later in pairwise(due))
    print(f"{sum(calls for calls, _, _ in told)} calls, {len(put)} put, {len(starts)} starts, nearest {nearest:.6f} s")
    found = kept.check(put)
    assert (found.lost, found.unexpected, found.dup_runs, len(due)) == (set(), set(), 0, len(put))
    assert nearest >= WINDOW - ROUNDED
    assert max(event.at for event in starts) >= max(last for _, last, _ in told)
    assert SECONDS / WINDOW / 3 <= len(put) <= (due[-1] - due[0]) / WINDOW + 2
    assert queues["default"].stats().failed == 0
