"""What a consumer says of itself: its liveness file, and what systemd is sent."""

import json
import logging
import os
import re
import signal
import socket
import sys
import threading
import time

import pytest

from djqueue import BatchCommand, Route, health, queue_command
from djqueue.backends.base import Entry
from djqueue.consumer import Consumer, liveness, observer
from djqueue.consumer.in_flight import Message
from djqueue.consumer.liveness import Reporter
from djqueue.consumer.observer import ThreadObserver
from djqueue.consumer.pool import Worker
from djqueue.consumer.processes import ProcessSupervisor
from djqueue.consumer.systemd import Notifier
from djqueue.testing.patience import eventually
from djqueue.utils import clock
from tests.consumer.test_processes import FakeProcess
from tests.support.consumer import Release, claim_one, serving, unreachable
from tests.support.notes import cleared_per_test
from tests.support.processes import until

MEMORY = pytest.mark.backends("memory")
release = cleared_per_test(Release())


@queue_command
def wait_for_release():
    release.wait()


@queue_command
async def wait_for_ever():
    import asyncio

    await asyncio.Event().wait()


class Kept(BatchCommand):
    """Its handler is stopped when nothing more comes for it, and that takes long."""

    options = {"idle_timeout": 0.01}

    @staticmethod
    def route(*numbers):
        return [Route(number) for number in numbers]

    def perform(self, *numbers):
        pass

    def stop(self):
        release.wait()


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "alive")


@pytest.fixture
def frequent_reports(monkeypatch):
    """Reports come one after another, and say of all that runs where it is."""
    monkeypatch.setattr(liveness, "EVERY", 0.01)
    monkeypatch.setattr(observer, "LONG", 0.0)
    monkeypatch.setattr("djqueue.consumer.LOOK", 0.01)


def told(path, condition):
    """The first report that fulfils a condition."""

    def look():
        report = health.read(path) if os.path.exists(path) else {}
        return report if report and condition(report) else None

    return eventually(look)


def later(report, seconds, path=""):
    """What is wrong that many seconds from now, if the process reports and nothing else moves."""
    now = time.monotonic() + seconds
    return health.problems(report | {"moved": now}, path, now)


def places_of(report):
    """Where its parts are."""
    return [part.get("where", []) for part in report.get("parts", ())]


