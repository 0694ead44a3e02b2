"""Schedules: the field grammar, the clock changes, and two oracles: a walk over every minute, and cronsim."""

import copy
import pickle
import re
from calendar import monthrange
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from itertools import islice
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from django.test import override_settings
from django.utils.timezone import override
from hypothesis import example, given, settings
from hypothesis import strategies as st

from djqueue.timetables import EPOCH, Crontab, crontab, interval
from tests.support.backends import FULL

BERLIN = ZoneInfo("Europe/Berlin")
MINUTE = timedelta(minutes=1)
LEGAL = {"month": range(1, 13), "day": range(1, 32), "day_of_week": range(7), "hour": range(24), "minute": range(60)}


def utc(*parts):
    return datetime(*parts, tzinfo=UTC)


def ticks(schedule, after, until):
    """All ticks after one moment up to another."""
    found = []
    while (after := schedule.next(after)) is not None and after <= until:
        found.append(after)
    return found


def shown(schedule, start, hours):
    """The ticks of some hours, the one at their start included, as the zone's own clock shows them."""
    zone = schedule.time_zone
    first = datetime.fromisoformat(start).replace(tzinfo=zone).astimezone(UTC)
    found = ticks(schedule, first - timedelta.resolution, first + timedelta(hours=hours))
    return [tick.astimezone(zone).strftime("%H:%M%z")[:-2] for tick in found]


def values(name, text):
    """What a field admits, found by asking the predicate about every value."""
    samples = {
        "month": lambda n: datetime(2011, n, 1),
        "day": lambda n: datetime(2011, 1, n),
        "day_of_week": lambda n: datetime(2011, 1, 2 + n),  # a Sunday
        "hour": lambda n: datetime(2011, 1, 1, n),
        "minute": lambda n: datetime(2011, 1, 1, 0, n),
    }
    schedule = crontab(**{name: text})
    return [n for n in LEGAL[name] if schedule(samples[name](n))]


# The fields


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("month", "1", [1]),
        ("month", "1,4,*/6,8-9", [1, 4, 7, 8, 9]),
        ("month", "*/6", [1, 7]),
        ("day", "*/6", [1, 7, 13, 19, 25, 31]),
        ("day", "*/6,1,4,8-9", [1, 4, 7, 8, 9, 13, 19, 25, 31]),
        ("hour", "*/4", [0, 4, 8, 12, 16, 20]),
        ("hour", "8-9,*/6,1,4", [0, 1, 4, 6, 8, 9, 12, 18]),
        ("minute", "*/7", list(range(0, 60, 7))),
        ("minute", "*/40", [0, 40]),
        ("minute", "4,8-9,*/6,1", sorted({1, 4, 8, 9, *range(0, 60, 6)})),
        ("day_of_week", "*/5", [0, 5]),
        ("day_of_week", "0,2", [0, 2]),
        ("minute", "5-20/5", [5, 10, 15, 20]),
        ("minute", "*/60", [0]),
        ("minute", "07,8", [7, 8]),
        ("minute", "5-5/1", [5]),
        ("minute", "3,3,2-4", [2, 3, 4]),
        ("hour", "5,*", list(range(24))),
        ("day", "2-31/10", [2, 12, 22]),
        ("month", "jan,Mar-MAY,11", [1, 3, 4, 5, 11]),
        ("month", "feb-dec/5", [2, 7, 12]),
        ("day_of_week", "sun", [0]),
        ("day_of_week", "7", [0]),
        ("day_of_week", "0,7", [0]),
        ("day_of_week", "0-7", list(range(7))),
        ("day_of_week", "5-7", [0, 5, 6]),
        ("day_of_week", "FRI-sun", [0, 5, 6]),
        ("day_of_week", "mon-sun/2", [0, 1, 3, 5]),
        ("day_of_week", "sun-tue", [0, 1, 2]),
        ("day_of_week", "sun-sun", [0]),
        ("day_of_week", "Mon-Fri", [1, 2, 3, 4, 5]),
        ("day_of_week", "*/7", [0]),
    ],
)
def test_dj3_dj4_fields_take_lists_ranges_steps_names_and_both_sundays(name, text, expected):
    assert values(name, text) == expected


def test_dj3_weekdays_of_january_2011():
    schedule = crontab(day_of_week="0,2")
    days = [day for day in range(1, 32) if schedule(datetime(2011, 1, day))]
    assert days == [2, 4, 9, 11, 16, 18, 23, 25, 30]


