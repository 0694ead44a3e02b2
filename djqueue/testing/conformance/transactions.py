"""Tasks that are enqueued within a transaction."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from django.db import connections, transaction

from djqueue.testing.conformance import compat
from djqueue.testing.conformance.adapter import Adapter


class Undo(Exception):
    """Rolls a transaction back."""


class Transactions(Adapter):
    """Transactions of ``database``."""

    def test_a_task_can_be_enqueued_on_commit(self):
        """As Django's documentation does, by ``transaction.on_commit()``."""
        self._needs_transactions()
        undone, kept = self.name("undone"), self.name("kept")
        with suppress(Undo), transaction.atomic(using=self.database):
            transaction.on_commit(partial(self.tasks.note.enqueue, undone), using=self.database)
            raise Undo
        with transaction.atomic(using=self.database):
            transaction.on_commit(partial(self.tasks.note.enqueue, name=kept), using=self.database)
            self.assertEqual(self.tasks.ran, [])
        self.wait_until_ran(kept)
        self.assertFalse(self.ran_after_another(undone), "a task ran whose transaction was rolled back")

    def test_a_rollback_leaves_nothing(self):
        self._needs_transactions()
        if not self.transactional:
            self.skipTest("transactional is False: a task is enqueued whatever becomes of the transaction")
        undone = self.name("undone")
        with suppress(Undo), transaction.atomic(using=self.database):
            result = self.tasks.note.enqueue(undone)
            raise Undo
        self.assertFalse(self.ran_after_another(undone), "a task ran whose transaction was rolled back")
        if self.task_backend().supports_get_result:
            with self.assertRaises(compat.TaskResultDoesNotExist):
                self.task_backend().get_result(result.id)

    def test_a_task_that_is_enqueued_within_a_transaction_runs_after_it(self):
        self._needs_transactions()
        if not self.transactional:
            self.skipTest("transactional is False: a task may run before its transaction has ended")
        with transaction.atomic(using=self.database):
            result = self.tasks.add.enqueue(1, b=2)
            self.assertEqual(str(result.status.value), "READY")
        self.assert_succeeded(self.end_of(result), 3)

    # ---- steps

    def _needs_transactions(self) -> None:
        self.needs_execution()
        if self.database not in self.databases:
            self.skipTest(f"the TestCase may not use the database {self.database!r}")
        if connections[self.database].in_atomic_block:
            self.skipTest("a TestCase is one transaction: use TransactionTestCase")
