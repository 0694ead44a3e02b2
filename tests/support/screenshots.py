"""The screenshots in docs/images: made by the tests that walk through the pages, small, and written only if wanted.

`make screenshots` writes them all anew.
"""

import os
from pathlib import Path

import pytest

from tests.support.browser import Browser
from tests.support.processes import ROOT

WRITE = bool(os.environ.get("DJQUEUE_WRITE_SCREENSHOTS"))
IMAGES = ROOT / "docs" / "images"
LARGEST = 60_000


def keep(window: Browser, name: str, height: int | None = None) -> None:
    """Write what the window shows, if it is wanted; ``height``: that many pixels from its top."""
    if WRITE:
        image = pytest.importorskip("PIL.Image", reason="Pillow makes the pictures small")
        path = path_of(name)
        with image.open(window.screenshot(path, height=height)) as picture:
            picture.convert("RGB").quantize(256).save(path, optimize=True)
    check(name)


def check(*names: str) -> None:
    """The pictures in the repository are there, and small."""
    sizes = {name: path_of(name).stat().st_size for name in names if path_of(name).exists()}
    wrong = {name for name in names if not 0 < sizes.get(name, 0) < LARGEST}
    assert not wrong, f"{sizes}, of which {wrong} are missing or too large: make screenshots"


def path_of(name: str) -> Path:
    return IMAGES / f"{name}.png"
