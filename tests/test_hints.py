"""The names of other libraries are answered with what djqueue calls them."""

import copy
import importlib
import pickle
from datetime import timedelta
from unittest import mock

import pytest
from django.template import Context, Engine

import djqueue
from djqueue import (
    Debounce,
    Deferrable,
    Result,
    Retry,
    Throttle,
    Throttled,
    conf,
    hints,
    invoker,
    queue_command,
    queues,
    schedules,
)
from djqueue.backends.base import BaseQueue
from djqueue.backends.items import ItemVerbs
from djqueue.backends.memory import MemoryQueue
from djqueue.backends.redis_backend import RedisQueue
from djqueue.enqueueing.command import PeriodicCommand
from djqueue.exceptions import InvalidQueueError
from djqueue.hints import HINTS, answering
from djqueue.policies.options import OPTIONS
from djqueue.registry import registry
from djqueue.schedules import add
from djqueue.throttle import ThrottledQueue


@queue_command
def paint(picture):
    raise NotImplementedError


def test_no_hint_hides_what_is_there():
    assert not HINTS["option"].keys() & OPTIONS.keys()
    assert not HINTS["package"].keys() & set(djqueue.__all__)
    assert not [name for name in HINTS["command"] if hasattr(PeriodicCommand, name)]
    assert not [name for name in HINTS["result"] if hasattr(Result, name)]
    assert not [name for name in HINTS["queue"] if hasattr(ItemVerbs, name)]
    assert not HINTS["schedule"].keys() & OPTIONS.keys()
    assert not HINTS["setting"].keys() & conf.SETTINGS.keys()
    called = {answer.removeprefix("djqueue calls it ") for answer in HINTS["option"].values()}
    assert {name for name in called if name.isidentifier()} <= OPTIONS.keys()
    assert add.__name__ == "add", "named in hints as schedules.add"
    with pytest.raises(TypeError, match="Registry has task_name"):
        answering("command")(type("Registry", (), {"task_name": "x"}))


def test_each_name_has_one_answer_in_its_place():
    for place, answers in hints._ANSWERS.items():
        names = [name for one in answers for name in one.split()]
        assert len(names) == len(set(names)) == len(HINTS[place])


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("countdown", "djqueue calls it delay"),
        ("autoretry_for", "djqueue calls it retry_on"),
        ("retry_backoff", r"djqueue calls it backoff=Backoff\(first=seconds"),
        ("queue", "djqueue calls it queue_name"),
        ("default_retry_delay", "djqueue calls it backoff"),
        ("max_age", "djqueue calls it ttl, in seconds and not in milliseconds"),
        (
            "failure_ttl",
            "failed messages stay in the failed queue until .*, or for the setting QUEUE_MAX_ERROR_AGE",
        ),
        ("throttleWindow", r"djqueue calls it throttle=Throttle\(limit, window\)"),
        ("if_not_exists", "djqueue calls it unique='queued'"),
        ("bind", r"current_message\(\) is the message that runs"),
        ("name", "a command has the name of its function"),
    ],
)
def test_an_option_of_another_library_is_told_by_its_name_here(name, own):
    for take in (queue_command, paint.using):
        with pytest.raises(TypeError, match=f"^Unknown option '{name}': {own}"):
            take(**{name: 1})


def test_an_attribute_of_another_library_is_told_by_what_there_is_here():
    jobs = Deferrable()
    owners = {
        paint: "command",
        Result("1"): "result",
        MemoryQueue("q"): "queue",
        queues: "queues",
        registry: "registry",
        jobs: "Deferrable",
        jobs.queue: "queue of a Deferrable",
    }
    for owner, place in owners.items():
        for name, hint in HINTS[place].items():
            with pytest.raises(AttributeError) as caught:
                getattr(owner, name)
            said = f"'{type(owner).__name__}' object has no attribute '{name}': {hint}."
            assert str(caught.value) == said and caught.value.name == name
            assert not hasattr(owner, name) and name not in dir(owner) and not hasattr(type(owner), name)


