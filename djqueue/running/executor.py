"""From leases to verdicts: verify, look up, refuse, decode, run, judge, report."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, suppress
from contextvars import Context, copy_context
from dataclasses import replace
from functools import partial
from itertools import islice, takewhile
from typing import Any, NamedTuple, cast

from asgiref.sync import sync_to_async
from django.db import connections

from djqueue import signals
from djqueue.backends.base import BaseQueue, Entry, Lease
from djqueue.backends.entries import log_extra
from djqueue.exceptions import BadSignature, InvalidMessage, TimeLimitExceeded, UnknownCommand
from djqueue.messages.envelope import Envelope
from djqueue.messages.failures import begin_at_the_command, kind_of, release, text_of
from djqueue.messages.metadata import request_id
from djqueue.policies.outcomes import Outcome, Verdict, hold_of, not_now, settled
from djqueue.policies.policy import Policy
from djqueue.registry import Observer, Runnable, registry
from djqueue.running.attempts import Attempt, attempts_of, shown
from djqueue.running.context import (
    Awaiter,
    Control,
    Job,
    LoopControl,
    NoThread,
    TooLate,
    acall,
    call,
    enter,
    open_entry,
)
from djqueue.running.describing import description_of
from djqueue.running.handlers import BatchRunnable, HandlerSlot, results_of
from djqueue.running.history import details_of, has_details
from djqueue.running.instruments import instruments
from djqueue.running.reporting import log_started, report_done, report_together
from djqueue.running.reporting import logger as reports
from djqueue.running.result_store import fact_of, packed_end
from djqueue.running.settle import settle
from djqueue.utils import log_safely, plain

logger = logging.getLogger(__name__)

DONE = Outcome.DONE
INTERRUPTED = "interrupted"
"""The reason why a message comes again that something else has ended."""
MOST_TRIES = 10
"""Starts after which a message that a process could not run, for want of what it needs, comes no more for that."""
LATE = Verdict(Outcome.RETURNED, "it left its throttle too long ago to begin now")
BEHIND = Verdict(Outcome.RETURNED, "what was before it in its lane comes again first")
STRANGER = Verdict(Outcome.RETURNED, "it is no call of the batch command that it was claimed with")
APART = Verdict(Outcome.RETURNED, "a batch is of one priority, and a higher one may have come")

THEN = "Then run manage.py queue_errors retry --reason 'invalid message'."


def attempt(jobs: Sequence[Job], context: Context, slot: HandlerSlot) -> list[Verdict]:
    """Run the messages of a batch, or the one message of another command; a verdict for each."""
    first = jobs[0]
    if signals.started.receivers or logger.isEnabledFor(logging.DEBUG):
        _announce(jobs)
    if (observer := _observer_of(first)) is not None:
        return [_attempt_observed(first, observer, context, slot)]
    try:
        if first.command.batched:
            results = context.run(results_of, jobs, slot)
            return [_verdict_on(job, result) for job, result in zip(jobs, results, strict=True)]
        return [_done(first, context.run(call, jobs, first.command.func, first.args, first.kwargs, slot.await_))]
    except BaseException as error:  # sys.exit() in a command must not end the worker
        return [_failed(job, error) for job in jobs]


def _observer_of(job: Job) -> Observer | None:
    """Who is notified of this attempt, if its call came through Django's tasks."""
    return None if job.policy.task is None else job.command.observer


def _attempt_observed(job: Job, observer: Observer, context: Context, slot: HandlerSlot) -> Verdict:
    """:func:`attempt` for a call through Django's tasks."""
    run = partial(_begin_and_call, job, observer)
    try:
        value = context.run(call, [job], run, job.args, job.kwargs, slot.await_)
        verdict = _done(job, observer.returned(value))
    except BaseException as error:
        verdict = _failed(job, error)
        context.run(observer.ended, job, verdict)  # here, where log records find the exception
    else:
        context.run(observer.ended, job, verdict)
    return verdict


def _begin_and_call(job: Job, observer: Observer, /, *args: Any, **kwargs: Any) -> Any:
    observer.begun(job)
    return job.command.func(*args, **kwargs)


def _announce(jobs: Sequence[Job]) -> None:
    """Send ``started`` for each message, and log them at DEBUG."""
    if signals.started.receivers:
        for job in jobs:
            named = {"id": job.entry.id, "queue_name": job.queue.alias, "attempt": job.entry.attempts}
            signals.emit(signals.started, job.envelope.command, **named)
    if logger.isEnabledFor(logging.DEBUG):
        first = jobs[0]
        about: dict[str, Any] = {"description": first.description} if first.description and len(jobs) == 1 else {}
        log_started(logging.DEBUG, first.queue.alias, [job.entry for job in jobs], **about)


