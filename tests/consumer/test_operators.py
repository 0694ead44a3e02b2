"""What a consumer tells operators and hears from them: heartbeats, pauses and orders, a tick at a time."""

import json
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

import pytest

from djqueue import operations, periodic_command, queue_command, queues
from djqueue.backends.entries import _MARK, unpack
from djqueue.consumer import operators
from djqueue.consumer.counters import Counters
from djqueue.consumer.filters import not_paused
from djqueue.consumer.loop import Options
from djqueue.consumer.operators import OperatorChannels
from djqueue.consumer.scheduler import Scheduler
from djqueue.flow.limits import Concurrency
from djqueue.messages.envelope import new_id
from djqueue.operations.actions import KEY as ACTIONS
from djqueue.registry import registry
from djqueue.running import consumers, pauses
from djqueue.testing import eventually
from djqueue.utils import clock as boot_clock
from tests.support.backends import config_at
from tests.support.clock import Clock
from tests.support.consumer import only, recorded_signals, serving
from tests.support.notes import cleared_per_test
from tests.support.pump import PumpHarness

ran = cleared_per_test([])
MEMORY = pytest.mark.backends("memory")


@queue_command
def work(number=0):
    ran.append(number)


@queue_command
def other(number=0):
    ran.append(-number)


@queue_command(shard="all")
def in_order(number):
    ran.append(number)


@queue_command(concurrency=Concurrency(10, key=lambda number: "all"))
def within(number):
    ran.append(number)


@dataclass
class Told:
    """A consumer as its operator channels see it."""

    name: str = field(default_factory=lambda: f"web-1:42:{new_id()}")
    options: Options = field(default_factory=lambda: Options(threads=3))
    ran: int = 7
    counters: Counters = field(default_factory=Counters)
    stops: int = 0

    def stop(self):
        self.stops += 1


@pytest.fixture
def clock(monkeypatch):
    """The clock of the consumer, and of its stores as far as it knows."""
    clock = Clock(boot_clock())
    monkeypatch.setattr(operators, "clock", clock)
    return clock


def opened(queue, consumer=None, messages=list):
    """The operator channels of a consumer of one queue."""
    channels = OperatorChannels()
    channels.open([queue], consumer or Told(), messages, lambda: None)
    return channels


def tick(channels):
    for channel in channels.channels:
        channel.tick()


def test_a_heartbeat_tells_what_a_consumer_is_and_runs(queue, clock, settings):
    settings.QUEUE_RELEASE = "2030.1"
    consumer, harness = Told(), PumpHarness(queue)
    handle = work(1)
    harness.turn()
    harness.begin().began = clock()
    channels = opened(queue, consumer, harness.crew.messages)
    tick(channels)
    assert operations.consumers() == [], "one that lives for less than a second costs nothing"
    clock.now += 1
    tick(channels)
    [one] = operations.consumers()
    assert (one.name, one.state, one.queues, one.threads, one.busy, one.ran) == (
        consumer.name,
        "running",
        ("default",),
        3,
        1,
        7,
    )
    assert (one.release, one.memory > 1, one.is_alive) == ("2030.1", True, True)
    assert [(run.id, run.command) for run in one.running] == [(handle.id, work.name)]
    assert abs(one.running[0].since + 1 - one.at) < 0.5
    assert {work.name, other.name} <= one.known.keys()
    assert one.known[work.name] == one.known[other.name] != one.known[in_order.name]
    channels.channels[0].end()
    assert operations.consumers() == []


@pytest.mark.backends("redis")
def test_idle_it_costs_one_read_a_second_and_one_write_in_five(queue, clock, monkeypatch):
    channels, asked = opened(queue), []
    store = channels.channels[0].store
    for verb in ("get", "get_many", "put", "swap_many", "now"):
        do = getattr(store, verb)
        monkeypatch.setattr(store, verb, lambda *args, verb=verb, do=do: asked.append(verb) or do(*args))
    for _ in range(20):
        clock.now += 0.5
        tick(channels)
    asked.clear()
    for _ in range(20):
        clock.now += 0.5
        tick(channels)
    assert sorted(asked) == ["get_many"] * 10 + ["put"] * 2


@MEMORY
def test_one_that_says_nothing_is_gone_and_is_forgotten_when_told_to(queue, clock):
    channels = opened(queue)
    clock.now += 1
    tick(channels)
    consumers.write(channels.channels[0].store, consumers.changed(operations.consumers()[0], at=queue.now() - 16))
    assert [(one.state, one.is_alive) for one in operations.consumers()] == [("gone", False)]
    clock.now += 5
    tick(channels)
    assert [one.state for one in operations.consumers()] == ["running"]


