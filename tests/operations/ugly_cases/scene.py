"""What a case is made of: queues, consumers that wrote heartbeats, and the front ends as an operator meets them."""

import io
import re
from dataclasses import dataclass, field
from html import unescape

import time_machine
from django.core.management import CommandError, call_command
from django.test import Client

from djqueue import queues
from djqueue.backends.base import BaseQueue
from djqueue.running import consumers
from djqueue.running.consumers import ConsumerRecord
from tests.dashboard.conftest import ROOT
from tests.operations.ugly_cases.commands import ALL
from tests.support.backends import Backend

NAME = "web-1:42:beef"


@dataclass
class Scene:
    """A case that is set up, and what its texts call by name."""

    backend: Backend
    settings: object
    monkeypatch: object
    browser: Client
    names: dict[str, str] = field(default_factory=dict)
    """Texts in the table name these in braces: {id} is the message that the case is about."""
    ahead: time_machine.travel | None = None
    """Sets the clock of this process, if the case does."""

    @property
    def queue(self) -> BaseQueue:
        return queues["default"]

    def serve(self, name=NAME, ago=0.0, knows=ALL, also=(), queue=None, **facts):
        """The heartbeat of a consumer that knows these commands, and others by their names."""
        queue = queue or self.queue
        store, known = queue.store.shared, consumers.known_commands(knows) | dict.fromkeys(also, "")
        consumers.write_commands(store, known)
        consumers.enter(store, name)
        told = {"queues": [queue.base_name], "commands": consumers.digest_of(known), "threads": 4, **facts}
        at = store.now() - ago
        consumers.write(store, ConsumerRecord(name=name, at=at, started=at - 3600, **told))

    def about(self, id, **names):
        """The case is about this message."""
        self.names |= {"id": id, "part": id[-8:], **names}


# ---- The front ends


def command(*args: str) -> str:
    """What a management command says, on both outputs, with its error; ``exit 1`` is its code if it ends with one."""
    out, err = io.StringIO(), io.StringIO()
    said = []
    try:
        call_command(*args, stdout=out, stderr=err)
    except CommandError as error:
        said = [f"error: {error}"]
    except SystemExit as error:
        said = [f"exit {error.code}"]
    return " ".join(" ".join([out.getvalue(), err.getvalue(), *said]).split())


def page(browser: Client, path: str = "", **query: str) -> str:
    """What people read of a page of the dashboard, behind its status."""
    answer = browser.get(ROOT + path, query)
    text = re.sub("<[^>]+>", " ", answer.content.decode())
    return f"{answer.status_code} {' '.join(unescape(text).split())}"


COMMANDS = {
    "explain": ("queue_explain", "{id}"),
    "explain json": ("queue_explain", "{id}", "--json"),
    "explain part": ("queue_explain", "{part}"),
    "explain queue": ("queue_explain", "default"),
    "health": ("queue_health",),
    "health json": ("queue_health", "--json"),
    "stats": ("queue_stats",),
    "messages": ("queue_messages", "list"),
    "messages json": ("queue_messages", "list", "--json"),
    "errors": ("queue_errors", "list"),
    "schedules": ("queue_schedules",),
    "schedules json": ("queue_schedules", "--json"),
    "lanes": ("queue_lanes",),
    "pauses": ("queue_pause",),
    "consumers": ("queue_consumers",),
}
PAGES = {
    "page": ("", {}),
    "queues page": ("queues/", {}),
    "message page": ("message/", {"id": "{id}"}),
    "messages page": ("messages/", {}),
    "failed page": ("failed/", {}),
    "consumers page": ("consumers/", {}),
    "lanes page": ("lanes/", {}),
    "schedules page": ("schedules/", {}),
    "commands page": ("commands/", {}),
    "history page": ("history/", {}),
}


def said(scene: Scene, front: str) -> str:
    """What a front end says; a name that is none of the two tables is a command line."""
    if front in PAGES:
        path, query = PAGES[front]
        return page(scene.browser, path, **{name: named(scene, value) for name, value in query.items()})
    return command(*(named(scene, one) for one in COMMANDS.get(front, tuple(front.split()))))


def named(scene: Scene, text: str) -> str:
    for name, value in scene.names.items():
        text = text.replace(f"{{{name}}}", value)
    return text
