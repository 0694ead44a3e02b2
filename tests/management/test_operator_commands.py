"""queue_stats and queue_errors, as an operator uses them, on every backend and on a four-method queue."""

import base64
import io
import json
import re
import stat
from dataclasses import replace
from datetime import datetime

import pytest
from django.core.management import CommandError, call_command, load_command_class
from django.db.utils import ConnectionHandler

from djqueue import operations, queues, words
from djqueue.backends.base import BaseQueue
from djqueue.backends.database import checks, session
from djqueue.backends.database import queue as queue_module
from djqueue.backends.entries import Entry, QueueStats
from djqueue.backends.memory.queue import MemoryQueue
from djqueue.consumer import Consumer
from djqueue.decorators import queue_command
from djqueue.management.commands import queue_stats
from djqueue.messages.failures import errors_of, with_error
from djqueue.operations import counts, messages
from djqueue.operations.by_command import CommandRow
from djqueue.operations.rates import QueueRates
from djqueue.operations.reports import columns
from djqueue.policies.outcomes import Outcome, Verdict
from djqueue.running.settle import settle
from tests.backends.contract.toy import ToyQueue
from tests.dashboard.calls import counted

TOY = f"{ToyQueue.__module__}.{ToyQueue.__qualname__}"
MEMORY = "djqueue.backends.memory.MemoryQueue"
MEMORY_STORE = "djqueue.backends.memory.MemoryStore"
REDIS = "djqueue.backends.redis_backend.RedisQueue"
NOT_DECODABLE = b"\x80\x05never decoded"


def run(*args) -> str:
    out = io.StringIO()
    call_command(*args, stdout=out)
    return out.getvalue()


def run_json(*args):
    return json.loads(run(*args, "--json"))


def epoch(moment: str) -> float:
    """A moment as JSON has it, in epoch seconds."""
    assert moment.endswith("Z")
    return datetime.fromisoformat(moment).timestamp()


def failure(*args, out=None) -> CommandError:
    with pytest.raises(CommandError) as caught:
        call_command(*args, stdout=out or io.StringIO(), stderr=io.StringIO())
    return caught.value


def fill(queue, *ids, **fields):
    assert all(queue.put([Entry(NOT_DECODABLE, id, command=f"app.commands.{id}", **fields) for id in ids]))


def kill(queue, *ids, words="out of paint", kind=ValueError):
    """Let them die of an exception, in that order."""
    for id in ids:
        fill(queue, id)
        verdict = Verdict(Outcome.FAILED, f"{kind.__name__}: {words}", raised(kind, words))
        settle(queue, [(queue.claim(1)[0], verdict)], owner="web-1:42:beef")


def lose(queue, id):
    """Let one die of nothing that was ever raised."""
    fill(queue, id)
    settle(queue, [(queue.claim(1)[0], Verdict(Outcome.FAILED, "worker died: 3 attempts never reported"))])


def raised(kind, words) -> Exception:
    try:
        raise kind(words)
    except kind as error:
        return error


class OutOfStock(Exception):
    """An exception of a project."""


paid = []


@queue_command
def pay(amount, *, to):
    paid.append((amount, to))
    if len(paid) == 1:
        raise OutOfStock(f"no {to}")


@pytest.fixture
def queue(backend, settings) -> BaseQueue:
    settings.QUEUES = backend.queues("default", "mail")
    return queues["default"]


@pytest.fixture
def toy_queue(settings) -> BaseQueue:
    settings.QUEUES = {"default": {"CLASS": MEMORY}, "toy": {"CLASS": TOY, "CONNECTION": {}, "STORE": MEMORY_STORE}}
    return queues["toy"]


# ---- queue_stats


def test_stats_count_every_state(queue):
    kill(queue, "bad")
    fill(queue, "done", "leased", "ready", "ready too")
    done, leased = queue.claim(2)
    queue.complete([done])
    fill(queue, "delayed", delay=600)
    here, other = run_json("queue_stats")
    assert (here["queue"], other["queue"]) == ("default", "mail")
    expected = {"ready": 2, "delayed": 1, "running": 1, "failed": 1, "done": 1}
    assert {name: here[name] for name in expected} == expected
    assert (here["backend"], other["ready"], other["oldest"]) == (queue.describe(), 0, None)
    assert 0 <= here["oldest"] < 60


