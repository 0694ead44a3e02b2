"""The supervisor of the processes of a consumer, tick by tick: what it starts, starts again, replaces and ends."""

import fcntl
import logging
import os
import resource
import socket
from functools import partial
from socket import MSG_WAITALL

import pytest

from djqueue.consumer import CUT_OFF, STORE_UNREACHABLE, STUCK, processes
from djqueue.consumer.counters import Totals
from djqueue.consumer.liveness import SILENCE, Reporter
from djqueue.consumer.operators import ConsumerState
from djqueue.consumer.processes import (
    HUSH,
    LATE,
    LONGEST_PAUSE,
    LOOK,
    STARTS,
    STEADY,
    Bounds,
    ProcessSupervisor,
    SupervisorLink,
)
from djqueue.testing.patience import eventually

NOW, STOP, RETIRE = b"now", b"stop", b"retire"
GRACE = 25.0


class FakeProcess:
    """A process that does what the test says, and keeps what it is told."""

    def __init__(self, number, has_duties, pid):
        self.number, self.has_duties, self.pid = number, has_duties, pid
        self.ready, self.ran, self.code, self.used, self.quiet = False, 0, None, 0.0, False
        self.is_still, self.silence, self.limit, self.letter = False, 0.0, SILENCE, "S"
        self.stopped = 0.0
        self.received = []

    def listen(self):
        if not self.is_still:
            self.silence = 0.0

    def give_duties(self, has_duties):
        self.has_duties = has_duties

    def state(self):
        return self.letter

    def fileno(self):
        return -1

    def send(self, word):
        self.received.append(word)

    def memory(self):
        return self.used

    def terminate(self):
        self.received.append("SIGTERM")

    def kill(self):
        self.received.append("SIGKILL")

    def close(self):
        self.received.append("closed")


class Fleet:
    """A supervisor over such processes, and a clock."""

    def __init__(self, count=2, **options):
        self.started, self.now = [], 1000.0
        self.refusal = None
        self.supervisor = ProcessSupervisor(count, start=self.start, grace=GRACE, **options)
        self.tick()

    def start(self, number, has_duties):
        if self.refusal:
            raise self.refusal
        self.started.append(FakeProcess(number, has_duties, 100 + len(self.started)))
        return self.started[-1]

    def tick(self, after=0.0):
        self.now += after
        self.supervisor.tick(self.now)

    def ready(self, *some):
        for process in some or self.started:
            process.ready = True
        self.tick()
        return self.started

    def end(self, process, code, after=0.0):
        self.now += after
        process.code = code
        self.tick()

    def numbers(self):
        return [process.number for process in self.started]

    def stand_still(self, process, seconds):
        """Let one stand still, while the supervisor and the others move."""
        process.is_still = True
        for _ in range(round(seconds / LOOK)):
            self.tick(LOOK)

    def keepers(self):
        return [process.pid for process in self.started if process.has_duties and process.code is None]


@pytest.fixture
def djqueue_log(caplog):
    caplog.set_level(logging.INFO, "djqueue")
    return caplog


class TestServing:
    def test_as_many_as_are_wanted_are_started_at_once(self):
        fleet = Fleet(3)
        fleet.ready()
        assert fleet.numbers() == [1, 2, 3]
        assert [process.received for process in fleet.started] == [[], [], []]

    def test_one_that_ends_is_started_again_at_once_under_its_number(self, djqueue_log):
        fleet = Fleet()
        one, two = fleet.ready()
        fleet.end(two, -9)
        assert fleet.numbers() == [1, 2, 2]
        assert "Process 2 (pid 101) has ended: SIGKILL" in djqueue_log.text
        assert one.received == []

    def test_one_that_ends_again_and_again_waits_longer_each_time(self):
        fleet, pauses = Fleet(1), []
        for _ in range(9):
            fleet.ready(fleet.started[-1])
            fleet.end(fleet.started[-1], 1)
            count, began = len(fleet.started), fleet.now
            while fleet.started[-1].code is not None:
                fleet.tick(0.5)
            pauses.append(fleet.now - began)
            assert count >= len(fleet.started) - 1
        assert pauses == [0, 1, 2, 4, 8, 16, *[LONGEST_PAUSE] * 3]

    def test_after_it_has_served_for_a_while_it_is_started_again_at_once(self):
        fleet = Fleet(1)
        for _ in range(4):
            fleet.ready(fleet.started[-1])
            fleet.end(fleet.started[-1], 70, after=STEADY)
        assert len(fleet.started) == 5

    def test_one_that_the_machine_refuses_is_tried_again(self, djqueue_log):
        fleet = Fleet(1)
        fleet.ready()
        fleet.refusal = OSError(12, "Cannot allocate memory")
        fleet.end(fleet.started[0], -9)
        fleet.tick(1.0)
        assert len(fleet.started) == 1
        assert "Process 1 cannot be started: [Errno 12] Cannot allocate memory; trying again in 1 s" in djqueue_log.text
        fleet.refusal = None
        fleet.tick(5.0)
        assert len(fleet.started) == 2


