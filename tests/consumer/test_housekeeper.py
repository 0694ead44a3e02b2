"""What the housekeeper does for running messages takes a few round trips a tick, however many messages there are."""

import pytest

from djqueue import queue_command
from djqueue.backends.redis.connection import RedisLink
from djqueue.consumer import housekeeper
from djqueue.consumer.control import ConsumerControl
from djqueue.consumer.housekeeper import Housekeeper
from djqueue.results import Progress
from djqueue.running.result_store import are_cancelled
from djqueue.testing import eventually
from tests.support.consumer import unreachable
from tests.support.database import statements
from tests.support.pump import claimed_once

MANY = 1000
FEW = 10
"""Round trips, or statements: of each thousand a call is split in portions."""


@queue_command(result_ttl=60)
def work(number=0):
    return number


class Running:
    """Messages that run, a housekeeper that stands still, and what their commands ask."""

    def __init__(self, queue, count):
        self.handles = work.enqueue_many([(number,) for number in range(count)])
        harness = claimed_once(queue, threads=count)
        self.keeper = Housekeeper([queue], harness.crew)
        keepers = {id(queue): self.keeper}
        self.controls = {}
        while harness.pool.waiting:
            message = harness.begin()
            message.policy = work.policy
            self.controls[message.lease.entry.id] = ConsumerControl(harness.crew, keepers, message)

    def report(self, done):
        for id, control in self.controls.items():
            control.report(id, Progress(done, 2))

    def cancelled(self):
        return {id for id, control in self.controls.items() if control.cancelled}


@pytest.fixture
def trips(queue, monkeypatch):
    """The round trips, or the statements, that have been made."""
    asked, run, together = [], RedisLink.run, RedisLink.execute_many
    monkeypatch.setattr(
        RedisLink, "run", lambda link, script, *given: asked.append(script.name) or run(link, script, *given)
    )
    monkeypatch.setattr(
        RedisLink, "execute_many", lambda link, given: asked.append(len(given)) or together(link, given)
    )
    if queue.database is None:
        yield asked
        return
    with statements(queue) as queries:
        yield queries


@pytest.mark.backends("sqlite", "postgres", "redis")
def test_r3_a_thousand_reports_and_questions_cost_a_few_round_trips(queue, trips, monkeypatch):
    monkeypatch.setattr(housekeeper, "FIRST_ANSWER", 0.0)  # nobody answers until the tick
    running = Running(queue, MANY)
    assert running.cancelled() == set()
    running.report(1)
    running.handles[7].cancel()
    before = len(trips)
    running.keeper.tick()
    assert len(trips) - before <= FEW
    assert running.cancelled() == {running.handles[7].id}
    assert {handle.progress for handle in (running.handles[0], running.handles[-1])} == {Progress(1, 2)}


@pytest.mark.backends("memory")
def test_what_could_not_be_reported_is_reported_again_unless_there_is_news(queue, monkeypatch):
    running = Running(queue, 2)
    running.report(1)
    with monkeypatch.context() as patch:
        patch.setattr(queue.store, "put_many", unreachable)
        running.keeper.guarded_tick()
    [first, second] = running.handles
    assert (first.progress, second.progress) == (None, None)
    running.controls[second.id].report(second.id, Progress(2, 2))
    eventually(lambda: running.keeper.guarded_tick() and second.progress)
    assert (first.progress, second.progress) == (Progress(1, 2), Progress(2, 2))


@pytest.mark.backends("memory")
def test_what_is_over_is_not_asked_for_any_more(queue, monkeypatch):
    monkeypatch.setattr(housekeeper, "FIRST_ANSWER", 0.0)
    running, asked = Running(queue, 2), []
    monkeypatch.setattr(housekeeper, "are_cancelled", lambda *args: asked.append(len(args[1])) or are_cancelled(*args))
    running.cancelled()
    running.keeper.tick()
    [message, _] = running.keeper._crew.messages()
    del message.mail.table[id(queue), message.lease.entry.id]
    running.keeper.tick()
    assert asked == [2, 1]