def test_stats_are_a_table_for_people_of_all_queues_or_of_some(queue):
    fill(queue, "one", "two")
    head, here, other, _, place = run("queue_stats").splitlines()
    assert head.split() == ["queue", "ready", "delayed", "running", "failed", "done", "oldest"]
    assert here.split()[:6] == ["default", "2", "0", "0", "0", "0"]
    assert other.split() == ["mail", "0", "0", "0", "0", "0", "-"]
    assert place == f"default, mail: {queue.describe()}"
    assert [one["queue"] for one in run_json("queue_stats", "-q", "mail")] == ["mail"]
    error = failure("queue_stats", "-q", "mial")
    assert "'mial'" in str(error) and str(error).count("mail") == 1 and error.returncode == 2


def test_stats_say_what_a_four_method_queue_cannot_tell(toy_queue):
    fill(toy_queue, "one")
    line = run("queue_stats", "-q", "toy").splitlines()[1]
    assert line.split() == ["toy", "1", "-", "-", "0", "-", "-"]
    assert run_json("queue_stats", "-q", "toy")[0]["running"] is None


def test_stats_tell_rates_and_the_time_to_drain_if_something_ran_lately(queue, monkeypatch):
    lately = [QueueRates("default", (), 30.0, 12.34, 0.5, 1.0, 125.0), QueueRates("mail", (), None, 0, 0, 0, None)]
    monkeypatch.setattr(counts, "queue_rates", lambda aliases, period: lately)
    head, here, other, *_ = run("queue_stats").splitlines()
    assert head.split()[-4:] == ["done/min", "failed/min", "drain", "oldest"]
    assert here.split()[-5:] == ["12", "0.5", "2m", "05s", "-"]
    assert other.split()[-4:] == ["0", "0", "-", "-"]
    told = run_json("queue_stats")[0]
    assert (told["enqueued_per_minute"], told["done_per_minute"], told["time_to_drain"]) == (30.0, 12.34, 125.0)


def test_stats_say_what_is_paused(queue):
    assert (run_json("queue_stats")[0]["pause"], "paused" in run("queue_stats")) == (None, False)
    operations.pause("queue", "mail", why="no stamps", by="ann")
    operations.pause("command", pay.name, "mail", by="bob")
    head, here, other, _, command, *_ = run("queue_stats").splitlines()
    assert (head.split()[-1], here.split()[-1]) == ("paused", "-")
    assert "  since " in other and other.endswith(" by ann: no stamps")
    assert command.startswith(f"Command {pay.name} in mail is paused since ") and command.endswith(" by bob")
    default, mail = run_json("queue_stats")
    assert (default["pause"], default["paused_commands"]) == (None, [])
    assert (mail["pause"]["by"], [one["name"] for one in mail["paused_commands"]]) == ("ann", [pay.name])


def test_stats_by_command_count_the_last_hour_or_day(queue):
    counted(queue, pay.name, 5, 0.2, done=1_000, failed=3, retried=2, discarded=1)
    counted(queue, pay.name, 300, done=7)
    operations.pause("command", pay.name, "default", by="bob")
    lists = [run_json("queue_stats", "--by-command", period) for period in ("hour", "day")]
    hour, day = (next(one for one in rows if one["command"] == pay.name) for rows in lists)
    assert {*hour} == {one.name for one in columns(CommandRow) if one.in_json}
    assert (hour["command"], hour["queue"], hour["start"], hour["pause"]["by"]) == (pay.name, "default", None, "bob")
    assert (hour["done"], hour["failed"], day["done"], day["failed"]) == (1_000, 3, 1_007, 3)
    assert hour["other_outcomes"] == {"retried": 2, "discarded": 1}
    assert 0 < hour["median_run"] <= hour["p95_run"] and 0 < hour["median_wait"] <= hour["p95_wait"]
    head, *lines = run("queue_stats", "--by-command").splitlines()
    assert head.startswith("command") and "median run" in head and "last hour" not in head
    [line] = [line for line in lines if "1,000" in line]
    assert "pay" in line and "2 retried, 1 discarded" in line and " by bob" in line
    assert "queue" not in run("queue_stats", "--by-command", "-q", "default").splitlines()[0].split()
    assert pay.name not in [one["command"] for one in run_json("queue_stats", "--by-command", "-q", "mail")]


def test_stats_by_command_leave_out_what_counts_nothing(settings):
    settings.QUEUES = {"default": {"CLASS": MEMORY}, "toy": {"CLASS": TOY, "CONNECTION": {}, "STORE": False}}
    err = io.StringIO()
    call_command("queue_stats", "--by-command", stdout=io.StringIO(), stderr=err)
    assert err.getvalue().startswith("Left out: 1 queue whose backend cannot be paused")
    assert "'toy' (ToyQueue): the backend cannot be paused" in str(failure("queue_stats", "--by-command", "-q", "toy"))
    assert "not allowed with argument" in str(failure("queue_stats", "--by-command", "--watch"))


