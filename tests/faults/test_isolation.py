"""What a worker has died with runs in a process of its own, and is in every other way run as ever."""

import os
import signal

import pytest

from djqueue import Throttle, queues
from djqueue.backends.base import Entry
from djqueue.exceptions import CommandFailed
from djqueue.messages.envelope import Message, encode, new_id
from djqueue.messages.failures import errors_of
from djqueue.results import Result
from tests.faults.commands import (
    die_by_abort,
    fail,
    hold,
    hold_as_another_program,
    leave_a_child,
    never_end,
    open_files,
    return_pid,
    spoil_environment,
    wait_for_stop,
    work,
)
from tests.faults.processes import at_rest, ids_of, reasons
from tests.faults.stores import STORES
from tests.support.processes import until
from tests.support.server_process import is_running

pytestmark = pytest.mark.slow
ON_EACH = pytest.mark.backends(*STORES)
ON_ONE = pytest.mark.backends("redis")


def put_lost(command, *args, lost=2, **fields) -> str:
    """A message of which so many starts were lost; its id."""
    queue, id = queues["default"], new_id()
    data = encode(Message(id, queue.base_name, command.name, args))
    assert queue.put([Entry(data, id, command=command.name, attempts=lost, lost=lost, **fields)]) == [True]
    return id


@ON_EACH
def test_it_ends_like_any_other_in_another_process_with_its_result(consumers):
    id = put_lost(return_pid)
    consumer = consumers.start()
    consumers.ledger.wait("end", ids={id})
    result = Result(id, return_pid.name, "default")
    assert result.get(timeout=30) not in (consumer.pid, os.getpid())
    assert consumers.ledger.pids() == {result.get()}
    assert result.progress.done == 1
    assert at_rest().done == 1
    until(lambda: not is_running(result.get()))
    assert consumers.stop() == [0]
    assert consumer.wait_for("return_pid done")


@ON_ONE
def test_what_was_lost_for_the_first_time_is_run_as_ever_unless_only_one_more_may_be(consumers):
    first, last = put_lost(return_pid, lost=1), put_lost(die_by_abort, lost=1)  # of that two may be
    consumer = consumers.start()
    consumers.ledger.wait("end", ids={first})
    [start] = consumers.ledger.wait("start", ids={last})
    assert consumers.ledger.of("end", {first})[0].pid == consumer.pid != start.pid
    until(lambda: last in reasons())
    assert reasons()[last] == "worker died: 2 attempts never reported; the last one ended by SIGABRT"
    assert consumers.stop() == [0]


def failed(id):
    """Its entry, and why it failed, once it has."""
    until(lambda: len(queues["default"].failed) == 1)
    entry = queues["default"].failed.find(id).entry
    return entry, errors_of(entry.errors)


class Deadly:
    """An argument that ends the process which reads it."""

    def __reduce__(self):
        return os._exit, (9,)


@ON_ONE
def test_what_kills_by_its_arguments_is_seen_too(consumers):
    id = put_lost(work, Deadly())
    consumers.start()
    until(lambda: id in reasons())
    assert reasons()[id] == "worker died: 3 attempts never reported; the last one ended by exit code 9"
    assert consumers.stop() == [0]


@ON_ONE
def test_fresh_work_goes_on_beside_it(consumers, release_file):
    lost = [put_lost(hold, str(release_file)) for _ in range(3)]
    consumer = consumers.start("-t", 4)
    consumers.ledger.wait_all("start", lost)
    fresh = ids_of(work.enqueue_many([()] * 20))
    consumers.ledger.wait_all("end", fresh)
    assert consumers.ledger.pids("end", fresh) == {consumer.pid}
    release_file.touch()
    consumers.ledger.wait_all("end", lost)
    assert len(consumers.ledger.pids("end", lost)) == 3


@ON_ONE
@pytest.mark.parametrize(
    ("how", "named", "text"),
    [
        ("plain", "builtins.RuntimeError", "it fails"),
        ("unpicklable", "builtins.RuntimeError", "Unpicklable: not to be carried anywhere"),
    ],
)
def test_what_it_raises_is_told_with_the_place_where_it_was_raised(consumers, how, named, text):
    id = put_lost(fail, how)
    consumers.start()
    entry, [note] = failed(id)
    assert (note["exception"], note["text"], entry.failures, entry.lost) == (named, text, 1, 2)
    assert "in fail" in note["traceback"]
    with pytest.raises(CommandFailed, match=text):
        Result(id, fail.name, "default").get(timeout=20)


@ON_ONE
def test_it_dies_with_its_consumer_which_counts_as_one_more_lost_start(consumers, release_file):
    id = put_lost(hold, str(release_file))
    consumer = consumers.start("--lease", 0.5)
    [start] = consumers.ledger.wait("start", ids={id})
    consumer.kill9()
    until(lambda: not is_running(start.pid))
    until(lambda: queues["default"].reap().count)
    assert queues["default"].find(id).entry.lost == 3


@ON_ONE
def test_it_dies_with_its_consumer_though_a_process_that_was_forked_there_lives(consumers, release_file):
    id = put_lost(hold, str(release_file))
    consumer = consumers.start("-t", 2)
    [start] = consumers.ledger.wait("start", ids={id})
    [left] = consumers.ledger.wait("start", ids={leave_a_child(str(release_file)).id})
    consumer.kill9()
    until(lambda: not is_running(start.pid))
    assert is_running(left.pid)
    release_file.touch()


