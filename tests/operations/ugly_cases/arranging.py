"""How each ugly case comes about: by calls, by runs of messages, and by what consumers and operators wrote."""

import sys
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import time_machine
from django.db import transaction

from djqueue import operations, queues, schedules
from djqueue.backends.entries import Entry
from djqueue.consumer.scheduler import PeriodicTracker, Scheduler
from djqueue.messages.failures import with_error
from djqueue.operations import finding, paging
from djqueue.results import Result
from tests.app import commands as app_commands
from tests.dashboard.calls import counted
from tests.operations.ugly_cases import commands
from tests.operations.ugly_cases.scene import Scene
from tests.support.consumer import claim_one, message_for, run_one

ABSENT = "tests.app.commands.not_there"
"""Of a module that consumers import at the start; no code has it."""
NOT_HERE = "tests.operations.ugly_cases.on_demand.not_there"
ON_DEMAND = "tests.operations.ugly_cases.on_demand.later"
UNREACHABLE = {"CLASS": "djqueue.backends.redis_backend.RedisQueue", "CONNECTION": "127.0.0.1:1:0"}
"""Nothing listens there."""


# ---- Commands that are not known


def put(scene: Scene, command: str, **names) -> str:
    entry = message_for(scene.queue, command)
    scene.queue.put([entry])
    scene.about(entry.id, command=command, **names)
    return entry.id


def unknown_and_tried(scene: Scene):
    scene.serve()
    put(scene, ABSENT)
    run_one(scene.queue)


def unknown_and_ready(scene: Scene):
    scene.serve()
    put(scene, ABSENT)


def unknown_behind_many(scene: Scene):
    scene.serve()
    commands.note.using(delay=900).enqueue_many([()] * 150)
    put(scene, ABSENT)
    run_one(scene.queue)


def known_here_alone(scene: Scene):
    """The code was deployed here, and the consumers run the old one, which has a command of a like name."""
    scene.serve(also=[f"{app_commands.__name__}.notes"])
    put(scene, app_commands.note.name)


def known_to_some(scene: Scene):
    scene.serve(also=[ABSENT])
    scene.serve("web-2:43:cafe")
    put(scene, ABSENT)


def known_to_consumers_alone(scene: Scene):
    scene.serve(also=[ABSENT])
    put(scene, ABSENT)


def on_demand(scene: Scene):
    scene.settings.QUEUE_IMPORT = ("tests.operations",)
    scene.monkeypatch.delitem(sys.modules, ON_DEMAND.rpartition(".")[0], raising=False)
    scene.serve()
    put(scene, ON_DEMAND)


def on_demand_and_not_found(scene: Scene):
    scene.settings.QUEUE_IMPORT = ("tests.operations",)
    scene.serve()
    put(scene, NOT_HERE)
    run_one(scene.queue)


def unknown_and_failed(scene: Scene):
    scene.settings.QUEUE_UNKNOWN_AFTER = 0
    unknown_and_tried(scene)
    scene.queue.promote([scene.names["id"]])
    run_one(scene.queue)


def unknown_and_requeued(scene: Scene):
    """It is known since, and waits for its turn like any other."""
    unknown_and_failed(scene)
    scene.queue.requeue([scene.names["id"]])
    scene.serve(also=[ABSENT])


# ---- Lanes


def head_of_a_shard(scene: Scene, about: int = 0):
    scene.serve()
    ids = [commands.transfer.enqueue("ann", fail=True).id, commands.transfer.enqueue("ann").id]
    run_one(scene.queue)
    scene.about(ids[about], head=ids[0])


def behind_the_head(scene: Scene):
    head_of_a_shard(scene, 1)


def head_that_asked(scene: Scene):
    scene.serve()
    scene.about(commands.wait_for_stock.enqueue("ann").id)
    run_one(scene.queue)


def gathering(scene: Scene):
    scene.serve()
    scene.about(commands.gather.enqueue(1).id)
    commands.gather.enqueue(2)
    scene.queue.claim(1)  # nothing leaves


def throttled(scene: Scene):
    scene.serve()
    commands.report.enqueue(1)
    scene.about(commands.report.enqueue(2).id)
    run_one(scene.queue)


