"""Ten in a call, and what becomes of each when some fail."""

import pytest
from botocore.exceptions import EndpointConnectionError

from djqueue.backends.base import OnceGuard
from djqueue.backends.sqs import connection
from djqueue.exceptions import MessageTooLarge, PartialEnqueueError, QueueError, StoreUnreachable
from djqueue.testing.contract.steps import claim, leased, names, put, with_counts
from djqueue.testing.patience import together
from tests.backends.sqs.support import ids, work

pytestmark = pytest.mark.backends("sqs", "sqs-fifo")
AWAY = EndpointConnectionError(endpoint_url="http://away")


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch):
    monkeypatch.setattr(connection, "_PAUSE", 0)


@pytest.fixture
def queue(make, faulty_client):
    return make(connection=faulty_client)


def sizes(faulty, operation):
    return [len(arguments["Entries"]) for arguments in faulty.named(operation)]


def test_to22_every_verb_takes_any_number(queue, faulty_client):
    put(queue, *map(str, range(34)))
    assert sizes(faulty_client, "send_message_batch") == [10, 10, 10, 4]
    leases = claim(queue, 34)
    assert sorted(names(leases), key=int) == [str(number) for number in range(34)]
    assert len(queue.touch(leases)) == 34
    assert len(queue.release(leases[:12])) == len(queue.fail(leases[12:24])) == 12
    assert len(queue.complete(leases[24:])) == 10
    again = claim(queue, 12)
    assert queue.complete(again) == again
    assert (len(queue), len(queue.failed)) == (0, 12)
    assert all(size <= 10 for name, given in faulty_client.calls for size in [len(given.get("Entries", ()))])


def test_a_call_carries_no_more_bytes_than_a_message_may_have(queue, faulty_client):
    assert queue.put(work(5, b"x" * 300_000)) == [True] * 5
    assert sizes(faulty_client, "send_message_batch") == [2, 2, 1]


def test_a_message_that_is_too_large_is_refused_before_any_is_sent(queue, faulty_client):
    small, large = work(12), work(1, b"x" * 800_000, command="shop.commands.huge")
    for guards in (None, [OnceGuard("key", 60)] * 13):
        with pytest.raises(MessageTooLarge, match="shop.commands.huge.*1048064 are allowed"):
            queue.put([*small, *large], guards)
    assert (faulty_client.named("send_message_batch"), queue.store.get("key")) == ([], None)


def narrow(queue):
    queue._link.call("set_queue_attributes", Attributes={"MaximumMessageSize": "2048"})
    queue._link._found = None  # as in a process that begins now


def test_the_limit_is_that_of_the_queue(queue):
    narrow(queue)
    with pytest.raises(MessageTooLarge, match="1536 are allowed"):
        queue.put(work(1, b"x" * 2000))
    assert queue.put(work(1, b"x" * 900)) == [True]


def test_what_grew_too_large_goes_back_without_its_notes(queue):
    narrow(queue)
    narrow(queue.failed)
    queue.put(work(1, b"x" * 900))
    assert len(queue.fail([with_counts(lease, errors="n" * 2000, failures=1) for lease in claim(queue)])) == 1
    (dead,) = claim(queue.failed)
    assert (dead.entry.body, dead.entry.failures, dead.entry.errors) == (b"x" * 900, 1, "")


def test_a_put_says_which_were_taken_and_which_not(queue, faulty_client):
    entries = work(25)
    faulty_client.fail("send_message_batch", {}, {3: True, 5: True})
    with pytest.raises(PartialEnqueueError, match="18 messages were sent and 7 were not") as caught:
        queue.put(entries)
    assert caught.value.accepted == ids(entries[:13]) + ids([entries[14]]) + ids(entries[16:20])
    assert list(caught.value.reasons) == ids([entries[13], entries[15]])
    assert caught.value.unsent == ids([entries[13], entries[15], *entries[20:]])
    assert sorted(ids(claim(queue, 18))) == sorted(caught.value.accepted)


def test_a_put_that_is_cut_off_half_way_says_so(queue, faulty_client):
    entries = work(25)
    faulty_client.fail("send_message_batch", {}, AWAY)
    with pytest.raises(PartialEnqueueError) as caught:
        queue.put(entries)
    assert (caught.value.accepted, caught.value.unsent) == (ids(entries[:10]), ids(entries[10:]))
    [reason] = set(caught.value.reasons.values())
    assert str(AWAY) in reason


