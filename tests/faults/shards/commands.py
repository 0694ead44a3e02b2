"""What runs in shards while its workers are killed: an app of its own, as not every backend has lanes."""

import time

from djqueue import queue_command
from tests.faults.commands import await_file, recorded


def by_shard(shard, *_):
    return shard


@queue_command(shard=by_shard)
@recorded
def step(shard, milliseconds=0.0):
    if milliseconds:
        time.sleep(milliseconds / 1000)


@queue_command(shard=by_shard, max_run=1)
@recorded
def step_alone(shard, milliseconds=0.0):
    if milliseconds:
        time.sleep(milliseconds / 1000)


@queue_command(shard=by_shard)
@recorded
def wait_for(shard, path):
    await_file(path)
