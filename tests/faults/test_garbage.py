"""What is put into the store by somebody else: nothing of it is executed, nothing of it stops the consumer."""

import pickle
from pathlib import Path

import pytest
from django.test import override_settings

from djqueue import queues
from djqueue.backends.base import Entry
from djqueue.messages.envelope import Message, encode, new_id
from djqueue.messages.failures import errors_of
from tests.faults.commands import work
from tests.faults.processes import at_rest, full, ids_of, seeded
from tests.faults.stores import STORES
from tests.support.processes import until

pytestmark = pytest.mark.slow


class Bomb:
    """Makes a file when it is unpickled."""

    def __init__(self, canary):
        self.canary = canary

    def __reduce__(self):
        return Path.touch, (self.canary,)


@pytest.mark.backends(*STORES)
def test_garbage_in_the_store_is_put_aside_unread_to19(consumers, tmp_path):
    """DJ-18, TO-19: random, cut, forged, flipped and misplaced messages next to valid ones."""
    queue, chance, canary = queues["default"], seeded(), tmp_path / "canary"
    consumer = consumers.start()
    good, bad = [], []
    for _ in range(full(30, 2000)):
        entries = garbage(queue, chance, canary)
        assert all(queue.put(entries))
        bad += [entry.id for entry in entries]
        good += ids_of(work.enqueue_many([()] * 3))
    consumers.ledger.wait_all("end", good)
    until(lambda: queue.stats().failed == len(bad))
    stats = at_rest()
    assert (stats.done, stats.failed) == (len(good), len(bad))
    assert not canary.exists()
    assert consumers.ledger.pids() == {consumer.pid}
    records = queue.failed.peek("ready", 50)
    assert {record.entry.id for record in records} <= set(bad)
    assert all("invalid message" in errors_of(record.entry.errors)[-1]["reason"] for record in records)
    assert consumers.stop() == [0]


def garbage(queue, chance, canary) -> list[Entry]:
    """One entry of each sort."""
    name, bomb = work.name, Bomb(canary)
    first, second, third = new_id(), new_id(), new_id()
    valid = encode(Message(first, queue.base_name, name, (0,)))
    place = chance.randrange(len(valid))
    flipped = valid[:place] + bytes([valid[place] ^ 1 << chance.randrange(8)]) + valid[place + 1 :]
    with override_settings(SECRET_KEY="the key of somebody else" * 3, SECRET_KEY_FALLBACKS=[]):
        forged = encode(Message(second, queue.base_name, name, (bomb,)))
    return [
        Entry(b"", new_id()),
        Entry(chance.randbytes(chance.randrange(1, 2000)), new_id()),
        Entry(pickle.dumps(bomb), new_id(), command=name),
        Entry(flipped, first, command=name),
        Entry(forged, second, command=name),
        Entry(encode(Message(third, "another-queue", name, (bomb,))), third),
        Entry(encode(Message(third, queue.base_name, name, (bomb,))), new_id()),
        Entry(encode(Message(third, queue.base_name, name, (0,)))[: chance.randrange(60)], new_id()),
    ]
