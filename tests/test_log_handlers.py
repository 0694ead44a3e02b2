"""Handlers that write in a thread of their own: the same lines in the same order, soon, and none is lost."""

import io
import logging
import logging.handlers
import os
import re
import sys
import threading
from contextlib import contextmanager
from select import PIPE_BUF
from types import SimpleNamespace

import pytest

from djqueue import log_handlers
from djqueue.backends.base import Entry, Lease
from djqueue.decorators import queue_command
from djqueue.log_handlers import MOST, BackgroundFileHandler, BackgroundStreamHandler, is_no_repetition
from djqueue.logs import ConsoleFormatter, FullFormatter, JsonFormatter
from djqueue.messages.metadata import request_id
from djqueue.policies.outcomes import Outcome, Verdict
from djqueue.running import reporting
from djqueue.running.reporting import DoneLog, report, report_together
from djqueue.testing.patience import eventually, together
from tests.support.consumer import only

ID = "01a206f15b9ed92e6790c9580f50d39f"
QUEUE = SimpleNamespace(alias="default")
FORMS = {
    "full": FullFormatter,
    "json": JsonFormatter,
    "console": lambda: ConsoleFormatter(False, 100),
    "colours": lambda: ConsoleFormatter(True, 40),
    "wide": lambda: ConsoleFormatter(True, 0),
}


@queue_command
def send_receipt(order):
    pass


@pytest.fixture(autouse=True)
def _one_command():
    with only(send_receipt):
        yield


@pytest.fixture(params=FORMS)
def form(request):
    return FORMS[request.param]


@pytest.fixture
def djqueue_logger(monkeypatch):
    """The logger of djqueue, as if nothing was logged yet. Set its handlers in the test: pytest adds some before."""
    logger = logging.getLogger("djqueue")
    monkeypatch.setattr(logger, "handlers", [])
    monkeypatch.setattr(logger, "propagate", False)
    monkeypatch.setattr(reporting, "done_log", DoneLog())
    level = logger.level
    logger.setLevel(logging.INFO)
    yield logger
    logger.setLevel(level)


@pytest.fixture
def make_handler():
    """Makes handlers, closed at the end."""
    made = []

    def make(stream, kind=BackgroundStreamHandler, **options):
        made.append(kind(stream, **options))
        return made[-1]

    yield make
    for handler in made:
        handler.close()


class Lines(logging.Handler):
    """The lines of records, as any handler gets them."""

    def __init__(self, formatter=None):
        super().__init__()
        self.setFormatter(formatter)
        self.lines = []

    def emit(self, record):
        self.lines.append(self.format(record))


def lease_of(command=send_receipt.name, id=ID, attempts=1):
    return Lease(Entry(b"body", id, command=command, attempts=attempts), token="token")


def record(text, level=logging.INFO):
    return logging.makeLogRecord({"msg": text, "levelno": level, "levelname": logging.getLevelName(level)})


def without_time(line):
    return re.sub(r"\d\d:\d\d:\d\d([,.]\d\d\d)?", "TIME", line)


