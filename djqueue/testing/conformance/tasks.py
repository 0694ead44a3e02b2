"""The tasks that the suite enqueues. They note what they did in this process."""

from __future__ import annotations

import json

from djqueue.testing.conformance.compat import task

ran: list[str] = []
"""The names that ``note`` and ``fail_once`` were given, in the order in which they ran."""
attempts: list[tuple[str, int]] = []
"""What ``fail_once`` and ``fail_always`` were given, and the number of the attempt."""
interrupted: set[str] = set()


class Vanishing(Exception):
    """The suite removes it from this module."""


class Picky(Exception):
    """Neither pickle nor ``Picky(*error.args)`` makes another one."""

    def __init__(self, left, right):
        super().__init__(f"{left} and {right}")
        self.kept = lambda: (left, right)


@task
def add(a, b=0):
    return a + b


@task()
def echo(*args, **kwargs):
    return [args, kwargs]


@task
def note(name):
    ran.append(name)


@task(takes_context=True)
def look(context, *args):
    result = context.task_result
    return {
        "id": result.id,
        "attempt": context.attempt,
        "status": str(result.status.value),
        "path": result.task.module_path,
        "worker_ids": result.worker_ids,
        "started": result.started_at is not None,
        "given": result.args,
        "args": args,
    }


@task
def return_text(kind):
    return {"tuple": ("a", ("b",)), "bytes": b"caf\xc3\xa9", "range": range(3), "nested": {"a": ({"b": (1,)},)}}[kind]


@task
def return_object():
    return object()


@task
def fail(text):
    raise ValueError(text)


@task
def fail_deep():
    json.loads("{")


@task
def fail_within(text):
    try:
        raise KeyError("the cause")
    except KeyError as error:
        raise RuntimeError(text) from error


@task
def fail_pickily():
    raise Picky("left", "right")


@task
def fail_and_vanish():
    raise Vanishing("it was here")


@task
def leave():
    raise SystemExit("it leaves")


@task
def interrupt(name):
    """Only once, so that a worker to which it comes again is not interrupted for ever."""
    if name not in interrupted:
        interrupted.add(name)
        raise KeyboardInterrupt


@task
def note_later(name):
    note.enqueue(name)


@task
def vanish(value):
    return value


@task(takes_context=True)
def fail_once(context, name):
    attempts.append((name, context.attempt))
    if sum(one == name for one, _ in attempts) == 1:
        raise ValueError(f"{name} fails once")
    ran.append(name)
    return [error.exception_class_path for error in context.task_result.errors]


@task(takes_context=True)
def fail_always(context, name):
    attempts.append((name, context.attempt))
    raise ValueError(f"{name} fails at attempt {context.attempt}")


def plain(value):
    """Of which the suite makes tasks."""
    return value


async def plain_async(value):
    return value
