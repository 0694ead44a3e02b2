"""Calls that a type checker refuses, each with its kind of error: under ``--strict`` a comment too many is one, too."""

from djqueue import Result, invoker, queue_command
from shop.commands import Charge, count_stock, count_words, fetch, letter, send


def calls() -> None:
    count_words(7)  # type: ignore[arg-type]
    count_words()  # type: ignore[call-arg]
    count_words("to be", 1)  # type: ignore[call-arg]
    count_words.enqueue("to be", most=1)  # type: ignore[call-arg]
    count_words.call(text=7)  # type: ignore[arg-type]
    send.using(delay=30).enqueue("ann@example.com", "one")  # type: ignore[arg-type]
    send.enqueue_many(["ann@example.com"])  # type: ignore[list-item]
    fetch(7)  # type: ignore[call-overload]
    count_stock(1)  # type: ignore[call-arg]
    letter.later(7)  # type: ignore[arg-type]


async def async_calls() -> None:
    await fetch.aenqueue(7)  # type: ignore[call-overload]
    await send.aenqueue(number=2)  # type: ignore[call-arg]


def results() -> None:
    words: str = count_words("to be").get()  # type: ignore[assignment]
    handle: Result[str] = count_words("to be")  # type: ignore[assignment]
    print(count_words("to be") + 1)  # type: ignore[operator]
    print(count_words("to be").resolt)  # type: ignore[attr-defined]
    count_words("to be").get(timout=3)  # type: ignore[arg-type]
    amount: str = invoker.enqueue(Charge(100)).get()  # type: ignore[assignment]
    print(words, handle, amount)


def options() -> None:
    send.using(dealy=30)  # type: ignore[call-arg]
    send.using(delay="soon")  # type: ignore[arg-type]
    invoker.enqueue("Charge")  # type: ignore[call-overload]
    queue_command(prioritty=7)  # type: ignore[call-overload]
