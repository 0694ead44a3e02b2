"""What a push runs, of all that `make test-all` does (DJQUEUE_FULL=1).

The contract of backends runs on each of them; a fault on the store that tests/faults/stores.py names; whatever is above
the contract in memory and on one real store, always the same for a test. `@pytest.mark.backends(..., each=True)` keeps
them all, where the test is about what differs; `@pytest.mark.full` leaves a test to `make test-all`.
"""

from pathlib import Path
from zlib import crc32

import pytest

from tests.faults.stores import PER_PUSH
from tests.support import backends

TESTS = Path(__file__).resolve().parents[1]
CONTRACT, FAULTS = "backends", "faults"
"""Folders of tests."""


def parametrise(metafunc):
    """Give a test with the argument `backend` its backends."""
    backends.parametrise(metafunc, chosen(metafunc.definition, backends.named(metafunc.definition)))


def chosen(test, ids: tuple[str, ...]) -> tuple[str, ...]:
    """Of the backends that a test names those on which it runs."""
    place = test.path.relative_to(TESTS)
    real = tuple(id for id in ids if id != "memory")
    marker = test.get_closest_marker("backends")
    if backends.FULL or len(real) < 2 or place.parts[0] == CONTRACT or (marker and marker.kwargs.get("each")):
        return ids
    one = _in_table(place.stem, test, real) if place.parts[0] == FAULTS else real[_share(test, len(real))]
    return tuple(id for id in ids if id in ("memory", one))


def _in_table(module: str, test, stores: tuple[str, ...]) -> str:
    one = PER_PUSH.get(module, {}).get(test.originalname)
    if one not in stores:
        raise pytest.UsageError(f"{module}: give {test.originalname} one of {stores} in tests/faults/stores.py")
    return one


def _share(test, count: int) -> int:
    """A number below `count`, the same for a test each time, and for all of them evenly spread."""
    return crc32(test.nodeid.encode()) % count


def left_out(items) -> list:
    """Of what was collected, that which is left to `make test-all`."""
    return [] if backends.FULL else [item for item in items if item.get_closest_marker("full")]
