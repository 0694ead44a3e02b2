"""``django-admin queue_consumer``: run the consumer in the foreground."""

from __future__ import annotations

import gc
import logging
import os
import signal
import subprocess
import sys
import threading
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from logging.handlers import RotatingFileHandler
from pathlib import Path

from django.apps import apps
from django.core.management import call_command
from django.core.management.base import CommandError
from django.utils import autoreload

import djqueue
from djqueue.backends.base import BaseQueue
from djqueue.backends.memory import MemoryQueue
from djqueue.checks.servers import databases_of
from djqueue.consumer import CUT_OFF, STUCK, Consumer, Options
from djqueue.consumer.counters import SupervisedTotals, Totals
from djqueue.consumer.liveness import Reporter
from djqueue.consumer.processes import Assignment, Bounds, Process, ProcessSupervisor, SupervisorLink, cores
from djqueue.consumer.systemd import Notifier
from djqueue.discovery import autodiscover
from djqueue.exceptions import InvalidQueueError
from djqueue.log_handlers import (
    BackgroundFileHandler,
    BackgroundSharedFileHandler,
    BackgroundStreamHandler,
    is_no_repetition,
)
from djqueue.logs import MARKS, ConsoleFormatter, FullFormatter, JsonFormatter, has_colors, name_process
from djqueue.management import banner
from djqueue.management.base import OperatorCommand
from djqueue.throttle import unthrottled
from djqueue.utils import handle_signals, log_safely

logger = logging.getLogger("djqueue.consumer")

LEVELS = (logging.WARNING, logging.INFO, logging.DEBUG, logging.DEBUG)
FULL = 3  # from this verbosity on a terminal gets the full form
LEFT_BEHIND = 5.0  # seconds to end for threads and log handlers that commands have left behind
LOG_BYTES, LOG_FILES = 1_000_000, 3
IN_MEMORY = (
    "The queue %r is in the memory of this process: what other processes call never arrives here. "
    "Let CLASS name a backend on a database, on Redis or on SQS."
)
COLLECT = 5000, 20, 20
"""Thresholds of the garbage collector: more than what a claim makes for the messages that wait in a process."""
ENDING = (signal.SIGTERM, signal.SIGINT)
LOOPBACK = "127.0.0.1"
BOUNDS = ("max_messages", "max_memory", "max_age")
OF_THE_CONSUMER = (
    *("threads", "coroutines", "delay", "backoff", "max_delay", "lease", "grace", "strict", "drain"),
    *("alive", "stuck_after"),
)
SUPERVISOR_ALONE = (
    "The watchdog of systemd watches the supervisor alone. Give --alive FILE, and it watches each process."
)


