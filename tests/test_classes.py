"""Commands as classes, and the invoker: what users of djutils know."""

import inspect
from datetime import datetime, timedelta

import pytest

from djqueue import PeriodicQueueCommand, QueueCommand, crontab, invoker, periodic_command
from djqueue.enqueueing.command import PeriodicCommand
from djqueue.exceptions import InvalidMessage
from djqueue.registry import registry
from djqueue.timetables import Rule
from tests.support.consumer import only
from tests.support.notes import cleared_per_test

ran = cleared_per_test([])


class Append(QueueCommand):
    """Appends its data."""

    def execute(self):
        ran.append(self.get_data())
        return len(ran)


class Urgent(Append):
    options = {"priority": 7, "max_lost": 2}


class Explode(QueueCommand):
    def execute(self):
        raise KeyError(self.data)


class Wait(QueueCommand):
    async def execute(self):
        ran.append(self.data)


class Base(QueueCommand, abstract=True):
    pass


class Unwritten(QueueCommand, abstract=True):
    pass


class UnwrittenPeriod(PeriodicQueueCommand, abstract=True):
    def execute(self):
        raise NotImplementedError


class Quarter(PeriodicQueueCommand):
    def validate_datetime(self, dt):
        return dt.minute % 15 == 0

    def execute(self):
        ran.append("quarter")


class HalfHour(PeriodicQueueCommand):
    validate = crontab(minute="*/30")

    def validate_datetime(self, dt):
        return self.validate(dt)

    def execute(self):
        ran.append("half")


class Half(HalfHour):
    missed, max_lateness = "all", 5400


@periodic_command(crontab(minute="*/15"))
def quarter():
    ran.append("quarter")


@periodic_command(crontab(minute="*/30"))
def half_hour():
    ran.append("half")


def labels(queue):
    """The commands that wait, in order."""
    return [record.entry.command.rpartition(".")[2] for record in queue.peek("ready")]


@pytest.mark.backends("memory")
class TestDeclaring:
    def test_subclassing_registers(self):
        assert f"{__name__}.Append" in registry
        assert registry[f"{__name__}.Append"].__doc__ == "Appends its data."
        assert f"{__name__}.Base" not in registry
        assert "djqueue.classes.PeriodicQueueCommand" not in registry

    def test_options_are_those_of_the_decorator(self, queue):
        assert Urgent.command().policy.priority == 7
        invoker.enqueue(Append("later"))
        invoker.enqueue(Urgent("first"))
        invoker.dequeue()
        assert ran == ["first"]

    def test_bad_options_a_nested_class_and_a_generator_are_refused(self):
        def execute(self):
            yield "nothing"

        with pytest.raises(TypeError, match="prioritty"):
            type("Bad", (QueueCommand,), {"options": {"prioritty": 1}, "__module__": __name__, "__qualname__": "Bad"})
        assert f"{__name__}.Bad" not in registry
        with pytest.raises(TypeError, match="class of a module"):

            class Nested(QueueCommand):
                pass

        with pytest.raises(TypeError, match="is a generator"):
            type("Lazy", (QueueCommand,), {"execute": execute, "__module__": __name__, "__qualname__": "Lazy"})
        assert f"{__name__}.Lazy" not in registry

    def test_a_class_with_a_schedule_is_a_periodic_command_and_says_what_becomes_of_missed_ticks(self):
        command = Quarter.command()
        assert isinstance(command, PeriodicCommand)
        assert command in registry.periodic()
        assert command.validate_datetime(datetime(2026, 1, 1, 1, 15))
        assert command.rule == Rule("latest", timedelta(hours=1))
        assert Half.command().rule == Rule("all", timedelta(minutes=90))

    @pytest.mark.parametrize(("name", "value"), [("missed", "never"), ("max_lateness", 0)])
    def test_a_bad_rule_is_refused(self, name, value):
        with pytest.raises(ValueError, match=f"{name} is {value!r}"):
            type("Bad", (PeriodicQueueCommand,), {name: value, "__module__": __name__, "__qualname__": "Bad"})
        assert f"{__name__}.Bad" not in registry

    def test_its_command_has_the_signature_of_a_call_and_knows_whether_it_is_async(self):
        assert [one.command().is_async for one in (Append, Wait)] == [False, True]
        for one in (Append, Wait, Quarter):
            assert [*inspect.signature(one.command()).parameters] == ["data"]

    def test_data_can_be_set(self):
        command = Append()
        assert command.get_data() is None
        command.set_data({"a": 1})
        assert command.data == {"a": 1}

    @pytest.mark.parametrize(
        ("base", "method"),
        [
            (QueueCommand, r"execute\(\): write def execute\(self\)"),
            (PeriodicQueueCommand, r"execute\(\)"),
            (Unwritten, r"execute\(\)"),
            (UnwrittenPeriod, r"validate_datetime\(\): write def validate_datetime\(self, dt\)"),
        ],
    )
    def test_a_class_without_its_method_is_refused_unless_it_is_a_base(self, base, method):
        body = {"__module__": __name__, "__qualname__": "Bare"}
        with pytest.raises(TypeError, match=rf"^Bare has no {method}.* abstract=True\)"):
            type("Bare", (base,), body)
        assert f"{__name__}.Bare" not in registry
        type("Bare", (base,), body, abstract=True)
        assert f"{__name__}.Bare" not in registry


