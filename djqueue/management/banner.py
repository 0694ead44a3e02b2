"""What a consumer serves, in rows for the people who start it; never a password."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from django.apps import apps

import djqueue
from djqueue.consumer import Consumer
from djqueue.consumer.scheduler import local
from djqueue.registry import Runnable, registry
from djqueue.timetables import Ticking

MOST_COMMANDS = 30
"""Above this only the number of an app's commands is shown."""
MOST_SCHEDULES = 12

Row = tuple[str, str, str]
"""A heading, a name and its text. Rows of one heading follow each other."""


def in_rows(consumer: Consumer, processes: int = 1) -> list[Row]:
    grace = consumer.options.grace
    stop = f"what runs may end within {grace:g} s" if grace else "what runs is handed back"
    return [
        ("", f"djqueue {djqueue.__version__}", f"consumer {consumer.name}, {consumer.size(processes)}"),
        *(("queues", queue.alias, queue.describe()) for queue in consumer.queues),
        *_commands(),
        *(_schedules() if consumer.options.periodic else ()),
        ("", "", f"Ctrl-C stops it: {stop}."),
    ]


def _commands() -> Iterator[Row]:
    by_app: dict[str, list[str]] = {}
    for command in registry:
        by_app.setdefault(_app_of(command), []).append(command.name.rpartition(".")[2])
    for app, names in sorted(by_app.items()):
        shown = ", ".join(sorted(names)) if len(registry) <= MOST_COMMANDS else f"{len(names):,} commands"
        yield "commands", app, shown


def _app_of(command: Runnable) -> str:
    config = apps.get_containing_app_config(command.name)
    return config.label if config else command.name.partition(".")[0]


def _schedules() -> Iterator[Row]:
    now, periodic = datetime.now(UTC), registry.periodic()
    for command in periodic[:MOST_SCHEDULES]:
        yield "schedules", command.name.rpartition(".")[2], _next_of(command, now)
    if (more := len(periodic) - MOST_SCHEDULES) > 0:
        yield "schedules", "", f"and {more} more"


def _next_of(command: Any, now: datetime) -> str:
    if not isinstance(command.validate_datetime, Ticking):
        return "asked every minute"
    tick = command.validate_datetime.next(now)
    if tick is None:
        return "never again"
    clock, day = f"{local(tick):%H:%M:%S}".removesuffix(":00"), f"{local(tick):%a %d %b}"
    return f"next at {clock}" if (tick - now).days < 1 else f"next on {day} at {clock}"
