"""A supervisor and its processes: which die, are replaced under load, and end together."""

import os
import re
import signal
from datetime import UTC, datetime
from pathlib import Path

import pytest

from djqueue import queues
from tests.faults import ledger
from tests.faults.commands import hold, hold_the_gil_once, keep, work
from tests.faults.processes import assert_done, ids_of, seeded, tick_id
from tests.faults.stores import STORES
from tests.support.processes import until
from tests.support.server_process import status_of

pytestmark = pytest.mark.slow
OWN_APPS = ["tests.faults.roster"]
ONE_IS_ENOUGH = pytest.mark.backends("redis")
PATIENCE = 120.0
"""Seconds: a process takes one to start on an idle machine, and here several start at once."""


def wait(consumers, what, count=1, ids=None):
    return consumers.ledger.wait(what, count, ids, timeout=PATIENCE)


def start(consumers, count, *args, env=None):
    """A supervisor, once its processes serve."""
    supervisor = consumers.start("--processes", count, *args, env=env)
    wait(consumers, "ready", count)
    return supervisor


def keep_filled(ids):
    """See that something waits to be run, and note its ids."""
    if len(queues["default"]) < 20:
        ids |= set(ids_of(work.enqueue_many([(10,)] * 50)))
    return True


def busy(consumers):
    """The processes of the consumer that run something; a suspect runs in one of its own."""
    serving = consumers.ledger.pids("ready")
    return [event.pid for event in consumers.ledger.running() if event.pid in serving and not is_gone(event.pid)]


def is_gone(pid):
    return not Path(f"/proc/{pid}").exists()


def all_gone(consumers):
    pids = consumers.ledger.pids("ready")
    until(lambda: all(map(is_gone, pids)), PATIENCE)


@pytest.mark.backends(*STORES)
def test_a_killed_process_is_started_again_and_what_it_ran_is_run(consumers):
    start(consumers, 2, "-t", 2, "--lease", 1)
    ids = set()
    os.kill(until(lambda: keep_filled(ids) and busy(consumers), PATIENCE)[0], signal.SIGKILL)
    wait(consumers, "ready", 3)
    assert_done(consumers, ids)
    assert consumers.stop() == [0]
    all_gone(consumers)


@pytest.mark.backends(*STORES)
@pytest.mark.parametrize(
    ("count", "bound"),
    [
        (2, ("--max-messages", 60)),
        pytest.param(1, ("--max-messages", 60), marks=pytest.mark.full),
        pytest.param(2, ("--max-age", 1), marks=pytest.mark.full),
    ],
    ids=str,
)
def test_processes_are_replaced_under_load_without_a_gap(consumers, count, bound):
    """Nothing is lost, nothing is run twice, and at no moment do fewer serve than are wanted."""
    start(consumers, count, "-t", 2, *bound)
    ids = set()
    until(lambda: keep_filled(ids) and len(consumers.ledger.of("ready")) > 3 * count, PATIENCE)
    found = assert_done(consumers, ids)
    assert (found.dup_runs, found.overlaps) == (0, set())
    assert least_serving(consumers.ledger.look(), count) >= count
    assert consumers.stop() == [0]
    all_gone(consumers)


def least_serving(events, count):
    """The least number of processes that serve, once so many do."""
    serving, seen = 0, []
    for event in events:
        serving += {"ready": 1, "stopping": -1}.get(event.what, 0)
        seen += [serving] if seen or serving == count else []
    return min(seen)


@ONE_IS_ENOUGH
def test_a_process_with_too_much_memory_is_replaced(consumers):
    start(consumers, 1, "--max-memory", 250)
    keep(200)
    first, second = wait(consumers, "ready", 2)
    [stopping] = wait(consumers, "stopping")
    assert (stopping.pid, second.pid != first.pid) == (first.pid, True)
    assert consumers.stop() == [0]


@ONE_IS_ENOUGH
def test_what_runs_in_a_replaced_process_may_end_whatever_the_grace(consumers, release_file):
    start(consumers, 1, "-t", 2, "--max-messages", 1, "--grace", 0)
    id = hold(str(release_file)).id
    wait(consumers, "start")
    work()
    first, second = wait(consumers, "ready", 2)
    wait(consumers, "stopping")
    wait(consumers, "end")
    more = work().id
    assert [event.pid for event in wait(consumers, "end", ids={more})] == [second.pid]
    release_file.touch()
    assert [event.pid for event in wait(consumers, "end", ids={id})] == [first.pid]
    until(lambda: is_gone(first.pid), PATIENCE)
    assert consumers.stop() == [0]


