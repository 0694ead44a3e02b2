"""Schedules that are made at run time: what may be said, what is kept, and when it is sent."""

import json
import time
from collections import defaultdict
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from itertools import count, pairwise
from typing import NamedTuple
from zoneinfo import ZoneInfo

import pytest
from asgiref.sync import async_to_sync
from django.db import connections, transaction

from djqueue import BatchCommand, QueueCommand, Route, crontab, queue_command, queues, schedules
from djqueue.backends.collections import FOR_EVER, PARTS, number_of
from djqueue.consumer import Consumer
from djqueue.consumer.scheduler import KNOWN_FOR, OFTEN, SELDOM, Scheduler, ScheduleTracker
from djqueue.enqueueing.command import Call
from djqueue.exceptions import EncodeError, NotSupported, UnknownCommand
from djqueue.registry import registry
from djqueue.testing import run_due, together, virtual_time
from djqueue.testing.patience import eventually
from djqueue.timetables import Interval, Rule
from djqueue.utils import clock as clock_of_the_machine
from tests.support.backends import FULL
from tests.support.consumer import recorded_signals, run_one, serving
from tests.support.database import statements
from tests.support.notes import cleared_per_test

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
PLUS_ONE = timezone(timedelta(hours=1))
STORES = pytest.mark.backends("memory", "sqlite", "redis")

ran = cleared_per_test([])


class Point(NamedTuple):
    x: int
    y: int = 0


@pytest.fixture(autouse=True)
def _ticks_are_logged(no_periodic_commands, caplog):
    caplog.set_level("INFO", "djqueue.consumer.scheduler")


@queue_command
def report(*args, **kwargs):
    ran.append((args, kwargs))


@queue_command
def greet(name, polite=False):
    ran.append((name, polite))


@queue_command(queue_name="slow")
def crawl():
    raise NotImplementedError


class Sorted(BatchCommand):
    @classmethod
    def route(cls, *requests: Point) -> list[Route]:
        return [Route(request.x) for request in requests]

    def perform(self, *requests: Point) -> None:
        ran.extend(requests)


@queue_command(shard=lambda number: number)
def follow(number):
    raise NotImplementedError


class Tidy(QueueCommand):
    def execute(self):
        ran.append(self.data)


class Clock:
    def __init__(self):
        self.now = NOON

    def __call__(self):
        return self.now.timestamp()

    def forward(self, seconds):
        self.now += timedelta(seconds=seconds)


@pytest.fixture
def clock(queue, monkeypatch):
    """The clock of the queue, at noon."""
    clock = Clock()
    monkeypatch.setattr(queue, "now", clock)
    return clock


def ticks(caplog):
    """The seconds after noon of what was enqueued, as the log tells them."""
    told = [record.args[1] for record in caplog.records if record.name == "djqueue.consumer.scheduler"]
    return [(datetime.fromisoformat(text) - NOON).total_seconds() for text in told]


def step(*schedulers):
    for scheduler in schedulers:
        scheduler.refresh()
        scheduler.follow()