@pytest.mark.parametrize(
    ("owner", "name", "own"),
    [
        (MemoryQueue("q"), "push_batch", r"use \.push_many\(items\)"),
        (MemoryQueue("q"), "pop_batch", r"use \.take_many\(n\)"),
        (MemoryQueue("q"), "error_queue", r"in \.failed, a queue"),
        (MemoryQueue("q"), "backend", "CLASS in QUEUES"),
        (ThrottledQueue(MemoryQueue("q"), limit=1, window=60), "allowed", r"\.refusal says why"),
        (MemoryQueue("q"), "register", r"use Handler\.enqueue\(\*requests\)"),
        (MemoryQueue("q"), "smembers", r"\.peek\('leased'\)"),
        (MemoryQueue("q"), "smove", r"use \.take\(lease=seconds\)"),
        (MemoryQueue("q"), "ack", r"use \.complete\(lease\)"),
        (MemoryQueue("q"), "cleaner", r"use \.reap\(\)"),
        (Deferrable(), "backend", r"the queue is \.queue"),
        (registry, "get_periodic_commands", r"use \.periodic\(\)"),
        (djqueue, "Handler", "BatchCommand"),
        (djqueue, "Tube", "a lane"),
        (djqueue, "RuntimeStorage", "CLASS in QUEUES"),
        (djqueue, "RedisThrottledQueue", r"ThrottledQueue\(queue, limit=10, window=5\)"),
        (djqueue, "SQSBackendFactory", "CLASS in QUEUES"),
    ],
)
def test_a_name_of_the_five_systems_is_answered_with_what_there_is_here(owner, name, own):
    with pytest.raises(AttributeError, match=f"'{name}'.*{own}"):
        getattr(owner, name)


def test_objects_with_hints_are_otherwise_as_any():
    result, queue = Result("1", "shop.paint"), MemoryQueue("q")
    for owner in (result, queue, queues, paint):
        with pytest.raises(AttributeError, match="object has no attribute 'no_such_name'$"):
            owner.no_such_name  # noqa: B018
        for name in ("__wrapped", "__html__", "_repr_html_", "__array__"):
            assert not hasattr(owner, name)
        stand_in = mock.create_autospec(owner, spec_set=True)
        assert not hasattr(stand_in, "task")
    assert copy.copy(result) == copy.deepcopy(result) == pickle.loads(pickle.dumps(result)) == result
    assert (
        Engine().from_string("{{ result.id }} {{ result.command }}").render(Context({"result": result}))
        == "1 shop.paint"
    )


class Counting(BaseQueue):
    """A backend that has names of its own which are those of other libraries."""

    def __init__(self, name, connection=None):
        super().__init__(name, connection)
        self.jobs = ["one"]

    def count(self):
        return len(self.jobs)

    @property
    def scheduled(self):
        return self.no_such_name


def test_what_a_backend_has_is_there():
    queue = Counting("q")
    assert queue.count() == 1 and queue.jobs == ["one"] and {"count", "jobs", "scheduled"} <= {*dir(queue)}
    with pytest.raises(AttributeError, match="no attribute 'no_such_name'$"):
        queue.scheduled  # noqa: B018


class Broken(Result):
    @property
    def status(self):
        raise AttributeError("of the store")


