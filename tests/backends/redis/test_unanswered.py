"""Claims and puts whose answers never came, and what is kept with what ends."""

import pytest
from redis.exceptions import ConnectionError

from djqueue.backends.base import Entry, Fact, RateLimit
from djqueue.backends.redis.queue import RedisBlockingQueue
from djqueue.backends.stores import BaseStore
from djqueue.flow.gates import Gate
from djqueue.flow.windows import Window
from djqueue.messages.envelope import new_id
from djqueue.testing import eventually
from tests.backends.redis.support import broken, calls, held, work

pytestmark = pytest.mark.server("redis")

ORDERED = Gate(ordered=True, max_run=3).written()


def unanswered(queue, client, claim):
    with pytest.raises(ConnectionError):
        broken(client, claim)
    assert queue.stats().leased > 0


@pytest.mark.parametrize("gate", ["", ORDERED])
def test_what_a_claim_took_whose_answer_never_came_is_given_back_uncounted(lossy_queue, gate):
    queue, client = lossy_queue
    entries = [Entry(b"", new_id(), lane="a" if gate else "", gate=gate) for _ in range(5)]
    queue.put(entries)
    unanswered(queue, client, lambda: queue.claim(3))
    leases = [*queue.claim(5), *queue.claim(5)] if not gate else queue.claim(1)
    assert [lease.entry.id for lease in leases] == [entry.id for entry in entries][: len(leases)]
    assert {(lease.entry.attempts, lease.entry.lost) for lease in leases} == {(1, 0)}
    assert len(queue.complete(leases)) == len(leases)


def test_so_is_what_a_claim_within_a_rate_limit_took(lossy_queue):
    queue, client = lossy_queue
    queue.put(work(2))
    rate_limit = RateLimit("queue:mail", Window(100, 60.0))
    queue.claim_within(rate_limit, 0)
    unanswered(queue, client, lambda: queue.claim_within(rate_limit, 2))
    assert [lease.entry.attempts for lease in queue.claim_within(rate_limit, 2)] == [1, 1]


def test_the_next_reap_gives_back_as_well(lossy_queue):
    queue, client = lossy_queue
    queue.put(work(3))
    unanswered(queue, client, lambda: queue.claim(3))
    queue.reap()
    assert (queue.stats().leased, queue.stats().ready) == (0, 3)


def test_a_claim_that_the_server_runs_late_is_given_back_too(lossy_queue, redis_client):
    """A command of a broken connection may be run after those that follow on another."""
    queue, client = lossy_queue
    queue.put(work(2))
    run, late = client.execute_command, []

    def lose(*args):
        if args[0] == "EVALSHA" and not late:
            late.append(args)
            raise ConnectionError("it is still on its way")
        return run(*args)

    client.execute_command = lose
    with pytest.raises(ConnectionError):
        queue.claim(2)
    assert queue.reap().count == 0
    redis_client.execute_command(*late[0])
    assert queue.stats().leased == 2
    assert [lease.entry.attempts for lease in queue.claim(5)] == [1, 1]


def test_it_is_given_back_among_many_and_nothing_else_is(lossy_queue):
    queue, client = lossy_queue
    queue.put(work(3010))
    held = [lease for _ in range(3) for lease in queue.claim(1000)]
    unanswered(queue, client, lambda: queue.claim(10))
    queue.reap()
    assert (queue.stats().leased, queue.stats().ready) == (3000, 10)
    assert len(queue.complete(held)) == 3000


@pytest.mark.alone  # the server counts the commands of all
def test_who_lost_no_answer_pays_nothing(lossy_queue, redis_client):
    queue, client = lossy_queue
    queue.put(work())
    redis_client.config_resetstat()
    queue.claim()
    assert calls(redis_client, "evalsha", "hscan") == {"evalsha": 1, "hscan": 0}
    queue.put(work())
    unanswered(queue, client, lambda: queue.claim(1, lease=0.05))
    eventually(lambda: not queue._unanswered.tokens())
    redis_client.config_resetstat()
    queue.claim()
    assert calls(redis_client, "evalsha", "hscan") == {"evalsha": 1, "hscan": 0}


@pytest.mark.parametrize("verb", ["complete", "fail"])
def test_what_ended_before_its_put_was_repeated_is_not_put_again(lossy_queue, verb):
    """Whatever is left of it: no id is remembered for longer."""
    queue, client = lossy_queue
    consumer, ran = RedisBlockingQueue("mail", client.client), []

    def run():
        leases = consumer.claim(10)
        ran.extend(lease.entry.id for lease in leases)
        getattr(consumer, verb)(leases)

    client.meanwhile = run
    for _ in range(10):
        assert broken(client, lambda: queue.put(work())) == [True]
        run()
    assert len(ran) == len(set(ran)) == 10


@pytest.mark.alone  # the server counts the commands of all
def test_a_first_put_asks_for_nothing_that_has_ended(lossy_queue, redis_client):
    queue, _ = lossy_queue
    redis_client.config_resetstat()
    queue.put(work(10))
    assert calls(redis_client, "lrange", "zscore") == {"lrange": 0, "zscore": 0}


def test_so_many_that_were_completed_are_known_at_most(queue, redis_client):
    redis_client.hset("{djqueue:mail}:meta", "done", 1)
    queue.put(work(300))
    queue.complete(queue.claim(150))
    redis_client.hset("{djqueue:mail}:meta", "done", 10**6)
    queue.complete(queue.claim(150))
    assert redis_client.llen("{djqueue:mail}:recent") == 1


@pytest.mark.parametrize("verb", ["complete", "fail"])
@pytest.mark.alone  # the server counts the commands of all
def test_results_are_kept_by_the_script_that_settles(lossy_queue, redis_client, verb):
    queue, client = lossy_queue
    leases = held(queue, 4)
    facts = [Fact("a", b"1", 60), None, Fact("c", b"3", 60), None]
    getattr(queue, verb)([])
    redis_client.config_resetstat()
    assert broken(client, lambda: getattr(queue, verb)(leases, facts)) == leases
    assert calls(redis_client, "set") == {"set": 2}
    assert [queue.store.get(key) for key in "abc"] == [b"1", None, b"3"]
    assert 59 <= redis_client.ttl("{djqueue:mail}:fact:a") <= 60


def test_results_that_are_large_go_in_portions(queue, redis_client):
    leases = held(queue, 5)
    facts = [Fact(f"large {number}", b"x" * 3_000_000, 60) for number in range(5)]
    assert queue.complete(leases, facts) == leases
    assert [len(queue.store.get(fact.key)) for fact in facts] == [3_000_000] * 5


def test_results_go_to_another_store_if_the_queue_was_given_one(queue):
    class Elsewhere(BaseStore):
        kept = ()

        def put_many(self, facts):
            self.kept = [fact.key for fact in facts]

    queue.store = Elsewhere()
    leases = held(queue, 2)
    assert queue.complete(leases, [Fact("a", b"1", 60), None]) == leases
    assert queue.store.kept == ["a"]
