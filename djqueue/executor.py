"""From a lease to a verdict: the run page."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import replace

from djqueue import events, policies
from djqueue.backends.base import BaseQueue, Lease
from djqueue.exceptions import InvalidMessage
from djqueue.logs import about, plain, tell
from djqueue.notes import text_of
from djqueue.policies import Outcome, Verdict
from djqueue.registry import Command, registry
from djqueue.running import Awaiter, CurrentMessage, open_entry, run

logger = logging.getLogger(__name__)


def execute(queue: BaseQueue, lease: Lease, await_: Awaiter = asyncio.run) -> Verdict:
    """Run what a lease holds. Whatever that raises becomes part of the verdict, which says what is to be done."""
    try:
        verdict = _execute(queue, lease, await_)
    except Exception as error:  # not the command's: the database is away from which its arguments are read, say
        verdict = policies.not_now(lease, f"could not be run: {type(error).__name__}: {text_of(error)}")
    _report(queue, lease, verdict)
    return verdict


def _execute(queue: BaseQueue, lease: Lease, await_: Awaiter) -> Verdict:
    try:
        envelope = open_entry(queue, lease.entry)
        command = registry.get(envelope.command)
        if command is None:
            return policies.not_now(lease, f"unknown command {envelope.command!r}")
        verdict = command.policy.refuse(lease)
        if verdict is not None:
            return verdict
        args, kwargs = envelope.arguments()  # reads model instances
    except InvalidMessage as error:
        return Verdict(Outcome.DEAD, f"invalid message: {error}", error)
    message = CurrentMessage(lease.entry.id, lease.entry.attempts, command.name, queue.alias)
    return _attempt(command, args, kwargs, message, await_)


def _attempt(command: Command, args: tuple, kwargs: dict, message: CurrentMessage, await_: Awaiter) -> Verdict:
    events.emit(events.started, command.name, id=message.id, queue_name=message.queue_name, attempt=message.attempt)
    began = time.monotonic()
    try:
        verdict = Verdict(Outcome.DONE, value=run(command, args, kwargs, message, await_))
    except BaseException as error:  # sys.exit() in a command must not end the worker
        verdict = command.policy.judge(error)
    return replace(verdict, seconds=time.monotonic() - began)


LEVELS = {Outcome.DONE: logging.INFO, Outcome.DEAD: logging.ERROR}
WORDS = {Outcome.DONE: "done", Outcome.DEAD: "failed and went to the error queue"}


def _report(queue: BaseQueue, lease: Lease, verdict: Verdict) -> None:
    """One record for each: whoever mails errors to people sends one mail per failure."""
    level = LEVELS.get(verdict.outcome, logging.WARNING)
    if not logger.isEnabledFor(level):
        return
    entry, reason = lease.entry, f": {plain(verdict.reason)}" if verdict.reason else ""
    what = f"{plain(entry.label)} {WORDS.get(verdict.outcome, 'was put back')}{reason}"
    text = f"{what} (message {plain(entry.id)}, attempt {entry.attempts}, {verdict.seconds:.3f} s)"
    tell(logger, level, "%s", text, exc_info=verdict.exception, extra=about(queue, entry))
