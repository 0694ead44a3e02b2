"""Async commands that harm the event loop of their consumer: those next to them run to their end all the same."""

import pytest

from tests.faults.misdeeds.commands import (
    block,
    break_the_loop,
    die_by_exit,
    fork_in_callbacks,
    innocent,
    leave_a_task,
    misbehave,
)
from tests.faults.processes import PATIENCE, STUCK, at_rest, full, ids_of, reasons, seeded, supervise
from tests.support.misdeeds import MISDEEDS
from tests.support.processes import until
from tests.support.server_process import children_of, is_running

pytestmark = pytest.mark.slow
OWN_APPS = ["tests.faults.misdeeds"]
INNOCENTS, FEW = full(40, 200), 10
"""How many there are, and how many of them run before the first misdeed."""
ALONE = {
    "exit in an exception handler": "a loop has one handler: of two messages that set one, the second answers for both",
    "exit in a stray task as it ends": "who cancels all tasks may cancel this one before its first step",
}
"""What cannot be done next to the other misdeeds, and why: tests/consumer/test_coroutines.py has each alone."""
DISTURBED = {"exit in a stray task", "interrupt in a stray task", "exit in a done callback"}
"""What starts a task: if a neighbour cancels that before its first step, the message comes again."""
TOGETHER = "--coroutines", INNOCENTS + len(MISDEEDS), "-t", 4


@pytest.mark.backends("redis")
def test_what_commands_do_to_the_loop_costs_them_alone(consumers):
    """Each misdeed at once, among innocents that wait for two seconds: one consumer runs them all, and lives."""
    innocents, guilty = ids_of(innocent.enqueue_many([(3.0,)] * FEW)), {}
    consumer = consumers.start(*TOGETHER)
    consumers.ledger.wait_all("start", innocents)
    calls = [None] * (INNOCENTS - FEW) + [how for how in MISDEEDS if how not in ALONE]
    seeded().shuffle(calls)
    for how in calls:
        if how is None:
            innocents.append(innocent(2.0).id)
        else:
            guilty[misbehave(how).id] = how
    consumers.ledger.wait_all("end", innocents, PATIENCE)
    stats, told = at_rest(timeout=2 * PATIENCE), reasons()
    assert [how for id, how in guilty.items() if id not in told] == []
    assert (stats.done, stats.failed, consumer.popen.poll()) == (len(innocents), len(guilty), None)
    wrong = {how: told[id] for id, how in guilty.items() if not all(part in told[id] for part in MISDEEDS[how][1])}
    assert wrong == {}
    again = {guilty[id] for id, starts in consumers.ledger.starts(guilty).items() if starts > 1}
    assert again <= DISTURBED
    assert consumers.ledger.check(innocents).dup_runs == 0
    assert consumers.stop() == [0]


@pytest.mark.backends("postgres")
def test_what_a_loop_dies_of_is_lost_and_then_runs_in_a_process_of_its_own(consumers):
    """Nothing says what breaks the loop, so all of them are suspects after two deaths."""
    innocents = ids_of(innocent.enqueue_many([(1.0,)] * 10))
    guilty = break_the_loop().id
    deaths = supervise(consumers, lambda: guilty in reasons(), *TOGETHER)
    consumers.ledger.wait_all("end", innocents, PATIENCE)
    stats = at_rest()
    assert (stats.done, stats.failed, deaths) == (len(innocents), 1, [STUCK, STUCK])
    assert consumers.ledger.starts([guilty]) == {guilty: 3}
    assert consumers.stop() == [0]


@pytest.mark.backends("redis")
def test_what_kills_its_process_runs_in_one_of_its_own_in_the_end(consumers):
    innocents = ids_of(innocent.enqueue_many([(1.0,)] * 10))
    guilty = die_by_exit().id
    supervise(consumers, lambda: guilty in reasons(), *TOGETHER, "--lease", 0.5)
    consumers.ledger.wait_all("end", innocents, PATIENCE)
    stats = at_rest()
    assert (stats.done, stats.failed) == (len(innocents), 1)
    assert "worker died: 3 attempts never reported; the last one ended by exit code 7" in reasons()[guilty]
    assert consumers.stop() == [0]


@pytest.mark.backends("redis")
def test_what_blocks_the_loop_for_longer_than_its_lease_is_lost_alone(consumers):
    """Twice the consumer asks to be replaced; in a process of its own the function may block as long as it likes."""
    innocents = ids_of(innocent.enqueue_many([(2.0,)] * 10))
    guilty = block(12.0).id
    deaths = supervise(consumers, lambda: guilty in consumers.ledger.ended(), *TOGETHER, "--lease", 2)
    consumers.ledger.wait_all("end", innocents, PATIENCE)
    stats = at_rest()
    assert (stats.done, stats.failed, deaths) == (len(innocents) + 1, 0, [STUCK, STUCK])
    assert consumers.ledger.starts([guilty]) == {guilty: 3}
    [end] = consumers.ledger.of("end", [guilty])
    assert end.pid not in consumers.ledger.pids("start", innocents), "an innocent was a suspect"
    assert consumers.stop() == [0]


@pytest.mark.backends("redis")
def test_a_task_that_does_not_end_keeps_no_process(consumers):
    leave_a_task()
    consumers.start("--coroutines", 5)
    consumers.ledger.wait("end")
    assert at_rest().done == 1
    assert consumers.stop() == [0]


@pytest.mark.backends("redis")
def test_a_child_forked_by_a_callback_runs_nothing_of_others(consumers):
    innocents = ids_of(innocent.enqueue_many([(1.0,)] * FEW))
    consumer = consumers.start("--coroutines", 20)
    consumers.ledger.wait_all("start", innocents)
    guilty = [fork_in_callbacks().id for _ in range(3)]
    consumers.ledger.wait_all("end", [*innocents, *guilty], PATIENCE)
    assert at_rest().done == FEW + len(guilty)
    assert consumers.ledger.pids("end", [*innocents, *guilty]) == {consumer.pid}
    until(lambda: not any(map(is_running, children_of(consumer.pid))))
    assert consumers.stop() == [0]
