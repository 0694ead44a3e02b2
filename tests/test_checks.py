"""System checks: one test per id, through Django's own machinery; and a project that is right hears nothing."""

import io
import re
import sys
import types
from contextlib import contextmanager
from datetime import timedelta

import pytest
from django.core.checks import Tags, registry, run_checks
from django.core.management import CommandError, call_command
from django.core.signals import setting_changed
from django.db import connection, connections
from django.test import override_settings
from redis.cluster import RedisCluster

from djqueue import conf
from djqueue.backends.base import BaseQueue
from djqueue.checks import CATALOGUE
from djqueue.checks.servers import OWN_LOOPS
from djqueue.consumer import Options, Supervisor
from djqueue.decorators import crontab, periodic_command, queue_command
from djqueue.flow.limits import Throttle
from djqueue.hints import HINTS
from djqueue.policies.options import OPTIONS
from djqueue.registry import registry as commands
from djqueue.throttle import SETTINGS as THROTTLE_KEYS
from tests.support.backends import redis_url
from tests.support.consumer import only as registered_only

MEMORY = "djqueue.backends.memory.MemoryQueue"
MEMORY_STORE = "djqueue.backends.memory.MemoryStore"
DATABASE = "djqueue.backends.database.DatabaseQueue"
REDIS = "djqueue.backends.redis_backend.RedisQueue"


class Needy(BaseQueue):
    """A third party's queue with a wish of its own."""

    options = frozenset({"COLOUR"})

    def __init__(self, name, connection=None, colour="red"):
        super().__init__(name, connection)
        if colour == "blue":
            raise RuntimeError("no blue today")


NEEDY = f"{__name__}.Needy"
NOT_A_QUEUE = f"{__name__}.MEMORY"


def found(deploy=False, databases=(), tag="djqueue", **changes):
    """The messages of djqueue under these settings."""
    with override_settings(**changes):
        told = run_checks(tags=[tag], include_deployment_checks=deploy, databases=databases)
    ours = [message for message in told if message.id.startswith("djqueue.")]
    places = "djqueue.W006", "djqueue.W007"  # commands of tests are in no installed app
    return [message for message in ours if message.id not in places]


def ids(messages):
    return [message.id.removeprefix("djqueue.") for message in messages]


def only(id, messages, *words, hint=""):
    """There is one message, with that id, these words and that hint."""
    assert ids(messages) == [id], messages
    assert all(word in messages[0].msg for word in words), messages[0].msg
    assert hint in messages[0].hint, messages[0].hint
    return messages[0]


@contextmanager
def declared(decorator=queue_command, /, *given, **options):
    """A command of a module of its own, forgotten afterwards."""

    def paint():
        """Nothing."""

    paint.__module__, paint.__qualname__ = __name__, "paint"
    command = decorator(*given, **options)(paint)
    try:
        yield command
    finally:
        commands.unregister(command)


@contextmanager
def away(*tables):
    """These tables as if they had never been made."""

    def rename(statement):
        with connection.schema_editor() as editor:
            for table in tables:
                editor.execute(statement.format(table))

    rename("ALTER TABLE {0} RENAME TO {0}_away")
    try:
        yield
    finally:
        rename("ALTER TABLE {0}_away RENAME TO {0}")


@contextmanager
def without(*names):
    """The settings as if these were never set."""
    with override_settings():
        from django.conf import settings

        for name in names:
            delattr(settings, name)
            setting_changed.send(sender=None, setting=name, value=None, enter=True)  # what it was is remembered
        yield
    for name in names:
        setting_changed.send(sender=None, setting=name, value=None, enter=False)


@pytest.fixture(autouse=True)
def _no_commands_of_other_tests():
    with registered_only():
        yield


def test_every_id_has_a_test_and_the_checks_are_registered_by_their_tags():
    with open(__file__) as file:
        tested = set(re.findall(r"def test_([ew]\d{3})_", file.read()))
    assert tested == {id.lower() for id in CATALOGUE}
    assert {"djqueue", Tags.database} <= set(registry.registry.tags_available())


# ---- clean


def test_the_settings_of_this_suite_and_the_defaults_are_clean_and_do_not_connect():
    assert found() == []
    with without("QUEUES"):
        assert found() == []


