"""The pages of the dashboard, as a browser gets them: what they tell, to whom, and at what cost."""

import json
import re
import time
from html import unescape

import pytest
from django.contrib import admin
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from djqueue import Throttle, queue_command, queues
from djqueue.backends.entries import Entry
from djqueue.messages.envelope import new_id
from djqueue.models import Dashboard
from djqueue.operations import explain_queue
from djqueue.running.ends import Progress
from djqueue.running.result_store import report_progress
from tests.backends.contract.toy import ToyQueue
from tests.dashboard.calls import failed, fill, new_key, send_receipt, transfer
from tests.dashboard.conftest import ROOT, log_in
from tests.support.consumer import run_one
from tests.support.markup import faults

pytestmark = pytest.mark.backends("memory", database=True)
STORES = pytest.mark.backends("memory", "sqlite", "redis", database=True)
SQLITE = pytest.mark.backends("sqlite")
EVIL = "<script>alert('x')</script>\"'>&"
PAGES = ("", "queues/", "failed/", "messages/", "consumers/", "lanes/", "schedules/", "history/", "commands/")


@queue_command(shard=lambda account: account, max_run=1, retry_on=[ConnectionError], backoff=300)
def call_customer(account):
    raise ConnectionError(f"{account} does not answer")


@queue_command(throttle=Throttle(1, 300))
def ask(account):
    """Seldom."""


def text_of(page) -> str:
    """What people read of a page."""
    return " ".join(re.sub("<[^>]+>", " ", page if isinstance(page, str) else page.content.decode()).split())


def get(browser, path: str = "", **query) -> str:
    page = browser.get(ROOT + path, query)
    assert page.status_code == 200, page
    return page.content.decode()


@STORES
def test_every_page_shows_what_is_there_and_escapes_it(queue, superuser):
    ids = fill(queue, EVIL)
    pages = {path: get(superuser, path) for path in PAGES}
    pages |= {f"one {state}": get(superuser, "message/", id=id) for state, id in ids.items()}
    pages["filtered"] = get(superuser, "messages/", command=EVIL, reason=EVIL, lane=EVIL, exception=EVIL)
    for path, page in pages.items():
        assert faults(page) == [], path
        assert "<script>alert" not in page and "<b>answer" not in page, path
        assert not re.search(r'<script(?![^>]* src=)|<style|\s(style|on\w+)="', page), (
            path  # a policy stops it
        )
    shown = {"", "queues/", "messages/", "consumers/", "lanes/", "schedules/", "one strange", "filtered"}
    assert {path for path, page in pages.items() if "&lt;script&gt;alert" in page} >= shown
    assert "ConnectionError" in pages["failed/"] and "send_receipt" in pages["commands/"]
    assert "send_receipt" in pages["history/"] and "paused" in pages["queues/"]
    assert "send_receipt(address=***, order=1)" in pages["one failed"] and "ann@" not in "".join(pages.values())


@STORES
def test_pages_of_empty_queues(queue, superuser):
    pages = {path: get(superuser, path) for path in PAGES}
    assert "No message has failed." in pages["failed/"]
    assert "There are no messages." in pages["messages/"]
    assert ("All is well." in pages[""]) == queue.store.is_local
    assert ("no consumer serves it" in pages[""]) != queue.store.is_local


def test_a_message_that_waits_says_why(queue, superuser):
    id = send_receipt.using(delay=600).enqueue("ann@example.com", 3).id
    page = get(superuser, "message/", queue="default", id=id)
    assert "Why does it not run?" in page and "enqueued with a delay" in page and ">Run now<" in page
    assert ">Retry<" not in page


def test_what_became_of_a_message_is_told_when_it_is_gone(queue, superuser):
    page = get(superuser, "message/", id=failed(2))
    assert "It ended as done" in page and "What became of it?" in page and "Ran for" in page
    unknown = superuser.get(ROOT + "message/", {"id": "never-seen"})
    assert unknown.status_code == 404 and "No queue has it" in unknown.content.decode()


