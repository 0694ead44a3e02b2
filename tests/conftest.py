"""Servers for those tests that need them, backends for those that run on each, processes that die with the test."""

import fcntl
import gc
import importlib
import os
import sys
from textwrap import dedent

import hypothesis
import pytest
from django.core.management.commands import flush

from tests.support import backends, durations, notes, selection, servers
from tests.support.processes import Site

hypothesis.settings.register_profile("full", deadline=None)  # a busy machine is no error
hypothesis.settings.register_profile("small", deadline=None, max_examples=30)
hypothesis.settings.load_profile("full" if backends.FULL else "small")

USED = "SELECT relname FROM pg_class WHERE relname = ANY(%s) AND relkind = 'r' AND pg_relation_size(oid) > 0"
NOBODY = {"AWS_ACCESS_KEY_ID": "nobody", "AWS_SECRET_ACCESS_KEY": "none", "AWS_EC2_METADATA_DISABLED": "true"}
"""So that no test can reach an account of whoever runs it."""


def pytest_configure(config):
    """With xdist, start every server before the workers are: they read the addresses from their environment."""
    gc.disable()  # until all is collected, of which nothing is garbage
    config.pluginmanager.register(durations.Durations())
    os.environ |= NOBODY
    if getattr(config.option, "numprocesses", None) and "PYTEST_XDIST_WORKER" not in os.environ:
        start(servers.SHARED)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    """Tests marked `full` are left to `make test-all`; those marked `alone` come last and need not wait for others.

    With xdist, slow tests, which mostly wait, stand evenly among the others, which mostly compute."""
    if left_out := selection.left_out(items):
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
    place = {}
    if "PYTEST_XDIST_WORKER" in os.environ:
        slow = [item for item in items if item.get_closest_marker("slow")]
        quick = [item for item in items if not item.get_closest_marker("slow")]
        place = {item: number / len(kind) for kind in (slow, quick) for number, item in enumerate(kind)}
    items.sort(key=lambda item: (item.get_closest_marker("alone") is not None, place.get(item, 0)))


def pytest_collection_finish(session):
    """Without xdist, start only what the chosen tests need."""
    gc.freeze()  # the ten thousand tests themselves would be looked through at every later collection of garbage
    gc.enable()
    if not session.config.option.collectonly:
        start({kind for item in session.items for kind in backends.needs(item)})


def start(kinds):
    for kind in sorted(kinds):
        if not servers.missing(kind):
            servers.start(kind)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """A missing server skips at home and fails where CI=true."""
    for reason in filter(None, map(servers.missing, sorted(backends.needs(item)))):
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(reason)


def pytest_generate_tests(metafunc):
    if "backend" in metafunc.fixturenames:
        selection.parametrise(metafunc)


@pytest.fixture(scope="session", autouse=True)
def _lock():
    """A lock file, shared by all xdist workers."""
    with (servers.run_dir() / "alone.lock").open("w") as file:
        yield file


@pytest.fixture(autouse=True)
def _nothing_noted():
    """What commands of a test module note is empty at first, and its release is not set; who waits for it may go on."""
    notes.clear_all()
    yield
    notes.clear_all()


@pytest.fixture(autouse=True)
def _nothing_registered():
    """What a test registers for its queues ends with it."""
    yield
    from djqueue import clear_event_consumers, clear_metadata_producer_consumers

    clear_metadata_producer_consumers()
    clear_event_consumers()


@pytest.fixture(autouse=True)
def _nothing_shared():
    """What queues in memory share ends with the test, as it does with the server of a test."""
    yield
    from djqueue.backends.memory.store import MemoryStore

    if common := MemoryStore._common:
        for key in list(common._facts):
            common._delete(key)


@pytest.fixture
def no_periodic_commands(monkeypatch):
    """Without those of other tests, which the registry has too if one process runs them all."""
    from djqueue.registry import registry

    monkeypatch.setattr(registry, "periodic", list)


@pytest.fixture(scope="session", autouse=True)
def _known_servers(django_db_blocker):
    """Django's checks ask MariaDB what it is, whichever database a test may use: here, once, they may."""
    from django.db import connections

    if servers.variable("mariadb") in os.environ:
        with django_db_blocker.unblock():
            connections["mariadb"].mysql_server_data  # noqa: B018