@pytest.mark.django_db
def test_the_defaults_are_clean_when_deployed_and_connected():
    with without("QUEUES"):
        assert found(deploy=True, databases=["default"]) == []


def test_every_setting_and_option_at_once_is_clean():
    options = {"LEASE": timedelta(minutes=2), "ON_COMMIT": None, "PREFIX": "site", "REMEMBER_DONE": 60, "KEEP_DONE": 10}
    needy = {"CLASS": NEEDY, "STORE": {"CLASS": MEMORY_STORE}, "OPTIONS": {"COLOUR": "red"}}
    messages = found(
        QUEUES={
            "default": {"CLASS": REDIS, "CONNECTION": "10.0.0.75:6379:0", "NAME": "jobs", "OPTIONS": options},
            "mail": needy,
        },
        QUEUE_ALWAYS_EAGER=True,
        QUEUE_SERIALIZER="json",
        QUEUE_ACCEPT=["json"],
        QUEUE_MODELS="reference",
        QUEUE_MAX_MESSAGE_SIZE=1000,
        QUEUE_MAX_LOST=1,
        QUEUE_UNKNOWN_AFTER=timedelta(hours=2),
    )
    assert messages == []


@override_settings(QUEUE_NAMES="jobs")
def test_check_command_fails_with_the_hint():
    with pytest.raises(CommandError, match="did you mean 'QUEUE_NAME'"):
        call_command("check", stdout=io.StringIO())


# ---- names and values


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("QUEUE_CONECTION", "QUEUE_CONNECTION"),
        ("QUEUE", "QUEUES"),
        ("QUEUES_DEFAULT", "QUEUES"),
        ("QUEUE_RETRIES", "QUEUE_MAX_ATTEMPTS"),
        ("QUEUE_BROKER_URL", "QUEUE_CONNECTION"),
        ("QUEUE_IMMEDIATE", "QUEUE_ALWAYS_EAGER"),
        ("QUEUE_WORKER_EMPTY_LIMIT", "QUEUE_IDLE_TIMEOUT"),
    ],
)
def test_e001_a_misspelt_setting(name, meant):
    only("E001", found(**{name: 1}), name, hint=f"did you mean {meant!r}?")


def test_e001_a_throttle_is_a_key_of_queues():
    hint = "did you mean the key QUEUES[alias]['THROTTLE']"
    only("E001", found(QUEUE_THROTTLE={"limit": 1, "window": 1}), "QUEUE_THROTTLE", hint=hint)


def test_w001_a_setting_that_may_be_of_somebody_else():
    only("W001", found(QUEUE_ZZ_TOP_GUITAR_LICKS=1), "QUEUE_ZZ_TOP_GUITAR_LICKS", hint="QUEUE_SERIALIZER")


@pytest.mark.parametrize(
    ("queues", "words"),
    [
        (["default"], ["QUEUES is of the type list"]),
        (None, ["QUEUES is None"]),
        ({1: {}}, ["QUEUES[1]"]),
        ({"mail": "redis"}, ["QUEUES['mail']", "str"]),
        ({"mail": {"CLASS": BaseQueue}}, ["QUEUES['mail']['CLASS']"]),
        ({"mail": {"NAME": 5}}, ["QUEUES['mail']['NAME']", "int"]),
        ({"mail": {"OPTIONS": [("LEASE", 5)]}}, ["QUEUES['mail']['OPTIONS']", "list"]),
        ({"mail": {"STORE": 5}}, ["QUEUES['mail']['STORE']"]),
        ({"mail": {"STORE": {}}}, ["QUEUES['mail']['STORE']['CLASS']"]),
        ({"mail": {"STORE": {"CLASS": MEMORY, "OPTIONS": 1}}}, ["QUEUES['mail']['STORE']['OPTIONS']"]),
    ],
)
def test_e002_queues_of_a_wrong_type(queues, words):
    only("E002", found(QUEUES=queues), *words)


