"""How log records look: on a terminal, in full, as JSON; with what any project gives them."""

import json
import logging
import logging.config
import re
import sys
from io import StringIO

import pytest

from djqueue import logs
from djqueue.decorators import queue_command
from djqueue.log_handlers import is_no_repetition
from djqueue.logs import KEYS, ConsoleFormatter, FullFormatter, JsonFormatter, has_colors
from djqueue.policies.outcomes import Outcome
from djqueue.words import duration
from tests.support.consumer import only
from tests.support.documents import ROOT

ID = "01a206f15b9ed92e6790c9580f50d39f"
AT = 1_795_000_000.25
PLAIN = {"message_id": ID, "queue": "default", "attempt": 1, "worker": "djqueue-worker-2"}


@queue_command
def send_receipt(order):
    pass


@queue_command
def ship(order):
    pass


def elsewhere(order):
    pass


@pytest.fixture(autouse=True)
def _two_commands():
    with only(send_receipt, ship):
        yield


def record(text="what happened", level=logging.INFO, error=None, **extra):
    made = logging.LogRecord("djqueue.somewhere", level, __file__, 1, text, (), error and (type(error), error, None))
    made.created, made.msecs = AT, 250.0
    vars(made).update(extra)
    return made


def about(event, command=send_receipt.name, **more):
    return record(event=event, command=command, **{**PLAIN, **more})


def shown(made, width=80, colored=False):
    """The line without its time."""
    line = ConsoleFormatter(colored, width).format(made)
    assert re.match(r"\d\d:\d\d:\d\d ", line)
    return line[9:]


class TestProcesses:
    @pytest.fixture(autouse=True)
    def _third(self):
        logs.name_process(3)
        yield
        logs.name_process(None)

    def test_the_number_is_before_the_symbol_and_lines_still_fit(self):
        assert shown(about("done", duration=0.033)) == "[3] ✓ send_receipt    33 ms  0f50d39f"
        assert len(shown(about("done", duration=0.033, description="x" * 300), 60)) + 9 == 60
        first, second, *_ = shown(record("a warning of many words " * 8, logging.WARNING)).split("\n")
        assert first.startswith("[3] ! a warning") and second.startswith(" " * 15) and second[15] != " "
        assert len(first) + 9 <= 80

    def test_it_is_before_the_thread_in_full(self):
        assert "INFO     [3] MainThread djqueue.somewhere: what happened" in FullFormatter().format(record())

    def test_json_has_the_name_of_its_consumer_too(self):
        logs.name_process(3, "shop-1:4711:0c5f3e")
        told = json.loads(JsonFormatter().format(record()))
        assert (told["process"], told["consumer"]) == (3, "shop-1:4711:0c5f3e")

    def test_it_is_a_key_in_json(self):
        assert json.loads(JsonFormatter().format(record()))["process"] == 3
        logs.name_process(None)
        assert "process" not in json.loads(JsonFormatter().format(record()))


