"""``django-admin queue_lanes``: shows why a lane does not run; pauses and resumes it."""

from __future__ import annotations

import textwrap
from argparse import ArgumentParser
from collections.abc import Iterator
from itertools import islice
from math import inf
from typing import Any

from django.core.management.base import CommandError

from djqueue import conf
from djqueue.backends.base import BaseQueue
from djqueue.backends.entries import Entry
from djqueue.management.arguments import add_asking, limit
from djqueue.management.base import OperatorCommand
from djqueue.management.tables import LONGEST_TEXT, report, width_of
from djqueue.operations.lanes import (
    LaneRow,
    head_of,
    is_held,
    lanes_of,
    pause_lane,
    records,
    resume_lane,
    skip_lane,
)
from djqueue.operations.outcomes import REFUSED
from djqueue.operations.paging import MOST_LOOKED_AT
from djqueue.operations.queues import asking, chosen, of_each, with_feature
from djqueue.registry import Runnable, registry
from djqueue.throttle import ThrottledQueue
from djqueue.utils import nearest
from djqueue.words import age, cut, printable

MOST_REASONS = 5
"""Reasons that are said below a table which is too narrow for them."""


class Command(OperatorCommand):
    help = """
        Says why messages do not run, though consumers have time: shows the lanes in which they wait, and pauses and
        resumes them.

        Messages of a command with shard=, concurrency=, throttle= or batch= wait in lanes: all of a command in one
        lane, named after the command, or those of each key in their own, such as shop.commands.ship:7. The limits of
        the command decide when the next message may leave its lane and run.

        The state of a lane is "ready" (its next message may run), "scheduled" (a throttle or a retry holds it, and the
        table says for how long), "queued" (it waits for its turn within the limit of the whole command), "busy" (as
        many of its messages run as may), "paused" (until --resume), or "empty" (nothing waits, but a throttle still
        counts what ran). Of a queue with a THROTTLE, a line above the table says how that stands.
    """
    examples = """
        manage.py queue_lanes
        manage.py queue_lanes -q mail --limit 500
        manage.py queue_lanes --pause shop.commands.ship:7 --reason "out of paper"
        manage.py queue_lanes --resume shop.commands.ship:7
        manage.py queue_lanes --skip shop.commands.ship:7
    """

    def add_arguments(self, parser: ArgumentParser) -> None:
        add = parser.add_argument
        add("-q", "--queue", action="append", dest="queues", metavar="ALIAS", help="may be repeated (default: all)")
        add("--limit", type=limit, default=50, help="show this many at most (default: %(default)s)")
        add("--json", action="store_true", help="as JSON: what was done, or a list of lanes")
        verbs = parser.add_mutually_exclusive_group()
        verbs.add_argument(
            "--pause", metavar="NAME", help="let no further message of this lane run; those that run go on"
        )
        verbs.add_argument("--resume", metavar="NAME", help="let this lane go on, which is paused or held for a time")
        help = "cancel the first message of this lane, and let the lane go on; it asks first"
        verbs.add_argument("--skip", metavar="NAME", help=help)
        add_asking(parser, "a message is cancelled")
        add("--reason", metavar="TEXT", help="with --pause: what the table will say of it")
        add("--force", action="store_true", help="with --pause: also if no lane and no command has this name")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["reason"] is not None and options["pause"] is None:
            raise CommandError("--reason says why a lane is paused: give --pause NAME too.", returncode=2)
        if options["force"] and options["pause"] is None:
            raise CommandError("--force pauses a lane that is not known: give --pause NAME too.", returncode=2)
        refusal = "There are no lanes to look at in {}: its backend has none of its own."
        queues, _ = with_feature(chosen(options["queues"]), "lanes", refusal, asked_for=bool(options["queues"]))
        if options["pause"] is not None:
            self._pause(queues, options["pause"], options["reason"], options["force"])
        elif options["resume"] is not None:
            self._resume(queues, options["resume"])
        elif options["skip"] is not None:
            self._skip(queues, options["skip"], options["interactive"])
        else:
            self._list(queues, options["limit"], options["json"])

    def _list(self, queues: list[BaseQueue], most: int, as_json: bool) -> None:
        found, failures = of_each(queues, lambda queue: islice(lanes_of(queue), most + 1))
        if not as_json:
            throttled, more = of_each(queues, lambda queue: filter(None, [_throttle(queue)]))
            failures = [*dict.fromkeys([*failures, *more])]
            for line in throttled:
                self.stdout.write(line)
        rows, without = [LaneRow.of(one) for one in found[:most]], () if len(queues) > 1 else ("queue",)
        if as_json or not rows:
            self.write_report(rows, "" if failures else "No lane holds or remembers anything.")
        else:
            width = width_of(self.stdout)
            shown = report(rows, without=without, width=width, paint=self.paint)
            self.stdout.write("\n".join([shown, *_cut_reasons(rows, shown, width)]))
        if len(found) > most:
            self.say("… and more: see --limit")
        if failures:
            raise CommandError("\n".join(failures))

    def _pause(self, queues: list[BaseQueue], name: str, reason: str | None, force: bool) -> None:
        if len(queues) > 1:
            raise CommandError("Say in which queue it is to be paused: -q ALIAS.", returncode=2)
        queue = queues[0]
        problem = "" if force else _unknown(queue, name)
        if problem:
            forced = "Nothing is paused; --force pauses a lane of this name all the same."
            raise CommandError(f"{printable(problem)} {forced}")
        with self.outcome("pause", [f"lane {name}"]) as outcome:
            with asking(queue):
                is_new = pause_lane(queue, name, reason or "")
            if is_new:
                outcome.did(1, queue.alias, [f"lane {name}"])
            else:
                outcome.refuse(f"lane {name}", "it was paused already")
            self.say(f"{printable(name)} is paused")

    def _resume(self, queues: list[BaseQueue], name: str) -> None:
        held = [queue for queue in queues if len(queues) > 1 and _is_held(queue, name)]
        if len(held) > 1:
            where = ", ".join(repr(queue.alias) for queue in held)
            raise CommandError(f"{printable(name)} is held in {where}: say where to resume it, -q ALIAS.", returncode=2)
        with self.outcome("resume", [f"lane {name}"]) as outcome:
            for queue in held or queues:
                if _resume_in(queue, name):
                    outcome.did(1, queue.alias, [f"lane {name}"])
            if not outcome.count:
                text = f"{printable(name)} is neither paused nor held for a time: queue_lanes shows which are."
                raise CommandError(text)
            self.say(f"{printable(name)} is resumed in {', '.join(map(repr, outcome.queues))}")

    def _skip(self, queues: list[BaseQueue], name: str, interactive: bool) -> None:
        with self.outcome("skip", [f"lane {name}"]) as outcome:
            heads = [(queue, head) for queue in queues if (head := _head_of(queue, name)) is not None]
            if len(heads) != 1:
                text = "No message waits in the lane {}." if not heads else "Say in which queue {} is: -q ALIAS."
                raise CommandError(text.format(printable(name)))
            [(queue, head)] = heads
            what = f"{head.id}, the first message of {name}, will be cancelled, and the lane goes on."
            if not self.confirmed(printable(what), interactive):
                return outcome.fail(REFUSED)
            with asking(queue):
                was_first = skip_lane(queue, name, head.id)
            if not was_first:
                raise CommandError(f"{head.id} is not the first message of {printable(name)} any more.")
            outcome.did(1, queue.alias, [f"lane {name}"])
            outcome.more = {"id": head.id}
            return self.say(f"{head.id} is cancelled, and {printable(name)} goes on")


