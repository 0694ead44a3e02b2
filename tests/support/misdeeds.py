"""What an async command can do to the event loop that it shares, and what its message must fail with."""

import asyncio
import contextvars
import gc
import socket
import sys
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime
from unittest import mock

from djqueue.exceptions import EventLoopMisused

kept, handed_on = [], []
MISDEEDS = {}
"""By name: the coroutine function, and what the error must contain."""


def misdeed(*error):
    def add(func):
        MISDEEDS[func.__name__.replace("_", " ")] = func, error
        return func

    return add


def loop():
    return asyncio.get_running_loop()


def strangers():
    return asyncio.all_tasks() - {asyncio.current_task()}


async def _exit():
    sys.exit(3)


async def _interrupt():
    raise KeyboardInterrupt


@misdeed("EventLoopMisused", "SystemExit: 3", "task or callback that it started")
async def exit_in_a_stray_task():
    asyncio.create_task(_exit())
    await asyncio.sleep(60)


@misdeed("EventLoopMisused", "SystemExit: 3", "task or callback that it started")
async def exit_in_a_stray_task_as_it_ends():
    asyncio.create_task(_exit())


@misdeed("EventLoopMisused", "KeyboardInterrupt", "task or callback that it started")
async def interrupt_in_a_stray_task():
    asyncio.create_task(_interrupt())
    await asyncio.sleep(60)


@misdeed("EventLoopMisused", "SystemExit: 4", "task or callback that it started")
async def exit_in_call_soon():
    loop().call_soon(sys.exit, 4)
    await asyncio.sleep(60)


@misdeed("EventLoopMisused", "SystemExit: 5", "task or callback that it started")
async def exit_in_call_later():
    loop().call_later(0.05, sys.exit, 5)
    await asyncio.sleep(60)


@misdeed("EventLoopMisused", "SystemExit", "task or callback that it started")
async def exit_in_a_done_callback():
    asyncio.create_task(asyncio.sleep(0)).add_done_callback(sys.exit)
    await asyncio.sleep(60)


@misdeed("EventLoopMisused", "SystemExit: 5", "task or callback that it started")
async def exit_in_readers_again_and_again():
    for _ in range(20):
        pair = socket.socketpair()
        kept.append(pair)
        pair[1].send(b"x")
        loop().add_reader(pair[0].fileno(), sys.exit, 5)
    await asyncio.sleep(60)


@misdeed("EventLoopMisused", "KeyboardInterrupt", "task or callback that it started")
async def interrupt_from_a_thread():
    def interrupt():
        raise KeyboardInterrupt

    await asyncio.to_thread(loop().call_soon_threadsafe, interrupt)
    await asyncio.sleep(60)


@misdeed("EventLoopMisused", "stopped the event loop")
async def stop_the_loop():
    loop().stop()
    await asyncio.sleep(60)


@misdeed("EventLoopMisused", "stopped the event loop")
async def stop_the_loop_and_catch_it():
    try:
        loop().stop()
    except RuntimeError:
        await asyncio.sleep(60)


@misdeed("EventLoopMisused", "stopped the event loop")
async def stop_the_loop_in_call_soon():
    loop().call_soon(loop().stop)
    await asyncio.sleep(60)


@misdeed("EventLoopMisused", "stopped the event loop")
async def stop_the_loop_in_call_soon_threadsafe():
    loop().call_soon_threadsafe(loop().stop)
    await asyncio.sleep(60)


@misdeed("EventLoopMisused", "stopped the event loop")
async def stop_the_loop_from_a_thread():
    await asyncio.to_thread(loop().stop)


@misdeed("EventLoopMisused", "closed the event loop")
async def close_the_loop():
    loop().close()


@misdeed("EventLoopMisused", "closed the event loop")
async def close_the_loop_in_call_soon():
    loop().call_soon(loop().close)
    await asyncio.sleep(60)


@misdeed("EventLoopMisused", "closed all async generators")
async def close_async_generators():
    await loop().shutdown_asyncgens()


