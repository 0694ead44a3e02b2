"""The consumer under the real supervisord, through django-admin with two environment variables."""

import os
import shutil
import signal
import sys
from pathlib import Path

import pytest
from django.conf import settings as django_settings

from tests.supervised.commands import hold
from tests.support import servers
from tests.support.processes import ROOT, Process, until

pytestmark = [pytest.mark.slow, pytest.mark.backends("sqlite", "redis")]
STOP_WAIT = 20

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
    installed = [*django_settings.INSTALLED_APPS, "tests.supervised"]
    site.settings = {"INSTALLED_APPS": installed}
    folder = servers.short_dir()  # the path of a socket must be short
    with_queue = Supervisord(folder, site.env, request.param)
    yield with_queue
    with_queue.shut_down()
    shutil.rmtree(folder)


def test_dj15_dj16_it_starts_restarts_after_kill_9_and_stops_in_time(supervisord, site, tmp_path):
    gates = [tmp_path / "first", tmp_path / "second"]
    hold(str(gates[0]))
    until(lambda: ledger(site) == ["begin 1"])

    first = supervisord.pid()
    kill9(first)
    until(lambda: supervisord.pid() not in (0, first))
    until(lambda: ledger(site) == ["begin 1", "begin 2"])  # another one runs what the dead one held
    gates[0].touch()
    until(lambda: ledger(site)[2:] == ["end 2"])

    hold(str(gates[1]))
    until(lambda: ledger(site)[3:] == ["begin 1"])
    with supervisord.control("stop", "queue") as stopping:
        until(lambda: "Stopping" in supervisord.log())
        gates[1].touch()
        assert stopping.wait(STOP_WAIT) == 0, stopping.output
    assert ledger(site)[4:] == ["end 1"]
    said = (supervisord.folder / "supervisord.log").read_text()
    assert "stopped: queue (exit status 0)" in said
    assert "killing 'queue'" not in said


def kill9(pid: int):
    os.kill(pid, signal.SIGKILL)


def ledger(site) -> list[str]:
    return site.ledger.read_text().splitlines() if site.ledger.exists() else []
