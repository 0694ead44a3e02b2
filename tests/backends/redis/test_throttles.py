"""What a throttled queue costs a Redis server, and what it leaves there."""

import pytest

from djqueue.backends.memory import MemoryStore
from djqueue.backends.redis.queue import RedisQueue
from djqueue.testing import eventually
from djqueue.throttle import ThrottledQueue
from tests.backends.redis.support import calls, keys

pytestmark = pytest.mark.server("redis")
MODES = {
    "plain": {},
    "moderated": {"moderate": True},
    "elastic": {"moderate": True, "elastic": True},
    "shared": {"moderate": True, "window_name": "api", "mod_name": "spacing"},
}
each_mode = pytest.mark.parametrize("mode", MODES.values(), ids=MODES)


def throttled(queue: RedisQueue, limit=3, window=60, items=5, **mode) -> ThrottledQueue:
    made = ThrottledQueue(queue, limit=limit, window=window, **mode)
    made.push_many(range(items))
    return made


@pytest.mark.alone  # the server counts the commands of all
@each_mode
def test_tq23_a_decision_is_one_round_trip_and_one_script(make, redis_client, mode):
    queue = throttled(make(), **mode)
    queue.claim()
    throttled(make("empty"), items=0, **mode).claim()  # the script is known
    redis_client.config_resetstat()
    for _ in range(10):
        queue.claim()
    assert calls(redis_client, "evalsha", "eval") == {"evalsha": 10, "eval": 0}


@each_mode
def test_tq13_clear_leaves_no_key_of_the_throttle_behind(make, redis_client, mode):
    make().push("before")
    make().clear()
    before = keys(redis_client)
    queue = throttled(make(), **mode)
    while queue.pop() is not None:
        pass
    assert keys(redis_client) > before
    for _ in range(2):
        queue.clear()
        assert keys(redis_client) == before


@each_mode
def test_tq19_what_a_throttle_keeps_vanishes_two_windows_after_its_last_use(make, redis_client, mode):
    make().push("before")
    before = keys(redis_client) | {"{djqueue:mail}:leases", "{djqueue:mail}:own"}
    queue = throttled(make(), window=0.2, **mode)
    queue.take()
    own = keys(redis_client) - before
    assert own and all(0 < redis_client.pttl(key) <= 450 for key in own)
    eventually(lambda: not own & keys(redis_client))
    assert len(queue) == 5


def test_a_queue_with_a_store_of_another_backend_spends_there(make, redis_client):
    queue = make()
    queue.store = MemoryStore("mail")
    assert len(throttled(queue).claim(5)) == 3
    assert queue.store.shared._facts
    assert not [key for key in keys(redis_client) if "rate_limit" in key]
