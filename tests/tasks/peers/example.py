"""How the suite is used, for the documents: the backend of django-tasks-db."""

from django.core.management import call_command
from django.test import TransactionTestCase

from djqueue.testing.conformance import TaskBackendConformance


class TestDatabaseBackend(TaskBackendConformance, TransactionTestCase):
    backend = {"BACKEND": "django_tasks_db.DatabaseBackend"}
    transactional = True

    def run_due(self):
        for alias in self.tasks_setting():
            call_command("db_worker", "--batch", "--queue-name=*", f"--backend={alias}", "--no-reload")
