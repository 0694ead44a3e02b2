"""Debounced calls: one at once, one when the window is over, and the last never lost. Merging: test_merging.py."""

import asyncio
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial

import pytest
from asgiref.sync import sync_to_async
from django.core.checks import run_checks
from django.db import connections, transaction

from djqueue import queues
from djqueue.backends.entries import DELAYED, READY
from djqueue.decorators import queue_command
from djqueue.enqueueing.command import Call, Command
from djqueue.exceptions import EncodeError, NotSupported
from djqueue.testing.contract.steps import claim
from djqueue.testing.patience import eventually, together
from tests.app.models import Thing
from tests.support.backends import ON_SQS, WITH_SQS
from tests.support.consumer import can_look, claim_one, is_delayed, only, run_one, serving
from tests.support.database import as_another_connection, rolled_back
from tests.support.notes import cleared_per_test

DATABASES = ("sqlite", "postgres", "mariadb")
LONG = 60.0
"""Seconds of a window that no test outlasts."""
SHORT = 0.3
"""Seconds of a window that is meant to end. What has to fall into one is put at once, however slow the machine is."""
ROUNDED = 0.001
"""Seconds by which a moment may be rounded."""
STEP = 2.0
"""Seconds that the calls of one test may take on a busy machine."""

ran = cleared_per_test([])
asked = cleared_per_test([])


@queue_command(debounce=LONG)
def refresh(*args, **kwargs):
    ran.append((args, kwargs))


@queue_command(debounce=LONG)
def resize(photo, width=100, *, sharp=False):
    ran.append((photo, width, sharp))


def says(name, value):
    """A function for an option, which notes that it was asked."""

    def function():
        asked.append(name)
        return value

    return function


@queue_command(debounce=says("debounce", LONG), ttl=says("ttl", 2 * LONG))
def ask_window():
    ran.append("window")


@queue_command(delay=says("delay", LONG), ttl=says("ttl", timedelta(minutes=2)))
def ask_delay():
    ran.append("delay")


@queue_command
def publish(alias):
    ran.append(list(Thing.objects.using(alias).order_by("pk").values_list("number", flat=True)))


def put(results) -> list:
    """Of each call whether it was put."""
    return [result.enqueued for result in results]


def state(queue, result) -> str:
    return queue.find(result.id).state


def due(queue, result) -> float:
    """When it fell or falls due."""
    return queue.find(result.id).at


def until_now_is(queue, moment) -> None:
    eventually(lambda: queue.now() >= moment)


class TestWindows:
    def test_df12_of_three_calls_one_comes_now_one_after_the_window_and_one_not_at_all(self, queue):
        calls = [refresh("page") for _ in range(3)]
        assert put(calls) == [True, True, False]
        assert [state(queue, call) for call in calls[:2]] == [READY, DELAYED]
        assert due(queue, calls[1]) - due(queue, calls[0]) == pytest.approx(LONG, abs=STEP)
        assert (queue.find(calls[2].id), calls[2].status) == (None, "refused")
        other = [refresh("another page"), refresh("page", deep=True), refresh()]
        assert [state(queue, call) for call in other] == [READY] * 3

    def test_df12_both_run_and_the_second_not_before_the_window_is_over(self, queue):
        often = refresh.using(debounce=SHORT)
        first, second, _ = often.enqueue_many([()] * 3)
        began, opens = due(queue, first), due(queue, second)
        run_one(queue)
        assert (len(ran), opens >= began + SHORT - ROUNDED) == (1, True)
        [lease] = queue.reserve(1, wait=5 * STEP)
        assert (lease.entry.id, lease.claimed >= opens - ROUNDED) == (second.id, True)
        queue.complete([lease])
        assert len(queue) == 0

    @pytest.mark.backends(*WITH_SQS)
    def test_df13_with_always_delay_the_first_waits_for_the_window_and_the_second_is_skipped(self, queue):
        settled = refresh.using(always_delay=True)
        called = queue.now()
        calls = [settled() for _ in range(3)]
        assert put(calls) == [True, False, False]
        assert is_delayed(queue, calls[0].id)
        if can_look(queue):
            assert called + LONG - ROUNDED <= due(queue, calls[0]) <= queue.now() + LONG + ROUNDED

    def test_df14_a_call_after_the_delayed_run_began_is_followed_by_another_run(self, queue):
        often = refresh.using(debounce=SHORT)
        first, second = often.enqueue_many([()] * 2)
        opens = due(queue, second)
        for begun in (first, second):
            [lease] = queue.reserve(1, wait=5 * STEP)
            assert lease.entry.id == begun.id
        further = often()  # while the second still runs
        assert further.enqueued
        assert due(queue, further) >= opens + SHORT - ROUNDED

    def test_df14_within_a_window_of_a_run_that_has_ended_the_next_is_delayed(self, queue):
        often = refresh.using(debounce=SHORT)
        first, second = often.enqueue_many([()] * 2)
        opens = due(queue, second)
        queue.complete([lease for _ in (first, second) for lease in queue.reserve(1, wait=5 * STEP)])
        again = often()
        assert again.enqueued
        assert due(queue, again) >= opens + SHORT - ROUNDED

    @pytest.mark.backends(*WITH_SQS)
    def test_df15_of_twenty_calls_at_the_same_moment_one_comes_now_and_one_is_delayed(self, queue):
        calls = together(*[lambda: refresh("page")] * 20, last=lambda: (queue.close(), connections.close_all()))
        accepted = {call.id for call in calls if call.enqueued}
        assert (len(accepted), len(queue)) == (2, 2)
        [lease] = claim(queue)
        queue.complete([lease])
        [later] = accepted - {lease.entry.id}
        assert is_delayed(queue, later)

    def test_a_window_that_is_over_lets_the_next_come_at_once(self, queue):
        often = refresh.using(debounce=SHORT)
        until_now_is(queue, due(queue, often()) + SHORT + ROUNDED)
        again = often()
        assert (again.enqueued, state(queue, again)) == (True, READY)

    def test_one_that_was_cancelled_gives_its_moment_to_the_next(self, queue):
        refresh()
        second = refresh()
        was = due(queue, second)
        assert second.cancel()
        instead = refresh()
        assert due(queue, instead) == pytest.approx(was, abs=ROUNDED)
        assert not refresh().enqueued


