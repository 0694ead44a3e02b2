"""What is set or done wrongly gets an answer that names the mend: settings, stores, keys, and places of code."""

import logging
import pickle
import re
import sys
import threading
import time
import traceback
import types
from importlib import import_module

import botocore.exceptions
import pytest
import redis
from django.apps import AppConfig, apps
from django.core.management import call_command
from django.db import OperationalError, connections
from django.db.utils import ConnectionHandler
from django.test import override_settings

from djqueue import conf, queues
from djqueue.backends.database import session
from djqueue.consumer import STORE_UNREACHABLE, Consumer
from djqueue.decorators import queue_command
from djqueue.discovery import autodiscover
from djqueue.exceptions import (
    BadSignature,
    InvalidQueueError,
    NotSupported,
    QueueFull,
    StoreError,
    StoreUnreachable,
    TablesMissing,
)
from djqueue.registry import registry
from djqueue.running import executor, reporting
from djqueue.utils import RareReports
from tests.support.backends import redis_url
from tests.support.consumer import exit_code

MEMORY = "djqueue.backends.memory.MemoryQueue"
REDIS = "djqueue.backends.redis_backend.RedisQueue"
SQS = "djqueue.backends.sqs.SqsQueue"
NOWHERE = "127.0.0.1:1"


@queue_command
def add(one, other):
    return one + other


@pytest.fixture
def logged(no_periodic_commands, caplog):
    """The messages that were logged, with their levels."""
    caplog.set_level(logging.INFO, "djqueue")
    return lambda: [(record.levelname, record.getMessage()) for record in caplog.records]


def refused(kind=StoreError):
    """The error of a call."""
    with pytest.raises(kind) as caught:
        add(1, 2)
    return caught.value


def is_short(error):
    """Whether its traceback is one, and has few lines of the package."""
    lines = "".join(traceback.format_exception(error)).splitlines()
    return lines[0].startswith("Traceback") and len(lines) < 25 and not any("During handling" in one for one in lines)


# ---- a store that cannot be used, at the call


def test_a_redis_that_is_away(settings):
    settings.QUEUES = {"default": {"CLASS": REDIS, "CONNECTION": f"redis://:s3cret@{NOWHERE}/0"}}
    error = refused(redis.exceptions.ConnectionError)
    where = "Redis at 127.0.0.1:1/0 cannot be reached: Connection refused."
    assert str(error) == f"Queue 'default': {where} Start it, or correct CONNECTION."
    assert isinstance(error, StoreUnreachable) and error.__notes__ == ["In a call of tests.test_wrong_uses.add."]
    assert is_short(error)
    for ask in (queues["default"].stats, lambda: queues["default"].store.get("a")):
        with pytest.raises(StoreUnreachable, match="^Redis at 127.0.0.1:1/0 cannot be reached: Connection refused"):
            ask()
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


@pytest.mark.backends("redis")
def test_a_redis_without_the_database(backend, settings):
    settings.QUEUES = {"default": {"CLASS": REDIS, "CONNECTION": f"{redis_url()}/9999"}}
    error = refused(InvalidQueueError)
    assert "/9999 is no database of that server, which has " in str(error)
    assert "Correct the number in CONNECTION, or the setting databases of the server." in str(error)


def test_a_redis_that_is_full(settings, private_server):
    server = private_server("redis")
    settings.QUEUES = {"default": {"CLASS": REDIS, "CONNECTION": server.url}}
    with redis.Redis(port=server.port) as client:
        client.config_set("maxmemory", 1)
        error = refused(QueueFull)
    assert re.match("Queue 'default': Redis at .* is full .maxmemory.", str(error))
    assert isinstance(error, StoreError) and is_short(error)
    assert error.__notes__ == ["In a call of tests.test_wrong_uses.add."]


def test_a_queue_that_is_not_set(settings):
    settings.QUEUES = {"default": {"CLASS": MEMORY}}
    with pytest.raises(InvalidQueueError, match="no queue 'post' in QUEUES") as caught:
        add.using(queue_name="post").enqueue(1, 2)
    assert caught.value.__notes__ == ["In a call of tests.test_wrong_uses.add."]


def test_a_queue_without_a_store_says_which_setting_takes_it_away(settings):
    settings.QUEUES = {"default": {"CLASS": MEMORY, "STORE": False}}
    with pytest.raises(NotSupported, match=r"^QUEUES\['default'\]\['STORE'\] is False.* name a store"):
        queues["default"].store.put("key", b"")