@MEMORY
@pytest.mark.usefixtures("frequent_reports")
class TestFile:
    def test_it_names_each_thread_and_is_removed_at_the_end(self, queue, path):
        with serving(threads=2, alive=path, periodic=True) as consumer:
            report = told(path, lambda report: health.obstacles(report) == [])
            assert consumer.end() == 0
        names = {part["name"] for part in report["parts"]}
        loops = "pump housekeeper reaper scheduler".split()
        assert names == {f"{name}-default" for name in loops} | {"announcer", "timelimits"}
        assert (report["state"], report["pid"], report["workers"]) == ("serving", os.getpid(), 2)
        assert os.listdir(os.path.dirname(path)) == []

    def test_it_is_there_before_a_store_is_asked(self, queue, path, monkeypatch):
        asked = []
        monkeypatch.setattr(Consumer, "_stores_answer", lambda self: asked.append(health.read(path)))
        with serving(alive=path) as consumer:
            consumer.code()
        assert health.obstacles(asked[0]) == ["it is starting"]
        assert not os.path.exists(path)

    def test_what_runs_is_named_with_where_it_is(self, queue, path):
        handle = wait_for_release()
        with serving(threads=2, alive=path, stuck_after=300):
            release.await_waiting(1)
            [run] = told(path, lambda report: "release.wait()" in str(report.get("runs")))["runs"]
            release.set()
        assert (run["command"], run["id"], run["count"]) == (wait_for_release.name, handle.id, 1)
        assert "in wait_for_release: release.wait()" in run["where"][0], "the command's own line comes first"
        assert later({"limit": 10.0, "runs": [run]}, 200) == []
        [problem] = later({"limit": 10.0, "runs": [run]}, 301)
        assert problem.startswith(f"{run['worker']} has run {wait_for_release.name} ({handle.id[-8:]}) for 5m ")

    def test_it_is_written_though_the_working_folder_is_gone(self, queue, path, tmp_path, monkeypatch):
        (tmp_path / "gone").mkdir()
        monkeypatch.chdir(tmp_path / "gone")
        (tmp_path / "gone").rmdir()
        wait_for_release()
        with serving(threads=2, alive=path, stuck_after=300):
            release.await_waiting(1)
            told(path, lambda report: "in wait_for_release: release.wait()" in str(report.get("runs")))
            release.set()

    def test_a_relative_path_means_the_working_folder_of_the_start(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        reporter = Reporter("name", "alive")
        monkeypatch.chdir("/")
        reporter.begin()
        assert (tmp_path / "alive").exists()

    def test_what_is_stuck_is_told_with_where_it_is_at_once(self, queue, monkeypatch):
        monkeypatch.setattr(observer, "LONG", 10.0)
        queue.put([Entry(b"", "1")])
        message = Message(None, queue, claim_one(queue), clock())
        message.began = clock() - 6
        [[sooner], [later]] = (ThreadObserver(limit).look([], [message], [])["runs"] for limit in (5.0, None))
        assert ("where" in sooner, "where" in later) == (True, False)

    def test_a_coroutine_is_named_with_where_it_waits(self, queue, path):
        wait_for_ever()
        with serving(threads=1, coroutines=2, grace=0, alive=path):
            report = told(path, lambda report: [run["worker"] for run in report.get("runs", ())] == ["coroutines"])
            [run] = report["runs"]
        assert "in wait_for_ever: await asyncio.Event().wait()" in run["where"][0]

    def test_a_thread_that_hangs_is_named_with_where_it_is(self, queue, path, monkeypatch):
        claim, hangs = queue.claim, threading.Event()
        monkeypatch.setattr(queue, "claim", lambda *args, **how: hangs.wait(30) and claim(*args, **how))
        with serving(alive=path):
            report = told(path, lambda report: any("hangs.wait(30)" in "".join(where) for where in places_of(report)))
            hangs.set()
        pump = report | {"parts": [part for part in report["parts"] if part["name"] == "pump-default"]}
        assert later(pump, 30) == []
        [problem] = later(pump, 61)
        assert re.match(r"pump-default has not moved for 1m \d+s \(limit 1m 00s\):", problem)
        assert "hangs.wait(30)" in problem
        assert health.obstacles(pump) == ["the store of queue 'default' does not answer"]

    def test_a_worker_that_hangs_between_two_messages_is_named(self, queue, path, monkeypatch):
        hangs = threading.Event()
        monkeypatch.setattr(Worker, "_recover", lambda self, unit: hangs.wait(30))
        release.set()
        wait_for_release()
        with serving(threads=2, alive=path):
            report = told(path, lambda report: any("hangs.wait(30)" in "".join(where) for where in places_of(report)))
            hangs.set()
        assert (report["workers"], report["idle"], report["running"]) == (2, 1, 0)
        [worker] = [part for part in report["parts"] if part["name"].startswith("worker-")]
        [problem] = later(report | {"parts": [worker]}, 61)
        assert problem.startswith(f"{worker['name']} has not moved for 1m")

    def test_a_worker_that_hangs_while_its_handler_stops_is_named(self, queue, path):
        Kept.enqueue(1)
        with serving(threads=2, alive=path):
            report = told(path, lambda report: any("release.wait()" in "".join(where) for where in places_of(report)))
            release.set()
            told(path, lambda report: report["idle"] == 2)
        assert (report["workers"], report["idle"], report["running"]) == (2, 1, 0)

    def test_while_a_store_is_away_it_is_alive_and_not_ready(self, queue, path, monkeypatch):
        claim = queue.claim
        with serving(alive=path):
            told(path, lambda report: health.obstacles(report) == [])
            monkeypatch.setattr(queue, "claim", unreachable)
            report = told(path, lambda report: report["unanswered"])
            assert later(report, 30) == []
            assert health.obstacles(report) == ["the store of queue 'default' does not answer"]
            monkeypatch.setattr(queue, "claim", claim)
            told(path, lambda report: health.obstacles(report) == [])

    def test_a_consumer_that_stops_is_alive_and_not_ready(self, queue, path):
        wait_for_release()
        with serving(alive=path) as consumer:
            release.await_waiting(1)
            consumer.stop()
            report = told(path, lambda report: report["state"] == "stopping")
            assert (later(report, 5), health.obstacles(report)) == ([], ["it is stopping"])
            release.set()

    def test_no_frame_is_read_while_nothing_takes_long(self, queue, path, monkeypatch):
        monkeypatch.setattr(observer, "LONG", 30.0)
        read = []
        monkeypatch.setattr(sys, "_current_frames", lambda frames=sys._current_frames: read.append(1) or frames())
        with serving(threads=2, alive=path):
            told(path, lambda report: report.get("idle") == 2)
            for _ in range(2):
                wait_for_release()
            told(path, lambda report: (report["idle"], report["running"]) == (0, 2))
            assert read == []
            monkeypatch.setattr(observer, "LONG", 0.0)
            told(path, lambda report: "release.wait()" in str(report["runs"]))
            assert read
            monkeypatch.setattr(observer, "LONG", 30.0)
            release.set()
            told(path, lambda report: (report["idle"], report["running"]) == (2, 0))

    def test_what_is_stuck_is_logged_once(self, path, caplog):
        caplog.set_level(logging.INFO)
        found = [{"name": "pump-default", "moved": 0.0, "limit": 60.0}]
        reporter = Reporter("me", path)
        for parts in (found, found, [], []):
            reporter.look(health.SERVING, lambda parts=parts: {"parts": parts})
            reporter._next = 0.0
        lines = [(record.levelno, record.getMessage()) for record in caplog.records]
        assert [level for level, _ in lines] == [logging.ERROR, logging.INFO]
        assert lines[0][1].startswith("Stuck: pump-default has not moved for")
        assert lines[1][1] == "Not stuck any more"

    def test_a_file_that_cannot_be_written_stops_nothing(self, queue, path, caplog):
        with serving(alive=path) as consumer:
            last = told(path, lambda report: report["state"] == "serving")
            folder = os.path.dirname(path)
            os.rename(folder, f"{folder}-elsewhere")
            eventually(lambda: "The liveness file cannot be written" in caplog.text)
            os.rename(f"{folder}-elsewhere", folder)
            told(path, lambda report: report["moved"] > last["moved"])
            assert consumer.end() == 0
        assert caplog.text.count("The liveness file cannot be written") == 1

    def test_at_the_end_it_removes_its_own_file_if_that_is_there(self, path):
        reporter = Reporter("me", path)
        reporter.begin()
        with open(f"{path}.7", "w"):  # of another program
            pass
        reporter.end()
        assert os.listdir(os.path.dirname(path)) == ["alive.7"]
        os.rename(os.path.dirname(path), f"{os.path.dirname(path)}-elsewhere")
        reporter.end()

    def test_a_file_that_another_consumer_writes_is_told(self, path, caplog):
        Reporter("other", path).begin()
        report = health.read(path) | {"pid": os.getppid()}
        with open(path, "w") as file:
            json.dump(report, file)
        Reporter("me", path).begin()
        assert f"Process {os.getppid()} writes the liveness file {path} too" in caplog.text


@MEMORY
def test_wrong_options_are_refused(queue, tmp_path):
    with pytest.raises(ValueError, match="alive: there is no folder .*; make it, or give another path"):
        Consumer(alive=str(tmp_path / "none" / "alive"))
    with pytest.raises(ValueError, match="stuck_after is 0"):
        Consumer(stuck_after=0)
    with pytest.raises(ValueError, match="alive: the liveness file cannot be written: .*Is a directory"):
        Consumer(alive=str(tmp_path)).run()


class Manager:
    """The socket of a service manager."""

    def __init__(self, folder):
        self.address = str(folder / "notify")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.address)
        self.socket.settimeout(30)

    def hear(self) -> list[str]:
        return self.socket.recv(4096).decode().split("\n")

    def hear_of(self, word) -> list[str]:
        """The first notification with this word."""
        while word not in (words := self.hear()):
            pass
        return words