@MEMORY
def test_a_record_of_another_version_is_read_as_far_as_it_is_known(queue):
    store, now = queue.store.shared, queue.now()
    runs = [{"id": "1", "command": "x", "since": now, "shade": 5}]
    told = {"a": {"at": now, "running": runs, "shade": 5}, "b": {"at": now, "pid": "x"}, "c": {"at": "nan", "pid": "7"}}
    for name, text in told.items():
        store.put(consumers.key_of(name), json.dumps({"name": name, "queues": ["default"], **text}).encode())
        consumers.enter(store, name)
    found = {one.name: one for one in operations.consumers()}
    assert (found["a"].running[0].id, found["a"].state, found["a"].version) == ("1", "running", "")
    assert (found["c"].pid, found["c"].state) == (7, "gone")
    assert "b" not in found


@MEMORY
def test_of_two_that_begin_at_once_none_is_left_out(queue, clock, monkeypatch):
    first, second = opened(queue), opened(queue)
    write = consumers.write

    def together(store, record):
        write(store, record)
        monkeypatch.setattr(consumers, "write", write)
        tick(second)

    monkeypatch.setattr(consumers, "write", together)
    clock.now += 1
    tick(first)
    assert len(operations.consumers()) == 2


@MEMORY
def test_a_store_that_was_emptied_hears_of_it_again(queue, clock):
    channels = opened(queue)
    clock.now += 1
    tick(channels)
    store = channels.channels[0].store
    store.drop(consumers.INDEX)
    assert operations.consumers() == []
    clock.now += 5
    tick(channels)
    assert [len(one.known) > 3 for one in operations.consumers()] == [True]


@MEMORY
def test_orders_are_obeyed_once(queue, clock, caplog):
    consumer = Told()
    channels = opened(queue, consumer)
    clock.now += 1
    tick(channels)
    assert operations.quiet(consumer.name[3:], by="ada") == consumer.name
    for _ in range(2):
        clock.now += 1
        tick(channels)
    assert not channels.may_claim(queue)
    assert [one.state for one in operations.consumers()] == ["quiet"]
    assert [record.getMessage() for record in caplog.records] == ["ada orders this consumer to claim nothing more"]
    operations.resume_consumer(consumer.name)
    clock.now += 1
    tick(channels)
    assert channels.may_claim(queue)
    operations.stop(consumer.name)
    for _ in range(2):
        clock.now += 1
        tick(channels)
    assert consumer.stops == 1
    assert [one.action for one in operations.actions(limit=3)] == ["stop", "resume", "quiet"]


def test_nothing_is_claimed_from_a_paused_queue_until_it_is_resumed(backend, settings):
    settings.QUEUES = backend.queues("default", "mail")
    mail, default = queues["mail"], queues["default"]
    work.using(queue_name="mail")(1)
    work(2)
    harness = PumpHarness(default, mail)
    harness.operators.open([default, mail], Told(), harness.crew.messages, harness.pump.mail.look_now)
    operations.pause("queue", "mail")
    tick(harness.operators)
    harness.turn()
    harness.begin()
    with recorded_signals("empty") as told:
        harness.turn()
    assert {message.queue.alias for message in harness.in_flight} == {"default"}
    assert {one["queue_name"] for _, one in told} == {"default"}
    operations.resume("queue", "mail")
    harness.operators.channels[0]._looked = 0
    tick(harness.operators)
    eventually(lambda: harness.turn() is not None and len(harness.in_flight) == 2)


@pytest.fixture
def long_pauses(monkeypatch):
    """What is paused is not due by itself before the test ends."""
    monkeypatch.setattr("djqueue.consumer.filters.SHORTEST_PAUSED", 60.0)


@pytest.mark.usefixtures("long_pauses")
def test_messages_of_a_paused_command_keep_their_attempts_and_their_places(queue):
    harness = PumpHarness(queue, threads=10)
    harness.operators.open([queue], Told(), harness.crew.messages, harness.pump.mail.look_now)
    operations.pause("command", work.name)
    tick(harness.operators)
    handles = [work(number) for number in range(3)]
    passed = other(1)
    harness.turn()
    assert harness.ids() == {passed.id}
    harness.begin()
    harness.settle()
    assert (queue.stats().delayed, queue.find(handles[0].id).entry.attempts) == (3, 0)
    last = work(3)
    operations.resume("command", work.name)
    harness.operators.channels[0]._looked = 0
    tick(harness.operators)
    harness.turn()
    begun = [harness.pool.next()[0].lease.entry for _ in range(harness.pool.waiting)]
    assert [entry.id for entry in begun] == [handle.id for handle in [*handles, last]]
    assert {entry.attempts for entry in begun} == {1}


