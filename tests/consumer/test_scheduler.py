"""The schedule, one tick at a time, by the clock of the queue."""

import time
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from djqueue import crontab, periodic_command, queue_command, queues, schedules, signals
from djqueue.consumer.scheduler import FRESH, LONGEST_PAUSE, OFTEN, Scheduler
from djqueue.registry import registry
from djqueue.testing import eventually, together
from djqueue.utils import clock as clock_of_the_machine
from tests.support.backends import config_at
from tests.support.consumer import only, run_one, serving, unreachable
from tests.support.notes import cleared_per_test

ran = cleared_per_test([])


class Clock:
    """Stands still, until it is set."""

    def __init__(self, text):
        self.set(text)

    def set(self, text):
        self.moment = datetime.fromisoformat(text).replace(tzinfo=UTC)

    def forward(self, **span):
        self.moment += timedelta(**span)

    def __call__(self):
        return self.moment.timestamp()


@pytest.fixture
def clock(queue, monkeypatch):
    """The clock of the queue, at noon."""
    clock = Clock("2026-03-02 12:00:00")
    monkeypatch.setattr(queue, "now", clock)
    return clock


def tick():
    ran.append("ran")


def schedule(when=None, **options):
    """A periodic command of this module."""
    with only():
        return periodic_command(when or crontab(), **options)(tick)


def every(span, **options):
    """A periodic command of this module, at each multiple of a time."""
    with only():
        return periodic_command(every=span, **options)(tick)


def waiting(queue):
    return queue.stats().ready


def log(caplog):
    """The ticks that were enqueued, as the log tells them."""
    return [record.args[1] for record in caplog.records if record.name == "djqueue.consumer.scheduler"]


class TestOnce:
    def test_dj12_two_schedulers_and_a_restart_in_one_minute(self, queue, clock):
        with only(schedule()):
            one, two = Scheduler([queue]), Scheduler([queue])
            for scheduler in (one, two):
                scheduler.tick()
            assert waiting(queue) == 0  # a schedule seen for the first time begins now
            clock.forward(seconds=60)
            for scheduler in (one, two, Scheduler([queue]), one):
                scheduler.tick()
            assert waiting(queue) == 1
            clock.forward(seconds=20)
            for scheduler in (two, Scheduler([queue])):
                scheduler.tick()
            assert waiting(queue) == 1
            run_one(queue)
            Scheduler([queue]).tick()
            assert (waiting(queue), ran) == (0, ["ran"])
            clock.forward(seconds=40)
            for scheduler in (one, two):
                scheduler.tick()
            assert waiting(queue) == 1

    def test_dj12_many_schedulers_at_once(self, queue, clock):
        from django.db import connections

        with only(schedule()):
            schedulers = [Scheduler([queue]) for _ in range(6)]
            for scheduler in schedulers:
                scheduler.tick()
            clock.forward(seconds=60)
            together(*[scheduler.tick for scheduler in schedulers], last=connections.close_all)
            assert waiting(queue) == 1

    @pytest.mark.backends("memory")
    def test_every_command_has_ticks_of_its_own(self, queue, clock):
        def other():
            raise NotImplementedError

        other.__qualname__ = "other"
        with only():
            pair = [periodic_command(crontab(minute="*/15"))(tick), periodic_command(crontab(minute="*/30"))(other)]
        with only(*pair):
            scheduler = Scheduler([queue])
            found = []
            for minutes in (0, 15, 1, 14):
                clock.forward(minutes=minutes)
                scheduler.tick()
                found.append([record.entry.command.rpartition(".")[2] for record in queue.peek("ready")])
                queue.flush()
        assert found == [[], ["tick"], [], ["tick", "other"]]

    @pytest.mark.backends("memory")
    def test_a_tick_that_could_not_be_enqueued_is_not_forgotten(self, queue, clock, monkeypatch):
        with only(schedule()):
            scheduler = Scheduler([queue])
            scheduler.tick()
            clock.forward(seconds=60)
            with monkeypatch.context() as patch:
                patch.setattr(queue, "put", unreachable)
                assert scheduler.guarded_tick() > 0
            clock.forward(seconds=30)
            scheduler.guarded_tick()
            assert waiting(queue) == 1

    @pytest.mark.backends("memory")
    def test_a_clock_that_goes_back_repeats_nothing(self, queue, clock):
        with only(schedule()):
            scheduler = Scheduler([queue])
            scheduler.tick()
            clock.forward(seconds=60)
            scheduler.tick()
            clock.forward(seconds=-30)
            scheduler.tick()
            clock.forward(seconds=30)
            scheduler.tick()
            assert waiting(queue) == 1