@STORES
class TestKept:
    def test_it_is_listed_and_removed_by_name(self, queue):
        schedules.add("b", report, (1, "two"), {"three": 3}, every=60)
        schedules.add("a", report, crontab=crontab(hour=4, minute=0))
        first, second = schedules.list()
        assert (first.name, second.name) == ("a", "b")
        assert (second.command, second.queue_name) == (report.name, "default")
        assert (second.args, second.kwargs) == ((1, "two"), {"three": 3})
        assert second.timetable.every == 60
        assert first.next.astimezone(ZoneInfo("UTC")).minute == 0
        assert schedules.remove("a")
        assert not schedules.remove("a")
        assert [one.name for one in schedules.list()] == ["b"]

    def test_sq18_to_add_a_name_again_replaces_it(self, queue, clock):
        schedules.add("one", report, ("old",), every=60)
        clock.forward(20)
        schedules.add("one", greet, ("new",), every=10)
        [only] = schedules.list()
        assert (only.command, only.args, only.timetable.every) == (greet.name, ("new",), 10)
        assert only.timetable.start == NOON + timedelta(seconds=20)

    def test_to_add_the_same_again_changes_nothing_and_other_arguments_leave_the_ticks_where_they_are(
        self, queue, clock
    ):
        schedules.add("one", report.using(priority=3), (1,), every=60)
        kept = schedules.collection(queue).read()
        clock.forward(45)
        schedules.add("one", report.using(priority=3), (1,), every=60)
        assert schedules.collection(queue).read(kept) is kept
        changed = schedules.add("one", report, (2,), every=60)
        assert (changed.args, changed.timetable.start) == ((2,), NOON)
        moved = schedules.add("one", report, every=60, start=NOON + timedelta(seconds=7))
        assert moved.timetable.start == NOON + timedelta(seconds=7)

    def test_many_at_once_lose_none(self, queue):
        together(
            *[lambda n=n: schedules.add(f"n{n}", report, (n,), every=60) for n in range(8)], last=connections.close_all
        )
        assert [one.name for one in schedules.list()] == [f"n{n}" for n in range(8)]

    def test_async_code_has_the_same(self, queue):
        async def life():
            await schedules.aadd("one", report, every=60)
            names = [one.name for one in await schedules.alist()]
            return names, await schedules.aremove("one"), await schedules.alist()

        assert async_to_sync(life)() == (["one"], True, [])

    def test_one_that_was_tampered_with_is_left_out_and_can_be_removed(self, queue, caplog):
        schedules.add("good", report, every=60)
        schedules.add("bad", report, every=60)
        schedules.collection(queue).change("bad", lambda was: schedules.collection(queue).get("good"))
        assert [one.name for one in schedules.list()] == ["good"]
        assert "'bad' cannot be read" in caplog.text
        assert schedules.remove("bad")


@pytest.mark.backends("sqlite")
def test_in_the_database_it_is_part_of_the_transaction(queue):
    with transaction.atomic():
        schedules.add("one", report, every=60)
        transaction.set_rollback(True)
    assert schedules.list() == []


@STORES
class TestQueues:
    @pytest.fixture(autouse=True)
    def _two_queues(self, backend, settings):
        settings.QUEUES = backend.queues("default", "slow")

    def test_a_name_is_in_one_queue_only(self):
        schedules.add("one", report, every=60)
        schedules.add("one", crawl, every=60)
        assert [(one.command, one.queue_name) for one in schedules.list()] == [(crawl.name, "slow")]
        assert schedules.list("default") == []
        schedules.add("one", report.using(queue_name="slow"), every=60)
        assert [(one.command, one.queue_name) for one in schedules.list()] == [(report.name, "slow")]

    def test_those_of_queues_that_are_not_served_are_left_to_others(self):
        schedules.add("one", crawl, every=1)
        other, own = Scheduler([queues["default"]]), Scheduler([queues["slow"]])
        eventually(lambda: step(other, own) or len(queues["slow"]) > 0)
        assert len(queues["default"]) == 0