class TestExtend:
    def test_each_call_postpones_the_one_that_waits(self, queue):
        quiet = refresh.using(extend=True)
        first = quiet()
        was = due(queue, first)
        until_now_is(queue, queue.now() + 0.05)
        called = queue.now()
        assert put([quiet(), quiet()]) == [False, False]
        assert called + LONG - ROUNDED <= due(queue, first) <= queue.now() + LONG + ROUNDED
        assert (due(queue, first) > was, len(queue)) == (True, 1)

    def test_it_is_not_postponed_beyond_max_wait(self, queue):
        quiet = refresh.using(extend=True, max_wait=LONG + 0.05)
        first = quiet()
        came = due(queue, first) - LONG
        until_now_is(queue, came + 0.2)
        assert not quiet().enqueued
        assert due(queue, first) == pytest.approx(came + LONG + 0.05, abs=ROUNDED)

    def test_nor_by_default_beyond_ten_windows(self, queue):
        quiet = refresh.using(extend=True, debounce=0.05)
        first = quiet()
        end = due(queue, first) - 0.05 + 10 * 0.05
        while queue.now() < end:
            quiet()
        assert queue.find(first.id).at <= end + ROUNDED

    def test_it_runs_a_window_after_the_last_call(self, queue):
        quiet = refresh.using(extend=True, debounce=1.0)
        first = quiet()
        until_now_is(queue, queue.now() + 0.2)
        called, was = queue.now(), due(queue, first)
        quiet()
        is_late = queue.now() > was  # what is due is postponed no further
        [lease] = queue.reserve(1, wait=5 * STEP)
        assert (lease.entry.id, lease.claimed >= called + 1.0 - ROUNDED or is_late) == (first.id, True)


