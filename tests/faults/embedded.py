"""A program that configures Django by itself and runs a consumer: ``python -m tests.faults.embedded LEASE``.

No other process can load its settings.
"""

import logging
import sys

import django
from django.conf import settings

from tests import site_settings

if __name__ == "__main__":
    settings.configure(**{name: getattr(site_settings, name) for name in dir(site_settings) if name.isupper()})
    django.setup()
    from djqueue import Consumer

    logging.basicConfig(level=logging.INFO)
    sys.exit(Consumer(periodic=False, lease=float(sys.argv[1]), delay=0.02, max_delay=0.1).run())