def test_stats_say_at_least_where_counting_stopped(toy_queue, monkeypatch):
    capped = QueueStats(ready=100_000, delayed=7, failed=100_000, done=200_000, capped=100_000)
    monkeypatch.setattr(MemoryQueue, "stats", lambda self: capped)
    line = run("queue_stats", "-q", "default").splitlines()[1]
    assert line.split()[-6:] == ["100,000+", "7", "-", "100,000+", "200,000", "-"]


def test_stats_show_the_others_if_a_store_is_away(toy_queue, monkeypatch):
    def away(self):
        raise ConnectionError("nobody there")

    monkeypatch.setattr(ToyQueue, "stats", away)
    out = io.StringIO()
    error = failure("queue_stats", out=out)
    assert "'toy' (ToyQueue)" in str(error) and "nobody there" in str(error) and error.returncode == 1
    assert out.getvalue().splitlines()[1].startswith("default")


def test_stats_are_watched_until_ctrl_c(toy_queue, monkeypatch):
    waits = []

    def wait_for_work(seconds):
        waits.append(seconds)
        fill(toy_queue, str(len(waits)))
        if len(waits) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(queue_stats, "sleep", wait_for_work)
    lines = run("queue_stats", "-q", "toy", "--watch", "2.5", "--json").splitlines()
    assert [json.loads(line)[0]["ready"] for line in lines] == [0, 1, 2]
    assert waits == [2.5] * 3


class Screen(io.StringIO):
    """A terminal."""

    def isatty(self):
        return True


BACKLOG = [
    QueueStats(ready=12_000, delayed=0, leased=4, failed=0, done=7_000, oldest=61.0),
    QueueStats(ready=11_999, delayed=0, leased=4, failed=1, done=7_031, oldest=700.0),
]


def watched(monkeypatch, backlog, out):
    """A look now and one two seconds later, while the queue went on; then Ctrl-C."""
    looks, times, pauses = iter(backlog), iter([100.0, 102.0]), []

    def pause(seconds):
        pauses.append(seconds)
        if len(pauses) == len(backlog):
            raise KeyboardInterrupt

    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(MemoryQueue, "stats", lambda self: next(looks))
    monkeypatch.setattr(queue_stats, "clock", lambda: next(times))
    monkeypatch.setattr(queue_stats, "sleep", pause)
    call_command("queue_stats", "-q", "default", "--watch", stdout=out)
    return out.getvalue()


def test_watching_shows_the_time_and_the_rates_since_the_last_look(toy_queue, monkeypatch):
    lines = watched(monkeypatch, BACKLOG, io.StringIO()).splitlines()
    assert lines[0].endswith(", every 2 s") and lines[0].count(":") == 2
    assert [line for line in lines if line.startswith(("queue", "default "))] == [
        "queue     ready  delayed  running  failed   done  in/s  done/s  oldest",
        "default  12,000        0        4       0  7,000     -       -  1m 01s",
        "queue     ready  delayed  running  failed   done  in/s  done/s   oldest",
        "default  11,999        0        4       1  7,031    16      16  11m 40s",
    ]


def test_a_screen_is_redrawn_in_place_and_left_as_it_was(toy_queue, monkeypatch):
    text = watched(monkeypatch, BACKLOG, Screen())
    assert text.startswith("\x1b[2J\x1b[?25l\x1b[H") and text.endswith("\x1b[?25h\n")
    assert text.count("\x1b[2J") == 1, "it is not cleared again, as that flickers"
    assert text.count("\x1b[H") == 2


def test_rates_are_unknown_where_counts_are(toy_queue, monkeypatch):
    capped = [replace(one, ready=100_000, done=None, capped=100_000) for one in BACKLOG]
    lines = watched(monkeypatch, capped, io.StringIO()).splitlines()
    last = [line for line in lines if line.startswith("default ")][-1]
    assert last.split()[:8] == ["default", "100,000+", "0", "4", "1", "-", "-", "-"]


@pytest.mark.parametrize(
    ("args", "no_color", "is_painted"),
    [(["--force-color"], "", True), (["--force-color"], "1", True), ([], "", False), (["--no-color"], "", False)],
)
def test_what_failed_and_what_waits_long_stands_out(toy_queue, monkeypatch, args, no_color, is_painted):
    monkeypatch.setenv("NO_COLOR", no_color)
    monkeypatch.setattr(MemoryQueue, "stats", lambda self: BACKLOG[1])
    line = run("queue_stats", "-q", "default", *args).splitlines()[1]
    red, plain = "\x1b[31;1m", "\x1b[0m"
    assert (f"{red}1{plain}" in line, f"{red}11m 40s{plain}" in line) == (is_painted, is_painted)
    assert re.sub(r"\x1b\[[\d;]*m", "", line).split()[:2] == ["default", "11,999"]


