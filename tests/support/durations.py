"""Where the time of a run goes: the seconds of its workers by folder, and the tests that take long without a reason."""

from collections import Counter
from pathlib import PurePosixPath

from tests.long_tests import LONG
from tests.support.backends import FULL

MOST = 10.0
"""Seconds that a test may take without a reason in tests/long_tests.py."""


class Durations:
    """A plugin of pytest that counts what each test takes, whichever worker ran it."""

    def __init__(self):
        self.seconds: Counter[str] = Counter()
        """By the id of a test, with its setup and teardown."""
        self.calls: Counter[str] = Counter()
        """The same without them: the first test of a worker makes the databases."""

    def pytest_runtest_logreport(self, report):
        self.seconds[report.nodeid] += report.duration
        self.calls[report.nodeid] += report.duration if report.when == "call" else 0

    def pytest_terminal_summary(self, terminalreporter):
        folders, tests = Counter(), Counter()
        for id, seconds in self.seconds.items():
            folders[folder_of(id)] += seconds
            tests[folder_of(id)] += 1
        if len(folders) > 1:
            terminalreporter.section("worker seconds by folder")
            for folder, seconds in folders.most_common():
                terminalreporter.line(f"{seconds:6.0f} s  {tests[folder]:5} tests  {folder}")
            terminalreporter.line(f"{folders.total():6.0f} s  {tests.total():5} tests")
        if unexplained := self.unexplained():
            terminalreporter.section(f"over {MOST:.0f} s, and not in tests/long_tests.py")
            for id, seconds in unexplained.most_common():
                terminalreporter.line(f"{seconds:6.1f} s  {id}")

    def unexplained(self) -> Counter[str]:
        """The tests that take long and are not listed; at full size many do."""
        if FULL:
            return Counter()
        return Counter({id: seconds for id, seconds in self.calls.items() if seconds > MOST and not is_listed(id)})


def folder_of(id: str) -> str:
    """Of a test: two folders deep, as backends have one each."""
    return "/".join(PurePosixPath(id.partition("::")[0]).parent.parts[:3])


def is_listed(id: str) -> bool:
    """Whether its file and its function have a reason."""
    path, _, name = id.partition("::")
    return name.partition("[")[0].rpartition("::")[2] in LONG.get(path.removeprefix("tests/"), {})