class TestStart:
    @pytest.mark.parametrize("code", [1, 2, STORE_UNREACHABLE])
    def test_a_start_that_fails_ends_all_with_its_code(self, code):
        fleet = Fleet(2)
        one, two = fleet.started
        fleet.end(one, code)
        assert two.received == [STOP, "SIGTERM"]
        assert not fleet.supervisor.ended
        fleet.end(two, -15)
        assert fleet.supervisor.ended
        assert fleet.supervisor.code == code
        assert len(fleet.started) == 2

    @pytest.mark.parametrize("code", [-9, -11, STUCK])
    def test_one_that_was_killed_or_asks_for_a_new_process_is_started_again(self, code):
        fleet = Fleet(1)
        fleet.end(fleet.started[0], code)
        assert len(fleet.started) == 2

    def test_once_any_has_served_a_store_that_is_away_is_waited_for(self):
        fleet = Fleet(2)
        one, two = fleet.started
        fleet.ready(one)
        fleet.end(two, STORE_UNREACHABLE)
        fleet.end(fleet.started[2], STORE_UNREACHABLE)
        fleet.tick(1.0)
        assert fleet.numbers() == [1, 2, 2, 2]
        assert one.received == []


class TestReplacing:
    @pytest.mark.parametrize(
        ("bounds", "ran", "used", "age", "reason"),
        [
            (Bounds(max_messages=1000), 1000, 0, 0, "it has run 1,000 messages"),
            (Bounds(max_memory=10**6), 0, 10**6 + 0.4, 0, "it has 1000000 MiB"),
            (Bounds(max_age=60), 0, 0, 60, "it has served for 60 s"),
        ],
        ids=["messages", "memory", "age"],
    )
    def test_at_each_bound(self, bounds, ran, used, age, reason, djqueue_log):
        fleet = Fleet(1, bounds=bounds)
        [old] = fleet.ready()
        fleet.tick()
        assert len(fleet.started) == 1
        old.ran, old.used = ran, used
        fleet.tick(age)
        assert fleet.numbers() == [1, 1]
        assert f"Process 1 (pid 100) is replaced: {reason}" in djqueue_log.text

    def test_the_old_one_retires_once_the_new_one_is_ready(self):
        fleet = Fleet(1, bounds=Bounds(max_messages=5))
        [old] = fleet.ready()
        old.ran = 5
        fleet.tick()
        assert old.received == []
        fleet.ready()
        assert old.received == [RETIRE]
        fleet.end(old, 0)
        assert len(fleet.started) == 2

    def test_a_new_one_that_cannot_start_leaves_the_old_one_as_it_is(self):
        fleet = Fleet(1, bounds=Bounds(max_messages=5))
        [old] = fleet.ready()
        old.ran = 5
        fleet.tick()
        for pause in (0, 1, 2):
            fleet.end(fleet.started[-1], 1)
            fleet.tick(pause)
        assert len(fleet.started) == 5
        assert old.received == []

    def test_one_that_dies_just_when_it_was_ready_replaces_none(self):
        fleet = Fleet(1, bounds=Bounds(max_messages=5))
        [old] = fleet.ready()
        old.ran = 5
        fleet.tick()
        fleet.started[1].ready, fleet.started[1].code = True, -9
        fleet.tick()
        assert old.received == []

    def test_what_follows_one_that_is_quiet_is_quiet_too_until_an_operator_says_otherwise(self):
        fleet = Fleet(1, bounds=Bounds(max_messages=5))
        [old] = fleet.ready()
        old.ran, old.quiet = 5, True
        fleet.tick()
        new = fleet.started[1]
        assert new.received == [b"quiet"], "before it serves"
        fleet.ready(new)
        fleet.end(old, 0)
        fleet.end(new, -9)
        killed = fleet.started[2]
        assert killed.received == [b"quiet"]
        fleet.ready(killed)
        killed.quiet = False
        fleet.tick()
        killed.ran = 5
        fleet.tick()
        assert fleet.started[3].received == []

    def test_one_is_replaced_at_a_time(self):
        fleet = Fleet(3, bounds=Bounds(max_age=60))
        fleet.ready()
        fleet.tick(60)
        assert fleet.numbers() == [1, 2, 3, 1]
        fleet.ready()
        assert fleet.numbers() == [1, 2, 3, 1, 2]

    def test_none_is_replaced_while_the_last_one_still_runs_something(self):
        fleet = Fleet(1, bounds=Bounds(max_messages=5))
        [old] = fleet.ready()
        for _ in range(3):
            fleet.started[-1].ran = 5
            fleet.tick()
            fleet.ready()
        assert len(fleet.started) == 2
        fleet.end(old, 0)
        fleet.tick()
        assert len(fleet.started) == 3

    def test_when_the_old_one_dies_the_new_one_is_not_started_twice(self):
        fleet = Fleet(1, bounds=Bounds(max_messages=5))
        [old] = fleet.ready()
        old.ran = 5
        fleet.tick()
        fleet.end(old, -9)
        fleet.tick(5)
        fleet.ready(fleet.started[1])
        assert len(fleet.started) == 2

    def test_a_process_that_has_too_much_memory_at_its_start_is_not_replaced_for_it(self, djqueue_log):
        fleet = Fleet(1, bounds=Bounds(max_memory=10**6))
        fleet.started[0].used = 10**6 + 1.0
        fleet.ready()
        fleet.tick(5)
        assert len(fleet.started) == 1
        assert djqueue_log.text.count("max_memory") == 1