@pytest.mark.parametrize(
    ("moment", "expected"),
    [
        ("2011-05-01 04:11", True),
        ("2011-05-07 20:50", True),
        ("2011-01-01 00:01", True),
        ("2011-06-04 04:11", False),
        ("2011-01-06 04:11", False),
        ("2011-01-04 04:11", False),
        ("2011-01-01 01:11", False),
        ("2011-01-01 04:06", False),
    ],
)
def test_dj3_all_five_fields_must_match(moment, expected):
    schedule = crontab(month="1,5", day="1,4,7", day_of_week="0,6", hour="*/4", minute="1-5,10-15,50")
    assert schedule(datetime.fromisoformat(moment)) is expected
    assert schedule(datetime.fromisoformat(moment).replace(tzinfo=UTC)) is expected


def test_dj3_all_stars_are_always_true():
    assert all(crontab()(datetime(2011, 1, 1) + n * timedelta(hours=7, minutes=13)) for n in range(500))


def test_dj5_dj6_weekday_zero_is_sunday_and_ints_are_taken():
    assert crontab(day_of_week=0)(datetime(2026, 3, 29))
    assert not crontab(day_of_week=0)(datetime(2026, 3, 30))
    assert crontab(hour=0)(datetime(2011, 1, 1, 0, 0))
    assert not crontab(hour=0)(datetime(2011, 1, 1, 12, 0))
    assert crontab(hour=0) == crontab(hour="0")


def test_dj7_day_and_weekday_are_anded():
    schedule = crontab(day="1", day_of_week="0")
    days = [date(2026, 1, 1) + timedelta(days=n) for n in range(365)]
    found = [(day.month, day.day) for day in days if schedule(datetime(day.year, day.month, day.day))]
    assert found == [(2, 1), (3, 1), (11, 1)]


@pytest.mark.parametrize("zone", [None, UTC])
def test_dj8_seconds_do_not_matter(zone):
    schedule = crontab(hour=5, minute=30)
    assert schedule(datetime(2026, 1, 1, 5, 30, 59, 999999, tzinfo=zone))
    assert not schedule(datetime(2026, 1, 1, 5, 29, 59, 999999, tzinfo=zone))
    assert not schedule(datetime(2026, 1, 1, 5, 31, tzinfo=zone))


NINES = "9" * 5000  # more digits than int() takes
BAD = [
    *[(name, bad) for name in LEGAL for bad in ("", " ", ",", "1,", ",1", "1,,2", "abc", "*/0", "5/2", "1-5x", "x1")],
    *[(name, bad) for name in LEGAL for bad in (" 5", "5 ", "1, 2", "1\n", "\n1", "\u00a01", "1\t", "* ", "1 2")],
    *[(name, bad) for name in LEGAL for bad in ("R", "H", "H/5", "L", "?", "1W", "1#2", "@daily", "*-5", "-5", "+5")],
    *[(name, bad) for name in LEGAL for bad in ("**", "*/", "/2", "1-", "-", "1-2-3", "*/2/2", "*/-1", "*/x", "1.0")],
    *[(name, bad) for name in LEGAL for bad in ("\u0661", "\u00b2", "1-\u0663", "*/\u0662", NINES, f"*/{NINES}")],
    *[(name, bad) for name in LEGAL for bad in (None, True, False, 1.0, -1, b"1", [1], (1, 2), {1}, Ellipsis)],
    *[("minute", bad) for bad in ("60", 60, "0-60", "59,60", "5-1", "*/61", "0-9/11", "mon", "jan", "100")],
    *[("hour", bad) for bad in ("24", 24, "20-24", "9-5", "*/25", "9-17/10", "mon")],
    *[("day", bad) for bad in ("0", 0, "32", 32, "0-5", "31-1", "*/32", "mon")],
    *[("month", bad) for bad in ("0", 0, "13", 13, "dec-jan", "*/13", "mon", "janua", "jan-")],
    *[("day_of_week", bad) for bad in ("8", 8, "5-8", "7-1", "sat-mon", "*/8", "mond", "jan", "mon/2", "7-0")],
]  # fmt: skip


@pytest.mark.parametrize(("name", "bad"), BAD, ids=lambda value: repr(value)[:24])
def test_dj9_bad_fields_are_refused_when_made(name, bad):
    with pytest.raises(ValueError, match=rf"^crontab {name}=.*legal values are \d+-\d+"):
        crontab(**{name: bad})


@pytest.mark.parametrize(
    ("bad", "piece"),
    {"1,60": "'60'", "5,Abc": "'Abc'", "1,9-5,3": "'9-5'", "3,*/61": "'*/61'", "1,5/2": "'5/2'", "1,": "empty"}.items(),
)
def test_dj9_the_message_names_the_field_the_piece_and_the_range(bad, piece):
    with pytest.raises(ValueError, match="minute") as caught:
        crontab(minute=bad)
    assert piece in str(caught.value)
    assert repr(bad) in str(caught.value)
    assert "0-59" in str(caught.value)


