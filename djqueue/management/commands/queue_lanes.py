"""``django-admin queue_lanes``: shows why a lane does not run; pauses and resumes it."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import cache, partial
from itertools import islice
from math import inf
from typing import Any, NamedTuple

from django.core.management.base import BaseCommand, CommandError

from djqueue.backends.base import PAGE, BaseQueue
from djqueue.backends.entries import LaneRecord
from djqueue.flow.gates import LANE_CLOSED, LANE_QUEUED, LANE_READY, LANE_SCHEDULED
from djqueue.management.tables import NONE, able, asking, chosen, cut, duration, limit, printable, table
from djqueue.throttle import ThrottledQueue

HEAD = ("lane", "queue", "state", "waiting", "in flight", "ready in", "reason")
LONGEST_WHY = 80
EMPTY = "empty"


class Command(BaseCommand):
    help = (
        "Lists the lanes (shards, throttles, concurrency limits) that hold or remember something: ready ones may go "
        "on, scheduled ones become ready by themselves, queued ones wait for their parent lane, busy ones for what has "
        "left them, paused ones for --resume. Of a queue with a THROTTLE it says how that stands."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        add = parser.add_argument
        add("-q", "--queue", action="append", dest="queues", metavar="ALIAS", help="may be repeated (default: all)")
        add("--limit", type=limit, default=50, help="show this many at most (default: %(default)s)")
        add("--json", action="store_true", help="a list of objects")
        verbs = parser.add_mutually_exclusive_group()
        verbs.add_argument("--pause", metavar="NAME", help="let nothing more leave this lane; what is out goes on")
        verbs.add_argument("--resume", metavar="NAME", help="let this lane go on: it is paused, or held for a time")
        add("--reason", metavar="TEXT", help="beside --pause: what others will read")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["reason"] is not None and options["pause"] is None:
            raise CommandError("--reason says why a lane is paused: give --pause NAME too.", returncode=2)
        refusal = "There are no lanes to look at in {}: its backend has none of its own."
        queues, _ = able(chosen(options["queues"]), "lanes", refusal, asked_for=bool(options["queues"]))
        for verb, act in (("pause", self._pause), ("resume", self._resume)):
            if options[verb] is not None:
                return act(queues, options[verb], options["reason"])
        self._list(queues, options["limit"], options["json"])

    def _list(self, queues: list[BaseQueue], most: int, as_json: bool) -> None:
        found = list(islice(_lanes(queues), most + 1))
        if as_json:
            return self.stdout.write(json.dumps([_object(one) for one in found[:most]]))
        for queue in queues:
            if isinstance(queue, ThrottledQueue):
                self.stdout.write(_throttle(queue))
        if found:
            self.stdout.write(table(HEAD, [_row(one) for one in found[:most]], right=("waiting", "in flight")))
            self.stdout.write("… and more: see --limit" if len(found) > most else "", ending="")
        else:
            self.stdout.write("No lane holds or remembers anything.")

    def _pause(self, queues: list[BaseQueue], name: str, reason: str | None) -> None:
        if len(queues) > 1:
            raise CommandError("Say in which queue it is to be paused: -q ALIAS.", returncode=2)
        with asking(queues[0]):
            queues[0].pause_lane(name, reason or "paused by hand")
        self.stdout.write(f"{printable(name)} is paused")

    def _resume(self, queues: list[BaseQueue], name: str, reason: None) -> None:
        held = [queue for queue in queues if len(queues) > 1 and _is_held(queue, name)]
        if len(held) > 1:
            where = ", ".join(repr(queue.alias) for queue in held)
            raise CommandError(f"{printable(name)} is held in {where}: say where to resume it, -q ALIAS.", returncode=2)
        resumed = [repr(queue.alias) for queue in held or queues if _resume_in(queue, name)]
        if not resumed:
            raise CommandError(f"{printable(name)} is neither paused nor held for a time.")
        self.stdout.write(f"{printable(name)} is resumed in {', '.join(resumed)}")


def _throttle(queue: ThrottledQueue) -> str:
    """The state of the throttle of a whole queue, which holds up messages that are in no lane too."""
    assert queue.store is not None  # no queue without one is throttled
    with asking(queue):
        grant = queue.store.shared.acquire(queue.rate_limit, 0)  # uses up nothing
    opens = f", ready in {duration(grant.retry_after)}" if grant.retry_after < inf else ""
    now = f"{grant.reason}{opens}" if grant.reason else "ready"
    said = "" if grant.window == queue.rate_limit.window else f" (its settings say {queue.rate_limit.window})"
    return f"The throttle of {queue.alias!r}, {grant.window}{said}: {now}"


class Shown(NamedTuple):
    """A lane, its state as shown, and the seconds until it is ready by itself, if time decides that."""

    queue: BaseQueue
    lane: LaneRecord
    state: str
    opens: float | None


def _lanes(queues: list[BaseQueue]) -> Iterator[Shown]:
    """Each lane of each queue, page by page."""
    for queue in queues:
        with asking(queue):
            now, lines = queue.now(), cache(partial(_lines, queue))
            for lane in _records(queue):
                state = _state(lane, lines)
                opens = lane.opens - now if lane.opens and state != EMPTY else None
                yield Shown(queue, lane, state, opens)


def _records(queue: BaseQueue) -> Iterator[LaneRecord]:
    after = None
    while page := queue.lanes(PAGE, after):
        yield from page
        after = page[-1].cursor


def _lines(queue: BaseQueue) -> set[str]:
    """The parent lanes in which other lanes are queued."""
    return {lane.parent for lane in _records(queue) if lane.state == LANE_QUEUED}


def _state(lane: LaneRecord, lines: Callable[[], set[str]]) -> str:
    """The state as shown. A busy lane waits for entries in flight; an empty one only remembers entries that left it.

    A ready lane has entries of its own, or other lanes queued in it.
    """
    if lane.paused_reason:
        return "paused"
    if lane.waiting or lane.in_flight or lane.state in (LANE_READY, LANE_QUEUED):
        return "busy" if lane.state == LANE_CLOSED else lane.state
    if lane.state == LANE_SCHEDULED and not lane.parent and lane.name in lines():
        return LANE_SCHEDULED  # only entries of lanes within it wait, and these are not counted
    return EMPTY


def _is_held(queue: BaseQueue, name: str) -> bool:
    """Whether its record shows that it is held: a busy or empty lane may be held for a time too."""
    with asking(queue):
        lane = queue.lane(name)
    return lane is not None and (bool(lane.paused_reason) or lane.state == LANE_SCHEDULED)


def _resume_in(queue: BaseQueue, name: str) -> bool:
    with asking(queue):
        return queue.resume_lane(name)


def _row(shown: Shown) -> list[str]:
    queue, lane, state, opens = shown
    wait = NONE if opens is None else duration(max(0.0, opens))
    names = [printable(lane.name), printable(queue.alias)]
    return [*names, state, str(lane.waiting), str(lane.in_flight), wait, cut(lane.paused_reason or NONE, LONGEST_WHY)]


def _object(shown: Shown) -> dict:
    """All that is known of a lane, for JSON."""
    queue, lane, state, opens = shown
    known = asdict(lane) | {"queue": queue.alias, "state": state, "opens": None if opens is None else lane.opens}
    del known["cursor"]
    return known
