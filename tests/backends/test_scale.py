"""A message costs the same in a queue of many as in an empty one: ``make scale`` measures it at full size."""

import subprocess
import sys

import pytest

from tests.support import servers

SIZES = ("--waiting", "20000", "--delayed", "20000", "--leased", "2000", "--queues", "100", "--lanes", "2000")


@pytest.mark.slow
@pytest.mark.full
@pytest.mark.parametrize("kind", ["sqlite", "redis", "postgres", "mariadb"])
def test_costs_do_not_grow_with_the_queue(kind):
    if kind != "sqlite" and (why := servers.missing(kind)):
        pytest.fail(why)
    command = [sys.executable, "tests/benchmarks/scale.py", *SIZES, "--most", "3", kind]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert ended.returncode == 0, ended.stdout + ended.stderr
