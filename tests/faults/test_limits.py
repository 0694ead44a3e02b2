"""What befalls a process from inside: no consumer lives on that runs nothing, and what others wait for is run."""

import os
import sys

import pytest
from django.db import OperationalError

from djqueue import queues
from tests.faults.limits.commands import (
    ForkingHandler,
    close_streams,
    end_thread,
    fail_with,
    fill,
    fork_and,
    fork_async_and,
    fork_batch_and,
    innocent,
    open_all,
    stay,
    succeed_with,
    talk,
)
from tests.faults.processes import PATIENCE, STUCK, at_rest, full, ids_of, supervise
from tests.faults.stores import STORES
from tests.support.backends import FULL
from tests.support.processes import ROOT, Process, until
from tests.support.server_process import status_of

pytestmark = pytest.mark.slow
OWN_APPS = ["tests.faults.limits"]
SOON = 15.0
"""Seconds within which a consumer that lives runs what is new, on a busy machine too."""
INNOCENTS = full(30, 120)


def sent() -> list[str] | None:
    """The ids of some messages; None if a consumer that stands without memory has the lock of SQLite's file."""
    try:
        return ids_of(innocent.enqueue_many([(5.0,)] * 8))
    except OperationalError:
        return None


# ---- memory


@pytest.mark.backends(*STORES)
@pytest.mark.parametrize("megabytes", [10, 25, 50, 100, 250] if FULL else [50])
def test_what_uses_up_all_memory_ends_no_consumer_that_lives_on(consumers, megabytes):
    """Each goes on, or says 70, or dies: the work of others is run, and what comes then is run soon.

    All threads take from one arena: each has one of its own otherwise, with room that counts as taken already."""
    ids, fills = [], full(6, 12)
    for number in range(fills):
        fill(20 + number, 0.2 if number else 3.0)  # without memory for a second it says 70
        ids += ids_of(innocent.enqueue_many([(5.0,)] * (INNOCENTS // fills)))
    how = {"env": {"DJQUEUE_TEST_MEMORY": str(megabytes), "MALLOC_ARENA_MAX": "1"}}
    codes = supervise(consumers, lambda: consumers.ledger.ended() >= {*ids}, "--lease", 2, timeout=2 * PATIENCE, **how)
    new = until(sent, PATIENCE)
    codes += supervise(consumers, lambda: consumers.ledger.ended() >= {*new}, "--lease", 2, timeout=SOON, **how)
    print(f"ended with {codes}")
    assert all(code == STUCK or code < 0 for code in codes)


def resident(pid):
    """Megabytes of memory in use."""
    return int(status_of(pid)["VmRSS"].split()[0]) / 1024


@pytest.mark.backends("redis")
def test_what_a_failed_command_held_is_let_go_at_once(consumers):
    """Its locals, as those of one that succeeds: an idle consumer collects no garbage."""
    consumer = consumers.start("-t", 4)
    succeed_with.enqueue_many([(100,)] * 4)
    until(lambda: queues["default"].stats().done == 4)
    before = resident(consumer.pid)
    fail_with.enqueue_many([(100,)] * 4)
    until(lambda: len(queues["default"].failed) == 4)
    until(lambda: resident(consumer.pid) < before + 50, 5)


# ---- descriptors, streams, threads


@pytest.mark.backends(*STORES)
def test_a_consumer_without_descriptors_says_so_and_ends(consumers):
    consumers.start("--lease", 2)
    ids = ids_of(innocent.enqueue_many([(5.0,)] * 10))
    open_all()
    ids += ids_of(innocent.enqueue_many([(5.0,)] * INNOCENTS))
    codes = supervise(consumers, lambda: consumers.ledger.ended() >= {*ids}, "--lease", 2, timeout=PATIENCE)
    at_rest()
    assert set(codes) <= {STUCK}
    assert len(consumers.ledger.of("opens")) <= 2


@pytest.mark.backends(*STORES)
def test_a_command_that_closes_the_standard_streams_costs_nothing_else(consumers):
    consumers.start("--lease", 2, "-t", 2)
    ids = ids_of(innocent.enqueue_many([(5.0,)] * 5))
    close_streams.enqueue_many([()] * 3)
    ids += ids_of(innocent.enqueue_many([(5.0,)] * INNOCENTS))
    consumers.ledger.wait_all("end", ids, PATIENCE)
    stats = at_rest()
    assert (stats.leased, stats.done + stats.failed) == (0, len(ids) + 3)
    assert consumers.stop() == [0]


@pytest.mark.backends("redis")
@pytest.mark.parametrize("closed", ["0<&- 1>&- 2>&-", *(["1>&-", "2>&-"] if FULL else [])])
def test_a_consumer_that_began_without_standard_streams_speaks_to_nobody_else(consumers, tmp_path, closed):
    """Else what a command prints would go to the socket that has the number of standard output."""
    talk.enqueue_many([()] * 20)
    consumer = f"{sys.executable} -m django queue_consumer --drain -n -l {tmp_path / 'log'} {closed}"
    env = {"DJANGO_SETTINGS_MODULE": "tests.site_settings", "PYTHONPATH": str(ROOT), **consumers.site.env}
    with Process(["sh", "-c", f"exec {consumer}"], env) as process:
        assert process.wait() == 0
    assert (queues["default"].stats().done, len(queues["default"].failed)) == (20, 0)
    assert "failed" not in (tmp_path / "log").read_text()


@pytest.mark.backends(*STORES)
@pytest.mark.parametrize("name", ["djqueue-pump", "djqueue-housekeeper", "djqueue-announcer", "djqueue-reaper"])
def test_a_consumer_one_of_whose_threads_was_killed_goes_on_or_says_70(consumers, name):
    """One after the other: what kills a thread while that logs its first end would leave the lock of the log taken."""
    consumers.start("--lease", 2)
    codes = []
    for _ in range(2):
        ids = ids_of(innocent.enqueue_many([(5.0,)] * 20))
        ids.append(end_thread(name).id)
        ids += ids_of(innocent.enqueue_many([(5.0,)] * 20))
        codes += supervise(
            consumers, lambda ids=ids: consumers.ledger.ended() >= {*ids}, "--lease", 2, timeout=PATIENCE
        )
    at_rest()
    assert set(codes) <= {STUCK}


@pytest.mark.backends("redis")
def test_70_ends_the_process_whatever_threads_its_commands_have_begun(consumers, release_file):
    consumer = consumers.start("-t", 1)
    stay(str(release_file))
    consumers.ledger.wait("stays")
    open_all()
    innocent()
    assert consumer.wait() == STUCK


# ---- children


@pytest.mark.backends(*STORES)
def test_a_command_whose_child_returns_exits_or_raises_runs_once(consumers):
    """The child ends there: it settles nothing, runs nothing else, and does not stay."""
    consumer = consumers.start("-t", 4, "--lease", 5)
    ids = ids_of(innocent.enqueue_many([(5.0,)] * 20))
    guilty = []
    for how in ("return", "exit", "raise"):
        for command in (fork_and, fork_async_and):
            guilty += ids_of(command.enqueue_many([(how,)] * 3))
    guilty.append(fork_batch_and("raise").id)
    ids += ids_of(innocent.enqueue_many([(5.0,)] * 20))
    consumers.ledger.wait_all("end", ids, PATIENCE)
    consumers.ledger.wait_all("forked", guilty, PATIENCE)
    stats = at_rest()
    assert (stats.done, stats.failed) == (len(ids) + len(guilty), 0)
    assert len(consumers.ledger.of("end")) == len(ids)
    assert len(consumers.ledger.of("forked")) == len(guilty)
    assert consumers.ledger.pids() == {consumer.pid}
    assert consumers.stop() == [0]
    assert "the child of a command fails" in consumer.output
    assert family(consumer.pid) == []


@pytest.mark.backends("redis")
def test_the_children_of_a_handler_end_too(consumers):
    consumer = consumers.start("-t", 2)
    handles = ForkingHandler.enqueue("a", "b", "c")
    consumers.ledger.wait("performed", 3)
    assert at_rest().done == len(handles)
    assert consumers.stop() == [0]
    assert family(consumer.pid) == []


def family(pid):
    """The processes that a consumer, which leads a session of its own, has left."""
    return [one for one in os.listdir("/proc") if one.isdigit() and int(one) != pid and _session(one) == pid]


def _session(pid):
    try:
        return os.getsid(int(pid))
    except ProcessLookupError:
        return None
