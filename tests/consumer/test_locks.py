"""The files by which consumers of one host prove that they live, and what becomes of those of the dead."""

import fcntl
import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from djqueue import queues
from djqueue.backends.base import Reaped
from djqueue.consumer import Consumer, locks
from djqueue.consumer.locks import ConsumerLocks, lock_files
from djqueue.consumer.maintenance import Reaper
from djqueue.consumer.supervisor import Supervisor
from djqueue.testing import eventually
from djqueue.testing.contract.steps import names, put
from djqueue.testing.patience import PATIENCE
from tests.support.consumer import serving, unreachable

DEAD, ALIVE = "web-1:815:f00d15", "web-1:816:feed15"


@pytest.fixture(autouse=True)
def root(settings, tmp_path):
    settings.QUEUE_LOCK_DIR = str(tmp_path)
    return tmp_path


@pytest.fixture
def served():
    return queues["default"]


def holding(name, *served):
    held = ConsumerLocks(name, served)
    held.acquire()
    return held


def left_by_the_dead(name, *served):
    """As if the process had been killed: the files are there, and nobody holds them."""
    kept = dict(locks._descriptors)
    holding(name, *served)
    for path in locks._descriptors.keys() - kept.keys():
        os.close(locks._descriptors.pop(path))


def consumers_of(queue):
    return sorted(one.consumer for one in lock_files([queue]))


def dead_of(queue):
    found = []
    for lock in lock_files([queue]):
        with lock.held_if_free() as is_dead:
            found += [lock.consumer] if is_dead else []
    return found


def a_minute(queue):
    return 60.0


class TestFiles:
    def test_a_consumer_has_a_file_for_each_queue_until_it_ends(self, backend, settings):
        settings.QUEUES = backend.queues("default", "mail")
        held = holding(ALIVE, queues["default"], queues["mail"])
        assert consumers_of(queues["default"]) == consumers_of(queues["mail"]) == [ALIVE]
        held.release()
        assert lock_files([queues["default"], queues["mail"]]) == []

    def test_only_the_dead_are_found_dead(self, served):
        held = holding(ALIVE, served)
        left_by_the_dead(DEAD, served)
        assert (consumers_of(served), dead_of(served)) == ([DEAD, ALIVE], [DEAD])
        held.release()

    def test_another_process_that_is_killed_is_dead_though_a_child_of_it_lives(self, served, root, release_file):
        """The child is forked; one that is run as another program inherits no descriptor."""
        path = locks.folder() / f"{locks._mark_of(served)}.{DEAD.replace(':', '%3A')}"
        code = (
            "import os, sys, time, pathlib\n"
            "from djqueue.consumer import locks\n"
            "path = pathlib.Path(sys.argv[1])\n"
            "locks._descriptors[path] = locks._new_locked(path)\n"
            "if os.fork() == 0:\n"
            "    print('up', flush=True)\n"
            "    while not os.path.exists(sys.argv[2]): time.sleep(0.01)\n"
            "    os._exit(0)\n"
            "time.sleep(600)\n"
        )
        process = subprocess.Popen([sys.executable, "-c", code, path, release_file], stdout=subprocess.PIPE)
        try:
            assert process.stdout.readline() == b"up\n"
            assert (consumers_of(served), dead_of(served)) == ([DEAD], [])
            process.kill()
            process.wait()
            assert dead_of(served) == [DEAD]
        finally:
            process.kill()
            release_file.touch()
            process.stdout.close()

    def test_of_several_who_find_it_dead_one_gives_back(self, served):
        left_by_the_dead(DEAD, served)
        first, second = lock_files([served]) * 2
        with first.held_if_free() as is_dead, second.held_if_free() as is_dead_too:
            assert (is_dead, is_dead_too) == (True, False)
        descriptor = os.open(first.path, os.O_RDWR)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        with first.held_if_free() as is_dead:
            assert not is_dead
        os.close(descriptor)
        first.remove()
        with second.held_if_free() as is_dead:
            assert not is_dead

    def test_a_file_that_went_while_its_lock_was_awaited_proves_nothing(self, served):
        left_by_the_dead(DEAD, served)
        [lock] = lock_files([served])
        descriptor = os.open(lock.path, os.O_RDWR)
        lock.remove()
        assert not locks._is_free(descriptor)
        os.close(descriptor)

    def test_a_consumer_notices_that_another_one_is_dead(self, served, monkeypatch):
        ours, listed = holding(ALIVE, served), []
        monkeypatch.setattr(locks, "lock_files", lambda queues: listed.append(1) or lock_files(queues))
        assert not ours.another_is_dead()
        theirs = holding(DEAD, served)
        assert not ours.another_is_dead()
        for path in theirs._paths:
            os.close(locks._descriptors.pop(path))
        assert ours.another_is_dead()
        [lock] = [one for one in lock_files([served]) if one.consumer == DEAD]
        lock.remove()
        assert not ours.another_is_dead()
        monkeypatch.setattr(locks, "UNSETTLED", 0)
        ours.another_is_dead(), listed.clear()
        assert (ours.another_is_dead(), listed) == (False, [])
        ours.release()

    def test_who_has_no_lock_notices_nothing(self, served, monkeypatch):
        left_by_the_dead(DEAD, served)
        monkeypatch.setattr(locks, "folder", lambda: None)
        ours = holding(ALIVE, served)
        assert not ours.another_is_dead()

    def test_a_file_that_is_not_locked_yet_is_not_found(self, served, root, monkeypatch):
        found = []
        monkeypatch.setattr(locks, "flock", lambda *how: found.extend(lock_files([served])) or fcntl.flock(*how))
        held = holding(ALIVE, served)
        assert (found, consumers_of(served)) == ([], [ALIVE])
        held.release()

    def test_a_consumer_that_was_made_before_a_fork_has_no_proof_in_the_child(self, served, monkeypatch):
        held = ConsumerLocks(ALIVE, [served])
        monkeypatch.setattr(held, "_pid", os.getpid() + 1)
        held.acquire()
        assert lock_files([served]) == []

    @pytest.mark.parametrize("prefix", ["a/b", ".", "~", "%2F", "ä", " "])
    def test_any_name_is_that_of_a_file(self, served, prefix):
        left_by_the_dead(prefix + DEAD, served)
        assert dead_of(served) == [prefix + DEAD]

    @pytest.mark.parametrize("prefix", ["x" * 250, "\ud800"])
    def test_a_name_that_no_file_can_have_costs_the_proof(self, served, prefix, caplog):
        holding(prefix + DEAD, served)
        assert lock_files([served]) == []
        assert "waits until its leases run out" in caplog.text

    def test_other_sites_of_the_same_user_are_others(self, served, settings):
        left_by_the_dead(DEAD, served)
        settings.SECRET_KEY = "another"
        assert lock_files([served]) == []