@STORES
def test_a_result_that_is_kept_is_shown_to_those_who_may_see_it(queue, superuser):
    ids = [command.using(result_ttl=60).enqueue(*args).id for command, args in ((transfer, ("acc-1",)), (new_key, ()))]
    for _ in ids:
        run_one(queue)
    transferred, hidden = (get(superuser, "message/", id=id) for id in ids)
    assert "Returned" in transferred and "transferred &lt;acc-1&gt;" in transferred
    assert "<code>***</code>" in hidden and "kept secret" not in hidden
    assert "transferred" not in get(log_in("view_dashboard"), "message/", id=ids[0]).replace("calls.transfer", "")


@STORES
def test_a_result_alone_says_what_became_of_a_message(queue, superuser, settings):
    settings.QUEUE_HISTORY = None
    id = transfer.using(result_ttl=60).enqueue("acc-1").id
    run_one(queue)
    page = text_of(superuser.get(ROOT + "message/", {"id": id}))
    assert "It ended as done" in page and "transferred &lt;acc-1&gt;" in page
    assert transfer.name in page and "enqueued" in page and "attempt 1 began" in page and "ended: done" in page


def test_progress_is_shown_while_it_runs(queue, superuser):
    id = transfer.enqueue("acc-1").id
    queue.claim(1)
    assert "Progress" not in get(superuser, "message/", id=id)
    report_progress(queue, id, Progress(3, 10, "<b>rows</b>"))
    assert "Progress 3 of 10: &lt;b&gt;rows&lt;/b&gt;" in text_of(superuser.get(ROOT + "message/", {"id": id}))


def test_the_traceback_of_each_attempt_is_shown(queue, superuser):
    page = get(superuser, "message/", id=failed(1))
    assert "in send_receipt" in page and "no &lt;b&gt;answer&lt;/b&gt; for 1" in page and "djqueue/running" not in page


@STORES
def test_texts_that_no_encoding_has_are_shown(queue, superuser):
    """The name of a file may have half of a character, and so the text of an exception about it."""
    errors = json.dumps([{"at": 1.5e9, "reason": "no file \udcff", "exception": "\udcff", "traceback": "\udcff"}])
    queue.put([Entry(b"", "half-0001", command="shop.commands.read", errors=errors)])
    queue.failed.put([Entry(b"", "half-0002", command="shop.commands.read", errors=errors)])
    for path in PAGES:
        get(superuser, path)
    assert r"no file \udcff" in get(superuser, "message/", id="half-0001")
    assert "half-0002" in get(superuser, "messages/", queue="default", state="failed", exception="?")


# ---- Lists


def put(queue, *ids: str, **fields):
    queue.put([Entry(b"", id, command="shop.commands.ship", **fields) for id in ids])


def listed(page: str) -> list[str]:
    return re.findall(r'<a class="djq-id" title="([^"]+)"', page)


@STORES
def test_a_list_goes_on_over_pages(queue, superuser):
    put(queue, *(f"{number:04}" for number in range(60)))
    put(queues["other"], *(f"other-{number:04}" for number in range(60)))
    found, page = [], get(superuser, "messages/")
    while following := re.search(r'messages/\?([^"]+)">Next', page):
        found += listed(page)
        page = get(superuser, f"messages/?{following[1].replace('&amp;', '&')}")
    found += listed(page)
    assert len(found) == len(set(found)) == 120
    assert listed(get(superuser, "messages/", after="not:written-here")) == found[:50]


def test_a_filter_selects(queue, superuser):
    failed(1)
    failed(3)
    put(queue, "first-0001", lane="acc-1")
    put(queue, "second-0002", delay=60.0)
    assert listed(get(superuser, "messages/", command="ship", state="ready")) == ["first-0001"]
    assert listed(get(superuser, "messages/", lane="acc-*")) == ["first-0001"]
    assert listed(get(superuser, "messages/", id="0002")) == ["second-0002"]
    assert len(listed(get(superuser, "messages/", exception="connectionerror"))) == 2
    assert len(listed(get(superuser, "messages/", reason="for 3"))) == 1
    assert listed(get(superuser, "messages/", newer="1h", queue="other")) == []
    assert "is no age" in get(superuser, "messages/", older="yesterday")
    assert "There is no queue" in get(superuser, "messages/", queue="none") and "There is no state" in get(
        superuser, "messages/", state="lost"
    )


