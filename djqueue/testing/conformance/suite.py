"""The whole suite."""

from __future__ import annotations

from djqueue.testing.conformance.declaring import Declaring
from djqueue.testing.conformance.enqueueing import Enqueueing
from djqueue.testing.conformance.results import Results
from djqueue.testing.conformance.retrying import Retrying
from djqueue.testing.conformance.running import Running
from djqueue.testing.conformance.transactions import Transactions


class TaskBackendConformance(Declaring, Enqueueing, Running, Results, Retrying, Transactions):
    """The contract of a backend of ``django.tasks``. Mix it into a TestCase of Django's, set ``backend`` to what TASKS
    says of it, and write ``run_due``, which runs its worker until nothing is due.

    A ``supports_*`` flag that is false is tested too: what it stands for must be refused as Django says. djqueue need
    not be in INSTALLED_APPS.
    """