@pytest.mark.backends("memory")
class TestRefused:
    @pytest.mark.parametrize(
        ("given", "error", "words"),
        [
            ({}, TypeError, "Give one of every, crontab, rrule"),
            ({"every": 60, "crontab": crontab()}, TypeError, "every and crontab"),
            ({"every": 0.5}, ValueError, "every is 0.5: give at least 1"),
            ({"every": "60"}, TypeError, "every is '60'"),
            ({"crontab": "* * * * *"}, TypeError, r"give crontab\(hour=0"),
            ({"crontab": crontab(time_zone=timezone(timedelta(hours=2)))}, ValueError, "IANA name"),
            ({"rrule": 5}, TypeError, "as text"),
            ({"rrule": "FREQ=SOMETIMES"}, ValueError, "rrule is 'FREQ=SOMETIMES'"),
            ({"rrule": "DTSTART:20260101T000000\nRRULE:FREQ=DAILY"}, TypeError, "start= with it"),
            ({"rrule": "FREQ=DAILY;UNTIL=20200101T000000Z"}, ValueError, "has no tick after"),
            ({"rrule": "FREQ=DAILY", "start": NOON.astimezone(PLUS_ONE)}, ValueError, "zone of start is .* IANA name"),
            ({"every": 60, "start": datetime(2026, 1, 1)}, ValueError, "naive"),
            ({"every": 60, "start": "2026-01-01"}, TypeError, "start is '2026-01-01': give a datetime"),
            ({"every": 60, "missed": "none"}, ValueError, "missed is 'none'"),
            ({"every": 60, "max_lateness": 0}, ValueError, "max_lateness"),
        ],
    )
    def test_what_makes_no_timetable(self, queue, given, error, words):
        with pytest.raises(error, match=words):
            schedules.add("one", report, **given)
        assert schedules.list() == []

    @pytest.mark.parametrize(
        ("given", "error", "words"),
        [
            *(((name, report), ValueError, "name of 1 to 150 characters") for name in ("", "x" * 151, None, 7)),
            (("one", "nobody.knows"), UnknownCommand, "nobody.knows"),
            (("one", print), TypeError, "is no command"),
            (("one", report.using(run_after=NOON)), ValueError, "start= says when"),
            (("one", report.using(delay=lambda: 5)), ValueError, "delay is .* declare it on the command"),
            (("one", greet), TypeError, "greet: missing"),
            (("one", report, (lambda: None,)), EncodeError, "positional argument 1 .* cannot be encoded"),
            (("one", report, "Ann"), TypeError, "args= is 'Ann': give a list or tuple"),
            (("one", report, {"name": "Ann"}), TypeError, r"args= is \{'name': 'Ann'\}: give"),
            (("one", report, 7), TypeError, "args= is 7: give"),
            (("one", report, None), TypeError, "args= is None: give"),
            (("one", report, (), [("name", "Ann")]), TypeError, r"kwargs= is \[.*\]: give a dictionary"),
            (("one", report, (), ""), TypeError, "kwargs= is '': give a dictionary"),
        ],
    )
    def test_a_name_a_command_or_arguments_that_make_no_call(self, queue, given, error, words):
        with pytest.raises(error, match=words):
            schedules.add(*given, every=60)
        assert schedules.list() == []

    def test_a_queue_without_a_store(self, settings, backend):
        settings.QUEUES = {"default": backend.config() | {"STORE": False}}
        with pytest.raises(NotSupported, match="no store"):
            schedules.add("one", report, every=60)
        assert schedules.list() == []
        assert Scheduler([queues["default"]]).follow() == 60


