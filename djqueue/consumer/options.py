"""The options of a consumer, checked."""

from __future__ import annotations

from dataclasses import dataclass

from djqueue import conf
from djqueue.utils import seconds, whole


@dataclass(frozen=True, slots=True)
class Options:
    """How a consumer behaves. Durations are seconds."""

    threads: int = 4
    periodic: bool = True
    delay: float = 0.1
    """The first pause of an idle consumer of a polling backend …"""
    backoff: float = 1.15
    """… each pause is this many times the last …"""
    max_delay: float | None = None
    """… up to this; None for QUEUE_MAX_POLL_INTERVAL."""
    lease: float | None = None
    """How long a claim holds unless it is extended, which it is; None for each queue's own."""
    grace: float = 25.0
    """How long what runs may go on after a stop."""
    strict: bool = False
    """Serve the queues in the order given, not in turn."""
    drain: bool = False
    """Run what is due, then end."""
    isolate: bool = False
    """Run what workers have died with in a process of its own, which loads the settings module anew."""

    def __post_init__(self) -> None:
        whole(self.threads, "threads", least=1)
        if not self.backoff >= 1:
            raise ValueError(f"backoff is {self.backoff!r}: give at least 1.")
        seconds(self.delay, "delay", least=0.001)
        if self.max_delay is not None:
            seconds(self.max_delay, "max_delay", least=0.001)
        seconds(self.grace, "grace")
        if self.lease is not None:
            seconds(self.lease, "lease", least=0.1)

    @property
    def longest_pause(self) -> float:
        """What ``max_delay`` comes to."""
        if self.max_delay is not None:
            return self.max_delay
        return seconds(conf.get("QUEUE_MAX_POLL_INTERVAL"), "QUEUE_MAX_POLL_INTERVAL", least=0.001)
