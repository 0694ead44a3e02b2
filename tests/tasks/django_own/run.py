"""Django's own tests of tasks, on djqueue over four stores: `python -m tests.tasks.django_own.run PYTHON`.

PYTHON has a pip, which fetches the source archive of the installed Django from PyPI: its tests are in no wheel.
"""

import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import django

from tests.support import servers
from tests.tasks.django_own.one import WHERE


def main(python: str):
    for kind in ("redis", "postgres"):
        servers.start(kind)
    with tempfile.TemporaryDirectory() as folder:
        tests = fetch(Path(folder), python)
        command = [sys.executable, "-m", "tests.tasks.django_own.one", tests]
        codes = [subprocess.run([*command, kind]).returncode for kind in WHERE]
    sys.exit(any(codes))


def fetch(folder: Path, python: str) -> str:
    """The folder of the tests of the installed Django."""
    version = django.get_version()
    pip = [python, "-m", "pip", "--python", sys.executable, "download", "-q", "--no-deps", "--no-binary", "Django"]
    subprocess.run([*pip, f"Django=={version}", "-d", str(folder)], check=True)
    [archive] = folder.glob("*.tar.gz")
    with tarfile.open(archive) as file:
        members = [one for one in file.getmembers() if one.name.partition("/")[2].startswith("tests/tasks/")]
        file.extractall(folder, members, filter="data")
    return str(folder / members[0].name.partition("/")[0] / "tests")


if __name__ == "__main__":
    main(*sys.argv[1:])
