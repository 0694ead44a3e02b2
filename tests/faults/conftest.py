"""The site of a fault test knows the commands in this folder."""

import pytest

from tests.backends import Backend
from tests.faults.crew import Crew

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