@STORES
class TestSent:
    def test_sq19_an_interval_ticks_once_for_two_schedulers_without_drift(self, queue, clock, caplog):
        schedules.add("second", report, every=1)
        pair = [Scheduler([queue]), Scheduler([queue])]
        for late in [0.7, 0.9, 1.3, 2.1] * 6:
            clock.forward(late)
            step(*pair)
        assert ticks(caplog) == list(range(1, 31))
        assert queue.stats().ready == 30

    def test_a_scheduler_that_takes_over_from_another_process_sends_what_came_between(self, queue, clock, caplog):
        schedules.add("second", report, every=1)
        step(Scheduler([queue]))
        clock.forward(1)
        step(Scheduler([queue]))
        clock.forward(4)
        step(Scheduler([queue], takes_over=True))
        assert ticks(caplog) == [1, 2, 3, 4, 5]

    def test_schedulers_that_run_at_once_send_a_tick_once(self, queue, clock):
        schedules.add("minute", report, every=60)
        schedulers = [Scheduler([queue]) for _ in range(6)]
        step(*schedulers)
        clock.forward(60)
        together(*[scheduler.tick for scheduler in schedulers], last=connections.close_all)
        step(Scheduler([queue]))
        assert queue.stats().ready == 1

    def test_the_first_tick_comes_after_one_interval_or_at_the_start(self, queue, clock, caplog):
        schedules.add("a", report, every=10)
        schedules.add("b", report, every=10, start=NOON + timedelta(seconds=4))
        schedules.add("c", report, every=10, start=NOON - timedelta(seconds=17))
        scheduler = Scheduler([queue])
        for _ in range(15):
            step(scheduler)
            clock.forward(1)
        assert ticks(caplog) == [3, 4, 10, 13, 14]

    def test_what_is_sent_has_the_arguments_and_the_options(self, queue, clock):
        schedules.add("one", greet.using(priority=2, ttl=30), ("Ada",), {"polite": True}, every=10)
        schedules.add("two", Tidy, ({"deep": True},), every=10, start=NOON + timedelta(seconds=12))
        clock.forward(10)
        scheduler = Scheduler([queue])
        with recorded_signals("enqueued") as told:
            step(scheduler)
        assert [(name, carried["sender"]) for name, carried in told] == [("enqueued", greet.name)]
        [record] = queue.peek("ready")
        assert record.entry.priority == 2
        run_one(queue)
        clock.forward(2)
        step(scheduler)
        run_one(queue)
        assert ran == [("Ada", True), {"deep": True}]

    @pytest.mark.backends("memory")
    @pytest.mark.parametrize("given", [Tidy({"deep": True}), int, greet.func], ids=["object", "class", "function"])
    def test_what_is_no_command_is_refused_as_an_object_whose_data_would_be_lost(self, queue, given):
        with pytest.raises(TypeError, match="is no command: give one"):
            schedules.add("one", given, every=10)
        assert schedules.list() == []

    @pytest.mark.backends("memory")
    @pytest.mark.parametrize("serializer", ["pickle", "json"])
    def test_a_request_of_a_batch_command_is_routed_at_each_tick(self, queue, clock, serializer):
        with pytest.raises(TypeError, match="a request is one argument"):
            schedules.add("one", Sorted, (1, 2), every=10)
        schedules.add("one", Sorted.using(serializer=serializer), (Point(7, 8),), every=10)
        clock.forward(10)
        step(Scheduler([queue]))
        assert queue.lanes.get(f"{Sorted.command().name}:7").waiting == 1
        run_one(queue)
        assert ran == [Point(7, 8)]

    @pytest.mark.backends("memory")
    def test_what_is_sent_goes_to_its_shard(self, queue, clock):
        schedules.add("one", follow, (7,), every=10)
        clock.forward(10)
        step(Scheduler([queue]))
        assert queue.lanes.get(f"{follow.name}:7").waiting == 1

    @pytest.mark.parametrize("kept", [b"\xff\xfea", b"garbage", b"", b"0001-01-01"])
    def test_a_last_tick_that_cannot_be_read_is_now(self, queue, clock, kept):
        schedules.add("one", report, ("one",), every=10)
        queue.store.put(schedules.last_key("one"), kept)
        step(Scheduler([queue]))
        clock.forward(10)
        step(Scheduler([queue]))
        run_one(queue)
        assert ran == [(("one",), {})]
        assert queue.stats().ready == 0

    def test_what_is_removed_or_replaced_is_not_sent_any_more(self, queue, clock):
        schedules.add("gone", report, ("gone",), every=10)
        schedules.add("changed", report, ("before",), every=10)
        scheduler = Scheduler([queue])
        step(scheduler)
        schedules.remove("gone")
        schedules.add("changed", report, ("after",), every=25)
        clock.forward(10)
        step(scheduler)
        assert queue.stats().ready == 0
        clock.forward(15)
        step(scheduler)
        run_one(queue)
        assert ran == [(("after",), {})]
        assert queue.stats().ready == 0

    def test_sq18_no_second_copy_is_queued_while_the_first_waits(self, queue, clock):
        schedules.add("sync", report.using(unique="queued"), every=10)
        pair = [Scheduler([queue]), Scheduler([queue])]
        for _ in range(3):
            clock.forward(10)
            step(*pair)
            assert queue.stats().ready == 1
        run_one(queue)
        step(*pair)  # the tick that was sent is not sent again now that nothing waits
        assert queue.stats().ready == 0
        clock.forward(10)
        step(*pair)
        assert queue.stats().ready == 1


