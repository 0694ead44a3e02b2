"""A queue of each backend that Django's tasks go to."""

import pytest

from djqueue.tasks.compat import task_backends
from tests.tasks import tasks

TASKS = {"default": {"BACKEND": "djqueue.tasks.DjqueueBackend", "QUEUES": []}}


@pytest.fixture(autouse=True)
def _tasks(settings):
    settings.TASKS = TASKS
    tasks.seen.clear()
    tasks.release.clear()
    yield
    tasks.release.set()


@pytest.fixture
def configure_backend(settings):
    """Have the one backend of tasks made of other parameters; returns it."""

    def use(**params):
        settings.TASKS = {"default": {**TASKS["default"], **params}}
        return task_backends["default"]

    return use


@pytest.fixture
def task_signals():
    """The signals of tasks, in order: name, sender, status of the result when it was sent, result."""
    from djqueue.tasks import compat

    received, receivers = [], []
    for name in ("task_enqueued", "task_started", "task_finished"):

        def receiver(sender, task_result, name=name, **kwargs):
            received.append((name, sender, str(task_result.status), task_result))

        signal = getattr(compat, name)
        signal.connect(receiver)
        receivers.append((signal, receiver))
    yield received
    for signal, receiver in receivers:
        signal.disconnect(receiver)