class TestSameness:
    @pytest.mark.parametrize(
        "one, other",
        [
            (({"a": 1, "b": 2},), ({"b": 2, "a": 1},)),
            (({1, 2, "x"},), ({"x", 2, 1},)),
            ((["ü", {"name": ({3, 4},)}],), (["ü", {"name": ({4, 3},)}],)),
        ],
    )
    @pytest.mark.backends("memory")
    def test_df17_the_order_of_dictionaries_and_sets_does_not_matter(self, queue, one, other):
        assert put([refresh(*one), refresh(*other), refresh(*one)]) == [True, True, False]

    @pytest.mark.backends("memory")
    def test_df17_nor_how_an_argument_is_given_and_two_commands_are_two(self, queue):
        calls = [resize("cat"), resize(photo="cat", width=100), resize("cat", 100, sharp=False)]
        assert put(calls) == [True, True, False]
        assert resize("cat", sharp=True).enqueued
        assert put([refresh("dog"), refresh("dog"), resize("dog")]) == [True, True, True]

    def test_df17_two_queues_do_not_debounce_each_other(self, backend, settings):
        settings.QUEUES = backend.queues("default", "mail")
        aside = refresh.using(queue_name="mail")
        assert put([refresh(), refresh(), refresh(), aside(), aside(), aside()]) == [True, True, False] * 2
        assert len(queues["default"]) == len(queues["mail"]) == 2

    def test_df17_fractions_of_a_second_count(self, queue):
        called = queue.now()
        first = refresh.using(debounce=1.005, always_delay=True)()
        assert called + 1.005 - ROUNDED <= due(queue, first) <= queue.now() + 1.005 + ROUNDED

    @pytest.mark.backends("memory", "redis")
    def test_the_json_codec_makes_no_difference(self, queue):
        as_json = refresh.using(serializer="json")
        assert put([as_json({"a": (1, 2)}), refresh({"a": (1, 2)}), as_json({"a": (1, 2)})]) == [True, True, False]
        assert as_json({"a": [1, 2]}).enqueued  # a list is no tuple
        run_one(queue)
        assert ran == [(({"a": (1, 2)},), {})]


@pytest.mark.backends("memory")
class TestKey:
    @pytest.mark.parametrize("answer", [None, 0, "", (), {"b": {1, 2}}, 1.5, b"\xff", "x" * 10_000, timedelta(1), int])
    def test_it_may_return_whatever_can_be_told_from_others(self, queue, answer):
        keyed = refresh.using(key=lambda *args: answer)
        assert put([keyed(1), keyed(2), keyed(3)]) == [True, True, False]

    def test_different_answers_are_different_calls(self, queue):
        by_first = refresh.using(key=lambda *args, **kwargs: args[0])
        assert put([by_first(1, "a"), by_first(1, "b"), by_first(1, "c"), by_first(2)]) == [True, True, False, True]
        assert put([by_first(True), by_first("1"), by_first(1.0)]) == [True, True, True]

    def test_it_is_called_once_with_the_arguments_as_they_were_given(self, queue):
        given = []
        keyed = resize.using(key=lambda *args, **kwargs: given.append((args, kwargs)))
        keyed("cat", width=5)
        assert given == [(("cat",), {"width": 5})]

    @pytest.mark.parametrize("answer", [threading.Lock(), (n for n in range(3)), lambda: None])
    def test_what_cannot_be_told_from_others_is_refused(self, queue, answer):
        with pytest.raises(EncodeError, match="give a key= function"):
            refresh.using(key=lambda: answer)()
        assert len(queue) == 0

    def test_what_it_raises_reaches_the_caller_and_nothing_is_put(self, queue):
        with pytest.raises(ZeroDivisionError):
            refresh.using(key=lambda: 1 / 0)()
        with pytest.raises(TypeError):
            refresh.using(key=lambda: 1)("an argument that it does not take")
        assert (len(queue), refresh.using(key=lambda: 1)().enqueued) == (0, True)


@pytest.mark.backends("memory")
class TestOptions:
    def test_df10_functions_are_not_asked_before_a_call_and_what_they_say_counts(self, queue):
        bound = ask_window.using(priority=3)
        assert (asked, callable(bound.policy.debounce)) == ([], True)
        delayed = ask_delay()
        record = queue.find(delayed.id)
        assert record.at - record.entry.created == pytest.approx(LONG, abs=ROUNDED)
        called = queue.now()
        ask_window()
        assert called + LONG - ROUNDED <= due(queue, ask_window()) <= queue.now() + LONG + ROUNDED

    def test_df11_what_functions_say_is_refused_at_the_call(self, queue):
        with pytest.raises(ValueError, match="delay is .* than ttl"):
            ask_delay.using(ttl=1).enqueue()
        with pytest.raises(ValueError, match="debounce is .* than ttl"):
            ask_window.using(ttl=lambda: 1).enqueue()
        with pytest.raises(TypeError, match="debounce is 'soon'"):
            refresh.using(debounce=lambda: "soon").enqueue()
        assert len(queue) == 0

    def test_extend_keeps_within_the_ttl(self, queue):
        """Or it would be postponed until it has expired: a window is left for it to begin."""
        policy = refresh.using(extend=True, ttl=3 * LONG).policy
        assert policy.condition("name", {}, None).max_wait == 2 * LONG

    @pytest.mark.backends("memory", *ON_SQS)
    def test_df11_without_a_store_it_is_refused(self, backend, settings):
        settings.QUEUES = {"default": backend.config() | {"STORE": False}}
        with pytest.raises(NotSupported, match=rf"{backend.cls.__name__} \('default'\) cannot do: facts"):
            refresh()
        assert len(queues["default"]) == 0

    def test_df11_and_a_system_check_says_so(self, backend, settings):
        settings.QUEUES = {"default": backend.config() | {"STORE": False}}
        with only(refresh, Command(plain, refresh.policy.of())):
            [told] = [message for message in run_checks() if message.id == "djqueue.E012"]
        assert (refresh.name in told.msg, "facts" in told.msg) == (True, True)


