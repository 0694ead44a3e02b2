"""queue_consumers, queue_pause, queue_resume and queue_health, as an operator uses them."""

import io
import json
import time

import pytest
from django.core.management import CommandError, call_command

from djqueue import operations, queue_command, queues
from djqueue.backends.base import Entry
from djqueue.running.consumers import Running
from tests.operations.test_health import consumer

pytestmark = pytest.mark.backends("redis")


@queue_command
def charge():
    raise NotImplementedError


@pytest.fixture
def queue(backend, settings):
    settings.QUEUES = backend.queues("default", "mail")
    return queues["default"]


def run(*args):
    out = io.StringIO()
    call_command(*args, stdout=out, stderr=out)
    return out.getvalue().rstrip()


def failure(*args):
    with pytest.raises(CommandError) as caught:
        run(*args)
    return caught.value


def code(*args):
    """The exit code of a command and what it wrote."""
    out = io.StringIO()
    try:
        call_command(*args, stdout=out)
    except SystemExit as end:
        return end.code, out.getvalue()
    return 0, out.getvalue()


class TestConsumers:
    def test_a_line_tells_what_each_does(self, queue):
        assert run("queue_consumers") == "There is no consumer: manage.py queue_consumer starts one."
        since = queue.now() - 90
        told = {"threads": 4, "memory": 61.2, "ran": 1234, "started": queue.now() - 3725}
        consumer(queue, "web-1:42:beef", busy=2, running=[Running("1", "shop.commands.charge", since)], **told)
        head, line = run("queue_consumers").splitlines()
        assert head.split() == ["consumer", "state", "busy", "runs", "for", "ran", "MiB", "up", "queues"]
        assert line == "web-1:42:beef  running   2/4  charge  1m 30s  1,234   61  1h 02m  default, mail"

    def test_one_that_is_gone_is_seen_and_a_release_is_shown_where_there_is_one(self, queue, monkeypatch):
        consumer(queue, "web-1:42:beef", release="2030.1")
        consumer(queue, "web-2:43:cafe", ago=60, version="2.0")
        if not queue.store.is_local:  # what it says of time is by the clock of the store
            now = time.time
            monkeypatch.setattr(time, "time", lambda: now() - 3600)
        head, first, second = run("queue_consumers").splitlines()
        assert ("release" in head, "seen" in head, "djqueue" in head, "2.0" in second) == (True, True, True, True)
        assert ("2030.1" in first, "gone" in second, "1m 00s ago" in second) == (True, True, True)

    def test_in_80_columns_no_line_is_longer(self, queue, monkeypatch):
        monkeypatch.setenv("COLUMNS", "80")
        long = {
            "memory": 1234.5,
            "ran": 12_345_678,
            "busy": 10,
            "threads": 10,
            "release": "f490bc81234567890",
            "started": 1.0,
        }
        runs = [Running("1", "shop.commands.send_all_the_newsletters", queue.now() - 4000)]
        consumer(queue, "web-1.shop.example.com:4242:beefca", ago=60, running=runs, **long)
        assert max(map(len, run("queue_consumers").splitlines())) <= 80

    def test_all_that_is_known_of_one(self, queue):
        runs = [Running("01d4f3a9", charge.name, queue.now() - 5)]
        consumer(queue, "web-1:42:beef", busy=1, running=runs, threads=4, version="2.0")
        page = run("queue_consumers", "--show", "42:b")
        assert "process   0, started by 0" in page
        assert "djqueue   2.0\n" in page
        assert "workers   4 threads\n" in page
        assert page.splitlines()[-1].split() == ["01d4f3a9", charge.name, "5", "s"]
        told = json.loads(run("queue_consumers", "--show", "web-1", "--json"))
        assert told["running"][0]["command"] == charge.name
        assert json.loads(run("queue_consumers", "--json")) == [told]

    def test_an_order_is_given_by_a_part_of_the_name(self, queue):
        consumer(queue, "web-1:42:beef")
        consumer(queue, "web-2:43:cafe", ago=60)
        assert run("queue_consumers", "--quiet", "web-1") == "The consumer web-1:42:beef claims nothing more."
        assert run("queue_consumers", "--resume", "web-1") == "The consumer web-1:42:beef claims again."
        assert run("queue_consumers", "--stop", "web-1:42:beef") == "The consumer web-1:42:beef stops."
        assert run("queue_consumers", "--forget", "web-2") == "The consumer web-2:43:cafe is not shown any more."
        assert len(run("queue_consumers").splitlines()) == 2

    def test_a_name_that_is_none_or_stands_for_several_is_refused(self, queue):
        assert str(failure("queue_consumers", "--stop", "web-1")).endswith("'web-1': there is none at all.")
        consumer(queue, "web-1:42:beef")
        consumer(queue, "web-2:43:cafe", ago=60)
        assert "a part of several names" in str(failure("queue_consumers", "--stop", "web"))
        assert "'we' is too short: give 3" in str(failure("queue_consumers", "--stop", "we"))
        assert "is gone: it hears nothing" in str(failure("queue_consumers", "--stop", "web-2"))
        assert "is alive" in str(failure("queue_consumers", "--forget", "web-1"))

    @pytest.mark.backends("memory")
    def test_that_queues_in_memory_have_consumers_of_their_own_process_is_said(self, queue):
        assert "are not heard of in other processes: default, mail" in run("queue_consumers")