@pytest.mark.parametrize("pause", ["0", "-1", "soon", "nan"])
def test_stats_refuse_a_bad_pause(pause):
    assert pause in str(failure("queue_stats", f"--watch={pause}"))


# ---- queue_errors


def test_errors_are_listed_with_their_reasons_as_a_table_and_as_json(queue):
    kill(queue, "first", "second")
    kill(queues["mail"], "third", words="no\nstamps")
    head, *lines = run("queue_errors", "list").splitlines()
    assert head.split() == ["id", "queue", "command", "failed", "attempts", "worker", "reason"]
    assert [line.split()[:2] for line in lines] == [["first", "default"], ["second", "default"], ["third", "mail"]]
    assert [line.split()[2] for line in lines] == ["first", "second", "third"]
    told, *_ = run_json("queue_errors", "list")
    assert lines[0].endswith(f"1  {told['worker']}  ValueError: out of paint")
    assert lines[2].endswith("ValueError: no stamps")
    assert (told["id"], told["queue"], told["command"]) == ("first", "default", "app.commands.first")
    assert (told["attempts"], told["failures"], told["lost"], told["bytes"]) == (1, 1, 0, len(NOT_DECODABLE))
    assert told["reason"] == "ValueError: out of paint" and abs(epoch(told["failed_at"]) - queue.now()) < 60


def test_errors_of_some_queues_and_up_to_a_limit(queue):
    kill(queue, "a", "b", "c")
    kill(queues["mail"], "d")
    assert [one["id"] for one in run_json("queue_errors", "list", "--limit", "2")] == ["a", "b"]
    assert "--limit" in run("queue_errors", "list", "--limit", "2").splitlines()[-1]
    assert "--limit" not in run("queue_errors", "list", "--limit", "4")
    assert [one["id"] for one in run_json("queue_errors", "list", "-q", "mail")] == ["d"]
    assert "'0'" in str(failure("queue_errors", "list", "--limit=0"))


def test_no_errors_are_good_news(queue):
    assert run("queue_errors", "list") == "There are no failed messages.\n"
    assert run_json("queue_errors", "list") == []
    assert run("queue_errors", "retry", "--all") == "0 messages retried.\n"


def test_an_error_is_shown_with_its_traceback(queue):
    kill(queues["mail"], "bad")
    text = run("queue_errors", "show", "bad")
    assert "app.commands.bad" in text and "1 (failed: 1, lost: 0)" in text
    assert "Traceback (most recent call last)" in text and text.rstrip().endswith("ValueError: out of paint")
    told = run_json("queue_errors", "show", "bad")
    assert told["queue"] == "mail" and told["errors"][0]["exception"] == "builtins.ValueError"
    assert "never decoded" not in text + json.dumps(told)


def test_what_a_stranger_sent_does_not_reach_the_terminal(queue):
    kill(queue, "bad", words="\x1b]0;owned\x07\x9b2J")
    for text in (run("queue_errors", "list"), run("queue_errors", "show", "bad")):
        assert "owned" in text and not {"\x1b", "\x07", "\x9b"} & set(text)


def test_errors_are_retried_by_their_ids_with_counts_afresh(queue):
    kill(queue, "a", "b")
    kill(queues["mail"], "c")
    assert run("queue_errors", "retry", "c", "a", "a") == "2 messages retried.\n"
    assert [one["id"] for one in run_json("queue_errors", "list")] == ["b"]
    [lease] = queue.claim(10)
    assert (lease.entry.id, lease.entry.attempts, lease.entry.failures) == ("a", 1, 0)
    assert (lease.entry.body, len(queues["mail"])) == (NOT_DECODABLE, 1)


def test_errors_are_deleted_by_their_ids(queue):
    kill(queue, "a", "b")
    assert run("queue_errors", "delete", "b") == "1 message deleted.\n"
    assert [one["id"] for one in run_json("queue_errors", "list")] == ["a"]
    assert len(queue) == 0


@pytest.mark.parametrize(("verb", "waiting"), [(["retry"], 7), (["delete", "--no-input"], 0)])
def test_all_errors_go_page_by_page(queue, monkeypatch, verb, waiting):
    monkeypatch.setattr(messages, "CHUNK", 3)
    kill(queue, *"abcdefg")
    kill(queues["mail"], "other")
    assert run("queue_errors", *verb, "--all", "-q", "default").startswith("7 ")
    assert (len(queue), len(queue.failed), len(queues["mail"].failed)) == (waiting, 0, 1)