def test_e003_an_unknown_key():
    only("E003", found(QUEUES={"mail": {"CLAS": MEMORY}}), "QUEUES['mail']", "'CLAS'", hint="did you mean 'CLASS'?")
    only("E003", found(QUEUES={"mail": {"name": "x"}}), hint="did you mean 'NAME'?")
    for key, meant in {"LOCATION": "CONNECTION", "url": "CONNECTION", "BACKEND": "CLASS"}.items():
        only("E003", found(QUEUES={"mail": {key: ""}}), repr(key), hint=f"did you mean {meant!r}?")
    store = {"CLASS": MEMORY_STORE, "CONECTION": ""}
    only("E003", found(QUEUES={"mail": {"STORE": store}}), "QUEUES['mail']['STORE']", hint="'CONNECTION'")


def test_e003_an_unknown_key_of_the_history():
    only("E003", found(QUEUE_HISTORY={"ages": 60, "count": 100}), "QUEUE_HISTORY", "'ages'", hint="did you mean 'age'")


def test_e004_an_unknown_option():
    messages = found(QUEUES={"default": {"CLASS": REDIS, "OPTIONS": {"PREFX": "a"}}})
    only("E004", messages, "QUEUES['default']['OPTIONS']", "'PREFX'", hint="did you mean 'PREFIX'?")
    messages = found(QUEUES={"default": {"CLASS": MEMORY, "OPTIONS": {"PREFIX": "a"}}})
    only("E004", messages, hint="there are KEEP_DONE, LEASE, LIFO, ON_COMMIT, REMEMBER_DONE")
    misplaced = {"CLASS": MEMORY, "OPTIONS": {"throttle": {"limit": 5, "window": 1}}}
    only("E004", found(QUEUES={"default": misplaced}), hint="QUEUES[alias]['THROTTLE'], which is next to OPTIONS")
    with without("QUEUES"):
        only("E004", found(QUEUE_OPTIONS={"LEAS": 5}), "QUEUE_OPTIONS", hint="did you mean 'LEASE'?")


@pytest.mark.parametrize("path", ["djqueue.backends.nowhere.Queue", "plain", NOT_A_QUEUE, "builtins.int"])
def test_e005_a_class_that_is_none(path):
    only("E005", found(QUEUES={"mail": {"CLASS": path}}), "QUEUES['mail']['CLASS']", path, hint="BaseQueue")


@pytest.mark.parametrize(
    ("path", "meant"),
    [(f"{MEMORY}s", MEMORY), ("djqueue.backends.redis_backend.RedisQeue", REDIS), ("djqueue.redis.RedisQueue", REDIS)]
    + [("redis", REDIS), ("djqueue.backends.redis.Redis", REDIS), ("postgres", DATABASE), ("memory", MEMORY)],
)
def test_e005_names_the_class_that_was_meant(path, meant):
    with without("QUEUES"):
        only("E005", found(QUEUE_CLASS=path), f"QUEUE_CLASS is {path!r}", hint=f"Did you mean {meant!r}?")


@pytest.mark.parametrize(("package", "path"), [("redis", REDIS), ("sqs", "djqueue.backends.sqs.SqsQueue")])
def test_e005_names_the_package_that_is_not_installed(monkeypatch, package, path):
    for name in [name for name in sys.modules if name.startswith(f"djqueue.backends.{package}")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, {"redis": "redis", "sqs": "boto3"}[package], None)
    messages = found(QUEUES={"mail": {"CLASS": path}})
    only("E005", messages, f"pip install 'django-djqueue[{package}]'", hint="Install that, or name another class.")


def test_e005_a_module_that_fails(monkeypatch):
    class Failing(types.ModuleType):
        def __getattr__(self, name):
            raise RuntimeError("out of luck")

    monkeypatch.setitem(sys.modules, "failing_queues", Failing("failing_queues"))
    only("E005", found(QUEUES={"mail": {"CLASS": "failing_queues.Queue"}}), "'mail'", "RuntimeError: out of luck")