class TestConsole:
    @pytest.mark.parametrize(
        ("made", "line"),
        [
            (about("done", duration=0.033, description="order 42"), "✓ send_receipt    33 ms  order 42  0f50d39f"),
            (about("done", ship.name, duration=61.0), "✓ ship           1m 01s  0f50d39f"),
            (about("started", duration=1.24), "▶ send_receipt    1.2 s  0f50d39f"),
            (about("failed", duration=0.2, reason="no such order"), "✗ send_receipt   200 ms  no such order  0f50d39f"),
            (
                about("retried", duration=0.2, delay=6.0, attempt=2, max_attempts=6, reason="OSError: refused"),
                "↻ send_receipt   200 ms  attempt 2 of 6: OSError: refused  0f50d39f",
            ),
            (
                about("retried", duration=0.2, delay=6.0, attempt=9, max_attempts=6),  # it was put back in between
                "↻ send_receipt   200 ms  attempt 9, again in 6 s  0f50d39f",
            ),
            (about("retried", duration=0.2, delay=6.0), "↻ send_receipt   200 ms  attempt 1, again in 6 s  0f50d39f"),
            (
                about("retried", delay=6.0, message_ids=[ID, ID], message_id=None, attempt=None, count=2, reason="x"),
                "↻ send_receipt           2 messages · again in 6 s: x",
            ),
            (about("discarded", duration=0.2, reason="paid"), "… send_receipt   200 ms  discarded: paid  0f50d39f"),
            (about("expired", reason="too old"), "… send_receipt           expired: too old  0f50d39f"),
            (
                about("released", delay=30.0, reason="throttled"),
                "… send_receipt           put back for 30 s: throttled  0f50d39f",
            ),
            (
                about("paused", reason="ValueError: x"),
                "✗ send_receipt           its shard is paused: ValueError: x  0f50d39f",
            ),
            (
                about("done", duration=0.033, message_ids=[ID, ID], message_id=None, count=1200),
                "✓ send_receipt    33 ms  1,200 messages",
            ),
            (
                about("failed", duration=0.033, alike=12, reason="RuntimeError: away"),
                "✗ send_receipt    33 ms  12 messages · RuntimeError: away  0f50d39f",
            ),
            (about("enqueued"), "+ send_receipt           0f50d39f"),
            (record("Stopped"), "  Stopped"),
            (record("slow", logging.WARNING), "! slow"),
            (record("gone", logging.CRITICAL), "! gone"),
            (record("looked", logging.DEBUG, event="looked"), "· looked"),
        ],
        ids=lambda value: value if isinstance(value, str) else "",
    )
    def test_each_event_is_one_line_of_columns(self, made, line):
        assert shown(made) == line

    @pytest.mark.parametrize("width", [60, 80, 120])
    @pytest.mark.parametrize("event", ["done", "retried", "released", "started"])
    def test_it_fits_the_terminal_and_says_what_it_leaves_out(self, width, event):
        line = shown(about(event, duration=12.3, delay=3.0, description="x" * 300, reason="y" * 300), width)
        assert len(line) + 9 <= width
        assert "…" in line[1:]

    @pytest.mark.parametrize(
        ("command", "wide"), [(send_receipt.name, 120), ("shop.commands.whose_name_is_rather_long", 200)]
    )
    @pytest.mark.parametrize("width", [60, 80, 120, 200])
    def test_a_retry_keeps_its_id_and_its_attempt_at_any_width(self, width, command, wide):
        made = about("retried", command, duration=12.3, delay=3.0, attempt=2, max_attempts=6, reason="y" * 300)
        line = shown(made, width)
        assert "  attempt 2 of 6" in line and line.endswith("…  0f50d39f")
        assert ("again in 3 s" in line) == (width >= wide)
        made.description = "order 42"
        assert shown(made, width) == line
        assert shown(made, 0).endswith(f"order 42 · attempt 2 of 6, again in 3 s: {'y' * 300}  0f50d39f")

    def test_of_a_failure_without_a_traceback_nothing_is_left_out(self):
        words = [f"word{number}" for number in range(40)]
        lines = shown(about("failed", duration=0.1, reason=" ".join(words))).split("\n")
        assert len(lines) > 3
        assert all(len(line) <= 80 for line in lines)
        assert all(word in " ".join(lines) for word in words)

    def test_other_texts_are_wrapped_below_themselves(self):
        first, *rest = shown(record("a warning of many words " * 8, logging.WARNING)).split("\n")
        assert first.startswith("! a warning")
        assert rest and all(line.startswith(" " * 11) and len(line) <= 80 for line in rest)

    def test_without_a_limit_nothing_is_cut(self):
        assert "x" * 500 in shown(about("done", description="x" * 500), width=0)

    @pytest.mark.parametrize(
        ("made", "start"),
        [
            (about("done"), "\x1b[32m✓\x1b[0m send_receipt"),
            (about("failed"), "\x1b[31m✗\x1b[0m \x1b[31msend_receipt\x1b[0m"),
            (about("retried", delay=1.0), "\x1b[33m↻\x1b[0m \x1b[33msend_receipt\x1b[0m"),
            (about("released"), "\x1b[2m…\x1b[0m send_receipt"),
            (record("slow", logging.WARNING), "\x1b[33m!\x1b[0m slow"),
            (record("gone", logging.ERROR), "\x1b[31m!\x1b[0m gone"),
        ],
        ids=lambda value: "",
    )
    def test_the_symbol_is_coloured(self, made, start):
        line = ConsoleFormatter(True, 80).format(made)
        assert line.startswith("\x1b[2m")
        assert line[17:].startswith(start)

    def test_commands_of_one_name_are_told_apart_and_unknown_ones_named_in_full(self, monkeypatch):
        monkeypatch.setattr(elsewhere, "__module__", "other.commands")
        for name in ("__name__", "__qualname__"):
            monkeypatch.setattr(elsewhere, name, "ship")
        with only(send_receipt, ship):
            queue_command(elsewhere)
            assert shown(about("done", ship.name)).startswith(f"✓ {ship.name} ")
            assert shown(about("done", "other.commands.ship")).startswith("✓ other.commands.ship ")
            assert shown(about("done")).startswith("✓ send_receipt ")
        assert shown(about("released", "gone.commands.away")).startswith("… gone.commands.away ")

    def test_a_traceback_follows_its_line(self):
        line, *trace = shown(about("failed", error=ValueError("no paint"), duration=0.1)).split("\n")
        assert (line, trace) == ("✗ send_receipt   100 ms  0f50d39f", ["ValueError: no paint"])

    def test_the_start_of_a_consumer_is_rows(self):
        rows = [
            ("", "djqueue 1", "4 threads"),
            ("queues", "default", "here"),
            ("commands", "shop", ", ".join(f"command_{number}" for number in range(12))),
            ("commands", "photos", "ship"),
            ("", "", "Ctrl-C stops it."),
        ]
        lines = ConsoleFormatter(False, 80).format(record(banner=rows)).split("\n")
        assert lines[:2] == ["djqueue 1, 4 threads", "  queues    default  here"]
        assert lines[2].startswith("  commands  shop     command_0, ")
        assert lines[3].startswith(" " * 21 + "command_")
        assert lines[-2:] == ["            photos   ship", "Ctrl-C stops it."]
        assert all(len(line) <= 80 for line in lines)


