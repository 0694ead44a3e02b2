"""Named things that can be acted on: queues, commands, schedules, lanes and consumers.

For each action here is what it does; some also have a search for the target, and a question.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from djqueue.backends.base import BaseQueue
from djqueue.backends.entries import Entry
from djqueue.operations import lanes, purging
from djqueue.operations.consumers import consumers, whole_name
from djqueue.operations.errors import InvalidInput, OperationError
from djqueue.operations.pausing import pause, resume
from djqueue.operations.queues import asking, chosen, with_feature
from djqueue.operations.schedules import remove, run_now
from djqueue.wiring import queues as all_queues
from djqueue.words import count, counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What an action is done to, and what is said about it."""

    name: str
    """Of the command, schedule, lane or consumer; for a queue its alias."""
    queues: Sequence[str] = ()
    """The aliases of the target queues; all if there are none."""
    message: str = ""
    """The id of the target message; "" for none."""
    why: str = ""
    seconds: float | None = None
    """Seconds after which a pause ends by itself."""
    force: bool = False
    """Whether a name that is not known is paused too."""
    by: str = ""
    """Who does it; the user of this process by default."""


@dataclass(frozen=True, slots=True)
class Done:
    """What was done to a target."""

    said: str
    """What was done, in words; the caller adds the end of the sentence."""
    count: int = 1
    queues: Sequence[str] = ()
    """The aliases of the queues in which it was done, if not in all."""
    refused: str = ""
    """Why there was nothing to do."""
    message: str = ""
    """The id of the message that it was about."""


def _is(kind: str, name: str, words: str, refused: bool = False, queues: Sequence[str] = ()) -> Done:
    where = f" in {', '.join(queues)}" if queues else ""
    return Done(f"The {kind} {name}{where} {words}", int(not refused), queues, f"it {words}" if refused else "")


# ---- Pauses


def pausing(kind: str) -> Callable[[Target], Done]:
    def do(target: Target) -> Done:
        queue = target.queues[0] if target.queues else None
        how: dict[str, Any] = {"for_": target.seconds, "force": target.force}
        is_new = pause(kind, target.name, queue, why=target.why, by=target.by, **how)
        return _is(kind, target.name, "is paused" if is_new else "was paused already", not is_new)

    return do


def resuming(kind: str) -> Callable[[Target], Done]:
    def do(target: Target) -> Done:
        was_paused = resume(kind, target.name, target.queues[0] if target.queues else None, by=target.by)
        return _is(kind, target.name, "is resumed" if was_paused else "was not paused", not was_paused)

    return do


# ---- Queues


def purging_of(failed: bool) -> Callable[[Target], Done]:
    def do(target: Target) -> Done:
        queue = all_queues[target.name]
        with asking(queue):
            deleted = purging.purge(queue, failed, target.by)
        what = f"{'had failed' if failed else 'waited'} in {target.name}"
        text = f"Deleted about {counted(deleted, 'message')} that {what}" if deleted else f"Nothing {what}"
        return Done(text, deleted, [target.name])

    return do


def question_of_purge(failed: bool) -> Callable[[Target], str]:
    def question(target: Target) -> str:
        queue = all_queues[target.name]
        with asking(queue):
            there, capped = purging.count(queue, failed), queue.stats().capped
        messages = "1 message" if there == 1 else f"{count(there, capped)} messages"
        what = "that failed in" if failed else "that wait in"
        return f"Delete about {messages} {what} {target.name}, without a trace?"

    return question


# ---- Consumers


def whole(target: Target) -> Target:
    """The only consumer with this name, or with this part of a name."""
    return replace(target, name=whole_name(target.name))


def ordering(give: Callable[[str, str], str], words: str) -> Callable[[Target], Done]:
    return lambda target: _is("consumer", give(target.name, target.by), words)


def question_of_stop(target: Target) -> str:
    running = sum(one.busy for one in consumers() if one.name == target.name)
    return f"Stop the consumer {target.name}, which runs {counted(running, 'message')}?"


# ---- Lanes


