"""queue_stats and queue_errors, as an operator uses them, on every backend and on a four-method queue."""

import io
import json

import pytest
from django.core.management import CommandError, call_command

from djqueue.backends.base import BaseQueue
from djqueue.backends.entries import Entry, QueueStats
from djqueue.backends.memory import MemoryQueue
from djqueue.management import tables
from djqueue.management.commands import queue_errors, queue_stats
from djqueue.policies import Outcome, Verdict
from djqueue.queues import queues
from djqueue.settle import settle
from tests.contract.toy import ToyQueue

TOY = f"{ToyQueue.__module__}.{ToyQueue.__qualname__}"
NOT_DECODABLE = b"\x80\x05never decoded"


def run(*args) -> str:
    out = io.StringIO()
    call_command(*args, stdout=out)
    return out.getvalue()


def run_json(*args):
    return json.loads(run(*args, "--json"))


def failure(*args, out=None) -> CommandError:
    with pytest.raises(CommandError) as caught:
        call_command(*args, stdout=out or io.StringIO(), stderr=io.StringIO())
    return caught.value


def fill(queue, *ids, **fields):
    assert all(queue.put([Entry(NOT_DECODABLE, id, label=f"app.commands.{id}", **fields) for id in ids]))


def kill(queue, *ids, words="out of paint"):
    """Let them die of an exception, in that order."""
    for id in ids:
        fill(queue, id)
        settle(queue, [(queue.claim(1)[0], Verdict(Outcome.DEAD, f"ValueError: {words}", raised(words)))])


def raised(words) -> Exception:
    try:
        raise ValueError(words)
    except ValueError as error:
        return error


@pytest.fixture
def queue(backend, settings) -> BaseQueue:
    settings.QUEUES = backend.queues("default", "mail")
    return queues["default"]


@pytest.fixture
def toy(settings) -> BaseQueue:
    settings.QUEUES = {
        "default": {"CLASS": "djqueue.backends.memory.MemoryQueue"},
        "toy": {"CLASS": TOY, "CONNECTION": {}},
    }
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
    assert {name: here[name] for name in queue_stats.COUNTS} == {
        "ready": 2,
        "delayed": 1,
        "leased": 1,
        "dead": 1,
        "done": 1,
    }
    assert (here["backend"], other["ready"], other["oldest"]) == (queue.describe(), 0, None)
    assert 0 <= here["oldest"] < 60


def test_stats_are_a_table_for_people(queue):
    fill(queue, "one", "two")
    head, here, other = run("queue_stats").splitlines()
    assert head.split() == list(queue_stats.HEAD)
    assert here.startswith(f"default  {queue.describe()}  ") and other.split()[0] == "mail"
    assert other.split()[-6:] == ["0", "0", "0", "0", "0", "-"]
    assert here.split()[-7:-2] == ["2", "0", "0", "0", "0"], "and an age of two words"


def test_stats_of_some_queues(queue):
    assert [one["queue"] for one in run_json("queue_stats", "-q", "mail")] == ["mail"]
    error = failure("queue_stats", "-q", "mial")
    assert "'mial'" in str(error) and "mail" in str(error) and error.returncode == 2


def test_stats_say_what_a_four_method_queue_cannot_tell(toy):
    fill(toy, "one")
    line = run("queue_stats", "-q", "toy").splitlines()[1]
    assert line.split() == ["toy", "ToyQueue", "1", "-", "-", "0", "-", "-"]
    assert run_json("queue_stats", "-q", "toy")[0]["leased"] is None


def test_stats_say_at_least_where_counting_stopped(toy, monkeypatch):
    capped = QueueStats(ready=100_000, delayed=7, dead=100_000, done=200_000, capped=100_000)
    monkeypatch.setattr(MemoryQueue, "stats", lambda self: capped)
    line = run("queue_stats", "-q", "default").splitlines()[1]
    assert line.split()[-6:] == ["100000+", "7", "-", "100000+", "200000", "-"]


