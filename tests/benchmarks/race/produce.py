"""What one library does as a producer, in a process of its own; prints its figures as JSON.

python -m tests.benchmarks.race.produce PEER prepare
python -m tests.benchmarks.race.produce PEER fill COUNT SINGLES
python -m tests.benchmarks.race.produce PEER latency COUNT SECONDS
python -m tests.benchmarks.race.produce PEER slow COUNT
"""

from __future__ import annotations

import asyncio
import importlib
import json
import random
import sys
import time
from inspect import iscoroutinefunction

from tests.benchmarks import ledger
from tests.benchmarks.measure import cost

CHUNK = 1_000
"""Messages in one call of ``send_many``."""
PATIENCE = 30.0
LOOK = 0.0005
SHORTEST, LONGEST = 0.02, 0.1
"""Seconds between the start of a lone message and the next call."""


class Peer:
    """A module of ``peers``, whose functions may be coroutine functions."""

    def __init__(self, name: str):
        self._module = importlib.import_module(f"tests.benchmarks.race.peers.{name}")
        self._loop = asyncio.new_event_loop()

    def has(self, verb: str) -> bool:
        return verb in vars(self._module)

    def __call__(self, verb: str, *args) -> None:
        function = vars(self._module)[verb]
        if iscoroutinefunction(function):
            self._loop.run_until_complete(function(*args))
        else:
            function(*args)


def prepare(peer: Peer) -> dict:
    if peer.has("prepare"):
        peer("prepare")
    return {}


def fill(peer: Peer, count: int, singles: int) -> dict:
    """Enqueue the numbers below ``count``, the first one by one; seconds of wall clock and of processor for each."""
    peer("send", [0])
    last = singles if peer.has("send_many") else count
    figures = {"single": timed(peer, "send", [range(1, last)])}
    if last < count:
        chunks = [range(start, min(start + CHUNK, count)) for start in range(last, count, CHUNK)]
        figures["bulk"] = timed(peer, "send_many", chunks)
    return figures


def timed(peer: Peer, verb: str, parts: list[range]) -> dict:
    return cost(sum(map(len, parts)), lambda: [peer(verb, part) for part in parts])


def latency(peer: Peer, count: int, seconds: int) -> dict:
    """Milliseconds from before a call to the start of its message, of lone messages to a worker that waits.

    A pause may be as long as the longest wait so far, so that a worker that polls is met at any moment of its round.
    """
    peer("send", [0])
    wait_for(0)
    dice, taken, end = random.Random(1), [], time.monotonic() + seconds
    for number in range(1, count + 1):
        time.sleep(dice.uniform(SHORTEST, max([LONGEST, *(each / 1000 for each in taken)])))
        if time.monotonic() > end:
            break
        began = time.monotonic()
        peer("send", [number])
        wait_for(number)
        taken.append((ledger.times[number] - began) * 1000)
    return {"latencies": taken}


def wait_for(number: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while not ledger.times[number]:
        if time.monotonic() > deadline:
            raise TimeoutError(f"message {number} was not run within {PATIENCE:g} s")
        time.sleep(LOOK)


def slow(peer: Peer, count: int) -> dict:
    peer("send_slow", range(count))
    return {}


def main(name: str, what: str, *numbers: str) -> None:
    peer = Peer(name)
    if peer.has("connect") and what != "prepare":
        peer("connect")
    function = {"prepare": prepare, "fill": fill, "latency": latency, "slow": slow}[what]
    print(json.dumps(function(peer, *map(int, numbers))), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
