"""The example site with its consumer, started as those start it who try it."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.browser import Browser
from tests.support.processes import ROOT, Process

PROJECT = ROOT / "example_project"


@contextmanager
def demo(folder: Path, *arguments: str) -> Iterator[str]:
    """The address of a demo over the data in a folder."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    environment = {"PYTHONPATH": path, "DEMO_DATA": str(folder), "DEMO_QUEUE": "", "DEMO_NAME": ""}
    with Process([sys.executable, str(PROJECT / "demo.py"), "--port", "0", *arguments], environment) as process:
        address = process.wait_for("The gallery:", 60).split()[-1].rstrip("/")
        process.wait_for(", consumer ", 60)
        yield address


def log_in(window: Browser, address: str) -> None:
    """With the password that the demo prints."""
    window.open(address + "/login/")
    window.fill(username="demo", password="demo")
    window.click("main button")
    window.until("return location.pathname === '/'")