def test_the_age_of_what_failed_counts_from_its_failure_as_on_the_command_line(queue, superuser):
    queue.clock = lambda: time.time() - 7_200
    id = send_receipt.enqueue("ann@example.com", 1).id
    queue.clock = time.time
    run_one(queue)
    assert listed(get(superuser, "messages/", state="failed", newer="1h")) == [id]
    assert listed(get(superuser, "messages/", state="failed", older="1h")) == []
    assert listed(get(superuser, "messages/", older="1h")) == [id], "of all states it counts from the call"


def test_a_whole_id_leads_to_its_message(queue, superuser):
    put(queue, "a/b c&d")
    there = superuser.get(ROOT + "messages/", {"id": "a/b c&d"})
    assert there.status_code == 302
    assert "a/b c&amp;d" in superuser.get(there["Location"]).content.decode()


def test_failures_are_grouped_and_lead_to_their_messages(queue, superuser):
    ids = {failed(1), failed(3)}
    page = get(superuser, "failed/")
    assert re.search(r'data-label="Count"[^>]*>2<', page)
    there = re.search(r'messages/\?([^"]+)">\s*send_receipt', page)[1].replace("&amp;", "&")
    assert {*listed(get(superuser, f"messages/?{there}"))} == ids


@STORES
def test_of_many_failures_the_first_and_the_last_are_grouped(queue, superuser, monkeypatch):
    monkeypatch.setattr("djqueue.dashboard.failed.MOST_CHECKED", 4)
    for name in "aabb":
        fail_one(queue, name)
    assert counted_on(get(superuser, "failed/")) == {"a": "2", "b": "2"}
    for name in "bcd":
        fail_one(queue, name)
    page = get(superuser, "failed/")
    assert counted_on(page) == {"a": "2+", "c": "1+", "d": "1+"}
    assert "More has failed in default than is counted: the 2 messages that failed first and the 2" in page


def fail_one(queue, command: str):
    queue.put([Entry(b"", new_id(), command=command, errors=json.dumps([{"exception": "ValueError"}]))])
    queue.fail(queue.claim(1))


def counted_on(page: str) -> dict[str, str]:
    """The counts on the page of failures, by command."""
    return dict(re.findall(r'<th scope="row" title="(\w+)"[^>]*>.*?data-label="Count"[^>]*>([^<]+)<', page, re.S))


def test_a_lane_says_what_it_waits_for(queue, superuser):
    first, _, asked, _ = [command.enqueue("acc-1").id for command in (call_customer, call_customer, ask, ask)]
    run_one(queue), run_one(queue)
    page = get(superuser, "lanes/")
    assert "retry of its first message" in text_of(page) and "throttled" in text_of(page)
    assert first in page
    assert asked not in page


def test_it_says_that_not_all_lanes_were_looked_at(queue, superuser, monkeypatch):
    for module in ("djqueue.dashboard.lanes", "djqueue.operations.explaining"):
        monkeypatch.setattr(f"{module}.MOST_CHECKED", 2)
    call_customer.enqueue("acc-1")
    assert "were checked" not in text_of(get(superuser, "lanes/")) + explain_queue(queue).reasons[-1].text
    call_customer.enqueue("acc-2")
    assert "Of default the first 2 lanes by name were checked." in text_of(get(superuser, "lanes/"))
    assert explain_queue(queue).reasons[-1].text.endswith(" The first 2 lanes by name were checked.")


def test_the_history_is_filtered(queue, superuser):
    ids = {"failed": failed(1), "done": failed(2)}
    for status, id in ids.items():
        assert listed(get(superuser, "history/", status=status, command="send_*")) == [id]
    assert listed(get(superuser, "history/", command="nothing")) == []
    assert sorted(listed(get(superuser, "history/"))) == sorted(ids.values())


# ---- Who sees what


def test_the_admin_finds_it():
    assert admin.site.is_registered(Dashboard)


