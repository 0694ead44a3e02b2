"""Functions and classes become commands, or are refused with a reason."""

import asyncio
import dataclasses
import functools
import inspect
import pickle
from datetime import datetime, timedelta

import pytest
from django.core.exceptions import SynchronousOnlyOperation

from djqueue import crontab, periodic_command, queue_command, queues
from djqueue.enqueueing.command import Command, PeriodicCommand
from djqueue.exceptions import EncodeError, MessageTooLarge
from djqueue.policies.options import OPTIONS, CommandOptions
from djqueue.policies.policy import TASK, Policy
from djqueue.registry import registry
from tests.support.notes import cleared_per_test

NAME = __name__
ran = cleared_per_test([])


@queue_command
def bare(number, *, word="x"):
    """What bare does."""
    ran.append((number, word))
    return number * 2


@queue_command(
    queue_name="default", priority=3, delay=timedelta(minutes=1), max_lost=5, serializer="json", models="pickle"
)
def optioned():
    ran.append("optioned")


@queue_command
async def later(number):
    await asyncio.sleep(0)
    ran.append(number)
    return number + 1


def plain():
    return "plain"


def wrapping(func):
    @functools.wraps(func)
    def inner(*args, **kwargs):
        return func(*args, **kwargs) + "!"

    return inner


@queue_command
@wrapping
def wrapped(word):
    return word


@periodic_command(crontab(hour=0, minute=0))
def nightly(word="night"):
    return word


@pytest.fixture(autouse=True)
def memory_queue(settings):
    settings.QUEUES = {"default": {"CLASS": "djqueue.backends.memory.MemoryQueue"}}
    return queues["default"]


# ---- the decorator


def test_a_bare_decorator_makes_a_command_that_runs_here_and_pickles_by_name():
    assert isinstance(bare, Command)
    assert bare.name == f"{NAME}.bare"
    assert (bare.__name__, bare.__module__, bare.__doc__) == ("bare", NAME, "What bare does.")
    assert bare.__wrapped__(4) == 8
    assert repr(bare) == f"<Command {NAME}.bare>"
    assert pickle.loads(pickle.dumps(bare)) is bare
    assert ran.pop() == (4, "x")
    assert bare.call(4, word="y") == 8
    assert ran == [(4, "y")]


def test_options_become_the_policy(memory_queue):
    policy = optioned.policy
    assert (policy.queue_name, policy.priority, policy.delay, policy.max_lost) == ("default", 3, 60.0, 5)
    optioned()
    [record] = memory_queue.peek("delayed")
    assert record.entry.priority == 3


def test_an_async_function_and_a_wrapped_one_are_commands_and_keep_their_names():
    assert later.is_async
    assert asyncio.run(later.call(4)) == 5
    assert ran == [4]
    assert wrapped.name == f"{NAME}.wrapped"
    assert wrapped.call("hey") == "hey!"
    with pytest.raises(TypeError, match="word"):
        wrapped.enqueue()


@pytest.mark.parametrize("command", [bare, later, nightly], ids=["function", "async", "periodic"])
def test_using_returns_a_changed_copy_of_the_same_class(command):
    copy = command.using(priority=7).using(max_lost=2)
    assert (type(copy), copy.name) == (type(command), command.name)
    assert (copy.func, copy.inline) == (command.func, command.inline)
    assert (copy.policy.priority, copy.policy.max_lost) == (7, 2)
    assert (copy.declared, command.declared) == (command, command)
    assert command.policy.priority is None
    assert registry[command.name] is command


