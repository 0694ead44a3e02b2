"""What operators can do: one list for the verbs of the command line and the buttons of the pages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Unpack

from djqueue.backends.base import BaseQueue
from djqueue.backends.entries import DELAYED, FAILED
from djqueue.operations import messages, targets
from djqueue.operations.consumers import forget, quiet, resume_consumer, stop
from djqueue.operations.errors import InvalidInput
from djqueue.operations.messages import DONE, RUNNING, STATES, WAITING, ActionOptions, failed_queue
from djqueue.operations.outcomes import ActionResult
from djqueue.operations.paging import MOST_CHECKED
from djqueue.operations.queues import chosen
from djqueue.operations.resending import send_copy
from djqueue.operations.targets import Done, Target
from djqueue.running.consumers import GONE, QUIET
from djqueue.running.consumers import RUNNING as ALIVE
from djqueue.running.pauses import COMMAND, KINDS, QUEUE, SCHEDULE
from djqueue.utils import priority
from djqueue.words import counted

LANE, CONSUMER = "lane", "consumer"
"""Kinds of targets, besides the KINDS of pauses: QUEUE, COMMAND and SCHEDULE."""
PAGE, TERMINAL = "page", "terminal"
MOST_ONE_BY_ONE = 500
"""Messages that one form changes, where each takes some statements of its own."""


class Parameter(NamedTuple):
    """What an action takes besides its messages."""

    name: str
    metavar: str
    help: str
    parse: Callable[[str], Any]
    """Reads it. Raises ValueError or InvalidQueueError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseAction:
    """Something that operators can do."""

    name: str
    """Its name in the list, and in a form of a page."""
    title: str
    """The text of its button."""
    help: str
    """What it does, as the help of a command and the title of its button say."""
    permission: str
    asks: tuple[str, ...] = ()
    """Where it asks first, if one target was named: on a PAGE, in a TERMINAL."""
    unasked: str = ""
    """Why it does not ask at all."""
    destroys: bool = False
    """Whether it removes something that cannot be restored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageAction(BaseAction):
    """Something that can be done with messages.

    A page also asks before an action on all that a filter selects; a terminal asks only then.
    """

    states: tuple[str, ...]
    """The states of messages that it is for."""
    change: Callable[..., int]
    """Changes messages of a queue, given by their ids, and returns how many, as ``operations.cancel`` does. It records
    what it did."""
    question: str
    """The question before it is done; ``{}`` stands for the messages."""
    done: str
    """What was done with them, in words."""
    parameter: Parameter | None = None
    group_title: str = ""
    """The text of its button on a group of failed messages; "" if it has none there."""
    most: int = MOST_CHECKED
    """How many messages one form changes."""

    @property
    def verb(self) -> str:
        return self.name

    @property
    def walked(self) -> tuple[str, ...]:
        """Its states in which messages can be searched; a message that is done is named by its id."""
        return tuple(state for state in self.states if state in STATES)

    @property
    def usual(self) -> tuple[str, ...]:
        """Those that are meant if no state is given: what has failed is only if the action is for nothing else."""
        return tuple(state for state in self.walked if state != FAILED) or self.walked

    def given(self, text: str) -> dict[str, Any]:
        """The parameter as its function takes it. Raises InvalidInput for a wrong one, InvalidQueueError."""
        if self.parameter is None:
            return {}
        try:
            return {self.parameter.name: self.parameter.parse(text)}
        except ValueError as error:
            raise InvalidInput(str(error)) from None

    def asked(self, count: int) -> str:
        """The question before the action is done to this many messages."""
        return self.question.format(counted(count, "message"))

    def note(self, outcome: ActionResult) -> None:
        """Record in an outcome what was done."""
        done = f"would be {self.done}" if outcome.dry_run else self.done
        outcome.said = f"{counted(outcome.count, 'message')} {done}"


def _all_queues(row: Any) -> str:
    return ""


def _own_queue(row: Any) -> str:
    alias: str = row.queue
    return alias


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedAction(BaseAction):
    """Something that can be done to a named target; its function records what it did."""

    kind: str
    """What it acts on: QUEUE, COMMAND, SCHEDULE, LANE or CONSUMER."""
    verb: str
    """Its verb in ``--json`` and in the record."""
    switch: str = ""
    """The switch of the command that lists its kind, if it is one of its switches."""
    calls: str = "{}"
    """What ``--json`` calls its target."""
    find: Callable[[Target], Target] = lambda target: target
    """Finds the target, if a name alone does not identify it. Raises QueueError."""
    question: Callable[[Target], str] | None = None
    do: Callable[[Target], Done]
    fits: Callable[[Any], bool] = lambda row: True
    """Whether it can be done to the subject of a row of a report."""
    queue_of: Callable[[Any], str] = _all_queues
    """The alias of the only queue in which it is done to that, or "" for all."""
    is_explained: bool = False
    """Whether a reason is kept with it."""

    def asked(self, target: Target, where: str) -> str:
        """The question on a PAGE or in a TERMINAL before the action is done; "" for none."""
        return self.question(target) if self.question is not None and where in self.asks else ""

    def act(self, target: Target, outcome: ActionResult) -> None:
        """Do the action, and record in an outcome what was done."""
        done, what = self.do(target), self.calls.format(target.name)
        if done.refused:
            outcome.refuse(what, done.refused)
        else:
            for alias in done.queues or ("",):
                outcome.did(done.count, alias, [what])
        if done.message:
            outcome.more["id"] = done.message
        outcome.said = done.said


# ---- Of messages


def _parse_priority(text: str) -> int:
    if not text.removeprefix("-").isdecimal():
        raise ValueError(f"{text!r} is no priority: give a whole number.")
    return priority(int(text))


PRIORITY = Parameter("priority", "NUMBER", "higher is first", _parse_priority)
TO = Parameter("to", "ALIAS", "the queue to move them to", lambda text: chosen([text])[0].alias)


def _delete_failed(queue: BaseQueue, ids: Iterable[str], **options: Unpack[ActionOptions]) -> int:
    return messages.in_batches(queue, "remove", ids, failed_queue(queue).remove, options)


OF_MESSAGES = {
    one.name: one
    for one in (
        MessageAction(
            name="cancel",
            title="Cancel",
            help="cancel what waits, and ask what runs to stop; results and the history say so",
            done="cancelled or asked to stop",
            permission="remove",
            states=(*WAITING, RUNNING),
            change=messages.cancel,
            question="Cancel {}?",
            asks=(PAGE, TERMINAL),
            destroys=True,
            most=MOST_ONE_BY_ONE,
        ),
        MessageAction(
            name="remove",
            title="Remove",
            group_title="Remove all",
            help="delete messages without a trace",
            done="removed",
            permission="remove",
            states=(*WAITING, FAILED),
            change=messages.remove,
            question="Remove {}, without a trace?",
            asks=(PAGE, TERMINAL),
            destroys=True,
        ),
        MessageAction(
            name="run-now",
            title="Run now",
            help="let delayed messages be due now",
            done="due now",
            permission="run",
            states=(DELAYED,),
            change=messages.run_now,
            question="Run {} now?",
            asks=(TERMINAL,),
        ),
        MessageAction(
            name="reprioritise",
            title="Change the priority",
            help="give messages that wait another priority",
            done="reprioritised",
            permission="run",
            states=WAITING,
            change=messages.reprioritise,
            question="Change the priority of {}?",
            asks=(PAGE, TERMINAL),
            parameter=PRIORITY,
        ),
        MessageAction(
            name="requeue",
            title="Retry",
            group_title="Retry all",
            help="put failed messages back into their queues, with their counts of attempts at zero",
            done="requeued",
            permission="retry",
            states=(FAILED,),
            change=messages.requeue,
            question="Retry {}?",
            asks=(TERMINAL,),
        ),
        MessageAction(
            name="move",
            title="Move to another queue",
            help="move messages that wait to another queue, where they are new",
            done="moved",
            permission="run",
            states=WAITING,
            change=messages.move,
            question="Move {} to another queue?",
            asks=(PAGE, TERMINAL),
            parameter=TO,
            most=MOST_ONE_BY_ONE,
        ),
        MessageAction(
            name="send-copy",
            title="Send a copy",
            help="send a copy of failed messages, or of one that is done, as new messages",
            done="sent again",
            permission="run",
            states=(FAILED, DONE),
            change=send_copy,
            question="Send a copy of {}, as new messages?",
            asks=(PAGE, TERMINAL),
            most=MOST_ONE_BY_ONE,
        ),
    )
}
"""By their names."""
OF_FAILED = {
    "retry": replace(
        OF_MESSAGES["requeue"],
        name="retry",
        help="put messages back into their queues, with their counts of attempts at zero",
        done="retried",
        asks=(),
    ),
    "delete": replace(
        OF_MESSAGES["remove"],
        name="delete",
        help="delete messages",
        done="deleted",
        states=(FAILED,),
        change=_delete_failed,
        question="Delete {}, without a trace?",
    ),
}
"""The same as ``queue_errors`` names them, for failed messages only."""

# ---- Of named targets


UNDONE_BY_RESUME = "it is undone by Resume"
NAMED = {
    one.name: one
    for one in (
        *(
            NamedAction(
                name=f"pause_{kind}",
                kind=kind,
                verb="pause",
                title="Pause",
                help=f"pause this {kind} for all consumers; what has begun goes on",
                permission="pause",
                calls=f"{kind} {{}}",
                do=targets.pausing(kind),
                unasked=UNDONE_BY_RESUME,
                fits=(lambda row: row.keeps_facts and not row.pause) if kind == QUEUE else (lambda row: not row.pause),
                queue_of=_own_queue if kind == COMMAND else _all_queues,
                is_explained=True,
            )
            for kind in KINDS
        ),
        *(
            NamedAction(
                name=f"resume_{kind}",
                kind=kind,
                verb="resume",
                title="Resume",
                help=f"let this {kind} go on",
                permission="pause",
                calls=f"{kind} {{}}",
                do=targets.resuming(kind),
                unasked="it is undone by Pause",
                fits=lambda row: bool(row.pause),
                queue_of=lambda row: row.pause.queue,
            )
            for kind in KINDS
        ),
        NamedAction(
            name="purge",
            kind=QUEUE,
            verb="purge",
            title="Purge",
            help="delete all that waits",
            permission="remove",
            do=targets.purging_of(failed=False),
            question=targets.question_of_purge(failed=False),
            asks=(PAGE, TERMINAL),
            fits=lambda row: bool(row.ready or row.delayed),
            destroys=True,
        ),
        NamedAction(
            name="purge_failed",
            kind=QUEUE,
            verb="purge",
            title="Purge failed",
            help="delete all that has failed",
            permission="remove",
            do=targets.purging_of(failed=True),
            question=targets.question_of_purge(failed=True),
            asks=(PAGE, TERMINAL),
            fits=lambda row: bool(row.failed),
            destroys=True,
        ),
        NamedAction(
            name="run_schedule",
            kind=SCHEDULE,
            verb="run schedule",
            switch="run",
            title="Run now",
            help="send its call now, in addition to its ticks",
            permission="run",
            do=targets.run_schedule,
            question=lambda target: f"Enqueue the call of {target.name} now?",
            asks=(PAGE,),
        ),
        NamedAction(
            name="remove_schedule",
            kind=SCHEDULE,
            verb="remove schedule",
            switch="remove",
            title="Remove",
            help="remove a schedule that was made at run time",
            permission="edit_schedules",
            do=targets.remove_schedule,
            question=lambda target: f"Remove the schedule {target.name}?",
            asks=(PAGE,),
            fits=lambda row: bool(row.made),
            destroys=True,
        ),
        NamedAction(
            name="pause_lane",
            kind=LANE,
            verb="pause",
            switch="pause",
            title="Pause",
            help="let no further message of this lane run; those that run go on",
            permission="pause",
            calls="lane {}",
            find=targets.lane_to_pause,
            do=targets.pause_lane,
            unasked=UNDONE_BY_RESUME,
            fits=lambda row: not row.can_be_resumed,
            queue_of=_own_queue,
            is_explained=True,
        ),
        NamedAction(
            name="resume_lane",
            kind=LANE,
            verb="resume",
            switch="resume",
            title="Resume",
            help="let this lane go on, which is paused or held for a time",
            permission="pause",
            calls="lane {}",
            find=targets.lane_to_resume,
            do=targets.resume_lane,
            unasked="it is undone by Pause",
            fits=lambda row: bool(row.can_be_resumed),
            queue_of=_own_queue,
        ),
        NamedAction(
            name="skip_lane",
            kind=LANE,
            verb="skip",
            switch="skip",
            title="Skip",
            help="cancel the first message of this lane, and let the lane go on; it asks first",
            permission="remove",
            calls="lane {}",
            find=targets.lane_to_skip_in,
            do=targets.skip_lane,
            question=targets.question_of_skip,
            asks=(PAGE, TERMINAL),
            fits=lambda row: bool(row.can_be_skipped),
            queue_of=_own_queue,
            destroys=True,
        ),
        NamedAction(
            name="quiet",
            kind=CONSUMER,
            verb="quiet",
            switch="quiet",
            title="Quiet",
            help="have it claim nothing more; what it runs goes on",
            permission="pause",
            find=targets.whole,
            do=targets.ordering(quiet, "claims nothing more"),
            unasked=UNDONE_BY_RESUME,
            fits=lambda row: row.state == ALIVE,
        ),
        NamedAction(
            name="resume_consumer",
            kind=CONSUMER,
            verb="resume",
            switch="resume",
            title="Resume",
            help="have a quiet one claim again",
            permission="pause",
            find=targets.whole,
            do=targets.ordering(resume_consumer, "claims again"),
            unasked="it is undone by Quiet",
            fits=lambda row: row.state == QUIET,
        ),
        NamedAction(
            name="stop",
            kind=CONSUMER,
            verb="stop",
            switch="stop",
            title="Stop",
            help="have it stop",
            permission="pause",
            find=targets.whole,
            do=targets.ordering(stop, "stops"),
            question=targets.question_of_stop,
            asks=(PAGE,),
            fits=lambda row: row.state in (ALIVE, QUIET),
            destroys=True,
        ),
        NamedAction(
            name="forget",
            kind=CONSUMER,
            verb="forget",
            switch="forget",
            title="Forget",
            help="show one that is gone no more",
            permission="pause",
            find=targets.whole,
            do=targets.ordering(forget, "is not shown any more"),
            unasked="it is gone, and one that comes back is shown again",
            fits=lambda row: row.state == GONE,
        ),
    )
}
"""By their names. A page asks before more than a terminal: a wrong click happens more easily than a wrong line."""
ACTIONS: Mapping[str, MessageAction | NamedAction] = {**OF_MESSAGES, **NAMED}
"""All that a page does, by name."""


def named(kind: str) -> list[NamedAction]:
    """The actions on named targets of a kind."""
    return [one for one in NAMED.values() if one.kind == kind]
