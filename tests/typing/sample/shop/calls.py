"""What a type checker knows of calls and their results."""

from datetime import timedelta
from typing import Any, assert_type

from djqueue import Cancelled, Result, invoker
from shop.commands import (
    Charge,
    Notify,
    Refund,
    count_stock,
    count_words,
    fetch,
    forget,
    index,
    letter,
    mail,
    parcel,
    poll,
    send,
)


def of_a_function() -> None:
    assert_type(count_words("to be", least=1), Result[int])
    assert_type(count_words("to be").get(timeout=10), int)
    assert_type(count_words.enqueue("to be").get(), int)
    assert_type(count_words.call("to be"), int)
    assert_type(send.using(delay=30, queue_name="slow").enqueue("ann@example.com"), Result[bool])
    assert_type(send.using(delay=timedelta(minutes=1))("ann@example.com", number=2).get(), bool)
    assert_type(send.enqueue_many([("ann@example.com",), {"address": "bob@example.com"}]), list[Result[bool]])
    assert_type(forget(), Result[None])
    assert_type(count_words("to be").duplicate_of, Result[int] | None)
    assert_type(count_words("to be").cancel(), Cancelled)


async def of_a_coroutine() -> None:
    assert_type(fetch("/"), Result[bytes])
    assert_type(fetch("/").get(), bytes)
    assert_type(await fetch("/").aget(), bytes)
    assert_type(await fetch.aenqueue("/"), Result[bytes])
    assert_type(await fetch.using(priority=7).aenqueue("/"), Result[bytes])
    assert_type(await fetch.call("/"), bytes)
    assert_type(fetch.enqueue_many([("/",)]), list[Result[bytes]])
    assert_type(await fetch.aenqueue_many([("/",)]), list[Result[bytes]])
    assert_type(await count_words.aenqueue("to be"), Result[int])
    assert_type(await count_words.aenqueue_many([("to be",)]), list[Result[int]])


async def of_what_runs_here() -> None:
    assert_type(count_stock(), int)
    assert_type(count_stock.enqueue(), Result[int])
    assert_type(await poll(), str)
    assert_type(poll.enqueue().get(), str)
    assert_type(letter("ann@example.com"), int)
    assert_type(letter.later("ann@example.com").get(), int)
    assert_type(letter.using(delay_seconds=3).later("ann@example.com"), Result[int])
    assert_type(await parcel(2.5), str)
    assert_type(parcel.later(2.5), Result[str])
    assert_type(mail.run_once(wait=1), bool)


def of_a_class() -> None:
    assert_type(invoker.enqueue(Charge(100)), Result[int])
    assert_type(invoker.enqueue(Refund(100), delay=60).get(), str)


def of_batches() -> None:
    """A call of these is not a call of the function: any arguments, any result."""
    assert_type(index(7), Result[Any])
    assert_type(index.enqueue_many([(7,), (8,)]), list[Result[Any]])
    assert_type(Notify.enqueue(1, 2), list[Result[Any]])


def from_an_id(id: str) -> Result:
    assert_type(Result(id), Result[Any])
    assert_type(Result(id, queue_name="slow").get(), Any)
    known: Result[int] = Result(id)
    assert_type(known.get(), int)
    return known
