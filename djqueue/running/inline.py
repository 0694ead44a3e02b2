"""Running a call where it is made: through encoding and checking like any message."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import replace
from functools import partial

from djqueue.backends.base import BaseQueue, Entry, Lease
from djqueue.messages.envelope import Envelope
from djqueue.policies.outcomes import Outcome, Verdict
from djqueue.policies.policy import Policy
from djqueue.registry import Runnable
from djqueue.running import result_store
from djqueue.running.context import Control, CurrentMessage, open_entry, run
from djqueue.running.handlers import HandlerSlot, run_items


def run_inline(queue: BaseQueue, entry: Entry, command: Runnable, policy: Policy) -> None:
    """Run it here. What is to be retried is, at once; its last exception reaches the caller. Nothing waits in lanes."""
    entry = replace(entry, lane="", gate="")
    envelope, verdict = open_entry(queue, entry), Verdict(Outcome.RETRY)
    while verdict.outcome.effect.again:
        entry = replace(entry, attempts=entry.attempts + 1)
        message = CurrentMessage.of(queue, entry, envelope, policy, Control(queue, None))
        try:
            verdict = Verdict(Outcome.DONE, value=_value_of(command, envelope, message))
        except Exception as error:
            verdict = _judged(policy, error, entry)
            entry = replace(entry, failures=entry.failures + (verdict.exception is not None))
            if verdict.outcome is Outcome.FAILED:
                _record(queue, entry, verdict, policy)
                raise
    _record(queue, entry, verdict, policy)


def _value_of(command: Runnable, envelope: Envelope, message: CurrentMessage) -> object:
    args, kwargs = envelope.arguments()
    if not command.batched:
        return run(partial(command.func, *args, **kwargs), [message], _await_anywhere)
    slot = HandlerSlot(_await_anywhere)
    try:
        [result] = run_items(command, [command.item(args, kwargs)], [message], "", slot)
    finally:
        slot.release()
    if isinstance(result, BaseException):
        raise result
    return result


def _judged(policy: Policy, error: Exception, entry: Entry) -> Verdict:
    """Nobody waits in between, so asking for another run is bounded as failing is."""
    verdict = policy.on_exception(error, entry)
    if verdict.outcome.effect.again and entry.attempts >= policy.most_attempts:
        return replace(verdict, outcome=Outcome.FAILED)
    return verdict


def _record(queue: BaseQueue, entry: Entry, verdict: Verdict, policy: Policy) -> None:
    if keep := policy.keeps_result:
        queue.store.put_many([result_store.fact_of(queue, Lease(entry), replace(verdict, keep=keep))])


def _await_anywhere(coroutine: Coroutine) -> object:
    """Run a coroutine to its end, in a thread of its own if this one already runs an event loop."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(copy_context().run, asyncio.run, coroutine).result()