@pytest.mark.parametrize(
    ("config", "word"),
    [
        ({"NAME": "a b"}, "NAME"),
        ({"NAME": "x" * 65}, "NAME"),
        ({"CONNECTION": "no-such-alias"}, "CONNECTION"),
        ({"CONNECTION": "redis://:secret@10.0.0.75/0"}, "A queue in Redis needs CLASS (or QUEUE_CLASS) = 'djqueue."),
        ({"CONNECTION": "10.0.0.75:6379:0:secret"}, "CONNECTION is an address, which is no alias in DATABASES"),
        ({"CONNECTION": "sqs://eu-central-1"}, "A queue in SQS needs CLASS (or QUEUE_CLASS) = 'djqueue."),
        ({"CLASS": REDIS, "CONNECTION": "10.0.0.75:6379:x"}, "CONNECTION"),
        ({"CLASS": REDIS, "OPTIONS": {"PREFIX": 5}}, "PREFIX"),
        ({"STORE": "djqueue.backends.nowhere.Store"}, "STORE"),
        ({"CLASS": NEEDY, "OPTIONS": {"COLOUR": "blue"}}, "RuntimeError: no blue today"),
    ],
)
def test_e006_a_queue_that_cannot_be_made(config, word):
    only("E006", found(QUEUES={"mail": {"CLASS": DATABASE, **config}}), "'mail'", word)


BAD_VALUES = {
    "QUEUE_CLASS": [BaseQueue],
    "QUEUE_NAME": [None],
    "QUEUE_OPTIONS": ["LEASE=5"],
    "QUEUE_ALWAYS_EAGER": ["no"],
    "QUEUE_SERIALIZER": ["yaml", ["json"]],
    "QUEUE_ACCEPT": ["json", [], ["json", "yaml"]],
    "QUEUE_MODELS": ["copy"],
    "QUEUE_MODULES": ["tasks", ["shop.tasks"], None],
    "QUEUE_IMPORT": ["company", ["company."], [5]],
    "QUEUE_MAX_MESSAGE_SIZE": [0, "1 MiB"],
    "QUEUE_MAX_LOST": [0, True],
    "QUEUE_UNKNOWN_AFTER": [-1, "1h"],
    "QUEUE_MAX_ERRORS": [0, 1.5],
    "QUEUE_MAX_RESULTS": [0, 1.5],
    "QUEUE_MAX_ERROR_AGE": [0, "7d"],
    "QUEUE_HISTORY": [True, {"age": 0}, {"count": 1}, {"value": 1}],
    "QUEUE_MAX_POLL_INTERVAL": [0],
    "QUEUE_CONSUMER_PREFIX": [None],
    "QUEUE_RELEASE": [1],
    "QUEUE_LOCK_DIR": [1],
    "QUEUE_LEASE": ["60"],
    "QUEUE_DEFAULT_PRIORITY": [2**40, None],
    "QUEUE_DEFAULT_THREAD": [1.5, len],
    "QUEUE_LANE_PREFIX": [5],
    "QUEUE_BATCH_SIZE": [0, 1001],
    "QUEUE_IDLE_TIMEOUT": [-1, "0.1"],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in BAD_VALUES.items() for value in values])
def test_e007_a_bad_value(name, value):
    with without("QUEUES"):
        told = found(**{name: value})
    if isinstance(value, dict):
        [(key, value)] = value.items()
        name = f"{name}[{key!r}]"
    only("E007", told, f"{name} is {value!r}")


def test_e007_an_environment_variable_that_cannot_be_read_or_makes_no_sense(monkeypatch):
    monkeypatch.setenv("QUEUE_BATCH_SIZE", "many")
    only("E007", found(), "The environment variable QUEUE_BATCH_SIZE is 'many'", hint="a whole number")
    monkeypatch.setenv("QUEUE_BATCH_SIZE", "0")
    only("E007", found(), "The environment variable QUEUE_BATCH_SIZE is '0'", hint="from 1 to 1000")
    only("E007", found(QUEUE_BATCH_SIZE=1001), "QUEUE_BATCH_SIZE is 1001", hint="from 1 to 1000")


@pytest.mark.parametrize("lease", [0, -5, "60", None, True, timedelta(0)])
def test_e008_a_bad_lease(lease):
    messages = found(QUEUES={"mail": {"CLASS": MEMORY, "OPTIONS": {"LEASE": lease}}})
    only("E008", messages, "QUEUES['mail']['OPTIONS']['LEASE']", repr(lease) if lease != timedelta(0) else "0.0")


@pytest.mark.parametrize("alias", ["nowhere", "", True])
def test_e009_on_commit_of_no_database(alias):
    messages = found(QUEUES={"mail": {"CLASS": MEMORY, "OPTIONS": {"ON_COMMIT": alias}}})
    only("E009", messages, "QUEUES['mail']['OPTIONS']['ON_COMMIT']", hint="'default'")


