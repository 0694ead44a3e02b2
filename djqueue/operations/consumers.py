"""The consumers of the queues: which there are, what they do, and orders to one of them."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import field

from djqueue.backends.base import BaseQueue
from djqueue.exceptions import QueueError
from djqueue.operations.actions import operator, record
from djqueue.operations.queues import chosen
from djqueue.operations.reports import Kind, column, report_row
from djqueue.running import consumers as records
from djqueue.running.consumers import GONE, ORDERS, QUIET, RESUME, STOP, ConsumerRecord, Order
from djqueue.running.shared import Shared, shared_stores
from djqueue.utils import near

LEAST_PART = 3
"""The fewest characters of a name that stand for it, if no other has them."""


@report_row
class RunRow:
    """A message that a consumer runs."""

    id: str = column("id", Kind.ID, key=True)
    command: str = column("command", Kind.NAME)
    seconds: float = column("for", Kind.SECONDS, in_json=False)
    """For how long, when its consumer said so."""
    since: float = column(kind=Kind.MOMENT)
    consumer: str = column("consumer", Kind.NAME, optional=True, in_json=False, default="")
    queue: str = field(default="")
    """An alias by whose clock ``since`` is."""


@report_row
class ConsumerRow:
    """A consumer in the report of consumers."""

    name: str = column("consumer", Kind.NAME, key=True)
    state: str = column("state", Kind.STATE)
    """running, quiet, stopping or gone."""
    busy: int = column("busy", Kind.PART)
    """How many messages it runs."""
    workers: int = column(kind=Kind.NUMBER)
    """How many it runs at a time."""
    running: Sequence[RunRow] = column("runs", Kind.RUNS)
    """The first of what it runs, the longest first."""
    seconds: float | None = column("for", Kind.SECONDS, in_json=False)
    ran: int = column("ran", Kind.NUMBER)
    memory: float = column("MiB", Kind.NUMBER)
    release: str = column("release", optional=True)
    version: str = column("djqueue", optional=True)
    up: float = column("up", Kind.SECONDS, in_json=False)
    at: float = column("seen", Kind.AGO)
    """When it wrote this."""
    queues: Sequence[str] = column("queues", Kind.NAMES)
    host: str = column()
    pid: int = column()
    parent: int = column()
    threads: int = column(kind=Kind.NUMBER)
    coroutines: int = column(kind=Kind.NUMBER)
    commands: str = column()
    started: float = column(kind=Kind.MOMENT)
    known: Mapping[str, str] = column()
    queue: str = field(default="")
    """An alias by whose clock its moments are."""

    @classmethod
    def of(cls, one: ConsumerRecord) -> ConsumerRow:
        runs = [RunRow(run.id, run.command, max(0.0, one.at - run.since), run.since) for run in one.running]
        first = runs[0] if runs else None
        same = {name: getattr(one, name) for name in SAME}
        return cls(
            **same,
            queues=tuple(one.queues),
            memory=round(one.memory),
            running=runs,
            workers=one.threads + one.coroutines,
            seconds=first.seconds if first else None,
            up=max(0.0, one.at - one.started),
            queue=one.queues[0] if one.queues else "",
        )


SAME = (
    *("name", "state", "busy", "ran", "release", "version", "at", "host", "pid", "parent", "threads", "coroutines"),
    *("commands", "started", "known"),
)
"""What a consumer says about itself, shown unchanged."""


def consumers(aliases: Iterable[str] | None = None) -> list[ConsumerRecord]:
    """The consumers that serve one of these queues (all by default), by host and process.

    ``queues`` of each are aliases of QUEUES, where there is one for its name. Consumers of queues in memory are those
    of this process. One that was killed is shown as ``gone`` for a day; one that stopped is not shown.
    """
    found: dict[str, ConsumerRecord] = {}
    wanted = {queue.alias for queue in chosen(aliases)}
    for one in (one for shared in shared_stores(chosen(None)) for one in _consumers_of(shared, wanted)):
        served = [*(found[one.name].queues if one.name in found else ()), *one.queues]  # of another store too
        found[one.name] = records.changed(one, queues=tuple(dict.fromkeys(served)))
    return sorted((one for one in found.values() if wanted & {*one.queues}), key=lambda one: (one.host, one.pid))


def _consumers_of(shared: Shared, wanted: Container[str]) -> list[ConsumerRecord]:
    """The consumers that write into a store; none if it cannot be asked and has none of the wanted queues."""
    try:
        return consumers_of(shared)
    except Exception:
        if any(queue.alias in wanted for queue in shared.queues):
            raise
        return []


def consumers_of(shared: Shared) -> list[ConsumerRecord]:
    """The consumers that write into a store, with the aliases of their queues."""
    aliases = {queue.base_name: queue.alias for queue in shared.queues}
    known = records.read(shared.store)
    return [records.changed(one, queues=tuple(aliases.get(name, name) for name in one.queues)) for one in known]


def serving(queue: BaseQueue, known: Sequence[ConsumerRecord]) -> list[ConsumerRecord]:
    """The live consumers that serve a queue, from what :func:`consumers` returned."""
    return [one for one in known if one.state != GONE and queue.alias in one.queues]


def quiet(name: str, by: str = "") -> str:
    """Have a consumer claim no more messages while it finishes what it runs; returns its whole name.

    ``name`` is its name, or a part that only one has. Raises QueueError if there is none.
    """
    return _order(QUIET, name, by)


def resume_consumer(name: str, by: str = "") -> str:
    """Have a quiet consumer claim again; otherwise as :func:`quiet`."""
    return _order(RESUME, name, by)


def stop(name: str, by: str = "") -> str:
    """Have a consumer stop, as by SIGTERM; its process manager may start another. Otherwise as :func:`quiet`."""
    return _order(STOP, name, by)


def forget(name: str, by: str = "") -> str:
    """No longer show a consumer that is gone; as :func:`quiet`, and raises QueueError for a live one."""
    one, stores = _found(name)
    if one.state != GONE:
        raise QueueError(f"Consumer {one.name} is alive: stop it, or wait until it is gone.")
    for shared in stores:
        records.leave(shared.store, one.name)
    record(stores[0].queues[0], "forget", f"consumer {one.name}", 1, by)
    return one.name


def _order(order: str, name: str, by: str) -> str:
    assert order in ORDERS
    one, stores = _found(name)
    if one.state == GONE:
        raise QueueError(f"Consumer {one.name} is gone: it hears nothing.")
    for shared in stores:
        records.give(shared.store, one.name, Order(order, by or operator(), shared.store.now()))
    record(stores[0].queues[0], order, f"consumer {one.name}", 1, by)
    return one.name


def whole_name(part: str) -> str:
    """The name of the consumer that :func:`quiet` would order. Raises QueueError if there is none."""
    return _found(part)[0].name


def named(part: str, known: Iterable[ConsumerRecord]) -> str:
    """The name of the only consumer with this name or part of a name. Raises QueueError if there is none."""
    names = [one.name for one in known]
    fitting = [name for name in names if name == part] or [name for name in names if part in name]
    if fitting and len(part) < LEAST_PART:
        raise QueueError(f"{part!r} is too short: give {LEAST_PART} or more characters of a name.")
    if not fitting:
        others = near(part, names) if names else "there is none at all."
        raise QueueError(f"There is no consumer {part!r}: {others}")
    if len(fitting) > 1:
        raise QueueError(f"{part!r} is a part of several names, give more of one: {', '.join(fitting)}.")
    return fitting[0]


def _found(part: str) -> tuple[ConsumerRecord, list[Shared]]:
    """The consumer of a name or a part of it, and the stores that know it and can be asked."""
    known: list[tuple[Shared, dict[str, ConsumerRecord]]] = []
    failure: Exception | None = None
    for shared in shared_stores(chosen(None)):
        try:
            known.append((shared, {one.name: one for one in records.read(shared.store)}))
        except Exception as error:
            failure = error
    together = {name: one for _, own in known for name, one in own.items()}
    try:
        name = named(part, together.values())
    except QueueError:
        if failure is not None:  # of a store that may know it
            raise failure from None
        raise
    return together[name], [shared for shared, own in known if name in own]
