"""Writes the drawings of the documentation: python docs/drawings/draw.py; with --check says which are out of date."""

import sys
from pathlib import Path

import django
from django.conf import settings

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parent.parent))
settings.configure(
    INSTALLED_APPS=["djqueue"],
    QUEUES={"default": {"CLASS": "djqueue.backends.memory.MemoryQueue", "OPTIONS": {"ON_COMMIT": None}}},
    SECRET_KEY="only-for-drawing-timelines-of-djqueue-0123456789-abcdefghij",
)
django.setup()

import debounce  # noqa: E402
import diagrams  # noqa: E402
import race  # noqa: E402
import scale  # noqa: E402
import throttling  # noqa: E402


def main(check: bool) -> int:
    modules = (diagrams, debounce, throttling, race, scale)
    wanted = {name: drawing for module in modules for name, drawing in module.drawings().items()}
    found = {path.stem: path.read_text() for path in FOLDER.glob("*.svg")}
    if check:
        differ = sorted(name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name))
        print("\n".join(f"{name}.svg is out of date: run python docs/drawings/draw.py" for name in differ))
        return bool(differ)
    for name in found.keys() - wanted.keys():
        (FOLDER / f"{name}.svg").unlink()
    for name, drawing in wanted.items():
        (FOLDER / f"{name}.svg").write_text(drawing)
    return 0


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
