"""Changing messages by an action: messages found by their ids, or all that are selected."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from djqueue.backends.base import BaseQueue
from djqueue.exceptions import InvalidMessage, NotSupported, UnknownCommand
from djqueue.operations.acting import MessageAction
from djqueue.operations.errors import InvalidInput, OperationError
from djqueue.operations.messages import MessageRow, without_target
from djqueue.operations.outcomes import ActionResult
from djqueue.operations.paging import Selection, selected_records
from djqueue.operations.queues import asking

MOVED_ON = "they have moved on meanwhile"


def change(
    action: MessageAction, ids: Mapping[BaseQueue, Iterable[str]], given: Mapping[str, Any], outcome: ActionResult
) -> None:
    """Change messages, queue by queue, and count what was done in an outcome, even if it then fails.

    ``given`` is what the function of the action takes besides them: its parameter, ``by``, ``what``, ``progress``.
    Raises OperationError for a message that cannot be changed, and QueueUnavailable.
    """
    for queue, own in ids.items():
        with asking(queue):
            try:
                action.change(queue, own, done=partial(outcome.did, queue=queue.alias), **given)
            except (InvalidMessage, UnknownCommand, NotSupported, ValueError) as error:
                text = f"A message of {queue.alias!r} cannot be {action.done}: {error}"
                raise OperationError(text) from error
            finally:
                action.note(outcome)


def change_known(
    action: MessageAction,
    queues: Sequence[BaseQueue],
    found: Sequence[MessageRow],
    given: Mapping[str, Any],
    outcome: ActionResult,
) -> int:
    """Change messages that were found by their ids; how many of them had moved on, which the outcome refuses."""
    ids = {queue: own for queue in queues if (own := [one.id for one in found if one.queue == queue.alias])}
    for queue, own in ids.items():
        if outcome.dry_run:
            outcome.did(len(own), queue.alias, own)
            action.note(outcome)
        else:
            change(action, {queue: own}, given, outcome)
            outcome.did(0, what=own)
    return len(found) - outcome.count


def refuse_misfits(action: MessageAction, found: Sequence[MessageRow], outcome: ActionResult) -> None:
    """Raises OperationError if some messages are in a state that an action is not for."""
    for one in found:
        if one.state not in action.states:
            outcome.refuse(one.id, f"it is {one.state}")
    if outcome.refused:
        lines = "\n".join(f"{one.what} {one.why.removeprefix('it ')}" for one in outcome.refused)
        outcome.fail("others were refused, so nothing is done")
        raise OperationError(f"{action.name} is for messages that are {' or '.join(action.states)}:\n{lines}")


def ids_of(wanted: Selection, given: Mapping[str, Any]) -> dict[BaseQueue, list[str]]:
    """The ids of the selected messages of each queue, in one walk: about 100 bytes for each.

    Messages that already have the new priority, or are in the queue they are moved to, are left out. Raises
    InvalidInput if all are in that.
    """
    try:
        queues = without_target(wanted.queues, given["to"]) if "to" in given else wanted.queues
    except ValueError as error:
        raise InvalidInput(str(error)) from None
    but = given.get("priority")
    return {
        queue: [
            record.entry.id
            for record in selected_records(wanted._replace(queues=[queue]))
            if but is None or record.entry.priority != but
        ]
        for queue in queues
    }


def change_selected(
    action: MessageAction,
    ids: Mapping[BaseQueue, Sequence[str]],
    given: Mapping[str, Any],
    outcome: ActionResult,
    progress: Callable[[int], object],
) -> None:
    """Change messages that were selected and counted: later ones were not agreed to."""
    seen = 0
    for queue, own in ids.items():
        more = {"what": outcome.what[0], "progress": lambda done, before=seen: progress(before + done)}
        change(action, {queue: own}, {**given, **more}, outcome)
        seen += len(own)