class TestStandingStill:
    def test_one_that_says_nothing_is_killed_and_replaced_at_once(self, djqueue_log):
        fleet = Fleet()
        one, two = fleet.ready()
        one.letter = "T"
        fleet.stand_still(one, SILENCE - LOOK)
        assert (one.received, fleet.numbers()) == ([], [1, 2])
        fleet.tick(LOOK)
        assert (one.received, two.received, fleet.numbers()) == (["SIGKILL"], [], [1, 2, 1])
        assert "Process 1 (pid 100) has stood still for 10 s and is killed: stopped by a signal" in djqueue_log.text
        fleet.tick(60)
        assert one.received == ["SIGKILL"], "it may take a while until it is gone"
        fleet.end(one, -9)
        assert "Process 1 (pid 100) has ended: SIGKILL" in djqueue_log.text
        assert fleet.numbers() == [1, 2, 1]

    @pytest.mark.parametrize(
        ("letter", "words"),
        [("t", "stopped by a debugger"), ("D", "it waits for a disk"), ("S", "its main thread hangs, or a command")],
    )
    def test_the_log_says_in_which_state_it_is(self, letter, words, djqueue_log):
        fleet = Fleet()
        one, _ = fleet.ready()
        one.letter = letter
        fleet.stand_still(one, SILENCE)
        assert f"and is killed: {words}" in djqueue_log.text

    def test_one_that_moves_again_in_time_is_left_alone(self, djqueue_log):
        fleet = Fleet()
        one, _ = fleet.ready()
        for _ in range(3):
            fleet.stand_still(one, SILENCE - LOOK)
            one.is_still = False
            fleet.tick(LOOK)
        assert (one.received, fleet.numbers()) == ([], [1, 2])

    def test_those_that_stand_still_again_and_again_are_replaced_at_once_each_time(self):
        fleet = Fleet(1)
        for count in range(2, 7):
            fleet.stand_still(*fleet.ready(fleet.started[-1])[-1:], SILENCE)
            assert len(fleet.started) == count

    def test_those_that_are_stopped_as_they_start_are_started_less_and_less_often(self, djqueue_log):
        fleet = Fleet(1)
        fleet.tick()
        for pause in (0, 1, 2, 4):
            count, one = len(fleet.started), fleet.started[-1]
            one.letter = "T"
            fleet.stand_still(one, one.limit)
            said = f"is killed: stopped by a signal; another starts in {pause} s"
            assert (said in djqueue_log.text) == (pause > 0)
            fleet.tick(max(0, pause - LOOK))
            assert len(fleet.started) == count + (pause == 0)
            fleet.tick(LOOK)
            assert len(fleet.started) == count + 1

    def test_a_supervisor_that_stood_still_itself_blames_nobody(self):
        fleet = Fleet()
        for process in fleet.ready():
            process.is_still = True
        for _ in range(int(SILENCE) - 1):
            fleet.tick(3600)
        assert [process.received for process in fleet.started] == [[], []]
        for process in fleet.started:
            process.is_still = False
        fleet.tick(3600)
        assert [process.silence for process in fleet.started] == [0, 0]

    def test_a_start_may_take_long_unless_it_is_stopped(self):
        fleet = Fleet()
        one, two = fleet.started
        fleet.stand_still(one, 600)
        assert one.received == []
        one.letter = "T"
        fleet.stand_still(one, SILENCE - LOOK)
        assert one.received == []
        fleet.tick(LOOK)
        assert (one.received, two.received, fleet.numbers()) == (["SIGKILL"], [], [1, 2, 1])

    def test_a_start_that_is_stopped_for_a_moment_is_left_alone(self):
        fleet = Fleet()
        one, _ = fleet.started
        fleet.stand_still(one, 600)
        for letter in ("T", "S", "T"):
            one.letter = letter
            fleet.stand_still(one, SILENCE - LOOK)
        assert one.received == []

    def test_one_says_itself_how_long_a_step_may_take(self):
        fleet = Fleet(1)
        [one] = fleet.ready()
        one.limit = STARTS
        fleet.stand_still(one, STARTS - LOOK)
        assert one.received == []
        fleet.tick(LOOK)
        assert one.received == ["SIGKILL"]

    def test_one_that_retires_and_stands_still_does_not_keep_its_place(self):
        fleet = Fleet(1, bounds=Bounds(max_messages=5))
        [old] = fleet.ready()
        old.ran = 5
        fleet.tick()
        fleet.ready()
        fleet.stand_still(old, SILENCE)
        assert old.received == [RETIRE, "SIGKILL"]
        assert fleet.numbers() == [1, 1]
        fleet.started[1].ran = 5
        fleet.tick()
        assert fleet.numbers() == [1, 1, 1]

    def test_after_a_stop_the_grace_bounds_it_as_ever(self):
        fleet = Fleet(1)
        [process] = fleet.ready()
        fleet.supervisor.stop()
        fleet.tick()
        fleet.stand_still(process, SILENCE + 1)
        assert process.received == [STOP]


