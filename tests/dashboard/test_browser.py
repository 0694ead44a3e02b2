"""The dashboard in a browser: what is clicked happens, and every page fits, at both widths and in both schemes.

DJQUEUE_WRITE_SCREENSHOTS=1 writes the pictures in docs/images anew.
"""

import json
import os
from dataclasses import replace

import pytest
from django.http import HttpRequest

from djqueue import crontab, operations, queues, schedules
from djqueue.backends.entries import READY
from djqueue.decorators import queue_command
from djqueue.models import QueueMessage
from djqueue.operations.actions import record
from djqueue.operations.messages import find_message
from djqueue.registry import registry
from djqueue.running.consumers import Running
from tests.dashboard.calls import counted, heartbeat
from tests.dashboard.conftest import ROOT, log_in
from tests.support import browser
from tests.support.browser import SCHEMES, WIDTHS, Browser
from tests.support.consumer import message_for
from tests.support.processes import ROOT as PROJECT

IMAGES = PROJECT / "docs" / "images"
LARGEST = 60_000
NARROW, WIDE = min(WIDTHS), max(WIDTHS)
PAGES = ("", "queues/", "failed/", "messages/", "consumers/", "lanes/", "schedules/", "history/", "commands/")
FURTHER = ("schedules/edit/", "commands/one/?queue=default&command=shop.commands.tell_the_warehouse")
OF_THE_ADMIN = "span.visually-hidden"
TRACEBACK = """Traceback (most recent call last):
  File "/srv/shop/commands.py", line 31, in tell_the_warehouse
    requests.post(WAREHOUSE, json={"order": order}, timeout=10)
ConnectionError: the warehouse does not answer
"""
NAMES = ("send_receipt", "tell_the_warehouse", "import_stock")


def with_policy(get_response):
    """A middleware: browsers refuse what is not a file of this site."""

    def answer(request: HttpRequest):
        response = get_response(request)
        response["Content-Security-Policy"] = "default-src 'self'"
        return response

    return answer


@pytest.fixture
def shop():
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
def ids(queue, shop):
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
def test_the_dashboard_in_a_browser(queue, ids, live_server, settings, tmp_path):
    if reason := browser.missing():
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(reason)
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, f"{__name__}.with_policy"]
    with Browser() as window:
        site = live_server.url + ROOT
        log_in_with(window, live_server.url)
        every_page_fits(window, site, ids, tmp_path)
        pause_and_resume(window, site)
        refresh_and_keep_a_selection(window, site)
        retry(window, site, ids["failed"])
        assert console(window) == []


def log_in_with(window: Browser, site: str):
    session = log_in(superuser=True).cookies["sessionid"].value
    window.open(f"{site}/admin/login/")
    window.driver.add_cookie({"name": "sessionid", "value": session, "path": "/"})
    window.errors()  # the icon of the page, which no site has to have


def every_page_fits(window: Browser, site: str, ids: dict[str, str], folder):
    faults = {}
    one = f"message/?queue=default&id={ids['retried']}"
    for path in (*PAGES, *FURTHER, one, "messages/?state=nothing"):
        both = SCHEMES if path in ("", one) else ("light",)
        for width, scheme in [(width, scheme) for width in WIDTHS for scheme in both]:
            window.open(site + path, width, scheme)
            window.until("return document.querySelector('.djq-tabs a')")
            found = [fault for fault in window.overflow() if not fault.startswith(OF_THE_ADMIN)] + console(window)
            faults |= {f"{path} {width} {scheme}": found} if found else {}
            keep(window, path, ids, width, scheme, folder)
    assert faults == {}


def pause_and_resume(window: Browser, site: str):
    window.open(site + "queues/", WIDE)
    window.click(".djq-more summary")
    window.fill(why="the warehouse is closed")
    window.click(".djq-more[open] button")
    window.until("return /is paused/.test(document.querySelector('.messagelist').textContent)")
    [pause] = operations.pauses()
    assert (pause.name, pause.why, pause.by) == ("default", "the warehouse is closed", "ann")
    window.click("button:not([disabled]).djq-button")  # the first of the page: Resume
    window.until("return /is resumed/.test(document.querySelector('.messagelist').textContent)")
    assert operations.pauses() == []


REFRESH = "document.dispatchEvent(new Event('visibilitychange'))"
ROWS = "document.querySelectorAll('.djq-table tbody tr').length"


def refresh_and_keep_a_selection(window: Browser, site: str):
    """As it does every few seconds."""
    window.open(site + "messages/?queue=other", WIDE)
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
    assert window.run("return document.querySelector('.djq-live').textContent").split() == [
        "Not",
        "refreshed",
        "Refresh",
    ]


def retry(window: Browser, site: str, id: str):
    window.open(f"{site}message/?queue=default&id={id}", NARROW)
    assert "line 31, in tell_the_warehouse" in window.run("return document.querySelector('pre').textContent")
    window.open(site + "failed/", NARROW)
    window.click("button[value=requeue]")
    window.until("return /Retry 3 messages/.test(document.querySelector('.djq-confirm').textContent)")
    assert find_message(queues["default"], id).state == "failed"
    window.click(".djq-confirm button")
    window.until("return /3 messages retried/.test(document.querySelector('.messagelist').textContent)")
    assert find_message(queues["default"], id).state == READY


def console(window: Browser) -> list[str]:
    return [error for error in window.errors() if "favicon" not in error]


def keep(window: Browser, path: str, ids: dict[str, str], width: int, scheme: str, folder):
    """The picture for the docs, if it is wanted; that in the repository is small in any case."""
    name = {"": "dashboard", "failed/": "dashboard-failed"}.get(path, "dashboard-message")
    name += "" if scheme == "light" else "-dark"
    wanted = {("", WIDE), ("failed/", NARROW), (f"message/?queue=default&id={ids['retried']}", WIDE)}
    if (path, width) not in wanted or (scheme == "dark" and path != ""):
        return
    target = IMAGES / f"{name}.png"
    if os.environ.get("DJQUEUE_WRITE_SCREENSHOTS"):
        image = pytest.importorskip("PIL.Image", reason="Pillow makes the pictures small")
        with image.open(window.screenshot(folder / target.name, height=560 if width == NARROW else None)) as picture:
            picture.convert("RGB").quantize(256).save(target, optimize=True)
    assert 0 < target.stat().st_size < LARGEST, f"{name}: write it anew with DJQUEUE_WRITE_SCREENSHOTS=1"