class TestLines:
    """What is written is what a handler of Python's own would write."""

    @pytest.mark.parametrize(
        "description, request_of", [("", ""), ("order 42", "81f3"), ("über\nalles \x1b[31m", ""), ("x" * 80, "")]
    )
    @pytest.mark.parametrize("seconds", [0.0, 0.0000004, 0.0012345678, 0.03, 0.9996, 61.2, 7200.0])
    def test_of_a_message_that_is_done_it_is_the_same_without_a_record(
        self, djqueue_logger, form, description, seconds, request_of
    ):
        token = request_id.set(request_of)
        seen = []
        djqueue_logger.handlers = [handler := logging.Handler()]
        handler.emit = seen.append
        for lease in (lease_of(), lease_of("gone.commands.a_long_name_of_no_command", "bad\nid\x00", 17)):
            report(QUEUE, lease, Verdict(Outcome.DONE, seconds=seconds, description=description))
            made, entry = seen.pop(), lease.entry
            for at in (1_795_000_000.25, 1_795_000_059.9996, 1_795_000_059.9999999, made.created):
                made.created, made.msecs = at, int((at - int(at)) * 1000) + 0.0
                which = entry.command, entry.id, entry.attempts
                about = (at, made.threadName, "default", *which, seconds, description, request_of)
                assert form().done(about) == form().format(made)
        request_id.reset(token)

    @pytest.mark.parametrize("outcome", Outcome, ids=lambda outcome: outcome.effect.name)
    def test_of_each_outcome_it_is_the_same(self, djqueue_logger, form, outcome, make_handler):
        djqueue_logger.setLevel(logging.DEBUG)
        verdict = Verdict(outcome, "it is so", delay=3.0, seconds=0.25, description="order 42")
        if outcome is Outcome.DONE:
            verdict = verdict._replace(reason="", delay=0.0)
        if outcome is Outcome.FAILED:
            verdict = verdict._replace(exception=ValueError("no paint"))
        out, lines = io.StringIO(), Lines(form())
        for handler in (lines, make_handler(out)):
            handler.setFormatter(form())
            djqueue_logger.handlers = [handler]
            reporting.done_log = DoneLog()
            report(QUEUE, lease_of(), verdict)
            report_together(QUEUE, [(lease_of(), verdict), (lease_of(id=ID[::-1]), verdict)])
            handler.flush()
        assert [*map(without_time, out.getvalue().splitlines())] == [
            without_time(line) for text in lines.lines for line in text.splitlines()
        ]
        assert len(lines.lines) >= 2

    def test_the_order_is_kept(self, djqueue_logger, make_handler):
        out = io.StringIO()
        djqueue_logger.handlers = [handler := make_handler(out)]
        handler.setFormatter(FullFormatter())
        for number in range(500):
            djqueue_logger.info("run %d", number)
            report(QUEUE, lease_of(id=f"id{number}"), Verdict(Outcome.DONE))
        handler.flush()
        found = re.findall(r"run (\d+)\n.* done \(message id(\d+),", out.getvalue())
        assert found == [(str(number), str(number)) for number in range(500)]

    def test_what_waits_is_written_in_the_form_of_then(self, make_handler):
        handler = make_handler(out := io.StringIO())
        handler.setFormatter(FullFormatter())
        with held(handler):
            handler.put((1.0, "one", "default", "command", ID, 1, 0.1, "", ""))
            handler.setFormatter(logging.Formatter("%(message)s"))
        handler.emit(record("two"))
        handler.flush()
        assert re.fullmatch(r".* one djqueue.running.reporting: command done \(.*\)\ntwo\n", out.getvalue())


