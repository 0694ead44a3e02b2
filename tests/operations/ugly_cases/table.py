"""The table of ugly cases: what is so, and what each front end must say, or (``not: …``) must not say, of it.

Upper and lower case do not matter. Front ends are those of scene.py, or a command line.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tests.operations.ugly_cases import arranging
from tests.operations.ugly_cases.scene import Scene


@dataclass(frozen=True)
class Case:
    so: str
    """What is so, in words."""
    arrange: Callable[[Scene], object]
    says: Mapping[str, Sequence[str]]
    in_memory: bool = False
    """Whether the health of a queue in memory says it too: of that no other process hears of consumers."""

    @property
    def name(self) -> str:
        return self.arrange.__name__


NO_ATTEMPT = ("not: attempt 1", "not: run-now")
CASES = [
    # ---- Commands that are not known
    Case(
        "No code has the command, and one consumer has tried it: it counts as no attempt, and fails after an hour.",
        arranging.unknown_and_tried,
        {
            "explain": ("No live consumer of this queue knows {command}", "fails at", "deploy", *NO_ATTEMPT),
            "explain part": ("No live consumer of this queue knows {command}",),
            "explain json": ('"unknown_command"', 'not: "retry"'),
            "message page": ("No live consumer of this queue knows {command}", "fails at", *NO_ATTEMPT),
            "health": ("no live consumer knows the command {command}", "1h"),
            "page": ("not: attempt 1 failed",),
            "messages": ("unknown command",),
        },
    ),
    Case(
        "No code has the command, and nobody has tried it yet.",
        arranging.unknown_and_ready,
        {
            "explain": ("No live consumer of this queue knows {command}", "1h", "not: nothing stops it"),
            "health": ("no live consumer knows the command {command}",),
        },
    ),
    Case(
        "The same, behind 150 messages that are delayed for longer.",
        arranging.unknown_behind_many,
        {"health": ("no live consumer knows the command {command}",)},
    ),
    Case(
        "The code here has the command; the consumers run older code, which has another of a like name.",
        arranging.known_here_alone,
        {
            "explain": ("No live consumer of this queue knows {command}", "restart", "not: did you mean"),
            "health": ("no live consumer knows the command {command}", "not: did you mean"),
        },
    ),
    Case(
        "One of two consumers knows it: the other puts it back.",
        arranging.known_to_some,
        {
            "explain": ("1 of 2 consumers", "web-2:43:cafe", "not: No live consumer"),
            "health": ("not: no live consumer knows",),
        },
    ),
    Case(
        "The consumers know it, and this process does not: another release, or another project.",
        arranging.known_to_consumers_alone,
        {
            "explain": ("Nothing stops it", "not: unknown command", "not: no live consumer"),
            "health": ("not: knows the command",),
        },
    ),
    Case(
        "Its module is imported when a message names it: no consumer knows it before, and all run it.",
        arranging.on_demand,
        {
            "explain": ("Nothing stops it", "not: no live consumer"),
            "health": ("not: knows the command", "not: fail"),
        },
    ),
    Case(
        "Its module is imported when a message names it, and has no such command: one consumer has tried.",
        arranging.on_demand_and_not_found,
        {
            "explain": ("did not find {command}", "fails at", *NO_ATTEMPT),
            "health": ("{command}", "did not find"),
        },
    ),
    Case(
        "It was unknown for longer than QUEUE_UNKNOWN_AFTER.",
        arranging.unknown_and_failed,
        {
            "explain": ("It failed for good", "unknown command", "queue_errors retry"),
            "health": ("not: no live consumer knows",),
            "errors": ("unknown command",),
        },
    ),
    Case(
        "It was unknown, failed, was requeued, and is known now.",
        arranging.unknown_and_requeued,
        {
            "explain": ("Nothing stops it", "not: did not find", "not: no live consumer"),
            "health": ("not: knows the command",),
        },
    ),
    # ---- Lanes
    Case(
        "The first message of a shard waits for its retry.",
        arranging.head_of_a_shard,
        {
            "explain": ("ann does not answer", "attempt 2 of 5", "in 9m", "not: retry of its first message"),
            "message page": ("ann does not answer", "attempt 2 of 5"),
            "explain queue": ("retry of its first message", "ann does not answer", "2 messages wait in it"),
            "lanes page": ("retry of its first message", "Resume"),
        },
    ),
    Case(
        "One behind it.",
        arranging.behind_the_head,
        {"explain": ("retry of its first message, {head}", "ann does not answer", "not: throttled")},
    ),
    Case(
        "The first message of a shard asked to be run again in ten minutes: nothing failed.",
        arranging.head_that_asked,
        {"explain": ("attempt 2", "in 9m", "not: attempt 1 failed", "not: throttled")},
    ),
    Case(
        "A batch gathers: two of five wait, for up to ten minutes.",
        arranging.gathering,
        {
            "explain": ("gathers", "2 of 5", "not: throttled"),
            "explain queue": ("gathers", "not: throttled"),
            "lanes page": ("gathers", "not: throttled"),
        },
    ),
    Case(
        "A throttle holds its lane: to resume it changes nothing.",
        arranging.throttled,
        {
            "explain": ("is throttled until", "not: resume"),
            "explain queue": ("is throttled until",),
            "lanes": ("scheduled",),
            "lanes page": ("throttled", "not: Resume"),
        },
    ),
    Case(
        "Its shard waits for the rate that all shards of the command share.",
        arranging.within_a_rate,
        {"explain": ("within the limit of", "throttled until")},
    ),
    Case(
        "As many of its lane run as may.",
        arranging.busy_lane,
        {"explain": ("is busy", "1 message of it runs", "not: nothing stops it"), "lanes": ("busy",)},
    ),
    Case(
        "Its lane is paused.",
        arranging.paused_lane,
        {
            "explain": ("is paused: out of paper", "--resume"),
            "explain queue": ("is paused: out of paper", "1 message waits in it"),
            "lanes page": ("out of paper", "Resume"),
        },
    ),
    Case(
        "The throttle of the whole queue is used up.",
        arranging.throttled_queue,
        {
            "explain": ("The queue is throttled for", "not: nothing stops it"),
            "queues page": ("throttled for", "not: not throttled"),
            "lanes": ("The queue 'default' is throttled for",),
        },
    ),
    # ---- What runs, and who holds it
    Case(
        "Its consumer is dead, and no other lives.",
        arranging.dead_holder,
        {
            "explain": ("it has died", "no live consumer", "not: another consumer runs it"),
            "message page": ("no live consumer", "not: another consumer runs it"),
            "health": ("no consumer serves it", "web-1:42:beef"),
            "consumers": ("gone",),
        },
    ),
    Case(
        "Its consumer is dead, and another one serves the queue.",
        arranging.dead_holder_and_another,
        {"explain": ("it has died", "another consumer", "not: no live consumer")},
    ),
    Case(
        "Whoever holds it wrote no heartbeat.",
        arranging.holder_that_nobody_knows,
        {"explain": ("web-1:42:beef holds it until", "not: has died", "not: another consumer runs it")},
    ),
    Case(
        "It runs, and was asked to stop.",
        arranging.asked_to_stop,
        {"explain": ("holds it until", "was asked to stop"), "messages": ("running",)},
    ),
    Case(
        "Both threads work since the last heartbeat.",
        arranging.busy_workers,
        {"explain": ("2 workers, 2 of them busy",), "explain queue": ("2 workers, 2 of them busy",)},
    ),
    Case(
        "Both threads are free.",
        arranging.free_workers,
        {"explain": ("2 workers, 0 of them busy", "Nothing stops it")},
    ),
    Case(
        "All consumers are quiet.",
        arranging.quiet_consumers,
        {"explain": ("claim nothing more", "--resume"), "health": ("quiet",), "consumers": ("quiet",)},
    ),
    Case(
        "No consumer was ever there.",
        arranging.no_consumer,
        {
            "explain": ("No live consumer serves the queue 'default'", "queue_consumer -q default"),
            "health": ("no consumer serves it",),
            "consumers": ("no consumer",),
        },
    ),
    Case(
        "The only consumer serves another queue of the store.",
        arranging.consumer_of_another_queue,
        {"explain": ("No live consumer serves the queue 'default'",), "health": ("default no consumer",)},
    ),
    # ---- What waits, has failed, or was never there
    Case(
        "It failed once, and is tried again in ten minutes.",
        arranging.retried,
        {
            "explain": ("attempt 1 failed", "7 does not answer", "attempt 2 of 5", "in 9m", "run-now"),
            "message page": ("attempt 1 failed", "Run now", "not: do not wait", "not: queue_messages"),
        },
    ),
    Case(
        "It could not be begun, as a database did not answer: no attempt is counted.",
        arranging.out_of_reach,
        {
            "explain": ("could not be run: OperationalError", "counts as no attempt", "not: attempt 1 failed"),
            "message page": ("could not be run: OperationalError", "not: attempt 1 failed"),
        },
    ),
    Case(
        "It was enqueued with a delay.",
        arranging.delayed,
        {"explain": ("enqueued with a delay", "in 9m", "run-now"), "explain queue": ("Nothing is due",)},
    ),
    Case(
        "It failed for good.",
        arranging.failed,
        {
            "explain": ("failed for good", "out of paint", "queue_errors retry"),
            "message page": ("failed for good", "Retry", "not: queue_errors"),
            "errors": ("out of paint",),
            "explain queue": ("1 message has failed",),
        },
    ),
    Case(
        "Its time to live is over, and nobody has taken it yet.",
        arranging.expired,
        {"explain": ("It is not run when it is taken", "ttl")},
    ),
    Case(
        "A unique call was refused: it is in no queue, and another one counts for it.",
        arranging.refused,
        {
            "explain": ("unique", "duplicate_of", "not known"),
            "message page": ("404", "unique"),
            "queue_explain {first}": ("Nothing stops it",),
        },
    ),
    Case(
        "A debounced call was absorbed by the one that waits.",
        arranging.absorbed,
        {"explain": ("debounced", "duplicate_of", "not known"), "queue_explain {first}": ("is due",)},
    ),
    Case(
        "Its transaction was rolled back.",
        arranging.never_committed,
        {"explain": ("transaction", "not known")},
    ),
    Case(
        "An operator removed it.",
        arranging.removed,
        {"explain": ("remove by ann", "not: QUEUE_HISTORY"), "message page": ("remove by ann",)},
    ),
    Case(
        "It is moved to another queue, as the documents show it.",
        arranging.moved,
        {
            "queue_messages move --to mail --command note --no-input": ("1 message moved", "not: error", "not: exit"),
            "explain": ("queue mail", "No live consumer serves the queue 'mail'"),
            "queue_messages move --to mail --all --no-input": ("0 messages moved", "not: error"),
            "queue_messages move -q mail --to mail --all --no-input": ("is the queue in which they wait",),
        },
    ),
    Case(
        "It waits in a queue that sorts behind the one to which it is moved.",
        arranging.moved_to_what_sorts_first,
        {"queue_messages move --to default --command note --no-input": ("1 message moved", "not: error")},
    ),
    # ---- Stores that cannot be reached, and two of them
    Case(
        "One of three stores is down; the message is in another.",
        arranging.one_of_three_stores_down,
        {
            "explain": ("Nothing stops it", "not: error", "not: away"),
            "explain part": ("Nothing stops it", "not: error"),
            "explain queue": ("out of paper", "not: error"),
            "queue_explain away": ("Queue 'away'", "cannot be reached"),
            "queue_explain": ("out of paper", "Queue 'away'", "not: Queue 'local':"),
            "health": ("away", "cannot be reached", "not: critical local redis"),
            "stats": ("default", "local", "Queue 'away'", "inventory"),
            "messages": ("{part}", "Queue 'away'"),
            "errors": ("Queue 'away'",),
            "lanes": ("out of paper", "Queue 'away'"),
            "schedules": ("nightly", "Queue 'away'"),
            "pauses": ("inventory", "Queue 'away'"),
            "consumers": ("web-1:42:beef", "Queue 'away'"),
            "page": ("200", "away", "cannot be reached"),
            "queues page": ("200", "away", "cannot be reached", "inventory"),
            "message page": ("200", "Nothing stops it"),
            "messages page": ("200", "{part}", "Queue 'away'"),
            "failed page": ("200", "Queue 'away'"),
            "lanes page": ("200", "out of paper", "Queue 'away'"),
            "schedules page": ("200", "nightly", "Queue 'away'"),
            "commands page": ("200", "import_rows", "Queue 'away'"),
            "consumers page": ("200", "web-1:42:beef", "away"),
            "history page": ("200", "Queue 'away'"),
        },
    ),
    Case(
        "One of three stores is down, and no other has the message: it may be there.",
        arranging.unknown_while_a_store_is_down,
        {
            "explain": ("No queue that could be asked has it", "Queue 'away'", "cannot be reached", "not known"),
            "message page": ("Queue 'away'", "No queue that could be asked has it"),
        },
    ),
    Case(
        "A command is paused for all queues, which are in two stores.",
        arranging.paused_in_two_stores,
        {
            "pauses": ("inventory", "not: inventory command"),
            "queue_pause --json": ("inventory", "not: }, {"),
            "explain": ("is paused by ann",),
            "queue_resume --all": ("is resumed", "not: was not paused"),
        },
    ),
    Case(
        "A command is paused in one queue.",
        arranging.paused_command,
        {
            "explain": ("is paused by ann", "inventory", "queue_resume --command"),
            "message page": ("is paused by ann", "inventory"),
            "health": ("is paused by ann",),
            "stats": ("is paused",),
        },
        in_memory=True,
    ),
    # ---- Schedules and rates
    Case(
        "A schedule was seen by a scheduler, and has never ticked.",
        arranging.schedule_that_never_ticked,
        {
            "schedules json": ('"last": null',),
            "schedules": ("02:00", " -"),
            "schedules page": ("nightly", "not: ago"),
        },
    ),
    Case(
        "No scheduler has ever seen it.",
        arranging.schedule_that_was_never_seen,
        {"schedules json": ('"last": null',), "schedules page": ("nightly", "not: ago")},
    ),
    Case(
        "It has ticked once.",
        arranging.schedule_that_ticked,
        {"schedules json": ('not: "last": null',), "schedules": ("ready",), "schedules page": ("ready",)},
    ),
    Case(
        "A schedule that was made at run time has never ticked.",
        arranging.made_and_never_ticked,
        {"queue_schedules --json": ('"hourly"', '"last": null', 'not: "last": 1')},
    ),
    Case(
        "One run took 10.2 s: its class is known, and no median.",
        arranging.one_run,
        {"commands page": ("10–30 s", "not: 20 s", "not: 29 s")},
    ),
    Case(
        "Twenty runs took about as long.",
        arranging.twenty_runs,
        {"commands page": ("20 s", "29 s", "not: 10–30 s")},
    ),
    # ---- Clocks, bounds, and what others wrote
    Case(
        "The clock of this machine is an hour ahead of that of the store.",
        arranging.clocks_apart,
        {
            "explain": ("in 9m", "not: no live consumer", "not: it has died"),
            "queue_health -q default": ("not: gone", "not: no consumer"),
            "message page": ("in 9m", "not: 1h"),
            "consumers": ("running", "not: gone"),
            "messages": ("delayed", "not: 1h"),
        },
    ),
    Case(
        "It is behind more messages than are checked.",
        arranging.beyond_the_bound,
        {
            "queue_messages list --command report --look-at 20 --limit 10": (
                "were checked",
                "--after",
                "not: no message matches.",
            ),
            "explain part": ("are checked", "whole id"),
            "explain": ("Nothing stops it",),
        },
    ),
    Case(
        "It is a plain item for a loop of the project's own.",
        arranging.item_of_a_loop,
        {"explain": ("Nothing stops it", "not: unknown"), "health": ("not: command",)},
    ),
    Case(
        "Somebody else wrote it: its signature is bad.",
        arranging.forged,
        {"explain": ("It will fail when it is taken", "not: nothing stops it")},
    ),
]