def test_staff_without_permission_see_nothing(queue, db):
    id = failed(1)
    stranger = log_in("retry", "view_arguments")
    assert {stranger.get(ROOT + path).status_code for path in PAGES} == {403}
    assert stranger.get(ROOT + "message/", {"id": id}).status_code == 403
    assert ROOT not in stranger.get("/admin/").content.decode()
    assert "login" in Client().get(ROOT)["Location"]


def test_arguments_and_actions_need_their_permissions(queue, db):
    id = failed(1)
    viewer = log_in("view_dashboard")
    pages = [get(viewer, path) for path in PAGES] + [get(viewer, "message/", id=id)]
    assert "order=1" not in "".join(pages) and "djqueue_dashboard_act" not in "".join(pages)
    assert not any(re.search(r'name="action"|value="requeue"', page) for page in pages)
    assert ROOT in viewer.get("/admin/").content.decode()
    assert "order=1" in get(log_in("view_dashboard", "view_arguments", name="eve"), "message/", id=id)


# ---- What cannot be shown


def test_a_backend_that_cannot_inspect_says_what_it_cannot(settings, db):
    toy = f"{ToyQueue.__module__}.{ToyQueue.__qualname__}"
    settings.QUEUES = {
        "default": {"CLASS": toy, "CONNECTION": {}, "STORE": False},
        "small": {"CLASS": toy, "CONNECTION": {}},
    }
    queues["default"].write("text")
    superuser = log_in(superuser=True)
    pages = {path: get(superuser, path) for path in PAGES}
    assert "Its backend cannot list its messages, show lanes, keep a history, be paused" in pages["queues/"]
    lacking = "Left out: 2 queues whose backend cannot list its messages: 'default' (ToyQueue)"
    assert lacking in unescape(pages["messages/"])
    assert "'default' (ToyQueue)" in unescape(pages["consumers/"])


def test_a_store_that_is_away_is_said_without_its_password(settings, db):
    redis = {
        "CLASS": "djqueue.backends.redis_backend.RedisQueue",
        "CONNECTION": "redis://:confidential@127.0.0.1:1/0",
    }
    settings.QUEUES = {"default": redis, "here": {"CLASS": "djqueue.backends.memory.MemoryQueue"}}
    superuser = log_in(superuser=True)
    answers = {path: superuser.get(ROOT + path) for path in PAGES}
    assert {page.status_code for page in answers.values()} == {200}, "what can be asked is shown"
    assert "The store of default cannot be asked" in text_of(answers["consumers/"])
    assert all("cannot be reached" in text_of(page) for page in answers.values())
    overview = text_of(answers[""])
    assert "critical default Queue" in overview and "critical here" not in overview
    assert not any("confidential" in page.content.decode() for page in answers.values())


# ---- What it costs


@SQLITE
def test_a_page_costs_the_same_however_much_there_is(queue, superuser):
    def queries(path: str) -> int:
        with CaptureQueriesContext(connection) as captured:
            get(superuser, path)
        return len(captured)

    put(queue, *(f"few-{number:04}" for number in range(60)))
    failed(1)
    paths = ("", "queues/", "messages/", "messages/?state=ready", "failed/", "history/", "commands/")
    few = {path: queries(path) for path in paths}
    put(queue, *(f"more-{number:04}" for number in range(600)))
    assert {path: queries(path) for path in paths} == few
    assert max(few.values()) < 40


@STORES
def test_a_throttle_says_how_much_of_it_is_used(backend, settings, db):
    config = backend.queues("default")
    settings.QUEUES = {"default": {**config["default"], "THROTTLE": {"limit": 5, "window": 3600}}}
    queue = queues["default"]
    put(queue, *"abcdefg")
    superuser = log_in(superuser=True)
    queue.complete(queue.claim(3))
    assert "not throttled now (at most 5 per 3600 s, 3 used)" in get(superuser, "queues/")
    queue.complete(queue.claim(3))
    page = get(superuser, "queues/")
    assert "throttled for " in page
    assert "(at most 5 per 3600 s, 5 used)" in page
    queue.reset()
