"""What queue_errors shows of a failed message: short ids, descriptions, arguments, and groups of failures."""

from dataclasses import replace

import pytest

from djqueue import queues, words
from djqueue.backends.entries import Entry
from djqueue.decorators import queue_command
from djqueue.exceptions import Fail
from djqueue.messages.failures import with_error
from djqueue.operations import actions
from djqueue.registry import registry
from tests.app.models import Thing
from tests.management.test_operator_commands import failure, run, run_json
from tests.support.consumer import run_one

pytestmark = pytest.mark.backends("memory", "sqlite", "redis")
MEMORY = pytest.mark.backends("memory")


@queue_command(describe=lambda order, **_: f"order {order}", sensitive=["address"])
def send_receipt(address, order):
    raise ConnectionError("the mail server does not answer")


@queue_command(models="reference")
def rename(thing, name):
    raise Fail("no such name")


@pytest.fixture
def queue(backend, settings):
    settings.QUEUES = backend.queues("default")
    return queues["default"]


def failed(command, *args, **kwargs) -> str:
    """The id of a message that failed."""
    id = command.enqueue(*args, **kwargs).id
    run_one(queues["default"])
    return id


def put_failed(queue, id, command="app.commands.charge", reason="ValueError: no paper", at=1_750_000_000.0, body=b""):
    """A message that failed at a moment, as a foreign process may have left it."""
    kind = reason.partition(":")[0]
    exception = {"ValueError": ValueError, "KeyError": KeyError}.get(kind)
    errors = with_error("", at=at, attempt=1, reason=reason, exception=exception and exception("x"))
    queue.put([Entry(body, id, command=command)])
    [lease] = queue.claim(1)
    queue.fail([replace(lease, entry=replace(lease.entry, errors=errors))])


# ---- descriptions and arguments


def test_the_arguments_are_shown_on_demand_with_sensitive_ones_masked(queue):
    id = failed(send_receipt, "ann@example.com", order=42)
    text = run("queue_errors", "show", id)
    assert "about     order 42\n" in text and "ann@" not in text and "call  " not in text
    assert "call      send_receipt(address=***, order=42)\n" in run("queue_errors", "show", id, "--arguments")
    told = run_json("queue_errors", "show", id, "--arguments")
    assert (told["call"], told["call_error"]) == ("send_receipt(address=***, order=42)", None)
    assert told["errors"][0]["description"] == "order 42"


def test_the_description_is_in_the_list_and_can_be_searched(queue):
    failed(send_receipt, "ann@example.com", 42)
    failed(send_receipt, "bob@example.com", 43)
    lines = run("queue_errors", "list", "--reason", "order 43").splitlines()[1:]
    assert len(lines) == 1 and lines[0].endswith("  order 43 · ConnectionError: the mail server does not answer")
    assert [one["description"] for one in run_json("queue_errors", "list")] == ["order 42", "order 43"]


def test_what_is_not_signed_is_not_decoded(queue, settings):
    id = failed(send_receipt, "ann@example.com", 42)
    settings.SECRET_KEY = "another one" * 5
    text = run("queue_errors", "show", id, "--arguments")
    assert "call      cannot be shown: bad signature" in text and "order=42" not in text
    assert run_json("queue_errors", "show", id, "--arguments")["call"] is None


@MEMORY
def test_a_stranger_is_shown_as_such(queue):
    put_failed(queue, "stranger", body=b"\x80\x05never decoded")
    assert "call      cannot be shown: not a message of djqueue" in run(
        "queue_errors", "show", "stranger", "--arguments"
    )


@MEMORY
def test_arguments_of_an_unknown_command_are_not_shown_as_they_may_be_sensitive(queue):
    id = failed(send_receipt, "ann@example.com", 42)
    registry.unregister(send_receipt)
    try:
        text = run("queue_errors", "show", id, "--arguments")
    finally:
        registry.register(send_receipt)
    assert "cannot be shown: it is not known which of its arguments are sensitive: unknown command" in text
    assert "ann@" not in text


@pytest.mark.backends("memory", "sqlite", database=True)
def test_a_model_that_is_gone_is_said(queue, db):
    thing = Thing.objects.create(name="lamp")
    id = failed(rename, thing, "light")
    assert "rename(thing=<Thing: lamp>, name='light')" in run("queue_errors", "show", id, "--arguments")
    pk = thing.pk
    thing.delete()
    text = run("queue_errors", "show", id, "--arguments")
    assert f"cannot be shown: {Thing._meta.label} {pk} is gone from the database 'default'" in text


# ---- ids


def test_an_id_may_be_cut_to_what_tells_it_from_others(queue):
    one, two, three = (failed(send_receipt, "ann@example.com", number) for number in range(3))
    ids = [line.split()[0] for line in run("queue_errors", "list").splitlines()[1:]]
    assert ids == [one[-8:], two[-8:], three[-8:]]
    assert all(f"id        {two}\n" in run("queue_errors", "show", part) for part in (two[-8:], two[-8:-2]))
    assert run("queue_errors", "retry", ids[0], three[:-1]) == "2 messages retried.\n"
    assert run("queue_errors", "delete", "--dry-run", two[:31]) == "1 message would be deleted.\n"
    assert [(one.action, one.count) for one in actions(limit=1)] == [("requeue", 2)]
    assert run("queue_errors", "list", "--full-ids").splitlines()[1].split()[0] == two
    assert run_json("queue_errors", "list")[0]["id"] == two