def _head_of(queue: BaseQueue, name: str) -> Entry | None:
    with asking(queue):
        return head_of(queue, name)


def _throttle(queue: BaseQueue) -> str:
    """The state of the throttle of a whole queue, which holds up messages that are in no lane too; "" without one."""
    if not isinstance(queue, ThrottledQueue):
        return ""
    grant = queue.store.shared.acquire(queue.rate_limit, 0)  # uses up nothing
    opens = f", ready in {age(grant.retry_after)}" if grant.retry_after < inf else ""
    now = f"{grant.reason}{opens}" if grant.reason else "ready"
    said = "" if grant.window == queue.rate_limit.window else f" (its settings say {queue.rate_limit.window})"
    return f"The throttle of {queue.alias!r}, {grant.window}{said}: {now}"


def _unknown(queue: BaseQueue, name: str) -> str:
    """Why no call can be waiting in a lane of this name, or come to wait in it; "" if one can."""
    with asking(queue):
        if queue.lane(name) is not None:
            return ""
        lanes = [lane.name for lane in islice(records(queue), MOST_LOOKED_AT)]
    prefix = conf.get("QUEUE_LANE_PREFIX")
    known = [lane for command in registry for lane in _lanes_of(command, prefix)]
    if any(name == lane or (lane.endswith(":") and name.startswith(lane)) for lane in known):
        return ""
    own, (_, colon, key) = name.removeprefix(prefix), name.partition(":")
    command = registry.get(own)
    if command is not None and command.policy.plan is not None:
        parent = "".join(f", or {lane} for all of them" for lane in _lanes_of(command, prefix)[1:] if lane[-1] != ":")
        return f"Calls of {command.name} wait in a lane for each key: give {name}:KEY{parent}."
    laneless = {f"{command.name}{colon}{key}": command.name for command in registry if command.policy.plan is None}
    meant = own if own in laneless else _meant(name, [*lanes, *(_with_key(lane, key) for lane in known), *laneless])
    if meant in laneless:
        typo = "" if meant == own or meant.endswith(f".{own}") else f"There is no {name}. "
        return f"{typo}Calls of {laneless[meant]} wait in no lane: to be able to pause them, give it concurrency=1000."
    return f"No lane and no command has the name {name}{f'; did you mean {meant}?' if meant else '.'}"


