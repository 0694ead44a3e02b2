"""RateLimits on Redis: exact, of their own tag, gone by themselves."""

import json
import random
from collections.abc import Iterator
from math import inf

import pytest
import redis

from djqueue.backends import stores
from djqueue.backends.base import Entry, RateLimit
from djqueue.backends.redis import scripts
from djqueue.backends.redis.queue import RedisQueue
from djqueue.exceptions import NotSupported
from djqueue.flow.gates import Gate
from djqueue.flow.rates import Rate, agreed, capacity, expires_at, moved, spend
from djqueue.flow.windows import Window
from djqueue.messages.envelope import new_id
from djqueue.testing import eventually
from tests.backends.redis.support import keys, once, work
from tests.support.backends import FULL
from tests.support.windows import WINDOWS

pytestmark = pytest.mark.server("redis")


LUA = """
local now, answers = nil, {}
local function whole(number) return string.format("%.0f", number) end
RATES
local rates, rate = rate_rules(), nil
for _, step in ipairs(cjson.decode(ARGV[1])) do
  local verb, at, number, to, window = unpack(step)
  if verb == "new" then
    rate = rates.new(rates.window(unpack(window)))
  elseif verb == "agreed" then
    rate = rates.agreed(rate, rates.window(unpack(window)), at)
  elseif verb == "moved" then
    rate = rates.moved(rate, to, number, at) or rate
  else
    local free = rates.capacity(rate, at)
    rates.spend({rate}, math.min(number, free), at)
  end
  local free, wait, why = rates.capacity(rate, at)
  rate = rates.read(rates.written(rate))
  answers[#answers + 1] = {whole(free), whole(wait), why, rates.written(rate), whole(rates.expires_at(rate))}
end
return cjson.encode(answers)
"""
ALL = [*WINDOWS, Window(0, 1.0)]
SEQUENCES, STEPS = 400 if FULL else 20, 100
FORGOTTEN_LATE = 10_000
"""Microseconds: Redis forgets a rate that is not needed any more some milliseconds later."""


def steps_of(choose: random.Random) -> list[tuple]:
    """A verb, now, a number or a moment, the moment of a grant, and a window, of each step."""
    now, left, window = 1_700_000_000_000_000, [], choose.choice(ALL)
    steps = [("new", now, 0, 0, window)]
    for _ in range(STEPS):
        now += choose.choice([0, 1, choose.randint(1, 20_000), choose.randint(1, 200_000)])
        verb = choose.choice(["spend"] * 6 + ["moved"] * 2 + ["agreed"])
        if verb == "moved":
            to, before = now + choose.randint(0, 5_000), choose.choice(left[-5:] or [now])
            steps.append((verb, now, to, before, window))
        else:
            steps.append((verb, now, choose.choice([1, 2, 5, 700]), 0, choose.choice(ALL)))
            left.append(now)
    return steps


def by_rule(steps: list[tuple]) -> Iterator[list]:
    """What the rule of the other stores says to each step."""
    rate = Rate(ALL[0])
    for verb, now, number, at, window in steps:
        if verb == "new":
            rate = Rate(window)
        elif verb == "agreed":
            rate = agreed(rate, window, now)
        elif verb == "moved":
            rate = moved(rate, 1, at, number, now) or rate
        else:
            _, (rate,) = spend([rate], number, now)
        has = capacity(rate, now)
        yield [
            str(has.free),
            "-1" if has.wait == inf else str(has.wait),
            has.reason,
            rate.written(),
            str(expires_at(rate)),
        ]


@pytest.mark.parametrize("seed", range(SEQUENCES))
def test_the_script_and_the_rule_of_the_other_stores_decide_alike_and_write_the_same(redis_client, seed):
    steps = steps_of(random.Random(seed))
    said = json.dumps([(*step, window.written()) for *step, window in steps])
    answers = json.loads(redis_client.eval(LUA.replace("RATES", scripts._texts()["rates"]), 0, said))
    assert answers == [*by_rule(steps)]


@pytest.mark.parametrize("window", ALL[:-1], ids=str)
@pytest.mark.parametrize("spacing", ["", "both"])
def test_a_claim_spends_a_rate_limit_as_its_rule_says(make, window, spacing):
    """The same claims at the moments at which the server made them; it may forget what is older than the window."""
    queue, choose = make(), random.Random(str(window))
    store, rate_limit = queue.store.shared, RateLimit(new_id(), window, spacing and new_id())
    queue.put(work(4000))
    rate, last = None, 0
    for _ in range(200):
        count = choose.randint(1, min(window.limit, 15))
        claimed = queue.claim_within(rate_limit, count)
        value = store.get(stores.KEY + rate_limit.name)
        if not claimed or value is None:
            continue
        now = round(claimed[0].claimed * 1e6)
        late = now - expires_at(rate) if rate else inf
        known = [*[rate] * (late < FORGOTTEN_LATE), *[None] * (late >= 0)]
        spent = [stores.spend(one, rate_limit, count, now, last) for one in known]
        found = {(grant.count, after.written().encode()): after for grant, after in spent}
        assert (len(claimed), value) in found
        rate = found[len(claimed), value]
        last = now if spacing else 0


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