@pytest.mark.parametrize(("name", "value"), [("QUEUE_CLASS", MEMORY), ("QUEUE_NAME", "jobs"), ("QUEUE_OPTIONS", {})])
def test_e010_the_default_queue_is_said_twice(name, value):
    only("E010", found(QUEUES={"default": {"CLASS": MEMORY}}, **{name: value}), name, "QUEUES['default']")
    assert found(QUEUES={"mail": {"CLASS": MEMORY}}, **{name: value}) == []


def test_no_password_is_told():
    url = "redis://:s3cret@10.0.0.75/0"
    bad = [{"CLASS": DATABASE}, {"CLASS": REDIS, "OPTIONS": {"PREFIX": 5}}, {"CLASS": f"{REDIS}x"}, {"NAME": "a b"}]
    for config in bad:
        messages = found(QUEUES={"mail": {"CLASS": DATABASE, **config, "CONNECTION": url}})
        assert len(messages) == 1 and "s3cret" not in messages[0].msg + messages[0].hint, messages


# ---- commands


def test_e011_a_command_of_no_queue():
    with declared(queue_name="mial"):
        messages = found(QUEUES={"mail": {"CLASS": MEMORY}})
    only("E011", messages, f"{__name__}.paint", "'mial'", hint="did you mean 'mail'?")


@pytest.mark.parametrize(
    ("schedule", "words"),
    [
        (crontab(hour=3), "* 3 * * *"),
        (crontab(day_of_week="mon"), "* * * * mon"),
        (crontab(hour=3, minute="*"), None),
        (crontab(hour=3, minute=0), None),
        (crontab(), None),
        (lambda dt: True, None),
    ],
)
def test_w010_a_schedule_whose_minute_was_left_out(schedule, words):
    with declared(periodic_command, schedule) as command:
        if words:
            only("W010", found(), command.name, words, hint="Give minute=0, or minute='*' if")
        else:
            assert found() == []


def test_e012_a_command_that_needs_what_its_backend_cannot():
    needy = {"default": {"CLASS": NEEDY}}
    with declared(priority=5) as command:
        assert found() == []
        only("E012", found(QUEUES=needy), command.name, "'default' (Needy)", "cannot do: priority")
    with declared(shard=lambda **_: 1):
        only("E012", found(QUEUES=needy), "cannot do: shards")
    with declared(concurrency=5):
        only("E012", found(QUEUES=needy), "cannot do: lanes")


def test_e013_a_codec_that_nobody_accepts():
    only("E013", found(QUEUE_ACCEPT=["json"]), "QUEUE_SERIALIZER is 'pickle'", hint="Add 'pickle' to QUEUE_ACCEPT")
    with declared(serializer="json") as command:
        only("E013", found(QUEUE_ACCEPT=["pickle"]), command.name, "'json'")


def sharing(throttle, **options):
    """Another command, in a module that was executed again: what it says is not compared with that of others."""

    def draw():
        """Nothing."""

    draw.__module__, draw.__qualname__ = __name__, "draw"
    queue_command(draw)
    return queue_command(throttle=throttle, **options)(draw)


def test_e016_one_throttle_in_two_queues():
    two = {"default": {"CLASS": MEMORY}, "mail": {"CLASS": MEMORY}}
    with declared(throttle=Throttle(5, 1, name="api")):
        sharing(Throttle(5, 1, name="api"), queue_name="mail")
        only("E016", found(QUEUES=two), "'api'", "'default' and 'mail'", hint="one queue")
        sharing(Throttle(5, 1, name="other"), queue_name="mail")
        assert found(QUEUES=two) == []


# ---- deployment

SAFE = {"default": {"CLASS": DATABASE}}


@pytest.mark.parametrize("key", ["short", "aaaab" * 20, "django-insecure-" + "abcdefghijklmnop" * 4, b"short"])
def test_e014_pickle_under_a_weak_key(key):
    assert found(SECRET_KEY=key, QUEUES=SAFE) == []
    only("E014", found(deploy=True, SECRET_KEY=key, QUEUES=SAFE), "SECRET_KEY is weak", hint="JSON")
    assert found(deploy=True, SECRET_KEY=key, QUEUES=SAFE, QUEUE_SERIALIZER="json", QUEUE_ACCEPT=["json"]) == []


