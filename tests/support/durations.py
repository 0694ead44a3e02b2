"""Where the time of a run goes: by folder, and the tests that take long without a reason."""

import resource
from collections import Counter
from pathlib import PurePosixPath

import pytest

from tests.long_tests import LONG
from tests.support.backends import FULL
from tests.support.processes import FORK_SERVER

MOST = 10.0
"""Seconds that a test may take without a reason in tests/long_tests.py."""
PROCESSOR = "processor seconds"
"""What a test has used itself and by processes that have ended; servers are not counted."""


class Durations:
    """A plugin of pytest that counts what each test takes, whichever worker ran it."""

    def __init__(self):
        self.seconds: Counter[str] = Counter()
        """By the id of a test, with its setup and teardown."""
        self.calls: Counter[str] = Counter()
        """The same without them: the first test of a worker makes the databases."""
        self.processor: Counter[str] = Counter()
        """How much of the processor each used, which says more than seconds where several tests run at once."""
        self._used = 0.0

    def pytest_collection_finish(self):
        self._used = used()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(self, item, call):
        if call.when == "teardown":
            before, self._used = self._used, used()
            item.user_properties.append((PROCESSOR, self._used - before))

    def pytest_runtest_logreport(self, report):
        self.seconds[report.nodeid] += report.duration
        self.processor[report.nodeid] += dict(report.user_properties).get(PROCESSOR, 0)
        self.calls[report.nodeid] += report.duration if report.when == "call" else 0

    def pytest_terminal_summary(self, terminalreporter):
        folders, processor, tests = Counter(), Counter(), Counter()
        for id, seconds in self.seconds.items():
            folders[folder_of(id)] += seconds
            processor[folder_of(id)] += self.processor[id]
            tests[folder_of(id)] += 1
        if len(folders) > 1:
            terminalreporter.section("by folder: seconds of workers, seconds of processor, tests")
            for folder, seconds in folders.most_common():
                terminalreporter.line(f"{seconds:6.0f} {processor[folder]:6.0f} {tests[folder]:6}  {folder}")
            terminalreporter.line(f"{folders.total():6.0f} {processor.total():6.0f} {tests.total():6}  all")
        if unexplained := self.unexplained():
            terminalreporter.section(f"over {MOST:.0f} s, and not in tests/long_tests.py")
            for id, seconds in unexplained.most_common():
                terminalreporter.line(f"{seconds:6.1f} s  {id}")

    def unexplained(self) -> Counter[str]:
        """The tests that take long and are not listed; at full size many do."""
        if FULL:
            return Counter()
        return Counter({id: seconds for id, seconds in self.calls.items() if seconds > MOST and not is_listed(id)})


def used() -> float:
    """Processor seconds of this process and of its children that have ended."""
    both = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return sum(one.ru_utime + one.ru_stime for one in both) + FORK_SERVER.seconds


def folder_of(id: str) -> str:
    """Of a test: two folders deep, as backends have one each."""
    return "/".join(PurePosixPath(id.partition("::")[0]).parent.parts[:3])


def is_listed(id: str) -> bool:
    """Whether its file and its function have a reason."""
    path, _, name = id.partition("::")
    return name.partition("[")[0].rpartition("::")[2] in LONG.get(path.removeprefix("tests/"), {})
