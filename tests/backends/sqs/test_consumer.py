"""A consumer over SQS, from the call of a command to the failed queue."""

import json

import pytest
from botocore.exceptions import EndpointConnectionError

from djqueue import current_message, queues
from djqueue.decorators import queue_command
from djqueue.messages.failures import errors_of
from djqueue.testing import eventually
from djqueue.testing.contract.steps import claim
from tests.faults.commands import die_by_exit, work
from tests.faults.processes import PATIENCE, Consumers
from tests.support.consumer import Release, recorded_signals, serving
from tests.support.notes import cleared_per_test
from tests.support.processes import until

pytestmark = pytest.mark.backends("sqs", "sqs-fifo")

ran, release = cleared_per_test([]), cleared_per_test(Release())


@queue_command
def note(number):
    ran.append((number, current_message().attempt))


@queue_command
def explode(number):
    raise RuntimeError(f"boom {number}")


@queue_command
def wait_for_release(number):
    ran.append(number)
    release.wait()


@pytest.fixture
def queue(backend, settings):
    settings.QUEUES = {"default": backend.config()}
    return queues["default"]


def test_what_is_called_is_run_once_and_what_fails_is_put_aside(queue):
    with recorded_signals("completed", "failed") as told, serving(threads=4):
        note.enqueue_many([(number,) for number in range(35)])
        explode.enqueue_many([(number,) for number in range(3)])
        eventually(lambda: len(told) == 38)
    assert sorted(ran) == [(number, 1) for number in range(35)]
    assert (len(queue), len(queue.failed)) == (0, 3)
    reasons = [errors_of(lease.entry.errors)[-1]["reason"] for lease in claim(queue.failed, 3)]
    assert sorted(reasons) == [f"RuntimeError: boom {number}" for number in range(3)]


def test_an_idle_consumer_takes_a_message_at_once(queue):
    with serving(threads=1), recorded_signals("completed") as told:
        eventually(lambda: queue._empty)  # it has found nothing, and sleeps
        began = queue.now()
        note(1)
        eventually(lambda: told)
        assert queue.now() - began < 5


def test_a_consumer_that_drains_ends_when_nothing_is_left(queue):
    note.enqueue_many([(number,) for number in range(25)])
    with serving(drain=True) as running:
        assert running.code() == 0
    assert (len(ran), len(queue)) == (25, 0)


def test_what_nobody_has_begun_at_a_stop_goes_back_and_counts_as_nothing(queue):
    with serving(threads=1, grace=0) as running:
        wait_for_release.enqueue_many([(number,) for number in range(3)])
        eventually(lambda: ran)
        running.stop()
        assert running.code() == 1  # it was cut off
    release.set()
    leases = claim(queue, 3)
    assert sorted(lease.entry.attempts for lease in leases) == [1, 1, 2]
    assert {lease.entry.lost for lease in leases} == {0}


def test_an_sqs_that_is_away_for_a_while_is_ridden_out(backend, settings, faulty_client):
    settings.QUEUES = {"default": {**backend.config(), "CONNECTION": faulty_client}}
    away = EndpointConnectionError(endpoint_url="http://away")
    with recorded_signals("completed") as told, serving(threads=2):
        faulty_client.fail("delete_message_batch", away)
        faulty_client.fail("receive_message", away)
        note.enqueue_many([(number,) for number in range(12)])
        eventually(lambda: len(told) == 12)
    assert sorted(ran) == [(number, 1) for number in range(12)]
    assert len(queues["default"]) == 0


@pytest.mark.slow
@pytest.mark.backends("sqs", "sqs-fifo", database=True)
def test_to10_df21_what_kills_its_worker_is_put_aside_and_its_neighbours_are_run(backend, make_site, settings):
    apps = [*settings.INSTALLED_APPS, "tests.faults"]
    settings.QUEUES = backend.queues(LEASE=3)  # seconds, within which a busy machine comes to extend it
    site = make_site(json.loads(json.dumps(settings.QUEUES)), {"default"}, INSTALLED_APPS=apps)
    consumers = Consumers(site, args=("-n",))
    good = [result.id for result in work.enqueue_many([(1.0,)] * 20)]
    poison = die_by_exit().id
    good += [result.id for result in work.enqueue_many([(1.0,)] * 20)]
    queue = queues["default"]
    while not len(queue.failed):
        consumer = consumers.start()
        until(lambda consumer=consumer: consumer.popen.poll() is not None or len(queue.failed), PATIENCE)
    consumers.ledger.wait_all("end", good, PATIENCE)
    assert len(consumers.ledger.of("start", {poison})) == 3
    assert not consumers.ledger.check(good).lost
    (dead,) = claim(queue.failed)
    assert (dead.entry.id, dead.entry.lost) == (poison, 3)
    why = "worker died: 3 attempts never reported; the last one ended by exit code 7"
    assert errors_of(dead.entry.errors)[-1]["reason"] == why