def _verdict_on(job: Job, result: Any) -> Verdict:
    return _failed(job, result) if issubclass(type(result), BaseException) else _done(job, result)


def _done(job: Job, value: object) -> Verdict:
    if job.control.fault is not None:
        return _failed(job, job.control.fault)
    ran = time.monotonic() - job.began
    return Verdict(DONE, "", None, 0.0, False, job.description, value, ran)


def _failed(job: Job, error: BaseException) -> Verdict:
    fault = job.control.fault
    error = error if fault is None else fault
    ran, kind = time.monotonic() - job.began, type(error)  # not error.__class__, which can be any
    _leave_our_frames_out(error)
    if issubclass(kind, TooLate):
        return LATE
    if fault is None and issubclass(kind, job.control.interrupts):
        return Verdict(Outcome.INTERRUPTED, INTERRUPTED, error)
    if issubclass(kind, NoThread) and job.entry.attempts < MOST_TRIES:  # others have them all, or it does itself
        return Verdict(Outcome.INTERRUPTED, INTERRUPTED, error, delay=1.0)
    return judged(job.policy, error, job.entry)._replace(seconds=ran, description=job.description)


def _leave_our_frames_out(error: BaseException) -> None:
    """Have its tracebacks begin at the project's code, in logs and in the failed queue, unless all is logged."""
    if not logger.isEnabledFor(logging.DEBUG):
        begin_at_the_command(error)


def judged(policy: Policy, error: BaseException, entry: Entry) -> Verdict:
    """The verdict on an exception; if judging it fails (QUEUE_RETRY_ON lists no exceptions, say), no further start."""
    try:
        return policy.on_exception(error, entry)
    except Exception as trouble:
        log_safely(logger, logging.ERROR, "%s: its failure cannot be judged", plain(entry.command), exc_info=trouble)
        return Verdict(Outcome.FAILED, f"{kind_of(error)}: {text_of(error)}", error)


def execute(queue: BaseQueue, lease: Lease, control: Control | None = None) -> Verdict:
    """:func:`execute_batch` for one lease. The handler of a batch command is stopped at the end."""
    slot = HandlerSlot()
    try:
        [verdict] = execute_batch(queue, [lease], [control or Control(queue, lease)], slot)
    finally:
        slot.release()
    return verdict


def execute_batch(
    queue: BaseQueue, leases: Sequence[Lease], controls: Sequence[Control], slot: HandlerSlot
) -> list[Verdict]:
    """Run the message of a lease, or at once the messages of a batch command's leases; a verdict for each.

    An exception of a command becomes part of the verdict, which decides what is done. Behind a message that comes back
    to its ordered lane before it began, nothing is begun. ``slot`` keeps the handler of a batch command.
    """
    context, verdicts = copy_context(), [BEHIND] * len(leases)
    if jobs := _begun_together(queue, leases, controls, verdicts):
        if instruments.registered:
            instruments.began(context, jobs)
        for job, verdict in zip(jobs, attempt(jobs, context, slot), strict=True):
            verdicts[job.place] = verdict
    _conclude(queue, leases, controls, context, jobs, verdicts)
    return verdicts


def _conclude(
    queue: BaseQueue,
    leases: Sequence[Lease],
    controls: Sequence[Control],
    context: Context,
    jobs: Sequence[Job],
    verdicts: list[Verdict],
) -> None:
    """Notify instruments of the runs, encode what is kept of them, and log what became of the messages."""
    if jobs and instruments.registered:
        instruments.ended(context, jobs, [verdicts[job.place] for job in jobs])
    if jobs and jobs[0].policy.time_limit is not None:
        _log_overrun(jobs[0], verdicts[jobs[0].place])
    if has_details():
        for job in jobs:
            details = details_of(job.command, job.args, job.kwargs, verdicts[job.place])
            verdicts[job.place] = verdicts[job.place]._replace(details=details)
    for job in jobs:
        if job.keep:
            verdicts[job.place] = _kept(queue, leases[job.place], job, verdicts[job.place])
    if len(verdicts) == 1 and not controls[0].given_up:
        if report_done(queue, leases[0].entry, verdicts[0], context.get(request_id, "")):
            return
    shown = []
    for place, verdict in enumerate(verdicts):
        if reports.isEnabledFor(verdict.outcome.effect.level) and not controls[place].given_up:
            shown.append((leases[place], verdict))
    if shown:
        context.run(report_together, queue, shown)  # in the context of the run: log filters find its metadata


# ---- on an event loop that many messages share: a thread begins each, as that may ask stores, and the loop runs it