@pytest.mark.backends("memory")
class TestMissed:
    def absent(self, queue, clock, caplog, seconds, **rule):
        """The ticks that are sent after an absence, as seconds before now."""
        schedules.add("one", report, every=60, **rule)
        step(Scheduler([queue]))
        clock.forward(60)
        step(Scheduler([queue]))
        caplog.clear()
        clock.forward(seconds)
        scheduler = Scheduler([queue])
        step(scheduler, scheduler)
        return [seconds + 60 - tick for tick in ticks(caplog)]

    @pytest.mark.parametrize(
        ("rule", "expected"),
        [
            ({}, [5]),
            ({"missed": "all"}, [125, 65, 5]),
            ({"missed": "skip"}, [5]),
            ({"missed": "all", "max_lateness": 70}, [65, 5]),
        ],
    )
    def test_after_three_minutes(self, queue, clock, caplog, rule, expected):
        assert self.absent(queue, clock, caplog, 185, **rule) == expected

    @pytest.mark.parametrize(
        ("rule", "expected"), [({}, [6]), ({"missed": "all"}, [3, 4, 5, 6]), ({"missed": "skip"}, [])]
    )
    def test_after_a_restart_of_some_seconds_there_is_no_burst(self, queue, clock, caplog, rule, expected):
        schedules.add("one", report, every=1, **rule)
        scheduler = Scheduler([queue])
        for _ in range(3):
            step(scheduler)
            clock.forward(1)
        assert ticks(caplog) == [1, 2]
        caplog.clear()
        clock.forward(3.5)
        scheduler = Scheduler([queue])
        step(scheduler, scheduler)
        assert ticks(caplog) == expected
        clock.forward(0.6)
        step(scheduler)
        assert ticks(caplog) == [*expected, 7]

    @pytest.mark.parametrize("missed", ["latest", "skip"])
    def test_who_is_merely_late_sends_each_whoever_else_begins_anew(self, queue, clock, caplog, missed):
        late = Scheduler([queue])
        step(late)
        schedules.add("one", report, every=1, missed=missed)
        clock.forward(4.5)
        step(late)  # it sees the schedule only now
        assert ticks(caplog) == [1, 2, 3, 4]
        clock.forward(4)
        step(Scheduler([queue]))
        step(late)
        assert sorted(ticks(caplog)) == [1, 2, 3, 4, 5, 6, 7, 8]
        assert queue.stats().ready == 8

    def test_who_goes_on_though_its_store_does_not_always_answer_has_missed_nothing(self, queue, clock, monkeypatch):
        schedules.add("one", report, every=1)
        scheduler, sent, send = Scheduler([queue]), count(1), ScheduleTracker._send
        step(scheduler)

        def unheard(plan, guard, id):
            told = send(plan, guard, id)
            if next(sent) % 3 == 0:
                raise ConnectionError
            return told

        with monkeypatch.context() as patch:
            patch.setattr(ScheduleTracker, "_send", unheard)
            for _ in range(10):
                clock.forward(4)
                for _ in range(3):
                    with suppress(ConnectionError):
                        step(scheduler)
        step(scheduler)
        assert queue.stats().ready == 40

    def test_what_was_made_while_nobody_was_there_is_missed_too(self, queue, clock, caplog):
        schedules.add("one", report, every=60)
        clock.forward(150)
        step(Scheduler([queue]))
        assert ticks(caplog) == [120]

    def test_a_command_that_nobody_knows_rests_and_holds_up_no_other(self, queue, clock, caplog):
        schedules.add("lost", greet, ("you",), every=10)
        schedules.add("fine", report, every=10)
        scheduler = Scheduler([queue])
        step(scheduler)
        registry.unregister(greet)
        try:
            clock.forward(10)
            step(scheduler)
            assert [record.entry.command for record in queue.peek("ready")] == [report.name]
            [failure] = [record for record in caplog.records if record.levelname == "ERROR"]
            assert "lost" in failure.getMessage()
        finally:
            registry.register(greet)
        queue.flush()
        clock.forward(60)
        schedules.remove("fine")
        step(scheduler)
        assert [record.entry.command for record in queue.peek("ready")] == [greet.name]