class Command(OperatorCommand):
    help = "Runs the commands that wait in the queues, and enqueues the periodic ones, until it is stopped."
    requires_system_checks = "__all__"
    verbosity = (
        "0: warnings, 1: what happens, each command that ran (default), 2: claims, starts, checks too, 3: in full"
    )
    examples = """
        manage.py queue_consumer                      all queues, until Ctrl-C
        manage.py queue_consumer --reload             restart when the code changes
        manage.py queue_consumer -t 8 -q mail         8 threads, one queue
        manage.py queue_consumer --processes auto     one process for each core
        manage.py queue_consumer --coroutines 500     up to 500 async commands at a time
        manage.py queue_consumer --metrics 9200       for Prometheus
        manage.py queue_consumer --drain -n           run what is due, then exit
        manage.py queue_consumer --log-format json    for a collector of logs
        manage.py queue_consumer --alive /tmp/alive   for probes of liveness
        manage.py queue_consumer -v 2                 why does it not run?
    """

    def __init__(self, *args, **kwargs):
        _open_standard_streams()
        super().__init__(*args, **kwargs)

    def run_from_argv(self, argv: list[str]) -> None:
        try:
            super().run_from_argv(argv)
        except KeyboardInterrupt:  # before the consumer handles it
            sys.exit(128 + signal.SIGINT)

    def add_arguments(self, parser: ArgumentParser) -> None:
        usual, add = Options(), parser.add_argument
        seconds = partial(add, type=float, metavar="SECONDS")
        add("-t", "--threads", type=int, default=usual.threads, help="worker threads (default: %(default)s)")
        together = "run up to N async commands at a time on one event loop (default: each has a thread)"
        add("--coroutines", type=int, default=usual.coroutines, metavar="N", help=together)
        many = "number of processes, or auto: one for each core (default: %(default)s)"
        add("--processes", type=_processes, default=1, metavar="N", help=many)
        add("-n", "--no-periodic", action="store_true", help="do not enqueue periodic commands")
        listens = "answer Prometheus on this port (of this machine alone, unless an address is given)"
        add("--metrics", type=_port, metavar="[ADDRESS:]PORT", help=listens)
        add("-l", "--logfile", help="log to this file, which is rotated (default: standard output)")
        forms = "console: short lines (default on a terminal), full: all there is (default elsewhere), json"
        add("--log-format", choices=("console", "full", "json"), help=forms)
        of_queues = "serve this queue; may be repeated (default: all)"
        add("-q", "--queue", action="append", dest="queues", metavar="ALIAS", help=of_queues)
        seconds("-d", "--delay", default=usual.delay, help="first pause of an idle poller (default: %(default)s)")
        times = "each pause is this many times the last (default: %(default)s)"
        add("-b", "--backoff", type=float, default=usual.backoff, help=times)
        seconds("-m", "--max-delay", default=usual.max_delay, help="longest pause (default: QUEUE_MAX_POLL_INTERVAL)")
        seconds("--lease", help="after this the work of a dead consumer is given to another (default: the queue's)")
        seconds("--grace", default=usual.grace, help="what running commands get after a stop (default: %(default)s)")
        add("--strict", action="store_true", help="serve the queues in the order given, not in turn")
        add("--drain", action="store_true", help="run what is due, then exit")
        add("--limit", type=int, help="run exactly this many messages, then exit")
        replaced = "replace a process by a new one, without a gap, when it has "
        add("--max-messages", type=int, metavar="N", help=replaced + "run this many messages")
        add("--max-memory", type=int, metavar="MIB", help=replaced + "this much memory")
        seconds("--max-age", help=replaced + "served for so long")
        add("--alive", metavar="FILE", help="write how it fares to this file, for python -m djqueue.health FILE")
        seconds("--stuck-after", help="what has run for longer counts as stuck there (default: never)")
        add(
            "--reload",
            action="store_true",
            help="restart when the code changes, and make missing tables (for development)",
        )

    def execute(self, *args, **options):
        self._assignment = Assignment.of_this_process()
        if self._assignment is not None:
            name_process(self._assignment.number)
            options["skip_checks"] = True  # its supervisor has done them
        return super().execute(*args, **options)

    def handle(self, *args, **options) -> None:
        self._log_to(options)
        if options["reload"] and os.environ.get(autoreload.DJANGO_AUTORELOAD_ENV) != "true":  # set in the child
            for name in ("drain", "limit"):
                if options[name]:
                    text = f"--reload goes on until it is stopped: leave out --{name}, or --reload."
                    raise CommandError(text, returncode=2)
            self._consumer(options)  # refuses wrong options before anything starts
            self._bounds(options)
            run()
        elif self._assignment is not None:
            self._serve_assigned(self._assignment, options)
        elif _has_supervisor(options):
            self._supervise(options)
        else:
            self._serve(options)

    def _serve(self, options: dict) -> None:
        consumer = self._consumer(options)
        _notifying(consumer.reporter)
        # The handler only sets a flag: an exception raised from it could hit a commit.
        handle_signals(ENDING, lambda *_: consumer.stop())
        name_process(None, consumer.name)
        if options["metrics"]:
            _serve_metrics(options["metrics"], consumer.totals)
        self._begin(consumer, options)
        self._run(consumer, options["limit"])

    def _supervise(self, options: dict) -> None:
        """Have other processes serve; each runs this command again."""
        if not self._called_from_command_line:
            text = "--processes and --max-... run the command line again: give them on one, not to call_command()."
            raise CommandError(text, returncode=2)
        if options["limit"] is not None:
            text = "--limit counts the messages of one process: leave it out, or --processes and --max-..."
            raise CommandError(text, returncode=2)
        consumer, bounds = self._consumer(options), self._bounds(options)
        grace, drain = consumer.options.grace, consumer.options.drain
        look = partial(_rotate, options["logfile"]) if options["logfile"] else lambda: None
        reporter, totals = _notifying(consumer.reporter), SupervisedTotals(consumer.totals())
        start = partial(Process, totals=totals)
        supervisor = ProcessSupervisor(
            options["processes"], bounds, grace=grace, drain=drain, look=look, reporter=reporter, start=start
        )
        handle_signals(ENDING, lambda *_: supervisor.stop())
        if options["metrics"]:
            _serve_metrics(options["metrics"], totals.sum)
        self._begin(consumer, options)
        if reporter.notifier is not None and reporter.notifier.watchdog is not None and options["alive"] is None:
            log_safely(logger, logging.WARNING, SUPERVISOR_ALONE)
        try:
            code = supervisor.run()
        except ValueError as error:
            raise CommandError(str(error), returncode=2) from error
        _leave(code)

    def _serve_assigned(self, assignment: Assignment, options: dict) -> None:
        """Serve as one of the processes of a supervisor, with a liveness file of its own."""
        alive = options["alive"] and f"{options['alive']}.{os.getpid()}"
        consumer = self._consumer({**options, "alive": alive})
        consumer.has_duties, consumer.reporter.leaves_file = assignment.has_duties, True
        name_process(assignment.number, consumer.name)
        link = SupervisorLink(
            consumer,
            assignment.descriptor,
            limited=options["max_messages"] is not None,
            metrics=bool(options["metrics"]),
        )
        handle_signals(ENDING, lambda *_: link.stop_consumer())
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
        link.start()
        self._run(consumer, ended=link.report_what_is_counted)

    def _begin(self, consumer: Consumer, options: dict) -> None:
        """Prepare for serving, once for all processes."""
        if options["reload"]:
            _make_tables(consumer.queues)
        if logger.isEnabledFor(logging.INFO):
            processes = options["processes"]
            about = {"event": "consumer_started", "banner": banner.in_rows(consumer, processes)}
            log_safely(
                logger, logging.INFO, "djqueue %s, %s", djqueue.__version__, consumer.banner(processes), extra=about
            )
        if options["metrics"]:
            log_safely(logger, logging.INFO, "Metrics are at http://%s:%d/metrics", *options["metrics"])
        for queue in consumer.queues:
            if isinstance(unthrottled(queue), MemoryQueue):
                log_safely(logger, logging.WARNING, IN_MEMORY, queue.alias)

    def _run(self, consumer: Consumer, limit: int | None = None, ended: Callable[[], None] = lambda: None) -> None:
        _collect_less()
        try:
            code = consumer.run(limit)
            ended()
        except ValueError as error:
            raise CommandError(str(error), returncode=2) from error
        except MemoryError:
            code = STUCK
        _leave(code, at_once=consumer.leaves_tasks)

    def _bounds(self, options: dict) -> Bounds:
        try:
            return Bounds(**{name: options[name] for name in BOUNDS})
        except (TypeError, ValueError) as error:
            raise CommandError(str(error), returncode=2) from error

    def _consumer(self, options: dict) -> Consumer:
        given = {name: options[name] for name in OF_THE_CONSUMER}
        if options["reload"]:
            given["grace"] = 0.0  # what runs is handed back at once, for the next process with the new code
        isolate = "DJANGO_SETTINGS_MODULE" in os.environ  # else no other process can load the settings
        try:
            given |= {"periodic": not options["no_periodic"], "isolate": isolate}
            return Consumer(options["queues"], **given)
        except (TypeError, ValueError, InvalidQueueError) as error:
            raise CommandError(str(error), returncode=2) from error

    def _log_to(self, options: dict) -> None:
        """Log djqueue's records to the file, or to standard output unless the project sends them to a stream itself.

        A handler of the project's keeps its form unless another one is asked for.
        """
        root = logging.getLogger("djqueue")
        root.setLevel(LEVELS[options["verbosity"]])
        handlers = [] if options["logfile"] else _console_handlers(root)
        if not handlers:
            handlers = [_file_handler(options) if options["logfile"] else BackgroundStreamHandler(sys.stdout)]
            root.addHandler(handlers[0])
        elif options["log_format"] is None:
            return
        for handler in handlers:
            handler.setFormatter(formatter := _formatter(options))
            if isinstance(formatter, ConsoleFormatter):
                handler.addFilter(is_no_repetition)