@pytest.mark.parametrize("which", [["--all"], ["--command", "app.commands.*"]], ids=["all", "a filter"])
def test_a_retry_ends_even_if_everything_dies_again(queue, monkeypatch, which):
    monkeypatch.setattr(messages, "CHUNK", 2)
    kill(queue, *"abcde")
    requeue = type(queue).requeue

    def requeue_and_fail(self, ids):
        count = requeue(self, ids)
        for lease in self.claim(100):
            settle(self, [(lease, Verdict(Outcome.FAILED, "again"))])
        return count

    monkeypatch.setattr(type(queue), "requeue", requeue_and_fail)
    assert run("queue_errors", "retry", *which) == "5 messages retried.\n"
    assert len(queue.failed) == 5


@pytest.mark.parametrize("verb", ["retry", "delete", "show"])
def test_an_unknown_id_is_an_error_after_the_others_are_done(queue, verb):
    kill(queue, "a")
    ids = ["nope"] if verb == "show" else ["nope", "a"]
    out = io.StringIO()
    error = failure("queue_errors", verb, *ids, out=out)
    assert out.getvalue() == {"retry": "1 message retried.\n", "delete": "1 message deleted.\n"}.get(verb, "")
    assert "nope" in str(error) and "'default', 'mail'" in str(error) and error.returncode == 1
    assert len(queue.failed) == (1 if verb == "show" else 0)


@pytest.mark.parametrize(
    "args",
    [
        ["retry"],
        *(
            [*few, "a", *more]
            for few in (["retry"], ["delete"])
            for more in (["--all"], ["--command", "b"], ["--older", "7d"])
        ),
    ],
    ids=" ".join,
)
def test_ids_or_a_filter_or_all(toy_queue, args):
    error = failure("queue_errors", *args, "-q", "default")
    assert "--all" in str(error) and error.returncode == 2
    assert ("not both" in str(error)) == (len(args) > 1)


def test_nothing_is_said_to_be_retried_beside_the_ids_that_are_not_there(toy_queue):
    out = io.StringIO()
    assert "nope" in str(failure("queue_errors", "retry", "nope", "-q", "default", out=out))
    assert out.getvalue() == ""


def test_the_switches_of_django_may_stand_before_and_after_the_verb():
    parser = load_command_class("djqueue", "queue_errors").create_parser("manage.py", "queue_errors")

    def said(*args):
        told = parser.parse_args(args)
        return told.verbosity, told.settings, told.traceback

    assert said("list") == (1, None, False)
    assert said("-v", "2", "--settings", "a", "--traceback", "list") == (2, "a", True)
    assert said("list", "-v", "2", "--settings", "a", "--traceback") == (2, "a", True)


@pytest.mark.parametrize("args", [["list"], ["show", "a"], ["retry", "--all"], ["delete", "a"]])
def test_a_four_method_queue_says_that_it_cannot(toy_queue, args):
    assert "'toy' (ToyQueue)" in str(failure("queue_errors", *args, "-q", "toy"))


def test_a_four_method_queue_is_left_out_among_others(toy_queue):
    kill(queues["default"], "a")
    out, err = io.StringIO(), io.StringIO()
    call_command("queue_errors", "list", stdout=out, stderr=err)
    assert out.getvalue().splitlines()[1].startswith("a ")
    assert "Left out: 1 queue whose backend cannot list its messages: 'toy' (ToyQueue)." in err.getvalue()


# ---- a store that is away

EVERY_VERB = [["list"], ["show", "a"], ["retry", "a"], ["retry", "--all"], ["delete", "--command", "a"], ["export"]]


@pytest.mark.parametrize("args", EVERY_VERB, ids=" ".join)
@pytest.mark.backends("redis")
def test_a_store_that_is_away_is_named(backend, settings, args):
    settings.QUEUES = backend.queues("mail") | {"default": {"CLASS": REDIS, "CONNECTION": "127.0.0.1:1:0"}}
    error = failure("queue_errors", *args)
    told = "Queue 'default': Redis at 127.0.0.1:1/0 cannot be reached: Connection refused. "
    assert (str(error), error.returncode) == (f"{told}Start it, or correct CONNECTION.", 1)


@pytest.mark.parametrize("args", [["queue_stats"], *(["queue_errors", *args] for args in EVERY_VERB)], ids=" ".join)
@pytest.mark.backends("sqlite")
def test_missing_tables_lead_to_migrate(queue, monkeypatch, tmp_path, args):
    bare = ConnectionHandler({"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": tmp_path / "bare.sqlite3"}})
    for module in (queue_module, checks, session):
        monkeypatch.setattr(module, "connections", bare)
    told = str(failure(*args))
    bare["default"].close()
    missing = "the tables of djqueue are missing in database 'default': run manage.py migrate."
    assert told.splitlines()[0] == f"Queue 'default': {missing}"
    assert told.count("migrate") == len(told.splitlines()), "said once for each queue, and nothing else"