def test_e014_weak_fallbacks_and_no_key_at_all():
    messages = found(deploy=True, SECRET_KEY_FALLBACKS=["old"], QUEUES=SAFE)
    only("E014", messages, "SECRET_KEY_FALLBACKS[0]")
    assert "old" not in messages[0].msg + messages[0].hint
    only("E014", found(deploy=True, SECRET_KEY="", QUEUES=SAFE), "SECRET_KEY is weak")


def test_w002_two_aliases_of_one_queue():
    one, other = {"CLASS": REDIS, "NAME": "jobs"}, {"CLASS": REDIS, "NAME": "jobs", "CONNECTION": "localhost:6379:0"}
    only("W002", found(QUEUES={"default": one, "mail": other}), "QUEUES['mail']", "QUEUES['default']")
    only("W002", found(QUEUES={"mail": {"NAME": "default"}}, QUEUE_CLASS=DATABASE))
    apart = {"default": one, "mail": {**one, "OPTIONS": {"PREFIX": "other"}}, "slow": {**one, "NAME": "slow"}}
    assert found(QUEUES=apart) == []
    assert found(QUEUES={alias: {"CLASS": MEMORY, "NAME": "jobs"} for alias in ("default", "mail")}) == []
    throttle = {"limit": 5, "window": 1}
    only("W002", found(QUEUES={"default": one, "mail": {**other, "THROTTLE": throttle}}))


def throttled(queue=MEMORY, options=None, **throttle):
    return {"CLASS": queue, "OPTIONS": options or {}, "THROTTLE": {"limit": 5, "window": 1, **throttle}}


def test_a_throttle_is_looked_at():
    assert found(QUEUES={"mail": throttled(moderate=True, elastic=True, window_name="api", mod_name="api")}) == []
    only("E002", found(QUEUES={"mail": {"CLASS": MEMORY, "THROTTLE": "50/s"}}), "['THROTTLE']", hint="limit, window")
    only("E003", found(QUEUES={"mail": throttled(widnow=1)}), "['THROTTLE']", "'widnow'", hint="'window'")
    only("E003", found(QUEUES={"mail": throttled(LIMIT=1)}), "'LIMIT'", hint="did you mean 'limit'")
    only("E003", found(QUEUES={"mail": throttled(name="api")}), "'name'", hint="did you mean 'window_name'")
    misspelt = {"CLASS": MEMORY, "THROTTLE": {"limit": 5, "widnow": 60}}
    only("E003", found(QUEUES={"mail": misspelt}), "'widnow'", hint="'window'")
    only("E006", found(QUEUES={"mail": throttled(limit=-1)}), "QUEUES['mail']['THROTTLE']", "limit is -1")
    only("E006", found(QUEUES={"mail": throttled(elastic=True)}), "moderate=True")
    only("E006", found(QUEUES={"mail": throttled(mod_name="x")}), "QUEUES['mail']['THROTTLE']", "moderate=True")
    only("E006", found(QUEUES={"mail": {"CLASS": MEMORY, "THROTTLE": {"limit": 5}}}), "['THROTTLE'] lacks 'window'")
    only("E006", found(QUEUES={"mail": {"CLASS": MEMORY, "THROTTLE": {}}}), "lacks 'limit' and 'window'")
    only("E006", found(QUEUES={"mail": {**throttled(), "STORE": False}}), "no store")


def test_e017_two_throttles_of_one_name():
    same = {"window_name": "api"}
    only(
        "E017",
        found(QUEUES={"mail": throttled(**same), "news": throttled(limit=6, **same)}),
        *("'mail'", "'news'", "'api'", "5 per 1 s", "6 per 1 s"),
    )
    spaced = {"moderate": True, **same}
    only("E017", found(QUEUES={"mail": throttled(**spaced), "news": throttled(mod_name="x", **spaced)}), "as 'x'")
    assert found(QUEUES={"mail": throttled(**same), "news": throttled(**same), "slow": throttled(limit=1)}) == []


