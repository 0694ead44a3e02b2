"""The consumer under the real supervisord, through django-admin with two environment variables."""

import os
import shutil
import signal
import sys
from pathlib import Path

import pytest

from tests.faults.commands import hold
from tests.faults.conftest import APPS
from tests.faults.ledger import Ledger
from tests.support import servers
from tests.support.processes import ROOT, Process, until

pytestmark = [pytest.mark.slow, pytest.mark.backends("sqlite", "redis")]
STOP_WAIT = 20
PATIENCE = 60.0

CONFIG = """
[supervisord]
nodaemon=true
logfile={folder}/supervisord.log
pidfile={folder}/supervisord.pid
childlogdir={folder}

[unix_http_server]
file={folder}/sock

[rpcinterface:supervisor]
supervisor.rpcinterface_factory=supervisor.rpcinterface:make_main_rpcinterface

[supervisorctl]
serverurl=unix://{folder}/sock

[program:queue]
command={admin} queue_consumer --processes {processes} -t 2 -l {folder}/queue.log --lease 1 --grace 15
environment=PYTHONPATH="{root}",DJANGO_SETTINGS_MODULE="tests.site_settings"
directory={folder}
autostart=true
autorestart=true
startsecs=0
stopsignal=TERM
stopwaitsecs={wait}
"""


class Supervisord:
    """A supervisord with one program, `queue`."""

    def __init__(self, folder: Path, env: dict[str, str], processes: int):
        self.folder, self._config = folder, folder / "supervisord.conf"
        admin = Path(sys.executable).with_name("django-admin")
        self._config.write_text(
            CONFIG.format(folder=folder, admin=admin, root=ROOT, wait=STOP_WAIT, processes=processes)
        )
        self.process = Process([sys.executable, "-m", "supervisor.supervisord", "-c", str(self._config)], env, folder)

    def control(self, *words: str) -> Process:
        command = [sys.executable, "-m", "supervisor.supervisorctl", "-c", str(self._config), *words]
        return Process(command, cwd=self.folder)

    def pid(self) -> int:
        with self.control("pid", "queue") as answer:
            answer.wait()
            return int(answer.output) if answer.output.isdigit() else 0

    def log(self) -> str:
        path = self.folder / "queue.log"
        return path.read_text() if path.exists() else ""

    def shut_down(self):
        self.process.term()
        self.process.wait(STOP_WAIT + 10)


@pytest.fixture(params=[pytest.param(1, marks=pytest.mark.full), 2], ids=["one", "two"])
def supervisord(request, site, settings):
    site.settings = {"INSTALLED_APPS": APPS}
    folder = servers.short_dir()  # the path of a socket must be short
    with_queue = Supervisord(folder, site.env, request.param)
    yield with_queue
    with_queue.shut_down()
    shutil.rmtree(folder)


def test_dj15_dj16_it_starts_restarts_after_kill_9_and_stops_in_time(supervisord, site, tmp_path):
    ledger, releases = Ledger(site.ledger), [tmp_path / "first", tmp_path / "second"]
    first = hold(str(releases[0])).id
    ledger.wait("start", ids={first}, timeout=PATIENCE)

    died = supervisord.pid()
    os.kill(died, signal.SIGKILL)
    until(lambda: supervisord.pid() not in (0, died), PATIENCE)
    starts = ledger.wait("start", 2, {first}, PATIENCE)  # another one runs what the dead one held
    assert [start.attempt for start in starts] == [1, 2]
    releases[0].touch()
    assert [end.attempt for end in ledger.wait("end", ids={first})] == [2]

    second = hold(str(releases[1])).id
    ledger.wait("start", ids={second})
    with supervisord.control("stop", "queue") as stopping:
        until(lambda: "Stopping" in supervisord.log())
        releases[1].touch()
        assert stopping.wait(STOP_WAIT) == 0, stopping.output
    assert [(event.id, event.attempt, event.what) for event in ledger.look()[3:]] == [
        (second, 1, "start"),
        (second, 1, "end"),
    ]
    said = (supervisord.folder / "supervisord.log").read_text()
    assert "stopped: queue (exit status 0)" in said
    assert "killing 'queue'" not in said
