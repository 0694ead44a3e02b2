"""RateLimits on Redis: exact, of their own tag, gone by themselves."""

import random

import pytest
import redis

from djqueue.backends import stores
from djqueue.backends.base import Entry, RateLimit
from djqueue.backends.redis.queue import RedisQueue
from djqueue.backends.stores import Grant
from djqueue.exceptions import NotSupported
from djqueue.flow.gates import Gate
from djqueue.flow.windows import Window
from djqueue.messages.envelope import new_id
from djqueue.testing import eventually
from tests.backends.redis.support import keys, once, work

pytestmark = pytest.mark.server("redis")


WINDOWS = [Window(5, 0.05), Window(3, 0.06, True), Window(4, 0.04, True, True), Window(6, 0.06, True, True, 2)]


@pytest.mark.parametrize("window", [*WINDOWS, Window(2000, 0.05)], ids=str)
@pytest.mark.parametrize("spacing", ["", "both"])
def test_a_rate_limit_is_spent_as_its_rule_says(make, window, spacing):
    """The same calls at the moments at which the server made them; it may forget what is older than the window."""
    store, choose = make().store.shared, random.Random(str(window))
    rate_limit, account, last, latest = RateLimit(new_id(), window, spacing and new_id()), None, 0, 0
    for _ in range(500):
        is_gone = store.get(stores.KEY + rate_limit.name) is None
        count = choose.randint(1, window.limit)
        grant = store.acquire(rate_limit, count)
        is_old = is_gone or grant.at - latest >= window.seconds * 1e6
        accounts = [None] if is_gone else [account, *[None] * is_old]
        rules = [(was, before) for was in accounts for before in (last, *[0] * is_old)]
        told = [stores.spend(was, rate_limit, count, grant.at, before) for was, before in rules]
        expected, account = next((one for one in told if grant[:4] == comparable(one[0])), told[0])
        assert grant[:4] == comparable(expected)
        latest = grant.at if grant.count else latest
        if grant.count and choose.random() < 0.3:
            back = choose.randint(1, grant.count)
            store.release(rate_limit, grant, back)
            account = stores.refund(account, expected, back)
        elif grant.count and spacing:
            last = grant.at


def comparable(grant: Grant) -> tuple:
    return grant.count, pytest.approx(grant.retry_after), grant.reason, grant.at


def test_a_run_gives_what_the_rate_limit_allows_and_the_rest_keeps_its_place(make):
    queue, rate_limit = make(), RateLimit("b", Window(5, 60.0))
    gate = Gate(ordered=True, max_run=4).written()
    queue.put([Entry(b"", f"{lane}{number}", lane=lane, gate=gate) for lane in "ab" for number in range(4)])
    claimed = queue.claim_within(rate_limit, 5)
    assert [one.entry.id for one in claimed] == ["a0", "a1", "a2", "a3", "b0"]
    assert (claimed.reason, 59 < claimed.retry_after <= 60) == ("limited", True)
    refused = queue.claim_within(rate_limit, 5)
    assert (refused, refused.reason, 59 < refused.retry_after <= 60) == ([], "limited", True)
    queue.complete(claimed)
    assert [one.entry.id for one in queue.claim(1)] == ["b1", "b2", "b3"]


def test_a_rate_limit_is_gone_two_windows_after_its_last_use(make, redis_client):
    queue, rate_limit = make(), RateLimit("b", Window(2, 0.5, True), "spaced")
    queue.put(work(1))
    queue.complete(queue.claim_within(rate_limit))
    assert {key.partition("}:")[0] for key in keys(redis_client) if "fact" in key} == {"{djqueue::shared"}
    eventually(lambda: keys(redis_client) == {"{djqueue:mail}:meta"})


def test_sites_that_are_kept_apart_share_no_rate_limit(make):
    rate_limit = RateLimit("b", Window(1, 60.0))
    assert [make(prefix=prefix).store.shared.acquire(rate_limit, 1).count for prefix in ("x", "y", "x")] == [1, 1, 0]


def test_a_queue_and_its_store_spend_the_same(make):
    queue, rate_limit = make(), RateLimit("queue:mail", Window(2, 60.0))
    queue.put(work(3))
    assert queue.store.shared.acquire(rate_limit, 1).count == 1
    assert len(queue.claim_within(rate_limit, 5)) == 1


def test_on_a_cluster_a_queue_has_a_rate_limit_of_its_own_and_no_other(cluster_server):
    with redis.cluster.RedisCluster("127.0.0.1", cluster_server.port, retry=once()) as cluster:
        queue, window = RedisQueue("mail", cluster), Window(2, 60.0, True)
        queue.put(work(3))
        for rate_limit in (
            RateLimit("shared", window),
            RateLimit("queue:mail", window, "shared"),
            RateLimit("queue:other", window),
        ):
            with pytest.raises(NotSupported, match="slots of the Redis cluster"):
                queue.claim_within(rate_limit)
        assert len(queue.claim_within(RateLimit("queue:mail", window), 2)) == 1
        assert queue.store.shared.acquire(RateLimit("shared", window, "spaced"), 1).count == 1