def within_a_rate(scene: Scene):
    scene.serve()
    commands.sync.enqueue("ann")
    scene.about(commands.sync.enqueue("bob").id)
    run_one(scene.queue)


def busy_lane(scene: Scene):
    scene.serve()
    commands.import_rows.enqueue(1)
    scene.about(commands.import_rows.enqueue(2).id)
    scene.queue.claim(1, owner="web-1:42:beef")


def paused_lane(scene: Scene):
    scene.serve()
    scene.about(commands.transfer.enqueue("ann").id)
    scene.queue.lanes.pause(f"{commands.transfer.name}:ann", "out of paper")


def throttled_queue(scene: Scene):
    config = scene.backend.config("default") | {"THROTTLE": {"limit": 1, "window": 3600}}
    scene.settings.QUEUES = {"default": config, "mail": scene.backend.config("mail")}
    scene.serve()
    commands.note.enqueue()
    scene.about(commands.note.enqueue().id)
    claim_one(scene.queue)


# ---- What runs, and who holds it


def held(scene: Scene):
    scene.about(commands.note.enqueue().id)
    scene.queue.claim(1, owner="web-1:42:beef")


def dead_holder(scene: Scene):
    scene.serve(ago=60)
    held(scene)


def dead_holder_and_another(scene: Scene):
    dead_holder(scene)
    scene.serve("web-2:43:cafe")


def holder_that_nobody_knows(scene: Scene):
    """It wrote no heartbeat: a consumer that only drains, or a loop of the project's own."""
    held(scene)


def asked_to_stop(scene: Scene):
    scene.serve()
    held(scene)
    Result(scene.names["id"]).cancel()


def busy_workers(scene: Scene):
    """Both threads work since the heartbeat, which was written before."""
    scene.serve(threads=2, busy=0)
    commands.note.enqueue_many([()] * 2)
    scene.queue.claim(2, owner="web-1:42:beef")
    scene.about(commands.note.enqueue().id)


def free_workers(scene: Scene):
    scene.serve(threads=2, busy=0)
    scene.about(commands.note.enqueue().id)


def quiet_consumers(scene: Scene):
    scene.serve(state="quiet")
    scene.about(commands.note.enqueue().id)


def no_consumer(scene: Scene):
    scene.about(commands.note.enqueue().id)


def consumer_of_another_queue(scene: Scene):
    scene.serve(queue=queues["mail"])
    scene.about(commands.note.enqueue().id)


# ---- What waits, failed, or was never there


def retried(scene: Scene):
    scene.serve()
    scene.about(commands.call_customer.enqueue(7).id)
    run_one(scene.queue)


def out_of_reach(scene: Scene):
    """It could not be begun, as the database of its arguments did not answer: no attempt is counted."""
    scene.serve()
    scene.about(commands.note.enqueue().id)
    lease = claim_one(scene.queue)
    why = "could not be run: OperationalError: the server closed the connection"
    noted = with_error(lease.entry.errors, at=scene.queue.now(), attempt=1, reason=why, owner="web-1:42:beef")
    scene.queue.release([replace(lease, entry=replace(lease.entry, attempts=0, delay=60.0, errors=noted))])


def delayed(scene: Scene):
    scene.serve()
    scene.about(commands.note.using(delay=600).enqueue().id)


def failed(scene: Scene):
    scene.serve()
    scene.about(commands.break_down.enqueue().id)
    run_one(scene.queue)


def expired(scene: Scene):
    scene.serve()
    scene.about(commands.greet.enqueue("ann").id)
    until = scene.queue.now() + 0.002
    while scene.queue.now() < until:
        time.sleep(0.001)


def refused(scene: Scene):
    scene.serve()
    first = commands.rebuild.enqueue(7)
    result = commands.rebuild.enqueue(7)
    scene.about(result.id, first=first.id)


def absorbed(scene: Scene):
    scene.serve()
    for _ in range(2):
        first = commands.index.enqueue("/")
    scene.about(commands.index.enqueue("/").id, first=first.id)


def never_committed(scene: Scene):
    """Its transaction was rolled back, or is open still."""
    scene.serve()
    alias = scene.queue.database or "default"
    try:
        with transaction.atomic(using=alias):
            scene.about(commands.note.enqueue().id if scene.queue.database else "0" * 32)
            raise LookupError
    except LookupError:
        pass