class TestIntervals:
    def test_its_ticks_are_the_multiples_since_the_epoch_each_once(self, queue, clock, caplog):
        caplog.set_level("INFO")
        with only(every(5)):
            one, two = Scheduler([queue]), Scheduler([queue])
            clock.forward(seconds=2.5)
            assert [one.follow(), two.follow()] == [2.5, 2.5]
            for _ in range(3):
                clock.forward(seconds=2.5)
                for scheduler in (one, two, Scheduler([queue])):
                    scheduler.tick()
        assert log(caplog) == ["2026-03-02T12:00:05+00:00", "2026-03-02T12:00:10+00:00"]
        assert waiting(queue) == 2

    @pytest.mark.backends("memory")
    @pytest.mark.parametrize(
        ("missed", "late", "gone"), [("latest", 3, 1), ("all", 3, 360), ("skip", 3, 0)], ids=["latest", "all", "skip"]
    )
    def test_a_scheduler_that_is_late_serves_all_and_one_that_was_gone_what_missed_says(
        self, queue, clock, missed, late, gone
    ):
        with only(every(timedelta(seconds=1), missed=missed, max_lateness=300)):
            scheduler = Scheduler([queue])
            scheduler.tick()
            clock.forward(seconds=3)
            scheduler.tick()
            assert waiting(queue) == late
            queue.flush()
            clock.forward(seconds=3600)
            scheduler.tick()
            assert waiting(queue) == min(gone, 301)

    @pytest.mark.backends("memory")
    def test_it_is_due_in_a_minute_in_which_it_ticks(self):
        command = every(90)
        noon = datetime(2026, 3, 2, 12, tzinfo=UTC)
        assert [command.validate_datetime(noon + timedelta(minutes=n)) for n in range(4)] == [True, True, False, True]


@pytest.mark.backends("memory")
class TestPauses:
    def test_it_comes_back_at_the_next_tick(self, queue, clock):
        clock.forward(seconds=22.5)
        with only(schedule()):
            assert Scheduler([queue]).follow() == 37.5

    def test_it_comes_back_within_a_minute(self, queue, clock):
        with only(schedule(crontab(month=1, day=1, hour=0, minute=0))):
            assert Scheduler([queue]).follow() == LONGEST_PAUSE

    def test_a_plain_callable_is_asked_every_minute(self, queue, clock):
        clock.forward(seconds=20)
        asked = []
        with only(schedule(lambda dt: asked.append(dt) or dt.minute == 2)):
            scheduler = Scheduler([queue])
            assert scheduler.follow() == 40
            for _ in range(3):
                clock.forward(seconds=60)
                scheduler.tick()
        assert [dt.minute for dt in asked] == [1, 2, 3]
        assert waiting(queue) == 1

    def test_a_schedule_that_fails_is_named_and_holds_up_no_other(self, queue, clock, caplog):
        def broken(dt):
            raise KeyError("next")

        with only(schedule(broken)):
            scheduler = Scheduler([queue])
            scheduler.tick()
            clock.forward(seconds=60)
            assert scheduler.follow() == LONGEST_PAUSE
        [record] = [record for record in caplog.records if record.levelname == "ERROR"]
        assert f"{__name__}.tick" in record.getMessage()
        assert record.exc_info[0] is KeyError

    def test_without_a_schedule_it_rests(self, queue):
        with only():
            assert Scheduler([queue]).follow() == LONGEST_PAUSE

    def test_a_plain_callable_is_given_local_time(self, queue, clock, settings):
        asked = []
        with only(schedule(lambda dt: asked.append(dt) and False)):
            scheduler = Scheduler([queue])
            scheduler.tick()
            for settings.USE_TZ in (True, False):
                clock.forward(seconds=60)
                scheduler.tick()
        assert [dt.tzinfo is not None for dt in asked] == [True, False]
        assert [dt.minute for dt in asked] == [1, 2]

    def test_schedules_of_queues_that_are_not_served_are_left_to_others(self, backend, settings):
        settings.QUEUES = backend.queues("default", "slow")
        with only(schedule(queue_name="slow")):
            default, slow = Scheduler([queues["default"]]), Scheduler([queues["slow"]])
            assert (default.follow(), 0 < slow.follow() < LONGEST_PAUSE) == (LONGEST_PAUSE, True)
            marks = [queues[alias].store.get(f"last:{tick.__module__}.tick") for alias in ("default", "slow")]
            assert [mark is not None for mark in marks] == [False, True]


