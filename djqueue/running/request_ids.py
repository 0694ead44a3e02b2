"""The id of a web request travels with the messages that it causes, and with those that these cause."""

from __future__ import annotations

from collections.abc import Sequence

from djqueue.messages.metadata import request_id
from djqueue.running.context import Job
from djqueue.running.instruments import Instrument


class RequestIds(Instrument):
    namespace = "request_id"

    def sent(self, queue: str, command: str, id: str) -> str | None:
        return request_id.get() or None

    def began(self, jobs: Sequence[Job]) -> None:
        """For several messages the id of the first one counts."""
        carried = jobs[0].envelope.metadata.get(self.namespace)
        request_id.set(carried if isinstance(carried, str) else "")
