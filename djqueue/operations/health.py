"""Whether the queues are healthy, and what is wrong in words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from math import inf
from typing import NamedTuple

from djqueue.backends.base import BaseQueue, walk
from djqueue.backends.entries import DELAYED, READY, Entry, QueueStats
from djqueue.messages.failures import text_of
from djqueue.operations.consumers import consumers_of, serving
from djqueue.operations.pausing import pauses_of
from djqueue.operations.queues import chosen
from djqueue.operations.rates import LATELY, MINUTES, QueueRates, queue_rates
from djqueue.operations.reports import Kind, as_json, column, report_row
from djqueue.operations.unknown import is_unknown, lacking, patience, renamed
from djqueue.registry import registry
from djqueue.running.consumers import GONE, QUIET, ConsumerRecord
from djqueue.running.pauses import QUEUE, Pause
from djqueue.running.shared import Shared, shared_stores
from djqueue.words import counted, duration


class Level(IntEnum):
    """How bad something is, as exit codes of Nagios plugins; shown in words."""

    OK = 0
    WARNING = 1
    CRITICAL = 2
    UNKNOWN = 3

    def __str__(self) -> str:
        return self.name.lower()


as_json.register(Level, str)
OK, WARNING, CRITICAL, UNKNOWN = Level
MOST_SEEN = 100
"""Ready messages of a queue whose commands are checked, and delayed ones, in the order in which they are due.

