"""What is told of a task that failed and is run again."""

from __future__ import annotations

from typing import Any

from djqueue.testing.conformance.adapter import Adapter


class Retrying(Adapter):
    """A backend that tries again, by ``retrying``. Django has no option for it, but says what results show of it."""

    def test_between_two_attempts_a_task_is_ready_and_tells_the_first(self):
        result = self._enqueued(self.tasks.fail_once)
        between = self._after_an_attempt(result)
        self.assert_status(between, "READY")
        self.assertEqual((between.attempts, len(between.worker_ids)), (1, 1))
        self.assertEqual([error.exception_class for error in between.errors], [ValueError])
        self.assertIsNotNone(between.started_at, "started_at after the first attempt")
        self.assertEqual(between.last_attempted_at, between.started_at)
        self.assertIsNone(between.finished_at, "finished_at between two attempts")
        self.assertIs(between.is_finished, False)
        self.end_of(result)

    def test_a_task_that_succeeds_at_last_keeps_its_errors(self):
        result = self._enqueued(self.tasks.fail_once)
        between = self._after_an_attempt(result)
        end = self.end_of(result)
        self.assert_succeeded(end, ["builtins.ValueError"])
        self.assertEqual((end.attempts, len(end.worker_ids), len(end.errors)), (2, 2, 1))
        self.assertEqual(end.started_at, between.started_at, "started_at is the first attempt's")
        self.assertGreater(end.last_attempted_at, end.started_at, "last_attempted_at is the newest attempt's")
        self.assertLessEqual(end.last_attempted_at, end.finished_at)
        self.assertEqual(self._attempts(result), [1, 2], "context.attempt counts from 1")

    def test_a_task_that_fails_at_last_has_an_error_for_each_attempt(self):
        result = self._enqueued(self.tasks.fail_always)
        end = self.end_of(result)
        self.assert_status(end, "FAILED")
        self.assertEqual((end.attempts, len(end.worker_ids), len(end.errors)), (2, 2, 2))
        lines = [error.traceback.rstrip().rpartition("\n")[2] for error in end.errors]
        self.assertEqual(lines, [f"ValueError: {result.args[0]} fails at attempt {number}" for number in (1, 2)])

    def test_task_finished_is_sent_once_at_the_end(self):
        for task, last in [(self.tasks.fail_once, "SUCCESSFUL"), (self.tasks.fail_always, "FAILED")]:
            with self.subTest(task.name):
                result = self._enqueued(task)
                self.end_of(result)
                told = [event for event in self.events_of(result) if event.signal == "task_finished"]
                self.assertEqual([str(event.status.value) for event in told], [last])
                self.assertEqual(len(told[0].result.worker_ids), 2)

    # ---- steps

    def _enqueued(self, task: Any) -> Any:
        if self.retrying is None:
            self.skipTest("retrying is None: this backend has no retries")
        self.needs("supports_get_result")
        return task.using(backend="retrying").enqueue(self.name("retried"))

    def _after_an_attempt(self, result: Any) -> Any:
        """The result once the first attempt has ended."""

        def tried() -> Any:
            self.run_due()
            now = self.task_backend("retrying").get_result(result.id)
            return now if now.errors else None

        return self.wait_for(tried, f"a first attempt of {result.task.name} with its error")

    def _attempts(self, result: Any) -> list[int]:
        return [number for name, number in self.tasks.attempts if name == result.args[0]]
