"""The samples and flows of djutils' queue, in djqueue's idiom: commands, schedules, a consumer, backends."""

import configparser
import logging
import shlex
import sys
from collections import deque
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from django.core.management import load_command_class
from django.http import HttpResponse
from django.urls import path

import djqueue
from djqueue import Consumer, QueueCommand, crontab, invoker, periodic_command, queue_command, queues
from djqueue.backends.base import BaseQueue
from djqueue.exceptions import EncodeError
from djqueue.messages.failures import errors_of
from djqueue.registry import registry
from tests.app.models import Thing
from tests.support.consumer import only
from tests.support.notes import cleared_per_test
from tests.support.processes import ROOT, Process

SENT: deque = cleared_per_test(deque())
"""What the commands of these samples did; each test begins with none."""


# ---- executing tasks out of process


@queue_command
def churn_data(model_instance, some_data, another_value):
    model_instance.name = f"{some_data} and {another_value}"
    model_instance.save()


@queue_command
def run_this_out_of_process(some_val, another_val):
    SENT.append((some_val, another_val))


def data_processing_view(request, some_val, another_val):
    churn_data(Thing.objects.get(number=some_val), request.POST["payload"], another_val)
    return HttpResponse("Churning in background task added to queue")


urlpatterns = [path("churn/<int:some_val>/<another_val>/", data_processing_view)]


def consume(count: int, **options) -> None:
    assert Consumer(periodic=False, **options).run(limit=count) == 0


@pytest.mark.backends(database=True)
def test_dj1_a_view_enqueues_and_the_consumer_churns(backend, client, settings):
    settings.QUEUES, settings.ROOT_URLCONF = backend.queues(), __name__
    thing = Thing.objects.create(name="raw", number=7)
    response = client.post("/churn/7/more/", {"payload": "data"})
    assert response.content == b"Churning in background task added to queue"
    thing.refresh_from_db()
    assert (thing.name, len(queues["default"])) == ("raw", 1)
    consume(1)
    thing.refresh_from_db()
    assert (thing.name, len(queues["default"])) == ("data and more", 0)


def test_dj1_the_call_returns_at_once_and_keeps_its_arguments():
    handle = run_this_out_of_process({"any": [1, 2]}, another_val=datetime(2011, 1, 1))
    assert (handle.command, list(SENT)) == (f"{__name__}.run_this_out_of_process", [])
    consume(1)
    assert list(SENT) == [({"any": [1, 2]}, datetime(2011, 1, 1))]


def test_whatever_pickles_can_be_passed_and_nothing_else():
    with pytest.raises(EncodeError, match="'another_val'"):
        run_this_out_of_process(1, another_val=lambda: None)
    assert len(queues["default"]) == 0


def test_dj2_eager_commands_run_in_place(settings):
    settings.QUEUE_ALWAYS_EAGER = True
    run_this_out_of_process(1, 2)
    assert (list(SENT), len(queues["default"])) == ([(1, 2)], 0)


# ---- executing tasks on a schedule


@periodic_command(crontab(hour="0", minute="0"))
def send_daily_digest():
    SENT.append("digest")
    return "sent"


@periodic_command(crontab(day_of_week="0", hour="5,17", minute="0"))
def send_sunday_editions():
    SENT.append("sunday")


@periodic_command(crontab(day="1", hour="0", minute="0"))
def run_at_first_of_month():
    SENT.append("month")


SCHEDULED = (send_daily_digest, send_sunday_editions, run_at_first_of_month)
SATURDAY_THE_FIRST = datetime(2011, 1, 1)


def due_at(moment: datetime) -> list[str]:
    """What the consumer runs of that minute's work."""
    SENT.clear()
    with only(*SCHEDULED):
        invoker.enqueue_periodic_commands(moment)
        while invoker.dequeue():
            continue
    return list(SENT)