@ON_ONE
def test_what_it_does_to_arguments_and_descriptors_ends_it_neither_sooner_nor_later(consumers, tmp_path):
    first, second = ids = [put_lost(hold_as_another_program, str(tmp_path / name)) for name in ("1", "2")]
    consumer = consumers.start("-t", 2)
    [_, (other,)] = [consumers.ledger.wait("remain", ids={id}) for id in ids]
    (tmp_path / "1").touch()
    consumers.ledger.wait("end", ids={first})
    consumer.kill9()
    until(lambda: not is_running(other.pid))
    assert consumers.ledger.of("end", {second}) == []


@ON_EACH
def test_lost_together_with_their_consumers_are_more_starts_than_may_be_seen_to_die(consumers):
    """Who kills consumers from outside kills what they run: that alone puts nothing aside."""
    ids = [put_lost(work, lost=lost) for lost in (2, 3, 14)]
    bounded = put_lost(work, lost=15)
    consumers.start()
    consumers.ledger.wait_all("end", ids)
    _, [note] = failed(bounded)
    assert note["reason"] == "worker died: 15 attempts never reported"


@ON_ONE
def test_it_is_told_of_a_stop_and_may_end_within_the_grace(consumers):
    id = put_lost(wait_for_stop)
    consumer = consumers.start("--grace", 20)
    consumers.ledger.wait("start", ids={id})
    consumer.term()
    assert consumer.wait() == 0
    assert len(consumers.ledger.of("end", {id})) == 1


@ON_ONE
def test_after_the_grace_it_is_ended_and_goes_back(consumers, release_file):
    id = put_lost(hold, str(release_file))
    consumer = consumers.start("--grace", 0.2)
    [start] = consumers.ledger.wait("start", ids={id})
    consumer.term()
    assert consumer.wait() == 1
    until(lambda: not is_running(start.pid))
    entry = queues["default"].find(id).entry
    assert (entry.attempts, entry.lost, entry.failures) == (3, 2, 0)


@ON_ONE
def test_one_that_stands_still_is_killed_and_counts_as_lost(consumers, release_file):
    id = put_lost(hold, str(release_file))
    consumers.start()
    [start] = consumers.ledger.wait("start", ids={id})
    os.kill(start.pid, signal.SIGSTOP)
    until(lambda: id in reasons())
    assert reasons()[id].endswith("the last one ended by SIGKILL, as it had been stopped by a signal for 10 s")
    until(lambda: not is_running(start.pid))
    assert consumers.stop() == [0]


@pytest.mark.backends("redis", "postgres")
def test_what_is_throttled_runs_in_a_process_of_its_own_and_no_window_has_more_starts(consumers):
    """The throttle counts it from when its process is ready."""
    queue = queues["default"]
    fresh = [result.id for result in work.using(throttle=Throttle(3, 2)).enqueue_many([()] * 3)]
    entry = queue.find(fresh[0]).entry
    lost = [put_lost(work, lane=entry.lane, gate=entry.gate, priority=1) for _ in range(3)]
    consumer = consumers.start("-t", 8)
    consumers.ledger.wait_all("end", [*lost, *fresh])
    starts = consumers.ledger.of("start")
    moments = sorted(event.at for event in starts)
    assert all(later - first >= 2 for first, later in zip(moments, moments[3:], strict=False))
    assert {event.pid for event in starts if event.id in fresh} == {consumer.pid}
    assert len({event.pid for event in starts if event.id in lost} - {consumer.pid}) == 3


@ON_ONE
def test_what_is_throttled_by_a_short_window_begins_too(consumers):
    """A window that is over before a process has begun."""
    entry = queues["default"].find(work.using(throttle=Throttle(1, 0.2)).enqueue().id).entry
    lost = [put_lost(work, lane=entry.lane, gate=entry.gate) for _ in range(2)]
    consumer = consumers.start()
    consumers.ledger.wait_all("end", [entry.id, *lost])
    assert consumer.pid not in consumers.ledger.pids("start", lost)


@pytest.mark.backends("sqlite")
def test_it_runs_though_very_many_files_are_open(consumers):
    """More than select() takes."""
    opened = open_files.enqueue(1100)
    consumers.start()
    consumers.ledger.wait("end", ids={opened.id})
    good, bad = put_lost(work), put_lost(die_by_abort, lost=1)
    consumers.ledger.wait("end", ids={good})
    until(lambda: bad in reasons())
    assert queues["default"].failed.find(bad).entry.lost == 2
    assert consumers.stop() == [0]


@pytest.mark.backends("sqlite")
def test_it_has_the_environment_with_which_the_consumer_began(consumers):
    """Not what a command has left of it, by which no process could load the settings."""
    spoilt = spoil_environment()
    consumer = consumers.start()
    consumers.ledger.wait("end", ids={spoilt.id})
    id = put_lost(work)
    [end] = consumers.ledger.wait("end", ids={id})
    assert end.pid != end.parent == consumer.pid


@ON_ONE
def test_what_runs_past_its_time_limit_is_ended(consumers, settings):
    consumers.site.settings["QUEUE_TIME_LIMIT_GRACE"] = 0.2
    id = put_lost(never_end)
    consumers.start()
    [start] = consumers.ledger.wait("start", ids={id})
    assert failed(id)[1][-1]["exception"].endswith("TimeLimitExceeded")
    until(lambda: not is_running(start.pid))
