"""The example project, as those who try it meet it: its own tests, the demo, and the queue with time-outs."""

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from tests.support import servers
from tests.support.backends import redis_url, worker_number
from tests.support.processes import ROOT, Process, until
from tests.support.server_process import children_of, is_running

PROJECT = ROOT / "example_project"
THUMBNAIL = re.compile(r"^ +(?:small|medium|large) +\d+ × \d+ +\d+ bytes +(?P<path>\S+)$", re.MULTILINE)

pytest.importorskip("PIL", reason="the example project needs Pillow")


def address_of(queue: str) -> str:
    """Of a Redis a database that no other test empties."""
    if queue == "redis":
        return f"{redis_url()}/{32 + worker_number()}"
    return servers.address(queue) if queue else ""


def on_each(push: str):
    """Run a test with the queue in SQLite and on each server; on a push on one of them."""
    params = []
    for queue in ("sqlite", "redis", "postgres"):
        marks = [pytest.mark.server(queue)] if queue != "sqlite" else []
        marks += [pytest.mark.full] if queue != push else []
        params.append(pytest.param("" if queue == "sqlite" else queue, id=queue, marks=marks))
    return pytest.mark.parametrize("queue", params)


@pytest.fixture
def start(tmp_path, worker_id):
    """Start a script of the project over a data folder and a name of the test's own; it is dead after the test."""
    started = []

    def begin(script: str, *arguments: object, queue: str = "", **more: str) -> Process:
        address = address_of(queue)
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        environment = {"DJANGO_SETTINGS_MODULE": "config.settings", "PYTHONPATH": path, "DEMO_QUEUE": address}
        environment |= {"DEMO_DATA": str(tmp_path / "data"), "DEMO_NAME": f"demo_{worker_id}"}
        environment |= more
        command = [sys.executable, str(PROJECT / script), *map(str, arguments)]
        started.append(Process(command, environment))
        return started[-1]

    yield begin
    for process in started:
        process.__exit__()


@pytest.fixture
def worker_id(request):
    return getattr(request.config, "workerinput", {}).get("workerid", "main")


@pytest.mark.slow
def test_the_sites_own_tests_pass(start):
    site = start("manage.py", "test", "gallery", "tryit", "trouble")
    assert site.wait(120) == 0, site.output
    assert int(re.search(r"Ran (\d+) tests", site.output)[1]) > 40


@pytest.mark.slow
@on_each(push="redis")  # and by `make demo` in SQLite
def test_the_demo_at_one_go(start, queue):
    for _ in range(2 if not queue else 1):  # a second run starts afresh
        demo = start("demo.py", "--once", queue=queue)
        assert demo.wait(120) == 0, demo.output
        assert len(thumbnails(demo)) == 4 * 3
        assert "Comments: 4 shown, 1 taken for spam" in demo.lines
        demo.wait_for("E-mails: 4 in ")  # none for spam
        demo.wait_for("New photos: 4")


@pytest.mark.slow
def test_the_demo_with_pictures_of_ones_own(start, tmp_path):
    folder = make_pictures(tmp_path / "pictures")
    demo = start("demo.py", "--once", "--photos", folder)
    assert demo.wait(120) == 0, demo.output
    assert len(thumbnails(demo)) == 2 * 3
    assert "Skipped notes.txt: not a picture." in demo.lines
    demo.wait_for("Cut off: This file is not a picture that can be read.")
    assert "Queue pictures: 0 ready, 0 delayed, 0 running, 3 failed, 6 done" in demo.lines


def test_the_demo_says_what_is_wrong(start):
    demo = start("demo.py", "--photos", "/nowhere")
    assert demo.wait() == 2
    assert "--photos: /nowhere is not a folder." in demo.lines


@pytest.mark.parametrize(
    "address, named",
    [
        ("redis://:secret@localhost:1/0", "Redis at localhost:1"),
        ("postgres://anna:secret@localhost:1/x", "PostgreSQL at localhost:1"),
    ],
)
def test_the_demo_says_which_server_is_away(start, address, named):
    demo = start("demo.py", "--once", DEMO_QUEUE=address)
    assert demo.wait() == 2
    [line] = demo.lines
    assert f"{named} cannot be reached: start it, or correct DEMO_QUEUE (" in line
    assert "secret" not in line


