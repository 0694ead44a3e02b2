"""Queues to look at, and those who look: by their permissions."""

import re

import pytest
from django.contrib.auth.models import Permission, User
from django.contrib.contenttypes.models import ContentType
from django.test import Client

from djqueue import queues
from djqueue.backends.memory.store import MemoryStore
from djqueue.dashboard import by_command
from djqueue.models import Dashboard

ROOT = "/admin/djqueue/dashboard/"


@pytest.fixture(autouse=True)
def addresses(settings):
    """Those of an admin, which the sites of other tests do not have."""
    settings.ROOT_URLCONF = "tests.dashboard.urls"


@pytest.fixture(autouse=True)
def all_commands(monkeypatch):
    """The modules of all tests declare more commands than a page shows."""
    monkeypatch.setattr(by_command, "MOST_SHOWN", 10_000)


@pytest.fixture
def queue(backend, settings, monkeypatch):
    monkeypatch.setattr(MemoryStore, "_common", None)  # without what other tests of this process left
    settings.QUEUES = backend.queues("default", "other")
    return queues["default"]


def log_in(*permissions: str, superuser: bool = False, name: str = "ann", **options) -> Client:
    """A browser of a member of the staff with these permissions of the dashboard, or with all there are."""
    user = User.objects.create(username=name, is_staff=True, is_superuser=superuser)
    ContentType.objects.clear_cache()  # of rows that went with an earlier test
    place = ContentType.objects.get_for_model(Dashboard)
    for codename in permissions:
        permission, _ = Permission.objects.get_or_create(codename=codename, content_type=place)
        user.user_permissions.add(permission)
    browser = Client(**options)
    browser.force_login(user)
    return browser


def messages_shown(browser: Client) -> str:
    """What the next page says of what was done, as HTML."""
    page = browser.get(f"{ROOT}schedules/").content.decode()
    return " ".join(re.findall(r'<li class="(?:success|info|warning|error)">(.*?)</li>', page))


@pytest.fixture
def superuser(queue, db):
    """Someone who may do all."""
    return log_in(superuser=True, name="superuser")
