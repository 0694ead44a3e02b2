"""The drawings of the documentation are what their scripts make of the code, and each of them is shown."""

import os
import re
import subprocess
import sys

from tests.support.documents import ROOT, documents

DRAWINGS = ROOT / "docs" / "drawings"


def test_the_drawings_are_those_that_their_scripts_make():
    command = [sys.executable, DRAWINGS / "draw.py", "--check"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    checked = subprocess.run(command, capture_output=True, text=True, env=env, timeout=60)
    assert (checked.returncode, checked.stdout.strip(), checked.stderr) == (0, "", "")


def test_each_drawing_is_shown():
    shown = {name for page in documents() for name in re.findall(r"^\.\. drawing:: (\S+)$", page.read_text(), re.M)}
    assert shown == {path.stem for path in DRAWINGS.glob("*.svg")}
