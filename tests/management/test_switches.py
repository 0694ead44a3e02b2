"""The switches of ``queue_consumer``: what it says and where, what it refuses, when it starts again."""

import logging
import re
import sys
from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from djqueue.consumer import Options
from djqueue.management.commands.queue_consumer import Command
from tests.app.commands import note, speak
from tests.support.processes import Process, until

pytestmark = [pytest.mark.slow, pytest.mark.backends("sqlite")]


class TestOptions:
    def options(self, *args):
        command = Command()
        given = vars(command.create_parser("django-admin", "queue_consumer").parse_args(args))
        return command._consumer(given)

    @pytest.mark.backends("memory")
    def test_dj14_they_reach_the_consumer_and_without_them_it_is_the_usual(self, backend, settings):
        settings.QUEUES = backend.queues("default", "mail")
        text = "-t 3 --coroutines 6 -n -d 0.2 -b 2 -m 5 --lease 7 --grace 9 --strict --drain -q mail -q default"
        consumer = self.options(*text.split())
        paces, seconds = {"delay": 0.2, "backoff": 2.0, "max_delay": 5.0}, {"lease": 7.0, "grace": 9.0}
        flags = {"periodic": False, "strict": True, "drain": True, "isolate": True}
        assert consumer.options == Options(threads=3, coroutines=6, **paces, **seconds, **flags)
        assert [queue.alias for queue in consumer.queues] == ["mail", "default"]
        consumer = self.options()
        assert consumer.options == Options(isolate=True)
        assert [queue.alias for queue in consumer.queues] == ["default", "mail"]


