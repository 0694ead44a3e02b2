"""What can be done with queues, commands, schedules, lanes and consumers: one list for all front ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from djqueue.operations import lanes, purging
from djqueue.operations.consumers import consumers, forget, quiet, resume_consumer, stop
from djqueue.operations.errors import OperationError
from djqueue.operations.pausing import pause, resume
from djqueue.operations.schedules import remove, run_now
from djqueue.running.pauses import COMMAND, QUEUE, SCHEDULE
from djqueue.wiring import queues as all_queues
from djqueue.words import counted

LONGEST_WHY = 200


@dataclass(frozen=True, slots=True)
class Given:
    """What is meant, and what is said of it."""

    name: str
    """Of the command, schedule, lane or consumer; for a queue its alias."""
    queue: str = ""
    """The alias of the queue that is meant; "" for all."""
    why: str = ""
    """At most :data:`LONGEST_WHY` characters: consumers read it, too."""
    by: str = ""
    """Who does it; the user of this process by default."""
    message: str = ""
    """The id of the message that is meant; "" for none."""


class Done(NamedTuple):
    """What was done."""

    text: str
    changed: int = 1
    """0 if there was nothing to do."""


class TargetAction(NamedTuple):
    """Something that can be done with something that has a name."""

    title: str
    permission: str
    do: Callable[[Given], Done]
    question: Callable[[Given], str] | None = None
    """What is asked before it is done."""


def _pause(kind: str) -> Callable[[Given], Done]:
    def do(given: Given) -> Done:
        queue = given.queue or None if kind != QUEUE else None
        is_new = pause(kind, given.name, queue, why=given.why, by=given.by)
        return Done(f"The {kind} {given.name} is paused." if is_new else f"The {kind} {given.name} was paused before.")

    return do


def _resume(kind: str) -> Callable[[Given], Done]:
    def do(given: Given) -> Done:
        was = resume(kind, given.name, given.queue or None if kind != QUEUE else None, by=given.by)
        return Done(f"The {kind} {given.name} is resumed." if was else f"The {kind} {given.name} was not paused.", was)

    return do


def _purge(failed: bool) -> Callable[[Given], Done]:
    def do(given: Given) -> Done:
        count = purging.purge(all_queues[given.name], failed, given.by)
        what = "failed messages" if failed else "waiting messages"
        return Done(f"About {counted(count, 'message')} deleted: the {what} of {given.name}.", count)

    return do


def _question_of_purge(failed: bool) -> Callable[[Given], str]:
    def question(given: Given) -> str:
        count = purging.count(all_queues[given.name], failed)
        what = "that failed in" if failed else "that wait in"
        return f"Delete about {counted(count, 'message')} {what} {given.name}, without a trace?"

    return question


ORDERS: Mapping[str, tuple[Callable[[str, str], str], str]] = {
    "quiet": (quiet, "claims nothing more"),
    "resume": (resume_consumer, "claims again"),
    "stop": (stop, "stops"),
    "forget": (forget, "is not shown any more"),
}
"""What each order to a consumer calls with its name and who gives it, and what is said when it was given."""


def _order(name: str) -> Callable[[Given], Done]:
    give, said = ORDERS[name]

    def do(given: Given) -> Done:
        return Done(f"Consumer {give(given.name, given.by)} {said}.")

    return do


def _question_of_stop(given: Given) -> str:
    running = sum(one.busy for one in consumers() if one.name == given.name)
    return f"Stop the consumer {given.name}, which runs {counted(running, 'message')}?"


def _pause_lane(given: Given) -> Done:
    queue = all_queues[given.queue]
    if queue.lane(given.name) is None:
        raise OperationError(f"There is no lane {given.name!r} in {given.queue}, or nothing is in it any more.")
    is_new = lanes.pause_lane(queue, given.name, given.why, given.by)
    return Done(f"The lane {given.name} is paused." if is_new else f"The lane {given.name} was paused before.", is_new)


def _resume_lane(given: Given) -> Done:
    was = lanes.resume_lane(all_queues[given.queue], given.name, given.by)
    return Done(f"The lane {given.name} is resumed." if was else f"The lane {given.name} was not held.", was)


def _skip_lane(given: Given) -> Done:
    if not lanes.skip_lane(all_queues[given.queue], given.name, given.message, given.by):
        return Done(f"Message {given.message} is not the first of the lane {given.name} any more.", 0)
    return Done(f"Message {given.message} is cancelled, and the lane {given.name} goes on.")


def _question_of_skip(given: Given) -> str:
    lane = all_queues[given.queue].lane(given.name)
    behind = max(0, lane.waiting - 1) if lane is not None else 0
    return (
        f"Cancel message {given.message}, the first of the lane {given.name}, for good, and let the lane go on "
        f"with the {counted(behind, 'message')} behind it?"
    )


def _run_schedule(given: Given) -> Done:
    result = run_now(given.name, given.by)
    return Done(f"The call of {given.name} was enqueued: message {result.id}.")


def _remove_schedule(given: Given) -> Done:
    removed = remove(given.name, given.by)
    return Done(f"The schedule {given.name} is removed." if removed else f"There is no schedule {given.name}.", removed)


TARGET_ACTIONS = {
    **{f"pause_{kind}": TargetAction("Pause", "pause", _pause(kind)) for kind in (QUEUE, COMMAND, SCHEDULE)},
    **{f"resume_{kind}": TargetAction("Resume", "pause", _resume(kind)) for kind in (QUEUE, COMMAND, SCHEDULE)},
    "pause_lane": TargetAction("Pause", "pause", _pause_lane),
    "resume_lane": TargetAction("Resume", "pause", _resume_lane),
    "skip_lane": TargetAction("Skip", "remove", _skip_lane, _question_of_skip),
    "purge": TargetAction("Purge", "remove", _purge(False), _question_of_purge(False)),
    "purge_failed": TargetAction("Purge", "remove", _purge(True), _question_of_purge(True)),
    "quiet": TargetAction("Quiet", "pause", _order("quiet")),
    "resume_consumer": TargetAction("Resume", "pause", _order("resume")),
    "stop": TargetAction("Stop", "pause", _order("stop"), _question_of_stop),
    "forget": TargetAction("Forget", "pause", _order("forget")),
    "run_schedule": TargetAction(
        "Run now", "run", _run_schedule, lambda given: f"Enqueue the call of {given.name} now?"
    ),
    "remove_schedule": TargetAction(
        "Remove", "edit_schedules", _remove_schedule, lambda given: f"Remove the schedule {given.name}?"
    ),
}
"""By their names."""