@MEMORY
@pytest.mark.parametrize("verb", ["show", "retry", "delete"])
def test_a_part_of_several_ids_lists_them_and_does_nothing(queue, verb):
    for id in ("abcd-1-zz01", "abcd-2-zz02", "efgh-3-zz03"):
        put_failed(queue, id)
    said = str(failure("queue_errors", verb, "abcd")).splitlines()
    assert said[0] == "abcd is a part of 2 ids, give more of one:"
    assert [line.split()[0] for line in said[1:]] == ["abcd-1-zz01", "abcd-2-zz02"]
    assert len(queue.failed) == 3
    error = str(failure("queue_errors", verb, "efg"))

    short = "efg (a part of an id has at least 4 characters)"
    assert error == f"Not in the failed queue of 'default': {short}; queue_errors list shows the ids"


@MEMORY
def test_what_is_clear_is_done_before_the_rest_is_refused(queue):
    for id in ("abcd-1-zz01", "abcd-2-zz02", "efgh-3-zz03"):
        put_failed(queue, id)
    error = failure("queue_errors", "delete", "abcd", "efgh", "nope!")
    assert str(error).splitlines()[:2] == [
        "Not in the failed queue of 'default': nope!; queue_errors list shows the ids",
        "abcd is a part of 2 ids, give more of one:",
    ]
    assert [one["id"] for one in run_json("queue_errors", "list")] == ["abcd-1-zz01", "abcd-2-zz02"]


@MEMORY
def test_short_ids_are_as_long_as_it_takes(queue):
    for id in ("1-abcdefghij", "2-abcdefghij", "short"):
        put_failed(queue, id)
    assert [line.split()[0] for line in run("queue_errors", "list").splitlines()[1:]] == [
        "1-abcdefghij", "2-abcdefghij", "short",
    ]  # fmt: skip


# ---- tables


@pytest.fixture
def failures_of_two_days(queue, monkeypatch, settings):
    """Messages that failed on two days, in a queue whose clock stands."""
    settings.TIME_ZONE = "Europe/Berlin"
    monkeypatch.setattr(words.time, "time", lambda: 1_750_000_100.0)
    for id, command, reason, at in [
        ("aaaa0001", "shop.commands.charge", "ValueError: no paper", 1_749_900_000.0),
        ("aaaa0002", "shop.commands.charge", "ValueError: no paper", 1_750_000_000.0),
        ("aaaa0003", "shop.commands.charge", f"KeyError: 'the {'very ' * 9}long name'", 1_750_000_001.0),
        ("aaaa0004", "warehouse.dispatch_every_parcel_of_the_day", "worker died: 3 starts were lost", 1_750_000_002.0),
    ]:
        monkeypatch.setattr(queue, "clock", lambda at=at: at)
        monkeypatch.setattr(queue.failed, "clock", lambda at=at: at)
        put_failed(queue, id, command, reason, at)


LISTS = {
    80: """\
id        command                 failed        attempts  reason
aaaa0001  charge                  Jun 14 13:20         1  ValueError: no paper
aaaa0002  charge                  17:06:40             1  ValueError: no paper
aaaa0003  charge                  17:06:41             1  KeyError: 'the very v…
aaaa0004  …ery_parcel_of_the_day  17:06:42             1  worker died: 3 starts…
""",
    110: """\
id        command                           failed        attempts  reason
aaaa0001  charge                            Jun 14 13:20         1  ValueError: no paper
aaaa0002  charge                            17:06:40             1  ValueError: no paper
aaaa0003  charge                            17:06:41             1  KeyError: 'the very very very very very v…
aaaa0004  dispatch_every_parcel_of_the_day  17:06:42             1  worker died: 3 starts were lost
""",
}


@MEMORY
@pytest.mark.parametrize("width", LISTS)
def test_the_list_is_as_wide_as_the_terminal(failures_of_two_days, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    assert run("queue_errors", "list") == LISTS[width]


@MEMORY
def test_failures_are_counted_by_command_and_exception(failures_of_two_days):
    assert (
        run("queue_errors", "summary")
        == """\
count  command                           exception    first         last      id of last
    2  charge                            ValueError   Jun 14 13:20  17:06:40  aaaa0002
    1  dispatch_every_parcel_of_the_day  worker died  17:06:42      17:06:42  aaaa0004
    1  charge                            KeyError     17:06:41      17:06:41  aaaa0003
"""
    )
    first, lost, _ = run_json("queue_errors", "summary")
    assert first == {
        "command": "shop.commands.charge", "exception": "builtins.ValueError", "count": 2,
        "first": "2025-06-14T11:20:00Z", "last": "2025-06-15T15:06:40Z",
        "id": "aaaa0002", "reason": "ValueError: no paper",
    }  # fmt: skip
    assert (lost["exception"], lost["reason"]) == (None, "worker died: 3 starts were lost")
    assert len(run_json("queue_errors", "summary", "--exception", "KeyError")) == 1
    assert run("queue_errors", "summary", "--command", "x") == "No failed message matches --command 'x'.\n"


def test_a_summary_is_of_all_that_is_there(queue):
    for number in range(3):
        failed(send_receipt, "ann@example.com", number)
    [group] = run_json("queue_errors", "summary")
    assert (group["command"], group["exception"], group["count"]) == (send_receipt.name, "builtins.ConnectionError", 3)
    assert group["id"] == run_json("queue_errors", "list")[-1]["id"] and group["first"] <= group["last"]


# ---- help


@MEMORY
@pytest.mark.parametrize("command", ["queue_stats", "queue_errors", "queue_lanes", "queue_history"])
def test_the_help_has_examples_and_ends_with_the_options_of_django(command, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        run(command, "--help")
    text = capsys.readouterr().out
    usage, examples, of_django = text.index("usage:"), text.index("examples:\n"), text.index("of every Django command")
    assert usage < examples < of_django and f"\n  manage.py {command}" in text
    assert (
        text.index("--settings") > of_django
        and text.index("--queue" if command != "queue_errors" else "list") < examples
    )