class TestDuties:
    def test_one_process_has_them_from_its_start(self):
        fleet = Fleet(3)
        assert fleet.keepers() == [100]
        fleet.ready()
        assert fleet.keepers() == [100]

    def test_they_leave_one_that_is_silent_before_it_is_killed(self, djqueue_log):
        fleet = Fleet(3)
        one, two, _ = fleet.ready()
        fleet.stand_still(one, HUSH - LOOK)
        assert fleet.keepers() == [100]
        fleet.tick(LOOK)
        assert fleet.keepers() == [100, 101], "the first does not know yet"
        assert "Process 2 (pid 101) has scheduler and reaper now" in djqueue_log.text
        one.is_still = False
        fleet.tick()
        assert fleet.keepers() == [101]

    def test_they_leave_one_that_died(self):
        fleet = Fleet(2)
        one, _ = fleet.ready()
        fleet.end(one, -9)
        assert fleet.keepers() == [101]
        fleet.ready()
        assert fleet.keepers() == [101]

    def test_they_go_to_one_that_is_alive_itself(self):
        fleet = Fleet(3)
        one, two, _ = fleet.ready()
        two.is_still = True
        fleet.stand_still(one, HUSH)
        assert fleet.keepers() == [100, 102]

    def test_a_start_that_takes_long_keeps_them_only_until_another_serves(self):
        fleet = Fleet(2)
        one, two = fleet.started
        fleet.stand_still(one, HUSH)
        assert fleet.keepers() == [100]
        fleet.ready(two)
        assert fleet.keepers() == [100, 101]
        one.is_still = False
        fleet.ready(one)
        assert fleet.keepers() == [101]

    def test_a_successor_has_them_from_its_start(self):
        fleet = Fleet(2, bounds=Bounds(max_messages=5))
        one, two = fleet.ready()
        one.ran = 5
        fleet.tick()
        assert fleet.keepers() == [100, 102]
        fleet.ready()
        fleet.end(one, 0)
        assert fleet.keepers() == [102]

    def test_a_successor_of_another_process_has_none(self):
        fleet = Fleet(2, bounds=Bounds(max_messages=5))
        _, two = fleet.ready()
        two.ran = 5
        fleet.tick()
        assert fleet.keepers() == [100]

    def test_a_single_process_is_followed_by_one_that_has_them(self):
        fleet = Fleet(1)
        fleet.stand_still(*fleet.ready(), SILENCE)
        assert fleet.started[-1].has_duties

    def test_when_none_serves_the_next_that_starts_has_them(self):
        fleet = Fleet(2)
        one, two = fleet.ready()
        one.code = two.code = -9
        fleet.tick()
        assert fleet.keepers() == [102]

    def test_a_drain_leaves_them_to_those_that_still_serve(self):
        fleet = Fleet(2, drain=True)
        one, _ = fleet.ready()
        fleet.end(one, 0)
        assert fleet.keepers() == [101]