def test_a_changed_copy_pickles_with_its_options_and_is_not_registered():
    copy = pickle.loads(pickle.dumps(bare.using(priority=7)))
    assert (type(copy), copy.declared, copy.policy) == (Command, bare, bare.using(priority=7).policy)
    with pytest.raises(TypeError, match="bare is declared already: what using"):
        registry.register(bare.using(priority=7))
    assert registry[bare.name] is bare


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"prioritty": 3}, TypeError, "prioritty.*priority"),
        ({"priority": "high"}, TypeError, "priority is 'high'"),
        ({"priority": True}, TypeError, "priority is True"),
        ({"priority": 2**31}, ValueError, "priority is 2147483648"),
        ({"delay": -1}, ValueError, "delay is -1"),
        ({"delay": "soon"}, TypeError, "delay is 'soon'"),
        ({"delay": float("nan")}, ValueError, "delay is nan"),
        ({"delay": float("inf")}, ValueError, "delay is inf"),
        ({"queue_name": ""}, TypeError, "queue_name is ''"),
        ({"queue_name": 3}, TypeError, "queue_name is 3"),
        ({"max_lost": 0}, ValueError, "max_lost is 0"),
        ({"max_lost": True}, ValueError, "max_lost is True"),
        ({"serializer": "yaml"}, ValueError, "serializer is 'yaml'.*'pickle', 'json'"),
        ({"models": "values"}, ValueError, "models is 'values'"),
        ({"run_after": datetime(2030, 1, 1)}, ValueError, "run_after.*aware"),
        ({"run_after": 3}, TypeError, "run_after is 3"),
        ({"delay": 3, "run_after": datetime(2030, 1, 1)}, ValueError, "delay and run_after"),
    ],
)
def test_bad_options_are_refused_when_they_are_given(options, error, words):
    with pytest.raises(error, match=words):
        queue_command(**options)
    with pytest.raises(error, match=words):
        bare.using(**options)


@pytest.mark.parametrize(
    ("thing", "words"),
    [
        ("mail", "options are given by name, as in queue_name='mail'"),
        (bare, "bare is a command already: decorate it once"),
        (nightly, "nightly is a command already.* can be sent by hand too"),
    ],
)
def test_a_queue_name_and_a_second_decorator_are_answered_with_the_mend(thing, words):
    for decorate in (queue_command, queue_command(), periodic_command(crontab(minute=0))):
        with pytest.raises(TypeError, match=words):
            decorate(thing)


def test_the_repr_of_a_copy_has_its_options_and_says_that_it_is_to_be_enqueued():
    copy = bare.using(delay=3, priority=7)
    assert repr(copy) == f"<Command {NAME}.bare using(priority=7, delay=3.0): call .enqueue(...) on it>"


class Holder:
    def method(self):
        raise NotImplementedError

    class Callable:
        def __call__(self):
            raise NotImplementedError


@pytest.mark.parametrize(
    "thing",
    [
        lambda: None,
        Holder.method,
        Holder().method,
        Holder,
        Holder.Callable(),
        functools.partial(plain),
        print,
        "text",
        bare,
        staticmethod(plain),
    ],
    ids=["lambda", "method", "bound", "class", "instance", "partial", "builtin", "text", "command", "staticmethod"],
)
@pytest.mark.parametrize("decorate", [queue_command, queue_command(), periodic_command(crontab())])
def test_what_is_no_function_of_a_module_is_refused(decorate, thing):
    with pytest.raises(TypeError):
        decorate(thing)


def test_a_nested_function_is_refused():
    def nested():
        raise NotImplementedError

    with pytest.raises(TypeError, match="nested.*function of a module.*below this one needs functools.wraps"):
        queue_command(nested)
    assert f"{NAME}.{nested.__qualname__}" not in registry


def generator():
    yield "nothing"


async def async_generator():
    yield "nothing"


@pytest.mark.parametrize("func", [generator, async_generator])
@pytest.mark.parametrize("decorate", [queue_command, queue_command(), periodic_command(crontab())])
def test_a_generator_is_refused(decorate, func):
    with pytest.raises(TypeError, match=rf"{func.__name__} is a generator \(it has a yield\)"):
        decorate(func)
    assert f"{NAME}.{func.__name__}" not in registry


def test_the_options_are_those_of_the_type_checkers_and_set_the_fields_of_a_policy_and_no_others():
    assert CommandOptions.__annotations__.keys() == OPTIONS.keys()
    told = set().union(*(option.fields for option in OPTIONS.values()))
    assert told | {TASK} == {field.name for field in dataclasses.fields(Policy) if field.init}
    known = {name for option in OPTIONS.values() for name in (*option.part_of, *option.requires, option.instead)}
    assert known - {""} <= OPTIONS.keys()
    assert {name for option in OPTIONS.values() for name in option.excludes} <= told