@misdeed("EventLoopMisused", "replaced the task factory")
async def replace_the_task_factory():
    loop().set_task_factory(lambda *args, **named: 1 / 0)


@misdeed("EventLoopMisused", "cancelled the task of another message")
async def cancel_all_tasks():
    for task in asyncio.all_tasks():
        task.cancel()
    await asyncio.sleep(60)


@misdeed("EventLoopMisused", "cancelled the task of another message")
async def cancel_all_other_tasks():
    for task in strangers():
        task.cancel()
    await asyncio.sleep(60)


@misdeed("EventLoopMisused", "cancelled the task of another message")
async def cancel_all_other_tasks_as_it_ends():
    for task in strangers():
        task.cancel()


@misdeed("EventLoopMisused", "cancelled the task of another message")
async def cancel_all_other_tasks_in_a_thread():
    tasks = strangers()
    await asyncio.to_thread(lambda: [loop_of.cancel() for loop_of in tasks])
    await asyncio.sleep(60)


@misdeed("EventLoopMisused", "cancelled the task of another message")
async def wait_for_all_others_and_time_out():
    await asyncio.wait_for(asyncio.gather(*strangers(), return_exceptions=True), 0.05)


@misdeed("EventLoopMisused", "exception handler", "ValueError: no")
async def raise_in_an_exception_handler():
    def handle(loop, about):
        raise ValueError("no")

    loop().set_exception_handler(handle)
    loop().call_soon(divmod, 1, 0)
    await asyncio.sleep(60)


@misdeed("EventLoopMisused", "exception handler", "SystemExit: 6")
async def exit_in_an_exception_handler():
    loop().set_exception_handler(lambda loop, about: sys.exit(6))
    loop().call_soon(divmod, 1, 0)
    await asyncio.sleep(60)


@misdeed("TypeError", "a number of seconds")
async def set_a_timer_for_a_date():
    loop().call_at(datetime.now(), print)


@misdeed("ValueError", "nan")
async def set_a_timer_for_no_number():
    for _ in range(300):
        try:
            loop().call_later(float("nan"), print)
        except ValueError as error:
            raised = error
    raise raised


class Exits:
    """Something to await that exits as soon as it is waited for."""

    _asyncio_future_blocking = True

    def __await__(self):
        yield self

    def get_loop(self):
        return loop()

    def add_done_callback(self, *args, **named):
        sys.exit(9)


@misdeed("EventLoopMisused", "SystemExit: 9")
async def await_what_exits():
    await Exits()


@misdeed("CancelledError")
async def cancel_itself():
    asyncio.current_task().cancel()
    await asyncio.sleep(60)


@misdeed("RuntimeError")
async def run_the_loop_within_itself():
    coroutine = asyncio.sleep(0)
    try:
        loop().run_until_complete(coroutine)
    finally:
        coroutine.close()


@misdeed("EventLoopMisused", "ran the event loop")
async def run_the_loop_by_hand():
    await asyncio.sleep(0.1)
    loop()._run_once()  # as nest_asyncio does


@misdeed("EventLoopMisused", "used the coroutine of another message")
async def close_the_coroutines_of_others():
    await asyncio.sleep(0.1)
    for task in strangers():
        task.get_coro().close()


@misdeed("EventLoopMisused", "used the coroutine of another message")
async def close_what_the_coroutines_of_others_await():
    await asyncio.sleep(0.1)
    for task in strangers():
        if (inner := task.get_coro().cr_await) is not None:
            inner.close()


@misdeed("EventLoopMisused", "used the coroutine of another message")
async def clear_the_frames_of_others():
    await asyncio.sleep(0.1)
    for task in strangers():
        for frame in task.get_stack():
            frame.clear()


@misdeed("GeneratorExit")
async def exit_a_generator_in_a_thread():
    def leave():
        raise GeneratorExit

    await asyncio.to_thread(leave)


@misdeed("SystemExit: 7")
async def exit_in_its_own_task():
    sys.exit(7)