def _with_key(lane: str, key: str = "") -> str:
    """A whole name: what ends with a colon goes on with a key."""
    return f"{lane}{key or 'KEY'}" if lane.endswith(":") else lane


def _lanes_of(command: Runnable, prefix: str) -> list[str]:
    """The names of the lanes in which calls of a command wait; one that ends with a colon goes on with a key."""
    plan = command.policy.plan
    if plan is None:
        return []
    own = prefix + command.name
    lanes = [own] if plan.key is None else [f"{own}:"]
    if plan.parent_gate is not None and plan.shared:
        lanes.append(f"{prefix}throttle:{plan.shared}{':' if plan.each else ''}")
    elif plan.parent_gate is not None:
        lanes.append(f"{own}*")
    return lanes


def _meant(name: str, known: list[str]) -> str | None:
    """The name that was probably meant: one that ends like this, or is like it."""
    ends = [one for one in known if one.endswith(f".{name}") or one.partition(":")[0].endswith(f".{name}")]
    return ends[0] if ends else nearest(name, known)


def _is_held(queue: BaseQueue, name: str) -> bool:
    with asking(queue):
        return is_held(queue, name)


def _resume_in(queue: BaseQueue, name: str) -> bool:
    with asking(queue):
        return resume_lane(queue, name)


def _cut_reasons(rows: list[LaneRow], shown: str, width: int | None) -> Iterator[str]:
    """The reasons of pauses that a narrow table had to cut, each with the first lane that has it."""
    lanes = {row.paused_reason: row.name for row in reversed(rows) if cut(row.paused_reason, LONGEST_TEXT) not in shown}
    for reason, lane in islice(reversed(lanes.items()), MOST_REASONS):
        yield "\n" + textwrap.fill(printable(f"{lane}: {reason}"), width or 0, subsequent_indent="  ")
