"""``queue_consumer`` as a process: its switches, what it says, how it ends."""

import signal
from dataclasses import replace

import pytest
from django.conf import settings as django_settings

from djqueue import queues
from tests.app.commands import end_children, explode, hang_the_log, hold, leave, leave_a_thread, note, note_attempt
from tests.handled.commands import Handled
from tests.support.consumer import message_for
from tests.support.processes import until

pytestmark = [pytest.mark.slow, pytest.mark.backends("sqlite")]
EVERYWHERE = pytest.mark.backends("sqlite", "postgres", "mariadb", "redis", "redis-blocking")


def written(site):
    """What the commands wrote down so far."""
    return site.ledger.read_text().splitlines() if site.ledger.exists() else []


def errors(process):
    return [line for line in process.lines if " ERROR " in line]


@pytest.fixture
def handling_site(site):
    site.settings = {**site.settings, "INSTALLED_APPS": [*django_settings.INSTALLED_APPS, "tests.handled"]}
    return site


class TestWork:
    @EVERYWHERE
    def test_dj1_it_runs_what_is_enqueued_here(self, site):
        note.enqueue_many([(f"n{number}",) for number in range(5)])
        process = site.consumer("--limit", "6", "-n")
        until(lambda: len(written(site)) == 5)
        note("after the start")
        assert process.wait() == 0
        assert sorted(written(site)) == ["after the start", *[f"n{number}" for number in range(5)]]
        assert len(queues["default"]) == 0

    def test_drain_runs_what_is_due_and_exits(self, site):
        note("now")
        note.using(delay=3600).enqueue("later")
        assert site.consumer("--drain").wait() == 0
        assert written(site) == ["now"]
        assert queues["default"].stats().delayed == 1

    def test_limit_is_exact(self, site):
        note.enqueue_many([(f"n{number}",) for number in range(6)])
        assert site.consumer("--limit", "4", "-t", "3").wait() == 0
        assert (len(written(site)), len(queues["default"])) == (4, 2)

    def test_threads_is_how_many_run_at_once(self, site, release_file):
        hold.enqueue_many([(f"h{number}", str(release_file)) for number in range(5)])
        process = site.consumer("-t", "3", "--limit", "5")
        until(lambda: len(written(site)) == 3)
        process.wait_for("3 threads")
        assert queues["default"].stats().leased == 3
        release_file.touch()
        assert process.wait() == 0

    def test_a_failing_command_is_logged_with_its_traceback_and_does_no_harm(self, site):
        handles = [explode(), leave()]
        note("after")
        process = site.consumer("--limit", "3", "-t", "1")
        assert process.wait() == 0
        assert written(site) == ["after"]
        assert len(errors(process)) == 2
        for handle, line in zip(handles, errors(process), strict=True):
            assert handle.id in line
            assert "djqueue-worker-1" in line
        assert process.wait_for("RuntimeError: boom")
        assert process.wait_for("SystemExit: 3")
        assert queues["default"].stats().failed == 2

    def test_dj18_an_unknown_command_does_no_harm(self, site):
        queues["default"].put([message_for(queues["default"], "no.such.command")])
        note("after")
        process = site.consumer("--limit", "1")
        assert process.wait() == 0
        assert "no.such.command" in process.output
        stats = queues["default"].stats()
        assert (stats.ready + stats.delayed, stats.failed) == (1, 0)

    @pytest.mark.backends("sqlite", "redis")
    def test_lease_says_how_soon_the_work_of_the_dead_is_given_to_others(self, site, release_file):
        hold("h", str(release_file))
        first = site.consumer("--lease", "1", "-n")
        until(lambda: written(site) == ["h began"])
        first.kill9()
        release_file.touch()
        assert site.consumer("--limit", "1").wait() == 0
        assert written(site) == ["h began", "h began", "h ended"]
        assert queues["default"].stats().done == 1


class TestQueues:
    @pytest.fixture
    def site(self, backend, make_site, settings):
        settings.QUEUES = backend.queues("default", "mail", "slow")
        return make_site(settings.QUEUES, {"default"})

    def enqueue(self, *aliases):
        for alias in aliases:
            note.using(queue_name=alias).enqueue(alias)

    def test_all_by_default(self, site):
        self.enqueue("default", "mail", "slow")
        process = site.consumer("--drain")
        assert process.wait() == 0
        assert sorted(written(site)) == ["default", "mail", "slow"]

    def test_only_those_named(self, site):
        self.enqueue("default", "mail", "slow")
        process = site.consumer("--drain", "-q", "slow", "--queue", "mail")
        assert process.wait() == 0
        assert sorted(written(site)) == ["mail", "slow"]
        banner = process.wait_for("; queues: ")
        assert "slow (" in banner
        assert "default (" not in banner

    def test_strict_is_the_order_given(self, site):
        self.enqueue("slow", "mail", "slow", "mail")
        assert site.consumer("--limit", "4", "-t", "1", "--strict", "-q", "mail", "-q", "slow").wait() == 0
        assert written(site) == ["mail", "mail", "slow", "slow"]


