"""Schedules that are made at run time: kept in the store of their queue, served by the scheduler of every consumer.

Each is a fact of its own in a collection, which a scheduler reads when one of them has changed. It is a message whose
options contain its timetable, so nothing of it is decoded before its signature was verified.
"""

from __future__ import annotations

import builtins
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Never

from asgiref.sync import sync_to_async
from django.utils import timezone

from djqueue import timetables
from djqueue.backends.base import BaseQueue, Entry
from djqueue.backends.collections import Collection
from djqueue.enqueueing.command import Call, Command, as_command
from djqueue.enqueueing.producer import encoded, refuse_what_it_cannot
from djqueue.exceptions import NotSupported
from djqueue.hints import hint
from djqueue.messages.envelope import Envelope, Message
from djqueue.policies.options import OPTIONS
from djqueue.policies.policy import Policy
from djqueue.registry import registry
from djqueue.running.context import open_entry
from djqueue.timetables import Crontab, Rule, Timetable
from djqueue.utils import log_safely, moment
from djqueue.wiring import queues, why_no_facts

logger = logging.getLogger(__name__)

__all__ = ["Schedule", "aadd", "add", "alist", "aremove", "list", "remove"]

LONGEST_NAME = 150

AnyCommand = Command | type | str


def add(
    name: str,
    command: AnyCommand = "",
    args: Sequence = (),
    kwargs: dict[str, Any] | None = None,
    *,
    every: float | timedelta | None = None,
    crontab: Crontab | None = None,
    rrule: str | None = None,
    start: datetime | None = None,
    missed: str = "latest",
    max_lateness: float | timedelta = timedelta(hours=1),
    **unknown: Never,
) -> Schedule:
    """Send a call again and again: ``every`` n seconds, by a ``crontab``, or by an ``rrule`` of iCalendar.

    ``command`` is a command, its name, or one with options (``report.using(unique="queued")``). The first tick of an
    interval comes after one interval; with ``start`` at that moment, the others at multiples from there. The other two
    begin at ``start``; an ``rrule`` is in the wall time of its zone, and of Django's without one. ``missed`` and
    ``max_lateness`` are as for a periodic command.

    A schedule of that name is replaced, in any queue. If its timetable stays as it was, so do its ticks.

    Raises TypeError or ValueError that names what is wrong, UnknownCommand, EncodeError, MessageTooLarge, NotSupported
    if the queue has no store.
    """
    _refuse_misfits(name, command, unknown)
    target, policy = _meant(command)
    queue = queues[policy.queue_name]
    if "facts" not in queue.features:
        why = why_no_facts(queue, {"facts"})
        raise NotSupported(f"QUEUES[{queue.alias!r}] has no store, where its schedules would be kept{why}.")
    refuse_what_it_cannot(queue, policy)
    call = _prepared(target, args, kwargs, policy)
    now = datetime.fromtimestamp(queue.now(), UTC)
    timetable = timetables.timetable({"every": every, "crontab": crontab, "rrule": rrule}, _begin(start, now))
    plan = SchedulePlan(timetable, Rule.of(missed, max_lateness), now, **options_of(target, policy))
    if timetable.next(now) is None:
        raise ValueError(f"{timetable} has no tick after {now:%Y-%m-%d %H:%M:%S} UTC.")
    return _keep(queue, name, (target, call, policy), plan, moves=start is None)


def remove(name: str) -> bool:
    """Remove the schedule of that name; whether there was one. Calls that were sent already stay in the queue."""
    return sum(drop(queue, name) for queue in _keepers()) > 0


def list(queue_name: str | None = None) -> Sequence[Schedule]:
    """The schedules of a queue, or of all, by name. A schedule that cannot be read is logged and left out."""
    found: dict[str, Schedule] = {}
    for queue in _keepers() if queue_name is None else [queues[queue_name]]:
        found |= opened(queue, collection(queue).read().values)
    return [found[name] for name in sorted(found)]


aadd, aremove, alist = sync_to_async(add), sync_to_async(remove), sync_to_async(list)
"""The functions for async code."""


