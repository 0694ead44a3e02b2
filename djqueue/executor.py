"""From a lease to a verdict: the run page."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextvars import Context, copy_context
from dataclasses import replace
from functools import partial
from typing import Any

from djqueue import events
from djqueue.backends.base import BaseQueue, Entry, Lease
from djqueue.command import Command
from djqueue.exceptions import InvalidMessage
from djqueue.kept import is_cancelled, packed_end
from djqueue.logs import about, plain, tell
from djqueue.message import Envelope
from djqueue.notes import text_of
from djqueue.policies import Policy
from djqueue.registry import registry
from djqueue.running import Awaiter, Control, CurrentMessage, LoopControl, open_entry, run
from djqueue.settle import settle
from djqueue.verdicts import Outcome, Verdict, not_now

logger = logging.getLogger(__name__)


def execute(queue: BaseQueue, lease: Lease, await_: Awaiter = asyncio.run, control: Control | None = None) -> Verdict:
    """Run what a lease holds. Whatever that raises becomes part of the verdict, which says what is to be done."""
    entry = lease.entry
    events.emit(events.claimed, entry.label, id=entry.id, queue_name=queue.alias, attempt=entry.attempts)
    control, context = control or Control(queue, lease), copy_context()
    try:
        verdict = _execute(queue, lease, await_, control, context)
    except Exception as error:  # not the command's: the database is away from which its arguments are read, say
        verdict = not_now(lease, f"could not be run: {type(error).__name__}: {text_of(error)}")
    if not control.given_up:
        context.run(report, queue, lease, verdict)  # so that a filter of logs finds what the metadata brought
    return verdict


def serve(queue: BaseQueue, lease: Lease) -> Verdict:
    """Run what a lease holds and settle it, in a loop of one's own."""
    verdict = execute(queue, lease, control=LoopControl(queue, lease))
    settle(queue, [(lease, verdict)])
    return verdict


def _execute(queue: BaseQueue, lease: Lease, await_: Awaiter, control: Control, context: Context) -> Verdict:
    try:
        envelope = open_entry(queue, lease.entry)
        command = registry.get(envelope.command)
        if command is None:
            return not_now(lease, f"unknown command {envelope.command!r}")
        policy = policy_of(command, envelope)
        keep = policy.keeps_result
        verdict = policy.refuse(lease) or _cancelled(queue, lease)
        if verdict is not None:
            return replace(verdict, keep=keep)
        args, kwargs = envelope.arguments()  # reads model instances
    except InvalidMessage as error:
        return Verdict(Outcome.DEAD, f"invalid message: {error}", error)
    control.begin(policy)
    message = CurrentMessage.of(queue, lease.entry, envelope, policy, control)
    verdict = _attempt(partial(run, command, args, kwargs, message, await_, context), message, policy, lease)
    # Of a failure not all is known before it is settled.
    packed = packed_end(queue, lease, verdict) if keep and verdict.outcome is Outcome.DONE else b""
    return replace(verdict, keep=keep, packed=packed) if keep else verdict


def _cancelled(queue: BaseQueue, lease: Lease) -> Verdict | None:
    """What was cancelled while it ran is not run again. While it waited it would have been removed."""
    try:
        if lease.entry.attempts > 1 and is_cancelled(queue, lease.entry):
            return Verdict(Outcome.DISCARDED, "cancelled while it ran")
    except Exception as error:  # to run it is the lesser evil
        tell(logger, logging.ERROR, "It cannot be known whether a message is cancelled", exc_info=error)
    return None


def policy_of(command: Command, envelope: Envelope) -> Policy:
    """The options of one message. Raises InvalidMessage if they cannot be read."""
    if not envelope.options:
        return command.policy
    try:
        return command.policy.carrying(envelope.options)
    except (TypeError, ValueError) as error:  # not ImportError: the next deploy may have it
        raise InvalidMessage(f"its options cannot be read: {error}") from error


def _attempt(start: Callable[[], Any], message: CurrentMessage, policy: Policy, lease: Lease) -> Verdict:
    events.emit(events.started, message.command, id=message.id, queue_name=message.queue_name, attempt=message.attempt)
    try:
        value = start()
        return Verdict(Outcome.DONE, value=value, seconds=time.monotonic() - message.began)
    except message.control.interrupts as error:
        return Verdict(Outcome.HANDED_BACK, "interrupted", error)
    except BaseException as error:  # sys.exit() in a command must not end the worker
        return replace(judged(policy, error, lease.entry), seconds=time.monotonic() - message.began)


def judged(policy: Policy, error: BaseException, entry: Entry) -> Verdict:
    """What an exception means; where nobody can tell (QUEUE_RETRY_ON lists no exceptions, say), no further start."""
    try:
        return policy.judge(error, entry)
    except Exception as trouble:
        tell(logger, logging.ERROR, "%s: its failure cannot be judged", plain(entry.label), exc_info=trouble)
        return Verdict(Outcome.DEAD, f"{type(error).__name__}: {text_of(error)}", error)


LEVELS = {
    Outcome.DONE: logging.INFO,
    Outcome.DISCARDED: logging.INFO,
    Outcome.DEAD: logging.ERROR,
    Outcome.PARKED: logging.ERROR,
}
WORDS = {
    Outcome.DONE: "done",
    Outcome.RETRY: "goes back for another try",
    Outcome.EXPIRED: "expired",
    Outcome.DISCARDED: "was discarded",
    Outcome.DEAD: "failed and went to the error queue",
    Outcome.PARKED: "failed, and its shard is parked",
}


def report(queue: BaseQueue, lease: Lease, verdict: Verdict) -> None:
    """One record for each: whoever mails errors to people sends one mail per failure."""
    level = LEVELS.get(verdict.outcome, logging.WARNING)
    if not logger.isEnabledFor(level):
        return
    entry, reason = lease.entry, f": {plain(verdict.reason)}" if verdict.reason else ""
    what = f"{plain(entry.label)} {WORDS.get(verdict.outcome, 'was put back')}{reason}"
    later = f", again in {verdict.delay:.1f} s" if verdict.outcome in (Outcome.RETRY, Outcome.THROTTLED) else ""
    text = f"{what} (message {plain(entry.id)}, attempt {entry.attempts}, {verdict.seconds:.3f} s{later})"
    tell(logger, level, "%s", text, exc_info=verdict.exception, extra=about(queue, entry))