@pytest.mark.backends("memory")
class TestMissed:
    """DJ-13: a scheduler that stalled does not die and does not double-fire; what was missed follows its rule."""

    def missed(self, queue, clock, caplog, minutes, restart=True, **options):
        """The ticks that are enqueued after an absence, as minutes before now."""
        caplog.set_level("INFO", "djqueue.consumer.scheduler")
        with only(schedule(**options)):
            scheduler = Scheduler([queue])
            scheduler.tick()
            clock.forward(minutes=1)
            scheduler.tick()
            queue.flush()
            caplog.clear()
            clock.forward(minutes=minutes, seconds=5)
            scheduler = Scheduler([queue]) if restart else scheduler
            scheduler.tick()
            scheduler.tick()
            found = [datetime.fromisoformat(text) for text in log(caplog)]
            assert waiting(queue) == len(found)
            return [(clock.moment - found_at) // timedelta(minutes=1) for found_at in found]

    @pytest.mark.backends()
    @pytest.mark.parametrize("restart", [False, True], ids=["stalled", "restarted"])
    @pytest.mark.parametrize(
        ("rule", "expected"), [("latest", [0]), ("skip", [0]), ("all", [2, 1, 0])], ids=["latest", "skip", "all"]
    )
    def test_dj13_three_minutes(self, queue, clock, caplog, rule, expected, restart):
        assert self.missed(queue, clock, caplog, 3, restart, missed=rule) == expected

    def test_dj13_the_ticks_after_it_are_on_time(self, queue, clock, caplog):
        with only(schedule()):
            scheduler = Scheduler([queue])
            scheduler.tick()
            clock.forward(minutes=3, seconds=30)
            assert scheduler.follow() == 30
            clock.forward(seconds=30)
            scheduler.tick()
            assert waiting(queue) == 2

    @pytest.mark.parametrize(
        ("rule", "expected"), [("latest", [20]), ("skip", []), ("all", [20])], ids=["latest", "skip", "all"]
    )
    def test_a_tick_of_some_time_ago(self, queue, clock, caplog, rule, expected):
        when = crontab(minute=11)
        assert self.missed(queue, clock, caplog, 30, when=when, missed=rule) == expected

    @pytest.mark.parametrize("rule", ["latest", "all"])
    def test_a_tick_too_late_is_not_run(self, queue, clock, caplog, rule):
        options = {"when": crontab(minute=11), "missed": rule}
        assert self.missed(queue, clock, caplog, 30, max_lateness=timedelta(minutes=21), **options) == [20]
        clock.set("2026-03-02 12:00:00")
        queue.store.drop(f"last:{tick.__module__}.tick")
        assert self.missed(queue, clock, caplog, 30, max_lateness=timedelta(minutes=20), **options) == []

    @pytest.mark.parametrize(
        ("hours", "options", "expected"),
        [(10, {}, [0]), (10, {"missed": "all"}, [*range(59, -1, -1)]), (40, {"max_lateness": timedelta(days=7)}, [0])],
        ids=["the newest within the hour", "all within max_lateness", "the newest of very many"],
    )
    def test_after_a_night(self, queue, clock, caplog, hours, options, expected):
        assert self.missed(queue, clock, caplog, hours * 60, **options) == expected

    def test_what_nobody_ever_saw_is_not_missed(self, queue, clock):
        with only(schedule()):
            clock.forward(minutes=30)
            Scheduler([queue]).tick()
            assert waiting(queue) == 0


@pytest.mark.backends("memory")
class TestClockChanges:
    def run_through(self, queue, clock, start, when, caplog, hours=6):
        """The local times at which it is enqueued, minute by minute."""
        caplog.set_level("INFO", "djqueue.consumer.scheduler")
        clock.set(start)
        with only(schedule(when)):
            scheduler = Scheduler([queue])
            for _ in range(hours * 60):
                scheduler.tick()
                clock.forward(minutes=1)
        zone = ZoneInfo("Europe/Berlin")
        return [f"{datetime.fromisoformat(text).astimezone(zone):%H:%M}" for text in log(caplog)]

    @pytest.mark.parametrize("kept", [b"\xff\xfea", b"garbage", b"", b"0001-01-01"])
    def test_a_last_tick_that_cannot_be_read_is_now(self, queue, clock, caplog, kept):
        queue.store.put(f"last:{tick.__module__}.tick", kept)
        with only(schedule()):
            assert Scheduler([queue]).tick() > 0
            clock.forward(minutes=1)
            Scheduler([queue]).tick()
        assert waiting(queue) == 1

    @pytest.mark.parametrize("kind", ["crontab", "fixed"])
    def test_a_time_that_is_skipped_runs_at_the_first_moment_after(self, queue, clock, caplog, kind):
        when = crontab(hour=2, minute=30 if kind == "fixed" else "30", time_zone="Europe/Berlin")
        assert self.run_through(queue, clock, "2026-03-28 23:00:00", when, caplog) == ["03:00"]

    def test_a_time_that_comes_twice_runs_once(self, queue, clock, caplog):
        when = crontab(hour=2, minute=30, time_zone="Europe/Berlin")
        assert self.run_through(queue, clock, "2026-10-24 22:00:00", when, caplog) == ["02:30"]

    def test_an_hourly_schedule_goes_on(self, queue, clock, caplog):
        when = crontab(minute=15, time_zone="Europe/Berlin")
        spring = self.run_through(queue, clock, "2026-03-28 23:00:00", when, caplog, hours=4)
        assert spring == ["00:15", "01:15", "03:15", "04:15"]
        queue.store.drop(f"last:{tick.__module__}.tick")
        caplog.clear()
        autumn = self.run_through(queue, clock, "2026-10-24 22:00:00", when, caplog, hours=5)
        assert autumn == ["00:15", "01:15", "02:15", "02:15", "03:15"]


@queue_command
def note():
    ran.append("note")


@pytest.mark.backends("memory")
class TestOneBoard:
    """Periodic commands and schedules made at run time are served together, and neither stops the other."""

    @pytest.fixture
    def scheduler(self, queue, clock):
        with only(schedule(), note):
            schedules.add("made", note, every=60)
            scheduler = Scheduler([queue])
            scheduler.tick()
            yield scheduler

    def sent(self, queue):
        found = [record.entry.command.rpartition(".")[2] for record in queue.peek("ready")]
        queue.flush()
        return found

    def test_a_tick_asks_for_the_time_once_for_both(self, queue, clock, scheduler, monkeypatch):
        asked = []
        monkeypatch.setattr(queue, "now", lambda: asked.append(1) or clock())
        assert scheduler.follow() == 60
        assert asked == [1]
        clock.forward(seconds=60)
        scheduler.tick()
        assert self.sent(queue) == ["tick", "note"]

    def test_a_clock_that_was_far_ahead_is_followed_back(self, queue, clock, scheduler):
        clock.forward(days=60)
        scheduler.tick()
        assert self.sent(queue) == ["tick", "note"]
        clock.set("2026-03-02 12:00:30")
        scheduler.tick()
        assert self.sent(queue) == []
        for _ in range(2):
            clock.forward(seconds=60)
            scheduler.tick()
            assert self.sent(queue) == ["tick", "note"]

    def test_what_was_made_at_run_time_waits_until_it_can_be_read_and_no_command_waits_for_that(
        self, queue, clock, scheduler, monkeypatch
    ):
        clock.forward(seconds=60)
        later = clock_of_the_machine() + FRESH + OFTEN
        with monkeypatch.context() as patch:
            patch.setattr("djqueue.consumer.scheduler.clock", lambda: later)
            patch.setattr(schedules.Collection, "read", unreachable)
            assert scheduler.guarded_tick() > 0
            assert scheduler.failures == 1
            assert self.sent(queue) == ["tick"]
        scheduler.refresh()
        scheduler.guarded_tick()
        assert self.sent(queue) == ["note"]

    def test_what_is_removed_while_a_long_turn_lasts_is_not_sent(self, queue, clock, scheduler, monkeypatch):
        schedules.add("other", note, every=60)
        scheduler.refresh()
        scheduler.follow()
        clock.forward(seconds=60)
        later = clock_of_the_machine() + FRESH

        def remove_the_other(sender, **about):
            if sender == note.name:
                schedules.remove("other")
                monkeypatch.setattr("djqueue.consumer.scheduler.clock", lambda: later)

        signals.enqueued.connect(remove_the_other)
        try:
            scheduler.follow()
        finally:
            signals.enqueued.disconnect(remove_the_other)
        assert self.sent(queue) == ["tick", "note"]

    def test_a_schedule_that_is_damaged_rests_alone_and_is_named(self, queue, clock, scheduler, caplog):
        schedules.add("bad", note, every=60)
        queue.store.put("schedules:value:bad", b"junk")
        scheduler.refresh()
        clock.forward(seconds=60)
        scheduler.tick()
        assert self.sent(queue) == ["tick", "note"]
        assert "The schedule 'bad' cannot be read, and rests" in caplog.text

    def test_a_name_of_a_command_may_be_that_of_a_schedule(self, queue, clock, scheduler):
        schedules.add(f"{tick.__module__}.tick", note, every=60)
        scheduler.refresh()
        clock.forward(seconds=60)
        scheduler.tick()
        assert sorted(self.sent(queue)) == ["note", "note", "tick"]


RARELY = {"month": 1, "day": 1, "hour": 0, "minute": 0}


@queue_command
def rare():
    raise NotImplementedError


def crontabs(count):
    """So many periodic commands that are not due for long."""
    found = []
    with only():
        for number in range(count):

            def command():
                raise NotImplementedError

            command.__name__ = command.__qualname__ = f"command_{number}"
            found.append(periodic_command(crontab(**RARELY))(command))
    return found


@pytest.fixture
def redis(private_server, settings):
    """A Redis of the test's own, which counts its commands; the default queue is there.

    A schedule that was made at run time has the scheduler tick each second.
    """
    server = private_server("redis")
    settings.QUEUES = {"default": config_at(server.url)}
    schedules.add("rare", rare, crontab=crontab(**RARELY))
    yield server
    queues["default"].close()


def commands_of(server):
    """How many commands a Redis server has been sent."""
    [line] = [line for line in server.ask("INFO", "stats").splitlines() if line.startswith("total_commands_processed")]
    return int(line.partition(":")[2])


@pytest.mark.server("redis")
class TestRoundTrips:
    """The store is asked for its time once in a tick, however many schedules there are."""

    def cost_of_a_tick(self, server, count):
        with only(rare, *crontabs(count)):
            scheduler = Scheduler([queues["default"]])
            scheduler.tick()  # asks for the last tick of each
            before = commands_of(server)
            for _ in range(10):
                scheduler.tick()
            return (commands_of(server) - before) / 10

    def test_a_tick_costs_the_same_with_one_crontab_and_with_a_hundred(self, redis):
        assert self.cost_of_a_tick(redis, 100) <= self.cost_of_a_tick(redis, 1) + 1

    def idle_cost(self, server, count, seconds=3.0):
        with only(rare, *crontabs(count)), serving(periodic=True) as running:
            marks = [f"last:{one.name}" for one in registry.periodic()]
            eventually(lambda: running.claims() and None not in queues["default"].store.get_many(marks))
            before, began = commands_of(server), time.monotonic()
            time.sleep(seconds)
            return (commands_of(server) - before) / (time.monotonic() - began)

    def test_an_idle_consumer_costs_the_same_with_one_crontab_and_with_a_hundred(self, redis):
        assert self.idle_cost(redis, 100) <= self.idle_cost(redis, 1) + 5

    @pytest.mark.backends("memory")
    def test_a_store_that_is_out_of_reach_is_asked_once_in_a_tick(self, queue, monkeypatch):
        asked = []
        with only(*crontabs(100)):
            scheduler = Scheduler([queue])
            monkeypatch.setattr(queue, "now", lambda: asked.append(1) or unreachable())
            assert scheduler.guarded_tick() > 0
        assert len(asked) == 1