@misdeed("ValueError: after all")
async def set_another_event_loop():
    """That changes nothing here, and nothing for others."""
    other = asyncio.new_event_loop()
    asyncio.set_event_loop(other)
    other.close()
    await asyncio.sleep(0)
    raise ValueError("after all")


async def leave_no_running_loop():
    """As recipes for nested loops do."""
    await asyncio.sleep(0.1)
    asyncio._set_running_loop(None)
    coroutine, other = asyncio.sleep(0), asyncio.new_event_loop()
    other.run_until_complete(coroutine)
    other.close()


async def leave_another_running_loop_and_exit():
    """In one turn of the loop, before and after the steps of others that a timer has woken."""
    when, other = loop().time() + 0.15, asyncio.new_event_loop()
    loop().call_at(when, loop().call_soon, asyncio._set_running_loop, other)
    loop().call_at(when + 0.4, loop().call_soon, sys.exit, 8)
    await asyncio.sleep(0.1)
    time.sleep(0.5)
    other.close()


async def cancel_the_futures_of_others():
    await asyncio.sleep(0.1)
    for task in strangers():
        if (future := task._fut_waiter) is not None and not isinstance(future, asyncio.Task):
            future.cancel()


async def cancel_what_the_frames_of_others_hold():
    await asyncio.sleep(0.1)
    for task in strangers():
        coroutine = task.get_coro()
        while coroutine is not None:
            frame = getattr(coroutine, "cr_frame", None)
            for held in [] if frame is None else frame.f_locals.values():
                if asyncio.isfuture(held) and not isinstance(held, asyncio.Task):
                    held.cancel()
            coroutine = getattr(coroutine, "cr_await", None)


async def replace_the_default_executor():
    other = ThreadPoolExecutor(1)
    asyncio.BaseEventLoop.set_default_executor(loop(), other)
    other.shutdown()
    await asyncio.sleep(0.1)


async def leave_a_task_that_does_not_end():
    async def go_on():
        while True:
            try:
                await asyncio.sleep(60)
            except BaseException:
                pass

    kept.append(asyncio.create_task(go_on()))
    await asyncio.sleep(0.1)


class Finalized:
    """Does something to the loop when it is collected, in a cycle of references: that may be in any message's time."""

    def __init__(self, do):
        self.do, self.itself = do, self

    def __del__(self):
        self.do()


def _cancel(tasks):
    for task in tasks:
        task.cancel()


async def replace_the_task_factory_unseen():
    its_own, other = loop(), lambda *args, **named: 1 / 0
    thread = threading.Thread(target=_tried, args=(its_own.set_task_factory, other))
    thread.start()
    thread.join()
    _tried(contextvars.Context().run, its_own.set_task_factory, other)
    asyncio.BaseEventLoop.set_task_factory(its_own, other)
    await asyncio.sleep(0)
    await asyncio.BaseEventLoop.shutdown_default_executor(its_own)
    await asyncio.to_thread(int)


@misdeed("EventLoopMisused", "replaced time()")
async def replace_the_clock_of_the_loop():
    loop().time = lambda: 0.0


@misdeed("EventLoopMisused", "replaced call_soon()")
async def replace_a_guarded_method_of_the_loop():
    with suppress(EventLoopMisused):
        loop().call_soon = lambda *args, **named: None


@misdeed("EventLoopMisused", "replaced call_soon()")
async def take_the_guard_of_a_method_away():
    del loop().call_soon


@misdeed("EventLoopMisused", "replaced __class__()")
async def give_the_loop_another_class():
    loop().__class__ = asyncio.SelectorEventLoop


def _tried(function, *args):
    with suppress(EventLoopMisused):
        function(*args)
        raise AssertionError("it is not refused")


async def leave_another_task_entered():
    """As recipes for nested loops do."""
    await asyncio.sleep(0.1)
    asyncio.tasks._leave_task(loop(), asyncio.current_task())
    asyncio.tasks._enter_task(loop(), strangers().pop())