A message that no consumer knows is delayed by a minute at most, so it is among these unless very many are due before.
"""
GONE_LATELY = 3600.0
"""Seconds for which a consumer that is gone is a problem."""


class Limit(NamedTuple):
    """The value from which something is a warning, and the value from which it is critical."""

    warning: float = inf
    critical: float = inf

    def level(self, value: float) -> Level:
        return CRITICAL if value >= self.critical else WARNING if value >= self.warning else OK


NONE = Limit()


@report_row
class Problem:
    """Something that is wrong."""

    level: Level = column("level", Kind.STATE)
    """1 warning, 2 critical, 3 unknown."""
    queue: str = column("queue", Kind.QUEUE)
    """The alias of the queue; "" if it is of none alone."""
    kind: str = column()
    """backlog, age, failed, errors, consumers, gone, quiet, paused, command or store."""
    text: str = column("problem", Kind.PROSE)
    """What is wrong."""
    advice: str = column("what to do", Kind.PROSE, optional=True, default="")
    """What to do; "" if that is not known."""


def health(
    aliases: Iterable[str] | None = None,
    *,
    backlog: Limit = NONE,
    age: Limit = NONE,
    failed: Limit = NONE,
    error_rate: Limit = NONE,
    least_consumers: int = 1,
    gone_for: float = GONE_LATELY,
    counts: Mapping[str, QueueStats] | None = None,
) -> list[Problem]:
    """What is wrong with these queues (all by default), the worst first; nothing if all is well.

    ``backlog`` limits how many messages are ready, ``age`` for how many seconds the oldest one has been, ``failed`` how
    many are in the failed queue, ``error_rate`` how many percent of the attempts of the last minutes failed or are
    retried. ``least_consumers`` must be alive for each queue; 0 asks for none. A consumer that is gone is a problem
    for ``gone_for`` seconds. ``counts``, by alias, are those of queues that were just asked.
    """
    queues = chosen(aliases)
    problems: list[Problem] = []
    away: list[BaseQueue] = []
    for queue in queues:
        try:
            problems += _of_counts(queue, (counts or {}).get(queue.alias) or queue.stats(), (backlog, age, failed))
        except Exception as error:
            problems.append(_unreachable(queue, error))
            away.append(queue)
    for shared in shared_stores(queues):
        try:
            problems += _of_store(shared, away, least_consumers, gone_for)
            asked = [] if error_rate == NONE else queue_rates([queue.alias for queue in shared.queues], MINUTES)
            problems += [found for rates in asked for found in _of_errors(rates, error_rate)]
        except Exception as error:
            problems += [_unreachable(queue, error) for queue in shared.queues if queue not in away]
    return sorted(dict.fromkeys(problems), key=lambda one: -one.level)  # a pause may be in several stores


def _unreachable(queue: BaseQueue, error: Exception) -> Problem:
    return Problem(CRITICAL, queue.alias, "store", f"{queue.describe()} cannot be asked: {text_of(error)}")


def _of_store(shared: Shared, away: Sequence[BaseQueue], least: int, gone_for: float) -> Iterator[Problem]:
    """What consumers and operators wrote into a store; a store in memory has nothing from other processes."""
    paused = pauses_of(shared)
    yield from map(_of_pause, paused)
    if shared.store.is_local:
        return
    known = consumers_of(shared)
    yield from _of_gone(shared.store.now(), known, gone_for)
    for queue in shared.queues:
        alive = serving(queue, known)
        yield from _of_consumers(queue, alive, least)
        if queue not in away:
            yield from _of_commands(queue, alive)


def _of_counts(queue: BaseQueue, stats: QueueStats, limits: Sequence[Limit]) -> Iterator[Problem]:
    backlog, age, failed = limits
    if level := backlog.level(stats.ready):
        yield Problem(level, queue.alias, "backlog", f"{counted(stats.ready, 'message')} ready")
    if level := age.level(stats.oldest or 0.0):
        yield Problem(
            level, queue.alias, "age", f"the oldest ready message has waited for {duration(stats.oldest or 0)}"
        )
    if level := failed.level(stats.failed or 0):
        text = counted(stats.failed or 0, "failed message")
        yield Problem(level, queue.alias, "failed", text, f"queue_errors summary -q {queue.alias}")


def _of_errors(rates: QueueRates, limit: Limit) -> Iterator[Problem]:
    if attempts := rates.done + rates.failed + rates.retried:
        errors = rates.failed + rates.retried
        share = round(100 * errors / attempts, 3)  # quotients are not exact
        if level := limit.level(share):
            text = f"{share:.0f} % of the attempts of the last {LATELY} minutes ended in an error"
            yield Problem(level, rates.queue, "errors", text, f"queue_errors summary -q {rates.queue}")


def _of_pause(pause: Pause) -> Problem:
    why = f" ({pause.why})" if pause.why else ""
    if pause.kind == QUEUE:
        what, advice, alias = "it", f"queue_resume {pause.name}", pause.name
    else:
        what, alias, only = f"{pause.kind} {pause.name}", pause.queue, f" -q {pause.queue}" if pause.queue else ""
        advice = f"queue_resume --{pause.kind} {pause.name}{only}"
    return Problem(WARNING, alias, "paused", f"{what} is paused by {pause.by}{why}", advice)


def _of_consumers(queue: BaseQueue, alive: Sequence[ConsumerRecord], least: int) -> Iterator[Problem]:
    if len(alive) < least:
        text = f"{counted(len(alive), 'consumer')} of {least} serves it" if alive else "no consumer serves it"
        yield Problem(CRITICAL, queue.alias, "consumers", text, f"queue_consumer -q {queue.alias}")
    elif alive and all(one.state == QUIET for one in alive):
        advice = f"queue_consumers --resume {alive[0].name}"
        yield Problem(WARNING, queue.alias, "quiet", "all its consumers are quiet", advice)


def _of_gone(now: float, known: Sequence[ConsumerRecord], gone_for: float) -> Iterator[Problem]:
    for one in known:
        silent = now - one.at
        if one.state == GONE and silent <= gone_for:
            ran = f", and ran {counted(one.busy, 'message')}" if one.busy else ""
            text = f"consumer {one.name} was last heard of {duration(silent)} ago{ran}: it was killed, or stands still"
            yield Problem(WARNING, "", "gone", text)


def _of_commands(queue: BaseQueue, alive: Sequence[ConsumerRecord]) -> Iterator[Problem]:
    """The commands of the first waiting messages that no consumer of the queue knows."""
    if not alive or "inspect" not in queue.features or not all(one.known for one in alive):
        return
    waiting = (record.entry for state in (READY, DELAYED) for record in walk(queue, state, MOST_SEEN))
    for one in {entry.command: entry for entry in waiting if entry.command and is_unknown(entry, alive)}.values():
        yield _of_command(queue, one, alive)


def _of_command(queue: BaseQueue, one: Entry, alive: Sequence[ConsumerRecord]) -> Problem:
    known = {name for record in alive for name in record.known}
    meant = None if registry.get(one.command) is not None else renamed(one.command, known)
    hint = f" (did you mean {meant}?)" if meant else ""
    if lacking(one.command, alive):
        what = f"no live consumer knows the command {one.command}{hint}"
    else:
        what = f"a consumer did not find the command {one.command}{hint}"
    text = f"{what}; its messages wait for {duration(patience())}, and then fail"
    return Problem(WARNING, queue.alias, "command", text, "deploy it, and restart the consumers")
