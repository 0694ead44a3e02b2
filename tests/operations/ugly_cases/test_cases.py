"""Ugly cases: what the commands and the pages must say of each, and what they must not say."""

import pytest
from django.contrib.auth.models import User
from django.contrib.contenttypes.models import ContentType
from django.test import Client

from djqueue.backends.memory.store import MemoryStore
from djqueue.dashboard import by_command
from tests.app import commands as app_commands
from tests.operations.ugly_cases.commands import ALL
from tests.operations.ugly_cases.scene import Scene, named, said
from tests.operations.ugly_cases.table import CASES, Case
from tests.support.consumer import only

pytestmark = pytest.mark.backends("memory", "postgres", "redis", database=True)
OF_OTHER_PROCESSES = ("health", "health json")
"""These say nothing of the consumers of a queue in memory, which no other process hears of."""


@pytest.fixture
def scene(backend, settings, monkeypatch):
    monkeypatch.setattr(MemoryStore, "_common", None)  # without what other tests of this process left
    monkeypatch.setattr(by_command, "MOST_SHOWN", 10_000)
    monkeypatch.delenv("COLUMNS", raising=False)
    settings.ROOT_URLCONF = "tests.dashboard.urls"
    settings.QUEUES = backend.queues("default", "mail")
    user = User.objects.create(username="superuser", is_staff=True, is_superuser=True)
    ContentType.objects.clear_cache()  # of rows that went with an earlier test
    browser = Client()
    browser.force_login(user)
    with only(*ALL, app_commands.note):
        yield (scene := Scene(backend, settings, monkeypatch, browser))
        if scene.ahead is not None:
            scene.ahead.stop()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_case(case: Case, scene: Scene):
    case.arrange(scene)
    wrong = []
    for front, texts in case.says.items():
        if scene.backend.id == "memory" and front in OF_OTHER_PROCESSES and not case.in_memory:
            continue
        text = said(scene, front)
        for one in texts:
            wanted, is_said = named(scene, one.removeprefix("not: ")), not one.startswith("not: ")
            if (wanted.casefold() in text.casefold()) is not is_said:
                wrong.append(f"{front} {'does not say' if is_said else 'says'} {wanted!r}:\n    {text}")
    assert not wrong, f"{case.so}\n" + "\n".join(wrong)


def test_every_case_has_a_name_of_its_own_and_there_are_forty_and_more():
    assert len({case.name for case in CASES}) == len(CASES) >= 40