@pytest.fixture
def manager():
    from tests.support import servers

    heard = Manager(servers.short_dir())  # the path of a socket must be short
    yield heard
    heard.socket.close()


class TestSystemd:
    @MEMORY
    @pytest.mark.usefixtures("frequent_reports")
    def test_it_hears_of_the_start_of_life_and_of_the_end(self, queue, manager):
        consumer = Consumer(periodic=False)
        consumer.reporter.notifier = Notifier(manager.address, 0.03)
        thread = threading.Thread(target=consumer.run)
        thread.start()
        assert manager.hear() == ["STATUS=starting", "WATCHDOG=1"]
        assert manager.hear() == ["STATUS=serving, 0 running, 4 of 4 workers idle", "READY=1", "WATCHDOG=1"]
        assert manager.hear() == ["STATUS=serving, 0 running, 4 of 4 workers idle", "WATCHDOG=1"]
        consumer.stop()
        assert "STOPPING=1" in manager.hear_of("STOPPING=1")
        thread.join(30)

    def test_the_watchdog_hears_nothing_of_what_is_stuck(self, manager):
        reporter = Reporter("me")
        reporter.notifier = Notifier(manager.address, 30.0)
        part = {"name": "pump-default", "moved": time.monotonic() - 61, "limit": 60.0, "where": ["shop.py:1 in f"]}
        reporter.look(health.SERVING, lambda: {"parts": [part]})
        status, ready = manager.hear()
        assert re.match(r"STATUS=stuck: pump-default has not moved for 1m \d+s \(limit 1m 00s\)$", status)
        assert ready == "READY=1"

    def test_the_environment_is_for_one_process(self):
        given = {"NOTIFY_SOCKET": "@shop", "WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid()), "HOME": "/"}
        notifier = Notifier.of_this_process(given)
        assert (notifier.watchdog, notifier._address, given) == (30.0, "\0shop", {"HOME": "/"})
        of_another = {"NOTIFY_SOCKET": "/run/notify", "WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}
        assert Notifier.of_this_process(of_another).watchdog is None
        assert Notifier.of_this_process({}) is None

    def test_a_manager_that_is_gone_is_no_error(self, tmp_path):
        Notifier(str(tmp_path / "none")).send("READY=1")


class TestProcesses:
    def test_the_supervisor_tells_which_processes_there_are(self, path, monkeypatch):
        monkeypatch.setattr(liveness, "EVERY", 0.0)
        started = []

        def start(number, has_duties):
            started.append(FakeProcess(number, has_duties, 40 + number))
            started[-1].began = time.monotonic()
            return started[-1]

        for leftover in ("7", "7.new", "41", "41.new"):
            with open(f"{path}.{leftover}", "w") as file:
                file.write("{}")
        Reporter("a consumer whose file has a number", f"{path}.2").begin()
        supervisor = ProcessSupervisor(2, start=start, reporter=Reporter("me", path))
        supervisor.tick(1000.0)
        report = health.read(path)
        assert (report["state"], report["places"]) == ("starting", 2)
        assert [(one["number"], one["pid"], one["state"]) for one in report["processes"]] == [
            (1, 41, "starting"),
            (2, 42, "starting"),
        ]
        assert sorted(os.listdir(os.path.dirname(path))) == ["alive", "alive.2", "alive.41", "alive.41.new"]
        started[0].ready = True
        supervisor.tick(1001.0)
        assert health.read(path)["state"] == "serving"

    @pytest.mark.backends("redis")
    def test_a_process_that_stands_still_is_named(self, site, path, manager):
        """A real supervisor and its process, under a service manager."""
        options = "--max-age", 86400, "-t", 1, "--alive", path
        consumer = site.consumer(*options, env={"NOTIFY_SOCKET": manager.address})
        manager.hear_of("READY=1")
        until(lambda: health.look(path, ready=True)[1] == [])
        report = health.read(path)
        assert report["pid"] == consumer.pid
        pid = report["processes"][0]["pid"]
        os.kill(pid, signal.SIGSTOP)
        last = health.read(f"{path}.{pid}")["moved"]
        until(lambda: health.read(path)["moved"] > last + liveness.EVERY)
        said = f"process 1 (pid {pid}): the file was written 11 s ago: the process does nothing, or is gone"
        assert said in health.problems(report | {"moved": last + 11}, path, last + 11)
        os.kill(pid, signal.SIGCONT)
        consumer.term()
        assert consumer.wait() == 0, consumer.output
        manager.hear_of("STOPPING=1")
        assert os.listdir(os.path.dirname(path)) == []

    @pytest.mark.backends("redis")
    def test_a_process_that_is_replaced_is_not_missed(self, site, path):
        """Between its end and the next report of its supervisor, which lists it."""
        consumer = site.consumer("--processes", 2, "-t", 1, "--alive", path)
        until(lambda: health.look(path, ready=True)[1] == [])
        pid, missed = health.read(path)["processes"][0]["pid"], []

        def is_replaced():
            report = health.read(path)
            serving = [one for one in report["processes"] if one["state"] == "serving"]
            long_ago = [one | {"began": one["began"] - 100} for one in serving]
            missed.extend(health.problems(report | {"processes": long_ago}, path))
            return len(serving) == 2 and pid not in [one["pid"] for one in serving]

        os.kill(pid, signal.SIGTERM)
        until(is_replaced)
        assert missed == []
        consumer.term()
        assert consumer.wait() == 0, consumer.output
        assert os.listdir(os.path.dirname(path)) == []

    @pytest.mark.backends("redis")
    def test_processes_whose_supervisor_was_killed_leave_no_file(self, site, path):
        consumer = site.consumer("--processes", 2, "-t", 1, "--alive", path)
        until(lambda: health.look(path, ready=True)[1] == [])
        assert len(os.listdir(os.path.dirname(path))) == 3
        consumer.kill9()
        until(lambda: os.listdir(os.path.dirname(path)) == [os.path.basename(path)])
