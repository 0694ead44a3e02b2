"""The settings of a consumer that a test starts as a process of its own: those of the tests, but for the environment.

DJQUEUE_SITE_DATABASES   JSON, alias to database name or path: the test databases of the process that started it
DJQUEUE_SITE_SETTINGS    JSON, any further settings; QUEUES above all
DJQUEUE_LEDGER           read by the test app: the file to which its commands append what they did
"""

import json
import os

from tests.settings import *  # noqa: F403
from tests.settings import DATABASES, find_driver

for _alias, _name in json.loads(os.environ.get("DJQUEUE_SITE_DATABASES", "{}")).items():
    DATABASES[_alias]["NAME"] = _name

INSTALLED_APPS = ["djqueue", "tests.app"]
"""Without Django's own, which no consumer needs, and which hundreds of processes would import."""
globals().update(json.loads(os.environ.get("DJQUEUE_SITE_SETTINGS", "{}")))
find_driver(DATABASES)
