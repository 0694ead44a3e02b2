"""A report has the same columns in the terminal, as JSON and on its page."""

import re

import pytest

from tests.dashboard.calls import failed
from tests.dashboard.test_pages import get
from tests.management.test_operator_commands import run, run_json

pytestmark = pytest.mark.backends("memory", database=True)


def test_who_ran_the_last_attempt_that_failed_is_shown_in_all_forms(queue, boss):
    id = failed(1)
    [row] = run_json("queue_errors", "list")
    assert row["id"] == id and row["worker"]
    head, line = run("queue_errors", "list", "--full-ids").splitlines()
    assert "worker" in head.split() and row["worker"] in line
    page = get(boss, "messages/", state="failed")
    assert re.search(rf'data-label="Worker"[^>]*>{re.escape(row["worker"])}<', page)
