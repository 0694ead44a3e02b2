"""Why a message does not run, or a queue does not move: the reasons in words, and what to do about each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from itertools import islice
from math import inf

from djqueue.backends.base import BaseQueue, Entry, LaneRecord, Record, walk
from djqueue.backends.entries import DELAYED, FAILED, LEASED, Lease, QueueStats
from djqueue.backends.items import MARK
from djqueue.exceptions import InvalidMessage, StoreError, UnknownCommand
from djqueue.flow.gates import LANE_CLOSED, LANE_QUEUED, LANE_READY, LANE_SCHEDULED, Gate
from djqueue.messages.failures import errors_of, is_put_off, text_of
from djqueue.operations.actions import Action, actions
from djqueue.operations.lanes import GATHERS, RETRY, first_in, records, why_scheduled
from djqueue.operations.messages import RUNNING, MessageRow, find_message
from djqueue.operations.paging import MOST_CHECKED
from djqueue.operations.reports import Kind, column, report_row
from djqueue.operations.throttles import throttle_of
from djqueue.operations.unknown import Note, lacking, note_of, patience, renamed
from djqueue.policies.policy import Policy
from djqueue.registry import registry
from djqueue.running import consumers, pauses
from djqueue.running.consumers import ConsumerRecord
from djqueue.running.context import open_entry
from djqueue.running.ends import End
from djqueue.running.executor import policy_of
from djqueue.running.finding import FOR_OPERATORS, find
from djqueue.running.pauses import COMMAND, Pause, Pauses
from djqueue.running.result_store import is_cancelled
from djqueue.utils import plain
from djqueue.wiring import queues as all_queues
from djqueue.words import SHORT_ID, age, attempt_of, duration, moment, number

MOST_BLOCKED = 10
"""Lanes of a queue that are checked, and blocked lanes that are named."""
UNKNOWN, WAITS = "unknown", "waits"


@report_row
class Reason:
    """One reason, and what to do about it."""

    kind: str = column("kind", Kind.NAME)
    """cancelled, command_paused, delayed, due, ended, expired, failed, invalid, lane_busy, lane_gathers, lane_paused,
    lane_retry, lane_throttled, lane_turn, no_consumer, postponed, quiet, queue_paused, queue_throttled, removed, retry,
    running, unknown, unknown_command, unreachable or working."""
    text: str = column("reason", Kind.PROSE)
    advice: str = column("what to do", Kind.PROSE, optional=True, default="")
    """What to do; "" if there is nothing to do."""
    until: float | None = column(kind=Kind.MOMENT, default=None)
    """When it ends by itself (epoch seconds, the store's clock), if that is known."""


@report_row
class Explanation:
    """Why a message or a queue is in its state; nothing stops it if no reason does."""

    subject: str = column("subject", Kind.NAME, key=True)
    """The id of the message, or the alias of the queue."""
    queue: str = column("queue", Kind.QUEUE)
    """The alias of the queue; "" for a message that is not known."""
    command: str = column("command", Kind.COMMAND)
    state: str = column("state", Kind.STATE)
    """ready, delayed, running, failed, how the message has ended, or ``unknown``; of a queue ``empty`` or ``waits``."""
    reasons: Sequence[Reason] = column()


# ---- A message


def explain(id: str, queues: Sequence[BaseQueue] | None = None) -> Explanation:
    """Why a message does not run, or what became of it. ``queues`` are searched, all by default.

    A queue that cannot be asked is passed over, and named if no other has the message.
    """
    return look_up(id, [all_queues[alias] for alias in all_queues] if queues is None else queues)[1]


def look_up(id: str, queues: Sequence[BaseQueue]) -> tuple[MessageRow | None, Explanation]:
    """The message of that id, if it waits, runs or has failed, and why it is in that state."""
    unreachable: dict[str, Reason] = {}
    for search in (_waiting, _ended):
        for queue in queues:
            if queue.alias in unreachable:
                continue
            try:
                found = search(queue, id)
            except Exception as error:  # whatever its client raises: another queue may have it
                unreachable[queue.alias] = _unreachable(queue, error)
            else:
                if found is not None:
                    return found
    asked = [queue for queue in queues if queue.alias not in unreachable]
    return None, Explanation(id, "", "", UNKNOWN, (*_never_seen(id, queues, asked), *unreachable.values()))


def began(queue: BaseQueue, one: MessageRow) -> float:
    """When the running attempt began, as its consumer says (epoch seconds); 0 if that is not known."""
    if one.state != RUNNING:
        return 0.0
    runs = (run for record in Surroundings(queue).consumers for run in record.running)
    return next((run.since for run in runs if run.id == one.id), 0.0)


def acts_on(id: str, queues: Sequence[BaseQueue]) -> list[Action]:
    """What operators did to this single message, as far as the stores of these queues can be asked."""
    found: list[Action] = []
    for queue in queues:
        with suppress(Exception):  # whatever its client raises
            found += [act for act in actions([queue.alias]) if id and id in act.what]
    return found


def _waiting(queue: BaseQueue, id: str) -> tuple[MessageRow, Explanation] | None:
    one = find_message(queue, id) if "inspect" in queue.features else None
    return None if one is None else (one, explain_message(queue, one))


def _ended(queue: BaseQueue, id: str) -> tuple[None, Explanation] | None:
    end = find(queue, id, FOR_OPERATORS)
    return None if end is None else (None, _explained(queue, id, end))


def _unreachable(queue: BaseQueue, error: Exception) -> Reason:
    why = str(error.of_queue(queue.alias)) if isinstance(error, StoreError) else ""
    return Reason("unreachable", why or f"Queue {queue.alias!r} cannot be asked: {text_of(error)}")


def explain_message(queue: BaseQueue, one: MessageRow) -> Explanation:
    """Why a message that was found in a queue does not run."""
    seen = Surroundings(queue)
    if one.state == FAILED:
        reasons = [_failure(one)]
    elif one.state == RUNNING:
        reasons = [*_run(seen, one)]
    else:
        reasons = [*_held_up(seen, one)]
        reasons += [] if reasons else [_turn(seen, one)]
    return Explanation(one.id, queue.alias, one.command, one.state, tuple(reasons))


def _held_up(seen: Surroundings, one: MessageRow) -> Iterator[Reason]:
    """What holds up a waiting message."""
    policy, faults, why_not_here = _checked(seen, one.entry)
    yield from faults
    yield from (unknown := [*_unknown(seen, one, why_not_here)])
    if one.state == DELAYED:
        advice = "" if unknown else f"To run it now: queue_messages run-now {one.id[-SHORT_ID:]}."
        yield replace(_again(seen, one, policy, one.at), advice=advice)
    yield from seen.stops()
    if _is_call(one.entry):
        yield from _command_paused(seen, one.command)
    if one.state != DELAYED:
        yield from _lane(seen, one, policy)


def _never_seen(id: str, queues: Sequence[BaseQueue], asked: Sequence[BaseQueue]) -> Iterator[Reason]:
    """What is known about an id that no queue has: who removed it, or else what may have happened to it."""
    acts = acts_on(id, asked)
    for act in acts:
        yield Reason("removed", f"{act.action} by {act.by} at {moment(act.at)}, in the queue {act.queue!r}.")
    if acts:
        return
    has = "No queue has it" if len(asked) == len(queues) else "No queue that could be asked has it"
    hidden = ", ".join(repr(queue.alias) for queue in queues if "inspect" not in queue.features)
    advice = (
        "Give its whole id. Its transaction may not be committed, or was rolled back. It may have been a unique call "
        "that was refused, or a debounced one for which another call counts: then duplicate_of of its Result is that "
        "one. Or it ended so long ago that QUEUE_HISTORY keeps it no more."
    )
    more = f" It may be in {hidden}, which cannot be read." if hidden else ""
    yield Reason("unknown", f"{has}, and none remembers that it has ended.", advice + more)


def _explained(queue: BaseQueue, id: str, end: End) -> Explanation:
    """What is known about a message that has ended."""
    why = f": {end.reason}" if end.reason else ""
    by = f" by {end.worker}" if end.worker else ""
    ran = f", at attempt {end.attempts}{by} in {duration(end.seconds)}" if end.attempts else ""
    text = f"It ended as {end.status} at {moment(end.ended)}{ran}{why}."
    return Explanation(id, queue.alias, end.command, end.status, (Reason("ended", text),))


def _failure(one: MessageRow) -> Reason:
    attempts = "1 attempt" if one.attempts == 1 else f"{one.attempts} attempts"
    text = (
        f"It failed for good at {moment(one.at)}, after {attempts}: {one.reason.rstrip('.') or 'no reason is known'}."
    )
    part = one.id[-SHORT_ID:]
    return Reason("failed", text, f"queue_errors show {part}; when the cause is fixed: queue_errors retry {part}.")


def _run(seen: Surroundings, one: MessageRow) -> Iterator[Reason]:
    by = next((record for record in seen.consumers if record.name == one.consumer), None)
    holder = f"{one.consumer or 'A consumer'} holds it until {moment(one.at)}"
    if by is not None and not by.is_alive:
        text = f"{holder}, and is silent since {moment(by.at)}: it has died, or cannot reach the store."
        yield Reason("running", text, "Then another consumer runs it." if seen.servers else "", one.at)
        if not seen.servers:
            yield seen.no_consumer()
    else:
        begun = next((run for run in by.running if run.id == one.id), None) if by is not None else None
        since = f", has run it since {moment(begun.since)}" if begun else ""
        yield Reason("running", f"{holder}{since}, and extends that while it lives (attempt {one.attempts}).")
    if is_cancelled(seen.queue, one.entry):
        yield Reason("cancelled", "It was asked to stop.", "Its command has to check current_message().cancelled.")


def _checked(seen: Surroundings, entry: Entry) -> tuple[Policy | None, list[Reason], str]:
    """Its options, if they can be read; what will keep it from being run, whenever it is taken; and why its command is
    not found here."""
    if not _is_call(entry):
        return None, [], ""
    try:
        envelope = open_entry(seen.queue, entry)
        policy = policy_of(registry.find(envelope.command), envelope)
    except InvalidMessage as error:
        return None, [Reason("invalid", f"It will fail when it is taken: {error}", "Then queue_errors shows it.")], ""
    except UnknownCommand as error:
        return None, [], str(error)
    verdict = policy.reject(Lease(entry, claimed=seen.now))
    why = "" if verdict is None else f"It is not run when it is taken: {verdict.reason}."
    return policy, [Reason("expired", why)] if why else [], ""


def _is_call(entry: Entry) -> bool:
    """Whether it is a call of a command, and not a plain item for a loop of the project's own."""
    return bool(entry.command) and not entry.command.startswith(MARK)


def _unknown(seen: Surroundings, one: MessageRow, why_not_here: str) -> Iterator[Reason]:
    """Whether the consumers know its command; what this process does not find counts only if no consumer reports."""
    if not _is_call(one.entry):
        return
    name, alive = one.command, seen.servers
    lack, knowing = lacking(name, alive), [record for record in alive if name in record.known]
    note = note_of(one.entry)
    is_noted = note is not None and note.is_of_unknown_command
    advice = f"Deploy {name} to the consumers, and restart them.{_renamed(seen, name) if why_not_here else ''}"
    if lack and len(lack) < len(alive):
        names = ", ".join(record.name for record in lack)
        text = f"{len(lack)} of {len(alive)} consumers do not know {name}, and put it back when they claim it: {names}."
        yield Reason("unknown_command", text, "Restart them with the code of the others.")
    elif lack:
        yield Reason("unknown_command", f"No live consumer of this queue knows {name}. {_waits(note)}", advice)
    elif note is not None and is_noted and not knowing:
        who = note.consumer or "A consumer"
        text = f"{who} did not find {name}: {note.reason.rstrip('.')}. {_waits(note)}"
        yield Reason("unknown_command", text, advice)
    elif why_not_here and not knowing:
        text = f"It is not found here: {why_not_here}. If the consumers do not find it either: {_waits(None)}"
        yield Reason("unknown_command", text, advice)


def _waits(note: Note | None) -> str:
    """What happens to a message of an unknown command."""
    if note is None or not note.is_of_unknown_command:
        return f"Once one has claimed it, it waits for {duration(patience())}, and fails if none knows it by then."
    return f"It has waited for one that does since {moment(note.at)}, and fails at {moment(note.fails)} if none does."


def _renamed(seen: Surroundings, name: str) -> str:
    known = {known for record in seen.servers for known in record.known}
    meant = renamed(name, known or {command.name for command in registry})
    return f" If it was renamed: did you mean {meant}?" if meant else ""


def _again(seen: Surroundings, one: MessageRow, policy: Policy | None, at: float) -> Reason:
    """Why it waits until a moment, and what happens then."""
    when, note = f"at {moment(at)}, in {age(max(0.0, at - seen.now))}", note_of(one.entry)
    if note is not None and note.is_of_unknown_command:
        return Reason("postponed", f"It is searched again {when}.", until=at)
    if note is not None:
        text = f"It could not be begun: {note.reason.rstrip('.')}. That counts as no attempt. It is tried again {when}"
        return Reason("postponed", f"{text}, and fails at {moment(note.fails)} if that goes on.", until=at)
    if is_put_off(one.entry.errors, one.attempts):
        return Reason("due", f"It was put off, and is checked again {when}.", until=at)
    if one.attempts:
        return Reason("retry", f"{_failed_before(one)} {_upcoming(one, policy)} is due {when}.", until=at)
    return Reason("due", f"It was enqueued with a delay, and is due {when}.", until=at)


def _failed_before(one: MessageRow) -> str:
    """The error that ended its last attempt, if that failed."""
    last = one.end.errors[-1] if one.end.errors else {}
    if last.get("attempt") != one.attempts:
        return "It was put back."
    return f"Attempt {one.attempts} failed at {moment(last.get('at'))}: {one.reason.rstrip('.')}."


def _upcoming(one: MessageRow, policy: Policy | None) -> str:
    """Its next attempt, in words."""
    upcoming, most = one.attempts + 1, 0 if policy is None else policy.most_attempts
    return attempt_of(upcoming, most).capitalize()


def _command_paused(seen: Surroundings, command: str) -> Iterator[Reason]:
    if (pause := seen.pauses.find(COMMAND, command, seen.queue, seen.now)) is not None:
        only = f" -q {seen.queue.alias}" if pause.queue else ""
        yield _paused("command_paused", f"The command {command} is", pause, f"queue_resume --command {command}{only}.")


def _turn(seen: Surroundings, one: MessageRow) -> Reason:
    ready = _messages(seen.stats.ready, "is", "are")
    text = f"Nothing stops it: {ready} ready, and a worker that is free takes the first. {seen.capacity}"
    return Reason("working", text.rstrip(), f"It is ready since {moment(one.at)}." if one.at else "")


# ---- Its lane


def _lane(seen: Surroundings, one: MessageRow, policy: Policy | None) -> Iterator[Reason]:
    """Why the lane of a due message does not let it run."""
    entry = one.entry
    lane = seen.queue.lanes.get(entry.lane) if entry.gate and "lanes" in seen.queue.features else None
    if lane is None:
        return
    head = seen.first_of(lane.name)
    is_head = head is None or head.entry.id == entry.id
    ahead = "" if is_head or head is None else f" Message {head.entry.id} is before it."
    if not _is_open(lane):
        held = _held(seen, lane, head, ahead)
        yield _own_retry(seen, lane, one, policy, held) if is_head and held.kind == "lane_retry" else held
    elif ahead:
        yield Reason("lane_turn", f"It waits for its turn in the lane {plain(lane.name)}.{ahead}", "")


def _own_retry(seen: Surroundings, lane: LaneRecord, one: MessageRow, policy: Policy | None, held: Reason) -> Reason:
    """Why the first message of a lane waits, and the lane with it."""
    again = _again(seen, one, policy, lane.opens)
    return replace(held, text=f"{again.text} Its lane {plain(lane.name)} waits for it.")


def _is_open(lane: LaneRecord) -> bool:
    return lane.state == LANE_READY and not lane.paused_reason


def _held(seen: Surroundings, lane: LaneRecord, head: Record | None, ahead: str) -> Reason:
    name = plain(lane.name)
    if lane.paused_reason:
        text = f"The lane {name} is paused: {plain(lane.paused_reason)}.{ahead}"
        return Reason("lane_paused", text, f"queue_lanes -q {seen.queue.alias} --resume {name}.")
    if lane.state == LANE_SCHEDULED:
        return _scheduled(seen, lane, head, ahead)
    if lane.state == LANE_QUEUED:
        parent = seen.queue.lanes.get(lane.parent)
        within = Reason("", "") if parent is None or _is_open(parent) else _held(seen, parent, None, "")
        text = f"The lane {name} waits for its turn within the limit of {plain(lane.parent)}. {within.text}".rstrip()
        return Reason("lane_turn", text + ahead, within.advice, within.until)
    runs = _messages(lane.in_flight, "of it runs", "of it run")
    return Reason("lane_busy", f"The lane {name} is busy: {runs}, as many as may at a time.{ahead}")


def _scheduled(seen: Surroundings, lane: LaneRecord, head: Record | None, ahead: str) -> Reason:
    name, until = plain(lane.name), moment(lane.opens)
    why = why_scheduled(lane, head)
    if why == RETRY and head is not None:
        first = f"{head.entry.id}, {_why_first(head.entry)}"
        text = f"The lane {name} waits until {until} for the retry of its first message, {first}."
        advice = f"To let it go on: queue_lanes -q {seen.queue.alias} --resume {name}."
        return Reason("lane_retry", text, advice, lane.opens or None)
    if why == GATHERS:
        least = Gate.read(lane.gate).min_batch
        text = f"The lane {name} gathers a batch until {until}: {lane.waiting} of {least} wait.{ahead}"
        return Reason("lane_gathers", text, until=lane.opens or None)
    return Reason("lane_throttled", f"The lane {name} is throttled until {until}.{ahead}", until=lane.opens or None)


def _why_first(entry: Entry) -> str:
    """Why the first message of a lane waits, as the end of a sentence."""
    note, errors = note_of(entry), errors_of(entry.errors)
    if note is not None:
        return f"which could not be begun: {note.reason.rstrip('.')}"
    if is_put_off(entry.errors, entry.attempts):
        return "which was put off"
    if not errors or errors[-1].get("attempt") != entry.attempts:
        return "which was put back"
    return f"which failed: {str(errors[-1].get('reason') or '').rstrip('.')}"


# ---- A queue


def explain_queue(queue: BaseQueue) -> Explanation:
    """Why a queue does not move: what stops it as a whole, which lanes are blocked, and what its consumers do."""
    seen = Surroundings(queue)
    waits = seen.stats.ready + (seen.stats.delayed or 0)
    lanes = [*islice(records(queue), MOST_CHECKED)] if "lanes" in queue.features else []
    reasons = [*seen.stops(), *_blocked_lanes(seen, lanes)]
    reasons += [] if reasons else [_movement(seen)]
    if len(lanes) == MOST_CHECKED:
        last = reasons.pop()
        capped = f"The first {number(MOST_CHECKED)} lanes by name were checked."
        reasons.append(Reason(last.kind, f"{last.text} {capped}", last.advice, last.until))
    if seen.stats.failed:
        text = f"{_messages(seen.stats.failed, 'has', 'have')} failed."
        reasons.append(Reason("failed", text, f"queue_errors summary -q {queue.alias}."))
    return Explanation(queue.alias, queue.alias, "", WAITS if waits else "empty", tuple(reasons))


def _blocked_lanes(seen: Surroundings, lanes: Sequence[LaneRecord]) -> Iterator[Reason]:
    held = (one for one in lanes if one.paused_reason or (one.waiting and one.state in (LANE_SCHEDULED, LANE_CLOSED)))
    for lane in islice(held, MOST_BLOCKED):
        reason = _held(seen, lane, seen.first_of(lane.name), "")
        yield replace(reason, text=f"{reason.text[:-1]}; {_messages(lane.waiting, 'waits', 'wait')} in it.")


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


# ---- Their surroundings


class Surroundings:
    """What is known about a queue besides its messages; each is read once, when it is needed."""

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
        """What the consumers of the queue do, in words; "" if no consumer is known."""
        if not self.servers:
            return ""
        most = sum(one.threads + one.coroutines for one in self.servers)
        busy = max(sum(one.busy for one in self.servers), self._held_by_servers(most))
        many = "1 consumer" if len(self.servers) == 1 else f"{number(len(self.servers))} consumers"
        return f"{many} with {number(most)} workers, {number(busy)} of them busy."

    def _held_by_servers(self, most: int) -> int:
        """How many messages of the queue its consumers hold, up to ``most``: heartbeats are some seconds old."""
        if "inspect" not in self.queue.features:
            return 0
        names = {one.name for one in self.servers}
        return min(most, sum(record.owner in names for record in walk(self.queue, LEASED, 2 * most)))

    @property
    def _has_facts(self) -> bool:
        return "facts" in self.queue.features

    def stops(self) -> Iterator[Reason]:
        """What holds up the whole queue."""
        if (pause := self.pauses.of_queue(self.queue, self.now)) is not None:
            yield _paused(
                "queue_paused", f"The queue {self.queue.alias!r} is", pause, f"queue_resume {self.queue.alias}."
            )
        if (throttle := throttle_of(self.queue)) is not None and throttle.is_throttled:
            opens = self.now + throttle.wait if throttle.wait < inf else None
            yield Reason("queue_throttled", f"The queue is {throttle}.", until=opens)
        if self._has_facts and not self.servers:
            yield self.no_consumer()
        elif self.servers and all(one.state == consumers.QUIET for one in self.servers):
            text = "All consumers of this queue were ordered to claim nothing more."
            advice = f"queue_consumers --resume {plain(self.servers[0].name)}, or start another one."
            yield Reason("quiet", text, advice)

    def no_consumer(self) -> Reason:
        gone = [one for one in self.consumers if not one.is_alive and self.queue.base_name in one.queues]
        last = max(gone, key=lambda one: one.at, default=None)
        text = f"No live consumer serves the queue {self.queue.alias!r}."
        if last is not None:
            text += f" The last, {last.name}, is silent since {moment(last.at)}."
        return Reason("no_consumer", text, f"Start one: queue_consumer -q {self.queue.alias}.")

    def first_of(self, lane: str) -> Record | None:
        """The message that leaves a lane first, if one waits in it."""
        return first_in(self.queue, lane)


def _paused(kind: str, what: str, pause: Pause, resume: str) -> Reason:
    by = f" by {plain(pause.by)}" if pause.by else ""
    why = f" ({plain(pause.why)})" if pause.why else ""
    until = f", until {moment(pause.until)}" if pause.until else ""
    return Reason(kind, f"{what} paused{by} since {moment(pause.since)}{why}{until}.", resume, pause.until)


def _messages(count: int, one: str, many: str) -> str:
    """A number of messages with the right verb: 1 message is, 2 messages are."""
    return f"1 message {one}" if count == 1 else f"{number(count)} messages {many}"
