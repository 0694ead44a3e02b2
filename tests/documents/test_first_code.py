"""The first code of each page about coming from another library runs as it stands, begun in an empty folder.

A script is started as the page says, and prints what the page shows. Other pages begin with a project, which is made as
the index of these pages says: their settings, their files, their call, and a consumer that runs it.
"""

import os
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.document_runner import as_here
from tests.support.documents import ROOT, Block, blocks, scripts
from tests.support.processes import Process

FOLDER = ROOT / "docs" / "coming-from"
INDEX = FOLDER / "index.rst"
PAGES = sorted(path for path in FOLDER.glob("*.rst") if path != INDEX)
RUNS = {"djutils": "1 text"}
"""What the consumer prints of the first call of a page; of all other pages it is a mail."""
MAIL = "Subject: Order 42"
PRINT_MAIL = 'EMAIL_BACKEND = "django.core.mail.backends.console.EmailBackend"\n'

pytestmark = [pytest.mark.slow, pytest.mark.server("redis")]


def first(path: Path) -> Block:
    return blocks(path, "python")[0]


def of(paths: list[Path]) -> list:
    return [pytest.param(path, id=path.stem) for path in paths]


@dataclass
class Folder:
    """A folder in which a reader works, whose queues on Redis are the test's own."""

    path: Path
    env: dict[str, str]

    def run(self, *words: str) -> list[str]:
        """The lines that a command prints. AssertionError if it fails."""
        unset = dict.fromkeys(name for name in os.environ if name.startswith(("DJANGO_", "DJQUEUE_", "QUEUE_")))
        with Process([sys.executable, *words], unset | self.env, self.path) as process:
            assert process.wait(60) == 0, process.output
            return process.lines

    def write(self, block: Block) -> None:
        path = self.path / block.file
        path.write_text((path.read_text() if path.exists() else "") + as_here(block.text))


@pytest.fixture
def folder(tmp_path, private_server):
    return Folder(tmp_path, {"PYTHONPATH": str(ROOT), "REDIS_URL": private_server("redis").url})


def test_every_page_begins_with_a_script_or_with_settings():
    assert [path.stem for path in PAGES if not (first(path).is_script or first(path).file == "settings.py")] == []


@pytest.mark.parametrize("script", [pytest.param(script, id=script.where) for script in scripts()])
def test_a_script_prints_what_its_page_shows(script, folder):
    shown = next(block for block in blocks(script.path, "console") if block.line > script.line)
    command, *lines = shown.text.splitlines()
    assert command == f"$ python {script.file}", shown.where
    folder.write(script)
    assert folder.run(script.file) == lines


@pytest.mark.parametrize("path", of([path for path in PAGES if not first(path).is_script]))
def test_the_first_call_of_a_page_runs_in_a_new_project(path, folder):
    samples = blocks(path, "python")
    call = next(block for block in samples if not block.file)
    begin, *rest = [block for block in samples if block.file and block.line < call.line]
    for line in ("startproject mysite .", "startapp shop"):
        assert line in INDEX.read_text()
        folder.run("-m", "django", *line.split())
    settings = folder.path / "mysite" / "settings.py"
    own = settings.read_text()
    settings.write_text(own + ("" if "console.EmailBackend" in own else PRINT_MAIL) + as_here(begin.text))
    for block in rest:
        folder.write(block)
    for arguments in (["migrate"], ["shell", "-c", as_here(call.text)]):
        folder.run("manage.py", *arguments)
    printed = folder.run("manage.py", "queue_consumer", "--drain")
    assert RUNS.get(path.stem, MAIL) in printed