async def leave_finalizers():
    its_own = loop()
    for do in (its_own.stop, its_own.close, lambda: its_own.set_task_factory(None)):
        Finalized(do)
    Finalized(lambda: its_own.call_soon_threadsafe(sys.exit, 3))
    Finalized(lambda: its_own.call_soon(sys.exit, 3))
    Finalized(lambda: its_own.call_later(0.001, sys.exit, 3))
    Finalized(lambda: its_own.create_task(_exit()))
    Finalized(lambda: asyncio.current_task(its_own).cancel())
    Finalized(lambda: _cancel(asyncio.all_tasks(its_own)))
    weakref.finalize(Finalized(int), its_own.stop)
    handed_on.append("garbage")


async def leave_finalizers_that_act_on_all_tasks():
    its_own = loop()

    def each(act):
        for task in asyncio.all_tasks(its_own):
            with suppress(EventLoopMisused):
                act(task)

    def exit_when_it_is_done(future):
        future.add_done_callback(lambda future: sys.exit(3))
        return future

    def exit_when_it_can_be_read():
        pair = socket.socketpair()
        kept.append(pair)
        pair[1].send(b"x")
        its_own.add_reader(pair[0].fileno(), sys.exit, 3)

    def remove_all_readers():
        for number in range(3, 100):
            with suppress(EventLoopMisused):
                its_own.remove_reader(number)

    Finalized(lambda: exit_when_it_is_done(its_own.create_future()).set_result(1))
    Finalized(lambda: exit_when_it_is_done(its_own.run_in_executor(None, int)))
    Finalized(exit_when_it_can_be_read)
    Finalized(remove_all_readers)
    Finalized(lambda: each(exit_when_it_is_done))
    Finalized(lambda: each(lambda task: task.remove_done_callback(mock.ANY)))
    Finalized(lambda: each(lambda task: task.get_coro().close()))
    Finalized(lambda: each(lambda task: [frame.clear() for frame in task.get_stack()]))
    handed_on.append("garbage")


async def leave_generators():
    async def numbers(do):
        try:
            yield 1
        finally:
            do()

    for do in (sys.exit, loop().stop, sys.exit):
        left = numbers(do)
        await left.__anext__()
        cycle = [left]
        cycle.append(cycle)
        del left, cycle
    handed_on.append("garbage")


async def have_others_handled_by_what_stops_the_loop():
    loop().set_exception_handler(lambda its_own, about: its_own.stop())
    handed_on.append("an error that nobody asks for")
    await asyncio.sleep(1)


async def remove_the_callbacks_of_others():
    await asyncio.sleep(0.1)
    for task in strangers():
        task.remove_done_callback(mock.ANY)


async def let_go_of_what_another_left():
    """The last reference to it goes in the time of another message, without a cycle."""
    handed_on.append(Finalized(loop().stop))
    handed_on[-1].itself = None


UNSEEN = {
    func.__name__: func
    for func in (
        leave_no_running_loop,
        leave_another_running_loop_and_exit,
        cancel_the_futures_of_others,
        replace_the_task_factory_unseen,
        leave_another_task_entered,
        cancel_what_the_frames_of_others_hold,
        replace_the_default_executor,
        leave_finalizers,
        leave_finalizers_that_act_on_all_tasks,
        leave_generators,
        have_others_handled_by_what_stops_the_loop,
        remove_the_callbacks_of_others,
        let_go_of_what_another_left,
    )
}
"""What is done behind the back of the loop: it cannot say who did it."""


async def wait_with_tasks(seconds: float) -> int:
    """What an innocent does: it waits in its own task and in those of a group, and garbage may be collected then."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_slept(seconds)) for _ in range(2)]
        await asyncio.sleep(seconds)
        if handed_on:
            handed_on.clear()
            asyncio.get_running_loop().create_future().set_exception(OSError("nobody asks for it"))
            gc.collect()
        await asyncio.to_thread(int)
    return sum(task.result() for task in tasks)


async def _slept(seconds: float) -> int:
    await asyncio.wait_for(asyncio.sleep(seconds), 60)
    return 1