def test_stats_show_the_others_if_a_store_is_away(toy, monkeypatch):
    def away(self):
        raise ConnectionError("nobody there")

    monkeypatch.setattr(ToyQueue, "stats", away)
    out = io.StringIO()
    error = failure("queue_stats", out=out)
    assert "'toy' (ToyQueue)" in str(error) and "nobody there" in str(error) and error.returncode == 1
    assert out.getvalue().splitlines()[1].startswith("default")


def test_stats_are_watched_until_ctrl_c(toy, monkeypatch):
    naps = []

    def nap(seconds):
        naps.append(seconds)
        fill(toy, str(len(naps)))
        if len(naps) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(queue_stats.time, "sleep", nap)
    lines = run("queue_stats", "-q", "toy", "--watch", "2.5", "--json").splitlines()
    assert [json.loads(line)[0]["ready"] for line in lines] == [0, 1, 2]
    assert naps == [2.5] * 3


@pytest.mark.parametrize("pause", ["0", "-1", "soon", "nan"])
def test_stats_refuse_a_bad_pause(pause):
    assert pause in str(failure("queue_stats", f"--watch={pause}"))


# ---- queue_errors


def test_errors_are_listed_with_their_reasons(queue):
    kill(queue, "first", "second")
    kill(queues["mail"], "third", words="no\nstamps")
    head, *lines = run("queue_errors", "list").splitlines()
    assert head.split() == list(queue_errors.HEAD)
    assert [line.split()[:3] for line in lines] == [
        ["first", "default", "app.commands.first"],
        ["second", "default", "app.commands.second"],
        ["third", "mail", "app.commands.third"],
    ]
    assert lines[0].endswith("1  ValueError: out of paint") and lines[2].endswith("ValueError: no stamps")


def test_errors_are_listed_as_json(queue):
    kill(queue, "first")
    [told] = run_json("queue_errors", "list")
    assert (told["id"], told["queue"], told["command"]) == ("first", "default", "app.commands.first")
    assert (told["attempts"], told["failures"], told["lost"], told["bytes"]) == (1, 1, 0, len(NOT_DECODABLE))
    assert told["reason"] == "ValueError: out of paint" and abs(told["died"] - queue.now()) < 60


def test_errors_of_some_queues_and_up_to_a_limit(queue):
    kill(queue, "a", "b", "c")
    kill(queues["mail"], "d")
    assert [one["id"] for one in run_json("queue_errors", "list", "--limit", "2")] == ["a", "b"]
    assert "--limit" in run("queue_errors", "list", "--limit", "2").splitlines()[-1]
    assert "--limit" not in run("queue_errors", "list", "--limit", "4")
    assert [one["id"] for one in run_json("queue_errors", "list", "-q", "mail")] == ["d"]
    assert "'0'" in str(failure("queue_errors", "list", "--limit=0"))


def test_no_errors_are_good_news(queue):
    assert run("queue_errors", "list") == "There are no errors.\n"
    assert run_json("queue_errors", "list") == []
    assert run("queue_errors", "retry", "--all") == "0 retried\n"


def test_an_error_is_shown_with_its_traceback(queue):
    kill(queues["mail"], "bad")
    text = run("queue_errors", "show", "bad")
    assert "app.commands.bad" in text and "1 (failed: 1, lost: 0)" in text
    assert "Traceback (most recent call last)" in text and text.rstrip().endswith("ValueError: out of paint")
    told = run_json("queue_errors", "show", "bad")
    assert told["queue"] == "mail" and told["notes"][0]["exception"] == "builtins.ValueError"
    assert "never decoded" not in text + json.dumps(told)


def test_what_a_stranger_sent_does_not_reach_the_terminal(queue):
    kill(queue, "bad", words="\x1b]0;owned\x07\x9b2J")
    for text in (run("queue_errors", "list"), run("queue_errors", "show", "bad")):
        assert "owned" in text and not {"\x1b", "\x07", "\x9b"} & set(text)


def test_errors_are_retried_by_their_ids_with_counts_afresh(queue):
    kill(queue, "a", "b")
    kill(queues["mail"], "c")
    assert run("queue_errors", "retry", "c", "a", "a") == "2 retried\n"
    assert [one["id"] for one in run_json("queue_errors", "list")] == ["b"]
    [lease] = queue.claim(10)
    assert (lease.entry.id, lease.entry.attempts, lease.entry.failures) == ("a", 1, 0)
    assert (lease.entry.data, len(queues["mail"])) == (NOT_DECODABLE, 1)