class TestLogs:
    def said(self, site, *args):
        speak()
        process = site.consumer("--limit", "1", *args)
        assert process.wait() == 0
        return {level for level in ("DEBUG", "INFO", "WARNING") if f"said at {level}" in process.output}, process

    @pytest.mark.parametrize(
        ("verbosity", "levels"), [("0", {"WARNING"}), ("1", {"WARNING", "INFO"}), ("2", {"WARNING", "INFO", "DEBUG"})]
    )
    def test_verbosity(self, site, verbosity, levels):
        said, process = self.said(site, "--verbosity", verbosity)
        assert said == levels
        assert ("; queues: " in process.output) == (verbosity != "0")

    def test_every_line_names_time_level_and_thread_and_is_said_once(self, site):
        _, process = self.said(site)
        line = process.wait_for("said at INFO")
        stamp = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}"
        assert re.match(rf"{stamp} INFO     djqueue-worker-\d+ djqueue\.tests: said at INFO", line)
        assert process.output.count("said at INFO") == 1

    def test_a_project_that_logs_to_the_console_itself_is_not_doubled(self, site):
        console = {"class": "logging.StreamHandler", "level": "DEBUG"}
        root = {"handlers": ["console"], "level": "INFO"}
        handlers = {"version": 1, "disable_existing_loggers": False, "handlers": {"console": console}}
        site.settings["LOGGING"] = handlers | {"root": root}
        _, process = self.said(site)
        assert process.output.count("said at INFO") == 1

    def test_logfile(self, site, tmp_path):
        path = tmp_path / "consumer.log"
        said, process = self.said(site, "-l", str(path))
        assert said == set()
        assert "said at INFO" in path.read_text()
        assert "; queues: " in path.read_text()

    def test_the_logfile_is_rotated(self, site, tmp_path):
        path = tmp_path / "consumer.log"
        path.write_text("x" * 1_000_000)
        self.said(site, "--logfile", str(path))
        assert (tmp_path / "consumer.log.1").read_text().startswith("xxx")
        assert "said at INFO" in path.read_text()

    def test_what_a_command_logs_is_before_the_line_of_its_end(self, site):
        speak.enqueue_many([()] * 300)
        process = site.consumer("--drain", "-n", "-t", "1")
        assert process.wait() == 0
        lines = [re.search(r"said at \w+|speak done", line) for line in process.lines]
        assert [line[0] for line in lines if line] == ["said at INFO", "said at WARNING", "speak done"] * 300

    @pytest.mark.parametrize("to_file", [False, True], ids=["pipe", "file"])
    def test_no_line_is_lost_at_a_stop(self, site, tmp_path, to_file):
        path = tmp_path / "consumer.log"
        note.enqueue_many([(f"n{number}",) for number in range(3000)])
        process = site.consumer("-n", *(["-l", str(path)] if to_file else []))
        until(lambda: site.ledger.exists() and len(site.ledger.read_text().splitlines()) > 300)
        process.term()
        assert process.wait() == 0
        logged = path.read_text() if to_file else process.output
        ran = site.ledger.read_text().splitlines()
        assert logged.count("note done (message ") == len(ran)
        assert logged.splitlines()[-1].endswith(": Stopped")

    def test_the_banner_says_what_is_served(self, site):
        banner = site.consumer("--drain", "-t", "3").wait_for("; queues: ")
        assert "3 threads" in banner
        assert "default (" in banner
        assert re.search(r"\d+ commands, \d+ schedules", banner)
        assert "0 schedules" in site.consumer("--drain", "-n").wait_for("; queues: ")

    def test_each_line_of_several_processes_names_its_process(self, site):
        speak.enqueue_many([()] * 20)
        process = site.consumer("--drain", "--processes", "2")
        assert process.wait() == 0
        assert "2 processes × 4 threads" in process.wait_for("; queues: ")
        assert re.search(r" INFO     \[[12]\] djqueue-worker-\d+ djqueue\.tests: said at INFO", process.output)
        assert re.search(r" INFO     MainThread \S+: Process 2 is ready \(pid \d+\)", process.output)

    def test_several_processes_share_a_logfile_which_their_supervisor_rotates(self, site, tmp_path):
        path = tmp_path / "consumer.log"
        path.write_text("x" * 1_000_000)
        speak.enqueue_many([()] * 20)
        process = site.consumer("--drain", "--processes", "2", "--logfile", str(path))
        assert process.wait() == 0
        before = (tmp_path / "consumer.log.1").read_text()
        assert before.startswith("xxx") and (before + path.read_text()).count("said at INFO") == 20
        assert "said at INFO" in path.read_text()
        assert not (tmp_path / "consumer.log.2").exists()

    @pytest.mark.backends("redis")
    def test_the_banner_says_no_password(self, site):
        site.queues["default"]["CONNECTION"] = "redis://user:s3cr3t@127.0.0.1:1/0"
        process = site.consumer("--drain")
        assert process.wait() == 75
        process.wait_for("127.0.0.1:1")
        assert "s3cr3t" not in process.output