@pytest.mark.backends(*STORES)
def test_at_a_stop_all_processes_let_end_what_runs_and_start_nothing(consumers, release_file):
    supervisor = start(consumers, 2, "-t", 2)
    hold.enqueue_many([(str(release_file),)] * 6)
    wait(consumers, "start", 4)
    supervisor.term()
    wait(consumers, "stopping", 2)
    release_file.touch()
    assert supervisor.wait(PATIENCE) == 0
    assert len(consumers.ledger.of("start")) == len(consumers.ledger.of("end")) == 4
    stats = queues["default"].stats()
    assert (stats.ready, stats.leased, stats.done) == (2, 0, 4)
    all_gone(consumers)


@ONE_IS_ENOUGH
@pytest.mark.parametrize("again", [False, True])
def test_a_ctrl_c_for_all_processes_of_a_terminal_is_one_stop(consumers, release_file, again):
    supervisor = start(consumers, 2, "-t", 1, "--grace", 600)
    hold.enqueue_many([(str(release_file),)] * 2)
    wait(consumers, "start", 2)
    os.killpg(supervisor.pid, signal.SIGINT)
    wait(consumers, "stopping", 2)
    if again:
        os.killpg(supervisor.pid, signal.SIGINT)
    else:
        release_file.touch()
    assert supervisor.wait(PATIENCE) == int(again)
    stats = queues["default"].stats()
    assert (stats.ready, stats.leased, stats.done) == ((2, 0, 0) if again else (0, 0, 2))
    all_gone(consumers)


@ONE_IS_ENOUGH
def test_a_ctrl_c_while_the_processes_start_ends_all_without_a_traceback(consumers):
    supervisor = consumers.start("--processes", 2)
    os.killpg(supervisor.pid, signal.SIGINT)
    assert supervisor.wait(PATIENCE) == 0
    assert "Traceback" not in supervisor.output


@pytest.mark.backends(*STORES)
def test_when_the_supervisor_is_killed_its_processes_stop_and_nothing_is_lost(consumers, release_file):
    supervisor = start(consumers, 2, "-t", 1)
    ids = set(ids_of(hold.enqueue_many([(str(release_file),)] * 3)))
    wait(consumers, "start", 2)
    supervisor.popen.kill()
    wait(consumers, "stopping", 2)
    release_file.touch()
    all_gone(consumers)
    stats = queues["default"].stats()
    assert (stats.ready, stats.leased, stats.done) == (1, 0, 2)
    consumers.members.clear()
    start(consumers, 1, "--max-age", 600)
    assert assert_done(consumers, ids).dup_runs == 0


@ONE_IS_ENOUGH
def test_one_process_keeps_the_schedule_and_another_one_once_it_is_killed(consumers):
    consumers.args = ("-d", "0.02", "-m", "0.1")
    supervisor = start(consumers, 3)
    wait(consumers, "end", 2)
    [keeper] = consumers.ledger.of("keeps")
    os.kill(keeper.pid, signal.SIGKILL)
    supervisor.wait_for("has scheduler and reaper now", PATIENCE)
    ticks = len({event.id for event in consumers.ledger.of("end")})
    wait(consumers, "end", ticks + 3)
    assert consumers.stop() == [0]
    assert_ticked_once(consumers)


def assert_ticked_once(consumers, others=()):
    """All that ran, next to these others, are ticks of the schedule, and each ran once."""
    now, ends = int(queues["default"].now()), [event.id for event in consumers.ledger.of("end")]
    ends = [id for id in ends if id not in others]
    moments = [datetime.fromtimestamp(second, UTC) for second in range(now - 300, now + 1)]
    known = {tick_id("tests.faults.roster.commands.tick", f"{moment:%Y-%m-%dT%H:%M:%S.%fZ}") for moment in moments}
    assert len(ends) == len(set(ends)) and set(ends) <= known


@ONE_IS_ENOUGH
def test_processes_that_die_again_and_again_are_started_less_and_less_often(consumers):
    supervisor = start(consumers, 1, "--max-age", 600, env={"DJQUEUE_DIES_AFTER": "0.1"})
    first, second, third, fourth = (event.at for event in wait(consumers, "ready", 4))
    assert third - second >= 1.1
    assert fourth - third >= 2.1
    supervisor.wait_for("has ended: exit code 7; another starts in 4 s", PATIENCE)
    supervisor.term()
    assert supervisor.wait(PATIENCE) == 0


