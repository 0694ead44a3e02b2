"""queue_lanes, as an operator uses it."""

from dataclasses import replace

import pytest

from djqueue import Throttle, queue_command, queues
from djqueue.backends.base import Entry
from djqueue.flow.gates import Gate
from djqueue.flow.windows import Window
from djqueue.messages.envelope import new_id
from tests.management.test_operator_commands import TOY, failure, run, run_json

pytestmark = pytest.mark.backends("memory", "sqlite", "postgres")
ORDERED = Gate(ordered=True).written()
PAUSED = "The lane ship:7 in default is paused.\n"
THROTTLED = Gate(windows=(Window(1, 3600.0),)).written()


def put(queue, lane, *ids, gate=ORDERED):
    assert all(queue.put([Entry(b"", id, lane=lane, gate=gate, command="app.ship") for id in ids]))


def cells(out):
    """The rows below the head, by lane: their other cells."""
    return {line.split()[0]: line.split()[1:] for line in out.splitlines()[1:]}


def test_it_says_of_each_lane_how_it_stands(queue):
    put(queue, "busy", "b1", "b2")
    assert [lease.entry.id for lease in queue.claim(1)] == ["b1"]
    put(queue, "slow", "s1", "s2", gate=THROTTLED)
    assert [lease.entry.id for lease in queue.claim(1)] == ["s1"]
    put(queue, "open", "o1")
    put(queue, "shut", "x1", "x2")
    queue.lanes.pause("shut", "no paper")
    queue.lanes.pause("void", "nothing\nhere yet")
    out = run("queue_lanes")
    assert out.split()[:7] == ["lane", "state", "waiting", "running", "ready", "in", "reason"]
    found = cells(out)
    assert found["busy"] == ["busy", "1", "1", "-", "-"]
    assert found["open"] == ["ready", "1", "0", "-", "-"]
    assert found["shut"] == ["paused", "2", "0", "-", "no", "paper"]
    assert found["void"] == ["paused", "0", "0", "-", "nothing", "here", "yet"]
    assert found["slow"][:3] == ["scheduled", "1", "1"]
    assert found["slow"][3] == "59m"


@pytest.mark.backends("memory")
def test_one_that_only_remembers_what_left_it_is_empty_and_opens_at_no_time(queue):
    put(queue, "slow", "s1", gate=THROTTLED)
    queue.complete(queue.claim(1))
    assert cells(run("queue_lanes")) == {"slow": ["empty", "0", "0", "-", "-"]}
    [lane] = run_json("queue_lanes")
    assert (lane["state"], lane["opens"]) == ("empty", None)


@pytest.mark.backends("memory")
def test_one_is_not_empty_while_others_wait_in_its_line(queue):
    put(
        queue, "own:1", "o1", "o2", gate=Gate(parent="shared", parent_gate=Gate(windows=(Window(1, 3600.0),))).written()
    )
    assert cells(run("queue_lanes"))["shared"][0] == "ready"
    queue.complete(queue.claim(1))
    found = cells(run("queue_lanes"))
    assert found["own:1"][:2] == ["queued", "1"]
    assert found["shared"][:4] == ["scheduled", "0", "0", "59m"]


def test_json_has_all_that_is_known(queue):
    put(queue, "shut", "x1")
    queue.lanes.pause("shut", "no paper")
    [lane] = run_json("queue_lanes")
    assert lane == {
        "name": "shut", "queue": "default", "state": "paused", "waiting": 1, "in_flight": 0, "opens": None,
        "paused_reason": "no paper", "parent": None, "capped": None,
    }  # fmt: skip


def test_what_is_too_much_is_cut_and_said(queue):
    for number in range(4):
        put(queue, f"lane-{number}", f"id-{number}")
    out = run("queue_lanes", "--limit", "3")
    assert len(cells(out)) == 4, "and that there are more"
    assert out.endswith("… and more: see --limit\n")
    assert "and more" not in run("queue_lanes", "--limit", "4")


def test_without_lanes_it_says_so(queue):
    queue.put([Entry(b"", "plain")])
    assert run("queue_lanes") == "No lane holds or remembers anything.\n"


