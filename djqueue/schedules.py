"""Schedules that are made at run time: kept in the store of their queue, served by the scheduler of every consumer."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from asgiref.sync import sync_to_async
from django.utils import timezone

from djqueue import standing
from djqueue.backends.base import BaseQueue
from djqueue.command import Bound, Call, Command
from djqueue.exceptions import NotSupported
from djqueue.policies.policy import Policy
from djqueue.producer import refuse_what_it_cannot
from djqueue.queues import queues
from djqueue.registry import registry
from djqueue.scheduling import timetables
from djqueue.scheduling.crontab import Crontab
from djqueue.scheduling.timetables import Rule
from djqueue.standing import Plan, Schedule
from djqueue.utils import moment

__all__ = ["Schedule", "aadd", "add", "alist", "aremove", "list", "remove"]

LONGEST_NAME = 150

AnyCommand = Command | Bound | type | str


def add(
    name: str,
    command: AnyCommand,
    args: Sequence = (),
    kwargs: dict[str, Any] | None = None,
    *,
    every: float | timedelta | None = None,
    crontab: Crontab | None = None,
    rrule: str | None = None,
    start: datetime | None = None,
    missed: str = "latest",
    max_lateness: float | timedelta = timedelta(hours=1),
) -> Schedule:
    """Send a call again and again: ``every`` so many seconds, by a ``crontab``, or by an ``rrule`` of iCalendar.

    ``command`` is a command, its name, or one with options (``report.using(unique="queued")``). The first tick of an
    interval comes after one interval; with ``start`` at that moment, the others at multiples from there. The other two
    begin at ``start``; an ``rrule`` is in the wall time of its zone, and of Django's without one. ``missed`` and
    ``max_lateness`` are those of a periodic command.

    What has that name is replaced, whatever queue it is in. If its timetable stays as it was, so do its ticks.

    Raises TypeError or ValueError that names what is wrong, UnknownCommand, EncodeError, MessageTooLarge, NotSupported
    if the queue has no store.
    """
    target, policy = _meant(command)
    queue = queues[policy.queue_name]
    if "facts" in queue.cannot:
        raise NotSupported(f"QUEUES[{queue.alias!r}] has no store, and there its schedules would be kept.")
    refuse_what_it_cannot(queue, policy)
    call, _ = target.prepared(_call(args, kwargs), policy)
    now = datetime.fromtimestamp(queue.now(), UTC)
    timetable = timetables.timetable({"every": every, "crontab": crontab, "rrule": rrule}, _begin(start, now))
    plan = Plan(timetable, Rule.of(missed, max_lateness), now, **standing.options_of(target, policy))
    if timetable.next(now) is None:
        raise ValueError(f"{timetable} has no tick after {now:%Y-%m-%d %H:%M:%S} UTC.")
    return _keep(queue, _checked(name), (target, call, policy), plan, moves=start is None)


def remove(name: str) -> bool:
    """Send nothing more by that name; whether there was something. What was sent already stays in its queue."""
    return sum(standing.drop(queue, name) for queue in _keepers()) > 0


def list(queue_name: str | None = None) -> Sequence[Schedule]:
    """The schedules of a queue, or of all, by name. What cannot be read is logged and left out."""
    chosen = _keepers() if queue_name is None else [queues[queue_name]]
    kept = [standing.read(queue, standing.texts(standing.fact(queue))) for queue in chosen]
    found = {name: one for some in kept for name, one in some.items()}
    return [found[name] for name in sorted(found)]


aadd, aremove, alist = sync_to_async(add), sync_to_async(remove), sync_to_async(list)
"""For async code."""


def _meant(command: AnyCommand) -> tuple[Command, Policy]:
    if isinstance(command, str):
        command = registry[command]
    elif isinstance(command, type):
        command = registry[f"{command.__module__}.{command.__qualname__}"]
    if isinstance(command, Bound):
        return command.command, command.policy
    if not isinstance(command, Command):
        raise TypeError(f"{command!r} is no command: give one, with using(...) or without, or its name.")
    return command, command.policy


def _begin(start: datetime | None, now: datetime) -> datetime:
    """The start in its own zone; in Django's, if it has none or is not said."""
    if start is None:
        return now.astimezone(timezone.get_default_timezone())
    return datetime.fromtimestamp(moment(start, "start"), start.tzinfo or timezone.get_default_timezone())


def _call(args: object, kwargs: object) -> Call:
    if not isinstance(args, builtins.list | tuple):  # the items of a text, or of a dictionary, would be arguments too
        raise TypeError(f"args= is {args!r}: give a list or tuple of the arguments, as in args=(7,).")
    if kwargs is not None and not isinstance(kwargs, dict):
        raise TypeError(f"kwargs= is {kwargs!r}: give a dictionary of the arguments by their names.")
    return Call(tuple(args), dict(kwargs or {}))


def _checked(name: object) -> str:
    if not isinstance(name, str) or not 1 <= len(name) <= LONGEST_NAME:
        raise ValueError(f"A schedule has a name of 1 to {LONGEST_NAME} characters, not {name!r}.")
    return name


def _keepers() -> Sequence[BaseQueue]:
    return [queue for queue in map(queues.__getitem__, queues) if "facts" not in queue.cannot]


def _keep(queue: BaseQueue, name: str, what: tuple[Command, Call, Policy], plan: Plan, moves: bool) -> Schedule:
    """Keep a schedule here and nowhere else. It is dropped elsewhere first: one too few is better than one too many."""
    before, text = standing.texts(standing.fact(queue)).get(name), ""
    for other in _keepers():
        if other.alias != queue.alias:
            standing.drop(other, name)

    def kept(texts: dict[str, str]) -> dict[str, str]:
        nonlocal text
        was = texts.get(name, before)  # two aliases of one queue have one store
        known = standing.read(queue, {} if was is None else {name: was})
        text = standing.sealed(queue, name, *what, plan.following(known[name].plan, moves) if known else plan)
        return texts | {name: text}

    standing.change(queue, kept)
    return standing.opened(queue, name, text)