@pytest.mark.parametrize(
    "moment, sent",
    [
        (SATURDAY_THE_FIRST, ["digest", "month"]),
        (datetime(2011, 1, 2), ["digest"]),
        (datetime(2011, 1, 2, 0, 0, 59), ["digest"]),
        (datetime(2011, 1, 2, 0, 1), []),
        (datetime(2011, 1, 2, 12, 0), []),
        (datetime(2011, 1, 2, 5, 0), ["sunday"]),
        (datetime(2011, 1, 2, 17, 0), ["sunday"]),
        (datetime(2011, 1, 2, 17, 1), []),
        (datetime(2011, 1, 1, 17, 0), []),
        (datetime(2011, 1, 3, 5, 0), []),
        (datetime(2011, 2, 1), ["digest", "month"]),
    ],
    ids=str,
)
def test_dj5_each_schedule_is_due_at_its_minutes(moment, sent):
    assert due_at(moment) == sent


def test_a_year_has_its_digests_sundays_and_firsts():
    minutes = [SATURDAY_THE_FIRST + timedelta(hours=hour) for hour in range(365 * 24)]
    counts = [sum(map(command.validate_datetime, minutes)) for command in SCHEDULED]
    assert counts == [365, 2 * 52, 12]


def test_dj10_a_periodic_command_that_is_called_runs_here():
    assert send_daily_digest() == "sent"
    assert (list(SENT), len(queues["default"])) == (["digest"], 0)


def test_periodic_commands_accept_no_parameters():
    with pytest.raises(TypeError, match="requires subject"):
        periodic_command(crontab(hour=0))(needs_a_subject)
    assert f"{__name__}.needs_a_subject" not in registry


def needs_a_subject(subject):
    """Nobody could say which."""


def test_dj6_the_acceptable_inputs_of_crontab():
    def hours(hour):
        return [n for n in range(24) if crontab(hour=hour, minute=0)(datetime(2011, 1, 1, n))]

    assert hours("*") == list(range(24))
    assert hours("*/4") == [0, 4, 8, 12, 16, 20]
    assert hours("8-10") == [8, 9, 10]
    assert hours("8,10") == [8, 10]
    assert hours(0) == [0]


# ---- autodiscovery


