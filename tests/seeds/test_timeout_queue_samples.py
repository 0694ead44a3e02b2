"""The flows of the distributed timeout queue, in djqueue's idiom: todos, in progress, done, and a cleaner.

Creator: push. Worker: take, work, complete; touch to keep it for longer. Cleaner: reap. The three sets of the original
are the states ready, leased and done.
"""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from djqueue.decorators import queue_command
from djqueue.queues import queues
from tests.support import servers
from tests.support.consumer import serving
from tests.support.processes import until

pytestmark = pytest.mark.backends()
URLS = [f"https://example.com/{number}" for number in range(10)]
SHORT = 0.1
"""Seconds after which an unfinished item is taken to be abandoned."""


@pytest.fixture
def queue(backend, settings):
    settings.QUEUES = backend.queues()
    return queues["default"]


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


def test_to14_the_creator_puts_todos_and_they_are_counted(queue):
    for url in URLS:
        queue.push(url)
    assert counts(queue) == (10, 0, 0)


def test_to1_to3_to15_pull_work_and_acknowledge(queue):
    """The flow of a worker, from todos through in_progress to done."""
    for url in URLS[:2]:
        queue.push(url)
    lease, url = queue.take()
    assert (url, counts(queue)) == (URLS[0], (1, 1, 0))
    other, other_url = queue.take()
    assert (other_url, queue.take()) == (URLS[1], (None, None))
    assert len(queue.complete([lease])) == 1
    assert counts(queue) == (0, 1, 1)
    assert len(queue.complete([other])) == 1
    assert (counts(queue), queue.take()) == ((0, 0, 2), (None, None))


def test_to2_the_cleaner_moves_what_timed_out_back_to_todos(queue):
    abandon(queue)
    assert counts(queue) == (0, 1, 0)
    assert queue.reap().count == 1
    assert counts(queue) == (1, 0, 0)
    lease, url = queue.take()
    assert (url, lease.entry.attempts, lease.entry.lost) == ("url1", 2, 1)
    assert len(queue.complete([lease])) == 1


def test_the_cleaner_leaves_alone_what_is_being_worked_on(queue):
    """TO-6: the original robs a worker between its two steps."""
    queue.push("url1")
    lease, _ = queue.take(lease=60)
    reaped = queue.reap()
    assert (reaped.count, counts(queue)) == (0, (0, 1, 0))
    assert len(queue.complete([lease])) == 1


def test_to13_several_cleaners_return_each_item_once(queue):
    for url in URLS:
        queue.push(url)
    leases = [queue.take(lease=SHORT)[0] for _ in URLS]
    until(lambda: queue.now() > max(lease.until for lease in leases))

    def clean() -> int:
        try:
            return queue.reap().count
        finally:
            queue.close()

    with ThreadPoolExecutor(3) as cleaners:
        assert sum(cleaners.map(lambda _: clean(), range(3))) == 10
    assert counts(queue) == (10, 0, 0)


def test_to4_who_was_too_slow_and_replaced_cannot_acknowledge(queue):
    slow = abandon(queue)
    queue.reap()
    quick, _ = queue.take()
    assert queue.complete([slow]) == []
    assert counts(queue) == (0, 1, 0)
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


def test_to9_touch_keeps_an_item_for_longer(queue):
    queue.push("url1")
    lease, _ = queue.take(lease=SHORT)
    (kept,) = queue.touch([lease], 60)
    until(lambda: queue.now() > lease.until)
    assert queue.reap().count == 0
    assert len(queue.complete([kept])) == 1


def test_to9_touch_by_someone_else_is_refused(queue):
    slow = abandon(queue)
    queue.reap()
    quick, _ = queue.take()
    assert queue.touch([slow], 60) == []
    assert len(queue.touch([quick], 60)) == 1


def test_to11_an_item_can_be_given_back(queue):
    for url in URLS[:2]:
        queue.push(url)
    lease, url = queue.take()
    assert queue.release([lease]) == [lease]
    assert (url, queue.take()[1]) == (URLS[0], URLS[0])  # in its old place


def test_to16_the_same_url_twice_is_two_items(queue):
    queue.push("url1")
    queue.push("url1")
    assert counts(queue) == (2, 0, 0)


def test_to19_any_payload_comes_back_as_it_was(queue):
    items = [b"\x00\xff", "žluťoučký", None, 0, "", {"url": ("a", 1)}]
    for item in items:
        queue.push(item)
    assert [queue.pop(default="nothing") for _ in range(7)] == [*items, "nothing"]


def test_to8_many_workers_one_of_them_careless_and_a_cleaner_finish_everything(queue):
    """The demonstration: everything ends in done, whoever drops what it took."""
    for url in URLS:
        queue.push(url)
    seen: Counter = Counter()

    def work(careless: bool) -> None:
        try:
            while counts(queue)[2] < len(URLS):
                queue.reap()
                lease, url = queue.take(lease=SHORT if careless else 60, wait=0.05)
                if lease is not None and not (careless and lease.entry.attempts == 1):
                    seen.update([url] * len(queue.complete([lease])))
        finally:
            queue.close()

    with ThreadPoolExecutor(3) as workers:
        list(workers.map(work, [True, False, False]))
    assert (seen, counts(queue)) == (Counter(URLS), (0, 0, 10))


FETCHED: Counter = Counter()


@queue_command
def fetch(url):
    FETCHED[url] += 1


@pytest.mark.slow
def test_to18_workers_and_cleaner_come_through_while_redis_is_away(private_server, settings, caplog):
    server = private_server("redis", *servers.Redis.DURABLE)
    path = "djqueue.backends.redis_backend.RedisBlockingQueue"
    settings.QUEUES = {"default": {"CLASS": path, "CONNECTION": server.url}}
    queue = queues["default"]
    fetch("left behind")
    queue.claim(1, lease=3)  # by a worker that is never heard of again
    with serving("default", threads=2, lease=4):
        fetch("before")
        until(lambda: FETCHED["before"])
        server.kill9()
        until(lambda: "djqueue-fetcher-default failed (3 in a row)" in caplog.text)
        server.restart()
        fetch("after")
        until(lambda: FETCHED["after"] and FETCHED["left behind"])
    assert FETCHED == {"before": 1, "after": 1, "left behind": 1}