@pytest.mark.parametrize(("month", "day"), [(2, 31), (2, 30), ("feb", "30-31"), ("4,6,9,11", 31), ("2,4", "31")])
def test_dj9_dates_that_no_year_has_are_refused(month, day):
    with pytest.raises(ValueError, match=f"month='{month}', day='{day}'"):
        crontab(month=month, day=day)
    with pytest.raises(ValueError, match="no year"):
        crontab(month=month, day=day, day_of_week="mon")


@pytest.mark.parametrize(("month", "day"), [(2, 29), ("2,3", 30), ("4,6,9,10", 31), (2, "28-31"), ("*", 31)])
def test_dates_that_some_year_has_are_taken(month, day):
    assert crontab(month=month, day=day).next(utc(2026, 1, 1)) is not None


@pytest.mark.parametrize("bad", ["Mars/Phobos", "", "America", "../etc/passwd", "/etc/localtime", 3, b"UTC", Ellipsis])
def test_bad_time_zones_are_refused(bad):
    with pytest.raises(ValueError, match="^crontab time_zone="):
        crontab(time_zone=bad)


def test_it_is_shown_by_the_five_fields_of_cron():
    assert str(crontab(hour=2, minute=30)) == "30 2 * * *"
    assert str(crontab.parse("*/5 8-18 * * mon-fri")) == "*/5 8-18 * * mon-fri"
    assert str(crontab(day=13, day_of_week="fri", hour=0, minute=0)) == "0 0 13 * fri (day and weekday)"


def test_a_tzinfo_that_cannot_read_wall_times_is_refused():
    class LikePytz(tzinfo):
        def utcoffset(self, dt):
            return timedelta(minutes=53)

        def fromutc(self, dt):
            return (dt + timedelta(hours=1)).replace(tzinfo=timezone(timedelta(hours=1)))

    with pytest.raises(ValueError, match="pytz.*zoneinfo"):
        crontab(time_zone=LikePytz())


# The object


def test_a_schedule_is_an_immutable_value():
    schedule = crontab(hour=5, minute="*/15", time_zone="Europe/Berlin")
    assert schedule == crontab(month="*", day="*", hour="5", minute="*/15", time_zone=BERLIN)
    assert schedule != crontab(hour=5, minute="*/15")
    assert len({schedule, crontab(hour=5, minute="*/15", time_zone=BERLIN)}) == 1
    assert isinstance(schedule, Crontab)
    with pytest.raises(AttributeError):
        schedule.hour = "6"


@pytest.mark.parametrize(
    ("field", "name", "same"),
    [
        ("day_of_week", "monday", "mon"),
        ("day_of_week", "Monday-friday,sunday", "mon-fri,sun"),
        ("day_of_week", "saturday-sunday", "sat-sun"),
        ("month", "january,may-august/2", "jan,may-aug/2"),
    ],
)
def test_a_name_may_be_written_out(field, name, same):
    written, short = (crontab(**{field: text}, hour=0, minute=0) for text in (name, same))
    start = utc(2026, 1, 1)
    assert ticks(written, start, start + timedelta(days=400)) == ticks(short, start, start + timedelta(days=400))


def test_a_schedule_survives_copying_and_pickling_after_use():
    schedule = crontab(hour=5, minute="*/15", time_zone="Europe/Berlin")
    schedule.next(utc(2026, 1, 1))
    for other in (copy.copy(schedule), copy.deepcopy(schedule), pickle.loads(pickle.dumps(schedule))):
        assert other == schedule
        assert other.next(utc(2026, 1, 1)) == schedule.next(utc(2026, 1, 1))


@pytest.mark.parametrize(
    "text", ["crontab()", "crontab(hour='0', minute='*/15')", "crontab(day_of_week='5-7', time_zone='Europe/Berlin')"]
)
def test_repr_is_the_call(text):
    assert repr(eval(text)) == text  # our own literals
    assert eval(text) == eval(repr(eval(text)))


def test_repr_of_a_zone_without_a_name():
    assert repr(crontab(time_zone=timezone(timedelta(hours=2)))) == (
        "crontab(time_zone=datetime.timezone(datetime.timedelta(seconds=7200)))"
    )


def test_the_default_time_zone_is_djangos_at_the_time_of_use_and_not_the_active_one(settings):
    with override("Asia/Kolkata"):
        assert crontab(hour=5, minute=0).next(utc(2026, 1, 1)) == utc(2026, 1, 1, 5)
    schedule = crontab(hour=5, minute=0)
    assert schedule.next(utc(2026, 1, 1)) == utc(2026, 1, 1, 5)
    settings.TIME_ZONE = "Asia/Kolkata"
    assert schedule.next(utc(2026, 1, 1)) == utc(2026, 1, 1, 23, 30)
    assert schedule(utc(2025, 12, 31, 23, 30))


