"""From a lease to a verdict: the run page."""

from __future__ import annotations

import asyncio
import logging
import threading
import time

from djqueue import events, policies
from djqueue.backends.base import BaseQueue, Lease
from djqueue.exceptions import InvalidMessage
from djqueue.message import Envelope
from djqueue.policies import Outcome, Verdict
from djqueue.registry import Command, registry
from djqueue.running import Awaiter, CurrentMessage, open_entry, run

logger = logging.getLogger(__name__)


def execute(queue: BaseQueue, lease: Lease, await_: Awaiter = asyncio.run) -> Verdict:
    """Run what a lease holds. Whatever that raises becomes part of the verdict, which says what is to be done."""
    verdict = _execute(queue, lease, await_)
    if verdict.outcome is not Outcome.DONE:
        _report(queue, lease, verdict)
    return verdict


def _execute(queue: BaseQueue, lease: Lease, await_: Awaiter) -> Verdict:
    try:
        envelope = open_entry(queue, lease.entry)
    except InvalidMessage as error:
        return Verdict(Outcome.DEAD, f"invalid message: {error}", error)
    command = registry.get(envelope.command)
    if command is None:
        return policies.unknown(lease, envelope.command)
    verdict = command.policy.refuse(lease)
    if verdict is not None:
        return verdict
    return _attempt(command, envelope, queue, lease, await_)


def _attempt(command: Command, envelope: Envelope, queue: BaseQueue, lease: Lease, await_: Awaiter) -> Verdict:
    try:
        # It reads model instances: what the database raises says nothing of the message.
        args, kwargs = envelope.arguments()
    except InvalidMessage as error:
        return Verdict(Outcome.DEAD, f"invalid message: {error}", error)
    message = CurrentMessage(lease.entry.id, lease.entry.attempts, command.name, queue.alias)
    events.emit(events.started, command.name, id=message.id, queue_name=queue.alias, attempt=message.attempt)
    began = time.monotonic()
    try:
        value = run(command, args, kwargs, message, await_)
    except BaseException as error:  # sys.exit() in a command must not end the worker
        return command.policy.judge(error)
    return Verdict(Outcome.DONE, value=value, seconds=time.monotonic() - began)


def _report(queue: BaseQueue, lease: Lease, verdict: Verdict) -> None:
    """One record per failure: whoever mails errors to people sends one mail each."""
    dead = verdict.outcome is Outcome.DEAD
    logger.log(
        logging.ERROR if dead else logging.WARNING,
        "%s (message %s, attempt %d) %s: %s",
        lease.entry.label,
        lease.entry.id,
        lease.entry.attempts,
        "failed and went to the error queue" if dead else "was put back",
        verdict.reason,
        exc_info=verdict.exception,
        extra=extra(queue, lease),
    )


def extra(queue: BaseQueue, lease: Lease) -> dict:
    """What every log record about a message carries."""
    return {
        "message_id": lease.entry.id,
        "command": lease.entry.label,
        "queue": queue.alias,
        "attempt": lease.entry.attempts,
        "worker": threading.current_thread().name,
    }
