"""One start of a message, or of several at once, and what its end means."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from contextvars import Context
from dataclasses import dataclass, replace

from djqueue import signals
from djqueue.backends.base import Entry, Lease
from djqueue.command import Command
from djqueue.handlers import Binding, run_items
from djqueue.messages.failures import kind_of, text_of
from djqueue.policies.outcomes import Outcome, Verdict
from djqueue.policies.policy import Policy
from djqueue.running import Awaiter, CurrentMessage, TooLate, run
from djqueue.utils import plain, tell

logger = logging.getLogger(__name__)

LATE = Verdict(Outcome.UNTRIED, "it left its throttle too long ago to begin now")


@dataclass(slots=True)
class Job:
    """A message that is about to run; the one argument of a batch command is what stands for it in the batch."""

    lease: Lease
    command: Command
    policy: Policy
    args: tuple
    kwargs: dict
    message: CurrentMessage
    keep: float
    """For how many seconds its result is kept."""


def attempt(job: Job, await_: Awaiter, context: Context) -> Verdict:
    """Run one."""
    _tell_started(job)
    try:
        value = run(job.command, job.args, job.kwargs, job.message, await_, context)
    except BaseException as error:  # sys.exit() in a command must not end the worker
        return _failed(job, error)
    return _done(job, value)


def attempt_together(jobs: Sequence[Job], context: Context, binding: Binding) -> list[Verdict]:
    """Run some as a batch, and judge each by what became of it."""
    for job in jobs:
        _tell_started(job)
    items, messages = [job.args[0] for job in jobs], [job.message for job in jobs]
    try:
        results = run_items(jobs[0].command, items, messages, jobs[0].lease.entry.lane, binding, context)
    except BaseException as error:  # sys.exit() in a command must not end the worker
        results = [error] * len(jobs)
    return [
        _failed(job, result) if issubclass(type(result), BaseException) else _done(job, result)
        for job, result in zip(jobs, results, strict=True)
    ]


def _tell_started(job: Job) -> None:
    if not signals.started.receivers:
        return
    message = job.message
    signals.emit(
        signals.started, message.command, id=message.id, queue_name=message.queue_name, attempt=message.attempt
    )


def _done(job: Job, value: object) -> Verdict:
    return Verdict(Outcome.DONE, value=value, seconds=_ran(job))


def _failed(job: Job, error: BaseException) -> Verdict:
    ran, kind = _ran(job), type(error)  # by which it is known, whatever it says itself
    if issubclass(kind, TooLate):
        return LATE
    if issubclass(kind, job.message.control.interrupts):
        return Verdict(Outcome.HANDED_BACK, "interrupted", error)
    return replace(judged(job.policy, error, job.lease.entry), seconds=ran)


def _ran(job: Job) -> float:
    return time.monotonic() - job.message.began


def judged(policy: Policy, error: BaseException, entry: Entry) -> Verdict:
    """What an exception means; where nobody can tell (QUEUE_RETRY_ON lists no exceptions, say), no further start."""
    try:
        return policy.judge(error, entry)
    except Exception as trouble:
        tell(logger, logging.ERROR, "%s: its failure cannot be judged", plain(entry.label), exc_info=trouble)
        return Verdict(Outcome.DEAD, f"{kind_of(error)}: {text_of(error)}", error)