def lane_to_pause(target: Target) -> Target:
    """The lane of this name in the only possible queue, if a call can ever wait in it."""
    queues = _queues_of(target)
    if len(queues) > 1:
        raise InvalidInput("Say in which queue to pause it: -q ALIAS.")
    problem = "" if target.force else lanes.problem_of(queues[0], target.name)
    if problem:
        raise OperationError(f"{problem} Nothing is paused; queue_lanes --pause --force pauses a lane of any name.")
    return _in(target, queues)


def pause_lane(target: Target) -> Done:
    queues = _queues_of(target)
    with asking(queues[0]):
        is_new = lanes.pause_lane(queues[0], target.name, target.why, target.by)
    return _is("lane", target.name, "is paused" if is_new else "was paused already", not is_new, target.queues)


def lane_to_resume(target: Target) -> Target:
    """The lane of this name in the queue in which it is held, or in each queue if that is not known."""
    queues = _queues_of(target)
    held = [queue for queue in queues if len(queues) > 1 and _is_held(queue, target.name)]
    if len(held) > 1:
        where = ", ".join(queue.alias for queue in held)
        raise InvalidInput(f"The lane {target.name} is held in {where}: say where to resume it, -q ALIAS.")
    return _in(target, held or queues)


def resume_lane(target: Target) -> Done:
    resumed = [queue.alias for queue in _queues_of(target) if _resume_in(queue, target)]
    if not resumed:
        text = "is neither paused nor held for a time: queue_lanes shows which are."
        raise OperationError(f"The lane {target.name} {text}")
    return _is("lane", target.name, "is resumed", queues=resumed)


def lane_to_skip_in(target: Target) -> Target:
    """The lane of this name in the only queue where messages wait in it, and the first of these."""
    queues = _queues_of(target)
    if target.message and len(queues) == 1:
        return target
    heads = {queue: head.id for queue in queues if (head := _head_of(queue, target.name)) is not None}
    if not heads:
        raise OperationError(f"No message waits in the lane {target.name}.")
    if len(heads) > 1:
        raise InvalidInput(f"Say in which queue {target.name} is: -q ALIAS.")
    [(queue, id)] = heads.items()
    return replace(_in(target, [queue]), message=id)


def question_of_skip(target: Target) -> str:
    [queue] = _queues_of(target)
    with asking(queue):
        lane = queue.lanes.get(target.name)
    behind = max(0, lane.waiting - 1) if lane is not None else 0
    return (
        f"Cancel message {target.message}, the first of the lane {target.name}, for good, and let the lane go on "
        f"with the {counted(behind, 'message')} behind it?"
    )


def skip_lane(target: Target) -> Done:
    [queue] = _queues_of(target)
    with asking(queue):
        was_first = lanes.skip_lane(queue, target.name, target.message, target.by)
    if not was_first:
        raise OperationError(f"Message {target.message} is not the first of the lane {target.name} any more.")
    text = f"Message {target.message} is cancelled, and the lane {target.name} goes on"
    return Done(text, queues=target.queues, message=target.message)


def _queues_of(target: Target) -> list[BaseQueue]:
    return with_feature(chosen(target.queues or None), "lanes", asked_for=bool(target.queues))[0]


def _in(target: Target, queues: Sequence[BaseQueue]) -> Target:
    return replace(target, queues=[queue.alias for queue in queues])


def _is_held(queue: BaseQueue, name: str) -> bool:
    with asking(queue):
        return lanes.is_held(queue, name)


def _resume_in(queue: BaseQueue, target: Target) -> bool:
    with asking(queue):
        return lanes.resume_lane(queue, target.name, target.by)


def _head_of(queue: BaseQueue, name: str) -> Entry | None:
    with asking(queue):
        return lanes.head_of(queue, name)


# ---- Schedules


def run_schedule(target: Target) -> Done:
    result = run_now(target.name, target.by)
    text = f"The call of {target.name} is in the queue {result.queue_name}: message {result.id}"
    return Done(text, queues=[result.queue_name], message=result.id)


def remove_schedule(target: Target) -> Done:
    if not remove(target.name, target.by):
        raise OperationError(f"There is no schedule {target.name!r} that was made at run time.")
    return _is("schedule", target.name, "is removed")
