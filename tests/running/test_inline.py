"""Eager mode: calls run inline."""

import asyncio
import threading

import pytest

from djqueue.decorators import queue_command
from djqueue.exceptions import EncodeError
from djqueue.running.context import current_message
from tests.support.notes import cleared_per_test

ran = cleared_per_test([])


@queue_command
def note(*args, **kwargs):
    ran.append((args, kwargs))
    return args


@queue_command
async def anote(*args):
    await asyncio.sleep(0)
    ran.append((args, current_message()))


@queue_command
def explode(text="boom"):
    ran.append(text)
    raise KeyError(text)


@pytest.mark.backends("memory")
class TestEager:
    @pytest.fixture(autouse=True)
    def eager(self, settings, queue):
        settings.QUEUE_ALWAYS_EAGER = True

    @pytest.mark.backends()
    def test_dj2_it_runs_inline_and_queues_nothing(self, queue):
        handle = note(1, word="x")
        assert ran == [((1,), {"word": "x"})]
        assert len(queue) == 0
        assert handle.id

    def test_dj2_exceptions_reach_the_caller(self, queue):
        with pytest.raises(KeyError, match="boom"):
            explode()
        assert len(queue.failed) == 0

    def test_dj2_what_would_not_travel_does_not_run(self, queue):
        with pytest.raises(EncodeError):
            note(threading.Lock())
        given = [1]
        note(given)
        given.append(2)
        assert ran == [(([1],), {})]

    def test_delay_is_ignored_and_many_run_in_order(self, queue):
        note.using(delay=3600).enqueue(1)
        note.enqueue_many([(2,), (3,)])
        assert ran == [((number,), {}) for number in (1, 2, 3)]

    def test_an_async_command_runs_to_its_end_and_knows_its_message(self, queue):
        handle = anote(1)
        [(args, message)] = ran
        assert (args, message.id) == ((1,), handle.id)

        async def within_a_loop():
            anote(2)
            await anote.aenqueue(3)

        asyncio.run(within_a_loop())
        assert [args for args, _ in ran] == [(1,), (2,), (3,)]
