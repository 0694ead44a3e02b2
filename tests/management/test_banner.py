"""The rows of a consumer's start: queues, commands by app, schedules and when they are due next."""

import re
from datetime import timedelta

import pytest

from djqueue import crontab, periodic_command, queue_command
from djqueue.consumer import Consumer
from djqueue.management import banner
from tests.support.consumer import only

pytestmark = pytest.mark.backends("memory")


@queue_command
def ship():
    pass


@queue_command
def pack():
    pass


@periodic_command(crontab(month=1, day=1, hour=0, minute=0))
def greet():
    pass


@periodic_command(every=timedelta(seconds=90))
def look():
    pass


@periodic_command(lambda when: False)
def ask():
    pass


def rows(heading, **options):
    return [row[1:] for row in banner.in_rows(Consumer(**options)) if row[0] == heading]


def test_what_is_served_and_what_is_due_next(queue):
    with only(ship, pack, greet, look, ask):
        assert rows("queues") == [("default", "in the memory of this process")]
        [(app, names)] = rows("commands")
        assert (app, names) == ("tests", "ask, greet, look, pack, ship")
        (first, new_year), (second, soon), (third, unknown) = rows("schedules")
        assert (first, second, third) == ("greet", "look", "ask")
        assert re.fullmatch(r"next (on \w{3} 01 Jan )?at 00:00", new_year)
        assert re.fullmatch(r"next at \d\d:\d\d(:30)?", soon)
        assert unknown == "asked every minute"
        assert rows("schedules", periodic=False) == []


def test_of_many_commands_it_has_the_number(queue, monkeypatch):
    monkeypatch.setattr(banner, "MOST_COMMANDS", 2)
    monkeypatch.setattr(banner, "MOST_SCHEDULES", 1)
    with only(ship, pack, greet, look):
        assert rows("commands") == [("tests", "4 commands")]
        assert rows("schedules")[1:] == [("", "and 1 more")]


def test_the_last_row_says_how_to_stop_it(queue):
    assert banner.in_rows(Consumer(grace=3))[-1] == ("", "", "Ctrl-C stops it: what runs may end within 3 s.")
    assert banner.in_rows(Consumer(grace=0))[-1] == ("", "", "Ctrl-C stops it: what runs is handed back.")
