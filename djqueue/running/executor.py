"""From leases to verdicts: verify, look up, refuse, decode, run, judge, report."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from contextvars import Context, copy_context
from dataclasses import dataclass, replace
from itertools import islice, takewhile

from djqueue import signals
from djqueue.backends.base import BaseQueue, Entry, Lease
from djqueue.backends.entries import log_extra
from djqueue.exceptions import InvalidMessage
from djqueue.messages.envelope import Envelope
from djqueue.messages.failures import kind_of, release, text_of
from djqueue.policies.outcomes import Outcome, Verdict, hold_of, not_now
from djqueue.policies.policy import Policy
from djqueue.registry import Command, registry
from djqueue.running.context import Awaiter, Control, CurrentMessage, LoopControl, TooLate, open_entry, run
from djqueue.running.handlers import Binding, run_items
from djqueue.running.result_store import packed_end
from djqueue.running.settle import settle
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


# ---- From leases to verdicts

BEHIND = Verdict(Outcome.UNTRIED, "what was before it in its lane comes again first")


def execute(
    queue: BaseQueue,
    lease: Lease,
    await_: Awaiter = asyncio.run,
    control: Control | None = None,
    binding: Binding | None = None,
) -> Verdict:
    """Run what a lease holds. Whatever that raises becomes part of the verdict, which says what is to be done.

    ``binding`` keeps the handler of a batch command; without one it is stopped at the end.
    """
    control, context = control or Control(queue, lease), copy_context()
    job = _begun(queue, lease, control)
    if isinstance(job, Verdict):
        verdict = job
    elif job.command.batched:
        kept = binding or Binding(await_)
        [verdict] = _run_together(queue, [job], context, kept)
        if binding is None:
            kept.release()
    else:
        verdict = _with_result(queue, job, attempt(job, await_, context))
    _report(queue, lease, verdict, control, context)
    return verdict


def execute_batch(
    queue: BaseQueue, leases: Sequence[Lease], controls: Sequence[Control], binding: Binding
) -> list[Verdict]:
    """Run at once what several leases of a batch command hold; a verdict for each.

    Behind one that comes back to its ordered lane before it began, nothing is begun.
    """
    context, verdicts = copy_context(), [BEHIND] * len(leases)
    jobs: dict[int, Job] = {}
    for place, (lease, control) in enumerate(zip(leases, controls, strict=True)):
        job = _of_the_same(_begun(queue, lease, control), jobs)
        if isinstance(job, Job):
            jobs[place] = job
        else:
            verdicts[place] = job
            if hold_of(lease.entry, job):
                break
    if jobs:
        ended = _run_together(queue, list(jobs.values()), context, binding)
        for place, verdict in zip(jobs, ended, strict=True):
            verdicts[place] = verdict
    for lease, verdict, control in zip(leases, verdicts, controls, strict=True):
        _report(queue, lease, verdict, control, context)
    return verdicts


def batch_of(leases: Sequence[Lease]) -> int:
    """How many of a run begin together: one, but of a batch command all of one priority, up to its most."""
    first = leases[0].entry
    command = registry.get(first.label)
    if command is None or not command.batched:
        return 1
    alike = takewhile(lambda one: (one.entry.label, one.entry.priority) == (first.label, first.priority), leases)
    return len(list(islice(alike, command.policy.batch.size)))


def are_apart(one: Entry, next: Entry) -> bool:
    """Whether what comes next in a run is for another batch, as it has another priority."""
    command = registry.get(one.label)
    return command is not None and command.batched and one.priority != next.priority


def serve(queue: BaseQueue, lease: Lease) -> Verdict:
    """Run what a lease holds and settle it, in a loop of one's own."""
    verdict = execute(queue, lease, control=LoopControl(queue, lease))
    if verdict.exception is not None:
        release([verdict.exception])
    settle(queue, [(lease, verdict)])
    return verdict


def _begun(queue: BaseQueue, lease: Lease, control: Control) -> Job | Verdict:
    """What is to be run, or why it is not."""
    entry = lease.entry
    if signals.claimed.receivers:
        signals.emit(signals.claimed, entry.label, id=entry.id, queue_name=queue.alias, attempt=entry.attempts)
    try:
        return _opened(queue, lease, control)
    except InvalidMessage as error:
        return Verdict(Outcome.DEAD, f"invalid message: {error}", error)
    except Exception as error:  # not the command's: the database is away from which its arguments are read, say
        return not_now(lease, f"could not be run: {kind_of(error)}: {text_of(error)}")