def plain():
    pass


class TestManners:
    def test_of_many_equal_calls_at_once_two_count(self, queue):
        calls = refresh.enqueue_many([("page",)] * 3 + [("other",)] + [("page",)])
        assert put(calls) == [True, True, False, True, False]
        assert [state(queue, call) for call in calls if call.enqueued] == [READY, DELAYED, READY]

    @pytest.mark.backends("memory", "redis")
    def test_async_code_debounces_as_well(self, queue):
        async def call():
            one_by_one = [await refresh.aenqueue("page") for _ in range(3)]
            at_once = await asyncio.gather(*[refresh.aenqueue("other") for _ in range(10)])
            many = await refresh.aenqueue_many([("third",)] * 3)
            return put(one_by_one), sorted(put(at_once)), put(many)

        assert asyncio.run(call()) == ([True, True, False], [False] * 8 + [True] * 2, [True, True, False])

    @pytest.mark.backends("sqlite", "postgres", "mariadb")
    def test_async_code_debounces_on_a_database(self, queue):
        async def call():
            try:
                return put([await refresh.aenqueue("page") for _ in range(3)])
            finally:
                await sync_to_async(connections.close_all)()

        assert asyncio.run(call()) == [True, True, False]

    @pytest.mark.backends("memory")
    def test_in_eager_mode_every_call_runs(self, queue, settings):
        settings.QUEUE_ALWAYS_EAGER = True
        assert put([refresh(1), refresh(1), refresh(1)]) == [True] * 3
        assert (len(ran), len(queues["default"])) == (3, 0)

    def test_ids_that_are_remembered_do_not_disturb_it(self, backend, settings):
        settings.QUEUES = backend.queues(REMEMBER_DONE=LONG)
        queue = queues["default"]
        first, second = refresh(), refresh()
        run_one(queue)
        assert (second.enqueued, refresh().enqueued) == (True, False)
        assert second.cancel()
        assert refresh().enqueued
        often = refresh.using(debounce=SHORT)
        often.enqueue_many([("short",)] * 2)
        for _ in range(2):
            queue.complete(queue.reserve(1, wait=5 * STEP))
        assert (often("short").enqueued, first.enqueued) == (True, True)


@pytest.mark.backends(*DATABASES)
class TestFailures:
    def test_df16_when_the_store_failed_the_next_call_is_not_skipped(self, settings):
        """On four verbs over a store of its own: between the mark and the message."""
        settings.QUEUES = {
            "default": {"CLASS": "tests.backends.contract.toy.ToyQueue", "CONNECTION": {}, "STORE": STORE}
        }
        queue = queues["default"]
        write = queue.write
        for count in (1, 2):  # the first comes at once, the next is delayed
            marked, queue.write = queue.store.get(mark_of(refresh)), _fail
            with pytest.raises(ConnectionError):
                refresh()
            assert queue.store.get(mark_of(refresh)) == marked
            queue.write = write
            assert (refresh().enqueued, len(queue)) == (True, count)
        assert not refresh().enqueued

    def test_df16_when_the_database_failed_in_between_nothing_is_marked(self, queue):
        with connections[queue.database].execute_wrapper(_fail_to_insert), pytest.raises(ConnectionError):
            refresh()
        first = refresh()
        assert state(queue, first) == READY
        with connections[queue.database].execute_wrapper(_fail_to_insert), pytest.raises(ConnectionError):
            refresh()
        assert put([refresh(), refresh()]) == [True, False]

    def test_df16_a_transaction_that_is_rolled_back_leaves_no_mark(self, queue):
        with rolled_back(queue.database):
            assert put([refresh(), refresh(), refresh()]) == [True, True, False]
        calls = [refresh() for _ in range(3)]
        assert (put(calls), state(queue, calls[0])) == ([True, True, False], READY)

    def test_df16_nor_does_a_savepoint(self, queue):
        with transaction.atomic(using=queue.database):
            first = refresh()
            with rolled_back(queue.database):
                assert refresh().enqueued
            second = refresh()
        assert (put([first, second, refresh()]), len(queue)) == ([True, True, False], 2)

    def test_df16_a_postponement_is_rolled_back_too(self, queue):
        quiet = refresh.using(extend=True)
        first = quiet()
        was = due(queue, first)
        with rolled_back(queue.database):
            until_now_is(queue, queue.now() + 0.02)
            quiet()
        assert due(queue, first) == was

    @pytest.mark.backends("memory", "redis", database=True)
    def test_df16_beside_a_transaction_it_is_decided_at_the_commit(self, queue):
        with rolled_back():
            refresh(), refresh()
        with transaction.atomic():
            assert put([refresh(), refresh(), refresh()]) == [None] * 3
            assert len(queue) == 0
        assert (len(queue), refresh().enqueued) == (2, False)


