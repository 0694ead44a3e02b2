"""A message that kills its worker every time ends in the failed queue; those next to it do not."""

import os
import sys
import time

import pytest

from djqueue import Throttle, queues
from djqueue.exceptions import CommandFailed
from djqueue.messages.failures import errors_of
from tests.faults.commands import die, die_by_abort, die_by_exit, die_by_sigkill, work
from tests.faults.processes import PATIENCE, at_rest, ids_of, reasons, supervise
from tests.faults.stores import STORES
from tests.support.processes import ROOT, Process

pytestmark = pytest.mark.slow


class ExitsWhenDecoded:
    """An argument that ends the process that reads it."""

    def __reduce__(self):
        return os._exit, (7,)


@pytest.mark.backends(*STORES)
def test_what_kills_its_worker_is_put_aside_and_its_neighbours_are_not_to10(consumers):
    """TO-10: while a supervisor restarts the consumer, poison is started `max_lost` times and 200 good ones run.

    The last start is made in a process of its own, and the consumer lives.
    """
    good = ids_of(work.enqueue_many([(1.0,)] * 100))
    poison = {die_by_exit().id: 3}
    good += ids_of(work.enqueue_many([(1.0,)] * 100))
    deaths = supervise(consumers, lambda: len(queues["default"].failed) == 1)
    poison |= {die_by_abort().id: 2}
    deaths += supervise(consumers, lambda: len(queues["default"].failed) == 2)
    consumers.ledger.wait_all("end", good, PATIENCE)
    stats = at_rest()
    assert (stats.done, stats.failed) == (len(good), len(poison))
    assert consumers.ledger.starts(poison) == poison
    ends = dict(zip(poison, ("exit code 7", "SIGABRT"), strict=True))
    assert reasons() == {id: reason(count, ends[id]) for id, count in poison.items()}
    assert not consumers.ledger.check(good).lost
    assert len(deaths) == sum(poison.values()) - len(poison)
    assert consumers.stop() == [0]


@pytest.mark.backends(*STORES)
def test_what_kills_its_worker_while_its_arguments_are_decoded_is_put_aside_too(consumers):
    good = ids_of(work.enqueue_many([(1.0,)] * 20))
    poison = die(ExitsWhenDecoded())
    good += ids_of(work.enqueue_many([(1.0,)] * 20))
    deaths = supervise(consumers, lambda: len(queues["default"].failed) == 1)
    consumers.ledger.wait_all("end", good, PATIENCE)
    assert (len(consumers.ledger.of("start", {poison.id})), len(deaths)) == (0, 2)
    assert reasons() == {poison.id: reason(3, "exit code 7")}
    assert not consumers.ledger.check(good).lost
    assert consumers.stop() == [0]


@pytest.mark.backends(*STORES)
def test_df21_what_kills_its_worker_ends_in_the_failed_queue_after_its_attempts(consumers):
    """DF-21: three starts that nobody reported, and one that raised does not count among them; its neighbours end."""
    ends_after_its_attempts(consumers, "after a failure", 1)


@pytest.mark.backends(*STORES)
@pytest.mark.parametrize("how", ["exit", "abort"])
def test_df21_however_it_kills_its_worker(consumers, how):
    """On each store in the full size: how a process ends is told by its parent, whatever the store."""
    ends_after_its_attempts(consumers, how, 0)


def ends_after_its_attempts(consumers, how, failed):
    """The last start is made in a process of its own, and the consumer lives."""
    good = ids_of(work.enqueue_many([(1.0,)] * 20))
    poison = die(how)
    good += ids_of(work.enqueue_many([(1.0,)] * 20))
    deaths = supervise(consumers, lambda: len(queues["default"].failed) == 1)
    consumers.ledger.wait_all("end", good, PATIENCE)
    stats = at_rest()
    assert (stats.done, stats.failed) == (len(good), 1)
    assert (len(consumers.ledger.of("start", {poison.id})), len(deaths)) == (3 + failed, 2)
    assert not consumers.ledger.check(good).lost
    entry = queues["default"].failed.find(poison.id).entry
    assert (entry.lost, entry.failures) == (3, failed)
    assert [note["reason"] for note in errors_of(entry.errors)] == [
        *["RuntimeError: it begins like this"] * failed,
        reason(3, "SIGABRT" if how == "abort" else "exit code 7"),
    ]
    assert poison.status == "failed"
    with pytest.raises(CommandFailed, match="worker died: 3 attempts never reported"):
        poison.get(timeout=20)
    assert consumers.stop() == [0]


@pytest.mark.backends("redis", "sqlite")
def test_what_is_throttled_and_kills_its_worker_takes_two_consumers_down_at_most(consumers):
    good = ids_of(work.enqueue_many([(1.0,)] * 20))
    poison = die_by_sigkill.using(throttle=Throttle(2, 0.5)).enqueue()
    good += ids_of(work.enqueue_many([(1.0,)] * 20))
    deaths = supervise(consumers, lambda: len(queues["default"].failed) == 1)
    consumers.ledger.wait_all("end", good, PATIENCE)
    assert (len(consumers.ledger.of("start", {poison.id})), len(deaths)) == (3, 2)
    assert reasons() == {poison.id: reason(3, "SIGKILL")}
    assert consumers.stop() == [0]


@pytest.mark.backends(*STORES)
def test_in_a_program_of_ones_own_it_runs_alone_and_takes_two_consumers_down_at_most(consumers):
    """Where no process of its own can be had: what was near it when it first killed is run, and lost once at most."""
    good = ids_of(work.enqueue_many([(200.0,)] * 20))
    poison = die_by_exit()
    good += ids_of(work.enqueue_many([(200.0,)] * 20))
    deaths, most_lost, program = [], 0, embedded(consumers.site)
    is_over = lambda: reasons() and consumers.ledger.ended() == set(good)  # noqa: E731
    while not is_over():
        entries = [one.entry for one in queues["default"].peek("leased", 100)]
        most_lost = max([most_lost, *(entry.lost for entry in entries if entry.id in good)])
        if program.popen.poll() is not None:
            deaths.append(program.wait())
            assert len(deaths) <= 2
            program = embedded(consumers.site)
        time.sleep(0.02)
    assert (deaths, len(consumers.ledger.of("start", {poison.id}))) == ([7, 7], 2)
    assert most_lost <= 1  # a start that was over soon was not noted
    assert reasons() == {poison.id: "worker died: 2 attempts never reported"}
    assert at_rest().done == len(good)
    program.term()


def embedded(site):
    """A program that configures Django by itself and runs a consumer."""
    command = [sys.executable, "-m", "tests.faults.embedded", "1.0"]
    return site.keep(Process(command, {**site.env, "PYTHONPATH": str(ROOT)}))


def reason(count: int, end: str) -> str:
    return f"worker died: {count} attempts never reported; the last one ended by {end}"
