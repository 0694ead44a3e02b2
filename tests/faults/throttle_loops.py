"""For minutes throttled commands start, while a consumer is killed every two seconds: part of `make kill-loops`.

Not collected with the tests, as each takes minutes. No window has more starts than it may, and nothing waits for ever.
"""

import os
import time
import warnings
from collections import defaultdict

import pytest

from djqueue import queues
from tests.faults.kill_loops import PATIENCE, SECONDS
from tests.faults.processes import assert_done, seeded
from tests.faults.rates.commands import RATES

OWN_APPS = ["tests.faults.rates"]
OWN_SETTINGS = {"QUEUE_MAX_LOST": 1000}
"""What is killed so often may well be in the hands of very many dead in turn."""
STARTS = int(os.environ.get("DJQUEUE_STARTS", 10_000))
"""As many are enough, though there be time for more."""
KEYS, HOT_KEYS = 100_000, 50
CONSUMERS, ARGS = 2, ("-t", 4, "--lease", 3, "-v", 0)
BETWEEN_KILLS = 2.0
BACKLOG = 2_000
pytestmark = pytest.mark.timeout(SECONDS + 4 * PATIENCE)


@pytest.mark.backends("sqlite", "postgres", "mariadb", "redis", each=True)
@pytest.mark.parametrize("name", RATES)
def test_no_window_has_more_starts_than_it_may_while_consumers_are_killed(consumers, backend, name):
    [throttle], chance, ids, kills = RATES[name].policy.throttle, seeded(), {}, 0
    for _ in range(CONSUMERS):
        consumers.start(*ARGS, up=False)
    began = time.monotonic()
    while time.monotonic() < began + SECONDS and len(consumers.ledger.ended()) < STARTS:
        fill(name, throttle, chance, ids)
        if time.monotonic() > began + BETWEEN_KILLS * (kills + 1):
            replace_one(consumers, chance)
            kills += 1
        time.sleep(0.02)
    took = time.monotonic() - began
    consumers.ledger.wait_all("end", ids, 2 * PATIENCE + len(ids) * throttle.window / throttle.limit)
    found, starts = assert_done(consumers, ids), consumers.ledger.of("start")
    report = f"{backend.id}, {name}: {len(starts)} starts, {kills} kills in {took:.0f} s, {found.dup_runs} ended twice"
    warnings.warn(report, stacklevel=1)
    assert overfull(starts, ids, throttle.limit, throttle.window) == []


def fill(name, throttle, chance, ids):
    """Have enough wait for some seconds; the keys of the rates by message, None where there is one rate."""
    backlog = min(BACKLOG, 20 + round(10 * throttle.limit / throttle.window))
    if len(queues["default"]) > backlog / 2:
        return
    keys = [chance.randrange(chance.choice((KEYS, HOT_KEYS))) for _ in range(backlog // 2)]
    handles = RATES[name].enqueue_many([(key,) for key in keys])
    ids |= {handle.id: key if throttle.key else None for handle, key in zip(handles, keys, strict=True)}


def replace_one(consumers, chance):
    """SIGKILL a consumer, whatever it is at, and start another."""
    victim = chance.choice(consumers.members)
    victim.kill9()
    consumers.members.remove(victim)
    consumers.start(*ARGS, up=False)


def overfull(starts, key_of, limit, window) -> list[tuple]:
    """The windows with more starts than they may have: their key, when they began, and how long they were."""
    moments = defaultdict(list)
    for event in sorted(starts, key=lambda event: event.at):
        moments[key_of[event.id]].append(event.at)
    return [
        (key, first, later - first)
        for key, ats in moments.items()
        for first, later in zip(ats, ats[limit:], strict=False)
        if later - first < window
    ]