# ---- arguments


@pytest.mark.parametrize(
    ("args", "kwargs", "words"),
    [((), {}, "number"), ((1, 2), {}, "positional"), ((1,), {"wrod": 1}, "wrod"), ((1,), {"number": 1}, "number")],
)
def test_arguments_must_fit_the_signature_at_the_call(memory_queue, args, kwargs, words):
    for enqueue in (bare, bare.enqueue, bare.using(delay=3), bare.using(delay=3).enqueue):
        with pytest.raises(TypeError, match=words):
            enqueue(*args, **kwargs)
    with pytest.raises(TypeError, match=words):
        asyncio.run(bare.aenqueue(*args, **kwargs))
    with pytest.raises(TypeError, match=rf"^{NAME}\.bare: .*{words}"):
        bare(*args, **kwargs)
    assert len(memory_queue) == 0


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ({"delay": 5}, r"delay is an option: write bare\.using\(delay=5\)\.VERB\(\.\.\.\)$"),
        (
            {"delay": [1], "priority": 2},
            r"delay and priority are options: write bare\.using\(delay=\.\.\., priority=2\)",
        ),
        ({"countdown": 5}, r"countdown: djqueue calls it delay\. Options go into bare\.using\(\.\.\.\)\.VERB\("),
    ],
)
def test_options_among_the_arguments_of_a_call_are_sent_to_using(memory_queue, option, words):
    for enqueue in (bare, bare.enqueue, lambda *args, **kwargs: asyncio.run(bare.aenqueue(*args, **kwargs))):
        with pytest.raises(TypeError, match=words.replace("VERB", "enqueue")):
            enqueue(1, **option)
    with pytest.raises(TypeError, match=words.replace("VERB", "enqueue")):
        bare.enqueue_many([{"number": 1, **option}])
    with pytest.raises(TypeError, match=words.replace("VERB", "enqueue_many")):
        bare.enqueue_many([(1,)], **option)
    with pytest.raises(TypeError, match=words.replace("VERB", "enqueue_many")):
        asyncio.run(bare.aenqueue_many([(1,)], **option))
    assert len(memory_queue) == 0


def test_what_cannot_be_carried_names_the_command(memory_queue, settings):
    with pytest.raises(EncodeError) as refused:
        bare(lambda: None)
    assert refused.value.__notes__ == [f"In a call of {NAME}.bare."]
    settings.QUEUE_MAX_MESSAGE_SIZE = 100
    with pytest.raises(MessageTooLarge) as refused:
        bare.using(priority=1).enqueue_many([("x" * 200,)])
    assert refused.value.__notes__ == [f"In a call of {NAME}.bare."]


@pytest.mark.django_db
@pytest.mark.parametrize("kind", ["database.DatabaseQueue", "memory.MemoryQueue"])
def test_async_code_is_told_of_the_async_verbs(settings, kind):
    settings.QUEUES = {"default": {"CLASS": f"djqueue.backends.{kind}"}}

    async def enqueue():
        bare(1)

    with pytest.raises(SynchronousOnlyOperation, match="bare is called in async code.*: await bare.aenqueue"):
        asyncio.run(enqueue())


def test_many_with_options_from_async_code(memory_queue):
    handles = asyncio.run(bare.using(priority=2).aenqueue_many([(1,), (2,)]))
    assert [record.entry.id for record in memory_queue.peek("ready")] == [handle.id for handle in handles]
    assert {record.entry.priority for record in memory_queue.peek("ready")} == {2}


@pytest.mark.parametrize("count", range(4))
@pytest.mark.parametrize(
    "func",
    [
        lambda one, two=2: None,
        lambda one, /, two: None,
        lambda one, *more: None,
        lambda one, *, two=2: None,
        lambda one, *, two: None,
        lambda one=1, **more: None,
        lambda *args, **kwargs: None,
    ],
)
def test_a_call_is_sent_if_it_fits_whatever_the_kinds_of_the_parameters(write_module, memory_queue, func, count):
    write_module("nothing", "")  # restores the registry
    command = queue_command(_module_level(func, "fitting"))
    try:
        inspect.signature(func).bind(*range(count))
    except TypeError:
        with pytest.raises(TypeError, match=r"fitting: .* Call it as fitting\("):
            command(*range(count))
    else:
        command(*range(count))
        assert len(memory_queue) == 1


