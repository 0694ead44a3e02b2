"""The flows of the distributed timeout queue, in djqueue's idiom: todos, in progress, done, and a cleaner.

Creator: push. Worker: take, work, complete; touch to keep it for longer. Cleaner: reap. The three sets of the original
are the states ready, leased and done.
"""

from collections import Counter
from functools import partial

import pytest

from djqueue import queues
from djqueue.decorators import queue_command
from djqueue.testing.patience import together
from tests.support import servers
from tests.support.backends import config_at
from tests.support.consumer import serving
from tests.support.processes import until

pytestmark = pytest.mark.backends()
URLS = [f"https://example.com/{number}" for number in range(10)]
SHORT = 0.1
"""Seconds after which an unfinished item is taken to be abandoned."""


def counts(queue) -> tuple[int, int, int]:
    """Todos, in progress, done."""
    stats = queue.stats()
    return stats.ready, stats.leased, stats.done


def abandon(queue, item: str = "url1"):
    """An item whose worker took it and was never heard of again, after its time."""
    queue.push(item)
    lease, _ = queue.take(lease=SHORT)
    until(lambda: queue.now() > lease.until)
    return lease


def test_to1_to3_to11_to14_to15_to16_pull_work_give_back_and_acknowledge(queue):
    """The flow of a worker, from todos through in_progress to done. The same url twice is two items."""
    for url in (URLS[0], URLS[1], URLS[1]):
        queue.push(url)
    assert counts(queue) == (3, 0, 0)
    lease, url = queue.take()
    assert (url, counts(queue)) == (URLS[0], (2, 1, 0))
    assert queue.release([lease]) == [lease]
    lease, url = queue.take()
    assert url == URLS[0]  # in its old place
    others = [queue.take() for _ in range(2)]
    assert ([url for _, url in others], queue.take()) == ([URLS[1]] * 2, (None, None))
    assert len(queue.complete([lease])) == 1
    assert counts(queue) == (0, 2, 1)
    assert len(queue.complete([other for other, _ in others])) == 2
    assert (counts(queue), queue.take()) == ((0, 0, 3), (None, None))


def test_to9_the_cleaner_leaves_alone_what_is_being_worked_on_for_as_long_as_touch_says(queue):
    """TO-6: the original robs a worker between its two steps."""
    queue.push("url1")
    lease, _ = queue.take(lease=SHORT)
    (kept,) = queue.touch([lease], 60)
    until(lambda: queue.now() > lease.until)
    assert (queue.reap().count, counts(queue)) == (0, (0, 1, 0))
    assert len(queue.complete([kept])) == 1


def test_to2_to4_to9_the_cleaner_moves_what_timed_out_back_and_who_was_replaced_cannot_touch_or_acknowledge(queue):
    slow = abandon(queue)
    assert counts(queue) == (0, 1, 0)
    assert queue.reap().count == 1
    assert counts(queue) == (1, 0, 0)
    quick, url = queue.take()
    assert (url, quick.entry.attempts, quick.entry.lost) == ("url1", 2, 1)
    assert queue.touch([slow], 60) == queue.complete([slow]) == []
    assert counts(queue) == (0, 1, 0)
    assert len(queue.touch([quick], 60)) == 1
    assert queue.complete([quick]) == [quick]
    assert (queue.complete([quick]), counts(queue)) == ([], (0, 0, 1))


def test_to5_who_was_too_slow_but_not_replaced_may_finish(queue):
    """The original throws such work away and does it again."""
    slow = abandon(queue)
    assert queue.complete([slow]) == [slow]
    assert counts(queue) == (0, 0, 1)
    again = abandon(queue, "url2")
    queue.reap()
    assert queue.complete([again]) == [again]
    assert counts(queue) == (0, 0, 2)


def test_to19_any_payload_comes_back_as_it_was(queue):
    items = [b"\x00\xff", "žluťoučký", None, 0, "", {"url": ("a", 1)}]
    queue.push_many(items)
    assert [queue.pop(default="nothing") for _ in range(7)] == [*items, "nothing"]


def test_to8_many_workers_one_of_them_careless_and_a_cleaner_finish_everything(queue):
    """The demonstration: everything ends in done, whoever drops what it took."""
    queue.push_many(URLS)
    seen: Counter = Counter()

    def work(careless: bool) -> None:
        while counts(queue)[2] < len(URLS):
            queue.reap()
            lease, url = queue.take(lease=SHORT if careless else 60, wait=0.05)
            if lease is not None and not (careless and lease.entry.attempts == 1):
                seen.update([url] * len(queue.complete([lease])))

    together(*[partial(work, careless) for careless in (True, False, False)], last=queue.close)
    assert (seen, counts(queue)) == (Counter(URLS), (0, 0, 10))


FETCHED: Counter = Counter()


@queue_command
def fetch(url):
    FETCHED[url] += 1


@pytest.mark.slow
def test_to18_workers_and_cleaner_come_through_while_redis_is_away(private_server, settings, caplog):
    server = private_server("redis", *servers.Redis.DURABLE)
    settings.QUEUES = {"default": config_at(server.url)}
    queue = queues["default"]
    fetch("left behind")
    queue.claim(1, lease=3)  # by a worker that is never heard of again
    with serving("default", threads=2, lease=4):
        fetch("before")
        until(lambda: FETCHED["before"])
        server.kill9()
        until(lambda: "djqueue-pump-default failed (3 in a row)" in caplog.text)
        server.restart()
        fetch("after")
        until(lambda: FETCHED["after"] and FETCHED["left behind"])
    assert FETCHED == {"before": 1, "after": 1, "left behind": 1}