def test_what_was_done_is_told_even_if_the_next_store_is_away(settings, monkeypatch):
    def away(ids):
        raise ConnectionError("nobody there")

    settings.QUEUES = {alias: {"CLASS": MEMORY} for alias in ("default", "mail")}
    kill(queues["default"], "a")
    kill(queues["mail"], "b")
    monkeypatch.setattr(queues["mail"], "requeue", away)
    out = io.StringIO()
    assert "nobody there" in str(failure("queue_errors", "retry", "--all", out=out))
    assert out.getvalue() == "1 message retried.\n"


# ---- some of the errors


@pytest.mark.parametrize(
    ("args", "ids"),
    [
        (["--command", "app.commands.charge"], "charge"),
        (["--command", "charge"], "charge"),
        (["--command", "app.*.charge*"], "charge charge_back"),
        (["--command", "App.*.CHARGE"], "charge"),
        (["--command", "charge", "--command", "send"], "send"),
        (["--command", "app"], ""),
        (["--exception", "ValueError"], "charge charge_back"),
        (["--exception", "builtins.ValueError"], "charge charge_back"),
        (["--exception", "OutOfStock"], "send"),
        (["--exception", "outofstock"], "send"),
        (["--exception", "tests.*"], "send"),
        (["--exception", "Exception"], ""),
        (["--exception", "*"], "charge charge_back send"),
        (["--reason", "WORKER DIED"], "lost"),
        (["--reason", "paint"], "charge charge_back"),
        (["--newer", "1h"], "charge charge_back lost send"),
        (["--older", "1h"], ""),
        (["--newer", "1h", "--reason", "paint", "--command", "*_back"], "charge_back"),
    ],
    ids=" ".join,
)
@pytest.mark.backends("memory", "sqlite")
def test_errors_are_listed_by_what_they_are(queue, args, ids):
    kill(queue, "charge", "charge_back")
    lose(queue, "lost")
    kill(queues["mail"], "send", words="no stamps", kind=OutOfStock)
    assert sorted(one["id"] for one in run_json("queue_errors", "list", *args)) == ids.split()
    assert [json.loads(line)["id"] for line in run("queue_errors", "export", *args).splitlines()] == [
        one["id"] for one in run_json("queue_errors", "list", *args)
    ]
    assert ids or run("queue_errors", "list", *args).startswith("No failed message matches --")


def test_errors_are_picked_by_when_they_died(queue):
    kill(queue, "a", "b")
    assert [one["id"] for one in run_json("queue_errors", "list", "--newer", "1h", "--older", "0s")] == ["a", "b"]
    assert run_json("queue_errors", "list", "--older", "1h") == []
    assert (
        run("queue_errors", "delete", "--older", "4w") == "0 messages deleted: no failed message matches --older 4w.\n"
    )
    assert run("queue_errors", "delete", "--newer", "4w", "--no-input") == "2 messages deleted.\n"


@pytest.mark.backends("memory")
def test_an_age_is_that_of_the_death(queue, monkeypatch):
    start = queue.now()
    for id, at in (("a", 0), ("b", 60), ("c", 3600)):
        monkeypatch.setattr(queue, "clock", lambda at=at: start + at)
        kill(queue, id)

    def ids(*args):
        return "".join(one["id"] for one in run_json("queue_errors", "list", *args))

    assert (ids("--older", "59m"), ids("--newer", "59m")) == ("a", "bc")
    assert (ids("--older", "1h"), ids("--newer", "1h")) == ("", "abc")
    assert ids("--older", "58m", "--newer", "59m") == "b"


@pytest.mark.parametrize("args", [["--older", "7"], ["--newer", "soon"], ["--older", "-1d"], ["--older", "1.5h"]])
def test_an_age_has_a_unit(toy_queue, args):
    assert args[1] in str(failure("queue_errors", "list", f"{args[0]}={args[1]}"))


@pytest.mark.parametrize("filter", ["--command", "--exception", "--reason"])
def test_an_empty_text_picks_nothing_by_accident(toy_queue, filter):
    kill(queues["default"], "a")
    assert "empty" in str(failure("queue_errors", "delete", filter, ""))
    with pytest.raises(CommandError, match="--all"):
        call_command("queue_errors", "delete", **{filter[2:]: ""})
    assert len(queues["default"].failed) == 1