def test_an_sqs_that_is_away(settings, monkeypatch):
    monkeypatch.setattr("djqueue.backends.sqs.connection.CONFIG", None)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "key")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    for connection, why in ((f"http://{NOWHERE}?region=eu-west-1", "Could not connect"), ("", "specify a region")):
        settings.QUEUES = {"default": {"CLASS": SQS, "CONNECTION": connection, "STORE": False}}
        error = refused(botocore.exceptions.BotoCoreError)
        assert isinstance(error, StoreUnreachable) and is_short(error)
        assert all(
            words in str(error) for words in ("Queue 'default': SQS queue default at", why, "Correct CONNECTION")
        )
        assert type(pickle.loads(pickle.dumps(error))) is type(error)


def bare(monkeypatch, settings, **database):
    """The default database as it is before any migrate, or away."""
    handler = ConnectionHandler({"default": {"ENGINE": "django.db.backends.sqlite3", **database}})
    monkeypatch.setattr(session, "connections", handler)
    settings.QUEUES = {"default": {"CLASS": "djqueue.backends.database.DatabaseQueue"}}
    return handler["default"]


@pytest.mark.django_db(transaction=True)
def test_missing_tables(settings, monkeypatch, tmp_path):
    connection = bare(monkeypatch, settings, NAME=tmp_path / "bare.sqlite3")
    error = refused(OperationalError)
    text = "the tables of djqueue are missing in database 'default': run manage.py migrate."
    assert (type(error), str(error)) == (TablesMissing, f"Queue 'default': {text}")
    assert is_short(error)
    connection.close()


@pytest.mark.backends("sqlite", "postgres", "mariadb")
def test_a_consumer_whose_table_is_missing_does_not_start(backend, settings, caplog):
    settings.QUEUES = backend.queues()
    connection = connections[backend.alias]
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE djqueue_history RENAME TO djqueue_away")
    try:
        assert exit_code(drain=True) == STORE_UNREACHABLE
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE djqueue_away RENAME TO djqueue_history")
    [told] = [one.getMessage() for one in caplog.records if one.levelname == "CRITICAL"]
    assert f"The tables of djqueue are missing in database {backend.alias!r}: run manage.py migrate" in told


@pytest.mark.django_db(transaction=True)
def test_a_database_that_is_away(settings, monkeypatch, tmp_path):
    bare(monkeypatch, settings, NAME=tmp_path / "nowhere" / "bare.sqlite3")
    error = refused(OperationalError)
    assert "the database 'default' cannot be reached: unable to open" in str(error) and "in DATABASES." in str(error)
    assert isinstance(error, StoreUnreachable) and is_short(error)


@pytest.mark.backends("postgres", "mariadb", each=True)
def test_missing_tables_and_a_database_that_is_away_on_a_server(backend, settings):
    settings.QUEUES = backend.queues()
    connection = connections[backend.alias]
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE djqueue_message RENAME TO djqueue_away")
    try:
        assert f"migrate --database {backend.alias}." in str(refused(TablesMissing))
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE djqueue_away RENAME TO djqueue_message")
    connection.close()
    port, connection.settings_dict["PORT"] = connection.settings_dict["PORT"], "1"
    host, connection.settings_dict["HOST"] = connection.settings_dict["HOST"], "127.0.0.1"
    try:
        error = refused(OperationalError)
    finally:
        connection.settings_dict |= {"PORT": port, "HOST": host}
    assert f"the database {backend.alias!r} cannot be reached: " in str(error) and is_short(error)


def test_djqueue_is_not_installed(settings, monkeypatch):
    class NotInstalled(types.ModuleType):
        def __getattr__(self, name):
            raise RuntimeError("Model class … isn't in an application in INSTALLED_APPS.")

    monkeypatch.setitem(sys.modules, "lacking_app", NotInstalled("lacking_app"))
    monkeypatch.setattr(apps, "is_installed", lambda name: False)
    settings.QUEUES = {"default": {"CLASS": "lacking_app.DatabaseQueue"}}
    error = refused(InvalidQueueError)
    assert str(error).endswith("Add 'djqueue' to INSTALLED_APPS.") and error.__suppress_context__


# ---- a consumer that cannot run what it claims


