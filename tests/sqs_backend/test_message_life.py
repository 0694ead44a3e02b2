"""The life of a message on SQS: what holds elsewhere and holds here, and what holds here instead."""

import socket
import time

import pytest
from botocore.exceptions import EndpointConnectionError

from djqueue import Deferrable, MetadataProducerConsumer, current_message
from djqueue.backends.entries import Entry
from djqueue.backends.guards import Mark
from djqueue.backends.sqs import protocol
from djqueue.backends.sqs import queue as queue_module
from djqueue.decorators import queue_command
from djqueue.exceptions import MessageTooLarge, NotSupported
from djqueue.messages.failures import notes
from djqueue.messages.metadata import register_event_consumer, register_metadata_producer_consumer
from djqueue.policies.outcomes import Outcome
from djqueue.queues import queues
from djqueue.running.executor import execute
from djqueue.running.settle import settle
from djqueue.testing.contract.steps import claim, nothing_to_claim, put, with_counts
from djqueue.testing.patience import eventually, together
from tests.life import Gate, claim_one, heard, message_for, only, run_one, serving
from tests.sqs_backend.kit import ids, work

pytestmark = pytest.mark.backends("sqs", "sqs-fifo")
STORE = "djqueue.backends.memory.MemoryStore"
LONG = 60.0
"""Seconds that no test outlasts."""
LIFE = ("enqueued", "debounced", "debounce_missed", "claimed", "started", "completed", "retried", "expired", "failed")
AWAY = EndpointConnectionError(endpoint_url="http://away")

stats = Deferrable()
ran, asked, gates = [], [], []


@stats.deferrable
def count(*args, **kwargs):
    ran.append((args, kwargs))
    return len(args)


@queue_command(retry_on=[KeyError], max_attempts=3, backoff=False)
def stumble(text=""):
    ran.append(current_message().attempt)
    raise KeyError(text)


@queue_command
def fail():
    ran.append(current_message().attempt)
    raise ValueError("no")


@queue_command(debounce=LONG)
def refresh(*args):
    ran.append(args)


@queue_command(max_attempts=3)
def hold():
    ran.append(current_message().attempt)
    gates[-1]()


class Tenant(MetadataProducerConsumer):
    NAMESPACE = "tenant"

    def __init__(self, value, error=None):
        super().__init__()
        self.value, self.error = value, error

    def produce_metadata(self):
        return self.value

    def consume_metadata(self, metadata):
        ran.append(metadata)
        if self.error:
            raise self.error


def says(value):
    return lambda: asked.append(value) or value


@pytest.fixture(autouse=True)
def _fresh(monkeypatch):
    ran.clear()
    asked.clear()
    monkeypatch.setattr(queue_module, "CERTAIN", 0)  # a short poll of moto's misses nothing


@pytest.fixture
def queue(backend, settings):
    settings.QUEUES = {name: {**config, "STORE": STORE} for name, config in backend.queues("default", "mail").items()}
    return queues["default"]


@pytest.fixture
def told(queue):
    """The names of what is signalled, in order."""
    with heard(*LIFE, "empty") as told:
        yield lambda: [name for name, _ in told]


def run_all(queue):
    """Run what is due; the outcomes."""
    return [run_one(queue).outcome for _ in iter(lambda: len(queue), 0)]


def buried(queue):
    """The one entry in the error queue, and its notes; it goes back as if nobody had looked."""
    [lease] = claim(queue.dead)
    untouched = with_counts(lease, attempts=lease.entry.attempts - 1)
    queue.dead.release([untouched])
    return untouched.entry, notes(lease.entry.note)


def counts(entry):
    return entry.attempts, entry.failures, entry.lost


def is_waiting(queue):
    """Whether one message is there and not due: SQS has no delays on a FIFO queue, so there it is held."""
    assert nothing_to_claim(queue)
    found = queue.stats()
    return (found.ready, found.delayed, found.leased) == ((0, 0, 1) if queue.is_fifo else (0, 1, 0))


def begun(queue):
    """Claim and complete the next as soon as it comes; when that was."""
    [lease] = claim(queue)
    queue.complete([lease])
    return lease.claimed


# ---- calls


def test_df1_called_it_runs_inline_and_later_queues_it(queue):
    assert (count(1, 2), len(queue)) == (2, 0)
    count.later(3)
    assert (len(ran), len(queue)) == (1, 1)
    assert (stats.run_once(), stats.run_once()) == (True, False)
    assert ran == [((1, 2), {}), ((3,), {})]