def test_errors_of_a_filter_are_retried(queue):
    kill(queue, "charge", "send")
    kill(queues["mail"], "charge", words="no stamps")
    assert run("queue_errors", "retry", "--command", "charge", "-q", "default") == "1 message retried.\n"
    assert (len(queue), len(queue.failed), len(queues["mail"].failed)) == (1, 1, 1)
    assert run("queue_errors", "retry", "--exception", "ValueError", "--all") == "2 messages retried.\n"
    assert (len(queue), len(queue.failed), len(queues["mail"])) == (2, 0, 1)
    told = run("queue_errors", "retry", "--exception", "ValueError", "--reason", "x")
    assert told == "0 messages retried: no failed message matches --exception 'ValueError', --reason 'x'.\n"


def test_errors_of_a_filter_are_deleted(queue, monkeypatch):
    monkeypatch.setattr(messages, "CHUNK", 2)
    for id in "abcde":
        kill(queue, id, f"{id}_")
    monkeypatch.setattr("builtins.input", lambda question: asked.append(question) or answers.pop())
    asked, answers = [], ["yes", "no"]
    assert run("queue_errors", "delete", "--command", "*_") == "Nothing is changed.\n"
    assert asked[0].startswith("Delete 5 messages, without a trace? 5 in default. Type 'yes'")
    assert run("queue_errors", "delete", "--command", "*_") == "5 messages deleted.\n"
    assert [one["id"] for one in run_json("queue_errors", "list")] == list("abcde")
    assert len(queue) == 0


@pytest.mark.parametrize("verb", ["retry", "delete"])
def test_a_dry_run_says_how_many_and_leaves_them(queue, verb):
    kill(queue, "a", "b", "c")
    done = {"retry": "retried", "delete": "deleted"}[verb]
    assert run("queue_errors", verb, "--dry-run", "--all") == f"3 messages would be {done}: 3 in default.\n"
    assert run("queue_errors", verb, "--dry-run", "--command", "a") == f"1 message would be {done}: 1 in default.\n"
    assert run("queue_errors", verb, "--dry-run", "a", "b") == f"2 messages would be {done}.\n"
    assert "nope" in str(failure("queue_errors", verb, "--dry-run", "nope"))
    assert (len(queue), len(queue.failed)) == (0, 3)


# ---- export


def test_errors_are_exported_as_lines_of_json_with_their_bodies_on_demand_only(queue):
    kill(queue, "a")
    kill(queues["mail"], "b", words="no\nstamps \x1b")
    first, second = map(json.loads, run("queue_errors", "export").splitlines())
    counts = "priority attempts failures lost bytes"
    keys = f"id queue command {counts} created failed_at worker exception reason description errors"
    assert first.keys() == {*keys.split()}
    assert (first["id"], first["queue"], first["command"]) == ("a", "default", "app.commands.a")
    assert epoch(first["created"]) <= epoch(first["failed_at"]) <= queue.now() and first["bytes"] == len(NOT_DECODABLE)
    [record] = second["errors"]
    assert (second["queue"], record["text"]) == ("mail", "no\nstamps \x1b")
    assert "Traceback" in record["traceback"] and len(queue.failed) == 1
    assert [json.loads(line)["id"] for line in run("queue_errors", "export", "-q", "mail").splitlines()] == ["b"]
    whole = json.loads(run("queue_errors", "export", "-q", "default", "--with-body"))
    assert base64.b64decode(whole["body"]) == NOT_DECODABLE