def is_coroutine(lease: Lease) -> bool:
    """Whether a message is, as far as its entry says, of an async command that runs alone."""
    command = registry.get(lease.entry.command)
    return command is not None and command.is_async and not command.batched


class Begun(NamedTuple):
    """A message of an async command that is about to run."""

    queue: BaseQueue
    lease: Lease
    control: Control
    job: Job
    context: Context


def begin(queue: BaseQueue, lease: Lease, control: Control) -> Begun | Verdict:
    """All that comes before the function of an async command is called; a verdict if it must not be called."""
    context, verdicts = copy_context(), [BEHIND]
    jobs = _begun_together(queue, [lease], [control], verdicts)
    try:
        if jobs:
            if instruments.registered:
                instruments.began(context, jobs)
            _announce(jobs)
            context.run(enter, jobs)
            if (observer := _observer_of(jobs[0])) is not None:
                context.run(observer.begun, jobs[0])
            return Begun(queue, lease, control, jobs[0], context)
    except BaseException as error:
        verdicts[0] = _failed(jobs[0], error)
    _conclude(queue, [lease], [control], context, jobs, verdicts)
    return verdicts[0]


async def run_begun(begun: Begun, threads: AbstractAsyncContextManager[Any]) -> Verdict:
    """Run what :func:`begin` began, in a task of its context, with threads for what it calls; a verdict for
    :func:`end_begun`."""
    job = begun.job
    observer = _observer_of(job)
    try:
        value = await acall(job, threads)
        verdict = _done(job, value if observer is None else observer.returned(value))
    except BaseException as error:
        verdict = _failed(job, error)
        if observer is not None:  # here, where log records find the exception
            await _report_ended(observer, job, verdict)
    else:
        if observer is not None:
            await _report_ended(observer, job, verdict)
    return verdict


def broken_off(begun: Begun, error: BaseException) -> Verdict:
    """The verdict on a message whose coroutine was closed from within: what raised it could not be caught there."""
    return _failed(begun.job, error)


def end_begun(begun: Begun, verdict: Verdict) -> Verdict:
    """All that comes after a message has run, outside of its task; the verdict with what its result needs."""
    if begun.job.control.fault is not None and verdict.exception is not begun.job.control.fault:
        verdict = _failed(begun.job, begun.job.control.fault)
    verdicts = [verdict]
    _conclude(begun.queue, [begun.lease], [begun.control], begun.context, [begun.job], verdicts)
    return verdicts[0]


async def _report_ended(observer: Observer, job: Job, verdict: Verdict) -> None:
    """Call the observer in a thread next to those in which calls use their database. A cancellation changes nothing."""

    def report_ended() -> None:
        try:
            observer.ended(job, verdict)
        finally:
            connections.close_all()

    with suppress(asyncio.CancelledError):
        await asyncio.shield(sync_to_async(report_ended, thread_sensitive=False)())


def _begun_together(
    queue: BaseQueue, leases: Sequence[Lease], controls: Sequence[Control], verdicts: list[Verdict]
) -> list[Job]:
    """The messages that are to run; ``verdicts`` gets what becomes of the others."""
    jobs: list[Job] = []
    for place, lease in enumerate(leases):
        job = _begun(queue, lease, controls[place])
        if len(leases) > 1 and isinstance(job, Job):  # an entry may name a wrong command: the signed name decides
            first = jobs[0] if jobs else job
            job = job if job.command.batched and job.command is first.command else STRANGER
        if isinstance(job, Job):
            job.place = place
            jobs.append(job)
        else:
            verdicts[place] = job
            if hold_of(lease.entry, job):
                break
    return jobs


def _kept(queue: BaseQueue, lease: Lease, job: Job, verdict: Verdict) -> Verdict:
    """The verdict with the result as it is kept; a failure is not fully known before it is settled."""
    verdict = verdict._replace(keep=job.keep, attempts=job.control.attempts)
    return verdict._replace(packed=packed_end(queue, lease, verdict)) if verdict.outcome is DONE else verdict


def _log_overrun(job: Job, verdict: Verdict) -> None:
    """Log a run that was longer than its time limit, unless it was stopped then, or was given up and logged so."""
    limit, entry = job.policy.time_limit or 0.0, job.entry
    is_known = issubclass(type(verdict.exception), TimeLimitExceeded) or job.control.given_up
    if verdict.seconds - job.control.waited > limit and not is_known:
        text = "%s ran %.1f s, its time_limit is %g s: a function cannot be stopped, only an async one where it awaits"
        name, extra = plain(entry.command), log_extra(job.queue.alias, entry, event="overran")
        log_safely(logger, logging.WARNING, text, name, verdict.seconds, limit, extra=extra)