def test_naive_is_wall_time_of_the_schedule_and_aware_is_converted():
    schedule = crontab(hour=5, minute=0, time_zone="Asia/Kolkata")
    assert schedule(datetime(2026, 1, 1, 5, 0))
    assert schedule(utc(2026, 1, 1, 23, 30))
    assert not schedule(utc(2026, 1, 1, 5, 0))
    assert schedule(datetime(2026, 1, 2, 0, 30, tzinfo=BERLIN))


@pytest.mark.parametrize("bad", [None, "2026-01-01", 0, date(2026, 1, 1)])
def test_only_datetimes_are_answered(bad):
    with pytest.raises(TypeError, match="datetime"):
        crontab()(bad)
    with pytest.raises(ValueError, match="aware"):
        crontab().next(bad)


# next()


def test_next_is_strictly_later_and_in_utc_and_refuses_a_naive_datetime():
    schedule = crontab(minute="*/15", time_zone="Europe/Berlin")
    assert schedule.next(utc(2026, 1, 1, 0, 0)) == utc(2026, 1, 1, 0, 15)
    assert schedule.next(utc(2026, 1, 1, 0, 14, 59, 999999)) == utc(2026, 1, 1, 0, 15)
    assert schedule.next(utc(2026, 1, 1, 0, 15, 0, 1)) == utc(2026, 1, 1, 0, 30)
    assert schedule.next(datetime(2026, 1, 1, 0, 15, tzinfo=BERLIN)).tzinfo is UTC
    with pytest.raises(ValueError, match="aware"):
        crontab().next(datetime(2026, 1, 1))


def test_dj11_quarter_and_half_hours():
    quarter, half = crontab(minute="*/15"), crontab(minute="*/30")
    at = {minute: (quarter(utc(2026, 1, 1, 1, minute)), half(utc(2026, 1, 1, 1, minute))) for minute in (15, 16, 30)}
    assert at == {15: (True, False), 16: (False, False), 30: (True, True)}


def test_new_year():
    assert crontab(month=1, day=1, hour=0, minute=0).next(utc(2026, 1, 1)) == utc(2027, 1, 1)
    assert crontab().next(utc(2026, 12, 31, 23, 59)) == utc(2027, 1, 1)
    kolkata = crontab(month=1, day=1, hour=0, minute=0, time_zone="Asia/Kolkata")
    assert kolkata.next(utc(2026, 6, 1)) == utc(2026, 12, 31, 18, 30)


def test_leap_days():
    schedule = crontab(month=2, day=29, hour=0, minute=0)
    assert ticks(schedule, utc(2026, 1, 1), utc(2037, 1, 1)) == [utc(2028, 2, 29), utc(2032, 2, 29), utc(2036, 2, 29)]
    assert schedule.next(utc(2096, 3, 1)) == utc(2104, 2, 29)


@pytest.mark.parametrize("weekday", range(7))
def test_leap_days_on_a_weekday_are_found_over_the_longest_wait(weekday):
    schedule = crontab(month=2, day=29, day_of_week=weekday, hour=0, minute=0)
    leap_days = [utc(year, 2, 29) for year in range(2000, 2401, 4) if year % 100 or year % 400 == 0]
    expected = [day for day in leap_days if day.isoweekday() % 7 == weekday]
    assert ticks(schedule, utc(2000, 1, 1), utc(2401, 1, 1)) == expected


def test_the_31st_skips_short_months():
    found = ticks(crontab(day=31, hour=12, minute=0), utc(2026, 1, 1), utc(2026, 12, 31))
    assert [tick.month for tick in found] == [1, 3, 5, 7, 8, 10]


def test_next_is_none_when_the_calendar_ends():
    assert crontab(month=1, day=1, hour=0, minute=0).next(utc(9999, 6, 1)) is None