@pytest.mark.backends("memory")
class TestRules:
    def moments(self, made, after, count):
        found = []
        for _ in range(count):
            after = made.timetable.next(after)
            found.append(after)
        return found

    def test_a_crontab_begins_at_its_start(self, queue, clock):
        made = schedules.add("one", report, crontab=crontab(minute=0), start=datetime(2026, 3, 2, 15, tzinfo=UTC))
        assert [tick.hour for tick in self.moments(made, NOON, 2)] == [15, 16]

    @STORES
    def test_a_recurrence_rule_in_wall_time(self, queue, clock):
        start = datetime(2026, 3, 27, 9, 30, tzinfo=ZoneInfo("Europe/Berlin"))
        schedules.add("one", report, rrule="FREQ=DAILY;BYHOUR=9;BYMINUTE=30;COUNT=4", start=start)
        [made] = schedules.list()
        assert [f"{tick:%d %H:%M}" for tick in self.moments(made, NOON, 4)] == [
            "27 08:30", "28 08:30", "29 07:30", "30 07:30",
        ]  # fmt: skip
        assert made.timetable.next(datetime(2026, 4, 1, tzinfo=UTC)) is None
        assert made.timetable.next(NOON) == start  # and asked again from the beginning

    @pytest.mark.parametrize(("start", "hour"), [(NOON, 9), (NOON.astimezone(ZoneInfo("Asia/Tokyo")), 0), (None, 8)])
    def test_a_rule_is_in_the_wall_time_of_its_start_and_without_one_in_that_of_django(
        self, queue, clock, settings, start, hour
    ):
        settings.TIME_ZONE = "Europe/Berlin"
        made = schedules.add("one", report, rrule="FREQ=DAILY;BYHOUR=9;BYMINUTE=0;BYSECOND=0", start=start)
        assert self.moments(made, NOON, 1) == [datetime(2026, 3, 3, hour, tzinfo=UTC)]

    def test_a_start_without_a_zone_is_in_that_of_django(self, queue, clock, settings):
        settings.USE_TZ, settings.TIME_ZONE = False, "Europe/Berlin"
        made = schedules.add("one", report, rrule="FREQ=DAILY", start=datetime(2026, 3, 27, 9))
        assert [f"{tick:%d %H}" for tick in self.moments(made, NOON, 3)] == ["27 08", "28 08", "29 07"]

    @pytest.mark.parametrize("given", [{"every": 3600}, {"crontab": crontab(minute=0)}])
    def test_a_start_with_an_offset_does_for_what_has_no_wall_time(self, queue, clock, given):
        made = schedules.add("one", report, start=NOON.astimezone(PLUS_ONE) + timedelta(hours=1), **given)
        [tick] = self.moments(made, NOON, 1)
        assert (tick, tick.utcoffset()) == (NOON + timedelta(hours=1), timedelta(0))

    def test_a_rule_through_an_hour_that_is_skipped_and_one_that_comes_twice(self, queue, clock):
        for day in (datetime(2026, 3, 29, tzinfo=UTC), datetime(2026, 10, 25, tzinfo=UTC)):
            made = schedules.add(
                "one", report, rrule="FREQ=MINUTELY;INTERVAL=30", start=day.astimezone(ZoneInfo("Europe/Berlin"))
            )
            found = self.moments(made, day, 9)
            assert all(earlier < later for earlier, later in pairwise(found))

    def test_a_rule_that_is_over_sends_nothing_more(self, queue, clock):
        schedules.add("one", report, rrule="FREQ=SECONDLY;INTERVAL=10;COUNT=3")
        scheduler = Scheduler([queue])
        for _ in range(6):
            clock.forward(10)
            step(scheduler)
        assert queue.stats().ready == 2  # the first of the three was at the moment of add()
        assert [(one.name, one.next) for one in schedules.list()] == [("one", None)]