def _opened(queue: BaseQueue, lease: Lease, control: Control) -> Job | Verdict:
    envelope = open_entry(queue, lease.entry)
    command = registry.get(envelope.command)
    if command is None:
        return not_now(lease, f"unknown command {envelope.command!r}")
    policy = policy_of(command, envelope)
    keep = policy.keeps_result
    verdict = policy.refuse(lease, control.patience)
    if verdict is None and lease.entry.attempts > 1:
        verdict = _cancelled(control)
    if verdict is not None:
        return replace(verdict, keep=keep)
    args, kwargs = envelope.arguments()  # reads model instances
    if command.batched:
        args, kwargs = (command.item(args, kwargs),), {}
    control.begin(policy)
    message = CurrentMessage.of(queue, lease.entry, envelope, policy, control)
    return Job(lease, command, policy, args, kwargs, message, keep)


def _of_the_same(job: Job | Verdict, jobs: dict[int, Job]) -> Job | Verdict:
    """A label may lie: what is signed decides what can be run together."""
    first = next(iter(jobs.values()), job)
    if isinstance(job, Job) and not (job.command.batched and job.command is first.command):
        return Verdict(Outcome.UNTRIED, "it is no call of the batch command that it was claimed with")
    return job


def _run_together(queue: BaseQueue, jobs: Sequence[Job], context: Context, binding: Binding) -> list[Verdict]:
    verdicts = attempt_together(jobs, context, binding)
    return [_with_result(queue, job, verdict) for job, verdict in zip(jobs, verdicts, strict=True)]


def _with_result(queue: BaseQueue, job: Job, verdict: Verdict) -> Verdict:
    """If somebody wants it. Of a failure not all is known before it is settled."""
    if not job.keep:
        return verdict
    packed = packed_end(queue, job.lease, verdict) if verdict.outcome is Outcome.DONE else b""
    return replace(verdict, keep=job.keep, packed=packed)


def _cancelled(control: Control) -> Verdict | None:
    """What was cancelled while it ran is not run again. While it waited it would have been removed."""
    try:
        if control.called_off:
            return Verdict(Outcome.DISCARDED, "cancelled while it ran")
    except Exception as error:  # to run it is the lesser evil
        tell(logger, logging.ERROR, "It cannot be known whether a message is cancelled", exc_info=error)
    return None


def declared(queue: BaseQueue, lease: Lease) -> Policy | None:
    """The options of the message that a lease holds; None if its command is unknown. Raises InvalidMessage."""
    envelope = open_entry(queue, lease.entry)
    command = registry.get(envelope.command)
    return None if command is None else policy_of(command, envelope)


def policy_of(command: Command, envelope: Envelope) -> Policy:
    """The options of one message. Raises InvalidMessage if they cannot be read."""
    if not envelope.options:
        return command.policy
    try:
        return command.policy.carrying(envelope.options)
    except (TypeError, ValueError) as error:  # not ImportError: the next deploy may have it
        raise InvalidMessage(f"its options cannot be read: {error}") from error


def _report(queue: BaseQueue, lease: Lease, verdict: Verdict, control: Control, context: Context) -> None:
    """In the context of the run, so that a filter of logs finds what the metadata brought."""
    if not control.given_up:
        context.run(report, queue, lease, verdict)


def report(queue: BaseQueue, lease: Lease, verdict: Verdict) -> None:
    """One record for each: whoever mails errors to people sends one mail per failure."""
    effect = verdict.outcome.effect
    if not logger.isEnabledFor(effect.level):
        return
    entry, reason = lease.entry, f": {plain(verdict.reason)}" if verdict.reason else ""
    what = f"{plain(entry.label)} {effect.words}{reason}"
    later = f", again in {verdict.delay:.1f} s" if effect.again else ""
    text = f"{what} (message {plain(entry.id)}, attempt {entry.attempts}, {verdict.seconds:.3f} s{later})"
    tell(logger, effect.level, "%s", text, exc_info=verdict.exception, extra=log_extra(queue.alias, entry))