# Clock changes


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"hour": 2, "minute": 30}, ["03:00+02"]),
        ({"hour": 2, "minute": "0,15,59"}, ["03:00+02"]),
        ({"hour": "2-3", "minute": "0,30"}, ["03:00+02", "03:30+02"]),
        ({"hour": 3, "minute": 0}, ["03:00+02"]),
        ({"hour": "*", "minute": 30}, ["00:30+01", "01:30+01", "03:30+02", "04:30+02"]),
        ({"hour": "*", "minute": 0}, ["00:00+01", "01:00+01", "03:00+02", "04:00+02", "05:00+02"]),
        ({"hour": "1-3", "minute": "*/30"}, ["01:00+01", "01:30+01", "03:00+02", "03:30+02"]),
        ({"hour": "*/2", "minute": 0}, ["00:00+01", "03:00+02", "04:00+02"]),
        ({"hour": "*/2", "minute": 30}, ["00:30+01", "03:30+02", "04:30+02"]),
        ({"hour": 2, "minute": "*/15"}, ["03:00+02", "03:15+02", "03:30+02", "03:45+02"]),
        ({"hour": 5, "minute": "*/30"}, ["05:00+02"]),
    ],
    ids=str,
)
def test_berlin_in_march(fields, expected):
    """02:00 to 03:00 does not exist; the four hours from midnight end at 05:00."""
    assert shown(crontab(time_zone="Europe/Berlin", **fields), "2026-03-29 00:00", 4) == expected


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"hour": 2, "minute": 30}, ["02:30+02"]),
        ({"hour": "2-3", "minute": "0,30"}, ["02:00+02", "02:30+02", "03:00+01"]),
        ({"hour": 1, "minute": 30}, ["01:30+02"]),
        ({"hour": 3, "minute": 0}, ["03:00+01"]),
        ({"hour": "*", "minute": 30}, ["00:30+02", "01:30+02", "02:30+02", "02:30+01"]),
        ({"hour": 2, "minute": "*/30"}, ["02:00+02", "02:30+02", "02:00+01", "02:30+01"]),
        ({"hour": "*/2", "minute": 0}, ["00:00+02", "02:00+02", "02:00+01"]),
        ({"hour": "*/2", "minute": 30}, ["00:30+02", "02:30+02", "02:30+01"]),
        ({"hour": "0-2", "minute": "0-59"}, None),
        ({"hour": 5, "minute": "*/15"}, []),
    ],
    ids=str,
)
def test_berlin_in_october(fields, expected):
    """02:00 to 03:00 comes twice; the four hours from midnight end at 03:00."""
    found = shown(crontab(time_zone="Europe/Berlin", **fields), "2026-10-25 00:00", 4)
    if expected is None:  # every minute of real time
        assert len(found) == 240
    else:
        assert found == expected


@pytest.mark.parametrize("day", ["2026-03-28 12:00", "2026-10-24 12:00"])
@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata"])
@pytest.mark.parametrize(("fields", "minutes"), [({}, 1), ({"minute": "*/5"}, 5), ({"minute": "*/15"}, 15)])
def test_short_steps_keep_their_distance_in_real_time(day, zone, fields, minutes):
    schedule = crontab(time_zone=zone, **fields)
    start = datetime.fromisoformat(day).replace(tzinfo=schedule.time_zone).astimezone(UTC)
    found = ticks(schedule, start, start + timedelta(days=1))
    assert {b - a for a, b in zip(found, found[1:], strict=False)} == {minutes * MINUTE}


@pytest.mark.parametrize("day", [(2026, 3, 28), (2026, 10, 24)])
def test_stepped_hours_never_wait_longer_than_their_step(day):
    schedule = crontab(hour="*/2", minute=30, time_zone="Europe/Berlin")
    found = ticks(schedule, utc(*day), utc(*day) + timedelta(days=2))
    assert max(b - a for a, b in zip(found, found[1:], strict=False)) == timedelta(hours=2)


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Cairo", "UTC"])
@pytest.mark.parametrize("clock", [(0, 0), (1, 30), (2, 0), (2, 15), (2, 30), (3, 0)])
def test_a_daily_time_ticks_once_on_each_of_365_days(zone, clock):
    schedule = crontab(hour=clock[0], minute=clock[1], time_zone=zone)
    start = datetime(2026, 1, 1, tzinfo=schedule.time_zone) - timedelta.resolution
    found = ticks(schedule, start, start + timedelta(days=365))
    days = [tick.astimezone(schedule.time_zone).date() for tick in found]
    assert days == [date(2026, 1, 1) + timedelta(days=n) for n in range(365)]


def test_new_york():
    daily = crontab(hour=2, minute=30, time_zone="America/New_York")
    assert shown(daily, "2026-03-08 00:00", 6) == ["03:00-04"]
    assert shown(crontab(hour=1, minute=30, time_zone="America/New_York"), "2026-11-01 00:00", 6) == ["01:30-04"]
    hourly = crontab(minute=30, time_zone="America/New_York")
    assert shown(hourly, "2026-11-01 00:00", 3) == ["00:30-04", "01:30-04", "01:30-05"]


def test_lord_howe_changes_by_half_an_hour():
    """02:00 becomes 02:30 on 4 October, 02:00 becomes 01:30 on 5 April."""
    zone = "Australia/Lord_Howe"
    assert shown(crontab(hour=2, minute=15, time_zone=zone), "2026-10-04 00:00", 4) == ["02:30+11"]
    assert shown(crontab(hour=1, minute=45, time_zone=zone), "2026-04-05 00:00", 4) == ["01:45+11"]
    quarters = crontab(minute=15, time_zone=zone)
    assert shown(quarters, "2026-10-04 01:00", 2) == ["01:15+10", "02:45+11", "03:15+11"]
    late = crontab(minute=45, time_zone=zone)
    assert shown(late, "2026-04-05 01:00", 3) == ["01:45+11", "01:45+10", "02:45+10"]


