"""Several schedulers keep one schedule."""

from datetime import UTC, datetime, timedelta

import pytest

from djqueue import queues, schedules
from tests.faults import ledger
from tests.faults.processes import at_rest, tick_id
from tests.faults.stores import STORES
from tests.faults.timetable.commands import beat

pytestmark = pytest.mark.slow
OWN_APPS = ["tests.faults.timetable"]
EPOCH = datetime(2030, 1, 1, 11, 59, 50, tzinfo=UTC)
MINUTES = 24
COMMANDS = "tests.faults.timetable.commands."
SPEED = 400.0
"""Minutes pass in 150 ms: all schedulers wake at the same moment, as they do in earnest."""


@pytest.mark.backends(*STORES)
def test_each_tick_is_enqueued_once_by_three_schedulers_and_a_restart_dj12(consumers, tmp_path):
    """DJ-12, DJ-13, SQ-19: one of three is killed and replaced. Ticks are run as they come, so none hides another."""
    noon = EPOCH + timedelta(seconds=10)
    schedules.add("beat", beat, every=60, start=noon, missed="all")
    consumers.start()
    start, end = tmp_path / "start", EPOCH.timestamp() + MINUTES * 60

    def start_one():
        return consumers.site.start("keep_schedule", start, EPOCH.timestamp(), SPEED, end)

    keepers = [start_one() for _ in range(3)]
    for keeper in keepers:
        keeper.wait_for("begins", 120)
    start.write_text(f"{ledger.now():.6f}")
    consumers.ledger.wait("end", 10)
    keepers.pop().kill9()
    keepers.append(start_one())
    assert [keeper.wait() for keeper in keepers] == [0] * 3
    at_rest()
    assert_each_once(consumers.ledger, "tick", 1)
    assert_each_once(consumers.ledger, "tock", 2)
    assert_each_once(consumers.ledger, "beat", 1)


def assert_each_once(ledger, name, step):
    """No tick from the first that ran to the last minute is missing, none ran twice."""
    of_id = {id_of(name, EPOCH + timedelta(minutes=n)): n for n in range(-60, MINUTES + 1)}
    ran = sorted(of_id[end.id] for end in ledger.of("end", of_id.keys()))
    assert ran == list(range(ran[0], MINUTES + 1, step))[: len(ran)]
    assert len(ran) >= MINUTES // 4 // step  # however late the first scheduler was there
    assert ran[-1] + step > MINUTES


def id_of(name, moment):
    if name == "beat":
        return tick_id("schedule:beat", f"{moment:%Y-%m-%dT%H:%M}:00.000000Z")
    return tick_id(f"{COMMANDS}{name}", f"{moment:%Y-%m-%dT%H:%MZ}")


@pytest.mark.full
@pytest.mark.backends("postgres", "redis-blocking")
def test_three_consumers_keep_the_minutes_dj12(consumers):
    """DJ-12, with the clock on the wall."""
    consumers.args = ("-d", "0.02", "-m", "0.1")
    consumers.start_many(3)
    began = datetime.fromtimestamp(queues["default"].now(), UTC).replace(second=0, microsecond=0)
    minutes = [began + timedelta(minutes=n) for n in (1, 2)]
    due = {id_of("tick", minute) for minute in minutes}
    due |= {id_of("tock", minute) for minute in minutes if minute.minute % 2 == 0}
    consumers.ledger.wait_all("end", due, timeout=150)
    assert at_rest().done == len(consumers.ledger.of("end")) == len(due)
