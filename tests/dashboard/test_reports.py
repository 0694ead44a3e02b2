"""A report has the same columns in the terminal, as JSON and on its page."""

import json
import re

import pytest

from djqueue.backends.entries import Entry
from tests.dashboard.test_pages import get
from tests.management.test_operator_commands import run, run_json

pytestmark = pytest.mark.backends("memory", database=True)


def test_who_ran_the_last_attempt_that_failed_is_shown_in_all_forms(queue, superuser):
    errors = json.dumps([{"consumer": "web-1:42:beef", "reason": "out of paper"}])
    queue.put([Entry(b"", "one-0001", command="shop.commands.ship", errors=errors)])
    queue.fail(queue.claim(1))
    assert run_json("queue_errors", "list")[0]["worker"] == "web-1:42:beef"
    head, line = run("queue_errors", "list").splitlines()
    assert "worker" in head.split() and "web-1:42:beef" in line
    page = get(superuser, "messages/", state="failed")
    assert re.search(r'data-label="Worker"[^>]*>web-1:42:beef<', page)