def _begun(queue: BaseQueue, lease: Lease, control: Control) -> Job | Verdict:
    entry = lease.entry
    if signals.claimed.receivers:
        signals.emit(signals.claimed, entry.command, id=entry.id, queue_name=queue.alias, attempt=entry.attempts)
    try:
        envelope = open_entry(queue, entry)
        command = registry.find(envelope.command)
        policy = policy_of(command, envelope)
        keep = policy.keeps_result
        verdict = policy.reject(lease, control.patience)
        if verdict is None and entry.attempts > 1:
            verdict = _cancelled(control)
        if verdict is not None:
            return _not_run(Job(queue, entry, envelope, command, policy, control, (), {}, keep), verdict)
        if policy.task is not None:
            note_attempts(queue, entry, policy, control)
        control.begin(policy)  # before its arguments are decoded: that may end the process
        args, kwargs = envelope.arguments()  # reads model instances
        if command.batched:
            args, kwargs = (cast(BatchRunnable, command).item(args, kwargs),), {}
    except BadSignature as error:
        return Verdict(Outcome.FAILED, f"invalid message: {error} {THEN}", error.with_traceback(None))
    except InvalidMessage as error:
        _leave_our_frames_out(error)
        return Verdict(Outcome.FAILED, f"invalid message: {error}", error)
    except UnknownCommand as error:
        return not_now(lease, str(error))
    except Exception as error:  # not of the command: the database of its arguments may be out of reach
        return not_now(lease, f"could not be run: {kind_of(error)}: {text_of(error)}")
    job = Job(queue, entry, envelope, command, policy, control, args, kwargs, keep)
    if policy.describe and (description := description_of(command, args, kwargs)):
        job.description = description
        control.describe(description)
    return job


def _not_run(job: Job, verdict: Verdict) -> Verdict:
    """The verdict on a message that is not run any more, with what its result needs."""
    job.control.attempts = _earlier(job.queue, job.entry, job.policy)
    if (observer := _observer_of(job)) is not None:
        observer.ended(job, verdict)
    return verdict._replace(keep=job.keep, attempts=job.control.attempts)


def note_attempts(queue: BaseQueue, entry: Entry, policy: Policy, control: Control) -> None:
    """Have the control know the attempts at a call through Django's tasks, this one too."""
    if (earlier := _earlier(queue, entry, policy)) is not None:
        control.attempts = shown([*earlier, Attempt(control.owner, control.started)])


def _earlier(queue: BaseQueue, entry: Entry, policy: Policy) -> Sequence[Attempt] | None:
    """The attempts before this one; None unless the call came through Django's tasks."""
    return None if policy.task is None else attempts_of(queue, entry, entry.attempts - 1)


def _cancelled(control: Control) -> Verdict | None:
    """The verdict on a message that was cancelled while it ran: no further run. A waiting one would be removed."""
    try:
        if control.called_off:
            return Verdict(Outcome.DISCARDED, "cancelled while it ran")
    except Exception as error:  # running it does less harm
        log_safely(logger, logging.ERROR, "It cannot be known whether a message is cancelled", exc_info=error)
    return None


def declared(queue: BaseQueue, lease: Lease) -> Policy:
    """The options of the message that a lease holds. Raises InvalidMessage, UnknownCommand."""
    envelope = open_entry(queue, lease.entry)
    return policy_of(registry.find(envelope.command), envelope)


def policy_of(command: Runnable, envelope: Envelope) -> Policy:
    """The options of one message. Raises InvalidMessage if they cannot be read."""
    if not envelope.options:
        return command.policy
    try:
        return command.policy.with_overrides(envelope.options)
    except (TypeError, ValueError) as error:  # not ImportError: the next deploy may have it
        raise InvalidMessage(f"its options cannot be read: {error}") from error


# ---- The order within a unit of work: a run of a lane, which is run batch by batch


def batch_of(leases: Sequence[Lease]) -> int:
    """How many of a run begin together: one, or for a batch command all of one priority, up to its batch size."""
    first = leases[0].entry
    command = registry.get(first.command)
    if command is None or not command.batched or command.policy.batch is None:
        return 1
    alike = takewhile(lambda one: (one.entry.command, one.entry.priority) == (first.command, first.priority), leases)
    return len(list(islice(alike, command.policy.batch.limit)))


def why_not(batch: Sequence[Lease], verdicts: Sequence[Verdict], next: Lease) -> Verdict | None:
    """Why the rest of a run is not begun after a batch; None if it is."""
    if any(hold_of(lease.entry, verdict) for lease, verdict in zip(batch, verdicts, strict=True)):
        return BEHIND
    one = batch[-1].entry
    command = registry.get(one.command)
    is_apart = command is not None and command.batched and one.priority != next.entry.priority
    return APART if is_apart else None


