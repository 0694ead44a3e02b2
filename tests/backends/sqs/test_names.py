"""From the settings to a queue at SQS, without a call."""

import re

import boto3
import pytest

from djqueue.backends.sqs.queue import SqsQueue, clients
from djqueue.exceptions import InvalidQueueError

AT_SQS = re.compile(r"[A-Za-z0-9_-]{1,80}|[A-Za-z0-9_-]{1,75}\.fifo")


def name_of(name, **options):
    return SqsQueue(name, "sqs://eu-west-1", **options)._link.name


def test_a_plain_name_stays_as_it_is():
    assert name_of("mail_2-b") == "mail_2-b"
    assert name_of("mail", prefix="shop-", suffix="-live") == "shop-mail-live"
    assert name_of("mail", fifo=True) == name_of("mail.fifo") == "mail.fifo"
    assert name_of("mail", prefix="a", suffix="z", fifo=True) == "amailz.fifo"


def test_the_failed_queue_is_named_after_its_queue():
    for options, name in (({}, "mail-failed"), ({"fifo": True, "suffix": "-x"}, "mail-failed-x.fifo")):
        dead = SqsQueue("mail", "", **options).failed
        assert (dead.name, dead._link.name, dead.is_fifo) == ("mail:failed", name, "fifo" in options)
    assert SqsQueue("mail.fifo").failed._link.name == "mail-failed.fifo"


def test_no_two_names_are_one_at_sqs():
    names = ["mail", "Mail", "mail.", "mail,", "mäil", "m%il", "m-il", "x" * 64, "x" * 63, "mail-failed", ".", "-", "é"]
    found = [name_of(name + end, prefix="p" * 20, suffix="s" * 20) for name in names for end in ("", ":failed")]
    assert len(set(found)) == 2 * len(names)
    assert all(AT_SQS.fullmatch(name) for name in found)
    assert all(AT_SQS.fullmatch(name_of(name, fifo=True, prefix="p" * 40)) for name in names)


@pytest.mark.parametrize(
    "options",
    [
        {"prefix": 5},
        {"suffix": "ä"},
        {"prefix": "a.b"},
        {"prefix": "x" * 41},
        {"fifo": "yes"},
        {"fifo": 1},
        {"create": "no"},
    ],
)
def test_options_that_cannot_be_are_refused_by_name(options):
    with pytest.raises(InvalidQueueError, match=next(iter(options)).upper()):
        SqsQueue("mail", "", **options)


def test_a_name_that_says_fifo_cannot_be_of_a_standard_queue():
    with pytest.raises(InvalidQueueError, match="FIFO"):
        SqsQueue("mail.fifo", "", fifo=False)


@pytest.mark.parametrize(
    "connection, region, endpoint",
    [
        ("sqs://eu-central-1", "eu-central-1", "https://sqs.eu-central-1.amazonaws.com"),
        ("http://127.0.0.1:9324?region=elsewhere", "elsewhere", "http://127.0.0.1:9324"),
        ("https://sqs.example.com/path/?region=a", "a", "https://sqs.example.com/path"),
    ],
)
def test_a_connection_is_a_region_or_an_endpoint(connection, region, endpoint):
    client = SqsQueue("mail", connection)._link.client
    assert (client.meta.region_name, client.meta.endpoint_url) == (region, endpoint)


def test_without_a_connection_the_settings_of_boto3_count(monkeypatch):
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-west-2")
    clients.reset()
    assert SqsQueue("mail", "")._link.client.meta.region_name == "us-west-2"
    assert SqsQueue("mail", "sqs://")._link.client.meta.region_name == "us-west-2"
    clients.reset()


@pytest.mark.parametrize(
    "connection",
    ["eu-west-1", "redis://x", "sqs://key:s3cret@eu-west-1", "https://me:s3cret@host", "sqs://a/b", "sqs://a?region=b"]
    + ["http://host?key=s", "http://host#x", 5, object()],
)
def test_anything_else_is_refused_and_no_secret_is_told(connection):
    with pytest.raises(InvalidQueueError, match="CONNECTION") as caught:
        SqsQueue("mail", connection)
    assert "s3cret" not in str(caught.value)


def test_one_client_serves_all_queues_of_a_connection():
    one, other = SqsQueue("mail", "sqs://eu-west-1"), SqsQueue("slow", "sqs://eu-west-1")
    assert one._link.client is other._link.client is not SqsQueue("mail", "sqs://eu-west-2")._link.client
    assert one.connection_key == SqsQueue("mail", "sqs://eu-west-1").connection_key != other.connection_key


def test_a_live_client_of_sqs_is_taken_and_no_other():
    client = clients.client("sqs://eu-west-1")
    assert SqsQueue("mail", client)._link.client is client
    other = boto3.session.Session().client("sns", region_name="eu-west-1")
    with pytest.raises(InvalidQueueError, match="a SNS"):
        SqsQueue("mail", other)


def test_calls_are_repeated_as_the_backend_says():
    config = clients.client("sqs://eu-west-1").meta.config
    assert (config.retries["mode"], config.retries["total_max_attempts"]) == ("standard", 3)
    assert config.read_timeout > 20
