"""The dashboard in a browser: every page fits, at both widths and in both schemes, and refreshes itself.

`make screenshots` writes the pictures in docs/images anew.
"""

import json
from dataclasses import replace

import pytest

from djqueue import crontab, queues, schedules
from djqueue.decorators import queue_command
from djqueue.models import QueueMessage
from djqueue.operations.actions import record
from djqueue.registry import registry
from djqueue.running.consumers import Running
from tests.dashboard.calls import counted, heartbeat
from tests.dashboard.windows import Window, dashboard
from tests.support.browser import SCHEMES, WIDTHS
from tests.support.consumer import message_for
from tests.support.screenshots import keep

NARROW, WIDE = min(WIDTHS), max(WIDTHS)
PAGES = ("", "queues/", "failed/", "messages/", "consumers/", "lanes/", "schedules/", "history/", "commands/")
FURTHER = ("schedules/edit/", "commands/one/?queue=default&command=shop.commands.tell_the_warehouse")
TRACEBACK = """Traceback (most recent call last):
  File "/srv/shop/commands.py", line 31, in tell_the_warehouse
    requests.post(WAREHOUSE, json={"order": order}, timeout=10)
ConnectionError: the warehouse does not answer
"""
NAMES = ("send_receipt", "tell_the_warehouse", "import_stock")


@pytest.fixture
def shop_commands():
    """Commands of a shop."""
    made = []
    for name in NAMES:

        def command(order=0):
            """Never run."""

        command.__module__, command.__qualname__, command.__name__ = "shop.commands", name, name
        made.append(queue_command(command))
    yield
    for one in made:
        registry.unregister(one)


@pytest.fixture
def ids(queue, shop_commands):
    """A shop whose warehouse does not answer: messages by what is of interest in them."""
    now = queue.now()
    errors = [_error(now - 95, 1), _error(now - 62, 2)]
    broken = [_message(queue, "tell_the_warehouse", order, errors) for order in range(3)]
    queue.put(broken)
    queue.fail([replace(lease, entry=broken[number]) for number, lease in enumerate(queue.claim(3))])
    queue.put([_message(queue, "send_receipt", order) for order in range(40)])
    queue.complete(queue.claim(40))
    queue.put([_message(queue, "import_stock", order) for order in range(2)])
    held = [lease.entry.id for lease in queue.claim(2, owner="web-1:42:beef")]
    retried = _message(queue, "tell_the_warehouse", 42, errors, delay=300.0, attempts=2, failures=2)
    queue.put([retried])
    queues["other"].put([_message(queues["other"], "send_receipt", order) for order in range(12)])
    QueueMessage.objects.filter(entry_id__in=[retried.id, *held]).update(created=int((now - 120) * 1e6))
    runs = [Running(id, "shop.commands.import_stock", now - 40 * ago) for id, ago in zip(held, (2, 1), strict=True)]
    facts = {"busy": 2, "running": runs, "release": "2.1", "memory": 61.0, "ran": 1840, "started": now - 7200}
    heartbeat(queue, "web-1:42:beef", queues=(queue.base_name,), **facts)
    heartbeat(queue, "web-2:17:dead", 70.0, busy=1, started=now - 7200)
    record(queue, "requeue", "message " + broken[0].id, 1, "ann")
    schedules.add("stock of warehouse 7", "shop.commands.import_stock", (7,), crontab=crontab(hour=6, minute=0))
    for minutes in range(0, 60, 3):
        counted(queue, "shop.commands.send_receipt", minutes, 0.02 + minutes / 1e3, done=20 + minutes % 7 * 5)
        counted(
            queue, "shop.commands.tell_the_warehouse", minutes, 0.4, done=4, failed=minutes % 4, retried=minutes % 5
        )
    return {"failed": broken[0].id, "retried": retried.id}


def _error(at: float, attempt: int) -> dict:
    reason = "ConnectionError: the warehouse does not answer"
    known = {"exception": "requests.exceptions.ConnectionError", "traceback": TRACEBACK, "consumer": "web-1:42:beef"}
    return {"at": at, "attempt": attempt, "reason": reason, "description": "order 42", **known}


def _message(queue, name: str, order: int, errors: list | None = None, **fields):
    entry = message_for(queue, f"shop.commands.{name}", order=order)
    return replace(entry, errors=json.dumps(errors) if errors else "", **fields)


@pytest.mark.slow
@pytest.mark.backends("sqlite")
def test_the_dashboard_in_a_browser(queue, ids, live_server, settings):
    with dashboard(live_server.url, settings) as window:
        every_page_fits(window, ids)
        refresh_and_keep_a_selection(window)
        assert window.faults() == []


def every_page_fits(window: Window, ids: dict[str, str]):
    faults = {}
    one = f"message/?queue=default&id={ids['retried']}"
    pictures = {
        ("", WIDE, "light"): "dashboard",
        ("", WIDE, "dark"): "dashboard-dark",
        ("failed/", NARROW, "light"): "dashboard-failed",
        (one, WIDE, "light"): "dashboard-message",
    }
    for path in (*PAGES, *FURTHER, one, "messages/?state=nothing"):
        both = SCHEMES if path in ("", one) else ("light",)
        for width, scheme in [(width, scheme) for width in WIDTHS for scheme in both]:
            window.show(path, width, scheme)
            faults |= {f"{path} {width} {scheme}": found} if (found := window.faults()) else {}
            if name := pictures.get((path, width, scheme)):
                keep(window, name, height=560 if width == NARROW else None)
    assert faults == {}


REFRESH = "document.dispatchEvent(new Event('visibilitychange'))"
ROWS = "document.querySelectorAll('.djq-table tbody tr').length"


def refresh_and_keep_a_selection(window: Window):
    """As it does every few seconds."""
    window.show("messages/?queue=other")
    window.run("document.querySelector('.djq-table tbody').dataset.mine = 'same element'")
    queue = queues["other"]
    queue.put([_message(queue, "send_receipt", 99)])
    window.until(f"{REFRESH}; return {ROWS} === 13")
    window.click("input[name=message]")
    queue.put([_message(queue, "send_receipt", 100)])
    window.run(REFRESH)
    assert window.run("return document.querySelector('[data-chosen]').textContent") == "the 1 selected"
    window.click(".djq-all")
    assert window.run("return document.querySelectorAll('input[name=message]:checked').length") == 13
    window.click(".djq-all")
    window.until(f"{REFRESH}; return {ROWS} === 14")
    window.click(".djq-live button")
    shown = window.run("return document.querySelector('.djq-live').textContent")
    assert shown.split() == ["Not", "refreshed", "Refresh"]
