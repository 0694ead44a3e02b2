"""queue_schedules: when schedules tick, and what became of their last ticks."""

import pytest

from djqueue import crontab, operations, periodic_command, queue_command, schedules
from djqueue.testing import run_due, virtual_time
from tests.management.test_operator_commands import epoch, failure, run, run_json
from tests.support.consumer import only, run_one
from tests.support.notes import cleared_per_test

pytestmark = pytest.mark.backends("memory", "sqlite", "redis")
ran = cleared_per_test([])


@periodic_command(crontab(minute="0", hour="3"))
def nightly():
    ran.append("nightly")


@queue_command
def resize(photo):
    ran.append(photo)


@pytest.fixture(autouse=True)
def _schedules(queue):
    ran.clear()
    with only(nightly, resize):
        schedules.add("photo 7", resize, args=(7,), every=60)
        yield
    schedules.remove("photo 7")
    operations.resume("schedule", "photo 7")


def test_it_shows_the_schedules_with_their_next_ticks(queue):
    found = {one["name"]: one for one in run_json("queue_schedules")}
    assert list(found) == ["photo 7", nightly.name]
    made, declared = found.values()
    assert (made["timetable"], made["made"], made["last"], made["outcome"]) == ("every 60 s", True, None, None)
    assert (declared["made"], epoch(declared["next"]) > queue.now()) == (False, True)
    lines = run("queue_schedules").splitlines()
    assert lines[0].split() == ["schedule", "command", "timetable", "next", "last"]
    assert lines[1].startswith("photo 7   resize   every 60 s") and lines[2].split()[:2] == ["nightly", "nightly"]


@pytest.mark.backends("memory")
def test_it_says_what_became_of_the_last_tick(queue):
    with virtual_time() as clock:
        run_due(until=61, periodic=True)
        [made] = [one for one in operations.schedules([queue]) if one.made]
        assert (made.outcome, ran, clock() - made.last < 60) == ("done", [7], True)


def test_one_that_is_paused_says_by_whom(queue):
    operations.pause("schedule", "photo 7", by="ann", why="no disk")
    [line] = [line for line in run("queue_schedules").splitlines() if line.startswith("photo 7")]
    assert line.endswith("by ann: no disk")


def test_one_is_run_beside_its_ticks_and_one_made_at_run_time_is_removed(queue):
    for name in ("photo 7", "nightly"):
        assert run("queue_schedules", "--run", name).startswith(f"The call of {name} is in the queue default: message ")
    run_one(queue)
    run_one(queue)
    assert ran == [7, "nightly"]
    assert "There is no schedule 'photo 8'" in str(failure("queue_schedules", "--run", "photo 8"))
    assert run("queue_schedules", "--remove", "photo 7") == "The schedule photo 7 is removed.\n"
    assert "that was made at run time" in str(failure("queue_schedules", "--remove", "photo 7"))
    assert "is declared in the code" in str(failure("queue_schedules", "--remove", nightly.name))
    assert [one.action for one in operations.actions(limit=3)] == ["remove schedule", "run schedule", "run schedule"]