def test_a_day_that_samoa_skipped():
    schedule = crontab(hour=2, minute=30, time_zone="Pacific/Apia")  # 30 December 2011
    local = [t.astimezone(schedule.time_zone) for t in ticks(schedule, utc(2011, 12, 29), utc(2011, 12, 31))]
    assert [f"{t:%d %H:%M}" for t in local] == ["29 02:30", "31 00:00", "31 02:30"]


def test_kolkata_is_half_an_hour_off():
    assert crontab(minute=0, time_zone="Asia/Kolkata").next(utc(2026, 1, 1)) == utc(2026, 1, 1, 0, 30)


def test_the_predicate_at_clock_changes():
    """Aware: as next() has it. Naive: the fields alone."""
    schedule = crontab(hour=2, minute=30, time_zone="Europe/Berlin")
    assert schedule(datetime(2026, 3, 29, 3, 0, tzinfo=BERLIN))
    assert not schedule(datetime(2026, 3, 29, 3, 0))
    assert schedule(datetime(2026, 3, 29, 2, 30))
    assert schedule(datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN))
    assert not schedule(datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN, fold=1))
    assert crontab(minute=30, time_zone=BERLIN)(datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN, fold=1))


# Oracles


@st.composite
def pieces(draw, legal):
    """One piece of a field, and what it means."""
    low = draw(st.sampled_from(legal))
    high = draw(st.sampled_from(range(low, legal[-1] + 1)))
    kind = draw(st.sampled_from(["*", "n", "*/n", "a-b", "a-b/n"]))
    span = legal if kind[0] == "*" else range(low, low + 1) if kind == "n" else range(low, high + 1)
    if len(span) == 1:  # cronsim reads 5-5/2 as 5-59/2
        kind = kind.removesuffix("/n")
    step = draw(st.integers(1, len(span)))
    text = {"*": "*", "*/n": "*", "n": str(low)}.get(kind, f"{low}-{high}")
    return (f"{text}/{step}", set(span[::step])) if "/" in kind else (text, set(span))


def a_field(legal):
    joined = st.lists(pieces(legal), min_size=1, max_size=3).map(
        lambda found: (",".join(text for text, _ in found), set().union(*(meant for _, meant in found)))
    )
    return st.just(("*", set(legal))) | joined


some_early_hours = st.sets(st.integers(0, 4), min_size=1, max_size=3).map(lambda s: (",".join(map(str, s)), s))


def a_schedule():
    drawn = st.fixed_dictionaries({name: a_field(legal) for name, legal in LEGAL.items()})
    return drawn.filter(lambda chosen: min(chosen["day"][1]) <= max(monthrange(2024, m)[1] for m in chosen["month"][1]))


def texts(chosen):
    return {name: text for name, (text, _) in chosen.items()}


def meets(chosen, wall):
    shown = {"month": wall.month, "day": wall.day, "day_of_week": wall.isoweekday() % 7}
    shown |= {"hour": wall.hour, "minute": wall.minute}
    return all(shown[name] in meant for name, (_, meant) in chosen.items())


def is_elapsed(chosen):
    return any("/" in chosen[name][0] or chosen[name][1] == set(LEGAL[name]) for name in ("hour", "minute"))


