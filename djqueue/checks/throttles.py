"""What queues share by name, where they can, and whether they mean the same. Nothing here connects."""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from django.core.checks import CheckMessage, register

from djqueue import conf
from djqueue.checks.catalogue import TAG, say
from djqueue.checks.queues import made
from djqueue.throttle import ThrottledQueue, bare


@register(TAG)
def check_throttles(app_configs=None, **kwargs) -> Iterator[CheckMessage]:
    """E017, E018: each queue against the first that has the same name."""
    first: dict[tuple[str, str], tuple[conf.QueueConfig, ThrottledQueue]] = {}
    for config, queue in made():
        if not isinstance(queue, ThrottledQueue):
            continue
        for kind, name in _names(queue):
            other, before = first.setdefault((kind, name), (config, queue))
            named = {"alias": config.alias, "other": other.alias, "name": name}
            if _place(config, queue) != _place(other, before):
                yield say("E018", **named)
            elif kind == "window_name" and before.budget != queue.budget:
                yield say("E017", **named, ours=_told(queue), theirs=_told(before))


def _names(queue: ThrottledQueue) -> Iterator[tuple[str, str]]:
    for kind in ("window_name", "mod_name"):
        if name := getattr(queue, kind):
            yield kind, name


def _told(queue: ThrottledQueue) -> str:
    spacing = f", spaced as {queue.mod_name!r}" if queue.mod_name else ""
    return f"{queue.budget.window}{spacing}"


def _place(config: conf.QueueConfig, queue: ThrottledQueue) -> Hashable:
    """Queues of one place share facts: a database; a server (of a cluster a slot) and the prefix of all keys there."""
    if queue.store.database:
        return (queue.store.database,)
    _, *server = bare(queue).feed
    return (*server, config.options.get("PREFIX"))