class TestRecords:
    """A record is made where anything but our line would come of it."""

    def root_handler(self, seen, monkeypatch, handler):
        other = Lines()
        other.lines = seen
        monkeypatch.setattr(logging.getLogger("djqueue"), "propagate", True)
        monkeypatch.setattr(logging.getLogger(), "handlers", [other])

    def handler_filter(self, seen, monkeypatch, handler):
        handler.addFilter(lambda record: seen.append(record) or True)

    def logger_filter(self, seen, monkeypatch, handler):
        monkeypatch.setattr(reporting.logger, "filters", [lambda record: seen.append(record) or True])

    def formatter(self, seen, monkeypatch, handler):
        class Own(FullFormatter):
            def format(self, record):
                seen.append(record)
                return super().format(record)

        handler.setFormatter(Own())

    def record_factory(self, seen, monkeypatch, handler):
        usual = logging.getLogRecordFactory()
        monkeypatch.setattr(logging, "_logRecordFactory", usual)  # put back at the end
        logging.setLogRecordFactory(lambda *args, **kwargs: seen.append(args) or usual(*args, **kwargs))

    def patched_logging(self, seen, monkeypatch, handler):
        usual = logging.Logger.callHandlers
        see = lambda logger, record: seen.append(record) or usual(logger, record)  # noqa: E731
        monkeypatch.setattr(logging.Logger, "callHandlers", see)

    CASES = "root_handler", "handler_filter", "logger_filter", "formatter", "record_factory", "patched_logging"

    @pytest.mark.parametrize("case", CASES)
    def test_where_others_come_to_see_it(self, djqueue_logger, make_handler, monkeypatch, case):
        seen = []
        djqueue_logger.handlers = [handler := make_handler(io.StringIO())]
        handler.setFormatter(FullFormatter())
        assert reporting.done_log.say("default", send_receipt.name, ID, 1, 0.1), "a line is enough"
        getattr(self, case)(seen, monkeypatch, handler)
        eventually(lambda: report(QUEUE, lease_of(), Verdict(Outcome.DONE)) or seen)

    def test_none_is_made_where_nothing_else_sees_it(self, djqueue_logger, make_handler, monkeypatch):
        made = []
        monkeypatch.setattr(reporting, "log_safely", lambda *args, **kwargs: made.append(args))
        djqueue_logger.handlers = [handler := make_handler(out := io.StringIO())]
        handler.setFormatter(ConsoleFormatter(False, 80))
        handler.addFilter(is_no_repetition)
        djqueue_logger.handlers += [for_errors := Lines()]
        for_errors.setLevel(logging.ERROR)
        report(QUEUE, lease_of(), Verdict(Outcome.DONE))
        handler.flush()
        assert made == []
        assert out.getvalue()[9:].startswith("✓ send_receipt")

    @pytest.mark.parametrize("quiet", ["logger", "handler", "disabled"])
    def test_nothing_is_made_where_it_is_not_enabled(self, djqueue_logger, make_handler, quiet):
        djqueue_logger.handlers = [handler := make_handler(out := io.StringIO())]
        handler.setFormatter(FullFormatter())
        if quiet == "handler":
            handler.setLevel(logging.WARNING)
        elif quiet == "logger":
            djqueue_logger.setLevel(logging.WARNING)
        else:
            logging.disable(logging.INFO)
        report(QUEUE, lease_of(), Verdict(Outcome.DONE))
        logging.disable(logging.NOTSET)
        handler.flush()
        assert out.getvalue() == ""


@contextmanager
def held(handler):
    """Keep the writer from writing."""
    handler.acquire()
    try:
        yield
    finally:
        handler.release()


@contextmanager
def pipe():
    """A stream into a pipe, and the descriptor of its other end."""
    out, into = os.pipe()
    with open(into, "w", encoding="utf-8") as stream, open(out, "rb", 0) as other:
        yield stream, other