def _refuse_misfits(name: object, command: AnyCommand, unknown: dict[str, Any]) -> None:
    """Raises TypeError for the order and the arguments of other packages, ValueError for what is no name."""
    if isinstance(name, Command | type) or (isinstance(name, str) and command == ""):
        raise TypeError(
            'schedules.add() takes a name first, and a command: schedules.add("nightly", command, every=60).'
        )
    for given, value in unknown.items():
        raise TypeError(f"schedules.add() has no argument {given!r}: {_instead_of(given, value)}.")
    if not isinstance(name, str) or not 1 <= len(name) <= LONGEST_NAME:
        raise ValueError(f"A schedule has a name of 1 to {LONGEST_NAME} characters, not {name!r}.")


def _instead_of(given: str, value: object) -> str:
    if given in OPTIONS:
        return f"options are given with the command, as in command.using({given}={value!r})"
    return hint(given, "schedule", "option", value=value) or (
        "there are every, crontab, rrule, start, missed and max_lateness; arguments of the command go into kwargs={}"
    )


def _prepared(target: Command, args: Sequence[Any], kwargs: dict[str, Any] | None, policy: Policy) -> Call:
    try:
        [(call, _)] = target.prepared([_call(args, kwargs)], policy)
        return Call(*call)
    except TypeError as error:
        if not args and not kwargs:
            error.add_note("Its arguments are given as args=(...) or kwargs={...}.")
        raise


def _meant(command: AnyCommand) -> tuple[Command, Policy]:
    found = as_command(registry.find(command) if isinstance(command, str) else command)
    if not isinstance(found, Command):
        raise TypeError(f"{found!r} is no command: give one, with using(...) or without, or its name.")
    return found.declared, found.policy


def _begin(start: datetime | None, now: datetime) -> datetime:
    """The start in its own zone, or in Django's if it has none; now if there is no start."""
    zone = timezone.get_default_timezone()
    return (
        now.astimezone(zone) if start is None else datetime.fromtimestamp(moment(start, "start"), start.tzinfo or zone)
    )


def _call(args: object, kwargs: object) -> Call:
    if not isinstance(args, builtins.list | tuple):  # tuple() would take the items of a text or a dictionary
        raise TypeError(f"args= is {args!r}: give a list or tuple of the arguments, as in args=(7,).")
    if kwargs is not None and not isinstance(kwargs, dict):
        raise TypeError(f"kwargs= is {kwargs!r}: give a dictionary of the arguments by their names.")
    return Call(tuple(args), dict(kwargs or {}))


def _keepers() -> Sequence[BaseQueue]:
    return [queue for queue in map(queues.__getitem__, queues) if "facts" in queue.features]


def _keep(queue: BaseQueue, name: str, what: tuple[Command, Call, Policy], plan: SchedulePlan, moves: bool) -> Schedule:
    """Keep a schedule in this queue alone. Other queues drop it first: missing is better than present twice."""
    before, body = collection(queue).get(name), b""
    for other in _keepers():
        if other.alias != queue.alias:
            drop(other, name)

    def kept(was: bytes | None) -> bytes:
        nonlocal body
        was = before if was is None else was  # another alias of this queue has dropped it: they share one store
        known = {} if was is None else opened(queue, {name: was})
        body = sealed(queue, name, *what, plan.following(known[name].plan, moves) if known else plan)
        return body

    collection(queue).change(name, kept)
    return _opened(queue, name, body)


# ---- What is kept of each, signed


@dataclass(frozen=True, slots=True)
class SchedulePlan:
    """When a call is sent, and with which options."""

    timetable: Timetable
    rule: Rule
    """What becomes of ticks at which no consumer ran."""
    since: datetime
    """When it was added: it has no earlier ticks."""
    plain: dict[str, Any]
    carried: dict[str, Any]
    """The options that differ from its command's: options that count at the call, and options of the run."""

    def written(self) -> dict[str, Any]:
        """The plan as plain values that a message can carry."""
        return {
            "at": self.timetable.written(),
            "missed": self.rule.missed,
            "late": self.rule.max_lateness.total_seconds(),
            "since": self.since.isoformat(),
            "plain": self.plain,
            "carried": self.carried,
        }

    @classmethod
    def of(cls, written: dict[str, Any]) -> SchedulePlan:
        """The plan that :meth:`written` wrote down."""
        rule = Rule(written["missed"], timedelta(seconds=written["late"]))
        since = datetime.fromisoformat(written["since"])
        return cls(timetables.read(written["at"]), rule, since, written["plain"], written["carried"])

    def following(self, other: SchedulePlan, moves: bool) -> SchedulePlan:
        """This plan in the place of another: if the timetable is the same, its ticks stay where they are."""
        same = replace(self.timetable, start=other.timetable.start) if moves else self.timetable
        return replace(self, timetable=same, since=other.since) if same == other.timetable else self