def test_e018_throttles_of_one_name_that_share_nothing():
    same = {"window_name": "api"}
    one = throttled(REDIS, **same)
    for other in (throttled(DATABASE, **same), throttled(REDIS, {"PREFIX": "x"}, **same), throttled(**same)):
        only("E018", found(QUEUES={"mail": one, "news": other}), "'mail'", "'news'", "'api'")
    blocking = "djqueue.backends.redis_backend.RedisBlockingQueue"
    assert found(QUEUES={"mail": one, "news": throttled(blocking, **same)}) == []
    spaced = {"mod_name": "api", "moderate": True}
    only("E018", found(QUEUES={"mail": throttled(REDIS, **spaced), "news": throttled(DATABASE, **spaced)}))


def test_e018_on_a_cluster_each_queue_is_in_a_slot_of_its_own():
    class Cluster(RedisCluster):
        def __init__(self):
            """Does not connect."""

    cluster = Cluster()
    queues = {alias: {**throttled(REDIS, window_name="api"), "CONNECTION": cluster} for alias in ("mail", "news")}
    only("E018", found(QUEUES=queues), "'api'", hint="no cluster")


def test_w003_memory_in_deployment():
    only("W003", found(deploy=True, QUEUES={**SAFE, "mail": throttled()}), "'mail'")
    only("W003", found(deploy=True), "'default'", hint="Redis")


def test_w004_eager_in_deployment():
    assert found(QUEUE_ALWAYS_EAGER=True) == []
    only("W004", found(deploy=True, QUEUES=SAFE, QUEUE_ALWAYS_EAGER=True), "QUEUE_ALWAYS_EAGER")


@pytest.mark.parametrize(
    ("pool", "size"), [(True, 4), ({"max_size": 8}, 8), ({"min_size": 5}, 5), ({"max_size": 9}, None), (None, None)]
)
def test_w005_a_small_pool(monkeypatch, pool, size):
    monkeypatch.setitem(connection.settings_dict["OPTIONS"], "pool", pool)
    monkeypatch.setattr(connections["default"], "vendor", "postgresql")
    messages = found(QUEUES=SAFE)
    if size is None:
        assert messages == []
    else:
        only("W005", messages, "DATABASES['default']['OPTIONS']['pool']", f" {size},", "9", hint="-t) plus 5")


def test_a_consumer_has_as_many_loops_of_its_own_as_the_check_adds():
    from djqueue.consumer import Consumer
    from djqueue.consumer.maintenance import TimeLimits

    supervisor = Supervisor(Consumer(["default"]), None)
    loops = [*supervisor.keepers, *supervisor.pumps, *supervisor.duties.loops]
    own = [loop for loop in loops if not isinstance(loop, TimeLimits)]  # which speaks to no database
    assert (len(own), len(supervisor.pool.workers)) == (OWN_LOOPS, Options().threads)


def test_w006_a_command_that_no_consumer_finds():
    with declared(), override_settings(QUEUES={"default": {"CLASS": MEMORY}}):
        told = [message for message in run_checks(tags=["djqueue"]) if message.id == "djqueue.W006"]
        only("W006", told, f"{__name__}.paint", hint="QUEUE_IMPORT")
    assert "W006" not in ids(run_checks(tags=["djqueue"]))


@pytest.mark.parametrize("allowed", [{"QUEUE_IMPORT": ["tests"]}, {"INSTALLED_APPS": ["djqueue", "tests"]}])
def test_no_w006_for_a_command_that_a_consumer_finds_by_its_name(allowed):
    with declared() as command, override_settings(**allowed):
        told = [message for message in run_checks(tags=["djqueue"]) if message.id == "djqueue.W006"]
    assert not any(command.name in message.msg for message in told)


def test_w007_a_schedule_in_a_module_that_is_not_imported_at_the_start():
    with override_settings(INSTALLED_APPS=["djqueue", "tests"]), declared(periodic_command, crontab(minute="*")):
        told = [message for message in run_checks(tags=["djqueue"]) if message.id == "djqueue.W007"]
        only("W007", told, f"{__name__}.paint", hint="commands.py or tasks.py of its app")
        with override_settings(QUEUE_MODULES=["commands", "test_checks"]):
            assert "W007" not in ids(run_checks(tags=["djqueue"]))


@pytest.mark.parametrize(
    ("setting", "names", "wrong"),
    [
        ("QUEUE_MODULES", ["commands", "tasks", "jobs"], "'jobs'"),
        ("QUEUE_IMPORT", ["tests", "tests.nowhere", "no_such.jobs", "sys"], "'tests.nowhere', 'no_such.jobs'"),
    ],
)
def test_w008_a_place_that_there_is_not(setting, names, wrong):
    only("W008", found(**{setting: names}), f"{setting} names {wrong}: no ")


