"""The lanes of queues for operators: which there are, why they do not run, and pausing and resuming one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial
from itertools import islice
from math import inf
from typing import NamedTuple

from djqueue import conf
from djqueue.backends.base import PAGE, BaseQueue
from djqueue.backends.entries import Entry, LaneRecord, Record
from djqueue.flow.gates import LANE_CLOSED, LANE_QUEUED, LANE_READY, LANE_SCHEDULED, Gate
from djqueue.messages.failures import is_put_off
from djqueue.operations.actions import record
from djqueue.operations.errors import InvalidInput
from djqueue.operations.paging import MOST_CHECKED
from djqueue.operations.queues import asking
from djqueue.operations.reports import Kind, column, report_row
from djqueue.operations.unknown import note_of
from djqueue.registry import Runnable, registry
from djqueue.results import Cancelled, Result
from djqueue.utils import nearest

EMPTY, PAUSED, BUSY = "empty", "paused", "busy"
BY_HAND = "paused by hand"
RETRY, GATHERS, THROTTLED = "retry", "gathers", "throttled"
"""Why a lane with messages is scheduled."""


class LaneStatus(NamedTuple):
    """A lane, its state as shown, and the seconds until it is ready by itself, if only time decides that."""

    queue: BaseQueue
    record: LaneRecord
    state: str
    """ready, scheduled, queued, busy, paused or empty."""
    opens: float | None


@report_row
class LaneRow:
    """A lane in the report of lanes."""

    name: str = column("lane", Kind.LANE, key=True)
    queue: str = column("queue", Kind.QUEUE)
    state: str = column("state", Kind.STATE)
    """ready, scheduled, queued, busy, paused or empty."""
    waiting: int = column("waiting", Kind.COUNT)
    in_flight: int = column("running", Kind.NUMBER)
    ready_in: float | None = column("ready in", Kind.SECONDS, in_json=False)
    """Seconds until it is ready by itself, if time decides that."""
    reason: str = column("reason", in_json=False)
    """Why it does not run, as far as that is known."""
    paused_reason: str = column()
    opens: float | None = column(kind=Kind.MOMENT)
    parent: str = column(kind=Kind.LANE)
    capped: int | None = column(kind=Kind.NUMBER)
    head: str = column("first", Kind.ID, optional=True, in_json=False, default="")
    """The id of its first message, if it was asked for and the lane is held."""
    can_be_resumed: bool = False
    """Whether an operator or its first message holds it: a lane held by a rate or a batch cannot be resumed."""
    can_be_skipped: bool = False
    """Whether its first message holds it."""

    @classmethod
    def of(cls, lane: LaneStatus) -> LaneRow:
        """The row of a lane, without reading its first message."""
        why = lane.record.paused_reason
        one, wait = lane.record, None if lane.opens is None else max(0.0, lane.opens)
        opens = None if lane.opens is None else one.opens
        counts = one.waiting, one.in_flight, wait
        return cls(one.name, lane.queue.alias, lane.state, *counts, why, why, opens, one.parent, one.capped)


def with_head(lane: LaneStatus) -> LaneRow:
    """The row of a lane that is held, with its first message and what holds it."""
    shown = LaneRow.of(lane)
    if lane.state not in (LANE_SCHEDULED, PAUSED):
        return shown
    first = first_in(lane.queue, shown.name)
    why = why_scheduled(lane.record, first) if lane.state == LANE_SCHEDULED else ""
    reason = shown.paused_reason or ("retry of its first message" if why == RETRY else why)
    is_held = lane.state == PAUSED or why == RETRY
    head = first.entry.id if first is not None and is_held else ""
    return replace(shown, head=head, reason=reason, can_be_resumed=is_held, can_be_skipped=bool(head))


def lanes_of(queue: BaseQueue, most: float = inf) -> Iterator[LaneStatus]:
    """The lanes of a queue, by name; at most ``most`` of them, page by page."""
    now, lines = queue.now(), cache(partial(_lines, queue))
    found = records(queue)
    for one in found if most == inf else islice(found, int(most)):
        state = _state(one, lines)
        yield LaneStatus(queue, one, state, one.opens - now if one.opens and state != EMPTY else None)


def records(queue: BaseQueue) -> Iterator[LaneRecord]:
    """The lanes of a queue as it keeps them, page by page."""
    after = None
    while page := queue.lanes.page(PAGE, after):
        yield from page
        after = page[-1].cursor


def is_held(queue: BaseQueue, name: str) -> bool:
    """Whether its record shows that it is held: a busy or empty lane may also be held for a time."""
    lane = queue.lanes.get(name)
    return lane is not None and (bool(lane.paused_reason) or lane.state == LANE_SCHEDULED)


def pause_lane(queue: BaseQueue, name: str, why: str = "", by: str = "") -> bool:
    """Let no further message of a lane run; whether it was not paused before. A later reason replaces an earlier.

    Raises ValueError for a lane without a name.
    """
    if not name:
        raise InvalidInput("A lane has a name: give it.")
    was = queue.lanes.get(name)
    queue.lanes.pause(name, why or BY_HAND)
    is_new = was is None or not was.paused_reason
    if is_new:
        record(queue, "pause", f"lane {name}", 1, by)
    return is_new


def resume_lane(queue: BaseQueue, name: str, by: str = "") -> bool:
    """Let a lane go on that is paused, or held for a time; whether it was."""
    was_held = queue.lanes.resume(name)
    if was_held:
        record(queue, "resume", f"lane {name}", 1, by)
    return was_held


def head_of(queue: BaseQueue, name: str) -> Entry | None:
    """The first message that waits in a lane; None if none does, or if the backend does not know."""
    first = first_in(queue, name)
    return None if first is None else first.entry


def first_in(queue: BaseQueue, name: str) -> Record | None:
    """The first waiting message of a lane, with the moment at which it was due."""
    return next(iter(queue.lanes.peek(name, 1)), None) if "inspect" in queue.features else None


def why_scheduled(lane: LaneRecord, first: Record | None) -> str:
    """Why a scheduled lane waits: for its first message to be tried again, for more of a batch, or for its rate."""
    if first is None:
        return THROTTLED
    entry = first.entry
    if entry.attempts or note_of(entry) is not None or is_put_off(entry.errors, entry.attempts):
        return RETRY
    gate = Gate.read(lane.gate) if lane.gate else Gate()
    gathers_until = first.at + gate.batch_timeout + 0.001  # moments are kept in whole microseconds
    return GATHERS if lane.waiting < gate.min_batch and lane.opens <= gathers_until else THROTTLED


def skip_lane(queue: BaseQueue, name: str, id: str, by: str = "") -> bool:
    """Cancel the message of this id if it is the first of a lane, and let the lane continue; whether it was.

    So only one of several calls skips it. A running message is not cancelled.
    """
    head = head_of(queue, name)
    if head is None or head.id != id or Result(id, queue_name=queue.alias).cancel() is not Cancelled.WAITING:
        return False
    queue.lanes.resume(name)
    record(queue, "skip", f"message {id} of lane {name}", 1, by)
    return True


# ---- Which can be paused


def problem_of(queue: BaseQueue, name: str) -> str:
    """Why no call waits or can ever wait in a lane of this name; "" if one can."""
    with asking(queue):
        if queue.lanes.get(name) is not None:
            return ""
        lanes = [lane.name for lane in islice(records(queue), MOST_CHECKED)]
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
    """A pattern for a whole name: a name that ends with a colon continues with a key."""
    return f"{lane}{key or 'KEY'}" if lane.endswith(":") else lane


def _lanes_of(command: Runnable, prefix: str) -> list[str]:
    """The names of the lanes in which calls of a command wait; a name that ends with a colon continues with a key."""
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
    """The name that was probably meant: one with the same end, or a similar one."""
    ends = [one for one in known if one.endswith(f".{name}") or one.partition(":")[0].endswith(f".{name}")]
    return ends[0] if ends else nearest(name, known)


# ---- How they are shown


def _lines(queue: BaseQueue) -> set[str]:
    """The parent lanes in which other lanes are queued."""
    return {lane.parent for lane in records(queue) if lane.state == LANE_QUEUED}


def _state(lane: LaneRecord, lines: Callable[[], set[str]]) -> str:
    """The state as shown: a busy lane waits for entries in flight; an empty one only remembers entries that left it.

    A ready lane has entries of its own, or other lanes queued in it.
    """
    if lane.paused_reason:
        return PAUSED
    if lane.waiting or lane.in_flight or lane.state in (LANE_READY, LANE_QUEUED):
        return BUSY if lane.state == LANE_CLOSED else lane.state
    if lane.state == LANE_SCHEDULED and not lane.parent and lane.name in lines():
        return LANE_SCHEDULED  # only entries of lanes within it wait, and these are not counted
    return EMPTY
