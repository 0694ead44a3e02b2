"""Tasks of Django. What their results are, django-stubs knows; Django itself has no types."""

from typing import Any, assert_type

from djqueue import task
from djqueue.tasks import as_task
from shop.commands import count_words, fetch


@task
def greet(name: str) -> str:
    return f"Hello {name}"


@task(priority=5, unique="queued")
async def welcome(name: str) -> str:
    return f"Welcome {name}"


@task(takes_context=True)
def attempts(context: Any, least: int) -> int:
    return max(least, int(context.attempt))


count_task = as_task(count_words)
fetch_task = as_task(fetch)


async def types() -> None:
    assert_type(greet.call("Ann"), str)
    assert_type(welcome.using(delay=3).call("Ann"), str)
    assert_type(await attempts.acall(least=3), int)
    assert_type(fetch_task.call("/"), bytes)
    greet.enqueue("Ann")
    attempts.enqueue(least=1)
    count_task.enqueue("to be", least=1)
    await welcome.aenqueue("Ann")


def mistakes() -> None:
    greet.enqueue(7)  # type: ignore[arg-type]
    welcome.using(delay=3).enqueue()  # type: ignore[call-arg]
    attempts.enqueue(None, 1)  # type: ignore[call-arg, arg-type]
    count_task.enqueue("to be", most=1)  # type: ignore[call-arg]
