"""The demo in a browser: every page at both widths and in both colour schemes, and every button of the page Try it.

`make screenshots` writes the pictures in docs/images anew.
"""

import shutil
from pathlib import Path

import pytest

from tests.support import browser
from tests.support.browser import SCHEMES, WIDTHS, Browser
from tests.support.demo import PROJECT, log_in
from tests.support.demo import demo as running_demo
from tests.support.screenshots import IMAGES, WRITE, path_of

Image = pytest.importorskip("PIL.Image", reason="the example project needs Pillow")
KEPT = ("gallery", "queues", "tryit")
"""Pages whose pictures are in docs/images."""
CLICKS = """
for (let number = 0; number < 9; number++) {
  setTimeout(() => document.querySelector("#rebuild_page button").click(), 170 * number);
}
"""
LARGEST = 150_000
NARROW, WIDE = min(WIDTHS), max(WIDTHS)
PAGES = {
    "gallery": ("/", "document.querySelectorAll('.card img').length === 4"),
    "photo": ("/photos/1/", "document.querySelectorAll('.sizes li').length === 3"),
    "broken": ("/photos/5/", "!document.querySelector('.reason').hidden"),
    "tryit": ("/try/", "/next run/.test(document.querySelector('#tidy_up .told').textContent)"),
    "queues": ("/queues/", "document.querySelector('.bars').childElementCount > 3"),
    "failed": ("/queues/failed/", "document.querySelector('.failure')"),
    "upload": ("/upload/", "document.querySelector('[type=file]').multiple"),
    "404": ("/nothing/", "document.querySelector('.number')"),
    "login": ("/login/?next=/upload/", "document.querySelector('form')"),
}
"""Their addresses, and when they are complete. The last one is looked at without a login."""
TOLD = {
    "rebuild_page": "9 clicks → [2-4] runs",
    "book": "15 of 15 steps done",
    "store": "34 calls → [4-6] runs",
    "call_bank": "done at attempt 4",
    "import_rows": r"cancelled at \d+ %",
    "send_invoice": "done at attempt 2",
    "ask_supplier": "12 of 12 started",
}
"""What stands next to the button of each card in the end, as regular expressions: a busy machine may take more runs."""


@pytest.fixture
def demo(tmp_path):
    """The address of a demo over our pictures and a broken one."""
    browser.demand()
    photos = tmp_path / "photos"
    shutil.copytree(PROJECT / "pictures", photos)
    (photos / "zigzag down a long and winding road.jpg").write_bytes((photos / "winter-moon.jpg").read_bytes()[:4000])
    with running_demo(tmp_path / "data", "--photos", str(photos)) as address:
        yield address


@pytest.mark.slow
def test_every_page_in_a_browser(demo, tmp_path):
    """One window for all, as most of the time is that of the pictures that move."""
    faults: dict[str, list[str]] = {}
    with Browser() as window:
        log_in(window, demo)
        press_the_buttons(window, demo)
        for name, (path, complete) in PAGES.items():
            if name == "login":
                window.driver.delete_all_cookies()
            for width in WIDTHS:
                for scheme in SCHEMES:
                    window.open(demo + path, width, scheme)
                    window.until(f"return {complete}")
                    expected = "Failed to load resource" if name == "404" else None
                    found = window.overflow()
                    found += [error for error in window.errors() if not expected or expected not in error]
                    faults |= {f"{name} {width} {scheme}": found} if found else {}
                    picture = window.screenshot(tmp_path / "pages" / f"{name}-{width}-{scheme}.png")
                    if name == "gallery" and width == WIDE:
                        keep(window, "demo-gallery", scheme)
                    assert picture.stat().st_size > 5_000
    assert faults == {}


def press_the_buttons(window: Browser, demo: str):
    """Each picture moves, and comes to the end that its card promises."""
    window.open(demo + "/try/", WIDE)
    window.click("#send_invoice button")
    window.until("return !document.querySelector('#send_invoice .reason').hidden")
    assert "has no address." in told(window, "send_invoice .reason")
    window.run(CLICKS)
    for name in ("store", "call_bank", "book", "import_rows", "ask_supplier"):
        window.click(f"#{name} button")
    wait_for(window, "import_rows", r"running · [1-9]\d* %")
    window.click("#import_rows button.second")
    wait_for(window, "rebuild_page", "9 clicks")
    wait_for(window, "ask_supplier", r"([4-9]|1\d) of 12 started")
    for name, path in (("queues", "/queues/"), ("tryit", "/try/")):
        for scheme in reversed(SCHEMES):
            window.open(demo + path, WIDE, scheme)
            window.until(f"return {PAGES[name][1]}")
            keep(window, f"demo-{name}", scheme, height=1150)
    window.click("#send_invoice button.second")
    for name, text in TOLD.items():
        wait_for(window, name, text)
        assert window.run(f"return document.querySelector('#{name} .picture').childElementCount") > 2
    assert window.errors() == []


def wait_for(window: Browser, name: str, text: str):
    try:
        window.until(f"return /{text}/.test(document.querySelector('#{name} .told').textContent)")
    except AssertionError as error:
        error.add_note(f"It says: {told(window, name + ' .told')}")
        raise


def told(window: Browser, place: str) -> str:
    return window.run("return document.querySelector(arguments[0]).textContent", f"#{place}")


def keep(window: Browser, name: str, scheme: str, height: int | None = None):
    """The picture for the docs, if it is wanted; that in the repository is small in any case."""
    path = path_of(name if scheme == "light" else f"{name}-dark")
    if WRITE:
        with Image.open(window.screenshot(path, height=height)) as picture:
            full = picture.convert("RGB")
        small = full.quantize(256)
        if "gallery" in name:  # photos need dither, flat colours grow by it
            small = full.quantize(palette=small)
        small.save(path, optimize=True)
    assert 0 < path.stat().st_size < LARGEST, f"{path.name} is missing or too large: make screenshots"


def test_the_pictures_in_the_docs_are_those_of_this_test():
    names = {f"demo-{name}{suffix}.png" for name in KEPT for suffix in ("", "-dark")}
    assert names <= {path.name for path in Path(IMAGES).glob("demo-*.png")}