class TestStops:
    @EVERYWHERE
    @pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT], ids=["term", "int"])
    def test_dj16_a_signal_lets_what_runs_end_and_starts_nothing_new(self, site, release_file, signum):
        hold.enqueue_many([(f"h{number}", str(release_file)) for number in range(3)])
        process = site.consumer("-t", "1")
        until(lambda: written(site) == ["h0 began"])
        process.send(signum)
        process.wait_for("Stopping")
        note("not any more")
        release_file.touch()
        assert process.wait() == 0
        assert written(site) == ["h0 began", "h0 ended"]
        stats = queues["default"].stats()
        assert (stats.ready, stats.leased, stats.done) == (3, 0, 1)

    @EVERYWHERE
    def test_sq11_a_batch_ends_and_its_handler_is_stopped(self, handling_site, release_file):
        """SQ-11: its shard is free at once, and nothing is run twice."""
        handles = Handled.enqueue(*[str(release_file)] * 3)
        process = handling_site.consumer("-t", "2")
        until(lambda: written(handling_site) == ["started", "2 began"])
        process.term()
        process.wait_for("Stopping")
        release_file.touch()
        assert process.wait() == 0
        assert written(handling_site) == ["started", "2 began", "2 ended", "stopped"]
        [left] = queues["default"].claim(5)
        assert (left.entry.id, left.entry.attempts) == (handles[2].id, 1)

    def test_a_handler_that_nothing_came_for_is_stopped_too(self, handling_site, tmp_path):
        Handled.enqueue(str(tmp_path))
        process = handling_site.consumer()
        until(lambda: written(handling_site) == ["started", "1 began", "1 ended"])
        until(lambda: queues["default"].stats().leased == 0)
        process.term()
        assert process.wait() == 0
        assert written(handling_site)[-1] == "stopped"

    @pytest.mark.backends("sqlite", "redis-blocking")
    @pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT], ids=["term", "int"])
    def test_a_second_signal_gives_back_what_runs(self, site, tmp_path, signum):
        handle = hold("h", str(tmp_path / "never"))
        process = site.consumer("-t", "2", "--grace", "600")
        until(lambda: written(site) == ["h began"])
        process.send(signum)
        process.wait_for("Stopping")
        process.send(signum)
        assert process.wait() == 1
        process.wait_for("handed back while it ran: 1")
        record = queues["default"].find(handle.id)
        assert (record.state, record.entry.attempts, record.entry.lost) == ("ready", 1, 0)

    @pytest.mark.parametrize("command", [leave_a_thread, hang_the_log], ids=["thread", "log"])
    def test_what_a_command_left_behind_does_not_keep_the_process(self, site, command):
        command()
        assert site.consumer("--limit", "1").wait() == 0
        assert written(site) == ["left"]

    @pytest.mark.parametrize("how", ["thread", "process"])
    @pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGKILL], ids=["term", "kill"])
    def test_children_that_a_command_forks_are_ended_by_signals_as_ever(self, site, how, signum):
        queue, lost = queues["default"], 2 if how == "process" else 0  # a suspect
        entry = message_for(queue, end_children.name, signum)
        queue.put([replace(entry, attempts=lost, lost=lost)])
        assert site.consumer("--limit", "1").wait() == 0
        assert written(site) == [f"ended by {{{-signum}}}"]

    def test_the_grace_is_bounded(self, site, tmp_path):
        hold("h", str(tmp_path / "never"))
        process = site.consumer("--grace", "0.1")
        until(lambda: written(site) == ["h began"])
        process.term()
        assert process.wait() == 1

    @EVERYWHERE
    def test_an_idle_one_leaves_at_once(self, site):
        process = site.consumer("--grace", "600")
        process.wait_for("; queues: ")
        process.term()
        assert process.wait(10) == 0

    def test_work_that_was_given_back_is_attempt_two(self, site, release_file):
        handle = note_attempt("try")
        queues["default"].release(queues["default"].claim(1))
        release_file.touch()
        assert site.consumer("--limit", "1").wait() == 0
        assert written(site) == ["try 2"]
        assert queues["default"].find(handle.id) is None