@pytest.mark.backends("memory")
class TestPace:
    @pytest.fixture
    def reads(self, queue, monkeypatch):
        return Reads(queue, monkeypatch)

    def test_where_there_is_none_it_asks_seldom(self, queue, reads):
        scheduler = Scheduler([queue])
        pauses = []
        assert reads.of(lambda: pauses.append(scheduler.tick())).keys == PARTS + 2
        assert reads.of(lambda: pauses.extend(scheduler.tick() for _ in range(5))).calls == 0
        assert all(SELDOM - 1 < pause <= SELDOM for pause in pauses)

    def test_where_there_are_some_it_asks_once_a_second(self, queue, reads):
        schedules.add("one", report, every=3600)
        scheduler = Scheduler([queue])
        again = time.monotonic() + OFTEN
        scheduler.tick()
        pauses = []
        found = reads.of(lambda: pauses.extend(scheduler.tick() for _ in range(5)))
        assert found.calls == 0 or time.monotonic() > again
        assert all(0 < pause <= OFTEN for pause in pauses)

    def test_all_are_read_again_after_some_time_though_no_change_was_noted(self, queue, monkeypatch):
        schedules.add("one", report, every=3600)
        schedules.add("two", report, every=3600)
        scheduler = Scheduler([queue])
        scheduler.refresh()
        queue.store.put("schedules:value:two", queue.store.get("schedules:value:one"))  # its signature is of another
        queue.store.drop("schedules:value:one")
        reads = Reads(queue, monkeypatch)
        assert reads.of(scheduler.refresh).calls == 1
        now = clock_of_the_machine()
        monkeypatch.setattr("djqueue.consumer.scheduler.clock", lambda: now + KNOWN_FOR)
        assert reads.of(scheduler.refresh).keys > PARTS
        assert reads.of(scheduler.follow).calls == 0  # none is left
        assert reads.of(scheduler.refresh).keys == 1

    def test_it_comes_back_at_the_next_tick(self, queue, clock):
        schedules.add("one", report, every=20)
        schedules.add("two", report, every=30)
        scheduler = Scheduler([queue])
        scheduler.refresh()
        assert scheduler.follow() == 20
        clock.forward(20)
        assert scheduler.follow() == 10


@pytest.mark.backends("memory")
def test_run_due_keeps_schedules_in_virtual_time(queue):
    with virtual_time():
        schedules.add("one", report, every=timedelta(minutes=10))
        schedules.add("day", greet, ("Ada",), every=timedelta(days=1))
        runs = run_due(until=timedelta(days=1), periodic=True)
    assert [run.command for run in runs].count(report.name) == 144
    assert [run.command for run in runs].count(greet.name) == 1


@pytest.mark.slow
@STORES
def test_sq19_a_running_consumer_keeps_the_seconds(queue, caplog):
    """With real clocks: a change is seen while it runs, and the ticks are a second apart to the microsecond."""
    schedules.add("seconds", report, every=1, missed="all")
    with serving(periodic=True):
        eventually(lambda: len(ran) >= 4, 30)
        schedules.add("more", greet, ("Ada",), every=1)
        eventually(lambda: ("Ada", False) in ran, 10)
        schedules.remove("seconds")
        schedules.remove("more")
    told = [datetime.fromisoformat(r.args[1]) for r in caplog.records if r.args and r.args[0] == "seconds"]
    assert {later - earlier for earlier, later in pairwise(told)} == {timedelta(seconds=1)}


