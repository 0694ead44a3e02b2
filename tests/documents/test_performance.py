"""The tables of docs/performance.rst are those of the stored results, and the bench says what costs too much."""

import json
import re

from tests.benchmarks import run
from tests.benchmarks.race import report
from tests.benchmarks.race.entrants import ENTRANTS
from tests.support.documents import ROOT

PAGE = ROOT / "docs" / "performance.rst"
LIMITS = {"redis": {"drain": 5.0, "switches": 0.0, "frames": 6}}


def test_the_tables_are_those_of_the_results():
    made = report.tables(json.loads(report.RESULTS.read_text()))
    found = {path.stem: path.read_text() for path in report.FOLDER.glob("*.csv") if path != run.TABLE}
    assert found == {name: report.as_csv(rows) for name, rows in made.items()}
    assert run.TABLE.read_text() == run.table(json.loads(run.LIMITS.read_text()))


def test_each_table_is_shown():
    shown = re.findall(r"^    :file: performance/(\S+)$", PAGE.read_text(), re.M)
    assert sorted(shown) == sorted(path.name for path in report.FOLDER.glob("*.csv"))


def test_all_entrants_are_in_the_results():
    """Measured, or with the reason why not."""
    results = json.loads(report.RESULTS.read_text())["entrants"]
    assert [(one["name"], one["store"]) for one in results] == [(one.name, one.store) for one in ENTRANTS]
    assert [one["name"] for one in results if "drain" not in one and not one["failed"]] == []


def test_the_versions_of_the_peers_are_pinned_and_told():
    lines = (ROOT / "tests/benchmarks/race/requirements.txt").read_text().splitlines()
    pins = dict(re.fullmatch(r"([\w-]+)(?:\[.*\])?==(\S+)", line).groups() for line in lines if line[0] != "#")
    told = json.loads(report.RESULTS.read_text())["versions"]
    assert {name: told[name] for name in pins} == pins


def test_the_bench_allows_what_was_and_refuses_more():
    assert run.excesses({"redis": {"drain": 5.9, "switches": 0.09, "frames": 6}}, LIMITS) == []
    assert run.excesses({"redis": {"drain": 6.1, "switches": 0.2, "frames": 7}}, LIMITS) == [
        "redis: drain is 6.10, and may be 6.00",
        "redis: switches is 0.20, and may be 0.10",
        "redis: frames is 7.00, and may be 6.00",
    ]
    assert run.excesses({"mariadb": {"drain": 100.0}}, LIMITS) == []