def test_one_misfit_among_many_sends_none(memory_queue):
    with pytest.raises(TypeError, match="number"):
        bare.enqueue_many([(1,), {"word": "y"}, (3,)])
    with pytest.raises(TypeError, match="tuples.*dicts.*not 3"):
        bare.enqueue_many([(1,), 3])
    assert len(memory_queue) == 0


# ---- periodic commands


def test_dj10_a_periodic_command_called_runs_inline_and_only_enqueue_queues_it(memory_queue):
    assert isinstance(nightly, PeriodicCommand)
    assert nightly() == "night"
    assert nightly("day") == "day"
    assert len(memory_queue) == 0
    nightly.enqueue("now")
    assert len(memory_queue) == 1


def test_a_periodic_command_may_not_require_parameters():
    with pytest.raises(TypeError, match=r"needy.*requires word.*queue_command"):
        periodic_command(crontab())(_module_level(lambda word: word, "needy"))
    assert f"{NAME}.needy" not in registry


@pytest.mark.parametrize("func", [lambda word="x": word, lambda *args, **kwargs: None])
def test_optional_parameters_of_a_periodic_command_are_fine(func, write_module):
    write_module("nothing", "")  # restores the registry
    command = periodic_command(crontab())(_module_level(func, "optional"))
    assert command in registry.periodic()


def test_any_callable_of_a_datetime_is_a_schedule(write_module):
    write_module("nothing", "")
    command = periodic_command(lambda dt: dt.minute == 7)(_module_level(lambda: None, "seventh"))
    assert command.validate_datetime(datetime(2026, 1, 1, 0, 7))


@pytest.mark.parametrize(
    ("schedule", "options", "error", "words"),
    [
        ("* * * * *", {}, TypeError, r"is no schedule"),
        (crontab(), {"missed": "never"}, ValueError, "missed is 'never'"),
        (crontab(), {"max_lateness": -1}, ValueError, "max_lateness is -1"),
        (crontab(), {"max_lateness": "1h"}, TypeError, "max_lateness is '1h'"),
        (crontab(), {"max_lateness": 0}, ValueError, "max_lateness is 0"),
        (crontab(), {"prioritty": 1}, TypeError, "prioritty"),
    ],
)
def test_bad_options_of_a_schedule_are_refused(schedule, options, error, words):
    with pytest.raises(error, match=words):
        periodic_command(schedule, **options)


def _module_level(func, name):
    """The function as if it stood in this module."""
    func.__name__ = func.__qualname__ = name
    func.__module__ = NAME
    return func


def test_periodic_command_wants_a_schedule_first():
    def nightly():
        """Decorated without parentheses."""

    for given in (nightly, crontab, lambda: True, None):
        with pytest.raises(TypeError, match=r"write @periodic_command\(crontab"):
            periodic_command(given)
    with pytest.raises(TypeError, match=r"write @periodic_command\(crontab.parse\('30 2 \* \* \*'\)\)"):
        periodic_command("30 2 * * *")
    with pytest.raises(TypeError, match=r"write @periodic_command\(every=60\)"):
        periodic_command(60)
    with pytest.raises(TypeError, match="exclude each other"):
        periodic_command(crontab(minute=0), every=60)
    for wrong in (0.5, -1, "5m"):
        with pytest.raises((TypeError, ValueError), match="every is"):
            periodic_command(every=wrong)


@pytest.mark.parametrize("wrong, meant", {"dealy": "delay", "prioritty": "priority"}.items())
def test_an_unknown_option_names_the_one_that_was_meant(wrong, meant):
    with pytest.raises(TypeError, match=f"Unknown option '{wrong}'; did you mean '{meant}'"):
        queue_command(**{wrong: 3})
