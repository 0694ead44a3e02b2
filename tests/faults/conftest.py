"""The site of a fault test knows the commands in this folder."""

import signal
import sqlite3
from urllib.parse import urlsplit

import pytest
from django.db import connections

from tests.faults.processes import Consumers
from tests.faults.proxy import Address, Proxy
from tests.support.backends import Backend, redis_url, worker_number
from tests.support.processes import until
from tests.support.server_process import Server, status_of
from tests.support.servers import database

APPS = ["djqueue", "tests.app", "tests.faults"]


@pytest.fixture
def site(request, backend: Backend, make_site, settings):
    """With the app that the module names as its own, and its settings."""
    apps = [*APPS, *getattr(request.module, "OWN_APPS", ())]
    settings.QUEUES = backend.queues()
    own = getattr(request.module, "OWN_SETTINGS", {})
    return make_site(settings.QUEUES, aliases_of(backend), INSTALLED_APPS=apps, **own)


@pytest.fixture
def consumers(site):
    """Consumers of a queue "default" on the backend."""
    return Consumers(site)


@pytest.fixture
def proxy(backend: Backend):
    """In front of the server of the backend."""
    with Proxy(address_of(backend)) as proxy:
        yield proxy


@pytest.fixture
def proxied_queues(backend: Backend, proxy):
    """The setting QUEUES of those who speak through the proxy; databases are far by their own setting."""
    queues = backend.queues()
    if backend.kind.server == "redis":
        queues["default"]["CONNECTION"] = f"127.0.0.1:{proxy.port}:{worker_number()}"
    return queues


@pytest.fixture
def proxied_consumers(backend: Backend, proxy, proxied_queues, make_site, settings):
    """Consumers that speak through the proxy, while the test itself looks at the store."""
    settings.QUEUES, far = backend.queues(), {"INSTALLED_APPS": [*APPS, "tests.faults.witness"]}
    if backend.alias:
        far["DATABASES"] = {alias: settings_of(alias) for alias in aliases_of(backend)}
        far["DATABASES"][backend.alias] |= {"HOST": "127.0.0.1", "PORT": str(proxy.port)}
    return Consumers(make_site(proxied_queues, aliases_of(backend), **far))


def aliases_of(backend: Backend) -> set[str]:
    return {"default", backend.alias} - {""}


def address_of(backend: Backend) -> Address:
    """Where the server of a backend listens."""
    if backend.kind.server == "redis":
        url = urlsplit(redis_url())
        return url.hostname, url.port
    at = settings_of(backend.alias)
    if not at["HOST"].startswith("/"):
        return at["HOST"], int(at["PORT"])
    return f"{at['HOST']}/.s.PGSQL.{at['PORT'] or 5432}" if backend.id == "postgres" else at["HOST"]


def database_site(make_site, server: Server, **queue):
    """A site whose queue is in the database of a server of the test's own."""
    config = {"CLASS": "djqueue.backends.database.DatabaseQueue", **queue}
    site = make_site({"default": config}, INSTALLED_APPS=APPS, DATABASES={"default": database(server.kind, server.url)})
    site.run("migrate", "-v", 0)
    return site


def settings_of(alias: str) -> dict:
    """A database of this test, as DATABASES says it."""
    told = connections[alias].settings_dict
    names = ("ENGINE", "NAME", "USER", "PASSWORD", "HOST", "PORT", "OPTIONS")
    return {name: told[name] for name in names} | {"NAME": str(told["NAME"])}


@pytest.fixture
def freeze(backend):
    """Stop a process, but not while it holds the one write lock of SQLite: nobody can take over from it then."""

    def stop(process):
        process.send(signal.SIGSTOP)
        until(lambda: status_of(process.pid)["State"].startswith("T"))
        if backend.id == "sqlite" and not writable(connections["default"].settings_dict["NAME"]):
            process.send(signal.SIGCONT)
            return False
        return True

    return lambda process: until(lambda: stop(process))


def writable(path) -> bool:
    connection = sqlite3.connect(path, timeout=0.1, isolation_level=None)
    try:
        connection.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError:
        return False
    finally:
        connection.close()
    return True
