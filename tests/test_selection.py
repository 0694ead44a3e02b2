"""What a push leaves to `make test-all`: the tables behind it name what is there, and each store has its share."""

import ast
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from tests.faults.stores import PER_PUSH, STORES
from tests.long_tests import LONG
from tests.support import durations, selection
from tests.support.backends import FULL

TESTS = Path(__file__).parent
FEWEST = 8
"""Faults that each store has at least."""


@cache
def functions(path: Path) -> set[str]:
    """The test functions of a file, those of classes too."""
    nodes = ast.walk(ast.parse(path.read_text())) if path.exists() else ()
    return {node.name for node in nodes if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


def test_each_store_has_its_share_of_the_faults():
    share = Counter(store for faults in PER_PUSH.values() for store in faults.values())
    assert set(share) == set(STORES)
    assert min(share.values()) >= FEWEST, share


def test_the_faults_of_the_table_are_there():
    gone = {(name, test) for name, faults in PER_PUSH.items() for test in faults} - {
        (name, test) for name in PER_PUSH for test in functions(TESTS / "faults" / f"{name}.py")
    }
    assert gone == set()


def test_the_long_tests_are_there_and_have_a_reason():
    assert {(name, test) for name, tests in LONG.items() for test in set(tests) - functions(TESTS / name)} == set()
    assert all(reason.strip() for tests in LONG.values() for reason in tests.values())


@pytest.mark.skipif(FULL, reason="at full size nothing is left out")
class TestChosen:
    def test_a_fault_is_seen_on_the_store_of_the_table(self, request):
        ids = chosen(request, "faults/test_signals.py", "test_an_idle_consumer_stops_soon_dj23", STORES)
        assert ids == (PER_PUSH["test_signals"]["test_an_idle_consumer_stops_soon_dj23"],)

    def test_a_fault_that_the_table_does_not_have_is_named(self, request):
        with pytest.raises(pytest.UsageError, match="test_new.*tests/faults/stores.py"):
            chosen(request, "faults/test_signals.py", "test_new", STORES)

    def test_a_contract_is_kept_by_each(self, request):
        assert chosen(request, "backends/contract/test_x.py", "test_new", STORES) == STORES

    def test_above_it_memory_and_one_real_store_always_the_same(self, request):
        seen = [chosen(request, "running/test_x.py", f"test_{number}", ("memory", *STORES)) for number in range(200)]
        assert {ids[0] for ids in seen} == {"memory"}
        assert {len(ids) for ids in seen} == {2}
        assert min(Counter(ids[1] for ids in seen).values()) > 20
        assert seen[7] == chosen(request, "running/test_x.py", "test_7", ("memory", *STORES))

    def test_each_is_kept_where_it_is_asked_for(self, request):
        mark = pytest.mark.backends(*STORES, each=True)
        assert chosen(request, "running/test_x.py", "test_new", STORES, mark) == STORES


def chosen(request, file, name, ids, *marks):
    """On which backends a push would run a test of that name."""
    test = pytest.Function.from_parent(request.node.parent, name=name, callobj=lambda: None)
    test.path, test._nodeid = TESTS / file, f"tests/{file}::{name}"
    for mark in marks:
        test.add_marker(mark)
    return selection.chosen(test, ids)


def test_a_long_test_without_a_reason_is_found():
    plugin = durations.Durations()
    plugin.calls |= {"tests/test_a.py::test_b[redis]": durations.MOST + 1, "tests/test_a.py::test_c": 1.0}
    assert [*plugin.unexplained()] == ([] if FULL else ["tests/test_a.py::test_b[redis]"])
    assert durations.folder_of("tests/backends/contract/test_a.py::test_b") == "tests/backends/contract"