def test_df2_arguments_arrive_as_they_were(queue):
    args = ("žluťoučký 🐎", "\x00 \\ ' \" \n", b"\x00\xff", 1.5, None, "x" * 100_000)
    count.later(*args, ключ=[{"a": {1, 2}}])
    stats.run_once()
    assert ran == [(args, {"ключ": [{"a": {1, 2}}]})]


def test_df10_functions_are_asked_once_per_call(queue):
    count.using(delay=says(30), ttl=says(90)).enqueue()
    assert sorted(asked) == [30, 90]
    asked.clear()
    calls = [refresh.using(debounce=says(LONG)).enqueue() for _ in range(3)]
    assert ([call.enqueued for call in calls], asked) == ([True, True, False], [LONG] * 3)


def test_df11_what_contradicts_itself_or_needs_a_store_is_refused(backend, settings):
    for options in ({"debounce": 5, "delay": 1}, {"always_delay": True}, {"delay": 2, "ttl": 1}):
        with only(), pytest.raises(ValueError):
            queue_command(**options)(refresh.func)
    settings.QUEUES = {"default": backend.config() | {"STORE": False}}
    with pytest.raises(NotSupported, match=r"SqsQueue \('default'\) cannot do: facts"):
        refresh()


@pytest.mark.parametrize("options", [{"unique": True}, {"extend": True, "debounce": 5}, {"priority": 1}])
def test_what_needs_a_look_at_what_waits_is_refused(queue, options):
    with pytest.raises(NotSupported, match="SqsQueue"):
        fail.using(**options).enqueue()
    handle = fail.using(unique=LONG).enqueue()
    assert [handle.enqueued, fail.using(unique=LONG).enqueue().enqueued, handle.status] == [True, False, "unknown"]
    with pytest.raises(NotSupported):
        handle.cancel()


# ---- failures


def test_df3_three_attempts_are_three_runs_then_one_error(queue):
    stumble()
    assert run_all(queue) == [Outcome.RETRY, Outcome.RETRY, Outcome.DEAD]
    assert (ran, len(queue), len(queue.dead)) == ([1, 2, 3], 0, 1)
    assert counts(buried(queue)[0]) == (3, 3, 0)


def test_df4_an_unlisted_error_is_one_run_and_one_error(queue):
    fail()
    assert run_all(queue) == [Outcome.DEAD]
    assert (ran, len(queue), len(queue.dead)) == ([1], 0, 1)


def test_df5_a_retry_waits_unless_there_is_no_backoff(queue):
    stumble()
    assert [run_one(queue).delay for _ in range(2)] == [0, 0]  # it was there at once
    queue.complete(claim(queue))
    stumble.using(backoff=True).enqueue()
    assert run_one(queue).delay == 4
    assert is_waiting(queue)


def test_df6_an_error_says_what_where_when_and_whose(queue):
    handle, before = stumble("ž"), time.time()
    run_all(queue)
    entry, told = buried(queue)
    assert (entry.id, entry.label) == (handle.id, stumble.name)
    assert [(note["attempt"], note["exception"], note["text"]) for note in told] == [
        (attempt, "builtins.KeyError", "'ž'") for attempt in (1, 2, 3)
    ]
    for note in told:
        assert (note["host"], "in stumble" in note["traceback"]) == (socket.gethostname(), True)
        assert before <= note["at"] <= time.time()


def test_df20_what_nobody_can_run_ends_in_the_error_queue(queue, settings):
    settings.QUEUE_UNKNOWN_AFTER = 0
    queue = queues["default"]
    queue.put([Entry(b"djq1c", "broken", label=count.name)])
    assert run_one(queue).outcome is Outcome.DEAD
    assert "invalid message" in buried(queue)[1][0]["reason"]
    queue.dead.complete(claim(queue.dead))
    queue.put([message_for(queue, "no.such.command")])
    assert [run_one_when_due(queue) for _ in range(2)] == [Outcome.NOT_NOW, Outcome.DEAD]
    assert "no.such.command" in buried(queue)[1][-1]["reason"]


def run_one_when_due(queue):
    [lease] = claim(queue)
    verdict = execute(queue, lease)
    settle(queue, [(lease, verdict)])
    return verdict.outcome