@pytest.mark.usefixtures("long_pauses")
def test_what_another_process_put_off_is_due_when_its_command_is_resumed(queue):
    harness = PumpHarness(queue, threads=10)
    harness.operators.open([queue], Told(), harness.crew.messages, harness.pump.mail.look_now)
    for command in (work, in_order):
        operations.pause("command", command.name)
    tick(harness.operators)
    later, waits = work.using(delay=600)(9), queue.now() + 599
    handles = [work(1), in_order(1), in_order(2)]
    for _ in range(2):
        harness.turn()
        harness.settle()
    assert queue.claim(1) == []
    assert queue.find(handles[0].id).entry.attempts == 0 and handles[0].errors == []
    assert "put off" in operations.explain(handles[0].id).reasons[0].text
    for command in (work, in_order):
        operations.resume("command", command.name)
    assert {lease.entry.id for lease in queue.claim(10)} >= {handles[0].id, handles[1].id}
    assert queue.find(later.id).at > waits, "what was enqueued with a delay waits for it"


@pytest.mark.usefixtures("long_pauses")
def test_an_ordered_lane_whose_command_was_paused_goes_on_at_once_when_it_is_resumed(queue):
    harness = PumpHarness(queue, threads=10)
    harness.operators.open([queue], Told(), harness.crew.messages, harness.pump.mail.look_now)
    operations.pause("command", in_order.name, for_=1000)
    tick(harness.operators)
    handles = [in_order(number) for number in range(2)]
    harness.turn()
    harness.settle()
    pauses.drop(queue.store.shared, ("command", in_order.name, ""), queue.now())  # as it ends by itself
    harness.operators.channels[0]._looked = 0
    tick(harness.operators)
    harness.turn()
    assert handles[0].id in harness.ids()


@MEMORY
def test_of_a_pause_that_ends_by_itself_nothing_is_put_off_beyond_its_end(queue, clock):
    harness = PumpHarness(queue)
    harness.operators.open([queue], Told(), harness.crew.messages, harness.pump.mail.look_now)
    operations.pause("command", work.name, for_=100)
    tick(harness.operators)
    clock.now += 95
    handle, called = work(1), queue.now()
    harness.turn()
    harness.settle()
    assert called < queue.find(handle.id).at < queue.now() + 6


@pytest.mark.parametrize("command, goes_on", [(in_order, False), (within, True)])
def test_of_a_run_of_a_lane_what_is_behind_a_paused_command_waits_if_the_lane_is_ordered(queue, command, goes_on):
    handles = [command(number) for number in range(3)]
    leases = claimed_as(queue, [command.name, other.name, command.name])
    harness = PumpHarness(queue)
    harness.operators.open([queue], Told(), harness.crew.messages, harness.pump.mail.look_now)
    operations.pause("command", other.name)
    tick(harness.operators)
    messages = [harness.pump.claiming._enter(queue, lease, boot_clock()) for lease in leases]
    rest, _ = not_paused(harness.pump.claiming, queue, messages)
    assert [one.lease.entry.id for one in rest] == [handles[0].id, *([handles[2].id] if goes_on else [])]


def claimed_as(queue, names):
    """The leases of a run of a lane, as if its messages were of these commands."""
    leases = queue.claim(len(names))
    assert len(leases) == len(names)
    return [replace(one, entry=replace(one.entry, command=name)) for one, name in zip(leases, names, strict=True)]


@MEMORY
def test_a_paused_schedule_enqueues_nothing_and_its_ticks_are_missed_by_its_own_rule(queue, monkeypatch):
    now, paused = Clock(1_000_000_000.0), set()
    monkeypatch.setattr(queue, "now", now)
    with only():
        periodic_command(every=60)(tick_of_a_schedule)
        name = registry.periodic()[0].name
        scheduler = Scheduler([queue], lambda own, name: name in paused)
        scheduler.tick()
        now.now += 60
        scheduler.tick()
        assert queue.stats().ready == 1
        paused.add(name)
        now.now += 600
        scheduler.tick()
        assert queue.stats().ready == 1
        paused.clear()
        scheduler.tick()
        assert queue.stats().ready == 2, "the newest tick that was missed is caught up with"
        now.now += 60
        scheduler.tick()
        assert queue.stats().ready == 3


def tick_of_a_schedule():
    raise NotImplementedError


@pytest.mark.backends("sqlite", "redis")
def test_a_consumer_hears_of_a_pause_before_its_first_claim_and_of_its_end(queue, monkeypatch):
    monkeypatch.setattr(operators, "LOOK", 0.02)
    operations.pause("queue", "default", why="the printer is out of paper")
    work(1)
    with serving(drain=True) as running:
        assert running.code() == 0, "nothing is left to drain"
    assert ran == []
    with serving() as running:
        operations.resume("queue", "default")
        eventually(lambda: ran)
        assert running.end() == 0


@MEMORY
def test_no_schedule_ticks_before_it_is_known_what_is_paused(queue, clock):
    channels = opened(queue)
    assert channels.is_schedule_paused(queue, "nightly") is True
    tick(channels)
    assert channels.is_schedule_paused(queue, "nightly") is False