def walk(chosen, zone, start, count):
    """The ticks among some minutes, by watching the wall clock through a whole day before them, too."""
    found, seen, late = set(), set(), set()
    moment = start - timedelta(days=1)
    before = moment.astimezone(zone).replace(tzinfo=None) - MINUTE
    while moment < start + count * MINUTE:
        wall = moment.astimezone(zone).replace(tzinfo=None)
        skipped = [before + n * MINUTE for n in range(1, (wall - before) // MINUTE)]
        if is_elapsed(chosen):
            late |= {moment + n * MINUTE for n, w in enumerate(skipped) if meets(chosen, w)}
            ticking = meets(chosen, wall) or moment in late
        else:
            ticking = any(meets(chosen, w) for w in skipped) or (meets(chosen, wall) and wall not in seen)
        if ticking and moment >= start:
            found.add(moment)
        seen.add(wall)
        before, moment = wall, moment + MINUTE
    return sorted(found)


def agree_with_walk(chosen, zone, start, count):
    schedule = crontab(**texts(chosen), time_zone=zone)
    expected = walk(chosen, zone, start, count)
    assert ticks(schedule, start - timedelta.resolution, start + (count - 1) * MINUTE) == expected
    assert [m for n in range(0, count, 7) if schedule(m := start + n * MINUTE)] == [
        m for n in range(0, count, 7) if (m := start + n * MINUTE) in expected
    ]


@pytest.mark.slow
@settings(max_examples=60 if FULL else 30, deadline=None)
@given(
    a_schedule(),
    st.datetimes(datetime(1971, 1, 1), datetime(2200, 1, 1)).map(lambda d: d.replace(second=0, microsecond=0)),
)
def test_dj3_any_schedule_agrees_with_a_walk_over_every_minute_in_utc(chosen, start):
    agree_with_walk(chosen, UTC, start.replace(tzinfo=UTC), 600)


CHANGES = [
    ("Europe/Berlin", utc(2026, 3, 29, 1)),
    ("Europe/Berlin", utc(2026, 10, 25, 1)),
    ("America/New_York", utc(2026, 3, 8, 7)),
    ("America/New_York", utc(2026, 11, 1, 6)),
    ("Australia/Lord_Howe", utc(2026, 10, 3, 15, 30)),
    ("Australia/Lord_Howe", utc(2026, 4, 4, 15)),
    ("America/Havana", utc(2026, 3, 8, 5)),  # midnight does not exist
    ("Antarctica/Troll", utc(2026, 3, 29, 1)),  # two hours
    ("Antarctica/Troll", utc(2026, 10, 25, 1)),
]


@pytest.mark.slow
@settings(max_examples=80 if FULL else 25, deadline=None)
@given(
    st.fixed_dictionaries({
        "month": st.just(("*", set(LEGAL["month"]))),
        "day": st.just(("*", set(LEGAL["day"]))),
        "day_of_week": a_field(LEGAL["day_of_week"]),
        "hour": a_field(LEGAL["hour"]) | some_early_hours,
        "minute": a_field(LEGAL["minute"]),
    }),
    st.sampled_from(CHANGES),
    st.integers(-240, 90),
)  # fmt: skip
def test_any_schedule_agrees_with_a_walk_over_a_clock_change(chosen, change, offset):
    zone, moment = change
    agree_with_walk(chosen, ZoneInfo(zone), moment + offset * MINUTE, 240)


def line(chosen):
    return " ".join(chosen[name][0] for name in ("minute", "hour", "day", "month", "day_of_week"))


def of_cronsim(chosen, start, count):
    """Its next ticks, each once; those that share the end of a gap are one tick here."""
    found = (tick.astimezone(UTC) for tick in CronSim(line(chosen), start))
    return sorted(set(islice(found, count)))


@settings(max_examples=150 if FULL else 50, deadline=None)
@given(a_schedule(), st.sampled_from(["day", "day_of_week"]), st.datetimes(datetime(1971, 1, 1), datetime(2200, 1, 1)))
def test_cronsim_agrees_in_utc_where_day_or_weekday_is_a_star(chosen, free, start):
    chosen[free] = ("*", set(LEGAL[free]))
    start = start.replace(tzinfo=UTC)
    schedule = crontab(**texts(chosen))
    expected = of_cronsim(chosen, start, 20)
    assert ticks(schedule, start, expected[-1]) == expected


@settings(max_examples=80 if FULL else 30, deadline=None)
@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=2),
    st.lists(st.sampled_from(range(0, 60, 5)), min_size=1, max_size=3),
    st.sampled_from(CHANGES),
)
@example([2], [30], CHANGES[0])
@example([2], [30], CHANGES[1])
def test_cronsim_agrees_on_fixed_times_over_clock_changes(hours, minutes, change):
    zone, moment = ZoneInfo(change[0]), change[1] - timedelta(days=2)
    fields = {"hour": ",".join(map(str, hours)), "minute": ",".join(map(str, minutes))}
    simulated = CronSim(f"{fields['minute']} {fields['hour']} * * *", moment.astimezone(zone))
    expected = sorted({tick.astimezone(UTC) for tick in islice(simulated, 30)})
    assert ticks(crontab(**fields, time_zone=zone), moment, expected[-1]) == expected


# ---- a line of cron, and what other packages call the fields


