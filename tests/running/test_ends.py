"""What became of a message is the same, whatever it is read from."""

import pytest

from djqueue import Discard, Fail, queues
from djqueue.backends.base import Entry, Record
from djqueue.decorators import queue_command
from djqueue.exceptions import NoResult
from djqueue.running.ends import STATUSES, of_record
from djqueue.running.finding import FOR_OPERATORS, PLACES, failed, find, held, kept, readable, recorded
from djqueue.testing import eventually
from tests.support.consumer import claim_one, run_one

BACKENDS = pytest.mark.backends("memory", "sqlite", "redis")
BOTH_SAY = ("status", "command", "attempts", "enqueued", "is_over")


@queue_command(result_ttl=60)
def act(how):
    if how == "discarded":
        raise Discard("not wanted")
    if how == "failed":
        raise Fail("cannot be")
    return how


@pytest.fixture
def queue(backend, settings):
    settings.QUEUES = backend.queues("default")
    return queues["default"]


def ended_as(queue, status):
    """The id of a message that has ended so."""
    handle = (act.using(ttl=0.001) if status == "expired" else act).enqueue(status)
    if status == "cancelled":
        assert handle.cancel()
    else:
        eventually(lambda: status != "expired" or queue.now() > queue.find(handle.id).entry.created + 0.01)
        run_one(queue)
    return handle.id


@BACKENDS
@pytest.mark.parametrize("status", STATUSES)
def test_result_and_history_agree(queue, status):
    id = ended_as(queue, status)
    signed, line = kept(queue, id), recorded(queue, id)
    for name in BOTH_SAY:
        assert getattr(signed, name) == pytest.approx(getattr(line, name)), name
    assert (line.status, line.enqueued > 0) == (status, True)
    assert line.enqueued <= line.ended and signed.enqueued <= signed.began <= signed.ended
    assert (signed.has_value, signed.value) == ((True, "done") if status == "done" else (False, None))
    assert (line.has_value, line.reason != "") == (False, status != "done")
    assert signed.reason == line.reason or status == "failed", "the history has the class of what was raised alone"
    assert find(queue, id) == signed
    assert find(queue, id, FOR_OPERATORS) == line


@BACKENDS
def test_a_message_is_found_where_it_is(queue):
    id = act("failed").id

    def knowing():
        return [place.__name__ for place in (*PLACES, readable) if place(queue, id) is not None]

    assert (knowing(), find(queue, id).status) == (["held"], "ready")
    lease = claim_one(queue)
    assert (knowing(), find(queue, id).status, held(queue, id).attempts) == (["held"], "running", 1)
    queue.release(lease)
    run_one(queue)
    assert (knowing(), find(queue, id).status) == (["kept", "failed", "recorded", "readable"], "failed")
    assert failed(queue, id).reason == kept(queue, id).reason == "cannot be"
    assert [error["attempt"] for error in failed(queue, id).errors] == [2]
    assert queue.requeue([id]) == 1
    assert (knowing(), find(queue, id).status) == (["held", "recorded"], "ready"), "the result counts no more"


@BACKENDS
def test_a_result_that_cannot_be_trusted_says_nothing_to_operators(queue):
    id = ended_as(queue, "done")
    queue.store.put(f"result:{id}", b"rubbish", 60)
    with pytest.raises(NoResult, match="cannot be trusted or read"):
        find(queue, id)
    assert readable(queue, id) is None
    assert find(queue, id, FOR_OPERATORS) == recorded(queue, id)
    queue.history.keep([id], [b"1795432125500000 forged"])
    assert find(queue, id, FOR_OPERATORS) is None


@pytest.mark.parametrize("at", ["null", '"soon"', "NaN", "Infinity", f"1{'0' * 400}"])
def test_the_moment_of_a_failure_that_others_wrote_is_not_known(at):
    entry = Entry(b"", "id", errors=f'[{{"at": {at}, "reason": "forged"}}]')
    assert of_record(Record(entry, "leased", 5.0), "failed").ended == 0.0
