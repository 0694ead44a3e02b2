"""Whether a consumer is alive and ready, by its liveness file: ``python -m djqueue.health FILE``. It loads no Django.

The file is an object of JSON. The process, and each part of it, has the moment at which it last moved and the seconds
within which it has to move again. Moments are of the monotonic clock, which all processes of a machine share.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from math import inf
from typing import Any

from djqueue.words import duration

STARTING, SERVING, STOPPING = "starting", "serving", "stopping"
ANSWERS = 10.0  # seconds in which a store is to answer a claim
LOOK = 0.2  # seconds between two looks
LISTED = 20
"""Runs that are listed at most, the longest first."""

Report = dict[str, Any]
"""What a liveness file holds."""


def read(path: str) -> Report:
    """Raises OSError if there is no file, ValueError if it is none of a consumer's."""
    with open(path, encoding="utf-8") as file:
        report = json.load(file)
    if not isinstance(report, dict) or not report.keys() >= {"name", "state", "moved", "limit"}:
        raise ValueError(f"{path} is no liveness file of queue_consumer")
    return report


def age(moment: float, now: float) -> float:
    """The seconds since a moment; for ever if it was before the machine started again."""
    return now - moment if moment <= now + 1 else inf


# ---- Alive: whether each part moves


def problems(report: Report, path: str = "", now: float | None = None) -> list[str]:
    """What does not move, in words; empty if the consumer is alive. Its processes write next to the file ``path``."""
    now = time.monotonic() if now is None else now
    if (silent := age(report["moved"], now)) > report["limit"]:
        when = f"{duration(silent)} ago" if silent < inf else "before the machine was started"
        return [f"the file was written {when}: the process does nothing, or is gone"]
    found = [_still(part, now) for part in report.get("parts", ()) if age(part["moved"], now) > part["limit"]]
    found += [_lasting(run, now) for run in report.get("runs", ()) if age(run["began"], now) > (run["limit"] or inf)]
    for process, own in processes(report, path):
        if own is None:
            own_problems = [] if age(process["began"], now) <= process["limit"] else ["it writes no file"]
        else:
            own_problems = problems(own, now=now)
        found += [f"{name(process)}: {problem}" for problem in own_problems]
    return found


def processes(report: Report, path: str) -> Iterator[tuple[Report, Report | None]]:
    """The processes of a supervisor, each with its own report; None while it has written none."""
    for process in report.get("processes", ()) if path else ():
        try:
            yield process, read(f"{path}.{process['pid']}")
        except (OSError, ValueError):
            yield process, None


def name(process: Report) -> str:
    return f"process {process['number']} (pid {process['pid']})"


def _still(part: Report, now: float) -> str:
    stood = f"{duration(age(part['moved'], now))} (limit {duration(part['limit'])})"
    return f"{part['name']} has not moved for {stood}{_at(part)}"


def _lasting(run: Report, now: float) -> str:
    lasted = f"{duration(age(run['began'], now))} (limit {duration(run['limit'])})"
    return f"{run['worker']} has run {_called(run)} for {lasted}{_at(run)}"


def _called(run: Report) -> str:
    """The command, and the end of the id of its message, by which ``queue_errors`` and the log find it."""
    one = f"{run['command']} ({run['id'][-8:]})"
    return one if run["count"] == 1 else f"{run['count']} calls of {run['command']}"


def _at(thing: Report) -> str:
    """Where it is, one line for each frame, the innermost last."""
    where = thing.get("where")
    return ":" + "".join(f"\n    {line}" for line in where) if where else ""


# ---- Ready: whether it serves, and its stores answer


def obstacles(report: Report, path: str = "", now: float | None = None) -> list[str]:
    """Why it is not ready, in words; empty if it is. What is not alive is not ready."""
    now = time.monotonic() if now is None else now
    if found := problems(report, path, now):
        return found
    if report["state"] != SERVING:
        return [f"it is {report['state']}"]
    found = [f"the store of queue {alias!r} does not answer" for alias in report.get("unanswered", ())]
    for part in report.get("parts", ()):
        if part.get("claims") and (waited := age(part["moved"], now)) > ANSWERS:
            found.append(f"{part['name']} has waited for its store for {duration(waited)}")
    serving = [number for number, _ in _serving(report, path)]
    missing = [number for number in range(1, report.get("places", 0) + 1) if number not in serving]
    found += [f"process {number} does not serve yet" for number in missing]
    for number, own in _serving(report, path):
        found += [f"process {number}: {obstacle}" for obstacle in obstacles(own, now=now)]
    return found