def test_a_guarded_put_that_is_cut_off_half_way_says_so(queue, faulty_client):
    entries, guards = work(4), [OnceGuard("a", 60), OnceGuard("a", 60), None, OnceGuard("b", 60)]
    faulty_client.fail("send_message_batch", {}, AWAY)
    with pytest.raises(PartialEnqueueError) as caught:
        queue.put(entries, guards)
    assert (caught.value.accepted, caught.value.unsent) == (ids(entries[:1]), ids(entries[2:]))
    assert queue.put(entries[2:], guards[2:]) == [True, True]


def test_a_guarded_put_whose_first_is_refused_says_so_of_all(queue, faulty_client):
    entries, guards = work(3), [OnceGuard(key, 60) for key in "abc"]
    faulty_client.fail("send_message_batch", {0: True})
    with pytest.raises(PartialEnqueueError, match="0 messages were sent and 3 were not .*Bad") as caught:
        queue.put(entries, guards)
    assert (list(caught.value.reasons), caught.value.unsent) == (ids(entries[:1]), ids(entries))


def test_what_sqs_fails_to_take_is_sent_again_alone_and_told_after_three_times(queue, faulty_client):
    faulty_client.fail("send_message_batch", {0: False, 4: False}, {1: False})
    assert queue.put(work(6)) == [True] * 6
    assert sizes(faulty_client, "send_message_batch") == [6, 2, 1]
    assert len(claim(queue, 6)) == 6
    faulty_client.fail("send_message_batch", *[{0: False}] * 3)
    with pytest.raises(PartialEnqueueError) as caught:
        queue.put(work(2))
    assert (len(caught.value.accepted), len(caught.value.reasons)) == (1, 1)


@pytest.mark.parametrize("verb", ["complete", "release", "fail"])
def test_a_report_that_fails_for_some_is_repeated_and_then_true_of_all(queue, faulty_client, verb):
    put(queue, *map(str, range(15)))
    leases = claim(queue, 15)
    queue.failed.stats()
    operation = {"complete": "delete_message_batch", "fail": "send_message_batch"}.get(
        verb, "change_message_visibility_batch" if queue.is_fifo else "send_message_batch"
    )
    faulty_client.fail(operation, *[{2: False, 3: False}, {0: False}, {0: False}])
    with pytest.raises(QueueError, match="1 messages could not be"):
        getattr(queue, verb)(leases)
    assert getattr(queue, verb)(leases) == leases
    assert getattr(queue, verb)(leases) == []
    expected = {"complete": (0, 0), "release": (15, 0), "fail": (0, 15)}[verb]
    assert (len(queue), len(queue.failed)) == expected


def test_a_report_that_raises_may_be_repeated_and_what_sqs_refuses_to_delete_was_not_ours(queue, faulty_client):
    leases = leased(queue, "a", "b")
    faulty_client.fail("delete_message_batch", AWAY, {0: True})
    with pytest.raises(StoreUnreachable, match="Could not connect"):
        queue.complete(leases)
    assert queue.complete(leases) == leases[1:]


def test_what_was_sent_anew_counts_even_if_the_old_one_cannot_be_deleted(queue, faulty_client, caplog):
    leases = leased(queue, "work")
    faulty_client.fail("delete_message_batch", AWAY)
    assert queue.fail(leases) == leases
    assert len(queue.failed) == 1
    assert "old ones are still there" in caplog.text
    assert caplog.records[-1].message_ids == ids(leases)


def test_a_claim_that_fails_half_way_gives_what_it_has(queue, faulty_client, caplog):
    put(queue, *map(str, range(15)))
    faulty_client.fail("receive_message", {}, AWAY)
    claimed = queue.claim(15)
    assert (len(claimed), claimed.retry_after) == (10, 0)
    assert "Receiving stopped half way" in caplog.text
    faulty_client.fail("receive_message", AWAY)
    with pytest.raises(StoreUnreachable, match="Could not connect"):
        queue.claim(15)


def test_of_eight_threads_that_settle_one_lease_one_does(queue):
    leases = leased(queue, "work")
    told = together(*[lambda: queue.complete(leases)] * 4, *[lambda: queue.fail(leases)] * 4, last=queue.close)
    assert sorted(map(len, told)) == [0] * 7 + [1]
