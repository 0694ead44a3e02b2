"""Objects with on_… methods: what they are given, whom they hear, and how they are forgotten."""

import threading

import pytest

from djqueue import queues, register_event_consumer, signals
from djqueue.decorators import queue_command
from djqueue.messages.metadata import METHODS, clear_event_consumers
from tests.documents.test_facts import literals, table
from tests.support.consumer import run_one, serving
from tests.support.documents import ROOT
from tests.support.processes import until

pytestmark = pytest.mark.backends("memory")


@queue_command
def note(*args):
    return len(args)


@queue_command
def fail():
    raise KeyError("k")


@pytest.fixture
def queue(backend, settings):
    settings.QUEUES = backend.queues("default", "mail")
    return queues["default"]


class Pushes:
    def __init__(self):
        self.items = []

    def on_push(self, item):
        self.items.append(item)


class Ends(Pushes):
    def on_complete(self, item):
        self.items.append(item)

    def on_error(self, item):
        self.items.append(item)


def test_it_needs_only_the_methods_that_it_wants(queue):
    register_event_consumer(pushes := Pushes())
    result = note(1, 2)
    run_one(queue)
    assert pushes.items == [{"command": note.name, "queue_name": "default", "id": result.id}]


@pytest.mark.parametrize("nobody", [object(), Pushes, None])
def test_what_has_none_of_the_methods_is_refused(nobody):
    with pytest.raises(TypeError, match="on_push, on_pop"):
        register_event_consumer(nobody)


def test_an_item_has_what_the_signal_carries(queue):
    register_event_consumer(ends := Ends(), "default")
    result = note(1, 2)
    run_one(queue)
    [_, done] = ends.items
    seconds = done.pop("seconds")
    about = {"command": note.name, "queue_name": "default", "id": result.id, "attempt": 1}
    assert (done, seconds >= 0) == (about | {"value": 2}, True)
    del ends.items[:]
    fail()
    run_one(queue)
    [_, error, complete] = ends.items
    assert (error, repr(error["exception"]), error["reason"]) == (complete, "KeyError('k')", "KeyError: 'k'")


def test_it_hears_of_its_queue_alone(queue):
    here, there, everywhere = Pushes(), Pushes(), Pushes()
    for consumer, alias in ((here, "default"), (there, "mail"), (everywhere, None)):
        register_event_consumer(consumer, alias)
    first, second = note(), note.using(queue_name="mail")()
    assert [item["id"] for item in here.items] == [first.id]
    assert [item["id"] for item in there.items] == [second.id]
    assert [item["id"] for item in everywhere.items] == [first.id, second.id]


def test_they_are_told_in_the_order_in_which_they_were_registered(queue):
    order = []

    class Numbered:
        def __init__(self, number):
            self.number = number

        def on_push(self, item):
            order.append(self.number)

    for number in (3, 1, 2):
        register_event_consumer(Numbered(number), ("default", None)[number % 2])
    note()
    assert order == [3, 1, 2]


def test_those_of_one_queue_are_cleared_or_all(queue):
    here, everywhere = Pushes(), Pushes()
    register_event_consumer(here, "default")
    register_event_consumer(everywhere)
    clear_event_consumers("mail")
    clear_event_consumers("default")
    note()
    assert (len(here.items), len(everywhere.items)) == (0, 1)
    clear_event_consumers()
    note()
    assert len(everywhere.items) == 1
    register_event_consumer(here)
    note()
    assert len(here.items) == 1


def test_while_nobody_is_registered_nobody_listens(queue):
    before = _listeners()  # metrics may listen
    register_event_consumer(Pushes())
    assert all(now == was + 1 for now, was in zip(_listeners(), before, strict=True))
    clear_event_consumers()
    assert _listeners() == before


def _listeners():
    """How many listen to each signal."""
    return [len(getattr(signals, name).receivers) for name in METHODS]


def test_one_may_be_registered_while_others_are_told(queue):
    class Registers:
        def on_push(self, item):
            register_event_consumer(late)

    late = Pushes()
    register_event_consumer(Registers())
    note()
    assert late.items == []
    note()
    assert len(late.items) == 1


def test_the_page_about_them_lists_every_method_with_its_signals():
    rows = table(ROOT / "docs" / "howto" / "metadata-and-events.rst", "Event consumers")
    listed = {(method, signal) for row in rows for method in literals(row[0]) for signal in literals(row[1])}
    assert listed == {(method, signal) for signal, methods in METHODS.items() for method in methods}


def test_in_a_consumer_they_are_told_by_its_threads(queue):
    class Threads:
        names: list = []

        def on_pop(self, item):
            self.names.append(threading.current_thread().name)

    register_event_consumer(Threads())
    with serving("default", threads=1):
        note()
        until(lambda: Threads.names)
    assert Threads.names == ["djqueue-worker-1"]