def _serving(report: Report, path: str) -> Iterator[tuple[int, Report]]:
    for process, own in processes(report, path):
        if process["state"] == SERVING and own is not None:
            yield process["number"], own


# ---- What people read


def summary(report: Report) -> str:
    """One line: its state, and how much it runs."""
    if "places" in report:
        serving = sum(process["state"] == SERVING for process in report["processes"])
        return f"{report['state']}, {serving} of {report['places']} processes"
    if "running" not in report:
        return str(report["state"])
    return f"{report['state']}, {report['running']} running, {report['idle']} of {report['workers']} workers idle"


def lines(report: Report, path: str, now: float) -> Iterator[str]:
    """Each part and each run with its age."""
    main, parts, runs = {**report, "name": "main"}, report.get("parts", []), report.get("runs", [])[:LISTED]
    width = max(len(title) for title in ("main", *(one["name"] for one in parts), *(one["worker"] for one in runs)))
    for part in [main, *parts]:
        fails = f"; fails, {part['failures']} in a row" if part.get("failures") else ""
        yield f"  {part['name']:{width}}  {duration(age(part['moved'], now)):>8} of {duration(part['limit'])}{fails}"
    for run in runs:
        yield f"  {run['worker']:{width}}  {duration(age(run['began'], now)):>8} in {_called(run)}"
        if where := run.get("where"):
            yield f"      {next((line for line in reversed(where) if not line.startswith('/')), where[-1])}"
    if (more := report.get("running", 0) - sum(run["count"] for run in runs)) > 0:
        yield f"  and {more} more that run"
    for worker in report.get("left_behind", ()):
        yield f"  {worker['worker']} was left behind after the time limit{_at(worker)}"
    for process, own in processes(report, path):
        yield f"  {name(process)}: {process['state'] if own is None else summary(own)}"
        yield from () if own is None else (f"  {line}" for line in lines(own, "", now))


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(
        prog="python -m djqueue.health",
        description="Whether a consumer that was started with --alive FILE is alive. "
        "Exits with 0 if it is, and with 1 and the reason if it is not.",
    )
    options.add_argument("file", metavar="FILE", help="what queue_consumer --alive was given")
    options.add_argument("--ready", action="store_true", help="whether it serves, and its stores answer")
    options.add_argument("--json", action="store_true", help="an object with alive, ready, problems and the file")
    options.add_argument("--wait", type=float, default=0.0, metavar="SECONDS", help="look again for up to this long")
    return options


def main(arguments: list[str] | None = None) -> int:
    given = parser().parse_args(arguments)
    until = time.monotonic() + given.wait
    report, found = look(given.file, given.ready)
    while found and time.monotonic() < until:
        time.sleep(LOOK)
        report, found = look(given.file, given.ready)
    _show(given, report, found, time.monotonic())
    return bool(found)


def look(path: str, ready: bool = False) -> tuple[Report, list[str]]:
    """A liveness file, and why its consumer is not alive, or not ready; an empty one if it cannot be read."""
    try:
        report = read(path)
    except FileNotFoundError:
        return {}, [f"there is no {path}: no consumer runs with --alive {path}"]
    except (OSError, ValueError) as error:
        return {}, [str(error)]
    return report, obstacles(report, path) if ready else problems(report, path)


def _show(given: argparse.Namespace, report: Report, found: list[str], now: float) -> None:
    try:
        print(_shown(given, report, found, now), flush=True)
    except BrokenPipeError:  # as head has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _shown(given: argparse.Namespace, report: Report, found: list[str], now: float) -> str:
    word = "ready" if given.ready else "alive"
    if given.json:
        return json.dumps({word: not found, "problems": found, **_aged(report, given.file, now)})
    details = f": {report['name']}, {summary(report)}" if report else ""
    verdict = [f"{'not ' if found else ''}{word}{details}", *(f"  {problem}" for problem in found)]
    return "\n".join([*verdict, *(lines(report, given.file, now) if report else ())])


def _aged(report: Report, path: str, now: float) -> Report:
    """The report with ages instead of moments, and those of its processes."""
    ages = {"moved": "age", "began": "age"}
    aged: Report = {}
    for key, value in report.items():
        if key in ages:
            aged[ages[key]] = None if (since := age(value, now)) == inf else round(since, 1)
        elif isinstance(value, list):
            aged[key] = [_aged(one, "", now) if isinstance(one, dict) else one for one in value]
        else:
            aged[key] = value
    for entry, (_, own) in zip(aged.get("processes", ()), processes(report, path), strict=False):
        entry["report"] = None if own is None else _aged(own, "", now)
    return aged


if __name__ == "__main__":
    sys.exit(main())