@ONE_IS_ENOUGH
def test_storms_of_kills_lose_nothing(consumers):
    chance = seeded()
    start(consumers, 2, "-t", 2, "--lease", 1, "--max-messages", 50)
    ids = set()
    for _ in range(3):
        os.kill(chance.choice(until(lambda: keep_filled(ids) and busy(consumers), PATIENCE)), signal.SIGKILL)
    assert_done(consumers, ids)
    assert consumers.stop() == [0]
    all_gone(consumers)


# ---- One that stands still

NOTICED = 15.0
"""Seconds in which it is."""
HANDED_OVER = 10.0
"""Seconds between two ticks, at most, while the schedule goes to another process; on an idle machine it is 5."""


def stop(pid):
    """Stop a process, and see that it is."""
    os.kill(pid, signal.SIGSTOP)
    until(lambda: status_of(pid)["State"][0] == "T")


def hang_main_thread(pid):
    os.kill(pid, signal.SIGUSR1)


def gap(consumers, ids, since):
    """The longest time without a tick from a moment on."""
    seen = sorted(event.at for event in consumers.ledger.of("start") if event.id not in ids and event.at > since)
    return max(later - earlier for earlier, later in zip([since, *seen], seen, strict=False))


@pytest.mark.backends("redis", "postgres")
@pytest.mark.parametrize(("halt", "words"), [(stop, "stopped by a signal"), (hang_main_thread, "main thread hangs")])
def test_one_that_stands_still_is_replaced_and_work_schedule_and_reaping_go_on(consumers, halt, words):
    consumers.args = ("-d", "0.02", "-m", "0.1")
    supervisor = start(consumers, 2, "-t", 2, "--lease", 4)
    [keeper] = consumers.ledger.of("keeps")
    wait(consumers, "end", 2)
    ids = set()
    until(lambda: keep_filled(ids) and keeper.pid in busy(consumers), PATIENCE)
    halt(keeper.pid)
    since = ledger.now()
    line = supervisor.wait_for("has stood still", NOTICED)
    assert re.search(rf"\(pid {keeper.pid}\) has stood still for 1[0-4] s", line)
    assert words in line
    wait(consumers, "ready", 3)
    assert is_gone(keeper.pid)
    consumers.ledger.wait_all("end", ids, PATIENCE)
    ticks = len(consumers.ledger.of("end"))
    wait(consumers, "end", ticks + 3)
    assert gap(consumers, ids, since) < HANDED_OVER
    assert consumers.stop() == [0]


@ONE_IS_ENOUGH
def test_one_in_which_a_command_holds_the_gil_is_replaced_and_what_it_had_is_run(consumers, tmp_path):
    supervisor = start(consumers, 2, "-t", 2, "--lease", 4)
    id = hold_the_gil_once(str(tmp_path / "mark")).id
    [began] = wait(consumers, "start", ids={id})
    others = set(ids_of(work.enqueue_many([(10,)] * 50)))
    line = supervisor.wait_for("has stood still", NOTICED)
    assert f"(pid {began.pid})" in line
    assert_done(consumers, {id, *others})
    wait(consumers, "ready", 3)
    assert consumers.stop() == [0]


@ONE_IS_ENOUGH
def test_one_that_moves_again_in_time_is_not_disturbed(consumers):
    consumers.args = ("-d", "0.02", "-m", "0.1")
    supervisor = start(consumers, 2, "-t", 2, "--lease", 60)
    [keeper] = consumers.ledger.of("keeps")
    ids = set()
    until(lambda: keep_filled(ids) and keeper.pid in busy(consumers), PATIENCE)
    stop(keeper.pid)
    supervisor.wait_for("has scheduler and reaper now", NOTICED)
    os.kill(keeper.pid, signal.SIGCONT)
    since = ledger.now()
    until(
        lambda: (
            keep_filled(ids) and any(one.pid == keeper.pid and one.at > since for one in consumers.ledger.of("start"))
        )
    )
    consumers.ledger.wait_all("end", ids, PATIENCE)
    assert "has stood still" not in supervisor.output
    assert len(consumers.ledger.of("ready")) == 2
    assert consumers.stop() == [0]
    assert_ticked_once(consumers, ids)