def removed(scene: Scene):
    scene.serve()
    id = commands.note.enqueue().id
    scene.about(id)
    operations.remove(scene.queue, [id], by="ann")


def moved(scene: Scene):
    scene.serve()
    scene.about(commands.note.enqueue().id)


def moved_to_what_sorts_first(scene: Scene):
    scene.serve(queue=queues["mail"])
    scene.about(commands.note.using(queue_name="mail").enqueue().id)


# ---- Stores that cannot be reached, and two of them


def one_of_three_stores_down(scene: Scene):
    database = {"CLASS": "djqueue.backends.database.DatabaseQueue", "CONNECTION": "default", "NAME": "local"}
    scene.settings.QUEUES = {"away": UNREACHABLE, "default": scene.backend.config("default"), "local": database}
    scene.serve()
    scene.about(commands.note.enqueue().id)
    commands.transfer.enqueue("ann")
    scene.queue.lanes.pause(f"{commands.transfer.name}:ann", "out of paper")
    operations.pause("queue", "local", why="inventory", by="ann")


def unknown_while_a_store_is_down(scene: Scene):
    one_of_three_stores_down(scene)
    scene.about("f" * 32)


def paused_in_two_stores(scene: Scene):
    database = {"CLASS": "djqueue.backends.database.DatabaseQueue", "CONNECTION": "default", "NAME": "local"}
    scene.settings.QUEUES = {"default": scene.backend.config("default"), "local": database}
    scene.serve()
    scene.about(commands.note.enqueue().id)
    operations.pause("command", commands.note.name, why="inventory", by="ann")


def paused_command(scene: Scene):
    scene.serve()
    scene.about(commands.note.enqueue().id)
    operations.pause("command", commands.note.name, "default", why="inventory", by="ann")


# ---- Schedules and rates


def follow_schedules(scene: Scene):
    Scheduler([scene.queue]).tick()


def schedule_that_never_ticked(scene: Scene):
    scene.serve()
    follow_schedules(scene)


def schedule_that_was_never_seen(scene: Scene):
    scene.serve()


def schedule_that_ticked(scene: Scene):
    scene.serve()
    follow_schedules(scene)
    tracker, now = PeriodicTracker(commands.nightly), datetime.fromtimestamp(scene.queue.now(), UTC)
    tick = commands.nightly.validate_datetime.next(now)
    tracker.recall(scene.queue, scene.queue.store.get(tracker.key), now)
    tracker.serve(scene.queue, tick + timedelta(seconds=1), now)
    scene.names["tick"] = f"{tick:%H:%M:%S}"


def made_and_never_ticked(scene: Scene):
    scene.serve()
    schedules.add("hourly", commands.note, every=3600)


def one_run(scene: Scene):
    scene.serve()
    counted(scene.queue, commands.note.name, seconds=10.2, done=1)


def twenty_runs(scene: Scene):
    scene.serve()
    counted(scene.queue, commands.note.name, seconds=10.2, done=20)


# ---- Clocks, bounds


def clocks_apart(scene: Scene):
    """From here on the clock of this process is an hour ahead of that of the store."""
    delayed(scene)
    if scene.backend.id == "memory":  # whose clock is that of this process
        clock = time.time
        for clocked in (scene.queue, scene.queue.store, scene.queue.store.shared):
            scene.monkeypatch.setattr(clocked, "clock", lambda: clock() - 3600)
    scene.ahead = time_machine.travel(time.time() + 3600)
    scene.ahead.start()


def beyond_the_bound(scene: Scene):
    scene.serve()
    commands.note.enqueue_many([()] * 30)
    scene.about(commands.report.enqueue(1).id)
    scene.monkeypatch.setattr(paging, "MOST_CHECKED", 20)
    scene.monkeypatch.setattr(finding, "MOST_CHECKED", 20)
    scene.monkeypatch.setattr(paging.page, "__defaults__", (None, paging.SIZE, 20))


def item_of_a_loop(scene: Scene):
    scene.serve()
    scene.queue.push("an item for a loop of one's own")
    [item] = operations.messages_of(scene.queue)
    scene.about(item.id)


def forged(scene: Scene):
    scene.serve()
    scene.queue.put([Entry(b"djq1c", "stranger", command=commands.note.name)])
    scene.about("stranger")
