"""A browser that shows the dashboard: someone who may do all has logged in, and nothing comes from other hosts."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.http import HttpRequest

from tests.dashboard.conftest import ROOT, log_in
from tests.support import browser
from tests.support.browser import Browser

OF_THE_ADMIN = "span.visually-hidden"
PRESS = """
const [row, title] = arguments, main = document.getElementById("djq-main");
const places = row ? [...main.querySelectorAll("tr")].filter((one) => one.textContent.includes(row)) : [main];
const found = places.flatMap((one) => [...one.querySelectorAll("button, summary")]);
const button = found.find((one) => one.checkVisibility() && one.textContent.trim() === title);
if (button) button.click();
return Boolean(button);
"""
TOLD = "return document.querySelector('.messagelist')?.textContent.trim() === arguments[0]"


def with_policy(get_response):
    """A middleware: browsers refuse what is not a file of this site."""

    def answer(request: HttpRequest):
        response = get_response(request)
        response["Content-Security-Policy"] = "default-src 'self'"
        return response

    return answer


class Window(Browser):
    """The dashboard of a site."""

    def __init__(self, site: str):
        self.site = site

    def show(self, page: str, width: int = 1280, scheme: str = "light") -> None:
        self.open(self.site + ROOT + page, width, scheme)
        self.until("return document.querySelector('.djq-tabs a')")

    def press(self, title: str, row: str = "") -> None:
        """Click the button with this text; ``row``: in the row of a table that has this text in it."""
        self.until(PRESS, row, title)

    def confirm(self, title: str, question: str = "", **fields: str) -> None:
        """Answer the page that asks whether we are sure."""
        self.until("return document.querySelector('.djq-confirm')?.textContent.includes(arguments[0])", question)
        assert self.faults() == []
        self.fill(**fields)
        self.press(title)

    def wait_for_message(self, text: str) -> None:
        """Wait until the page says what was done."""
        try:
            self.until(TOLD, text)
        except AssertionError as error:
            error.add_note("It says: " + self.run("return document.querySelector('#content').textContent"))
            raise

    def faults(self) -> list[str]:
        """What does not fit, and what the console says."""
        wide = [fault for fault in self.overflow() if not fault.startswith(OF_THE_ADMIN)]
        return wide + [error for error in self.errors() if "favicon" not in error]


@contextmanager
def dashboard(site: str, settings) -> Iterator[Window]:
    """The window of a member of the staff named ann, who may do all, at the site with this address."""
    browser.demand()
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, f"{__name__}.with_policy"]
    with Window(site) as window:
        window.open(f"{site}/admin/login/")
        session = log_in(superuser=True).cookies["sessionid"].value
        window.driver.add_cookie({"name": "sessionid", "value": session, "path": "/"})
        window.errors()  # the icon of the page, which no site has to have
        yield window
