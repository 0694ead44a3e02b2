"""What Django's own tests use of its two backends, over djqueue: they stand in for ``dummy`` and ``immediate``."""

from djqueue import queues
from djqueue.tasks import DjqueueBackend
from djqueue.testing import run_due


class DummyBackend(DjqueueBackend):
    """Keeps what is enqueued, and runs nothing."""

    ids: list[str] = []

    @property
    def results(self):
        return [self.get_result(id) for id in self.ids]

    def enqueue_many(self, task, calls):
        results = super().enqueue_many(task, calls)
        self.ids.extend(result.id for result in results)
        return results

    def clear(self):
        self.ids.clear()
        for alias in queues:
            queues[alias].flush()


class ImmediateBackend(DjqueueBackend):
    """Runs what is enqueued before it returns."""

    def enqueue_many(self, task, calls):
        results = super().enqueue_many(task, calls)
        run_due()
        for result in results:
            result.refresh()
        return results