class TestInvoker:
    def test_enqueue_does_not_run_it_and_dequeue_does(self, queue):
        handle = invoker.enqueue(Append({"to": "you"}))
        assert (ran, len(invoker.queue)) == ([], 1)
        assert invoker.dequeue() == handle.id
        assert (ran, len(invoker.queue)) == ([{"to": "you"}], 0)

    def test_options_go_before_those_of_the_class(self, queue):
        handle = invoker.enqueue(Urgent("soon"), priority=3, delay=60)
        record = queue.find(handle.id)
        assert (record.state, record.entry.priority) == ("delayed", 3)
        with pytest.raises(TypeError, match="prioritty"):
            invoker.enqueue(Urgent(), prioritty=3)

    @pytest.mark.parametrize(
        ("thing", "words"),
        [
            (Append, r"the class itself: make an object of it, Append\(data\)"),
            (quarter, r"command of a function: call it, or use quarter\.enqueue\(\.\.\.\)"),
            (quarter.using(delay=1), "command of a function"),
            ("text", "not 'text'"),
        ],
        ids=["class", "function", "bound", "text"],
    )
    @pytest.mark.backends("memory")
    def test_what_is_no_command_object_is_refused(self, queue, thing, words):
        with pytest.raises(TypeError, match=words):
            invoker.enqueue(thing)

    def test_what_the_command_raises_flies_out_and_the_message_is_kept_aside(self, queue):
        handle = invoker.enqueue(Explode("why"))
        with pytest.raises(KeyError, match="why"):
            invoker.dequeue()
        assert len(queue) == 0
        assert queue.failed.find(handle.id).entry.failures == 1

    def test_an_async_one_runs_too(self, queue):
        invoker.enqueue(Wait(7))
        assert (invoker.dequeue() is not None, ran) == (True, [7])

    def test_messages_come_out_in_order(self, queue):
        for number in range(5):
            invoker.enqueue(Append(number))
        while invoker.dequeue():
            pass
        assert ran == [0, 1, 2, 3, 4]

    def test_flush(self, queue):
        for number in range(3):
            invoker.enqueue(Append(number))
        invoker.flush()
        assert len(invoker.queue) == 0
        assert invoker.dequeue() is None

    def test_raw_messages_can_be_written_and_read(self, queue):
        invoker.write("raw text ü")
        assert len(invoker.queue) == 1
        assert invoker.read() == "raw text ü"
        assert invoker.read() is None

    def test_a_raw_message_is_not_run(self, queue):
        invoker.write("os.system:rm")
        with pytest.raises(InvalidMessage):
            invoker.dequeue()
        assert len(queue.failed) == 1


class TestPeriodic:
    @pytest.mark.parametrize("pair", [(quarter, half_hour), (Quarter.command(), HalfHour.command())])
    def test_dj11_what_is_due_at_a_minute_is_enqueued(self, queue, pair):
        with only(*pair):
            names = [command.__name__ for command in pair]
            invoker.enqueue_periodic_commands(datetime(2011, 1, 1, 1, 15))
            assert labels(queue) == names[:1]
            queue.flush()
            invoker.enqueue_periodic_commands(datetime(2011, 1, 1, 1, 16))
            assert labels(queue) == []
            invoker.enqueue_periodic_commands(datetime(2011, 1, 1, 1, 30))
            assert labels(queue) == names
            while invoker.dequeue():
                pass
            assert ran == ["quarter", "half"]

    @pytest.mark.backends("memory")
    def test_called_twice_it_enqueues_twice(self, queue):
        with only(quarter):
            for _ in range(2):
                invoker.enqueue_periodic_commands(datetime(2011, 1, 1, 1, 15))
            assert labels(queue) == ["quarter", "quarter"]

    @pytest.mark.backends("memory")
    def test_without_a_time_it_is_now(self, queue, settings):
        with only(always := periodic_command(lambda dt: asked.append(dt) or True)(_always)):
            asked = []
            for settings.USE_TZ in (True, False):
                invoker.enqueue_periodic_commands()
            assert [dt.tzinfo is not None for dt in asked] == [True, False]
            assert labels(queue) == [always.__name__] * 2


def _always():
    ran.append("always")