class TestFolder:
    def test_only_its_user_can_enter_it_and_its_name_has_boot_and_namespace(self, root):
        folder = locks.folder()
        boot = Path(locks.BOOT_ID).read_text().strip()
        assert folder.parent == root / f"djqueue-{os.geteuid()}"
        assert folder.name == f"{boot}.{Path(os.readlink(locks.PID_NAMESPACE)).name.strip('pid:[]')}"
        assert {stat.S_IMODE(one.stat().st_mode) for one in (folder, folder.parent)} == {0o700}

    @pytest.mark.parametrize("bad", ["others may read", "a link", "a file", "of another user"])
    def test_one_that_others_could_have_made_is_not_used(self, served, root, bad, caplog, monkeypatch):
        private = root / f"djqueue-{os.geteuid()}"
        if bad == "a link":
            (root / "elsewhere").mkdir(0o700)
            private.symlink_to(root / "elsewhere")
        elif bad == "a file":
            private.touch()
        else:
            private.mkdir(0o755 if bad == "others may read" else 0o700)
        if bad == "of another user":
            other = os.geteuid() + 1
            monkeypatch.setattr(os, "geteuid", lambda: other)
            (root / f"djqueue-{os.geteuid()}").mkdir(0o700)
        holding(ALIVE, served)
        assert "waits until its leases run out" in caplog.text
        assert lock_files([served]) == []
        assert not [*root.glob("*/*")]

    def test_without_proc_there_is_no_proof_and_no_error(self, served, monkeypatch, caplog):
        monkeypatch.setattr(locks, "BOOT_ID", "/no/such/file")
        holding(ALIVE, served).release()
        assert (locks.folder(), lock_files([served]), caplog.text) == (None, [], "")

    @pytest.mark.parametrize("is_there", [True, False])
    def test_it_is_the_runtime_folder_of_the_user_if_there_is_one(self, settings, monkeypatch, tmp_path, is_there):
        del settings.QUEUE_LOCK_DIR
        runtime = tmp_path / "run"
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
        monkeypatch.setattr(locks, "gettempdir", lambda: str(tmp_path))
        runtime.mkdir() if is_there else None
        assert locks.folder().parent.parent == (runtime if is_there else tmp_path)