def serve(queue: BaseQueue, lease: Lease) -> Verdict:
    """Run the message of a lease and settle it, in a loop of one's own."""
    verdict = execute(queue, lease, LoopControl(queue, lease))
    if verdict.exception is not None:
        release([verdict.exception])
    settle(queue, [(lease, verdict)])
    return verdict


def run_inline(queue: BaseQueue, entry: Entry, command: Runnable, policy: Policy) -> None:
    """Eager mode: run a call where it is made, encoded and checked like any message. Nothing waits in lanes.

    A retry is run at once; the last exception reaches the caller.
    """
    entry = replace(entry, lane="", gate="")
    if policy.task is not None:
        run_task_inline(queue, entry, command, policy)
        return
    envelope, verdict = open_entry(queue, entry), Verdict(Outcome.RETRY)
    while verdict.outcome.effect.again:
        entry = replace(entry, attempts=entry.attempts + 1)
        try:
            verdict = Verdict(DONE, value=_value_of(queue, entry, envelope, command, policy))
        except Exception as error:
            verdict = _judged_inline(policy, error, entry)
            entry = replace(entry, failures=entry.failures + (verdict.exception is not None))
            if verdict.outcome is Outcome.FAILED:
                _record(queue, entry, verdict, policy)
                raise
    _record(queue, entry, verdict, policy)


def run_task_inline(queue: BaseQueue, entry: Entry, command: Runnable, policy: Policy) -> None:
    """Eager mode for a call through Django's tasks: its exception is in its result, and does not reach the caller.

    But KeyboardInterrupt does: it is meant for this process, and says nothing of the task.
    """
    entry, verdict = replace(entry, created=queue.now()), Verdict(Outcome.RETRY)
    envelope, slot = open_entry(queue, entry), HandlerSlot(_await_anywhere)
    while verdict.outcome.effect.again:
        entry = replace(entry, attempts=entry.attempts + 1)
        control = Control(queue, None)
        control.interrupts = (KeyboardInterrupt,)
        note_attempts(queue, entry, policy, control)
        job = Job(queue, entry, envelope, command, policy, control, *envelope.arguments())
        [verdict] = attempt([job], copy_context(), slot)
        if verdict.exception is not None and issubclass(type(verdict.exception), control.interrupts):
            raise verdict.exception
        if verdict.outcome.effect.again and entry.attempts >= policy.most_attempts:
            verdict = verdict._replace(outcome=Outcome.FAILED)
        entry = settled(Lease(entry), verdict, control.owner).entry
    _record(queue, entry, verdict._replace(attempts=control.attempts), policy)


def _judged_inline(policy: Policy, error: Exception, entry: Entry) -> Verdict:
    """There is no wait in between, so asking for another run is bounded like a failure."""
    verdict = policy.on_exception(error, entry)
    is_asked = verdict.outcome.effect.again and verdict.exception is None
    is_last = is_asked and entry.attempts >= policy.most_attempts
    return verdict._replace(outcome=Outcome.FAILED) if is_last else verdict


def _value_of(queue: BaseQueue, entry: Entry, envelope: Envelope, command: Runnable, policy: Policy) -> object:
    args, kwargs = envelope.arguments()
    if command.batched:
        args, kwargs = (cast(BatchRunnable, command).item(args, kwargs),), {}
    return run_here(Job(queue, entry, envelope, command, policy, Control(queue, None), args, kwargs), _await_anywhere)


def run_here(job: Job, await_: Awaiter) -> object:
    """What the function of a message returns, in a context of its own; what it raises is raised."""
    if not job.command.batched:
        observer = _observer_of(job)
        func = job.command.func if observer is None else partial(_begin_and_call, job, observer)
        return copy_context().run(call, [job], func, job.args, job.kwargs, await_)
    slot = HandlerSlot(await_)
    try:
        [result] = copy_context().run(results_of, [job], slot)
    finally:
        slot.release()
    if isinstance(result, BaseException):
        raise result
    return result


def _record(queue: BaseQueue, entry: Entry, verdict: Verdict, policy: Policy) -> None:
    if keep := policy.keeps_result:
        queue.store.put_many([fact_of(queue, Lease(entry), verdict._replace(keep=keep))])


def _await_anywhere(coroutine: Coroutine) -> object:
    """Run a coroutine to its end, in a thread of its own if this one already runs an event loop."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(copy_context().run, asyncio.run, coroutine).result()
