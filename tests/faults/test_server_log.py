"""What consumers in each other's way write into the log of their server: nothing that alarms."""

import psycopg
import pytest

from tests.faults.conftest import database_site
from tests.faults.processes import Consumers

pytestmark = pytest.mark.slow


@pytest.mark.server("postgres")
def test_consumers_that_contend_for_a_throttle_write_no_errors_into_the_log_of_postgresql(private_server, make_site):
    server = private_server("postgres")
    site = database_site(make_site, server, THROTTLE={"limit": 20, "window": 0.2})
    consumers = Consumers(site)
    ids = site.run("send_work", 400, 0).split()
    with psycopg.connect(server.url) as other:
        first = other.execute(
            "SELECT id FROM djqueue_message WHERE state = 0 ORDER BY seq LIMIT 1 FOR UPDATE"
        ).fetchone()
        consumers.start_many(3, "-t", 4)
        consumers.ledger.wait_all("end", [id for id in ids if id != first[0]])
    consumers.ledger.wait_all("end", ids)
    assert consumers.stop() == [0] * 3
    log = server.log.read_text(errors="replace")
    assert "ready to accept connections" in log
    assert [line for line in log.splitlines() if "ERROR:" in line] == []