DEEP = b"[" * 100_000


@MEMORY
@pytest.mark.parametrize("text", [DEEP, b"[[[", b'["stop", "ada", 1' + b"0" * 400 + b"]"], ids=["deep", "cut", "large"])
def test_facts_that_cannot_be_read_are_as_if_they_were_not_there(queue, clock, text):
    consumer = Told()
    channels = opened(queue, consumer)
    clock.now += 1
    tick(channels)
    store = channels.channels[0].store
    keys = [consumers.key_of(consumer.name), consumers.order_key_of(consumer.name), pauses.KEY, ACTIONS]
    for key in [*keys, consumers.INDEX]:
        store.put(key, text)
    for _ in range(2):
        clock.now += 6
        tick(channels)
    assert consumer.stops == 0
    assert channels.may_claim(queue)
    for key in keys:
        store.put(key, text)
    assert operations.consumers() == operations.pauses() == operations.actions() == []
    assert unpack(f"{_MARK}{DEEP.decode()}\n").body


@MEMORY
def test_what_others_wrote_into_the_store_forges_no_line_of_the_log(queue, clock, caplog):
    caplog.set_level("INFO")
    consumer, forged = Told(), "ada\x1b[2J\nERROR all is lost"
    channels = opened(queue, consumer)
    tick(channels)
    store = channels.channels[0].store
    consumers.give(store, consumer.name, consumers.Order("quiet", forged, 1.0))
    pauses.add(store, pauses.Pause(forged, forged, by=forged, why=forged), queue.now())
    clock.now += 1
    tick(channels)
    store.drop(pauses.KEY)
    clock.now += 1
    tick(channels)
    texts = [record.getMessage() for record in caplog.records]
    assert sum("all is lost" in text for text in texts) == 3
    assert all(text.isprintable() for text in texts)


@MEMORY
def test_a_pause_ends_by_itself(queue, clock):
    channels = opened(queue)
    operations.pause("queue", "default", for_=60)
    tick(channels)
    assert not channels.may_claim(queue)
    clock.now += 61
    assert channels.may_claim(queue)


@pytest.fixture
def store_on_another_server(private_server, settings, monkeypatch):
    """The server with the facts of the queue "mail"; both queues are on another."""
    monkeypatch.setattr(operators, "FIRST_ANSWER", 0.5)
    server, facts = private_server("redis"), private_server("redis")
    queue = config_at(server.url)
    store = {"CLASS": "djqueue.backends.redis.store.RedisStore", "CONNECTION": f"{facts.url}?socket_timeout=0.5"}
    settings.QUEUES = {"default": queue, "mail": queue | {"STORE": store}}
    work.using(queue_name="mail")(1)
    yield facts
    facts.resume()
    for alias in settings.QUEUES:
        queues[alias].close()


def warned(caplog):
    """The queues from which nothing is claimed, as the log says, each time that it does."""
    texts = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    return [text.split()[4].rstrip(":") for text in texts if text.startswith("Nothing is claimed")]


@pytest.mark.slow
@pytest.mark.server("redis")
class TestUnknownPauses:
    """A pause is usually made as something is wrong, so nothing is claimed until it is known what is paused."""

    def test_nothing_is_claimed_from_a_queue_whose_store_does_not_say_what_is_paused(
        self, store_on_another_server, caplog
    ):
        caplog.set_level("INFO")
        operations.pause("queue", "mail", why="the mail server is out of order")
        work(2)
        store_on_another_server.pause()
        with serving() as running:
            eventually(lambda: "djqueue-housekeeper-default failed (3 in a row)" in caplog.text)
            assert ran == [2]
            eventually(lambda: len(warned(caplog)) > 1)
            assert set(warned(caplog)) == {"mail"}
            store_on_another_server.resume()
            eventually(lambda: [one for one in caplog.records if "is paused by" in one.getMessage()])
            work(3)
            eventually(lambda: 3 in ran)
            assert ran == [2, 3]
            operations.resume("queue", "mail")
            eventually(lambda: 1 in ran)
            assert running.end() == 0

    def test_a_drain_waits_and_runs_what_its_schedules_enqueue_then(self, store_on_another_server, caplog):
        with only(work):
            tick = periodic_command(every=1800, queue_name="mail")(tick_to_drain)
            hour_ago = datetime.now(UTC) - timedelta(hours=1)
            queues["mail"].store.put(f"last:{tick.name}", hour_ago.isoformat().encode())
            store_on_another_server.pause()
            with serving(drain=True, periodic=True) as running:
                eventually(lambda: "djqueue-housekeeper-default failed (3 in a row)" in caplog.text)
                assert (ran, running.future.done()) == ([], False)
                store_on_another_server.resume()
                assert running.code() == 0
        assert set(ran) == {1, 2}


def tick_to_drain():
    ran.append(2)