def test_df21_what_never_reports_ends_in_the_error_queue_after_its_attempts(queue):
    """Killed for real: test_consumer.py."""
    hold()
    for _ in range(3):
        claim(queue, lease=0.2)
    assert run_one_when_due(queue) is Outcome.DEAD
    entry, told = buried(queue)
    assert (ran, counts(entry), told[-1]["reason"]) == ([], (4, 0, 3), "worker died: 3 starts never reported")


def test_df25_what_is_revived_by_its_id_starts_afresh(queue):
    first, second = fail(), fail()
    run_all(queue)
    assert queue.revive([second.id]) == 1
    lease = claim_one(queue)
    assert (lease.entry.id, counts(lease.entry), len(notes(lease.entry.note))) == (second.id, (1, 0, 0), 1)
    assert buried(queue)[0].id == first.id
    with pytest.raises(NotSupported):  # there is no list of errors to take the id from
        queue.dead.peek("ready")


# ---- time


def test_df7_what_is_too_old_is_not_run_and_is_gone(queue, told):
    count.using(ttl=0.05).enqueue()
    time.sleep(0.1)
    assert run_one(queue).outcome is Outcome.EXPIRED
    assert told() == ["enqueued", "claimed", "expired"]
    assert (ran, len(queue), queue.stats().leased, len(queue.dead)) == ([], 0, 0, 0)


def test_df8_the_ttl_counts_from_the_first_put_across_retries(queue):
    stumble.using(ttl=2.0).enqueue()
    assert run_one(queue).outcome is Outcome.RETRY
    time.sleep(2.1)
    assert (run_one(queue).outcome, ran) == (Outcome.EXPIRED, [1])


@pytest.mark.alone
def test_df9_what_is_delayed_comes_within_a_second_after_it_is_due(queue):
    """SQS delays by whole seconds; a FIFO queue not at all: the consumer that finds it holds it."""
    called = time.time()
    count.using(delay=1.1).enqueue()
    assert is_waiting(queue)
    assert called + 1.1 <= begun(queue) <= called + 1.1 + 2  # one more for a slow machine


def test_df26_a_delay_beyond_what_sqs_knows_is_kept_in_steps(queue, monkeypatch):
    monkeypatch.setattr(protocol, "LONGEST_DELAY", 1)
    monkeypatch.setattr(protocol, "LONGEST_HOLD", 2)
    called = time.time()
    count.using(delay=2.2).enqueue()
    [lease] = claim(queue)
    assert (lease.claimed >= called + 2.2, counts(lease.entry)) == (True, (1, 0, 0))
    queue.complete([lease])
    count.using(delay=3600).enqueue()
    assert is_waiting(queue)


def test_df22_a_job_of_three_leases_runs_once(queue):
    finish = Gate()
    gates.append(finish)
    hold()
    with heard("completed", "lease_lost") as told, serving(threads=1, lease=1), serving(threads=1, lease=1):
        finish.await_within(1)
        began = time.monotonic()
        eventually(lambda: time.monotonic() > began + 3)
        finish.open()
        eventually(lambda: told)
    assert ([name for name, _ in told], ran, finish.passed) == (["completed"], [1], 1)


# ---- debounce


def test_df12_of_three_calls_one_comes_now_one_after_the_window_and_one_not_at_all(queue):
    often, called = refresh.using(debounce=1), time.time()
    calls = [often("x"), often("x"), often("x"), often("y")]
    assert [call.enqueued for call in calls] == [True, True, False, True]
    assert sorted(ids(claim(queue, 2))) == sorted([calls[0].id, calls[3].id])
    assert begun(queue) >= called + 1
    assert nothing_to_claim(queue)


def test_df13_with_always_delay_the_first_waits_and_the_second_is_skipped(queue):
    calls = [refresh.using(always_delay=True).enqueue() for _ in range(2)]
    assert ([call.enqueued for call in calls], is_waiting(queue)) == ([True, False], True)


def test_df14_a_call_after_the_delayed_run_is_followed_by_another(queue):
    """Moments are a window apart by the store; SQS may keep each of them for up to a second more."""
    often, called = refresh.using(debounce=2), time.time()
    assert [often().enqueued for _ in range(2)] == [True, True]
    moments = [begun(queue), begun(queue)]
    assert often().enqueued
    moments.append(begun(queue))
    assert [moment >= called + 2 * number for number, moment in enumerate(moments)] == [True] * 3


