"""What the server has done and could not tell: nothing is blamed for it, nothing runs twice, no result is missing."""

import pytest

from djqueue import queues
from djqueue.backends.redis.scripts import script
from tests.faults import ledger
from tests.faults.commands import work
from tests.faults.processes import PATIENCE, assert_done, full, ids_of
from tests.faults.witness.commands import double
from tests.support.processes import until

pytestmark = pytest.mark.slow
SERVERS = ("redis", "postgres", "mariadb")
BY_SQL = {"claim": (b"djqueue_message", b"THEN attempts + 1 ELSE"), "complete": (b"DELETE ", b"djqueue_message")}
"""What is in the request of a verb, and in no other."""
BY_SCRIPT = {"claim": "exchange", "complete": "complete"}
"""The script that a verb is asked for by."""


def request(backend, verb) -> tuple[bytes, ...]:
    """Texts by which the request of a verb is known; its arguments are in no script's source."""
    if verb == "put":
        return (b"XADD", b"inbox")
    return BY_SQL[verb] if backend.alias else (b"EVALSHA", script(BY_SCRIPT[verb]).sha.encode())


@pytest.mark.backends(*SERVERS)
def test_claims_whose_answers_are_lost_cost_no_message(proxied_consumers, proxy, backend):
    """Four of five answers, for many times the lease: what was claimed so was never begun, and so never lost."""
    consumers = proxied_consumers
    consumers.start("-t", 4, "--lease", full(0.5, 2))
    with proxy.losing(*request(backend, "claim"), chance=0.8) as claims:
        ids = ids_of(work.enqueue_many([(5.0,)] * 400))
        end = ledger.now() + full(6, 25)
        until(lambda: ledger.now() > end, timeout=60)
    assert_done(consumers, ids, dup_runs=0)
    print(f"{claims.met} claims lost")
    assert claims.met >= 3
    assert consumers.stop() == [0]


@pytest.mark.backends(*SERVERS)
def test_a_completion_whose_answer_is_lost_has_its_results_and_its_signals(proxied_consumers, proxy, backend):
    consumers = proxied_consumers
    consumers.start("-t", 4)
    with proxy.losing(*request(backend, "complete"), most=3) as completions:
        results = double.enqueue_many([(number,) for number in range(40)])
        until(lambda: completions.met == 3, PATIENCE)
    assert_done(consumers, ids_of(results))
    assert [result.get(timeout=10) for result in results] == [2 * number for number in range(40)]
    consumers.ledger.wait("completed", len(results))
    assert {event.id for event in consumers.ledger.of("completed")} == {result.id for result in results}
    assert consumers.ledger.of("lease_lost") == []
    assert len(consumers.ledger.of("start")) == len(results)
    assert consumers.stop() == [0]


@pytest.mark.backends("redis", "redis-blocking")
def test_a_put_whose_answer_is_lost_until_the_message_has_run_is_one_message(
    consumers, proxy, proxied_queues, backend, settings, monkeypatch
):
    """Whoever repeats a put does so after a consumer has completed what the first one put."""
    consumers.start()
    sent = [work().id]
    consumers.ledger.wait_all("end", sent)  # the consumer is there
    settings.QUEUES = proxied_queues
    monkeypatch.setattr("djqueue.backends.redis.queue.TAKEN_IN_BY", 2**64)  # none goes by a script
    for _ in range(10):
        with proxy.losing(*request(backend, "put"), most=1, when=lambda: completed() > len(sent)) as puts:
            sent.append(work().id)
        assert puts.met == 1
    consumers.ledger.wait_all("end", sent)
    assert_done(consumers, sent, dup_runs=0)
    assert consumers.stop() == [0]


def completed() -> int:
    """Asked by a thread of the proxy, on connections of its own."""
    return queues["default"].stats().done