class TestDraining:
    def test_it_ends_when_all_have_found_nothing_more(self):
        fleet = Fleet(2, drain=True)
        one, two = fleet.ready()
        fleet.end(one, 0)
        assert not fleet.supervisor.ended
        fleet.end(two, 0)
        assert (fleet.supervisor.ended, fleet.supervisor.code, len(fleet.started)) == (True, 0, 2)

    def test_one_that_dies_is_started_again(self):
        fleet = Fleet(1, drain=True)
        fleet.end(*fleet.ready(), -9)
        assert not fleet.supervisor.ended
        assert len(fleet.started) == 2


class TestStops:
    def test_each_process_is_told_once(self):
        fleet = Fleet(2)
        fleet.ready()
        fleet.supervisor.stop()
        fleet.tick()
        fleet.tick(5)
        assert [process.received for process in fleet.started] == [[STOP], [STOP]]
        fleet.supervisor.stop()
        fleet.supervisor.stop()
        fleet.tick()
        assert [process.received for process in fleet.started] == [[STOP, NOW], [STOP, NOW]]

    def test_those_too_that_retire_and_those_that_start(self):
        fleet = Fleet(2, bounds=Bounds(max_messages=5))
        one, two = fleet.ready()
        one.ran = two.ran = 5
        fleet.tick()
        fleet.ready()
        fleet.supervisor.stop()
        fleet.tick()
        assert one.received == [RETIRE, STOP]
        assert [process.received for process in fleet.started[1:]] == [[STOP], [STOP], [STOP, "SIGTERM"]]

    def test_what_ends_is_not_started_again_nor_logged(self, djqueue_log):
        fleet = Fleet(2)
        fleet.ready()
        fleet.supervisor.stop()
        fleet.tick()
        for process in fleet.started:
            fleet.end(process, 0)
        assert (fleet.supervisor.ended, fleet.supervisor.code, len(fleet.started)) == (True, 0, 2)
        assert "has ended" not in djqueue_log.text

    @pytest.mark.parametrize(
        ("codes", "code"),
        [([0, 0], 0), ([0, 1], CUT_OFF), ([1, STUCK], STUCK), ([STUCK, 0], STUCK), ([0, -9], CUT_OFF)],
    )
    def test_the_exit_code_is_that_of_the_worst(self, codes, code):
        fleet = Fleet(2)
        fleet.ready()
        fleet.supervisor.stop()
        for process, own in zip(fleet.started, codes, strict=True):
            fleet.end(process, own)
        assert fleet.supervisor.code == code

    def test_one_that_had_not_begun_to_serve_is_ended_and_does_not_count(self):
        fleet = Fleet(1)
        fleet.supervisor.stop()
        fleet.tick()
        fleet.end(fleet.started[0], -15)
        assert (fleet.supervisor.ended, fleet.supervisor.code) == (True, 0)

    def test_what_does_not_end_is_killed_beyond_the_grace(self):
        fleet = Fleet(1)
        [process] = fleet.ready()
        fleet.supervisor.stop()
        fleet.tick()
        fleet.tick(GRACE + LATE - 1)
        assert process.received == [STOP]
        fleet.tick(1)
        assert process.received == [STOP, "SIGKILL"]

    def test_at_a_second_stop_it_is_killed_sooner(self):
        fleet = Fleet(1)
        [process] = fleet.ready()
        fleet.supervisor.stop()
        fleet.supervisor.stop()
        fleet.tick()
        fleet.tick(LATE)
        assert process.received == [STOP, NOW, "SIGKILL"]


