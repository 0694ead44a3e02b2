"""A queue with leases in a folder: one file for each entry, and a lock file around each verb."""

import fcntl
import pickle
import secrets
import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import islice
from math import inf
from pathlib import Path

from djqueue.backends.base import Claimed, Entry, Lease, LeasedQueue, QueueStats, Reaped, Record, listed

LEASED, DELAYED, READY = "leased", "delayed", "ready"


@dataclass
class Item:
    """What is in a file."""

    entry: Entry
    place: tuple[float, int]
    """When it first fell or falls due, and its number among those of that moment."""
    due: float
    """When it may be claimed."""
    until: float = 0.0
    """When its lease runs out; 0 if it waits."""
    token: str = ""
    """Whose it is, or was until its lease ran out."""
    owner: str = ""

    def state(self, now: float) -> str:
        return LEASED if self.until else DELAYED if self.due > now else READY


class FileQueue(LeasedQueue):
    """CONNECTION is a folder, which all processes of one machine share."""

    features = LeasedQueue.features - {"count", "facts"}
    on_commit = None

    def __init__(self, name, connection):
        super().__init__(name, connection)
        self.folder = Path(connection) / name.encode().hex()
        self.folder.mkdir(parents=True, exist_ok=True)

    # ---- what the consumer calls

    def put(self, entries, guards=None):
        if any(guards or ()):
            return super().put(entries, guards)  # which decides by the facts of its store
        with self._locked() as now:
            return [self._accept(entry, now) for entry in entries]

    def _put_one(self, entry):
        return self.put([entry])[0]

    def claim(self, limit=1, lease=60.0, owner="", ahead=0, begin=True):
        with self._locked() as now:
            due = self._items(READY, now)[:limit]
            for item in due:
                item.entry = replace(item.entry, attempts=item.entry.attempts + 1)
                item.until, item.token, item.owner = now + lease, secrets.token_hex(8), owner
                self._write(item)
            leases = [Lease(item.entry, item.token, now, item.until) for item in due]
            next = min((item.due - now for item in self._items(DELAYED, now)), default=inf)
            return Claimed(leases, retry_after=0.0 if len(due) == limit else next)

    def complete(self, leases, facts=()):
        leases = listed(leases)
        with self._locked():
            return [lease for lease, item in self._ours(leases) if self._delete(item)]

    def touch(self, leases, lease=60.0):
        leases = listed(leases)
        with self._locked() as now:
            held = []
            for one, item in self._ours(leases):
                if not item.until:  # reaped, and not claimed since: its holder lives
                    item.entry = replace(item.entry, lost=item.entry.lost - 1)
                item.until = now + lease
                self._write(item)
                held.append(replace(one, until=item.until))
            return held

    def release(self, leases):
        leases = listed(leases)
        with self._locked() as now:
            return [lease for lease, item in self._ours(leases) if self._give_back(item, lease.entry, now)]

    def fail(self, leases, facts=()):
        leases = listed(leases)
        if self.failed is None:
            return self.release(leases)
        with self._locked() as now:
            ours = []
            for lease, item in self._ours(leases):
                self._give_back(item, replace(lease.entry, delay=0.0), now)
                self._move(item, self.failed, now)
                ours.append(lease)
            return ours

    def reap(self, limit=100, by=inf):
        with self._locked() as now:
            leased = self._items(LEASED, now)
            over = [item for item in leased if item.until <= now <= by][:limit]
            for item in over:
                item.entry, item.until = replace(item.entry, lost=item.entry.lost + 1), 0.0
                self._write(item)  # with its token: a late holder may complete it while nobody else has it
            left = [max(0.0, item.until - now) for item in leased[len(over) :]]
            return Reaped(len(over), min(left, default=inf), now)

    def stats(self):
        with self._locked() as now:
            items = self._items(None, now)
        states = [item.state(now) for item in items]
        oldest = max((now - item.place[0] for item in items if item.state(now) == READY), default=None)
        dead = None if self.failed is None else len(self.failed)
        return QueueStats(states.count(READY), states.count(DELAYED), states.count(LEASED), dead, oldest=oldest)

    def now(self):
        return time.clock_gettime(time.CLOCK_REALTIME)

    # ---- what operators call

    def requeue(self, ids):
        with self._locked() as now:
            moved = [item for item in self.failed._waiting(ids) if not self._path(item.entry.id).exists()]
            for item in moved:
                item.entry = replace(item.entry, attempts=0, failures=0, lost=0, created=now)
                self.failed._move(item, self, now)
            return len(moved)

    def find(self, id):
        with self._locked() as now:
            item = self._read(self._path(id))
            return item and self._record(item, now)

    def peek(self, state, limit=50, after=None, last=False):
        with self._locked() as now:
            records = [self._record(item, now) for item in self._items(state, now)]
        records = records[::-1] if last else records
        cursors = [record.cursor for record in records]
        start = cursors.index(after) + 1 if after in cursors else 0
        return records[start : start + limit]

    def remove(self, ids, facts=(), history=()):
        with self._locked():
            gone = [item.entry.id for item in self._waiting(ids) if self._delete(item)]
        return self._with_ends(gone, ids, facts)

    def amend(self, id, was, data):
        with self._locked():
            same = [item for item in self._waiting([id]) if item.entry.body == was]
            for item in same:
                item.entry = replace(item.entry, body=data)
                self._write(item)
            return bool(same)

    def reprioritise(self, ids, priority):
        with self._locked():
            waiting = self._waiting(ids)
            for item in waiting:
                item.entry = replace(item.entry, priority=priority)
                self._write(item)
            return len(waiting)

    def promote(self, ids):
        with self._locked() as now:
            delayed = [item for item in self._waiting(ids) if item.state(now) == DELAYED]
            for item in delayed:
                item.due, item.place = now, min(item.place, (now, time.time_ns()))
                self._write(item)
            return len(delayed)

    def trim(self, most=None, age=None, limit=1000):
        with self._locked() as now:
            ready = sorted(self._items(READY, now), key=lambda item: item.place)
            old = [item for item in ready if age is not None and now - item.place[0] > age]
            surplus = 0 if most is None else len(ready) - most
            return sum(map(self._delete, islice(ready, min(limit, max(len(old), surplus)) if ready else 0)))

    def flush(self):
        with self._locked() as now:
            for item in [*self._items(READY, now), *self._items(DELAYED, now)]:
                self._delete(item)

    # ---- files, under the lock

    @contextmanager
    def _locked(self):
        """One verb at a time in this folder; gives the moment."""
        with (self.folder.parent / "lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield self.now()

    def _path(self, id):
        return self.folder / sha256(id.encode(errors="surrogatepass")).hexdigest()

    def _read(self, path):
        return pickle.loads(path.read_bytes()) if path.exists() else None

    def _write(self, item):
        path = self._path(item.entry.id)
        new = path.with_suffix(".new")
        new.write_bytes(pickle.dumps(item))
        new.rename(path)  # whole or not at all

    def _delete(self, item):
        self._path(item.entry.id).unlink()
        return True

    def _items(self, state, now):
        """All of a state, in the order in which they come up; of a failed queue, in which they came."""
        files = [path for path in self.folder.iterdir() if not path.suffix]
        items = [item for item in map(self._read, files) if state in (None, item.state(now))]
        if state in (LEASED, DELAYED):
            return sorted(items, key=lambda item: (item.until or item.due, item.place))
        return sorted(items, key=lambda item: (self.failed is not None and -item.entry.priority, item.place))

    def _waiting(self, ids):
        items = [self._read(self._path(id)) for id in dict.fromkeys(ids)]
        return [item for item in items if item is not None and not item.until]

    def _ours(self, leases):
        for lease in leases:
            item = self._read(self._path(lease.entry.id))
            if item is not None and item.token and item.token == lease.token:
                yield lease, item

    def _accept(self, entry, now):
        if self._path(entry.id).exists():
            return False
        due = entry.run_at or now + entry.delay
        self._write(Item(replace(entry, created=now, run_at=due, delay=0.0), (due, time.time_ns()), due))
        return True

    def _give_back(self, item, says, now):
        counts = {name: getattr(says, name) for name in ("attempts", "failures", "lost", "errors")}
        item.entry, item.until, item.token, item.owner = replace(item.entry, **counts), 0.0, "", ""
        item.due = now + says.delay
        self._write(item)
        return True

    def _move(self, item, other, now):
        item.place, item.due = (now, time.time_ns()), now
        other._write(item)
        self._delete(item)

    def _record(self, item, now):
        return Record(item.entry, item.state(now), item.until or item.due, item.owner, cursor=item.entry.id)
