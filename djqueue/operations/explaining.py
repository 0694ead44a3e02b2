"""Why does a message not run, and why does a queue not move: the reasons in words, and what to do about each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from math import inf
from typing import Any, NamedTuple

from djqueue.backends.base import BaseQueue, Entry, LaneRecord
from djqueue.backends.entries import DELAYED, FAILED, Lease, QueueStats
from djqueue.backends.items import MARK
from djqueue.discovery import is_discovered
from djqueue.exceptions import InvalidMessage, NoResult, UnknownCommand
from djqueue.flow.gates import LANE_CLOSED, LANE_QUEUED, LANE_READY, LANE_SCHEDULED
from djqueue.messages.failures import errors_of, is_put_off
from djqueue.operations.messages import RUNNING, Message, find_message
from djqueue.policies.policy import Policy
from djqueue.registry import registry
from djqueue.running import consumers, pauses
from djqueue.running.consumers import ConsumerRecord
from djqueue.running.context import open_entry
from djqueue.running.executor import policy_of
from djqueue.running.history import ended_of
from djqueue.running.pauses import COMMAND, Pause, Pauses
from djqueue.running.result_store import end_of, is_cancelled
from djqueue.throttle import ThrottledQueue
from djqueue.utils import nearest, plain
from djqueue.wiring import queues as all_queues
from djqueue.words import SHORT_ID, age, duration, moment, number

MOST_LANES, MOST_BLOCKED = 500, 10
"""Lanes of a queue that are looked at, and that are named, of those that do not move."""
UNKNOWN, WAITS = "unknown", "waits"


class Reason(NamedTuple):
    """One reason, and what to do about it."""

    kind: str
    """cancelled, command_paused, delayed, due, ended, expired, failed, invalid, lane_busy, lane_paused, lane_retry,
    lane_throttled, lane_turn, no_consumer, quiet, queue_paused, queue_throttled, retry, running, unknown,
    unknown_command or working."""
    text: str
    advice: str = ""
    """What to do; "" if there is nothing to do."""
    until: float | None = None
    """When it ends by itself (epoch seconds, the store's clock), if that is known."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a message, or a queue, is as it is. Nothing stops it if no reason does."""

    subject: str
    """The id of the message, or the alias of the queue."""
    queue: str
    """The alias of the queue; "" for a message that is not known."""
    command: str
    state: str
    """ready, delayed, running, failed, how the message has ended, or ``unknown``; of a queue ``empty`` or ``waits``."""
    reasons: tuple[Reason, ...]


def as_object(one: Explanation) -> dict[str, Any]:
    """An explanation, for JSON."""
    reasons = [reason._asdict() | {"advice": reason.advice or None} for reason in one.reasons]
    known = {"subject": one.subject, "queue": one.queue or None, "command": one.command or None, "state": one.state}
    return known | {"reasons": reasons}


# ---- A message


def explain(id: str, queues: Sequence[BaseQueue] | None = None) -> Explanation:
    """Why a message does not run, or what became of it. ``queues`` are looked into, all by default."""
    queues = [all_queues[alias] for alias in all_queues] if queues is None else queues
    visible = [queue for queue in queues if "inspect" in queue.features]
    for queue in visible:
        if (one := find_message(queue, id)) is not None:
            return explain_message(queue, one)
    for queue in queues:
        if (ended := _ended(queue, id)) is not None:
            return ended
    return Explanation(id, "", "", UNKNOWN, (_never_seen(queues, visible),))


def explain_message(queue: BaseQueue, one: Message) -> Explanation:
    """Why a message that was found in a queue does not run."""
    seen = Surroundings(queue)
    if one.state == FAILED:
        reasons = [_failure(one)]
    elif one.state == RUNNING:
        reasons = [*_run(seen, one)]
    else:
        policy, faults = _checked(seen, one.entry)
        reasons = [*faults, *_delay(seen, one, policy), *seen.stops()]
        reasons += [*_command_stops(seen, one.command)] if _is_call(one.entry) else []
        reasons += [] if one.state == DELAYED else [*_lane(seen, one.entry)]
        reasons += [] if reasons else [_turn(seen, one)]
    return Explanation(one.id, queue.alias, one.command, one.state, tuple(reasons))


def _never_seen(queues: Sequence[BaseQueue], visible: Sequence[BaseQueue]) -> Reason:
    hidden = ", ".join(repr(queue.alias) for queue in queues if queue not in visible)
    text = "No queue has it, and none remembers that it has ended."
    advice = (
        "Give its whole id. Its transaction may not be committed, or was rolled back; or it ended so long ago that "
        "QUEUE_HISTORY keeps it no more."
    )
    return Reason("unknown", text, advice + (f" It may be in {hidden}, which cannot be looked into." if hidden else ""))


def _ended(queue: BaseQueue, id: str) -> Explanation | None:
    """What its history, or else its result, says of a message that has ended."""
    if (ended := ended_of(queue, id)) is not None:
        why = f": {ended.error}" if ended.error else ""
        by = f" by {ended.worker}" if ended.worker else ""
        ran = f", at attempt {ended.attempts}{by} in {duration(ended.seconds)}" if ended.attempts else ""
        text = f"It ended as {ended.status} at {moment(ended.ended)}{ran}{why}."
        return Explanation(id, queue.alias, ended.command, ended.status, (Reason("ended", text),))
    try:
        end = end_of(queue, id) if "facts" in queue.features else None
    except NoResult:  # what is kept cannot be read
        return None
    if end is None:
        return None
    why = f": {end['reason']}" if end.get("reason") else ""
    return Explanation(id, queue.alias, "", end["status"], (Reason("ended", f"It ended as {end['status']}{why}."),))


def _failure(one: Message) -> Reason:
    attempts = "1 attempt" if one.attempts == 1 else f"{one.attempts} attempts"
    text = (
        f"It failed for good at {moment(one.at)}, after {attempts}: {one.reason.rstrip('.') or 'no reason is known'}."
    )
    part = one.id[-SHORT_ID:]
    return Reason("failed", text, f"queue_errors show {part}; when the cause is mended: queue_errors retry {part}.")


def _run(seen: Surroundings, one: Message) -> Iterator[Reason]:
    by = next((record for record in seen.consumers if record.name == one.consumer), None)
    holder = f"{one.consumer or 'A consumer'} holds it until {moment(one.at)}"
    if by is not None and not by.is_alive:
        text = f"{holder}, and is silent since {moment(by.at)}: it has died, or cannot reach the store."
        yield Reason("running", text, "Another consumer runs it then.", one.at)
    else:
        begun = next((run for run in by.running if run.id == one.id), None) if by is not None else None
        since = f", has run it since {moment(begun.since)}" if begun else ""
        yield Reason("running", f"{holder}{since}, and extends that while it lives (attempt {one.attempts}).")
    if is_cancelled(seen.queue, one.entry):
        yield Reason("cancelled", "It was asked to stop.", "Its command has to look at current_message().cancelled.")


def _checked(seen: Surroundings, entry: Entry) -> tuple[Policy | None, list[Reason]]:
    """Its options, if they can be read, and what will keep it from being run, whenever it is taken."""
    if not _is_call(entry):
        return None, []
    try:
        envelope = open_entry(seen.queue, entry)
        policy = policy_of(registry.find(envelope.command), envelope)
    except InvalidMessage as error:
        return None, [Reason("invalid", f"It will fail when it is taken: {error}", "Then queue_errors shows it.")]
    except UnknownCommand as error:
        return None, [_unknown_here(entry.command, error)]
    verdict = policy.reject(Lease(entry, claimed=seen.now))
    why = "" if verdict is None else f"It is not run when it is taken: {verdict.reason}."
    return policy, [Reason("expired", why)] if why else []


def _is_call(entry: Entry) -> bool:
    """Whether it is a call of a command, and no plain item for a loop of the project's own."""
    return bool(entry.command) and not entry.command.startswith(MARK)


def _unknown_here(name: str, error: UnknownCommand) -> Reason:
    meant = nearest(name, [command.name for command in registry])
    advice = "Consumers put such a message back, and try again later: deploy the command, or remove the message."
    return Reason("unknown_command", f"{error}.", f"Did you mean {meant}? {advice}" if meant else advice)


def _delay(seen: Surroundings, one: Message, policy: Policy | None) -> Iterator[Reason]:
    if one.state != DELAYED:
        return
    advice = f"Do not wait: queue_messages run-now {one.id[-SHORT_ID:]}."
    when = f"at {moment(one.at)}, in {age(max(0.0, one.at - seen.now))}"
    upcoming = one.attempts + 1
    most = 0 if policy is None else policy.most_attempts
    attempt = f"Attempt {upcoming} of {most}" if upcoming <= most else f"Attempt {upcoming}"
    if errors := errors_of(one.entry.errors):
        last = errors[-1]
        said = (
            f"Attempt {last.get('attempt', one.attempts)} failed at {moment(last.get('at'))}: {one.reason.rstrip('.')}."
        )
        yield Reason("retry", f"{said} {attempt} is due {when}.", advice, one.at)
    elif is_put_off(one.entry.errors, one.attempts):
        yield Reason("due", f"It was put off, and is looked at again {when}.", advice, one.at)
    elif one.attempts:
        yield Reason("retry", f"It was put back. {attempt} is due {when}.", advice, one.at)
    else:
        yield Reason("due", f"It was enqueued with a delay, and is due {when}.", advice, one.at)


def _command_stops(seen: Surroundings, command: str) -> Iterator[Reason]:
    """What holds up all messages of a command."""
    if (pause := seen.pauses.find(COMMAND, command, seen.queue, seen.now)) is not None:
        only = f" -q {seen.queue.alias}" if pause.queue else ""
        yield _paused("command_paused", f"The command {command} is", pause, f"queue_resume --command {command}{only}.")
    known = {name for record in seen.servers for name in record.known}
    if known and command not in known and is_discovered(command.rpartition(".")[0]):  # others are imported when needed
        meant = nearest(command, known)
        advice = f"Did you mean {meant}?" if meant else "Deploy it to the consumers, and restart them."
        yield Reason("unknown_command", f"No live consumer of this queue knows {command}.", advice)


def _turn(seen: Surroundings, one: Message) -> Reason:
    ready = _messages(seen.stats.ready, "is", "are")
    text = f"Nothing stops it: {ready} ready, and a worker that is free takes the first. {seen.capacity}"
    return Reason("working", text.rstrip(), f"It is ready since {moment(one.at)}." if one.at else "")


# ---- Its lane


def _lane(seen: Surroundings, entry: Entry) -> Iterator[Reason]:
    """Why the lane of a message that is due does not let it go."""
    lane = seen.queue.lane(entry.lane) if entry.gate and "lanes" in seen.queue.features else None
    if lane is None:
        return
    head = seen.first_of(lane.name)
    ahead = "" if head is None or head.id == entry.id else f" Message {head.id} is before it."
    if not _is_open(lane):
        yield _held(seen, lane, head, ahead)
    elif ahead:
        yield Reason("lane_turn", f"It waits for its turn in the lane {plain(lane.name)}.{ahead}", "")


def _is_open(lane: LaneRecord) -> bool:
    return lane.state == LANE_READY and not lane.paused_reason


def _held(seen: Surroundings, lane: LaneRecord, head: Entry | None, ahead: str) -> Reason:
    name = plain(lane.name)
    resume = f"queue_lanes -q {seen.queue.alias} --resume {name}"
    if lane.paused_reason:
        return Reason("lane_paused", f"The lane {name} is paused: {plain(lane.paused_reason)}.{ahead}", f"{resume}.")
    if lane.state == LANE_SCHEDULED:
        return _scheduled(lane, head, ahead, resume)
    if lane.state == LANE_QUEUED:
        parent = seen.queue.lane(lane.parent)
        within = Reason("", "") if parent is None or _is_open(parent) else _held(seen, parent, None, "")
        text = f"The lane {name} waits for its turn within the limit of {plain(lane.parent)}. {within.text}".rstrip()
        return Reason("lane_turn", text + ahead, within.advice, within.until)
    runs = _messages(lane.in_flight, "of it runs", "of it run")
    return Reason("lane_busy", f"The lane {name} is busy: {runs}, as many as may at a time.{ahead}")


def _scheduled(lane: LaneRecord, head: Entry | None, ahead: str, resume: str) -> Reason:
    name, until = plain(lane.name), moment(lane.opens)
    if head is not None and head.attempts:
        text = f"The lane {name} waits until {until} for the retry of its first message, {head.id}."
        return Reason("lane_retry", text, f"Do not wait: {resume}.", lane.opens or None)
    return Reason("lane_throttled", f"The lane {name} is throttled until {until}.{ahead}", until=lane.opens or None)


# ---- A queue


def explain_queue(queue: BaseQueue) -> Explanation:
    """Why a queue does not move: what stops it as a whole, which lanes are blocked, and what its consumers do."""
    seen = Surroundings(queue)
    waits = seen.stats.ready + (seen.stats.delayed or 0)
    reasons = [*seen.stops(), *_blocked_lanes(seen)]
    reasons += [] if reasons else [_movement(seen)]
    if seen.stats.failed:
        text = f"{_messages(seen.stats.failed, 'has', 'have')} failed."
        reasons.append(Reason("failed", text, f"queue_errors summary -q {queue.alias}."))
    return Explanation(queue.alias, queue.alias, "", WAITS if waits else "empty", tuple(reasons))


def _blocked_lanes(seen: Surroundings) -> Iterator[Reason]:
    if "lanes" not in seen.queue.features:
        return
    lanes = seen.queue.lanes(MOST_LANES)
    held = (one for one in lanes if one.paused_reason or (one.waiting and one.state in (LANE_SCHEDULED, LANE_CLOSED)))
    for lane in islice(held, MOST_BLOCKED):
        reason = _held(seen, lane, seen.first_of(lane.name), "")
        yield reason._replace(text=f"{reason.text[:-1]}; {_messages(lane.waiting, 'waits', 'wait')} in it.")


def _movement(seen: Surroundings) -> Reason:
    if not seen.stats.ready:
        first = next(iter(seen.queue.peek(DELAYED, 1)), None) if "inspect" in seen.queue.features else None
        if first is None:
            return Reason("working", f"Nothing waits. {seen.capacity}".rstrip())
        when = f"{moment(first.at)}, in {age(max(0.0, first.at - seen.now))}"
        delayed = _messages(seen.stats.delayed or 1, "is", "are")
        return Reason("delayed", f"Nothing is due: {delayed} delayed, the first until {when}.", until=first.at)
    oldest = f", the oldest for {age(seen.stats.oldest)}" if seen.stats.oldest is not None else ""
    text = f"Nothing stops it: {_messages(seen.stats.ready, 'is', 'are')} ready{oldest}. {seen.capacity}"
    return Reason("working", text.rstrip())


# ---- What is around them


class Surroundings:
    """What is known of a queue beside its messages; each is read once, when it is asked for."""

    def __init__(self, queue: BaseQueue):
        self.queue = queue

    @cached_property
    def now(self) -> float:
        return self.queue.now()

    @cached_property
    def stats(self) -> QueueStats:
        return self.queue.stats()

    @cached_property
    def pauses(self) -> Pauses:
        return pauses.read(self.queue.store.shared) if self._has_facts else Pauses()

    @cached_property
    def consumers(self) -> list[ConsumerRecord]:
        """All consumers of its server."""
        return consumers.read(self.queue.store.shared) if self._has_facts else []

    @property
    def servers(self) -> list[ConsumerRecord]:
        """The live consumers that serve this queue."""
        return [one for one in self.consumers if one.is_alive and self.queue.base_name in one.queues]

    @property
    def capacity(self) -> str:
        """What the consumers of the queue do, in words; "" if none is known."""
        if not self.servers:
            return ""
        busy, most = sum(one.busy for one in self.servers), sum(one.threads + one.coroutines for one in self.servers)
        many = "1 consumer" if len(self.servers) == 1 else f"{number(len(self.servers))} consumers"
        return f"{many} with {number(most)} workers, {number(busy)} of them busy."

    @property
    def _has_facts(self) -> bool:
        return "facts" in self.queue.features

    def stops(self) -> Iterator[Reason]:
        """What holds up the whole queue."""
        if (pause := self.pauses.of_queue(self.queue, self.now)) is not None:
            yield _paused(
                "queue_paused", f"The queue {self.queue.alias!r} is", pause, f"queue_resume {self.queue.alias}."
            )
        if isinstance(self.queue, ThrottledQueue):
            grant = self.queue.store.shared.acquire(self.queue.rate_limit, 0)  # uses up nothing
            if grant.reason:
                opens = self.now + grant.retry_after if grant.retry_after < inf else None
                until = f" until {moment(opens)}" if opens else ""
                yield Reason("queue_throttled", f"The queue is throttled, {grant.window}{until}.", until=opens)
        if self._has_facts and not self.servers:
            yield self._no_consumer()
        elif self.servers and all(one.state == consumers.QUIET for one in self.servers):
            text = "All consumers of this queue were told to claim nothing more."
            advice = f"queue_consumers --resume {plain(self.servers[0].name)}, or start another one."
            yield Reason("quiet", text, advice)

    def _no_consumer(self) -> Reason:
        gone = [one for one in self.consumers if not one.is_alive and self.queue.base_name in one.queues]
        last = max(gone, key=lambda one: one.at, default=None)
        text = f"No live consumer serves the queue {self.queue.alias!r}."
        if last is not None:
            text += f" The last, {last.name}, is silent since {moment(last.at)}."
        return Reason("no_consumer", text, f"Start one: queue_consumer -q {self.queue.alias}.")

    def first_of(self, lane: str) -> Entry | None:
        """The message that is the first to leave a lane, if one waits in it."""
        return next((record.entry for record in self.queue.peek_lane(lane, 1)), None)


def _paused(kind: str, what: str, pause: Pause, resume: str) -> Reason:
    by = f" by {plain(pause.by)}" if pause.by else ""
    why = f" ({plain(pause.why)})" if pause.why else ""
    until = f", until {moment(pause.until)}" if pause.until else ""
    return Reason(kind, f"{what} paused{by} since {moment(pause.since)}{why}{until}.", resume, pause.until)


def _messages(count: int, one: str, many: str) -> str:
    """How many, with a verb that fits: 1 message is, 2 messages are."""
    return f"1 message {one}" if count == 1 else f"{number(count)} messages {many}"
