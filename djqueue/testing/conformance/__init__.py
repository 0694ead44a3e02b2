"""A suite for any backend of ``django.tasks``: whether it does what Django's documentation says."""

from djqueue.testing.conformance.suite import TaskBackendConformance

__all__ = ["TaskBackendConformance"]
