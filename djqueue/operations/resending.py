"""Sending a copy of a message that is done or has failed, as a new message."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import Any, Unpack, cast

from djqueue.backends.base import BaseQueue
from djqueue.backends.entries import DONE, FAILED
from djqueue.enqueueing.command import Call, Command
from djqueue.enqueueing.producer import send
from djqueue.exceptions import NotSupported
from djqueue.operations.messages import ActionOptions, MessageRow, find_message, in_batches
from djqueue.policies.policy import Policy
from djqueue.registry import registry
from djqueue.running.context import open_entry
from djqueue.running.executor import policy_of

NOT_KEPT = "the history keeps no arguments of it, as QUEUE_HISTORY['arguments'] is off"
NOT_WHOLE = "the history keeps its arguments masked or cut, or they are no plain values"


def send_copy(queue: BaseQueue, ids: Iterable[str], **options: Unpack[ActionOptions]) -> int:
    """Send copies of messages that are done or have failed, and return how many; the originals stay.

    Raises NotSupported for a message whose arguments are not known, or whose call is a duplicate; InvalidMessage and
    UnknownCommand.
    """

    def change(some: list[str]) -> int:
        one = find_message(queue, some[0], (FAILED, DONE))
        return one is not None and _sent(queue, one)

    return in_batches(queue, "send a copy", ids, change, options, size=1)


def _sent(queue: BaseQueue, one: MessageRow) -> bool:
    command, call, policy = _failed_call(queue, one) if one.state == FAILED else _done_call(one)
    [result] = send(command, command.prepared_again(call, policy))
    if not result.enqueued:
        raise NotSupported(f"{one.id}: another call waits or runs for it")
    return True


def _failed_call(queue: BaseQueue, one: MessageRow) -> tuple[Command[..., Any], Call, Policy]:
    envelope = open_entry(queue, one.entry)
    command = cast("Command[..., Any]", registry.find(envelope.command))
    return command, Call(*envelope.arguments()), policy_of(command, envelope)


def _done_call(one: MessageRow) -> tuple[Command[..., Any], Call, Policy]:
    """The call from the history, if that shows all of it."""
    command = cast("Command[..., Any]", registry.find(one.command))
    text = one.end.call
    if not text:
        raise NotSupported(f"{one.id}: {NOT_KEPT}")
    try:
        code = ast.parse(text, mode="eval").body
        if "…" in text or not isinstance(code, ast.Call):
            raise ValueError("cut")
        args = tuple(ast.literal_eval(value) for value in code.args)
        kwargs = {str(one.arg): ast.literal_eval(one.value) for one in code.keywords}
    except (ValueError, SyntaxError, RecursionError):
        raise NotSupported(f"{one.id}: {NOT_WHOLE}") from None
    return command, Call(args, kwargs), command.policy