@pytest.mark.backends("memory")
class TestKeys:
    @pytest.fixture(autouse=True)
    def _first_report(self, monkeypatch):
        monkeypatch.setattr(reporting, "BAD_SIGNATURES", RareReports(60))

    def test_another_secret_key_is_said_once_for_many_messages(self, backend, settings, logged):
        settings.QUEUES = backend.queues()
        for number in range(5):
            add(number, 2)
        with override_settings(SECRET_KEY="another"):
            assert Consumer(["default"], drain=True).run() == 0
        [told] = [text for level, text in logged() if level == "ERROR"]
        assert all(word in told for word in ("bad signature", "SECRET_KEY_FALLBACKS", "manage.py queue_errors retry"))
        failed = [record.entry for record in queues["default"].failed.peek("ready")]
        assert len(failed) == 5 and all("SECRET_KEY_FALLBACKS" in entry.errors for entry in failed)

    def test_what_was_not_reported_is_counted(self):
        reports = RareReports(0.05)
        assert [reports.take("mail"), reports.take("mail"), reports.take("mail"), reports.take("slow")] == [
            0,
            None,
            None,
            0,
        ]
        time.sleep(0.06)
        assert [reports.take("mail"), reports.take("mail")] == [2, None]

    def test_its_exception_is_one_of_its_own(self, backend, settings):
        settings.QUEUES = backend.queues()
        add(1, 2)
        with override_settings(SECRET_KEY="another"):
            verdict = executor.execute(queues["default"], *queues["default"].claim(1))
        assert isinstance(verdict.exception, BadSignature) and verdict.exception.__traceback__ is None


@queue_command(time_limit=0.05)
def overrun():
    time.sleep(0.1)


@queue_command(time_limit=0.05)
def overrun_and_fail():
    time.sleep(0.1)
    raise ValueError("late too")


@queue_command(time_limit=30)
def quick():
    pass


@queue_command(result_ttl=60)
def unkept():
    return threading.Lock()


@pytest.mark.backends("memory")
@pytest.mark.parametrize("command", [overrun, overrun_and_fail])
def test_a_run_longer_than_its_time_limit(backend, settings, logged, command):
    settings.QUEUES = backend.queues()
    command()
    quick()
    Consumer(["default"], drain=True).run()
    [told] = [text for level, text in logged() if level == "WARNING"]
    assert re.match(rf"{command.name} ran \d\.\d s, its time_limit is 0\.05 s: a function cannot be stopped", told)


@pytest.mark.backends("memory")
def test_a_result_that_cannot_be_kept(backend, settings, logged):
    settings.QUEUES = backend.queues()
    unkept()
    Consumer(["default"], drain=True).run()
    [told] = [text for level, text in logged() if level == "WARNING"]
    assert told.startswith(f"{unkept.name} returned a value of the type lock, which cannot be kept: ")
    assert told.endswith("Return None or other values, or drop result_ttl")


@pytest.mark.backends("memory")
def test_a_command_that_the_consumer_does_not_know(backend, settings, logged):
    settings.QUEUES = backend.queues()
    quick()
    registry.unregister(quick)
    try:
        Consumer(["default"], drain=True).run()
    finally:
        registry.register(quick)
    [told] = [text for level, text in logged() if level == "WARNING"]
    assert f"unknown command {quick.name!r}: it is an object of the class Command, which is not registered" in told


def test_a_queue_in_memory_served_by_a_process_of_its_own(settings, logged, monkeypatch):
    monkeypatch.setattr("djqueue.management.commands.queue_consumer.handle_signals", lambda *_: None)
    monkeypatch.setattr("djqueue.management.commands.queue_consumer._leave", lambda code, at_once: None)
    settings.QUEUES = {"default": {"CLASS": MEMORY}}
    call_command("queue_consumer", drain=True)
    [told] = [text for level, text in logged() if level == "WARNING"]
    assert "'default' is in the memory of this process" in told and "Let CLASS name a backend" in told


# ---- code in the wrong place, and settings that come late


@pytest.mark.parametrize("code, kind", [("def (", SyntaxError), ("import nosuchmodule", ImportError)])
def test_an_error_in_commands_py_names_its_app(monkeypatch, tmp_path, code, kind):
    name = f"shop_with_{kind.__name__}"
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").touch()
    (tmp_path / name / "commands.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    app = AppConfig(name, import_module(name))
    monkeypatch.setattr(apps, "get_app_configs", lambda: [app])
    with pytest.raises(kind) as caught:
        autodiscover()
    [note] = caught.value.__notes__
    assert note.startswith(f"In the module {name}.commands, which djqueue imports at the start.")
    assert note.endswith("leave 'commands' out of QUEUE_MODULES.")


def test_settings_that_are_assigned_at_run_time_count():
    from django.conf import settings

    assert conf.get("QUEUE_MAX_ATTEMPTS") == 5
    with override_settings():  # so that what is assigned ends with the test
        before = queues["default"]
        settings.QUEUE_MAX_ATTEMPTS = 2
        assert conf.get("QUEUE_MAX_ATTEMPTS") == 2
        settings.QUEUE_MAX_ATTEMPTS = 3
        assert conf.get("QUEUE_MAX_ATTEMPTS") == 3
        del settings.QUEUE_MAX_ATTEMPTS
        assert conf.get("QUEUE_MAX_ATTEMPTS") == 5
        assert queues["default"] is before
        settings.QUEUES = {"default": {"CLASS": MEMORY, "NAME": "other"}}
        assert queues["default"].name == "other"