class FakeConsumer:
    def __init__(self):
        self.calls, self.ran, self.state = [], 0, ConsumerState()
        self.has_duties, self.moved, self.reporter = False, None, Reporter("fake")

    def totals(self):
        return Totals({}, {"threads": 4})

    def stop(self):
        self.calls.append("stop")

    def retire(self):
        self.calls.append("retire")


@pytest.fixture
def supervisor_link(request):
    ours, theirs = socket.socketpair()
    consumer = FakeConsumer()
    link = SupervisorLink(consumer, theirs.detach(), limited=True, metrics=getattr(request, "param", False))
    link.start()
    with ours:
        ours.settimeout(30)
        yield ours, link, consumer
        ours.close()
        link.join(30)


class TestWithinAProcess:
    def test_the_words_of_the_supervisor_reach_the_consumer(self, supervisor_link):
        socket, _, consumer = supervisor_link
        socket.send(b"retire\nst")
        eventually(lambda: consumer.calls == ["retire"])
        socket.send(b"op\n")
        eventually(lambda: consumer.calls == ["retire", "stop"])

    def test_a_signal_and_the_word_are_one_stop(self, supervisor_link):
        socket, link, consumer = supervisor_link
        link.stop_consumer()
        link.stop_consumer()
        socket.send(b"stop\nretire\n")
        eventually(lambda: consumer.calls == ["stop", "retire"])

    def test_now_is_a_second_stop(self, supervisor_link):
        socket, link, consumer = supervisor_link
        socket.send(b"stop\nnow\n")
        eventually(lambda: consumer.calls == ["stop", "stop"])

    def test_when_the_supervisor_is_gone_it_stops_once(self, supervisor_link):
        socket, link, consumer = supervisor_link
        socket.close()
        link.join(30)
        link.stop_consumer()
        assert consumer.calls == ["stop"]

    def test_that_its_main_thread_moves_is_told_and_nothing_while_it_does_not(self, supervisor_link):
        socket, _, consumer = supervisor_link
        consumer.moved = 100.0, 10.0
        assert socket.recv(100) == b"alive 10\n"
        consumer.moved = 101.0, 10.0
        assert socket.recv(100) == b"alive 10\n"
        consumer.ran = 7
        assert socket.recv(100) == b"ran 7\n", "its own thread moves"
        consumer.moved = 101.1, 60.0
        assert socket.recv(100) == b"alive 60\n", "a longer limit is told at once"

    def test_duties_come_and_go(self, supervisor_link):
        socket, _, consumer = supervisor_link
        socket.send(b"duties\n")
        eventually(lambda: consumer.has_duties)
        socket.send(b"no duties\n")
        eventually(lambda: not consumer.has_duties)
        assert consumer.calls == []

    @pytest.mark.parametrize("error", [MemoryError, RuntimeError, SystemExit])
    def test_an_error_does_not_make_it_deaf(self, supervisor_link, error):
        socket, _, consumer = supervisor_link
        broken = iter([error("once"), error("twice")])

        def retire():
            for one in broken:
                raise one
            consumer.calls.append("retire")

        consumer.retire = retire
        socket.send(b"retire\n")
        eventually(lambda: broken.__length_hint__() == 1)
        socket.send(b"retire\n")
        eventually(lambda: broken.__length_hint__() == 0)
        socket.send(b"retire\n")
        eventually(lambda: consumer.calls == ["retire"])
        consumer.moved = 100.0, 10.0
        assert socket.recv(100) == b"alive 10\n"

    def test_it_tells_what_was_run_when_that_has_changed(self, supervisor_link):
        socket, _, consumer = supervisor_link
        consumer.ran = 7
        assert socket.recv(100) == b"ran 7\n"
        consumer.ran = 9
        assert socket.recv(100) == b"ran 9\n"

    def test_what_an_operator_orders_is_told_and_what_another_was_ordered_is_obeyed(self, supervisor_link):
        socket, _, consumer = supervisor_link
        consumer.state.quiet = True
        assert socket.recv(100) == b"quiet\n"
        socket.send(b"claim\n")
        eventually(lambda: not consumer.state.quiet)
        socket.send(b"quiet\n")
        eventually(lambda: consumer.state.quiet)
        consumer.state.quiet = False
        assert socket.recv(100) == b"claim\n"
        assert consumer.calls == []

    @pytest.mark.parametrize("supervisor_link", [True], indirect=True)
    def test_it_tells_what_was_counted(self, supervisor_link):
        socket, link, _ = supervisor_link
        told = b'counted {"counts": [], "gauges": {"threads": 4}}\n'
        assert socket.recv(len(told), MSG_WAITALL) == told
        link.report_what_is_counted()  # at the end, without a wait
        assert socket.recv(len(told), MSG_WAITALL) == told