def test_a_python_without_django_is_told_which_to_use():
    done = subprocess.run([sys.executable, "-S", str(PROJECT / "manage.py")], capture_output=True, text=True)
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert "has no Django: use .venv-demo/bin/python example_project/manage.py" in line


@pytest.mark.slow
@pytest.mark.parametrize(
    "signum", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.full)], ids=lambda signum: signum.name
)
def test_the_demo_stops_both_processes(start, signum):
    demo = start("demo.py", "--port", 0)
    address = demo.wait_for("The gallery:").split()[-1]
    demo.wait_for(", consumer ", 90)
    until(lambda: not json.loads(get(address + "state/"))["waiting"])
    assert all(get(address[:-1] + photo["thumbnail"]) for photo in json.loads(get(address + "state/"))["photos"])
    children = children_of(demo.pid)
    demo.send(signum)
    assert demo.wait() == 0, demo.output
    assert len(children) == 2
    assert not any(is_running(child) for child in children)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child that its parent was killed")
def test_nothing_of_a_killed_demo_is_left(start):
    demo = start("demo.py", "--port", 0)
    demo.wait_for(", consumer ", 90)
    children = children_of(demo.pid)
    demo.kill9()
    assert len(children) == 2
    until(lambda: not any(is_running(child) for child in children))


@pytest.mark.slow
@on_each(push="postgres")
def test_to_8_killed_workers_lose_nothing(start, queue):
    """TO-8, TO-14: whoever is killed, every item ends in done, and the counts say so."""
    address = ["--queue", address_of(queue)] if queue else []
    run = start("timeouts.py", "--items", 60, "--workers", 3, "--kill", 2, "--lease", 0.6, *address)
    assert run.wait(120) == 0, run.output
    counts = [tuple(map(int, found)) for found in re.findall(r"ready +(\d+) +leased +(\d+) +done +(\d+)", run.output)]
    assert counts[0] == (60, 0, 0)
    assert counts[-1] == (0, 0, 60)
    starts, killed = re.search(r"All 60 items are done: (\d+) starts, (\d+) workers killed", run.output).groups()
    assert int(starts) >= 60
    assert killed == "2"


def test_an_address_that_is_none(start):
    run = start("timeouts.py", "--queue", "http://localhost")
    assert run.wait() == 2
    assert len(run.lines) == 1
    assert "begins with 'http': give sqlite, redis://" in run.lines[0]


def test_the_image_ends_when_it_is_told_to():
    """In the shell form the shell would get the signals."""
    lines = (PROJECT / "Dockerfile").read_text().replace("\\\n", " ").splitlines()
    commands = [line.split("CMD", 1)[1] for line in lines if re.match("CMD|HEALTHCHECK", line)]
    assert len(commands) == 2
    assert all(isinstance(json.loads(command), list) for command in commands)
    assert "STOPSIGNAL SIGTERM" in lines
    copied = [word for line in lines if line.startswith("COPY") for word in line.split()[1:-1]]
    allowed = (PROJECT / "Dockerfile.dockerignore").read_text().splitlines()
    assert copied and all(f"!{word}" in allowed for word in copied)


def thumbnails(demo: Process) -> list[Path]:
    """The files that it says it has made, which are there."""
    paths = [Path(found["path"]) for found in THUMBNAIL.finditer(demo.output)]
    assert all(path.stat().st_size for path in paths)
    return paths


def make_pictures(folder: Path) -> Path:
    """Two pictures, one of them in a folder of its own, one that was cut off, and a text."""
    from PIL import Image

    (folder / "deeper").mkdir(parents=True)
    Image.effect_noise((700, 500), 90).save(folder / "noise.jpg")
    Image.linear_gradient("L").save(folder / "deeper" / "grey.png")
    (folder / "cut-off.jpg").write_bytes((folder / "noise.jpg").read_bytes()[:4000])
    (folder / "notes.txt").write_text("no picture")
    return folder


def get(address: str) -> bytes:
    with urllib.request.urlopen(address, timeout=10) as answer:
        return answer.read()