class TestWriter:
    def test_what_is_logged_is_written_soon(self, make_handler):
        handler = make_handler(out := io.StringIO())
        for number in range(3):
            handler.emit(record(f"line {number}"))
            eventually(lambda number=number: f"line {number}\n" in out.getvalue())

    def test_many_lines_are_few_writes(self, make_handler, tmp_path, monkeypatch):
        sizes = []
        write = os.write
        monkeypatch.setattr(os, "write", lambda *args: sizes.append(len(args[1])) or write(*args))
        with open(tmp_path / "log", "w") as stream:
            handler = make_handler(stream)
            for _ in range(MOST - 1):
                handler.emit(record("x" * 99))
            eventually(lambda: sum(sizes) == 100 * (MOST - 1))
        assert len(sizes) < MOST / 100

    def test_what_was_printed_before_is_written_before(self, make_handler, tmp_path):
        with open(tmp_path / "log", "w") as stream:
            handler = make_handler(stream)
            for number in range(3):
                stream.write(f"printed {number}\n")
                handler.emit(record(f"logged {number}"))
                handler.flush()
        said = [f"{how} {number}" for number in range(3) for how in ("printed", "logged")]
        assert (tmp_path / "log").read_text().splitlines() == said

    def test_a_blocked_output_holds_up_those_who_log_and_nothing_is_lost(self, make_handler):
        threads, each = 4, MOST
        with pipe() as (stream, other):
            handler = make_handler(stream)

            def log(name):
                for number in range(each):
                    handler.emit(record(f"{name} {number} {'x' * 50}"))

            running = [threading.Thread(target=log, args=(name,), daemon=True) for name in range(threads)]
            for thread in running:
                thread.start()
            eventually(lambda: len(handler._waiting) >= MOST)
            assert len(handler._waiting) <= MOST + threads
            text = b""
            while text.count(b"\n") < threads * each:
                text += other.read(65536)
            for thread in running:
                thread.join(20)
        lines = [line.split() for line in text.decode().splitlines()]
        for name in range(threads):
            assert [int(number) for who, number, _ in lines if who == str(name)] == [*range(each)]

    def test_lines_of_several_processes_are_not_mixed_in_a_pipe(self):
        with pipe() as (stream, other):
            two = [BackgroundStreamHandler(stream) for _ in range(2)]  # neither has the lock of the other

            def log(handler, letter):
                for number in range(2000):
                    handler.emit(record(letter * (number % 200)))
                handler.flush()

            def read():
                text = b""
                while text.count(b"\n") < 4000:
                    text += other.read(1000)
                return text

            *_, text = together(lambda: log(two[0], "a"), lambda: log(two[1], "b"), read)
            for handler in two:
                handler.close()
        assert all(len(set(line)) <= 1 for line in text.splitlines())

    def test_a_pipe_gets_pieces_that_it_takes_whole(self, make_handler, monkeypatch):
        sizes = []
        write = os.write
        monkeypatch.setattr(os, "write", lambda *args: sizes.append(len(args[1])) or write(*args))
        with pipe() as (stream, other):
            handler = make_handler(stream)
            with held(handler):
                for _ in range(100):
                    handler.emit(record("ü" * 100))
            handler.flush()
            assert other.read(100_000).decode() == ("ü" * 100 + "\n") * 100
        assert 1 < len(sizes) < 10 and max(sizes) <= PIPE_BUF

    def test_without_a_thread_lines_are_written_where_they_are_logged(self, make_handler, monkeypatch):
        def fail(thread):
            raise RuntimeError("can't start new thread")

        monkeypatch.setattr(threading.Thread, "start", fail)
        handler = make_handler(out := io.StringIO())
        handler.emit(record("here"))
        assert out.getvalue() == "here\n"

    def test_once_closed_it_writes_each_line_at_once(self, make_handler):
        handler = make_handler(out := io.StringIO())
        handler.emit(record("before"))
        handler.close()
        assert out.getvalue() == "before\n"
        handler.emit(record("behind"))
        assert out.getvalue() == "before\nbehind\n"
        eventually(lambda: "djqueue-log" not in [thread.name for thread in threading.enumerate()])

    def test_a_forked_child_writes_what_it_logs_and_nothing_that_waits(self, make_handler, tmp_path):
        with open(tmp_path / "log", "a") as stream:
            handler = make_handler(stream)
            handler.emit(record("first"))
            with held(handler):  # its writer is about to write
                handler.emit(record("of the parent"))
                if not (child := os.fork()):
                    try:
                        handler.emit(record("of the child"))
                        stream.flush()
                    finally:
                        os._exit(0)
                assert os.waitpid(child, 0)[1] == 0
            handler.flush()
        lines = (tmp_path / "log").read_text().splitlines()
        assert sorted(lines) == ["first", "of the child", "of the parent"]