def _notifying(reporter: Reporter) -> Reporter:
    """The reporter of this process, which notifies systemd if systemd asks for it."""
    reporter.notifier = Notifier.of_this_process()
    return reporter


def _collect_less() -> None:
    """Let the garbage collector check only objects made by messages, not all that was imported."""
    autodiscover()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECT)


def _processes(text: str) -> int:
    if text == "auto":
        return cores()
    if text.isdecimal() and int(text):
        return int(text)
    raise ArgumentTypeError(f"{text!r}: give a whole number from 1, or auto")


def _port(text: str) -> tuple[str, int]:
    """An address and a port, from ``9200``, ``0.0.0.0:9200`` or ``[::]:9200``."""
    address, colon, port = text.rpartition(":")
    if not port.isdecimal() or not 0 < int(port) < 1 << 16 or (colon and not address):
        raise ArgumentTypeError(f"{text!r}: give a port, as 9200, or an address and a port, as 0.0.0.0:9200")
    return address or LOOPBACK, int(port)


def _serve_metrics(at: tuple[str, int], source: Callable[[], Totals]) -> None:
    try:
        from djqueue.integrations import prometheus  # here, as it needs a package of its own

        prometheus.serve(at[0].strip("[]"), at[1], source)
    except ImportError as error:
        raise CommandError(f"--metrics: {error}", returncode=2) from error
    except OSError as error:
        raise CommandError(f"--metrics: {at[0]} port {at[1]} cannot be had: {error}", returncode=2) from error


