"""Help for these tests."""

from djqueue.backends.base import Debounce, Entry, Guard, Unique
from djqueue.message import new_id
from djqueue.testing import eventually


def work(count=1, **fields):
    return [Entry(b"work", new_id(), **fields) for _ in range(count)]


def keys(client):
    return {key.decode() for key in client.keys("*")}


def calls(client, *names):
    """How often the server ran each command since `config_resetstat`; all of them without names."""
    stats = {name.removeprefix("cmdstat_"): value["calls"] for name, value in client.info("commandstats").items()}
    return {name: stats.get(name, 0) for name in names} if names else stats


def whole_life(queue):
    """Every verb once."""
    assert queue.put([*work(5), *work(delay=60)], [Guard("a", 60), Guard("b", 60), *[None] * 4]) == [True] * 6
    done, held, again, dead, late = queue.claim(5)
    assert queue.nap(0.01)
    assert len(queue.complete([done])) == len(queue.touch([held])) == len(queue.release([again])) == 1
    assert len(queue.bury([dead])) == 1
    assert queue.find(held.entry.id).state == "leased"
    assert len(queue.peek("ready")) == len(queue.peek("delayed")) == queue.revive([dead.entry.id]) == 1
    queue.touch([late], 0.001)
    eventually(lambda: queue.reap().count)
    assert queue.remove([late.entry.id]) == 1
    stats = queue.stats()
    assert (stats.ready, stats.delayed, stats.leased, stats.dead, stats.done) == (2, 1, 1, 0, 1)
    assert queue.store.keep("a", done.entry.id.encode(), 60)
    assert queue.store.swap("a", done.entry.id.encode(), b"1", 60)
    assert queue.store.drop("a")
    queue.store.put_many([("a", b"1", 60), ("c", b"2", None)])
    assert queue.store.drop("c", b"2")
    queue.flush()
    guards = [Unique("u"), Unique("u"), Debounce("d", 60), Debounce("d", 60), *[Debounce("e", 60, extend=True)] * 2]
    assert queue.put(work(6), guards) == [True, False, True, True, True, False]
    (dead, last) = queue.claim(2)
    assert len(queue.bury([dead])) == queue.dead.trim(most=0) == len(queue.release([last])) == 1
    assert queue.amend(last.entry.id, b"work", b"other")
    queue.flush()
    assert (len(queue), queue.now() > 0) == (0, True)