class TestPauses:
    def test_what_is_paused_is_listed_until_it_is_resumed(self, queue):
        assert run("queue_pause") == "Nothing is paused. queue_lanes shows lanes that are."
        assert run("queue_pause", "mail", "default", "--reason", "no stamps").splitlines() == [
            "The queue mail is paused.",
            "The queue default is paused.",
        ]
        assert run("queue_pause", "mail", "--for", "30m") == "The queue mail was paused already."
        assert run("queue_pause", "--command", charge.name, "-q", "mail") == f"The command {charge.name} is paused."
        head, *lines = run("queue_pause").splitlines()
        assert head.split() == ["paused", "name", "queue", "by", "since", "until", "why"]
        assert ["mail" in line for line in lines] == [True, False, True]
        assert [(one["kind"], one["name"], one["why"]) for one in json.loads(run("queue_pause", "--json"))] == [
            ("queue", "mail", "no stamps"),
            ("queue", "default", "no stamps"),
            ("command", charge.name, None),
        ]
        assert run("queue_resume", "mail") == "The queue mail is resumed."
        assert run("queue_resume", "mail") == "The queue mail was not paused."
        assert len(run("queue_resume", "--all").splitlines()) == 2
        assert operations.pauses() == []

    @pytest.mark.parametrize(
        "args, text",
        [
            (("queue_pause", "nail"), "There is no queue 'nail'"),
            (("queue_pause", "--command", "chrage"), "There is no command 'chrage'"),
            (("queue_pause", "mail", "-q", "default"), "name queues without it"),
            (("queue_resume",), "or else give --all"),
            (("queue_resume", "mail", "--all"), "or else give --all"),
        ],
    )
    def test_what_cannot_be_meant_is_refused(self, queue, args, text):
        assert text in str(failure(*args))
        assert operations.pauses() == []

    @pytest.mark.backends("memory")
    def test_what_is_in_memory_is_paused_in_its_own_process(self, queue):
        assert "call djqueue.operations.pause() there" in str(failure("queue_pause", "mail"))


class TestHealth:
    def test_the_exit_code_and_the_first_line_say_how_bad_it_is(self, queue):
        consumer(queue)
        assert code("queue_health") == (0, "OK: 2 queues in order\n")
        queue.put([Entry(b"", "1"), Entry(b"", "2")])
        assert code("queue_health", "--backlog", "2:5") == (
            1,
            "WARNING: 1 problem\nlevel    queue    problem\nwarning  default  2 messages ready\n",
        )
        assert code("queue_health", "--backlog", ":2")[0] == 2
        assert code("queue_health", "--consumers", "2")[0] == 2
        ends, told = code("queue_health", "--backlog", "1:2", "--json", "-q", "default")
        assert (ends, json.loads(told)) == (
            2,
            {
                "status": "critical",
                "problems": [
                    {
                        "level": "critical",
                        "queue": "default",
                        "kind": "backlog",
                        "text": "2 messages ready",
                        "advice": None,
                    }
                ],
            },
        )

    @pytest.mark.parametrize("args", [("--age", "soon"), ("--backlog", "5:2"), ("-q", "nail")])
    def test_what_is_asked_wrongly_is_unknown(self, queue, args):
        with pytest.raises(CommandError) as caught:
            call_command("queue_health", *args)
        assert args[0] == "-q" or "argument" in str(caught.value)
        assert args[0] != "-q" or caught.value.returncode == 3
