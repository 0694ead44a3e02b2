"""Queues that are not there, servers that are not there, and what the checks say of them."""

import os

import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from djqueue.backends.sqs.queue import SqsQueue, clients
from djqueue.backends.stores import NoStore
from djqueue.exceptions import InvalidQueueError
from djqueue.testing.contract.steps import claim, put
from djqueue.testing.patience import together
from tests.backends.sqs.support import work
from tests.support.bells import waited

pytestmark = pytest.mark.backends("sqs")


def found(queue):
    return sorted(message.id.removeprefix("djqueue.") for message in queue.check())


def test_a_queue_that_is_not_there_is_named_and_not_made(make):
    queue = make("nowhere", create=False)
    for verb in (lambda: queue.put(work()), lambda: queue.claim(1), queue.stats, lambda: waited(queue, 5)):
        with pytest.raises(InvalidQueueError, match=r"no SQS queue t-\w+nowhere at http.*OPTIONS\['CREATE'\]"):
            verb()


def test_with_create_a_queue_is_made_that_keeps_messages_long(make):
    for fifo in (False, True):
        queue = make("new", fifo=fifo)
        put(queue, "work")
        told = queue._link.attributes("All")
        assert told["MessageRetentionPeriod"] == "1209600"
        assert told.get("FifoThroughputLimit") == ("perMessageGroupId" if fifo else None)
        assert len(make("new", fifo=fifo, create=False).claim(1)) == 1


def test_a_queue_that_went_away_is_named(make):
    queue = make("gone")
    put(queue, "work")
    queue._link.call("delete_queue")
    queue._link._create = False
    with pytest.raises(InvalidQueueError, match="There is no SQS queue"):
        queue.claim(1)


def test_eight_threads_make_one_queue(make):
    queues = [make("new") for _ in range(8)]
    assert together(*[lambda queue=queue: queue.put(work()) for queue in queues]) == [[True]] * 8
    assert len(claim(queues[0], 8)) == 8


def test_a_child_has_clients_of_its_own(make):
    queue = make("mail")
    put(queue, "before")
    ours = queue._link.client
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        told = queue._link.client is not ours and queue.put(work()) == [True]
        os.write(write, b"yes" if told else b"no")
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 3) == b"yes"
    os.close(read), os.close(write)
    assert len(claim(queue, 2)) == 2 and queue._link.client is ours


# ---- checks


def test_e301_sqs_that_is_away(monkeypatch):
    queue = SqsQueue("mail", "http://127.0.0.1:1?region=eu-west-1")
    monkeypatch.setattr("djqueue.backends.sqs.connection.CONFIG", Config(retries={"total_max_attempts": 1}))
    clients.reset()
    assert found(queue) == ["E301", "E301"]
    assert "127.0.0.1:1" in queue.check()[0].msg
    clients.reset()


def test_e301_no_region(monkeypatch):
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    clients.reset()
    [first, _] = SqsQueue("mail").check()
    assert (first.id, "region" in first.msg) == ("djqueue.E301", True)
    clients.reset()


def test_e302_a_missing_queue(make):
    queue = make("nowhere", create=False)
    [first, second] = queue.check()
    assert (first.id, second.id) == ("djqueue.E302", "djqueue.E302")
    assert f"{queue.describe()}." in first.msg and "CREATE" in first.hint
    assert f"{queue.failed.describe()}." in second.msg


def test_e303_fifo_without_a_store(make):
    queue = make("mail", fifo=True)
    assert found(queue) == []
    for store in (None, NoStore()):
        queue.store = store
        assert found(queue) == ["E303"]


def test_w301_a_redrive_policy_of_aws(make):
    queue, other = make("mail"), make("other")
    put(other, "work")
    arn = other._link.attributes("QueueArn")["QueueArn"]
    policy = f'{{"deadLetterTargetArn": "{arn}", "maxReceiveCount": 5}}'
    queue._link.call("set_queue_attributes", Attributes={"RedrivePolicy": policy})
    assert found(queue) == ["W301"]


def test_w302_what_waits_is_forgotten(make):
    queue = make("mail")
    queue._link.call("set_queue_attributes", Attributes={"MessageRetentionPeriod": "345600"})
    [message] = queue.check()
    assert (message.id, "4 days" in message.msg) == ("djqueue.W302", True)


def test_what_sqs_shows_nobody_is_no_trouble(make, faulty_client):
    hidden = ClientError({"Error": {"Code": "AccessDenied"}}, "GetQueueAttributes")
    queue = make("mail", connection=faulty_client)
    put(queue, "work")
    assert queue.failed.stats().ready == 0
    faulty_client.fail("get_queue_attributes", hidden, hidden)
    assert found(queue) == []
    fresh = make("mail", connection=faulty_client)
    faulty_client.fail("get_queue_attributes", hidden)
    assert fresh.put(work()) == [True]