def test_errors_are_deleted_by_their_ids(queue):
    kill(queue, "a", "b")
    assert run("queue_errors", "delete", "b") == "1 deleted\n"
    assert [one["id"] for one in run_json("queue_errors", "list")] == ["a"]
    assert len(queue) == 0


@pytest.mark.parametrize(("verb", "waiting"), [("retry", 7), ("delete", 0)])
def test_all_errors_go_page_by_page(queue, monkeypatch, verb, waiting):
    monkeypatch.setattr(queue_errors, "CHUNK", 3)
    kill(queue, *"abcdefg")
    kill(queues["mail"], "other")
    assert run("queue_errors", verb, "--all", "-q", "default").startswith("7 ")
    assert (len(queue), len(queue.dead), len(queues["mail"].dead)) == (waiting, 0, 1)


def test_retrying_all_ends_even_if_everything_dies_again(queue, monkeypatch):
    """What is retried while the command runs, and dies at once, is not retried for ever."""
    monkeypatch.setattr(queue_errors, "CHUNK", 2)
    kill(queue, *"abcde")
    revive = type(queue).revive

    def revive_and_die(self, ids):
        count = revive(self, ids)
        for lease in self.claim(100):
            settle(self, [(lease, Verdict(Outcome.DEAD, "again"))])
        return count

    monkeypatch.setattr(type(queue), "revive", revive_and_die)
    assert run("queue_errors", "retry", "--all") == "5 retried\n"
    assert len(queue.dead) == 5


@pytest.mark.parametrize("verb", ["retry", "delete", "show"])
def test_an_unknown_id_is_an_error_after_the_others_are_done(queue, verb):
    kill(queue, "a")
    ids = ["nope"] if verb == "show" else ["nope", "a"]
    error = failure("queue_errors", verb, *ids)
    assert "nope" in str(error) and "'default', 'mail'" in str(error) and error.returncode == 1
    assert len(queue.dead) == (1 if verb == "show" else 0)


@pytest.mark.parametrize("args", [["retry"], ["delete", "a", "--all"]])
def test_ids_or_all_and_not_both(toy, args):
    assert "--all" in str(failure("queue_errors", *args, "-q", "default"))


@pytest.mark.parametrize("args", [["list"], ["show", "a"], ["retry", "--all"], ["delete", "a"]])
def test_a_four_method_queue_says_that_it_cannot(toy, args):
    assert "'toy' (ToyQueue)" in str(failure("queue_errors", *args, "-q", "toy"))


def test_a_four_method_queue_is_left_out_among_others(toy):
    kill(queues["default"], "a")
    out, err = io.StringIO(), io.StringIO()
    call_command("queue_errors", "list", stdout=out, stderr=err)
    assert out.getvalue().splitlines()[1].startswith("a ")
    assert "'toy' (ToyQueue)" in err.getvalue()


# ---- formatting


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "-"), (0.4, "0 s"), (59, "59 s"), (200, "3 min 20 s"), (7200, "2 h"), (93784, "1 d 2 h")],
)
def test_durations(seconds, text):
    assert tables.duration(seconds) == text


def test_moments_are_in_the_time_zone_of_the_project(settings):
    settings.TIME_ZONE = "Europe/Berlin"
    assert tables.moment(1_750_000_000) == "2025-06-15 17:06:40+02:00"
    assert tables.moment(0) == "-"


@pytest.mark.slow
@pytest.mark.backends("sqlite")
def test_exit_codes_as_the_shell_sees_them(site):
    kill(queues["default"], "a")
    assert "out of paint" in site.run("queue_errors", "list")
    assert site.start("queue_errors", "retry", "nope").wait() == 1
    assert site.start("queue_errors", "retry").wait() == 2
    assert site.start("queue_errors", "paint").wait() == 2
    assert "1 deleted" in site.run("queue_errors", "delete", "--all")
    assert json.loads(site.run("queue_stats", "--json"))[0]["dead"] == 0