@pytest.mark.parametrize(
    ("line", "same"),
    [
        ("30 2 * * *", crontab(hour=2, minute=30)),
        ("*/5 * * * *", crontab(minute="*/5")),
        ("0  9-17\t* jan,feb mon-fri", crontab(month="jan,feb", day_of_week="mon-fri", hour="9-17", minute=0)),
        ("0 0 */2 * sun", crontab(day="*/2", day_of_week="sun", hour=0, minute=0)),
        ("@hourly", crontab(minute=0)),
        (" @Daily ", crontab(hour=0, minute=0)),
        ("@midnight", crontab(hour=0, minute=0)),
        ("@weekly", crontab(day_of_week=0, hour=0, minute=0)),
        ("@monthly", crontab(day=1, hour=0, minute=0)),
        ("@yearly", crontab(month=1, day=1, hour=0, minute=0)),
        ("@annually", crontab(month=1, day=1, hour=0, minute=0)),
        ("* * * * *", crontab()),
    ],
)
def test_a_line_of_cron_is_parsed(line, same):
    assert crontab.parse(line) == same
    assert crontab.parse(line, time_zone="Europe/Berlin").time_zone == ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("30 2 * *", "give five fields, minute hour day month day_of_week, or one of @hourly"),
        ("0 30 2 * * *", "give five fields"),
        ("@reboot", "give five fields"),
        ("", "give five fields"),
        ("61 * * * *", "minute='61'.*legal values are 0-59"),
        ("0 0 L * *", "day='L'"),
        ("0 0 1 * mon", "cron runs this on day 1 and on each mon as well. Write two schedules"),
        ("0 0 31 feb *", "no year has such a date"),
    ],
)
def test_a_line_that_is_not_understood_is_refused(line, words):
    with pytest.raises(ValueError, match=words):
        crontab.parse(line)
    with pytest.raises(TypeError, match="give a text of five fields"):
        crontab.parse(5)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: crontab(minutes=5), TypeError, r"'minutes': every 5 minutes is crontab\(minute=\"\*/5\"\)\.$"),
        (lambda: crontab(hours=2), TypeError, r"'hours': every 2 hours is crontab\(hour=\"\*/2\", minute=0\)\.$"),
        (lambda: crontab(day_of_month=2), TypeError, "'day_of_month': it is called day"),
        (lambda: crontab(seconds=2), TypeError, r"a minute is the shortest step; @periodic_command\(every=seconds\)"),
        (lambda: crontab(fortnight=2), TypeError, "there are minute, hour, day, month, day_of_week and time_zone"),
        (
            lambda: crontab(5, 3),
            TypeError,
            r"crontab\(5, 3\): give the fields by name, as each package has another order of them\.",
        ),
        (lambda: crontab("30 2 * * *"), TypeError, r"a line of cron is crontab.parse\('30 2 \* \* \*'\)"),
        (lambda: crontab("@daily"), TypeError, r"a line of cron is crontab.parse\('@daily'\)"),
    ],
)
def test_what_other_packages_write_is_told_in_our_words(call, error, words):
    with pytest.raises(error, match=words):
        call()


@pytest.mark.parametrize(
    ("fields", "named", "lines"),
    [
        (("*", "1", "*", "0", "0"), {}, ["From djutils it is crontab(day='1', hour='0', minute='0')."]),
        (
            (5, 3),
            {},
            [
                "From djutils it is crontab(month=5, day=3, minute='*').",
                "From Celery and huey it is crontab(hour=3, minute=5).",
            ],
        ),
        (
            ("0", "0", "1", "2"),
            {"time_zone": "UTC"},
            [
                "From Celery it is crontab(day='2', day_of_week='1', hour='0', minute='0', time_zone='UTC').",
                "From huey it is crontab(month='2', day='1', hour='0', minute='0', time_zone='UTC').",
            ],
        ),
        ((5,), {"minute": 3}, ["From djutils it is crontab(month=5, minute=3)."]),
        ((70,), {}, ["Write them as in crontab(minute=5, hour=3)."]),
        ((1, 2, 3, 4, 5, 6), {}, ["Write them as in crontab(minute=5, hour=3)."]),
    ],
)
def test_fields_by_position_are_refused_with_the_line_to_write_for_each_order_that_makes_sense(fields, named, lines):
    with pytest.raises(TypeError) as caught:
        crontab(*fields, **named)
    said = str(caught.value)
    assert said.partition("another order of them. ")[2] == " ".join(lines)
    for line in re.findall(r"crontab\(\w+=[^)]*\)", said):
        assert not eval(line).lacks_minute


def test_a_schedule_knows_whether_its_minute_was_left_out():
    assert [one.lacks_minute for one in (crontab(hour=3), crontab(day_of_week="mon"), crontab(month="*/5"))] == [
        True
    ] * 3
    given = (crontab(), crontab(hour=3, minute="*"), crontab(hour=3, minute=0), crontab.parse("* 3 * * *"))
    assert [one.lacks_minute for one in given] == [False] * 4
    assert crontab(hour=3) == crontab(hour=3, minute="*")


# ---- intervals


@given(st.floats(1, 10**6), st.datetimes(datetime(1971, 1, 1), datetime(2100, 1, 1)))
def test_an_interval_ticks_at_the_multiples_since_the_epoch(every, naive):
    schedule, after = interval(every), naive.replace(tzinfo=UTC)
    tick = schedule.next(after)
    assert after < tick <= after + timedelta(seconds=every)
    assert (tick - EPOCH) % timedelta(seconds=every) == timedelta(0)
    assert schedule(tick)
    minute = tick.replace(second=0, microsecond=0)
    ticks = schedule.next(minute - timedelta(minutes=1) - timedelta.resolution)
    assert schedule(minute - timedelta(minutes=1)) == (ticks < minute)


@override_settings(TIME_ZONE="Asia/Kathmandu")  # 5:45 ahead
def test_an_interval_is_asked_about_local_time_too():
    assert interval(3600)(datetime(2026, 1, 1, 5, 45))
    assert not interval(3600)(datetime(2026, 1, 1, 5, 0))
