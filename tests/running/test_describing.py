"""What a call was about: the options describe and sensitive, and the text that they make of a call."""

import logging
from dataclasses import dataclass

import pytest

from djqueue import BatchCommand, QueueCommand, queue_command, queues
from djqueue.messages.failures import errors_of
from djqueue.running.describing import arguments_of, description_of
from tests.support.consumer import run_one


class Loud:
    def __repr__(self):
        raise SystemExit


@queue_command(describe=lambda order, **_: f"order {order}", sensitive=["address"])
def send_receipt(address, order, *, copies=1):
    raise ValueError("no paper")


@queue_command(sensitive="token")
def call_api(url, *parts, **rest):
    pass


@queue_command(sensitive=True, describe=lambda *args, **kwargs: None)
def secret(name, *more):
    pass


@queue_command(batch=10, describe=lambda user, **_: f"user {user}", sensitive=["code"])
def in_batches(calls):
    pass


@dataclass
class Request:
    user: int
    code: str = "1234"


class Notify(BatchCommand):
    options = {"describe": lambda request: f"to {request.user}", "sensitive": ["code"]}

    def perform(self, *requests: Request):
        pass


class Ship(QueueCommand):
    options = {"describe": lambda data: f"ship {data['order']}", "sensitive": ["data"]}

    def execute(self):
        pass


@pytest.mark.parametrize(
    ("command", "args", "kwargs", "description", "shown"),
    [
        (send_receipt, ("ann@example.com", 42), {}, "order 42", "send_receipt(address=***, order=42)"),
        (send_receipt, (), {"order": 7, "address": "b", "copies": 2}, "order 7",
         "send_receipt(address=***, order=7, copies=2)"),
        (send_receipt, ("ann@example.com",), {"odrer": 3}, "", "send_receipt(***, odrer=3)"),
        (send_receipt, ("a", "x\n\x1b[2J" + "y" * 500), {}, "order x ?[2J" + "y" * 67 + "…",
         "send_receipt(address=***, order='x\\n\\x1b[2J" + "y" * 188 + "…)"),
        (call_api, ("/a", 1, "b"), {"token": "t", "page": 2}, "", "call_api(url='/a', 1, 'b', token=***, page=2)"),
        (call_api, (Loud(),), {}, "", "call_api(url=<Loud whose repr raises SystemExit>)"),
        (secret, ("a", "b"), {}, "", "secret(name=***, ***)"),
        (in_batches, (), {"user": 3, "code": 9}, "user 3", "in_batches(user=3, code=***)"),
        (in_batches, (3,), {}, "user 3", "in_batches(***)"),
        (Notify.command(), (Request(5),), {}, "to 5", "Notify(user=5, code=***)"),
        (Notify.command(), ({"user": 6, "code": "x"}, "Request"), {}, "to 6", "Notify(user=6, code=***)"),
        (Notify.command(), ({}, "Stranger"), {}, "", "Notify(<cannot be shown: InvalidMessage>)"),
        (Ship.command(), ({"order": 4},), {}, "ship 4", "Ship(data=***)"),
    ],
)  # fmt: skip
def test_a_call_is_described_and_shown_as_code(command, args, kwargs, description, shown):
    assert description_of(command, args, kwargs) == description
    assert arguments_of(command, args, kwargs) == shown


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"describe": "order"}, TypeError, "describe is 'order': give a function of the arguments"),
        ({"sensitive": 3}, TypeError, "sensitive is 3: give the names of parameters, or True for all"),
        ({"sensitive": [3]}, TypeError, "sensitive is .3.: give the names of parameters"),
        ({"sensitive": ["adress"]}, ValueError, "'adress', which is no parameter; did you mean 'address'?.*order"),
    ],
)
def test_wrong_values_are_refused_where_the_command_is_declared(options, error, words):
    with pytest.raises(error, match=words):
        queue_command(**options)(send_receipt.func)


@pytest.mark.parametrize("options", [{"describe": str}, {"sensitive": True}], ids=str)
def test_a_call_has_none_of_its_own(options):
    with pytest.raises(ValueError, match="give it where the command is declared"):
        send_receipt.using(**options)


@pytest.mark.backends("memory", "sqlite", "redis")
def test_the_description_is_kept_with_each_failure(backend, settings, caplog):
    settings.QUEUES = backend.queues("default")
    queue = queues["default"]
    send_receipt("ann@example.com", 42)
    run_one(queue)
    [record] = queue.failed.peek("ready")
    assert [one["description"] for one in errors_of(record.entry.errors)] == ["order 42"]


def test_a_description_that_raises_is_logged_at_debug(caplog):
    with caplog.at_level(logging.DEBUG, "djqueue"):
        assert description_of(send_receipt, (), {}) == ""
    [record] = caplog.records
    assert (record.levelno, record.exc_info[0]) == (logging.DEBUG, TypeError)