class TestDescriptors:
    """Where many files are open a socket gets a number above 1,023, which select() refuses."""

    @pytest.fixture
    def sockets(self):
        """Two that are connected. The number of the second one is high."""
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(2048, limits[1]), limits[1]))
        ours, low = socket.socketpair()
        with ours, low, socket.socket(fileno=fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, 1024)) as theirs:
            low.close()
            yield ours, theirs
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)

    def test_the_supervisor_waits_and_wakes(self, sockets):
        fleet, (_, theirs) = Fleet(1), sockets
        assert theirs.fileno() > 1023
        fleet.started[0].fileno = theirs.fileno
        fleet.supervisor.stop()
        fleet.supervisor._wait()

    def test_a_process_hears_its_supervisor(self, sockets):
        ours, theirs = sockets
        assert theirs.fileno() > 1023
        consumer = FakeConsumer()
        link = SupervisorLink(consumer, theirs.detach(), limited=False)
        link.start()
        ours.send(b"retire\n")
        eventually(lambda: consumer.calls == ["retire"])
        ours.close()
        link.join(30)
        assert consumer.calls == ["retire", "stop"]


class TestBounds:
    @pytest.mark.parametrize(
        ("given", "words"),
        [
            ({"max_messages": 0}, "max_messages is 0: give a whole number from 1"),
            ({"max_memory": 0}, "max_memory is 0: give a whole number from 1"),
            ({"max_memory": 1}, r"max_memory is 1 MiB: a process has \d+ MiB before it serves"),
            ({"max_age": 0.5}, "max_age is 0.5: give at least 1 seconds"),
        ],
        ids=str,
    )
    def test_wrong_ones_are_refused(self, given, words):
        with pytest.raises(ValueError, match=words):
            Bounds(**given)

    def test_none_is_reached_without_any(self):
        assert Bounds().reached(FakeProcess(1, True, 1), 10**9) == ""

    def test_the_memory_of_a_process_is_told(self):
        assert 5 < processes.memory_of() < 5000
        assert processes.memory_of(os.getppid()) > 0


class TestCores:
    @pytest.fixture
    def cgroups(self, tmp_path):
        root = tmp_path / "cgroup"
        (root / "system.slice" / "shop.service").mkdir(parents=True)
        own = tmp_path / "own"
        own.write_text("0::/system.slice/shop.service\n")

        def limit(**limits):
            for name, text in limits.items():
                folder = {"root": root, "slice": root / "system.slice", "own": root / "system.slice" / "shop.service"}
                (folder[name] / "cpu.max").write_text(text)
            return processes.cpu_limit(own, root)

        return limit

    def test_the_least_limit_of_the_groups_counts(self, cgroups):
        assert cgroups() == float("inf")
        assert cgroups(own="max 100000\n") == float("inf")
        assert cgroups(slice="400000 100000\n") == 4
        assert cgroups(own="150000 100000\n") == 1.5
        assert cgroups(root="50000 100000\n") == 0.5

    def test_in_a_container_the_root_has_the_limit(self, tmp_path):
        (tmp_path / "cpu.max").write_text("250000 100000")
        own = tmp_path / "own"
        own.write_text("0::/\n")
        assert processes.cpu_limit(own, tmp_path) == 2.5

    def test_without_groups_there_is_no_limit(self, tmp_path):
        assert processes.cpu_limit(tmp_path / "none", tmp_path / "nowhere") == float("inf")

    @pytest.mark.parametrize(("limit", "expected"), [(0.1, 1), (1.5, 2), (10**6, "bound")])
    def test_a_part_of_a_core_counts_as_one(self, monkeypatch, limit, expected):
        monkeypatch.setattr(processes, "cpu_limit", partial(float, limit))
        bound = len(os.sched_getaffinity(0))
        assert processes.cores() == (bound if expected == "bound" else min(expected, bound))
