"""docs/howto/walkthrough.rst, step by step in a browser: the example site under load, whose dashboard tells it all."""

import re
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.dashboard.windows import Window
from tests.support import browser, screenshots
from tests.support.demo import demo, log_in
from tests.support.processes import ROOT
from tests.support.screenshots import keep

pytest.importorskip("PIL", reason="the example project needs Pillow")
NARROW = 390
FOLLOW = """
const links = [...document.querySelectorAll("#djq-main a, .djq-tabs a")];
const link = links.find((one) => one.textContent.trim() === arguments[0]);
if (link) link.click();
return Boolean(link);
"""
RENAME = """
const texts = document.createTreeWalker(document.getElementById("djq-main"), NodeFilter.SHOW_TEXT);
while (texts.nextNode()) texts.currentNode.data = texts.currentNode.data.replaceAll(...arguments);
"""


@pytest.mark.slow
@pytest.mark.full
def test_a_person_finds_it_all():
    browser.demand()
    with TemporaryDirectory(prefix="gallery-") as name:
        with demo(Path(name), "--trouble") as address, Window(address) as window:
            log_in(window, address)
            window.run("localStorage.setItem('django.admin.navSidebarIsOpen', 'false')")
            walk = Walk(window, name)
            walk.what_is_wrong()
            walk.which_command_fails()
            walk.with_which_arguments()
            walk.why_does_it_wait()
            walk.which_consumer_died()
            walk.end_and_retry()
            walk.pause_and_resume()
            assert [error for error in window.errors() if "favicon" not in error] == []


class Walk:
    """The steps, each of which begins where a person would."""

    def __init__(self, window: Window, folder: str):
        self.window = window
        self.places = {folder: "/srv/gallery", str(ROOT): "/srv"}

    def what_is_wrong(self):
        self.window.show("")
        self.until("was last heard of")
        assert "is paused by make_trouble (the mail server is being moved)" in self.text()
        self.picture("walk-overview", 830)

    def which_command_fails(self):
        self.follow("Failed")
        rows = self.text(".djq-table")
        assert "send_parcel" in rows and "write_bill" in rows and "KeyError: 'GPB'" in rows
        self.picture("walk-failed", 340)

    def with_which_arguments(self):
        self.follow("write_bill")
        self.window.click("a.djq-id")
        self.until("currency='GPB'")
        assert "RATES[currency]" in self.text("pre") and "djqueue/running" not in self.text()
        self.picture("walk-message", 940)

    def why_does_it_wait(self):
        self.window.show("lanes/", NARROW, "dark")
        assert "retry of its first message" in self.text() and "throttled" in self.text()
        self.picture("walk-lanes-dark", 780)
        self.window.show("lanes/", NARROW)
        self.follow("trouble.commands.book_stock:north")
        self.window.click("tr + tr a.djq-id")
        self.until("for the retry of its first message")
        self.picture("walk-why", 700)
        others = {"send_newsletter": "is paused by make_trouble", "ask_customs": "is throttled until"}
        for command, reason in others.items():
            self.window.show(f"messages/?command={command}")
            self.window.click("a.djq-id")
            self.until(reason)

    def which_consumer_died(self):
        self.window.show("consumers/", scheme="dark")
        self.until("gone", ".djq-table")
        assert "cut_film" in self.text("tr.djq-over")
        self.picture("walk-consumers-dark", 420)

    def end_and_retry(self):
        self.window.open(self.window.site + "/queues/")
        self.window.click("form[action='/trouble/end/'] button")
        self.until("The services answer again", ".messagelist")
        self.window.show("failed/", NARROW)
        self.window.press("Retry all…", "send_parcel")
        self.until("Retry [0-9]+ messages?", ".djq-confirm")
        self.picture("walk-retry", 480)
        self.window.confirm("Retry")
        self.until("messages? requeued", ".messagelist")
        self.window.show("messages/?command=send_parcel&state=failed")
        self.until("No message matches")

    def pause_and_resume(self):
        self.window.show("queues/")
        self.window.press("Pause…", "default")
        self.window.fill(why="the parcel service asks for an hour")
        self.window.press("Pause", "default")
        self.window.wait_for_message("The queue default is paused.")
        self.picture("walk-paused", 440)
        self.window.press("Resume", "default")
        self.window.wait_for_message("The queue default is resumed.")

    def picture(self, name: str, height: int):
        """Keep what the window shows, without the folders of this machine."""
        for folder, shown in self.places.items():
            self.window.run(RENAME, folder, shown)
        keep(self.window, name, height)

    def follow(self, text: str):
        """Click the first link of the dashboard with this text."""
        self.window.until(FOLLOW, text)

    def until(self, pattern: str, selector: str = "main"):
        """Wait until the page says this; it refreshes itself."""
        script = "return new RegExp(arguments[0]).test(document.querySelector(arguments[1])?.textContent)"
        self.window.until(script, pattern, selector)

    def text(self, selector: str = "main") -> str:
        return " ".join(self.window.run("return document.querySelector(arguments[0]).textContent", selector).split())


def test_its_pictures_are_those_of_the_walk():
    page = (ROOT / "docs" / "howto" / "walkthrough.rst").read_text()
    shown = re.findall(r"images/(walk-[\w-]+)\.png", page)
    screenshots.check(*shown)
    assert {path.stem for path in screenshots.IMAGES.glob("walk-*.png")} == {*shown}
