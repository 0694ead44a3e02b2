"""Workers that die take no innocent message with them: who was near is not guilty, with the limits as they are."""

import os
import re
from functools import partial

import pytest

from djqueue import queues
from tests.faults import ledger
from tests.faults.commands import die_by_exit, work
from tests.faults.processes import at_rest, full, ids_of, reasons, seeded, supervise
from tests.faults.stores import STORES
from tests.faults.witness.commands import start_once
from tests.support.processes import until

pytestmark = pytest.mark.slow
OWN_APPS = ["tests.faults.witness"]
ENOUGH = 25  # kills, before one such moment counts as little
THREADS = 4
WHY = re.compile(r"worker died: (\d+) attempts never reported; the last one ended by exit code 7")
MOST_LOST, PATIENCE = 3, 5
GUILTY, INNOCENT = full(3, 40), full(40, 300)
SECONDS = float(os.environ.get("DJQUEUE_KILL_SECONDS", full(5, 60)))
"""For so long busy consumers are killed."""
BETWEEN = 0.7
"""Seconds from the begin of who replaces one to the next kill."""
BACKLOG = 200
"""So many messages wait at least while consumers are killed."""


@pytest.mark.backends(*STORES)
def test_many_that_kill_their_workers_are_put_aside_and_no_innocent_with_them(consumers):
    """A supervisor restarts the consumer each time; the guilty stand anywhere among the innocent."""
    guilty, innocent = mixed(seeded())
    consumers.args = (*consumers.args, "-t", THREADS)
    deaths = supervise(consumers, lambda: len(queues["default"].failed) >= GUILTY and guilty <= reasons().keys())
    stats, told = at_rest(), reasons()
    print(f"{len(deaths)} deaths, {consumers.ledger.check(innocent).dup_runs} innocents ran again")
    assert {id: why for id, why in told.items() if id not in guilty} == {}
    assert told.keys() == guilty
    assert (stats.done, stats.failed) == (len(innocent), len(guilty))
    starts = consumers.ledger.starts(guilty)
    assert starts.keys() == guilty
    assert all(WHY.fullmatch(why) for why in told.values())
    counted = {id: int(WHY.fullmatch(why)[1]) for id, why in told.items()}
    # Others may kill the consumer while one runs, which is no proof against that one: so it may be started more often.
    assert all(MOST_LOST <= count < PATIENCE * MOST_LOST and starts[id] <= count for id, count in counted.items())
    assert not consumers.ledger.check(innocent).lost
    assert consumers.stop() == [0]


@pytest.mark.backends(*STORES)
def test_what_no_worker_had_begun_is_not_lost_though_it_was_claimed_for_a_free_one(consumers):
    """It may be lost not once; and when two consumers have died with it in hands it runs."""
    sent = start_once()
    is_over = partial(consumers.ledger.of, "end", [sent.id])
    assert len(supervise(consumers, is_over, "--lease", 3)) == 2  # a busy machine stands still for less than that
    stats, [start] = at_rest(), consumers.ledger.of("start", [sent.id])
    assert (stats.done, stats.failed, start.attempt) == (1, 0, 3)


def mixed(chance) -> tuple[set[str], set[str]]:
    """Messages that kill and messages that do not, in a chance order; the ids of both."""
    guilty, innocent = set(), set()
    calls = [(die_by_exit, guilty)] * GUILTY + [(work, innocent)] * INNOCENT
    chance.shuffle(calls)
    for command, ids in calls:
        ids.add(command().id)
    return guilty, innocent


@pytest.mark.backends(*STORES)
def test_consumers_killed_again_and_again_cost_no_message(consumers):
    """As often as a message may be lost by default; of duplicates no more than were running, taking all kills together.

    A server that stands still for a moment just before a kill has not heard of all that ended in that moment: then
    there are more kills.
    """
    args, chance, ids, kills = ("-t", THREADS, "--lease", 1.0), seeded(), [], 0
    consumers.start_many(3, *args)
    while True:
        end = ledger.now() + SECONDS
        while ledger.now() < end:
            work_for_a_while(ids, chance)
            consumers.kill_busy(chance)
            consumers.start(*args)
            kills += 1
        stats, found = at_rest(), consumers.ledger.check(ids)
        if found.dup_runs <= kills * THREADS or kills >= ENOUGH:
            break
    print(f"{kills} kills, {len(ids)} messages, {found.dup_runs} duplicates, {reasons()}")
    assert (found.lost, stats.failed, found.unexpected) == (set(), 0, set())
    assert found.dup_runs <= kills * THREADS
    assert stats.done == len(ids)


def work_for_a_while(ids, chance):
    """Let the consumers work for a while with always enough to do, so that none is killed at its first message."""
    end = ledger.now() + BETWEEN
    until(lambda: keep_filled(ids, chance) or ledger.now() > end, pause=0.05)


def keep_filled(ids, chance):
    if queues["default"].stats().ready < BACKLOG:
        sent = work.enqueue_many([(chance.uniform(0, 30),) for _ in range(BACKLOG)])
        ids += ids_of(sent)