def test_df15_of_twenty_calls_at_the_same_moment_one_comes_now_and_one_is_delayed(queue):
    calls = together(*[lambda: refresh("page").enqueued] * 20, last=queue.close)
    assert sorted(calls) == [False] * 18 + [True] * 2
    begun(queue)
    assert is_waiting(queue)


def test_df16_when_a_put_fails_the_next_call_is_not_skipped(queue, faulty, settings):
    settings.QUEUES = {"default": {**settings.QUEUES["default"], "CONNECTION": faulty}}
    for _ in range(2):  # the first comes at once, the next is delayed
        faulty.fail("send_message_batch", AWAY)
        with pytest.raises(EndpointConnectionError):
            refresh()
        assert refresh().enqueued
    assert not refresh().enqueued


def test_df17_windows_are_exact_and_equal_calls_are_equal(queue):
    """The store knows the moment to the microsecond; SQS brings the message at the next whole second."""
    exact = refresh.using(debounce=1.005, always_delay=True)
    called, first = time.time(), exact({"a": 1, "b": 2})
    assert [first.enqueued, exact({"b": 2, "a": 1}).enqueued] == [True, False]
    assert exact.using(queue_name="mail").enqueue({"a": 1, "b": 2}).enqueued
    [mark] = map(Mark.read, queue.store._facts.values())
    assert mark.at - mark.first == 1_005_000
    assert begun(queue) >= called + 1.005


# ---- events and metadata


def test_df18_what_is_told_comes_in_order(queue, told):
    count.later(), stumble.using(max_attempts=2)(), fail()
    while stats.run_once():
        continue
    refresh(), refresh(), refresh()
    runs = [("claimed", "started", end) for end in ("completed", "failed", "failed", "retried")]
    names, missed = told(), ["debounce_missed", "enqueued"]
    assert names[:3] == ["enqueued"] * 3
    assert sorted(zip(*[iter(names[3:15])] * 3, strict=True)) == runs  # a standard queue keeps no order
    assert names[15:] == ["empty", *missed, *missed, "debounced"]


@pytest.mark.parametrize("error", [KeyError("boom"), SystemExit(3)], ids=["KeyError", "SystemExit"])
def test_df19_what_listens_and_raises_stops_nothing(queue, error, caplog):
    class Raises:
        def on_pop(self, item):
            raise error

    register_event_consumer(Raises(), "default")
    register_metadata_producer_consumer(Tenant("ann", error))
    count.later()
    assert (stats.run_once(), ran) == (True, ["ann", ((), {})])
    assert (len(queue), queue.stats().leased, len(queue.dead)) == (0, 0, 0)
    assert "Raises.on_pop() failed" in caplog.text


def test_df23_metadata_reaches_the_consumer_of_its_namespace_at_every_attempt(queue):
    register_metadata_producer_consumer(Tenant({"ü": (1, b"x")}))
    with pytest.raises(ValueError, match="'tenant' is taken"):
        register_metadata_producer_consumer(Tenant("other"))
    stumble()
    run_all(queue)
    queue.put([message_for(queue, count.name)])
    run_one(queue)
    assert ran == [{"ü": (1, b"x")}, 1, {"ü": (1, b"x")}, 2, {"ü": (1, b"x")}, 3, None, ((), {})]


# ---- the queue itself


def test_df24_put_and_complete_tell_of_each_and_what_is_too_large_is_refused(queue):
    """An id that waits is taken again by a standard queue, and not by a FIFO queue, which does not tell."""
    assert (queue.take(), queue.claim(10)) == ((None, None), [])
    made = work(12)
    assert queue.put(made) == [True] * 12
    assert queue.put(made[:1]) == [True]
    leases = claim(queue, 12 if queue.is_fifo else 13)
    assert queue.complete(leases[:1]) == leases[:1]
    assert queue.complete(leases) == leases[1:]
    with pytest.raises(MessageTooLarge):
        queue.put([*work(1), *work(1, b"x" * 2**20)])
    assert len(queue) == 0


def test_df27_leases_are_completed_in_any_order_and_once(queue):
    put(queue, "a", "b", "c")
    a, b, c = claim(queue, 3)
    assert queue.complete([c]) == [c]
    assert queue.complete([c]) == []
    assert queue.complete([b]) == [b]
    queue.release([a])
    assert ids(claim(queue)) == ids([a])
    assert nothing_to_claim(queue)
