"""What is tested where other backends of Django's tasks are installed: on Python 3.11, as one of them needs the package
django-tasks, which must not be next to Django 6."""

import sys

collect_ignore = ["test_moving.py"] if sys.version_info >= (3, 12) else []
