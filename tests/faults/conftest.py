"""The site of a fault test knows the commands in this folder."""

import os
import signal
import sqlite3

import pytest
from django.db import connections

from tests.backends import Backend
from tests.faults.crew import Crew
from tests.site import until

APPS = ["django.contrib.contenttypes", "django.contrib.auth", "djqueue", "tests.app", "tests.faults"]


@pytest.fixture
def site(backend: Backend, make_site, settings):
    settings.QUEUES = backend.queues()
    return make_site(settings.QUEUES, {"default", backend.alias} - {""}, INSTALLED_APPS=APPS)


@pytest.fixture
def crew(site):
    """Consumers of a queue "default" on the backend. If the test fails, what they said is shown."""
    yield Crew(site)
    for process in site.processes:
        print(f"--- process {process.pid} ({process.popen.poll()})\n{process.output[-5000:]}")


@pytest.fixture
def freeze(backend):
    """Stop a process, but not while it holds the one write lock of SQLite: nobody can take over from it then."""

    def stop(process):
        process.send(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)
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