def test_an_error_within_a_property_is_told_as_it_is():
    with pytest.raises(AttributeError, match="^of the store$"):
        Broken("1").status  # noqa: B018


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: Result("1")(), "'Result' object is not callable: use .get(timeout=seconds)."),
        (lambda: Result("1")(blocking=True), "'Result' object is not callable: use .get(timeout=seconds)."),
        (lambda: Result("1").get(True), "get(timeout=…) is True: give seconds or a timedelta."),
        (lambda: Result("1").get("5"), "get(timeout=…) is '5': give seconds or a timedelta."),
        (
            lambda: Result("1").get(blocking=True),
            "get() has no argument 'blocking': it waits, for at most get(timeout=",
        ),
        (lambda: queues("mail"), "queues is no function: queues['mail'] is the queue of an alias."),
        (lambda: paint.using(5), "options are given by name, as in using(delay=5)."),
        (lambda: paint.using("mail"), "options are given by name, as in using(queue_name='mail')."),
        (lambda: invoker.enqueue(paint, 1), "the command of a function: call it, or use paint.enqueue(...)."),
        (lambda: invoker.enqueue(paint.name, 1), "the name of a command: import paint, and call it."),
        (lambda: Result("1") + 1, "a Result is the handle of a call, not its value: use .get(timeout=seconds)."),
        (lambda: 1 - Result("1"), "a Result is the handle of a call, not its value"),
        (lambda: int(Result("1")), "a Result is the handle of a call, not its value"),
        (lambda: [*Result("1")], "a Result is the handle of a call, not its value"),
        (lambda: Result("1")["key"], "a Result is the handle of a call, not its value"),
        (lambda: Result("1") > 1, "a Result is the handle of a call, not its value"),
        (lambda: paint.enqueue_many(5), "enqueue_many() takes a list of calls, as in [(1,), (2,)], not 5."),
        (lambda: paint.enqueue_many([{1: 2}]), "enqueue_many() takes tuples (positional arguments) or dicts (by name)"),
        (lambda: paint.call("a", delay=5), "delay is an option: write paint.using(delay=5).enqueue(...)"),
        (lambda: paint("a", 2), "too many positional arguments. Call it as paint(picture)"),
        (
            lambda: paint(pictur="a"),
            "unexpected argument 'pictur' (did you mean 'picture'?). Call it as paint(picture)",
        ),
        (lambda: paint(pic="a"), "unexpected argument 'pic' (did you mean 'picture'?). Call it as paint(picture)"),
        (lambda: paint(), "missing a required argument: 'picture'. Call it as paint(picture)"),
        (lambda: schedules.add("x", paint, every=60), "Its arguments are given as args=(...) or kwargs={...}."),
        (lambda: MemoryQueue("q").complete("1"), "'1' is no lease: give the lease that the queue handed out, or a"),
        (lambda: RedisQueue(object(), "q"), "The name of a queue is a object: it comes first, RedisQueue("),
        (lambda: Debounce(5, merge=lambda one: one), "Debounce(merge=…) cannot take two calls: give a function of"),
        (
            lambda: queue_command(debounce=5, merge=lambda one: one),
            "merge cannot take two calls: give a function of the",
        ),
        (lambda: Retry(countdown=5), "Retry has no argument 'countdown': write Retry(after=5, reason="),
        (lambda: Retry(exc=OSError()), "Retry has no argument 'exc': write Retry(after=5, reason="),
        (lambda: Retry(5, after=5), "Retry was given more than a wait and a reason: write Retry(after=5, reason="),
        (lambda: Retry("one", "two"), "Retry was given more than a wait and a reason"),
        (lambda: Retry(after="5"), "Retry(after=…) is '5': give seconds or a timedelta."),
        (lambda: Throttled(after=5), "Throttled has no argument 'after': write Throttled(retry_after=5, reason="),
        (lambda: schedules.add(paint, every=60), 'takes a name first, and a command: schedules.add("nightly", command'),
        (lambda: schedules.add("x", every=60), 'takes a name first, and a command: schedules.add("nightly", command'),
        (lambda: schedules.add("x", paint, cron="@daily"), "no argument 'cron': give crontab=crontab.parse('@daily')."),
        (lambda: schedules.add("x", paint, minutes=5), "no argument 'minutes': give every=timedelta(minutes=5)."),
        (lambda: schedules.add("x", paint, repeats=3), "no argument 'repeats': give an rrule that ends, as in rrule="),
        (lambda: schedules.add("x", paint, next_run=3), "no argument 'next_run': give start=datetime."),
        (lambda: schedules.add("x", paint, hook=print), "no argument 'hook': djqueue.signals say what became of"),
        (lambda: schedules.add("x", paint, timeout=5), "no argument 'timeout': djqueue calls it time_limit."),
        (lambda: schedules.add("x", paint, ttl=5), "options are given with the command, as in command.using(ttl=5)."),
        (lambda: schedules.add("x", paint, picture=5), "arguments of the command go into kwargs={}"),
        (
            lambda: schedules.add("x", paint, ("a",), crontab="@daily"),
            "give crontab(hour=0, minute=0), or crontab.parse(",
        ),
    ],
)
def test_a_call_as_another_library_takes_it_is_told_how_it_is_written_here(call, words):
    with pytest.raises(TypeError) as caught:
        call()
    assert words in "\n".join([str(caught.value), *getattr(caught.value, "__notes__", [])])


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: Throttle(10), "Throttle(10) has no window: write Throttle(10, 60) for 10 in 60 seconds."),
        (lambda: Throttle("10/m"), "Throttle('10/m') has no window: write Throttle(10, 60)"),
        (lambda: RedisQueue("127.0.0.1:6379:0", "q"), "looks like a connection: it comes first, RedisQueue("),
        (lambda: RedisQueue("redis://127.0.0.1:1", "q"), "looks like a connection"),
        (lambda: schedules.add("x", paint, ["a"], rrule="FREQ=DAYLY"), "DAYLY. Give one as in 'FREQ=DAILY;BYHOUR=6'."),
        (lambda: queue_command(debounce=5, unique=True), "each decides whether a call counts. Give one of them."),
    ],
)
def test_a_value_as_another_library_takes_it_is_told_how_it_is_written_here(call, words):
    with pytest.raises((ValueError, InvalidQueueError)) as caught:
        call()
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("given", "after", "reason"),
    [
        (Retry(), None, ""),
        (Retry(5), 5.0, ""),
        (Retry("the bank is busy"), None, "the bank is busy"),
        (Retry("the bank is busy", after=timedelta(minutes=1)), 60.0, "the bank is busy"),
        (Retry(5, "the bank is busy"), 5.0, "the bank is busy"),
        (Retry(after=5, reason="the bank is busy"), 5.0, "the bank is busy"),
    ],
)
def test_retry_takes_a_wait_and_a_reason(given, after, reason):
    for error in (given, pickle.loads(pickle.dumps(given))):
        assert (error.after, error.reason) == (after, reason)
        assert str(error) == (reason or "asked to be run again")


@pytest.mark.parametrize("name", sorted(HINTS["package"]))
def test_a_name_of_another_package_is_told_when_it_is_imported(name):
    with pytest.raises(ImportError, match=f"^djqueue has no '{name}': "):
        exec(f"from djqueue import {name}")
    with pytest.raises(AttributeError, match=f"^djqueue has no '{name}': "):
        getattr(djqueue, name)
    assert not hasattr(djqueue, name)


def test_an_unknown_name_is_an_attribute_error_as_of_any_module():
    assert not hasattr(djqueue, "no_such_name")
    with pytest.raises(ImportError, match="cannot import name 'no_such_name'"):
        exec("from djqueue import no_such_name")
    with pytest.raises(ImportError, match="^djqueue has no 'queue_comand'; did you mean 'queue_command'?"):
        exec("from djqueue import queue_comand")
    exec("from djqueue import throttle, results")  # modules, with names like those of the package


def test_crontab_and_queues_are_what_they_are_called():
    for module in ("djqueue.decorators", "djqueue.wiring", "djqueue.timetables"):
        importlib.import_module(module)
    from djqueue import crontab, queues

    assert crontab(hour=3, minute=0).next
    assert "default" in queues