def _open_standard_streams() -> None:
    """Replace closed standard streams: a socket could get their number, and printed text would go to a server."""
    for number, (name, mode) in enumerate([("stdin", "r"), ("stdout", "w"), ("stderr", "w")]):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number: this one
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, closefd=False))


def _file_handler(options: dict) -> logging.Handler:
    logfile = options["logfile"]
    folder = Path(logfile).resolve().parent
    if not folder.is_dir():
        raise CommandError(f"--logfile: there is no folder {folder}; make it, or give another path.", returncode=2)
    try:
        if _has_supervisor(options):
            return BackgroundSharedFileHandler(logfile)
        return BackgroundFileHandler(logfile, maxBytes=LOG_BYTES, backupCount=LOG_FILES)
    except OSError as error:
        raise CommandError(f"--logfile: {error}", returncode=2) from error


def _has_supervisor(options: dict) -> bool:
    """Whether several processes are asked for, or that a process is replaced."""
    return options["processes"] > 1 or any(options[name] is not None for name in BOUNDS)


def _rotate(logfile: str) -> None:
    """Begin a new file if the processes that write to this one have filled it; they notice at their next line."""
    with suppress(OSError):
        if os.stat(logfile).st_size >= LOG_BYTES:
            handler = RotatingFileHandler(logfile, backupCount=LOG_FILES)
            handler.doRollover()
            handler.close()


def _console_handlers(logger: logging.Logger) -> list[logging.Handler]:
    """The project's own handlers that write to the console."""
    handlers = [*logger.handlers, *(logging.getLogger().handlers if logger.propagate else ())]
    return [handler for handler in handlers if getattr(handler, "stream", None) in (sys.stdout, sys.stderr)]


def _formatter(options: dict) -> logging.Formatter:
    form, to_file = options["log_format"], bool(options["logfile"])
    if form is None:
        brief = options["verbosity"] < FULL and not to_file and sys.stdout.isatty() and _shows_symbols()
        form = "console" if brief else "full"
    if form != "console":
        return JsonFormatter() if form == "json" else FullFormatter()
    return ConsoleFormatter(not to_file and has_colors(options["force_color"], options["no_color"]))


