"""The tasks that a backend without ``supports_async_task`` refuses to declare."""

from __future__ import annotations

from djqueue.testing.conformance.compat import task


@task
async def add_async(a, b=0):
    return a + b


@task(takes_context=True)
async def look_async(context):
    return [context.task_result.id, context.attempt]


@task
async def fail_async(text):
    raise ValueError(text)