@pytest.mark.backends("memory", "sqlite", "postgres", "mariadb", "redis")
def test_it_says_what_the_throttle_of_a_queue_lets_through(backend, settings):
    settings.QUEUES = backend.queues()
    settings.QUEUES["default"]["THROTTLE"] = {"limit": 2, "window": 3600, "window_name": new_id()}
    queue, empty = queues["default"], "No lane holds or remembers anything.\n"
    queue.push_many("abc")
    for _ in range(2):  # to ask spends nothing
        free = "The queue 'default' is not throttled now (at most 2 per 3600 s, 0 used)."
        assert run("queue_lanes") == f"{free}\n{empty}"
    assert [queue.pop() for _ in range(3)] == ["a", "b", None]
    out = run("queue_lanes", "-q", "default")
    assert out.startswith("The queue 'default' is throttled for 59m")
    assert "(at most 2 per 3600 s, 2 used)" in out
    assert run_json("queue_lanes") == []
    queue.rate_limit = replace(queue.rate_limit, window=Window(3, 3600.0))
    assert "(at most 2 per 3600 s, 2 used; its settings say 3 per 3600 s)" in run("queue_lanes")


def test_a_lane_is_paused_and_resumed(queue):
    put(queue, "ship:7", "s1")
    assert run("queue_lanes", "--pause", "ship:7", "--reason", "no paper") == PAUSED
    assert queue.lanes.get("ship:7").paused_reason == "no paper"
    assert queue.claim(1) == []
    assert run("queue_lanes", "--resume", "ship:7") == "The lane ship:7 in default is resumed.\n"
    assert [lease.entry.id for lease in queue.claim(1)] == ["s1"]
    assert "neither paused nor held" in str(failure("queue_lanes", "--resume", "ship:7"))


def test_the_first_message_of_a_lane_is_skipped(queue, monkeypatch):
    put(queue, "ship:7", "s1", "s2")
    queue.lanes.pause("ship:7", "no paper")
    monkeypatch.setattr("builtins.input", lambda question: asked.append(question) or answers.pop())
    asked, answers = [], ["yes", "no"]
    assert run("queue_lanes", "--skip", "ship:7") == "Nothing is changed.\n"
    question = "Cancel message s1, the first of the lane ship:7, for good, and let the lane go on with the 1 message"
    assert asked[0].startswith(question)
    assert run("queue_lanes", "--skip", "ship:7") == "Message s1 is cancelled, and the lane ship:7 goes on.\n"
    assert [lease.entry.id for lease in queue.claim(2)] == ["s2"]
    told = failure("queue_lanes", "--skip", "ship:7", "--no-input")
    assert str(told) == "No message waits in the lane ship:7."


def test_queue_pause_and_queue_resume_do_the_same(queue):
    put(queue, "ship:7", "s1")
    assert run("queue_pause", "--lane", "ship:7", "-q", "default", "--reason", "no paper") == PAUSED
    assert queue.lanes.get("ship:7").paused_reason == "no paper"
    assert run("queue_resume", "--lane", "ship:7") == "The lane ship:7 in default is resumed.\n"
    assert "did you mean ship:7?" in str(failure("queue_pause", "--lane", "shp:7"))
    for wrong, text in ((["--for", "1m"], "leave out --for"), (["mail"], "stands alone")):
        error = failure("queue_pause", "--lane", "ship:7", *wrong)
        assert (error.returncode, text in str(error)) == (2, True)
    assert failure("queue_resume", "--lane", "ship:7", "--all").returncode == 2


@queue_command(shard=lambda customer: customer, throttle=Throttle(5, 60))
def ship(customer):
    raise NotImplementedError


@queue_command(shard=lambda customer: customer)
def load(customer):
    raise NotImplementedError


@queue_command(concurrency=1)
def tidy():
    raise NotImplementedError


@queue_command
def free():
    raise NotImplementedError


