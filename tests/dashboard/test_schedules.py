"""Schedules on the dashboard: those made at run time are added, changed and removed, and it is said what is wrong."""

import re
from dataclasses import dataclass
from html import unescape

import pytest
from django.contrib.admin.models import LogEntry

from djqueue import BatchCommand, Route, crontab, operations, schedules
from djqueue.decorators import periodic_command
from djqueue.exceptions import InvalidMessage
from djqueue.messages.envelope import Envelope
from tests.dashboard.calls import send_receipt, transfer
from tests.dashboard.conftest import ROOT, log_in, messages_shown
from tests.support.consumer import only

pytestmark = pytest.mark.backends("memory", database=True)
STORES = pytest.mark.backends("memory", "sqlite", "redis", database=True)
EDIT = ROOT + "schedules/edit/"
DAILY = {"kind": "crontab", "when": "30 2 * * *", "zone": "Europe/Berlin", "missed": "skip", "max_lateness": "30m"}


@periodic_command(crontab(hour=3, minute=0))
def nightly():
    """At night."""


@dataclass
class Parcel:
    """A request that JSON carries as fields."""

    number: int


class Ship(BatchCommand):
    @classmethod
    def route(cls, *requests: Parcel) -> list[Route]:
        return [Route(str(request.number)) for request in requests]

    def perform(self, *requests: Parcel) -> None:
        """Never run."""


@pytest.fixture(autouse=True)
def _none_left():
    yield
    for one in schedules.list():
        schedules.remove(one.name)


@pytest.fixture
def hourly():
    """A schedule whose command has nothing that is sensitive, with an option of its own."""
    return schedules.add("hourly", transfer.using(priority=5), args=("acc-1",), every=3600)


def fields_of(browser, name: str = "") -> dict[str, str]:
    """What the form for a schedule would send."""
    text = browser.get(EDIT, {"name": name} if name else {}).content.decode().partition('class="djq-form"')[2]
    given = dict(re.findall(r'<input[^>]*name="(\w+)"[^>]*value="([^"]*)"', text))
    given |= dict(re.findall(r'<textarea[^>]*name="(\w+)"[^>]*>\s*(.*?)</textarea>', text, re.S))
    given |= dict(re.findall(r'<select name="(\w+)".*?<option value="(\w+)" selected>', text, re.S))
    return {key: unescape(value) for key, value in given.items()}


def save(browser, known: str = "", /, **changes: str):
    """The answer to the form for a schedule, filled in."""
    at = f"{EDIT}?name={known}" if known else EDIT
    return browser.post(at, fields_of(browser, known) | changes)


def errors_of(page) -> list[str]:
    found = re.findall(r'<p class="(?:djq-red|errornote)"[^>]*>(.*?)</p>', page.content.decode(), re.S)
    return [unescape(one) for one in found]


@STORES
def test_one_is_added_changed_and_removed(queue, superuser):
    given = {"name": "nightly report", "command": send_receipt.name, "arguments": '["ann@example.com", 2]', **DAILY}
    assert save(superuser, **given)["Location"] == ROOT + "schedules/"
    [made] = schedules.list()
    assert (made.args, made.timetable.crontab) == (("ann@example.com", 2), crontab.parse("30 2 * * *", "Europe/Berlin"))
    assert (made.plan.rule.missed, made.plan.rule.max_lateness.total_seconds()) == ("skip", 1800.0)
    assert save(superuser, "nightly report", kind="every", when="90", zone="").status_code == 302
    [changed] = schedules.list()
    assert (str(changed.timetable), changed.args) == ("every 90 s", ("ann@example.com", 2))
    remove = {"action": "remove_schedule", "name": "nightly report"}
    assert "Remove the schedule nightly report?" in superuser.post(ROOT + "act/", remove).content.decode()
    superuser.post(ROOT + "act/", remove | {"confirmed": "yes"})
    assert schedules.list() == []
    assert [one.action for one in operations.actions()] == ["remove schedule", "change schedule", "add schedule"]
    assert {one.by for one in operations.actions()} == {"superuser"} and LogEntry.objects.count() == 3


def test_what_is_not_changed_stays(queue, superuser, hourly):
    assert save(superuser, "hourly", missed="all").status_code == 302
    [now] = schedules.list()
    assert (now.timetable, now.plan.since, now.call) == (hourly.timetable, hourly.plan.since, hourly.call)
    assert (now.plan.rule.missed, now.plan.carried | now.plan.plain) == ("all", {"priority": 5})
    assert save(superuser, "hourly", arguments='{"account": "acc-2"}').status_code == 302
    assert schedules.list()[0].call == ((), {"account": "acc-2"})


@pytest.mark.parametrize("serializer", ["pickle", "json"])
def test_a_request_of_a_batch_command_is_kept(queue, superuser, settings, serializer):
    settings.QUEUE_SERIALIZER = serializer
    made = schedules.add("parcel", Ship, (Parcel(7),), every=3600)
    assert fields_of(superuser, "parcel")["arguments"] == "" and save(superuser, "parcel", when="60").status_code == 302
    [now] = schedules.list()
    assert (str(now.timetable), now.call) == ("every 60 s", made.call)


