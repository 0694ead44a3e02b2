"""The table of who passes the conformance suite."""

import csv

from tests.support.documents import ROOT
from tests.tasks.peers import run
from tests.tasks.peers.peers import PEERS


def rows() -> list[dict]:
    with (ROOT / "docs" / "conformance.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_it_has_each_backend_on_each_of_its_djangos():
    told = [(row["Backend"], ".".join(row["Django"].split(".")[:2])) for row in rows()]
    assert told == [(peer.name, django) for peer in PEERS.values() for _, django in peer.combinations]
    assert tuple(rows()[0]) == run.HEAD


def test_djqueue_passes_whole():
    assert {row["Failed"] for row in rows() if row["Backend"].startswith("djqueue")} == {"0"}
