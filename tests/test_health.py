"""``python -m djqueue.health``: what it concludes from a liveness file, what it prints, and that it loads no Django."""

import json
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from djqueue import health

NOW = 1000.0


def pump(moved, **more):
    return {"name": "pump-default", "moved": moved, "limit": 60.0, "claims": True, **more}


def run(began, limit=None, **more):
    message = {"command": "shop.commands.charge", "id": "01a2091a4a7076988aa660abc0885c19"}
    return {"worker": "worker-2", "count": 1, **message, "began": began, "limit": limit, **more}


def report(state="serving", moved=NOW, **details):
    return {"name": "web1:7:ab", "pid": 7, "state": state, "moved": moved, "limit": 10.0, **details}


WHERE = {"where": ["shop/commands.py:12 in charge: ask(card)", "/lib/ssl.py:1103 in read: self._sslobj.read(len)"]}
STILL = "\n    shop/commands.py:12 in charge: ask(card)\n    /lib/ssl.py:1103 in read: self._sslobj.read(len)"
GONE = "the process does nothing, or is gone"


@pytest.mark.parametrize(
    ("given", "problems"),
    [
        (report(parts=[pump(NOW - 60)], runs=[run(NOW - 9999)]), []),
        (report(moved=NOW - 11), [f"the file was written 11 s ago: {GONE}"]),
        (report(moved=NOW + 99), [f"the file was written before the machine was started: {GONE}"]),
        (
            report(parts=[pump(NOW - 61, **WHERE)]),
            [f"pump-default has not moved for 1m 01s (limit 1m 00s):{STILL}"],
        ),
        (
            report(runs=[run(NOW - 301, 300.0, **WHERE), run(NOW - 299, 300.0)]),
            [f"worker-2 has run shop.commands.charge (c0885c19) for 5m 01s (limit 5m 00s):{STILL}"],
        ),
        (
            report(runs=[run(NOW - 31, 30.0, count=5)]),
            ["worker-2 has run 5 calls of shop.commands.charge for 31 s (limit 30 s)"],
        ),
        (report(unanswered=["mail"], parts=[pump(NOW - 20, failures=9)]), []),
    ],
    ids=["fine", "silent", "restarted", "a part", "a run", "a batch", "a store is away"],
)
def test_alive_is_what_moves_within_its_limits(given, problems):
    assert health.problems(given, now=NOW) == problems


@pytest.mark.parametrize(
    ("given", "obstacles"),
    [
        (report(unanswered=[], parts=[pump(NOW - 9)]), []),
        (report("starting"), ["it is starting"]),
        (report("stopping"), ["it is stopping"]),
        (report(moved=NOW - 11), [f"the file was written 11 s ago: {GONE}"]),
        (report(unanswered=["mail"]), ["the store of queue 'mail' does not answer"]),
        (report(parts=[pump(NOW - 12)]), ["pump-default has waited for its store for 12 s"]),
    ],
    ids=["fine", "starting", "stopping", "silent", "a store is away", "a store is silent"],
)
def test_ready_is_what_serves_and_has_stores_that_answer(given, obstacles):
    assert health.obstacles(given, now=NOW) == obstacles


@pytest.fixture
def write_liveness(tmp_path):
    """Write a liveness file, and those of its processes by their pids."""

    def write(given, **processes):
        path = tmp_path / "alive"
        path.write_text(json.dumps(given))
        for pid, own in processes.items():
            (tmp_path / f"alive.{pid.removeprefix('pid')}").write_text(json.dumps(own))
        return str(path)

    return write


def fleet(*states, began=NOW):
    processes = [
        {"number": number, "pid": 10 + number, "state": state, "began": began, "limit": 60.0}
        for number, state in enumerate(states, 1)
    ]
    return report(places=len(states), processes=processes)


def test_each_process_of_a_supervisor_is_looked_at(write_liveness):
    path = write_liveness(fleet("serving", "serving"), pid11=report(), pid12=report(moved=NOW - 12))
    said = f"process 2 (pid 12): the file was written 12 s ago: {GONE}"
    assert health.problems(health.read(path), path, NOW) == [said]
    assert health.obstacles(health.read(path), path, NOW) == [said]