@pytest.mark.backends("memory")
def test_a_drained_consumer_sends_what_is_due(queue):
    with virtual_time() as clock:
        schedules.add("one", report, (1,), every=60)
        clock.move(60)
        assert Consumer(drain=True).run() == 0
    assert ran == [((1,), {})]


class Read(NamedTuple):
    calls: int
    keys: int
    facts: int
    bytes: int


class Reads:
    """What is read of the store of a queue."""

    def __init__(self, queue, monkeypatch):
        self._found, self._get, self._get_many = [], queue.store.get, queue.store.get_many
        monkeypatch.setattr(queue.store, "get", lambda key: self.note([self._get(key)])[0])
        monkeypatch.setattr(queue.store, "get_many", lambda keys: self.get_many(keys))

    def get_many(self, keys):
        before = len(self._found)
        found = self._get_many(keys)
        del self._found[before:]  # it may read one by one
        return self.note(found) if keys else []

    def note(self, found):
        self._found.append(found)
        return found

    def of(self, verb, *args) -> Read:
        self._found.clear()
        verb(*args)
        read = [value for found in self._found for value in found]
        values = [value for value in read if value is not None]
        return Read(len(self._found), len(read), len(values), sum(map(len, values)))


MANY = 10_000 if FULL else 2_000


def make_many(queue):
    """Hourly schedules, three in each second."""
    facts, parts = [], defaultdict(list)
    for number in range(MANY):
        name, hourly = f"n{number}", Interval(3600, NOON + timedelta(seconds=number / 3))
        plan = schedules.SchedulePlan(hourly, Rule("latest", timedelta(hours=1)), NOON, {}, {})
        body = schedules.sealed(queue, name, report, Call((number,), {}), report.policy, plan)
        facts.append((f"schedules:value:{name}", body, FOR_EVER))
        parts[number_of(name)].append(name)
    lists = [(f"schedules:part:{number}", json.dumps(names).encode(), FOR_EVER) for number, names in parts.items()]
    queue.store.put_many([*facts, *lists])


@pytest.mark.backends("memory", "sqlite", "redis", "postgres", "mariadb")
def test_an_idle_look_at_many_reads_one_fact_a_change_all_and_a_turn_serves_what_is_due(queue, clock, monkeypatch):
    make_many(queue)
    scheduler = Scheduler([queue])
    step(scheduler)
    reads, serve, served = Reads(queue, monkeypatch), ScheduleTracker.serve, []
    monkeypatch.setattr(ScheduleTracker, "serve", lambda plan, *args: served.append(plan) or serve(plan, *args))
    assert reads.of(schedules.collection(queue).read).facts == PARTS + MANY
    schedules.add("one more", report, every=60)
    assert reads.of(step, scheduler).facts == 1 + 1 + PARTS + MANY + 1  # the version, and with it all
    assert [one.name for one in served] == ["one more"]
    served.clear()
    idle = reads.of(step, scheduler)
    assert (idle.calls, idle.keys, idle.facts, served) == (1, 1, 1, [])
    assert idle.bytes < 100
    schedules.remove("n77")
    assert reads.of(step, scheduler).facts == 1 + 1 + PARTS + MANY
    assert (reads.of(step, scheduler).facts, served) == (1, [])
    clock.forward(10)
    step(scheduler)
    assert (len(served), queue.stats().ready) == (30, 30)


@pytest.mark.backends("sqlite", "postgres", "mariadb")
def test_an_idle_look_is_one_statement(queue):
    schedules.add("one", report, every=3600)
    scheduler = Scheduler([queue])
    scheduler.refresh()
    with statements(queue) as asked:
        scheduler.refresh()
    assert len(asked) == 1