def test_a_second_click_does_nothing_more(queue, superuser, hourly):
    form = fields_of(superuser, "hourly") | {"when": "60"}
    superuser.post(f"{EDIT}?name=hourly", form)
    superuser.post(f"{EDIT}?name=hourly", form)
    assert "That was done already." in messages_shown(superuser) and len(operations.actions()) == 1


@pytest.mark.parametrize(
    "changes, text",
    [
        ({"name": "hourly"}, "There is a schedule of this name"),
        ({"name": ""}, "This field is required."),
        ({"command": "os.path.join"}, "There is no command 'os.path.join'"),
        ({"command": "tests.dashboard.calls.send_receit"}, "did you mean 'tests.dashboard.calls.send_receipt'?"),
        ({"arguments": "acc-1"}, "That is no JSON"),
        ({"arguments": "7"}, "Give a list or an object: [7] for one argument."),
        ({"arguments": "[]"}, "missing a required argument: 'account'"),
        ({"arguments": '["' + "x" * 2000 + '"]'}, "1000 are allowed"),
        ({"when": "soon"}, "'soon' is no time: give seconds"),
        ({"when": "0"}, "every is 0.0"),
        ({"zone": "Europe/Berlin"}, "An interval has no time zone"),
        ({"kind": "crontab", "when": "61 * * * *"}, "legal values are 0-59"),
        ({"kind": "crontab", "when": "1 2 * * *", "zone": "Mars/Olympus"}, "There is no such time zone"),
        ({"kind": "rrule", "when": "DAILY"}, "rrule is 'DAILY'"),
        ({"missed": "some"}, "Select a valid choice"),
        ({"max_lateness": "0.5"}, "max_lateness is 0.5"),
    ],
)
def test_what_is_wrong_is_said_at_its_field(queue, superuser, hourly, settings, changes, text):
    settings.QUEUE_MAX_MESSAGE_SIZE = 1000
    good = {"name": "new", "command": transfer.name, "arguments": '["acc-1"]', "kind": "every", "when": "60"}
    page = save(superuser, **{**good, **changes})
    [error] = errors_of(page)
    assert (page.status_code, text in error) == (200, True), error
    assert [one.name for one in schedules.list()] == ["hourly"] and operations.actions() == []


def test_one_that_is_declared_in_the_code_is_not_changed(queue, superuser):
    with only(nightly, transfer):
        page = superuser.get(ROOT + "schedules/").content.decode()
        assert "declared in the code" in page and "edit/?name" not in page and "UTC" in page
        assert superuser.get(EDIT, {"name": nightly.name})["Location"] == ROOT + "schedules/"
        assert "is declared in the code: change or remove it there" in messages_shown(superuser)
        [error] = errors_of(save(superuser, name=nightly.name, command=transfer.name, arguments='["a"]', when="60"))
        assert "is declared in the code" in error
    superuser.get(EDIT, {"name": "gone"})
    assert "There is no schedule &#x27;gone&#x27;" in messages_shown(superuser)


def test_arguments_are_shown_to_those_who_may_see_them(queue, superuser, hourly):
    schedules.add("secret", send_receipt, args=("ann@example.com", 2), every=60)
    editor = log_in("view_dashboard", "edit_schedules", name="eve")
    assert fields_of(superuser, "hourly")["arguments"] == '["acc-1"]' and fields_of(editor, "hourly")["arguments"] == ""
    page = superuser.get(EDIT, {"name": "secret"}).content.decode()
    assert "send_receipt(address=***, order=2)" in unescape(page) and "ann@example.com" not in page
    assert "order=2" not in editor.get(EDIT, {"name": "secret"}).content.decode()
    assert save(editor, "secret", command=transfer.name).status_code == 200, "the arguments stay with their command"
    assert save(editor, "secret", when="120").status_code == 302
    assert {one.name: one.args for one in schedules.list()}["secret"] == ("ann@example.com", 2)
    viewer = log_in("view_dashboard", "pause", "run", name="bob")
    assert (viewer.get(EDIT).status_code, viewer.post(EDIT, {"name": "x"}).status_code) == (403, 403)
    assert "schedules/edit/" not in viewer.get(ROOT + "schedules/").content.decode()


def test_arguments_that_cannot_be_read_are_given_anew(queue, superuser, hourly, monkeypatch):
    def fail(self):
        raise InvalidMessage("its class is gone")

    with monkeypatch.context() as patch:
        patch.setattr(Envelope, "arguments", fail)
        assert "cannot be shown" in superuser.get(EDIT, {"name": "hourly"}).content.decode()
        assert any("its class is gone" in one for one in errors_of(save(superuser, "hourly", when="60")))
        assert save(superuser, "hourly", arguments='["acc-3"]').status_code == 302
    assert schedules.list()[0].args == ("acc-3",)