class TestDocumentation:
    PAGE = (ROOT / "docs" / "howto" / "logging.rst").read_text()

    def test_it_names_each_key(self):
        assert [key for key in KEYS if f"``{key}``" not in self.PAGE] == []

    def test_it_names_each_event(self):
        source = "\n".join(path.read_text() for path in (ROOT / "djqueue").rglob("*.py"))
        events = set(re.findall(r"""event(?:"\s*:|=)\s*"(\w+)\"""", source))
        events |= {outcome.effect.status for outcome in Outcome}
        assert len(events) > 15
        assert sorted(event for event in events if f"``{event}``" not in self.PAGE) == []


class TestJson:
    def test_the_keys_are_those_that_are_documented(self):
        told = json.loads(JsonFormatter().format(about("done", duration=0.5, description="order 42", alike=0)))
        assert told.pop("time").endswith((":00", ":30", ":45"))
        fixed = {"level": "INFO", "logger": "djqueue.somewhere", "text": "what happened"}
        about_it = {**PLAIN, "event": "done", "command": send_receipt.name, "duration": 0.5}
        assert told == fixed | about_it | {"description": "order 42", "alike": 0}
        assert set(about_it) <= set(KEYS)

    def test_what_says_nothing_is_left_out(self):
        told = json.loads(JsonFormatter().format(record(message_id=None, reason="")))
        assert sorted(told) == ["level", "logger", "text", "time", "worker"]

    def test_a_traceback_and_what_json_does_not_know(self):
        line = JsonFormatter().format(record("a\nb", error=ValueError("no paint"), reason=ValueError("x"), count=3))
        assert "\n" not in line
        told = json.loads(line)
        assert (told["exception"], told["reason"]) == ("ValueError: no paint", "x")
        assert (told["text"], told["count"]) == ("a\nb", 3)


def test_the_full_form_has_levels_of_one_width():
    lines = [FullFormatter().format(record("said", level)) for level in (logging.INFO, logging.WARNING)]
    stamp = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,250"
    assert re.fullmatch(rf"{stamp} INFO     MainThread djqueue\.somewhere: said", lines[0])
    assert re.fullmatch(rf"{stamp} WARNING  MainThread djqueue\.somewhere: said", lines[1])


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.00001, "<0.1 ms"),
        (0.00006, "0.1 ms"),
        (0.0042, "4.2 ms"),
        (0.0099, "9.9 ms"),
        (0.00999, "10 ms"),
        (0.0334, "33 ms"),
        (0.9994, "999 ms"),
        (0.9996, "1 s"),
        (1.24, "1.2 s"),
        (59.94, "59.9 s"),
        (59.96, "1m 00s"),
        (3599.7, "1h 00m"),
        (3 * 3600 + 62, "3h 01m"),
        (14 * 86400, "14d 0h"),
    ],
)
def test_durations_take_seven_characters(seconds, text):
    assert duration(seconds) == text
    assert len(text) <= 7


@pytest.mark.parametrize(
    ("environment", "options", "colored"),
    [
        ({}, {}, True),
        ({"NO_COLOR": "1"}, {}, False),
        ({"NO_COLOR": ""}, {}, True),
        ({"DJANGO_COLORS": "nocolor"}, {}, False),
        ({}, {"never": True}, False),
        ({"NO_COLOR": "1"}, {"force": True}, True),
    ],
)
def test_who_decides_on_colours(monkeypatch, environment, options, colored):
    for name in ("NO_COLOR", "DJANGO_COLORS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert has_colors(**options) is colored


def test_they_serve_in_the_projects_own_settings_for_any_logger(monkeypatch):
    out = StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    names = ("ConsoleFormatter", "FullFormatter", "JsonFormatter")
    stream = {"class": "logging.StreamHandler", "stream": out}
    logging.config.dictConfig(
        {
            "version": 1,
            "disable_existing_loggers": False,
            "formatters": {name: {"()": f"djqueue.logs.{name}"} for name in names},
            "handlers": {name: {**stream, "formatter": name} for name in names},
            "loggers": {"shop": {"handlers": [*names], "level": "INFO", "propagate": False}},
        }
    )
    logging.getLogger("shop").info("%s was sold", "a lamp")
    console, full, told = out.getvalue().splitlines()
    assert console[9:] == "  a lamp was sold"
    assert full.endswith("INFO     MainThread shop: a lamp was sold")
    assert json.loads(told)["text"] == "a lamp was sold"


def test_one_line_is_enough_for_messages_that_failed_alike():
    repeated = [is_no_repetition(one) for one in (record(), record(alike=3), record(alike=0))]
    assert repeated == [True, True, False]