@pytest.fixture(scope="session", autouse=True)
def _bare_tables():
    """No rows of Django's own after each flush, of which there are thousands: they take most of its time.

    To disconnect who makes them is not enough: where a test changes INSTALLED_APPS, they connect again."""
    flush.emit_post_migrate_signal = lambda *args, **kwargs: None


@pytest.fixture(scope="session", autouse=True)
def _used_tables():
    """On PostgreSQL a flush empties the tables that have a page: each makes new files, and of fourteen one is used."""
    from django.db import connections

    if "postgres" not in connections.settings:
        return
    operations = type(connections["postgres"].ops)
    usual = operations.sql_flush

    def sql_flush(self, style, tables, *, reset_sequences=False, allow_cascade=False):
        if not reset_sequences:
            with self.connection.cursor() as cursor:
                cursor.execute(USED, [list(tables)])
                tables, allow_cascade = [name for (name,) in cursor.fetchall()], True
        return usual(self, style, tables, reset_sequences=reset_sequences, allow_cascade=allow_cascade)

    operations.sql_flush = sql_flush


@pytest.fixture(autouse=True)
def _alone(request, _lock):
    """A test marked `alone` holds the lock exclusively, others share it."""
    fcntl.flock(_lock, fcntl.LOCK_EX if request.node.get_closest_marker("alone") else fcntl.LOCK_SH)
    yield
    fcntl.flock(_lock, fcntl.LOCK_UN)


@pytest.fixture
def backend(request, monkeypatch):
    """Each queue backend in turn; what it leaves on the server goes after the test."""
    if request.param.server == "sqs":
        from djqueue.backends.sqs import queue

        monkeypatch.setattr(queue, "CERTAIN", 0)  # a short poll of moto's misses nothing
    yield backends.Backend(request.param)
    if request.param.server == "redis":
        flush_redis()


@pytest.fixture
def queue(backend, settings):
    """The only queue of the settings: each backend in turn."""
    from djqueue import queues  # which reads the settings

    settings.QUEUES = backend.queues()
    return queues["default"]


@pytest.fixture
def write_module(tmp_path, monkeypatch):
    """Write a module and import it; gone with what it registered when the test ends."""
    from djqueue.registry import registry
    from tests.support.consumer import only

    monkeypatch.syspath_prepend(str(tmp_path))
    written = []

    def write(name: str, text: str):
        (tmp_path / f"{name}.py").write_text(dedent(text))
        importlib.invalidate_caches()
        written.append(name)
        return importlib.import_module(name)

    with only(*registry):
        yield write
    for name in written:
        sys.modules.pop(name, None)


@pytest.fixture
def redis_client():
    """A client of this worker's Redis database. Mark the test with `server("redis")`."""
    redis = pytest.importorskip("redis")
    once = redis.retry.Retry(redis.backoff.NoBackoff(), 0)
    with redis.Redis.from_url(f"{backends.redis_url()}/{backends.worker_number()}", retry=once) as client:
        yield client
    flush_redis()


def flush_redis():
    import redis

    with redis.Redis.from_url(f"{backends.redis_url()}/{backends.worker_number()}") as client:
        client.flushdb()


@pytest.fixture
def make_site(tmp_path):
    """Make a Site of processes: `make_site(backend.queues(), ALLOWED_HOSTS=[])`; all of them die with the test."""
    sites = []

    def make(queues, aliases=(), **settings) -> Site:
        sites.append(Site(queues, tuple(aliases), tmp_path / "ledger", settings))
        return sites[-1]

    yield make
    for site in sites:
        site.close()


@pytest.fixture
def site(backend, make_site, settings):
    """A Site over one queue "default" of the backend; this process's own settings name the same queue."""
    settings.QUEUES = backend.queues()
    return make_site(settings.QUEUES, {"default", backend.alias} - {""})


@pytest.fixture
def release_file(tmp_path):
    """The file for which commands wait: `release_file.touch()` lets them end."""
    return tmp_path / "release"


@pytest.fixture
def private_server():
    """Start a server of the test's own, to be hurt: `private_server("redis", *servers.Redis.DURABLE)`."""
    running = []

    def start_one(kind, *extra):
        if reason := servers.missing(kind):
            (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(reason)
        running.append(servers.KINDS[kind](servers.short_dir() / kind, *extra))
        return running[-1].start()

    yield start_one
    for server in running:
        server.discard()