def test_a_process_that_starts_has_a_minute_to_write_its_file(write_liveness):
    path = write_liveness(fleet("serving", "starting", began=NOW - 59), pid11=report())
    given = health.read(path)
    assert health.problems(given, path, NOW) == []
    assert health.obstacles(given, path, NOW) == ["process 2 does not serve yet"]
    assert health.problems(given | {"moved": NOW + 2}, path, NOW + 2) == ["process 2 (pid 12): it writes no file"]


def test_a_fleet_is_ready_when_a_process_serves_in_each_place(write_liveness):
    path = write_liveness(fleet("serving", "serving"), pid11=report(), pid12=report(unanswered=["mail"]))
    said = ["process 2: the store of queue 'mail' does not answer"]
    assert health.obstacles(health.read(path), path, NOW) == said
    write_liveness(fleet("serving", "serving"), pid12=report())
    assert health.obstacles(health.read(path), path, NOW) == []


def alive(*arguments):
    return health.main([*map(str, arguments)])


@pytest.fixture
def now(monkeypatch):
    """The time, which stands still."""
    now = time.monotonic()
    monkeypatch.setattr(health, "time", SimpleNamespace(monotonic=lambda: now))
    return now


def test_it_prints_each_part_with_its_age(write_liveness, capsys, now):
    runs = [run(now - 200, **WHERE), run(now - 3, worker="worker-1")]
    path = write_liveness(
        report(moved=now - 1, parts=[pump(now - 2, failures=3)], running=2, workers=4, idle=2, runs=runs)
    )
    assert alive(path) == 0
    assert capsys.readouterr().out == (
        "alive: web1:7:ab, serving, 2 running, 2 of 4 workers idle\n"
        "  main               1 s of 10 s\n"
        "  pump-default       2 s of 1m 00s; fails, 3 in a row\n"
        "  worker-2        3m 20s in shop.commands.charge (c0885c19)\n"
        "      shop/commands.py:12 in charge: ask(card)\n"
        "  worker-1           3 s in shop.commands.charge (c0885c19)\n"
    )


def test_it_prints_why_not_and_exits_with_1(write_liveness, capsys, now):
    path = write_liveness(report(moved=now - 20))
    assert alive(path) == 1
    assert capsys.readouterr().out.splitlines()[:2] == [
        "not alive: web1:7:ab, serving",
        f"  the file was written 20 s ago: {GONE}",
    ]
    assert alive(path, "--ready") == 1
    assert capsys.readouterr().out.startswith("not ready: ")


def test_json_has_ages(write_liveness, capsys, now):
    path = write_liveness(
        fleet("serving", began=now - 5) | {"moved": now}, pid11=report(moved=now, runs=[run(now - 8)])
    )
    assert alive(path, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["alive"], told["problems"], told["places"]) == (True, [], 1)
    [process] = told["processes"]
    assert (process["pid"], process["report"]["state"], process["report"]["runs"][0]["age"]) == (11, "serving", 8.0)


@pytest.mark.parametrize(
    ("text", "said"),
    [(None, "there is no "), ("[]", "is no liveness file of queue_consumer"), ("{", "Expecting property name")],
    ids=["absent", "another one", "half a file"],
)
def test_a_file_that_no_consumer_writes_is_not_alive(tmp_path, capsys, text, said):
    path = tmp_path / "alive"
    if text is not None:
        path.write_text(text)
    assert alive(path) == 1
    assert said in capsys.readouterr().out


def test_it_can_wait_for_a_consumer_that_starts(write_liveness, monkeypatch):
    path = write_liveness(report("starting", moved=time.monotonic()))
    monkeypatch.setattr(time, "sleep", lambda seconds: write_liveness(report(moved=time.monotonic())))
    assert alive(path, "--ready") == 1
    assert alive(path, "--ready", "--wait", 30) == 0


def test_it_loads_no_django(write_liveness):
    path = write_liveness(report(moved=time.monotonic()))
    code = f"import sys; from djqueue import health; health.main([{path!r}]); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "djqueue.health" in done.stdout
    assert not {"django", "djqueue.consumer", "asyncio", "logging"} & set(done.stdout.split())
