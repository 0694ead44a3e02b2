"""djqueue as a backend of Django's tasks: ``TASKS = {"default": {"BACKEND": "djqueue.tasks.DjqueueBackend"}}``."""

from djqueue.tasks.backend import DjqueueBackend
from djqueue.tasks.declaring import DjqueueTask, as_task, task

__all__ = ["DjqueueBackend", "DjqueueTask", "as_task", "task"]