def test_errors_are_exported_to_a_new_file_that_only_its_owner_can_read(toy_queue, tmp_path):
    kill(queues["default"], "a", "b")
    path = tmp_path / "errors.jsonl"
    assert run("queue_errors", "export", "-q", "default", "-o", str(path)) == "2 exported\n"
    assert [json.loads(line)["id"] for line in path.read_text().splitlines()] == ["a", "b"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    kept = path.read_text()
    assert str(path) in str(failure("queue_errors", "export", "-q", "default", "-o", str(path)))
    assert "nowhere" in str(failure("queue_errors", "export", "-o", str(tmp_path / "nowhere" / "file")))
    assert path.read_text() == kept


# ---- what is known of each


def test_df6_an_error_tells_all_of_a_call_that_failed(queue):
    paid.clear()
    before = queue.now()
    handle = pay(5, to="ann")
    consumer = Consumer(threads=1, periodic=False, drain=True)
    assert consumer.run() == 0
    told = json.loads(run("queue_errors", "export", "--with-body"))
    assert (told["id"], told["command"]) == (handle.id, pay.name)
    [record] = told["errors"]
    assert (record["exception"], record["text"]) == (f"{__name__}.OutOfStock", "no ann")
    assert record["traceback"].startswith("Traceback") and "in pay" in record["traceback"]
    assert (record["consumer"], record["attempt"]) == (consumer.name, 1)
    assert record["host"] == consumer.name.partition(":")[0]
    assert before - 1 <= record["at"] <= queue.now() + 1
    assert base64.b64decode(told["body"]) == queue.failed.find(handle.id).entry.body
    assert f"on {consumer.name}: OutOfStock: no ann" in run("queue_errors", "show", handle.id)


def test_df25_an_error_is_replayed_by_its_id_with_its_attempts_afresh(queue):
    paid.clear()
    handle = pay(5, to="ann")
    Consumer(threads=1, periodic=False, drain=True).run()
    assert run("queue_errors", "retry", handle.id) == "1 message retried.\n"
    entry = queue.find(handle.id).entry
    assert (entry.attempts, entry.failures, entry.lost) == (0, 0, 0)
    Consumer(threads=1, periodic=False, drain=True).run()
    assert paid == [(5, "ann")] * 2
    assert (len(queue), len(queue.failed), queue.stats().done) == (0, 0, 1)


@pytest.mark.parametrize(
    ("note", "shown"),
    [
        ("", "size"),
        ("no json", "no json"),
        ('[{"at": 1750000000.5, "attempt": 2, "reason": "old", "host": "web", "traceback": "T"}]', "2 on web: old"),
        ('[{"at": "never", "reason": 5, "exception": ["x"], "host": null}]', "5"),
        ('[{"at": 1e300, "reason": null}]', "attempt - on -: -"),
    ],
    ids=["none", "text", "old", "strange", "more"],
)
def test_notes_of_others_are_shown(toy_queue, note, shown):
    queue = queues["default"]
    fill(queue, "a")
    [lease] = queue.claim(1)
    queue.fail([replace(lease, entry=replace(lease.entry, errors=note))])
    assert shown in run("queue_errors", "show", "a")
    assert run_json("queue_errors", "show", "a")["id"] == "a"
    assert run("queue_errors", "list", "-q", "default").splitlines()[1].startswith("a ")
    assert run("queue_errors", "list", "-q", "default", "--exception", "Boom").startswith("No failed message")


def test_the_text_of_an_exception_is_kept_within_bounds():
    class Mute(Exception):
        def __str__(self):
            raise KeyError

    note = with_error("", at=1.0, attempt=1, reason="long", exception=ValueError("x" * 10_000))
    [long, mute] = errors_of(with_error(note, at=2.0, attempt=2, reason="mute", exception=Mute()))
    assert long["text"] == "x" * 1000
    assert "KeyError" in mute["text"] and (mute["consumer"], mute["attempt"]) == ("", 2)
    [silent] = errors_of(with_error("", at=1.0, attempt=1, reason="lost"))
    assert (silent["exception"], silent["text"], silent["traceback"]) == (None, None, None)


def test_the_death_of_one_that_was_put_off_is_in_its_note(queue):
    kill(queue, "a")
    [died] = [epoch(one["failed_at"]) for one in run_json("queue_errors", "list")]
    [lease] = queue.failed.claim(1)
    assert abs(epoch(run_json("queue_errors", "show", "a")["failed_at"]) - died) < 1, "while somebody holds it"
    queue.failed.release([replace(lease, entry=replace(lease.entry, delay=600))])
    [told] = run_json("queue_errors", "list", "--newer", "1m")
    assert told["id"] == "a" and abs(epoch(told["failed_at"]) - died) < 1


# ---- formatting


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "-"), (0.4, "0 s"), (59, "59 s"), (200, "3m 20s"), (7200, "2h 00m"), (93784, "26h 03m")],
)
def test_ages(seconds, text):
    assert words.age(seconds) == text


def test_moments_are_in_the_time_zone_of_the_project(settings, monkeypatch):
    settings.TIME_ZONE = "Europe/Berlin"
    settings.USE_TZ = False
    monkeypatch.setattr(words.time, "time", lambda: 1_750_010_000.0)
    assert words.moment(1_750_000_000) == "17:06:40"
    assert words.moment(1_749_900_000) == "Jun 14 13:20"
    assert words.moment(1_700_000_000) == "2023-11-14"
    assert words.full_moment(1_750_000_000) == "2025-06-15 17:06:40"
    assert words.moment(0) == words.full_moment("never") == "-"


@pytest.mark.slow
@pytest.mark.backends("sqlite")
def test_exit_codes_as_the_shell_sees_them(site):
    kill(queues["default"], "a")
    assert "out of paint" in site.run("queue_errors", "list")
    assert site.start("queue_errors", "retry", "nope").wait() == 1
    assert site.start("queue_errors", "retry").wait() == 2
    assert site.start("queue_errors", "paint").wait() == 2
    assert "1 message deleted." in site.run("queue_errors", "delete", "--all", "--no-input")
    assert json.loads(site.run("queue_stats", "--json"))[0]["failed"] == 0
