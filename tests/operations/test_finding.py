"""Messages are found by their ids, by parts of ids and by filters, whatever their state, within one stated bound."""

import pytest

from djqueue import queues
from djqueue.backends.entries import FAILED, READY, Entry, Record
from djqueue.operations import filters, finding
from djqueue.operations.errors import OperationError
from djqueue.operations.filters import Filter
from djqueue.operations.paging import MOST_CHECKED, Position, Selection, page, selected

pytestmark = pytest.mark.backends("memory")
MORE = MOST_CHECKED + 10


@pytest.fixture
def queue(backend, settings):
    settings.QUEUES = backend.queues("default")
    return queues["default"]


def fill(queue, count: int = MORE, failed: bool = False) -> list[str]:
    ids = [f"message-{number:06}" for number in range(count)]
    queue.put([Entry(b"", id, command="app.charge") for id in ids])
    while failed and (leases := queue.claim(1000)):
        queue.fail(leases)
    return ids


def test_a_part_of_an_id_is_looked_for_within_the_bound_and_a_whole_id_is_always_found(queue):
    ids = fill(queue)
    assert finding.find_one([queue], ids[0][-6:]).id == ids[0]
    assert finding.find_one([queue], ids[-1]).id == ids[-1]
    with pytest.raises(OperationError, match="5,000 messages of each state were checked: give the whole id"):
        finding.find_one([queue], ids[-1][-6:])


def test_what_failed_last_is_found_by_a_part_of_its_id(queue):
    ids = fill(queue, failed=True)
    assert finding.find_one([queue], ids[-1][-6:], (FAILED,)).id == ids[-1]
    with pytest.raises(OperationError, match="Not in the failed queue of 'default': 002505"):
        finding.find_one([queue], "002505", (FAILED,))


def test_a_page_stops_at_the_bound_and_the_next_goes_on_from_there(queue):
    ids = fill(queue)
    wanted = Selection([queue], [READY], part=ids[-1][-6:])
    first = page(wanted)
    assert (list(first.messages), first.checked, first.is_capped) == ([], MOST_CHECKED, True)
    rest = page(wanted, Position.parse(str(first.next)))
    assert ([one.id for one in rest.messages], rest.next, rest.is_capped) == ([ids[-1]], None, False)
    assert [one.id for one in selected(wanted)] == [ids[-1]], "what goes through all finds it"


def test_an_age_counts_from_the_moment_that_is_named():
    now = 1_750_000_000.0
    record = Record(Entry(b"", "a", created=now - 7200), READY, now - 60)
    assert Filter({"older": 3600.0}, filters.ENQUEUED).picks(record, now)
    assert not Filter({"older": 3600.0}, filters.FAILED).picks(record, now)
    assert Filter({"newer": 3600.0}, filters.FAILED).picks(record, now)
