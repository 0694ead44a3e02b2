"""What can be done with messages: one list for all front ends, and one place that does it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any, NamedTuple, Unpack

from djqueue.backends.base import BaseQueue
from djqueue.backends.entries import DELAYED, FAILED
from djqueue.exceptions import InvalidMessage, NotSupported, UnknownCommand
from djqueue.operations import messages
from djqueue.operations.errors import InvalidInput, OperationError
from djqueue.operations.messages import DONE, RUNNING, STATES, WAITING, Message, Telling, failed_queue
from djqueue.operations.outcomes import Outcome
from djqueue.operations.paging import MOST_LOOKED_AT, Selection, selected
from djqueue.operations.queues import asking, chosen
from djqueue.operations.resending import send_copy
from djqueue.utils import priority

MOST_ONE_BY_ONE = 500
"""Messages that one form changes, where each takes some statements of its own."""
MOVED_ON = "they have moved on meanwhile"


class Parameter(NamedTuple):
    """What an action is given beside its messages."""

    name: str
    metavar: str
    help: str
    parse: Callable[[str], Any]
    """Reads it. Raises ValueError or InvalidQueueError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """Something that can be done with messages: the verbs of the commands and the buttons of the pages."""

    name: str
    title: str
    help: str
    """What the help of its verb says."""
    done: str
    """What was done with them, in words."""
    permission: str
    states: tuple[str, ...]
    """The states of the messages that it is for."""
    change: Callable[..., int]
    """Changes messages of a queue, given by their ids, and returns how many, as ``operations.cancel`` does. It records
    what it did."""
    question: str
    """What is asked before it is done; ``{}`` stands for the messages."""
    asks: bool = False
    """Whether a page asks even for one message."""
    parameter: Parameter | None = None
    most: int = MOST_LOOKED_AT
    """How many messages one form changes."""

    @property
    def walked(self) -> tuple[str, ...]:
        """Those of its states in which messages can be looked for; one that is done is named by its id."""
        return tuple(state for state in self.states if state in STATES)

    def given(self, text: str) -> dict[str, Any]:
        """Its parameter, as its function takes it. Raises InvalidInput for a wrong one, InvalidQueueError."""
        if self.parameter is None:
            return {}
        try:
            return {self.parameter.name: self.parameter.parse(text)}
        except ValueError as error:
            raise InvalidInput(str(error)) from None


def _parse_priority(text: str) -> int:
    if not text.removeprefix("-").isdecimal():
        raise ValueError(f"{text!r} is no priority: give a whole number.")
    return priority(int(text))


PRIORITY = Parameter("priority", "NUMBER", "higher is first", _parse_priority)
TO = Parameter("to", "ALIAS", "the queue to move them to", lambda text: chosen([text])[0].alias)


def _delete_failed(queue: BaseQueue, ids: Iterable[str], **told: Unpack[Telling]) -> int:
    return messages.in_batches(queue, "remove", ids, failed_queue(queue).remove, told)


ACTIONS = {
    one.name: one
    for one in (
        Action(
            name="cancel",
            title="Cancel",
            help="cancel what waits, and ask what runs to stop; results and the history say so",
            done="cancelled or asked to stop",
            permission="remove",
            states=(*WAITING, RUNNING),
            change=messages.cancel,
            question="Cancel {}?",
            asks=True,
            most=MOST_ONE_BY_ONE,
        ),
        Action(
            name="remove",
            title="Remove",
            help="delete messages without a trace",
            done="removed",
            permission="remove",
            states=(*WAITING, FAILED),
            change=messages.remove,
            question="Remove {}, without a trace?",
            asks=True,
        ),
        Action(
            name="run-now",
            title="Run now",
            help="let delayed messages be due now",
            done="due now",
            permission="run",
            states=(DELAYED,),
            change=messages.run_now,
            question="Run {} now?",
        ),
        Action(
            name="reprioritise",
            title="Change the priority",
            help="give messages that wait another priority",
            done="reprioritised",
            permission="run",
            states=WAITING,
            change=messages.reprioritise,
            question="Change the priority of {}?",
            asks=True,
            parameter=PRIORITY,
        ),
        Action(
            name="requeue",
            title="Retry",
            help="put failed messages back into their queues, with their counts of attempts at zero",
            done="requeued",
            permission="retry",
            states=(FAILED,),
            change=messages.requeue,
            question="Retry {}?",
        ),
        Action(
            name="move",
            title="Move to another queue",
            help="move messages that wait to another queue, where they are new",
            done="moved",
            permission="run",
            states=WAITING,
            change=messages.move,
            question="Move {} to another queue?",
            asks=True,
            parameter=TO,
            most=MOST_ONE_BY_ONE,
        ),
        Action(
            name="send-copy",
            title="Send a copy",
            help="send a copy of failed messages, or of one that is done, as new messages",
            done="sent again",
            permission="run",
            states=(FAILED, DONE),
            change=send_copy,
            question="Send a copy of {}, as new messages?",
            asks=True,
            most=MOST_ONE_BY_ONE,
        ),
    )
}
"""By their names."""
OF_FAILED = {
    "retry": replace(
        ACTIONS["requeue"],
        name="retry",
        help="put messages back into their queues, with their counts of attempts at zero",
        done="retried",
    ),
    "delete": replace(
        ACTIONS["remove"],
        name="delete",
        help="delete messages",
        done="deleted",
        states=(FAILED,),
        change=_delete_failed,
    ),
}
"""The same as ``queue_errors`` names them, for what has failed alone."""