@dataclass(frozen=True, slots=True)
class Schedule:
    """A call that is sent at each tick of a timetable."""

    name: str
    queue_name: str
    """The alias of the queue that keeps it."""
    plan: SchedulePlan
    _envelope: Envelope

    @property
    def command(self) -> str:
        """The command's name."""
        return self._envelope.command

    @property
    def args(self) -> tuple:
        """The positional arguments, decoded at each use."""
        return self.call[0]

    @property
    def kwargs(self) -> dict[str, Any]:
        """The keyword arguments, decoded at each use."""
        return self.call[1]

    @property
    def call(self) -> tuple[tuple, dict[str, Any]]:
        """The positional and the keyword arguments. Raises InvalidMessage."""
        return self._envelope.arguments()

    @property
    def timetable(self) -> Timetable:
        """An Interval (``every``), a Calendar (``crontab``) or a Recurrence (``rrule``), each with its ``start``."""
        return self.plan.timetable

    @property
    def next(self) -> datetime | None:
        """Its next tick, by the clock of this machine; None if there will be none."""
        return self.timetable.next(max(self.plan.since, datetime.now(UTC)))

    def policy(self, command: Command) -> Policy:
        """The options of its calls. Raises ImportError, TypeError or ValueError."""
        return replace(command.policy, **self.plan.plain).with_overrides(self.plan.carried)


def options_of(command: Command, policy: Policy) -> dict[str, dict[str, Any]]:
    """The options of a policy that differ from its command's, in a plan's form. ValueError for what cannot be."""
    names = [field.name for field in fields(policy) if field.init and field.compare]
    changed = [name for name in names if getattr(policy, name) != getattr(command.policy, name)]
    carried = policy.overrides(command.policy)
    plain = {name: getattr(policy, name) for name in changed if name not in carried}
    for name, value in [*plain.items(), *carried.items()]:
        if name == "run_at":
            raise ValueError("start= says when a schedule begins: leave run_after out.")
        if callable(value) or not _is_plain(value):
            raise ValueError(f"{name} is {value!r}, which cannot be stored with a schedule: declare it on the command.")
    return {"plain": plain, "carried": carried}


def _is_plain(value: Any) -> bool:
    try:
        return json.loads(json.dumps(value)) == value
    except (TypeError, ValueError):
        return False


# ---- The schedules of a queue, in its store


def collection(queue: BaseQueue) -> Collection:
    """The signed message of each schedule of a queue, by name."""
    return Collection(queue.store, "schedules")


def named(name: str) -> Schedule | None:
    """The schedule of that name, in whatever queue it is; None if there is none that can be read."""
    for queue in _keepers():
        body = collection(queue).get(name)
        if body is not None and (found := opened(queue, {name: body})):
            return found[name]
    return None


def opened(queue: BaseQueue, bodies: Mapping[str, bytes]) -> dict[str, Schedule]:
    """Schedules by name. A schedule that cannot be read is logged and left out."""
    found = {}
    for name, body in bodies.items():
        try:
            found[name] = _opened(queue, name, body)
        except Exception as error:
            log_safely(logger, logging.ERROR, "The schedule %r cannot be read, and rests", name, exc_info=error)
    return found


def _opened(queue: BaseQueue, name: str, body: bytes) -> Schedule:
    """Raises InvalidMessage, or whatever is wrong with what is written in it."""
    envelope = open_entry(queue, Entry(body, _id(name)))
    return Schedule(name, queue.alias, SchedulePlan.of(envelope.options), envelope)


def sealed(queue: BaseQueue, name: str, command: Command, call: Call, policy: Policy, plan: SchedulePlan) -> bytes:
    """The signed message of a schedule. Raises EncodeError, MessageTooLarge."""
    message = Message(_id(name), queue.base_name, command.name, *call, options=plan.written())
    return encoded(message, policy)


def drop(queue: BaseQueue, name: str) -> bool:
    """Forget a schedule; whether it was there."""
    dropped = collection(queue).change(name, lambda was: None)
    if dropped:
        queue.store.drop(last_key(name))
    return dropped


def last_key(name: str) -> str:
    """The key of the last tick that was sent, in the store."""
    return f"last:{_id(name)}"


def _id(name: str) -> str:
    return f"schedule:{name}"
