"""Django's commands for the example site."""

import os
import sys

try:
    from django.core.management import execute_from_command_line
except ImportError:
    sys.exit(
        f"{sys.executable} has no Django: use .venv-demo/bin/python example_project/manage.py, "
        "which `make demo` makes in the folder above."
    )

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    execute_from_command_line(sys.argv)