def _shows_symbols() -> bool:
    """Whether the terminal's encoding has the symbols of the short lines."""
    try:
        "".join(mark.symbol for mark in MARKS.values()).encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _make_tables(queues: Iterable[BaseQueue]) -> None:
    """During development, create djqueue's missing tables in the databases of the queues."""
    from djqueue.backends.database import checks  # here, as it imports models

    def are_missing(alias: str) -> bool:
        return any(message.id == checks.LACKING for message in checks.check(alias, in_use=True))

    for alias in dict.fromkeys(alias for queue in queues for alias in databases_of(queue)):
        if are_missing(alias):
            call_command("migrate", "djqueue", database=alias, verbosity=0, interactive=False, skip_checks=True)
            if not are_missing(alias):
                log_safely(logger, logging.INFO, "Made the tables of djqueue in database %r", alias)


def _leave(code: int, at_once: bool = False) -> None:
    """End the process within some seconds, even if commands have left threads behind, or handlers that hang.

    ``at_once``: without an orderly end of the interpreter.
    """
    with suppress(RuntimeError, MemoryError):  # at its limits the process may start no more threads
        timer = threading.Timer(LEFT_BEHIND, os._exit, [code])
        timer.daemon = True
        timer.start()
    for flush in (logging.shutdown, lambda: sys.stdout.flush(), lambda: sys.stderr.flush()):
        with suppress(Exception):  # a command may have closed them
            flush()
    if at_once or code in (CUT_OFF, STUCK):
        os._exit(code)
    sys.exit(code)


# ---- --reload: a parent process that starts the consumer again when the code changes, or is fixed

PATIENCE = 5.0  # seconds that a consumer gets to hand back what it runs
PAUSE = 500  # milliseconds between two checks whether the child is alive


def run() -> None:
    """Serve in a child process, again after each change, until SIGTERM or Ctrl-C; a child that ends with 0 ends it too.

    Exits, never returns. Raises CommandError if watchfiles is not installed.
    """
    try:
        import watchfiles
    except ImportError:
        install = 'pip install "django-djqueue[dev]"'
        raise CommandError(f"--reload needs the package watchfiles: {install}", returncode=2) from None
    asked_to_end = threading.Event()
    for number in ENDING:
        signal.signal(number, lambda *_: asked_to_end.set())
    environment = {**os.environ, autoreload.DJANGO_AUTORELOAD_ENV: "true"}
    watch = partial(watchfiles.watch, watch_filter=watchfiles.PythonFilter(), recursive=False, stop_event=asked_to_end)
    while not asked_to_end.is_set():
        # A Ctrl-C while the child starts is for this process alone, which ends the child.
        quiet = partial(signal.signal, signal.SIGINT, signal.SIG_IGN)
        child = subprocess.Popen(autoreload.get_child_arguments(), env=environment, close_fds=False, preexec_fn=quiet)
        for changes in watch(*_folders(), rust_timeout=PAUSE, yield_on_timeout=True):
            if changes:
                break
            if child.returncode is not None or (code := child.poll()) is None:
                continue
            if code == 0:
                asked_to_end.set()
            else:
                logger.error("The consumer ended with code %d; it is started again when a file changes", code)
        _stop(child)
    sys.exit(0)


def _stop(child: subprocess.Popen) -> None:
    """Stop the child by two signals: it gives back running messages at once, for the next child with the new code."""
    for number in ENDING:
        child.send_signal(number)
    try:
        child.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        text = "The consumer did not end within %g s; what it ran is run again when its lease is over"
        logger.warning(text, PATIENCE)
        child.kill()
        child.wait()


def _folders() -> set[Path]:
    """The folders of the code: of this process's modules, and of all apps that were not installed by pip."""
    reloader = autoreload.StatReloader()
    for app in apps.get_app_configs():
        if not {"site-packages", "dist-packages"} & set(Path(app.path).parts):
            reloader.watch_dir(app.path, "**/*.py")
    return {path.parent for path, _ in reloader.snapshot_files()}
