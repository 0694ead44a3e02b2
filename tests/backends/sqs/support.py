"""Help for these tests."""

from collections import defaultdict
from functools import partial

from djqueue.backends.entries import Entry
from djqueue.messages.envelope import new_id


def work(count=1, data=b"work", **fields):
    return [Entry(data, new_id(), **fields) for _ in range(count)]


def ids(things):
    return [getattr(thing, "entry", thing).id for thing in things]


def counts(lease):
    return lease.entry.attempts, lease.entry.failures, lease.entry.lost


class Faulty:
    """A client that lets chosen calls, and chosen entries of batches, fail, and keeps a list of all calls.

    ``fail("send_message_batch", {3: True})`` has entry 3 of the next such call fail by the sender's fault, and
    ``{3: False}`` by that of SQS; an exception instead is raised, and None is an empty answer.
    """

    def __init__(self, client):
        self._client, self.meta = client, client.meta
        self.calls, self._plans = [], defaultdict(list)

    def fail(self, operation, *plans):
        self._plans[operation] += plans

    def named(self, operation):
        return [arguments for name, arguments in self.calls if name == operation]

    def __getattr__(self, operation):
        return partial(self._call, operation)

    def _call(self, operation, **arguments):
        self.calls.append((operation, arguments))
        plan = self._plans[operation].pop(0) if self._plans[operation] else {}
        if isinstance(plan, Exception):
            raise plan
        if plan is None:
            return {}
        failed = [number for number in plan if number < len(arguments.get("Entries", ()))]
        kept = [entry for number, entry in enumerate(arguments.get("Entries", ())) if number not in failed]
        left = {**arguments, "Entries": kept} if "Entries" in arguments else arguments
        answer = getattr(self._client, operation)(**left) if kept or "Entries" not in arguments else {}
        told = [
            {"Id": arguments["Entries"][number]["Id"], "SenderFault": plan[number], "Code": "Bad"} for number in failed
        ]
        return {**answer, "Failed": [*answer.get("Failed", ()), *told]}
