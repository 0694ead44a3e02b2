"""What operators see while the clock of the web server is an hour ahead of that of the store."""

import re
import time

import pytest

from djqueue import operations, schedules
from djqueue.dashboard.rendering import ago
from djqueue.operations.clocks import Clocks
from djqueue.operations.health import GONE_LATELY
from tests.dashboard.calls import failed, heartbeat, send_receipt
from tests.dashboard.conftest import ROOT
from tests.dashboard.test_pages import text_of

pytestmark = pytest.mark.backends("memory", "sqlite", "redis", database=True)
HOUR = 3600.0


@pytest.fixture
def skewed_queue(queue, superuser, monkeypatch):
    """The queue. In memory its clock is an hour behind; servers keep theirs, and that of this process goes ahead."""
    real = time.time
    if queue.store.is_local:
        queue.clock = lambda: real() - HOUR
    else:
        monkeypatch.setattr(time, "time", lambda: real() + HOUR)
    assert 3590 < time.time() - queue.now() < 3610
    return queue


def test_facts_of_the_store_are_told_by_its_clock(skewed_queue, superuser):
    queue, now = skewed_queue, skewed_queue.now()
    heartbeat(queue, "web-1:42:live")
    heartbeat(queue, "web-1:43:dead", 60.0)
    operations.pause("queue", "default", for_=600, by="ann")
    schedules.add("often", send_receipt, args=("ann@example.com", 2), every=600)
    failed(1)
    later = send_receipt.using(delay=120).enqueue("ann@example.com", 2).id
    assert [(one.name, one.state) for one in operations.consumers()] == [
        ("web-1:42:live", "running"), ("web-1:43:dead", "gone"),
    ]  # fmt: skip
    assert {"paused"} <= {one.kind for one in operations.health()}
    assert GONE_LATELY > 60 and [one.name for one in operations.pauses()] == ["default"]
    [rates] = operations.queue_rates(["default"])
    assert 0 <= queue.now() - rates.points[-1].start < 120
    assert {reason.kind for reason in operations.explain(later).reasons} >= {"due", "queue_paused"}
    [due] = [reason for reason in operations.explain(later).reasons if reason.kind == "due"]
    assert "in 1m" in due.text or "in 2m" in due.text
    [often] = [one for one in operations.schedules() if one.name == "often"]
    assert now < often.next <= now + 601 and often.overdue is None
    pages = {page: text_of(superuser.get(ROOT + page)) for page in ("", "queues/", "messages/", "consumers/")}
    assert not [page for page, text in pages.items() if re.search(r"\b(59m|1h 0)", text)]
    assert re.search("made at run time every 600 s in (9m|10m)", text_of(superuser.get(ROOT + "schedules/")))
    assert "ends in 9m" in pages["queues/"]
    assert re.search(r"web-1:43:dead gone .*1m \d\ds ago", pages["consumers/"])


def test_what_never_was_is_no_time_ago(skewed_queue):
    assert ago(None, "default", Clocks()) == "-"
