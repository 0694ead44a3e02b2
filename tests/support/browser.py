"""A headless Chromium: pages at a width and in a colour scheme, what they log, what does not fit, and screenshots.

    with Browser() as browser:
        browser.open(address, width=390, scheme="dark")
        assert browser.overflow() == []
        assert browser.errors() == []
        browser.screenshot(Path("page.png"))

Standard library only until a browser is started: the development tool asks `missing` before there is a virtual
environment.
"""

import os
import shutil
import tempfile
from pathlib import Path

PACKAGES = ("chromium", "chromium-driver")
WIDTHS, SCHEMES = (1280, 390), ("light", "dark")
HEIGHTS = {1280: 900, 390: 844}
TALLEST = 8000
"""Pixels of a screenshot of a whole page, at most."""
PATIENCE = 40.0
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
)

OVERFLOW = """
const wide = document.documentElement.scrollWidth, room = window.innerWidth, found = [];
if (wide > room) found.push(`the page is ${wide} px wide, the window ${room}`);
const name = (one) => one.tagName.toLowerCase() + (one.id ? "#" + one.id : "") +
  (one.getAttribute("class") ? "." + one.getAttribute("class").trim().split(/\\s+/).join(".") : "");
const clips = (one) => one.scrollWidth > one.clientWidth + 1 && getComputedStyle(one).overflowX === "hidden";
const scrolls = (one) => one && (/auto|scroll/.test(getComputedStyle(one).overflowX) || scrolls(one.parentElement));
for (const one of document.body.querySelectorAll("*")) {
  const box = one.getBoundingClientRect();
  if (!box.width || !box.height || scrolls(one)) continue;
  const from = Math.round(box.left), to = Math.round(box.right);
  const frame = one.ownerSVGElement && one.ownerSVGElement.getBoundingClientRect();
  if (to > room + 1 || from < -1) found.push(`${name(one)} spans ${from} to ${to}`);
  else if (one instanceof HTMLElement && clips(one)) found.push(`${name(one)} is cut`);
  else if (frame && (to > frame.right + 1 || from < frame.left - 1)) found.push(`${name(one)} is cut by its picture`);
}
return found.slice(0, 10);
"""


def program() -> str | None:
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def driver() -> str | None:
    return shutil.which("chromedriver") or shutil.which("chromedriver", path="/usr/lib/chromium")


def missing() -> str:
    """Why no browser can be started, in a sentence; "" if one can."""
    absent = [name for name, found in (("chromium", program()), ("chromedriver", driver())) if not found]
    if absent:
        return f"{' and '.join(absent)} not found: apt-get install {' '.join(PACKAGES)}"
    return ""


def demand() -> None:
    """Skip the test if no browser can be started; where all tests have to run, fail it."""
    import pytest

    if reason := missing():
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(reason)


class Browser:
    """One window. Use it in a with block: it ends with that, and so does its folder."""

    def __enter__(self):
        from selenium import webdriver

        self._home = tempfile.TemporaryDirectory(prefix="djq-browser-", ignore_cleanup_errors=True)
        options = webdriver.ChromeOptions()
        options.binary_location = program()
        for flag in (*FLAGS, f"--user-data-dir={self._home.name}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        environment = {**os.environ, "HOME": self._home.name}
        service = webdriver.ChromeService(executable_path=driver(), env=environment)
        self.driver = webdriver.Chrome(options=options, service=service)
        self.driver.set_page_load_timeout(PATIENCE)
        self.driver.set_script_timeout(3 * PATIENCE)
        self._page = None
        return self

    def __exit__(self, *exc):
        self.driver.quit()
        self._home.cleanup()

    def open(self, address: str, width: int = 1280, scheme: str = "light") -> None:
        """Show a page in a window of that width, as a browser shows it that prefers "light" or "dark"."""
        self._command("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self._size(width, HEIGHTS.get(width, 900))
        self.driver.get(address)

    def run(self, script: str, *arguments: object):
        """What a function body in JavaScript returns."""
        return self.driver.execute_script(script, *arguments)

    def until(self, script: str, *arguments: object, timeout: float = PATIENCE):
        """The first true value of a function body in JavaScript. AssertionError after `timeout` seconds."""
        from tests.support.processes import until

        try:
            return until(lambda: self.run(script, *arguments), timeout, pause=0.05)
        except AssertionError as error:
            error.add_note(f"at {self.driver.current_url}: {script}")
            raise

    def click(self, selector: str) -> None:
        """Click the element, as soon as it is there and visible."""
        self.until("const one = document.querySelector(arguments[0]); return one && one.checkVisibility()", selector)
        self.run("document.querySelector(arguments[0]).click()", selector)

    def fill(self, **fields: str) -> None:
        """Write into the fields of these names."""
        for name, value in fields.items():
            self.run("document.querySelector(`[name=${arguments[0]}]`).value = arguments[1]", name, value)

    def overflow(self) -> list[str]:
        """Elements that are wider than the window or cut. Parts that scroll by themselves do not count."""
        return self.run(OVERFLOW)

    def errors(self) -> list[str]:
        """The errors and warnings of the console since the last call."""
        logged = self.driver.get_log("browser")
        return [entry["message"] for entry in logged if entry["level"] in ("SEVERE", "WARNING")]

    def screenshot(self, path: Path, height: int | None = None) -> Path:
        """Write the page as PNG; with ``height`` only that many pixels from its top."""
        path.parent.mkdir(parents=True, exist_ok=True)
        width, shown = self._page
        self._size(width, height or min(max(self.height(), shown), TALLEST))
        path.write_bytes(self.driver.get_screenshot_as_png())
        self._size(width, shown)
        return path

    def height(self) -> int:
        """Of the page, in pixels."""
        return self.run("return document.documentElement.scrollHeight")

    def _size(self, width: int, height: int) -> None:
        self._page = (width, height)
        self._command(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )

    def _command(self, name: str, **parameters: object):
        return self.driver.execute_cdp_cmd(name, parameters)