class TestRefusals:
    @pytest.mark.parametrize(
        ("args", "words"),
        [
            (["-t", "0"], "threads is 0"),
            (["-b", "0.5"], "backoff is 0.5"),
            (["-d", "0"], "delay is 0"),
            (["-d", "-1"], "delay is -1"),
            (["-m", "0"], "max_delay is 0"),
            (["--lease", "0"], "lease is 0"),
            (["--grace", "-1"], "grace is -1"),
            (["-q", "nowhere"], "'nowhere'.*default"),
            (["-l", "/no/such/folder/consumer.log"], "no folder /no/such/folder"),
            (["-l", "/"], "--logfile"),
            (["--processes", "2"], "run the command line again"),
            (["--reload", "--max-age", "0"], "max_age is 0"),
        ],
        ids=lambda value: " ".join(value) if isinstance(value, list) else "",
    )
    @pytest.mark.backends("memory")
    def test_dj14_bad_values(self, backend, settings, args, words, restored_logger):
        settings.QUEUES = backend.queues()
        with pytest.raises(CommandError, match=words) as refused:
            call_command("queue_consumer", *args, stdout=StringIO())
        assert refused.value.returncode == 2

    @pytest.mark.parametrize("value", ["0", "-1", "all", "1.5", ""])
    def test_processes_are_a_number_or_auto(self, value):
        parser = Command().create_parser("django-admin", "queue_consumer")
        assert parser.parse_args(["--processes", "auto"]).processes >= 1
        with pytest.raises(CommandError, match=f"'{value}': give a whole number from 1, or auto"):
            parser.parse_args(["--processes", value])

    @pytest.fixture
    def restored_logger(self):
        """The log of djqueue as it was."""
        logger = logging.getLogger("djqueue")
        before = logger.level, list(logger.handlers)
        yield
        logger.setLevel(before[0])
        logger.handlers[:] = before[1]

    @pytest.mark.parametrize(
        ("args", "words"),
        [
            (["-t", "0"], "CommandError: threads is 0"),
            (["-t", "many"], "argument -t/--threads: invalid int value: 'many'"),
            (["--limit", "0"], "CommandError: limit is 0"),
            (["-q", "nowhere"], "CommandError: There is no queue 'nowhere' in QUEUES"),
            (["--reload", "--drain"], "CommandError: --reload goes on until it is stopped: leave out --drain"),
            (["--reload", "--limit", "1"], "CommandError: --reload goes on until it is stopped: leave out --limit"),
            (["--reload", "-t", "0"], "CommandError: threads is 0"),
            (["--processes", "0"], "argument --processes: '0': give a whole number from 1, or auto"),
            (["--processes", "2", "-t", "0"], "CommandError: threads is 0"),
            (["--processes", "2", "--limit", "1"], "CommandError: --limit counts the messages of one process"),
            (["--max-age", "9", "--limit", "1"], "CommandError: --limit counts the messages of one process"),
            (["--max-messages", "0"], "CommandError: max_messages is 0: give a whole number from 1"),
            (["--max-memory", "9"], "CommandError: max_memory is 9 MiB: a process has"),
            (["--no-such-switch"], "unrecognized arguments: --no-such-switch"),
        ],
        ids=lambda value: " ".join(value) if isinstance(value, list) else "",
    )
    def test_exit_code_2(self, site, args, words):
        process = site.consumer(*args)
        assert process.wait() == 2
        assert words in process.output
        assert "Traceback" not in process.output

    @pytest.mark.backends("redis")
    @pytest.mark.parametrize("processes", ["1", "2"])
    def test_exit_code_75_when_a_store_cannot_be_reached(self, site, processes):
        site.queues["default"]["CONNECTION"] = "127.0.0.1:1:0"
        process = site.consumer("--processes", processes)
        assert process.wait() == 75
        process.wait_for("The store of queue 'default' cannot be used")


def test_the_help_is_there_and_the_command_is_named_where_django_names_its_own(make_site):
    site = make_site({"default": {"CLASS": "djqueue.backends.memory.MemoryQueue"}}, ())
    text = site.run("queue_consumer", "--help")
    for switch in ("--threads", "--no-periodic", "--logfile", "--queue", "--delay", "--backoff", "--max-delay"):
        assert switch in text
    for switch in ("--lease", "--grace", "--strict", "--drain", "--limit", "--reload", "--verbosity"):
        assert switch in text
    for switch in ("--processes", "--max-messages", "--max-memory", "--max-age"):
        assert switch in text
    assert "queue_consumer" in site.run("help")


def test_ledgers_of_processes_are_whole_lines(tmp_path):
    code = "from tests.app.commands import write_down\nfor n in range(200): write_down(f'{n} ' + 'x' * 50)"
    env = {"DJQUEUE_LEDGER": str(tmp_path / "ledger"), "DJANGO_SETTINGS_MODULE": "tests.settings"}
    script = f"import django; django.setup()\n{code}"
    with Process([sys.executable, "-c", script], env) as one, Process([sys.executable, "-c", script], env) as two:
        assert (one.wait(), two.wait()) == (0, 0)
    lines = (tmp_path / "ledger").read_text().splitlines()
    assert sorted(lines) == sorted([f"{n} " + "x" * 50 for n in range(200)] * 2)