def change(action: Action, ids: Mapping[BaseQueue, Iterable[str]], given: Mapping[str, Any], outcome: Outcome) -> None:
    """Change messages, queue by queue, and count what was done in an outcome, also if it then fails.

    ``given`` is what the function of the action takes beside them: its parameter, ``by``, ``what``, ``progress``.
    Raises OperationError for a message that cannot be changed, and QueueUnavailable.
    """
    for queue, own in ids.items():
        with asking(queue):
            try:
                action.change(queue, own, done=partial(outcome.did, queue=queue.alias), **given)
            except (InvalidMessage, UnknownCommand, NotSupported, ValueError) as error:
                text = f"A message of {queue.alias!r} cannot be {action.done}: {error}"
                raise OperationError(text) from error


def change_known(
    action: Action,
    queues: Sequence[BaseQueue],
    found: Sequence[Message],
    given: Mapping[str, Any],
    outcome: Outcome,
) -> int:
    """Change messages that were found by their ids; how many of them had moved on, which the outcome refuses."""
    ids = {queue: own for queue in queues if (own := [one.id for one in found if one.queue == queue.alias])}
    for queue, own in ids.items():
        if outcome.dry_run:
            outcome.did(len(own), queue.alias, own)
        else:
            change(action, {queue: own}, given, outcome)
            outcome.did(0, what=own)
    return len(found) - outcome.count


def refuse_misfits(action: Action, found: Sequence[Message], outcome: Outcome) -> None:
    """Raises OperationError if some messages are in a state that an action is not for."""
    for one in found:
        if one.state not in action.states:
            outcome.refuse(one.id, f"it is {one.state}")
    if outcome.refused:
        told = "\n".join(f"{one.what} {one.why.removeprefix('it ')}" for one in outcome.refused)
        outcome.fail("others were refused, so nothing is done")
        raise OperationError(f"{action.name} is for messages that are {' or '.join(action.states)}:\n{told}")


def ids_of(wanted: Selection, given: Mapping[str, Any]) -> Iterator[str]:
    """The ids of all messages that are selected, without those that have the priority that they are to get."""
    but = given.get("priority")
    return (one.id for one in selected(wanted) if but is None or one.priority != but)


def counts_of(wanted: Selection, given: Mapping[str, Any]) -> dict[BaseQueue, int]:
    """How many messages of each queue are selected. Where they are moved to, they stay. Raises InvalidInput."""
    try:
        queues = messages.without_target(wanted.queues, given["to"]) if "to" in given else wanted.queues
    except ValueError as error:
        raise InvalidInput(str(error)) from None
    return {queue: sum(1 for _ in ids_of(wanted._replace(queues=[queue]), given)) for queue in queues}


def change_selected(
    action: Action,
    wanted: Selection,
    counts: Mapping[BaseQueue, int],
    given: Mapping[str, Any],
    outcome: Outcome,
    progress: Callable[[int], object],
) -> None:
    """Change as many of the selected messages of each queue as were counted: later ones were not agreed to."""
    seen = 0
    for queue, count in counts.items():
        ids = islice(ids_of(wanted._replace(queues=[queue]), given), count)
        told = {"what": outcome.what[0], "progress": lambda done, before=seen: progress(before + done)}
        change(action, {queue: ids}, {**given, **told}, outcome)
        seen += count