# ---- servers


@pytest.mark.django_db(databases=[])
def test_nothing_connects_unless_asked_to():
    """pytest-django refuses every connection to a database here, and no Redis is at that address."""
    queues = {"default": {"CLASS": DATABASE}, "mail": {"CLASS": REDIS, "CONNECTION": "127.0.0.1:1:0"}}
    assert found(QUEUES=queues) == []
    assert found(QUEUES=queues, tag=Tags.database) == []


@pytest.mark.django_db(transaction=True)
def test_a_missing_table_is_told_with_its_database_and_not_by_the_migrate_that_makes_it(monkeypatch):
    with away("djqueue_fact"):
        messages = found(QUEUES=SAFE, databases=["default"])
        only("W205", messages, "djqueue_fact", hint="migrate djqueue")
        assert found(QUEUES={"default": {"CLASS": NEEDY}}, databases=["default"]) == messages, "its facts are in there"
        assert found(QUEUES={"default": {"CLASS": MEMORY}}, databases=["default"]) == []
    with away("djqueue_fact", "django_migrations"):
        only("W205", found(QUEUES=SAFE, databases=["default"]), "djqueue_fact")
        only("W205", found(QUEUES=SAFE, databases=["default"], deploy=True), "djqueue_fact")
        monkeypatch.setattr(sys, "argv", ["manage.py", "migrate", "shop"])
        assert found(QUEUES=SAFE, databases=["default"]) == []


def test_what_other_packages_call_a_setting_is_none_of_ours():
    ours = {*conf.SETTINGS, *conf.QUEUE_KEYS, "LEASE", "PREFIX"}
    vocabularies = [ours, {name.upper() for name in OPTIONS}, {name.upper() for name in THROTTLE_KEYS}]
    assert {name.upper() for name in HINTS["setting"].values()} <= set.union(*vocabularies)
    for names in vocabularies:
        assert not any(theirs in names and meant.upper() in names for theirs, meant in HINTS["setting"].items())


@pytest.mark.django_db(transaction=True)
def test_sqlite_is_looked_at_once_for_two_queues(monkeypatch):
    monkeypatch.setitem(connection.settings_dict["OPTIONS"], "timeout", 5)
    messages = found(QUEUES={alias: {"CLASS": DATABASE} for alias in ("default", "mail")}, databases=["default"])
    only("W204", messages, "'default'", "5 seconds")
    assert found(QUEUES=SAFE, databases=[]) == []


def test_a_redis_that_is_away_is_told_when_servers_are_asked(monkeypatch):
    queues = {alias: {"CLASS": REDIS, "CONNECTION": "127.0.0.1:1:0"} for alias in ("default", "mail")}
    only("E101", found(deploy=True, QUEUES=queues), "127.0.0.1:1", hint="Start it, or correct CONNECTION.")
    assert found(QUEUES=queues, databases=["other"]) == [], "as before migrate and test"
    monkeypatch.setattr(sys, "argv", ["manage.py", "check", "--database", "other"])
    only("E101", found(QUEUES=queues, databases=["other"]), "127.0.0.1:1")
    monkeypatch.setattr(sys, "argv", ["manage.py", "check", "--deploy", "--database", "other"])
    only("E101", found(deploy=True, QUEUES=queues, databases=["other"]), "127.0.0.1:1")


@pytest.mark.backends("redis")
def test_a_redis_without_that_database_is_told_with_how_many_it_has(backend):
    queues = {"default": {"CLASS": REDIS, "CONNECTION": f"{redis_url()}/9999"}}
    only("E104", found(deploy=True, QUEUES=queues), "/9999 is no database", "from 0 to ", hint="CONNECTION")


@pytest.mark.backends("redis", "redis-blocking", "postgres", "mariadb", each=True)
def test_a_good_server_has_nothing_to_complain_of(backend):
    evicting = {"W101"}  # the test server keeps nothing on disk
    messages = found(deploy=True, databases=[backend.alias or "default"], QUEUES=backend.queues())
    assert set(ids(messages)) <= evicting, messages