def test_commands_py_of_every_app_is_discovered(tmp_path, monkeypatch, settings):
    app = tmp_path / "discovered"
    app.mkdir()
    (app / "__init__.py").touch()
    (app / "commands.py").write_text(
        "from djqueue.decorators import queue_command\n\n@queue_command\ndef found():\n    pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with only():
        settings.INSTALLED_APPS = [*settings.INSTALLED_APPS, "discovered"]
        djqueue.autodiscover()
        assert "discovered.commands.found" in registry
    for name in ("discovered", "discovered.commands"):
        sys.modules.pop(name)


# ---- consuming messages


def parsed(*switches: str) -> dict:
    parser = load_command_class("djqueue", "queue_consumer").create_parser("django-admin", "queue_consumer")
    return vars(parser.parse_args(switches))


@pytest.mark.parametrize("switches", ["-t 2 -n -l q.log", "--threads=2 --no-periodic --logfile=q.log"])
def test_the_useful_switches(switches):
    options = parsed(*switches.split())
    assert (options["threads"], options["no_periodic"], options["logfile"]) == (2, True, "q.log")
    assert parsed("--verbosity=2")["verbosity"] == 2


@pytest.mark.slow
@pytest.mark.backends("sqlite")
def test_django_admin_with_two_environment_variables_is_enough(backend, site, tmp_path):
    """PYTHONPATH and DJANGO_SETTINGS_MODULE, a log file, four threads, and nothing on the screen."""
    program = Path(sys.executable).with_name("django-admin")
    env = {**site.env, "PYTHONPATH": str(ROOT), "DJANGO_SETTINGS_MODULE": "tests.site_settings"}
    log = tmp_path / "site-queue.log"
    command = [program, "queue_consumer", f"--logfile={log}", "--threads=4", "--verbosity=2", "-n", "--drain"]
    with Process(list(map(str, command)), env=env, cwd=tmp_path) as consumer:
        assert consumer.wait() == 0, consumer.output
        assert (consumer.output, "4 threads" in log.read_text()) == ("", True)


SUPERVISOR = """
[program:queue_spiders]
environment=PYTHONPATH="/home/code/envs/spiders/"
directory=/home/code/envs/spiders/
command=bin/django-admin queue_consumer --settings=spiders.settings -l logs/queue.log --verbosity=2 -t 2
user=code
autostart=true
autorestart=true
"""


def test_the_supervisord_program():
    """tests/consumer/test_supervisord.py runs one under the real supervisord."""
    config = configparser.ConfigParser(interpolation=None)
    config.read_string(SUPERVISOR)
    program, command, *switches = shlex.split(config["program:queue_spiders"]["command"])
    assert (Path(program).name, command) == ("django-admin", "queue_consumer")
    options = parsed(*switches)
    expected = {"settings": "spiders.settings", "logfile": "logs/queue.log", "verbosity": 2, "threads": 2}
    assert {name: options[name] for name in expected} == expected


# ---- what happens if one of my tasks blows up?


@queue_command
def blow_up(number):
    if number % 2:
        raise RuntimeError(f"number {number}")
    SENT.append(number)


@pytest.mark.backends(database=True)
def test_dj17_a_failing_task_is_logged_and_kept_and_its_worker_works_on(backend, settings, caplog):
    settings.QUEUES = backend.queues()
    blow_up.enqueue_many([(number,) for number in range(12)])
    with caplog.at_level(logging.ERROR, "djqueue"):
        consume(12, threads=2)
    assert sorted(SENT) == [0, 2, 4, 6, 8, 10]
    told = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert sorted(str(record.exc_info[1]) for record in told) == sorted(f"number {n}" for n in (1, 3, 5, 7, 9, 11))
    assert {record.worker for record in told} <= {"djqueue-worker-1", "djqueue-worker-2"}
    dead = queues["default"].failed.claim(10)
    assert {lease.entry.id for lease in dead} == {record.message_id for record in told}
    for lease in dead:
        assert 'raise RuntimeError(f"number {number}")' in errors_of(lease.entry.errors)[-1]["traceback"]


# ---- backends


class ListQueue(BaseQueue):
    """The four methods, over lists that a dictionary keeps by name."""

    shelves: dict[str, list[str]] = {}

    def __init__(self, name, connection):
        super().__init__(name, connection)
        self.items = self.shelves.setdefault(f"{connection}/{name}", [])

    def write(self, data):
        self.items.append(data)

    def read(self):
        return self.items.pop(0) if self.items else None

    def flush(self):
        del self.items[:]

    def __len__(self):
        return len(self.items)


@pytest.mark.django_db(transaction=True)
def test_a_backend_of_four_methods_works_with_the_consumer(settings, tmp_path):
    settings.QUEUES = {"default": {"CLASS": f"{__name__}.ListQueue", "CONNECTION": str(tmp_path)}}
    blow_up.enqueue_many([(number,) for number in range(4)])
    assert len(queues["default"]) == 4
    consume(4, threads=2)
    assert (sorted(SENT), len(queues["default"]), len(queues["default"].failed)) == ([0, 2], 0, 2)
    blow_up(6)
    invoker.flush()
    assert len(invoker.queue) == 0


@pytest.mark.backends("sqlite", "postgres", "mariadb", "redis", "redis-blocking")
def test_the_settings_queue_class_and_queue_connection_make_the_default_queue(backend, settings):
    config = backend.config()
    settings.QUEUES = {}
    settings.QUEUE_CLASS, settings.QUEUE_CONNECTION = config["CLASS"], config["CONNECTION"]
    settings.QUEUE_NAME, settings.QUEUE_OPTIONS = config["NAME"], config.get("OPTIONS", {})
    assert type(invoker.queue) is backend.cls
    run_this_out_of_process(1, 2)
    consume(1)
    assert list(SENT) == [(1, 2)]


@pytest.mark.django_db(transaction=True)
def test_no_setting_at_all_is_the_default_database(settings):
    settings.QUEUES = {}
    run_this_out_of_process("in", "the database")
    assert invoker.queue.database == "default"
    consume(1)
    assert list(SENT) == [("in", "the database")]


# ---- the classes behind it


class SendParcel(QueueCommand):
    def execute(self):
        SENT.append(self.data)


def test_a_command_class_travels_with_its_data():
    invoker.enqueue(SendParcel({"order": 42}))
    assert list(SENT) == []
    assert invoker.dequeue() is not None
    assert (list(SENT), invoker.dequeue()) == ([{"order": 42}], None)
    assert f"{__name__}.SendParcel" in registry