class TestTroubles:
    @pytest.mark.parametrize(
        ("encoding", "text", "written"), [("ascii", "zwölf", r"zw\xf6lf"), ("utf-8", "a\udc80b", r"a\udc80b")]
    )
    def test_what_the_output_cannot_encode_is_escaped(self, make_handler, tmp_path, capsys, encoding, text, written):
        with open(tmp_path / "log", "w", encoding=encoding) as stream:
            handler = make_handler(stream)
            with held(handler):
                for one in ("one", text, "three"):
                    handler.emit(record(one))
            handler.flush()
        assert (tmp_path / "log").read_text() == f"one\n{written}\nthree\n"
        assert not capsys.readouterr().err

    def test_an_output_that_is_gone_is_shown_and_raises_nothing(self, make_handler, capsys):
        with pipe() as (stream, other):
            handler = make_handler(stream)
            other.close()
            handler.emit(record("nobody reads this"))
            handler.flush()
        shown = capsys.readouterr().err
        assert "BrokenPipeError" in shown and "nobody reads this" in shown

    def test_a_record_that_cannot_be_formatted_is_shown(self, make_handler, capsys):
        handler = make_handler(out := io.StringIO())
        made = record("%d of them")
        made.args = ("three",)
        handler.emit(made)
        handler.emit(record("next"))
        handler.flush()
        assert out.getvalue() == "next\n"
        assert "%d of them" in capsys.readouterr().err

    def test_a_thread_that_dies_is_replaced(self, make_handler, monkeypatch):
        handler = make_handler(out := io.StringIO())
        with monkeypatch.context() as patched:
            patched.setattr(threading, "excepthook", lambda about: None)
            patched.setattr(log_handlers, "GATHER", "no number")
            handler.emit(record("first"))
            eventually(lambda: handler._writer is not None and not handler._writer.is_alive())
        handler.emit(record("second"))
        eventually(lambda: out.getvalue() == "first\nsecond\n")


class TestFiles:
    def rotated(self, folder, kind, lines):
        folder.mkdir()
        handler = kind(folder / "log", maxBytes=1000, backupCount=3, encoding="utf-8")
        for line in lines:
            handler.emit(record(line))
        handler.close()
        return {path.name: path.read_text() for path in folder.iterdir()}

    @pytest.mark.parametrize("sizes", [[10] * 50, [100] * 50, [10, 999, 1, 300, 300, 300, 300, 2000, 10]], ids=str)
    def test_they_are_rotated_as_by_pythons_own(self, tmp_path, sizes):
        lines = [f"{number} {'x' * size}" for number, size in enumerate(sizes)]
        ours = self.rotated(tmp_path / "ours", BackgroundFileHandler, lines)
        assert ours == self.rotated(tmp_path / "theirs", logging.handlers.RotatingFileHandler, lines)
        assert len(ours) > 1 or len(sizes) == 50

    def test_what_is_no_file_is_not_rotated(self, make_handler):
        handler = make_handler(os.devnull, BackgroundFileHandler, maxBytes=10)
        for _ in range(5):
            handler.emit(record("x" * 20))
        handler.flush()
        assert not os.path.exists(f"{os.devnull}.1")

    def test_a_closed_one_is_opened_again(self, tmp_path, make_handler):
        handler = make_handler(tmp_path / "log", BackgroundFileHandler, mode="w")
        handler.emit(record("before"))
        handler.close()
        handler.emit(record("behind"))
        assert (tmp_path / "log").read_text() == "before\nbehind\n"


def test_they_serve_in_the_projects_own_settings(tmp_path):
    made = {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"json": {"()": "djqueue.logs.JsonFormatter"}},
    }
    made["handlers"] = {
        "out": {"class": "djqueue.log_handlers.BackgroundStreamHandler", "formatter": "json", "stream": sys.stdout},
        "file": {
            "class": "djqueue.log_handlers.BackgroundFileHandler",
            "filename": str(tmp_path / "log"),
            "maxBytes": 1000,
        },
    }
    made["loggers"] = {"shop": {"handlers": ["out", "file"], "level": "INFO", "propagate": False}}
    logging.config.dictConfig(made)
    shop = logging.getLogger("shop")
    shop.info("%s was sold", "a lamp")
    for handler in shop.handlers[:]:
        shop.removeHandler(handler)
        handler.close()
    assert (tmp_path / "log").read_text() == "a lamp was sold\n"