@pytest.mark.backends("postgres", "mariadb")
class TestTwoTransactions:
    """Of one key, on a server: the second caller waits for what becomes of the first."""

    @pytest.mark.parametrize("rolled_back", [False, True])
    def test_the_second_waits_for_the_first_and_counts_what_became_of_it(self, queue, rolled_back):
        with ThreadPoolExecutor(1) as pool:
            with transaction.atomic(using=queue.database):
                mine = [refresh("page"), refresh("page")]
                theirs = pool.submit(_call_and_close, "page")
                other = pool.submit(_call_and_close, "other")
                assert put(mine) == [True, True]
                with pytest.raises(TimeoutError):
                    theirs.result(0.3)
                transaction.set_rollback(rolled_back, using=queue.database)
            assert theirs.result(STEP * 10).enqueued is rolled_back
            assert other.result(STEP * 10).enqueued

    def test_a_call_that_is_refused_for_the_sake_of_one_that_waits_is_seen_by_it(self, queue):
        """It cannot begin before the transaction of the refused caller has ended, whose changes it is to see."""
        often = refresh.using(debounce=SHORT)
        first, second = often.enqueue_many([()] * 2)
        queue.complete([claim_one(queue)])
        until_now_is(queue, due(queue, second) - SHORT / 3)
        with transaction.atomic(using=queue.database):
            third = often()
            until_now_is(queue, due(queue, second) + SHORT)
            begun = as_another_connection(queue, lambda: queue.claim(1))
            assert (bool(begun), third.enqueued) in ((False, False), (True, True))
        assert (first.enqueued, len(queue) + len(begun)) == (True, 1 + third.enqueued)


@pytest.mark.parametrize(
    "options",
    [{"debounce": 0.05}, {"debounce": 0.05, "extend": True, "max_wait": 0.2}, {"unique": "queued"}],
    ids=["debounce", "extend", "queued"],
)
@pytest.mark.backends("sqlite", "postgres", "mariadb", "redis", database=True)
def test_df14_the_last_run_sees_what_every_transaction_has_changed(queue, options):
    """Each changes a row and calls, in one transaction; those that were refused are to be seen as well."""
    alias = queue.database or "default"
    rows = [Thing.objects.using(alias).create(number=0) for _ in range(4)]

    def produce(row):
        chance = random.Random(row.pk)
        for number in range(1, 26):
            with transaction.atomic(using=alias):
                Thing.objects.using(alias).filter(pk=row.pk).update(number=number)
                publish.using(**options).enqueue(alias)
                time.sleep(chance.choice((0, 0.002, 0.02)))

    with serving(threads=1, delay=0.005, max_delay=0.02):
        together(*[partial(produce, row) for row in rows], last=lambda: (queue.close(), connections.close_all()))
        eventually(lambda: len(queue) == queue.stats().leased == 0)
    assert (ran[-1], len(queue.failed), len(ran) < 100) == ([25] * 4, 0, True)


STORE = "djqueue.backends.memory.MemoryStore"


def mark_of(command) -> str:
    """The key of the mark of a call without arguments."""
    return command.policy.condition(command.name, *command.identity(Call(), command.policy)).key


def _fail(*args):
    raise ConnectionError("the store is in_flight")


def _fail_to_insert(execute, sql, params, many, context):
    if "INSERT" in sql.upper() and "djqueue_message" in sql:
        raise ConnectionError("the store is in_flight")
    return execute(sql, params, many, context)


def _call_and_close(*args):
    try:
        return refresh(*args)
    finally:
        connections.close_all()