@pytest.mark.backends("memory", "sqlite", "redis")
class TestReaper:
    @pytest.fixture
    def held(self, queue):
        put(queue, *"ab")
        eventually(lambda: len(queue.claim(2, owner=DEAD)) == 2 or queue.stats().leased == 2)

    def test_what_the_dead_held_comes_back_at_once_and_then_the_file_goes(self, queue, held, caplog):
        left_by_the_dead(DEAD, queue)
        reaper = Reaper([queue], a_minute)
        reaper.tick()
        assert queue.stats().leased == 0
        [line] = [record for record in caplog.records if "is dead" in record.message]
        assert (line.levelname, line.event, line.count) == ("WARNING", "reclaimed", 2)
        assert DEAD in line.message
        reaper.tick()
        assert lock_files([queue]) == []
        assert caplog.text.count("is dead") == 1

    def test_what_came_to_the_dead_after_a_look_is_found_by_the_next(self, queue, held):
        left_by_the_dead(DEAD, queue)
        reaper = Reaper([queue], a_minute)
        reaper.tick()
        assert queue.claim(1, owner=DEAD)
        reaper.tick()
        assert (queue.stats().leased, consumers_of(queue)) == (0, [DEAD])

    def test_what_the_living_hold_stays(self, queue, held):
        living = holding(DEAD, queue)
        Reaper([queue], a_minute).tick()
        assert (queue.stats().leased, consumers_of(queue)) == (2, [DEAD])
        living.release()

    def test_a_file_stays_as_long_as_its_store_cannot_be_asked(self, queue, held, monkeypatch):
        left_by_the_dead(DEAD, queue)
        with monkeypatch.context() as patch:
            patch.setattr(queue, "reclaim", unreachable)
            with pytest.raises(ConnectionError):
                Reaper([queue], a_minute).tick()
        assert (queue.stats().leased, dead_of(queue)) == (2, [DEAD])
        Reaper([queue], a_minute).tick()
        assert queue.stats().leased == 0

    def test_hundreds_come_back_with_one_line(self, queue, caplog):
        put(queue, *map(str, range(250)))
        eventually(lambda: queue.claim(250, owner=DEAD) and queue.stats().leased == 250)
        left_by_the_dead(DEAD, queue)
        Reaper([queue], a_minute).tick()
        assert (queue.stats().leased, caplog.text.count("is dead")) == (0, 1)

    def test_those_of_queues_that_it_does_not_serve_are_left_to_others(self, queue, held, settings):
        left_by_the_dead(DEAD, queue)
        other = type(queue)("other", queue.connection)
        other.alias = "other"
        Reaper([other], a_minute).tick()
        assert consumers_of(queue) == [DEAD]


@pytest.mark.backends("memory", "sqlite")
class TestConsumer:
    def test_it_holds_its_lock_while_it_runs(self, queue, monkeypatch):
        consumer, seen = Consumer(["default"], drain=True), []
        monkeypatch.setattr(queue, "reap", lambda *how: seen.append((consumers_of(queue), dead_of(queue))) or Reaped())
        assert consumer.run() == 0
        assert seen[0] == ([consumer.name], [])
        assert lock_files([queue]) == []

    def test_it_keeps_it_while_leases_are_left(self, queue, monkeypatch):
        consumer = Consumer(["default"], drain=True)
        end = Supervisor.end
        monkeypatch.setattr(Supervisor, "end", lambda self: end(self) + 1)
        assert consumer.run() == 1
        assert (consumers_of(queue), dead_of(queue)) == ([consumer.name], [])
        monkeypatch.setattr(Supervisor, "end", end)
        assert consumer.run() == 0
        assert lock_files([queue]) == []

    def test_it_takes_over_at_once_from_one_that_dies_while_it_serves(self, queue):
        """What came back is no message of a command, and fails."""
        put(queue, "work")
        eventually(lambda: queue.claim(1, owner=DEAD))
        living = holding(DEAD, queue)
        with serving("default"):
            eventually(lambda: len(consumers_of(queue)) == 2)
            started = time.monotonic()
            for path in living._paths:
                os.close(locks._descriptors.pop(path))
            eventually(lambda: queue.stats().failed == 1)
            eventually(lambda: DEAD not in consumers_of(queue))
            assert time.monotonic() - started < PATIENCE / 2

    def test_names_come_back_in_order(self, queue):
        put(queue, *"abc")
        eventually(lambda: queue.claim(1, owner=DEAD))
        left_by_the_dead(DEAD, queue)
        Reaper([queue], a_minute).tick()
        assert names(queue.claim(3)) == ["a", "b", "c"]
