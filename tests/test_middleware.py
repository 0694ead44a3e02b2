"""The id of a web request is in the logs of the commands that it causes, and of those that these cause."""

import json
import logging
import re
from io import StringIO

import pytest
from asgiref.sync import async_to_sync
from django.http import HttpResponse
from django.test import AsyncRequestFactory, RequestFactory

from djqueue import Consumer, logs, queue_command
from djqueue.log_handlers import BackgroundStreamHandler
from djqueue.logs import FullFormatter, JsonFormatter, MessageFilter
from djqueue.messages.metadata import request_id
from djqueue.middleware import RequestIdMiddleware
from djqueue.running.instruments import instruments
from djqueue.running.request_ids import RequestIds
from tests.support.consumer import only

logger = logging.getLogger("djqueue.shop")
pytestmark = pytest.mark.backends("memory")


@queue_command
def send_receipt(order):
    logger.info("it is of the project")
    ship(order)


@queue_command
async def ship(order):
    if order < 0:
        raise ValueError("no order")


@pytest.fixture(autouse=True)
def _request_ids():
    instruments.add(RequestIds())
    with only(send_receipt, ship):
        yield
    instruments.remove(RequestIds.namespace)


@pytest.fixture
def log_lines():
    """Call it with a formatter to have djqueue's records written; what it returns gives the lines since."""
    logger = logging.getLogger("djqueue")
    before, propagates, output = logger.handlers[:], logger.propagate, StringIO()
    handler = BackgroundStreamHandler(output)

    def lines():
        handler.flush()
        return output.getvalue().splitlines()

    def begin(formatter):
        handler.setFormatter(formatter)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(logging.INFO)
        return lines

    yield begin
    logger.handlers, logger.propagate = before, propagates
    logger.setLevel(logging.NOTSET)
    handler.close()


def view(request):
    send_receipt(42 if request.path == "/" else -1)
    return HttpResponse(request_id.get())


def asked(path="/", **headers):
    return RequestIdMiddleware(view)(RequestFactory().get(path, headers=headers))


def run(count, **options):
    assert Consumer(periodic=False, **options).run(limit=count) == 0


@pytest.mark.parametrize("coroutines", [0, 2])
@pytest.mark.parametrize("path", ["/", "/bad"])
def test_each_line_about_the_messages_of_a_request_has_its_id(queue, log_lines, coroutines, path):
    lines = log_lines(JsonFormatter())
    assert asked(path, **{"X-Request-ID": "req-81f3"}).headers["X-Request-ID"] == "req-81f3"
    run(2, coroutines=coroutines)
    told = [json.loads(line) for line in lines()]
    about = [one for one in told if "command" in one]
    events = [one.get("event") for one in about]
    assert events == [None, "done", "done" if path == "/" else "failed"]
    assert {one.get("request_id") for one in about} == {"req-81f3"}
    keys = {"queue": "default", "command": send_receipt.name, "attempt": 1}
    assert about[0].items() >= keys.items() and about[0]["message_id"] == about[1]["message_id"]
    assert not any("request_id" in one for one in told if one not in about)


def test_the_full_form_ends_with_it(queue, log_lines):
    lines = log_lines(FullFormatter())
    asked(**{"X-Request-ID": "req-81f3"})
    run(2)
    own, done, *_ = [line for line in lines() if "[request" in line]
    assert own.endswith("it is of the project [request req-81f3]") and done.endswith("s) [request req-81f3]")


def test_a_filter_gives_it_to_records_of_other_handlers_and_the_consumer_to_all(queue, caplog, monkeypatch):
    monkeypatch.setattr(logs, "_process", logs.ProcessLabel(None, "shop-1:4711:0c5f3e"))
    caplog.handler.addFilter(MessageFilter())
    caplog.set_level(logging.INFO, "djqueue")
    asked(**{"X-Request-ID": "req-81f3"})
    run(2)
    [own] = [one for one in caplog.records if one.name == "djqueue.shop"]
    assert (own.request_id, own.command, own.queue, own.attempt) == ("req-81f3", send_receipt.name, "default", 1)
    assert {one.consumer for one in caplog.records} == {"shop-1:4711:0c5f3e"}


@pytest.mark.parametrize("given", ["", "x" * 129, "a b", "ü", "a\x1b[31m"])
def test_what_is_no_plain_id_is_replaced_by_a_new_one(queue, given):
    answer = asked(**{"X-Request-ID": given})
    assert re.fullmatch("[0-9a-f]{32}", answer.content.decode())
    assert answer.headers["X-Request-ID"] == answer.content.decode()
    assert request_id.get() == ""


def test_async_sites(queue):
    async def view(request):
        return HttpResponse(request_id.get())

    request = AsyncRequestFactory().get("/", headers={"X-Request-ID": "req-81f3"})
    assert async_to_sync(RequestIdMiddleware(view))(request).content == b"req-81f3"


def test_messages_that_no_request_has_caused_carry_nothing(queue):
    send_receipt(1)
    [lease] = queue.claim(1)
    assert b"request_id" not in lease.entry.body