@pytest.mark.backends("memory")
def test_a_name_that_is_none_is_not_paused_unless_that_is_forced(queue):
    put(queue, "app.pack:7", "p1")

    def refused(name):
        error = failure("queue_lanes", "--pause", name)
        assert error.returncode == 1 and queue.lanes.get(name) is None
        return str(error).partition(" Nothing is paused; queue_lanes --pause --force pauses")[0]

    assert refused("app.pakc:7") == "No lane and no command has the name app.pakc:7; did you mean app.pack:7?"
    assert refused("pack:7") == "No lane and no command has the name pack:7; did you mean app.pack:7?"
    assert refused("tidy") == f"No lane and no command has the name tidy; did you mean {tidy.name}?"
    assert refused("ship:7") == f"No lane and no command has the name ship:7; did you mean {ship.name}:7?"
    assert refused("ship") == f"No lane and no command has the name ship; did you mean {ship.name}:KEY?"
    assert refused("?") == "No lane and no command has the name ?."
    keyed = "Calls of {0} wait in a lane for each key: give {0}:KEY"
    assert refused(load.name) == f"{keyed.format(load.name)}."
    assert refused(ship.name) == f"{keyed.format(ship.name)}, or {ship.name}* for all of them."
    for name in ("free", "free:7", free.name, f"{free.name}:7"):
        assert refused(name).startswith(f"Calls of {free.name} wait in no lane: to be able to pause them")
    typo = free.name[:-1]
    assert refused(typo).startswith(f"There is no {typo}. Calls of {free.name} wait in no lane: ")
    for name in (tidy.name, f"{ship.name}:7", f"{ship.name}*", "app.pack:7"):
        assert run("queue_lanes", "--pause", name) == f"The lane {name} in default is paused.\n"
    forced = run("queue_lanes", "--pause", "app.pakc:7", "--force")
    assert forced == "The lane app.pakc:7 in default is paused.\n"


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.backends("memory")
def test_the_table_is_as_wide_as_the_terminal(queue, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    put(queue, "warehouse.commands.dispatch_all_parcels_of_customer:12345", *(str(number) for number in range(1234)))
    queue.lanes.pause("warehouse.commands.dispatch_all_parcels_of_customer:12345", "the printer is out of paper " * 3)
    head, line, blank, *whole = run("queue_lanes").splitlines()
    assert len(line) == width and max(map(len, whole)) <= width
    assert "".join(whole).count("printer") == 3
    assert (" 1,234 " in line, "customer:12345" in line, "the pri" in line) == (True, True, True)


def test_what_a_stranger_named_cannot_command_the_terminal(queue):
    put(queue, "\x1b[2J", "s1")
    assert "\x1b" not in run("queue_lanes")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--reason", "x"], "give --pause NAME too"),
        (["--force"], "give --pause NAME too"),
        (["--pause", "a", "--resume", "b"], "not allowed with"),
        (["--limit", "0"], "no limit"),
        (["-q", "nowhere"], "nowhere"),
    ],
)
def test_wrong_usage_is_refused(queue, given, words):
    assert words in str(failure("queue_lanes", *given))


def test_which_queue_must_be_said_where_there_are_several(backend, settings):
    settings.QUEUES = backend.queues("default", "slow")
    assert failure("queue_lanes", "--pause", "a").returncode == 2
    put(queues["slow"], "a", "s1")
    run("queue_lanes", "-q", "slow", "--pause", "a")
    assert run("queue_lanes").splitlines()[1].split()[:3] == ["a", "slow", "paused"]
    assert (queues["default"].lanes.get("a"), queues["slow"].lanes.get("a").paused_reason) == (None, "paused by hand")
    assert run("queue_lanes", "--resume", "a") == "The lane a in slow is resumed.\n"


@pytest.mark.backends("memory")
def test_a_lane_that_is_held_in_several_queues_is_resumed_in_the_one_that_is_said(backend, settings):
    settings.QUEUES = backend.queues("default", "slow")
    put(queues["slow"], "a", "s1")
    run("queue_lanes", "-q", "default", "--pause", "a", "--force")
    assert run("queue_lanes", "--resume", "a") == "The lane a in default is resumed.\n"
    for alias in ("default", "slow"):
        run("queue_lanes", "-q", alias, "--pause", "a", "--force")
    error = failure("queue_lanes", "--resume", "a")
    text = "The lane a is held in default, slow: say where to resume it, -q ALIAS."
    assert (error.returncode, str(error)) == (2, text)
    assert run("queue_lanes", "-q", "slow", "--resume", "a") == "The lane a in slow is resumed.\n"
    assert queues["default"].lanes.get("a").paused_reason == "paused by hand"


def test_a_queue_without_lanes_is_named(backend, settings):
    settings.QUEUES = backend.queues() | {"toy": {"CLASS": TOY, "CONNECTION": {}, "STORE": False}}
    assert run("queue_lanes") == "No lane holds or remembers anything.\n"
    assert "'toy' (ToyQueue)" in str(failure("queue_lanes", "-q", "toy"))
