"""Order, concurrency, rates and batches: what the options make of a call's lane, and what a consumer sees of that."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from djqueue import Batch, Deferrable, Result, Route, Throttle, Throttled, crontab, invoker, periodic_command
from djqueue.backends.entries import Entry
from djqueue.decorators import queue_command
from djqueue.enqueueing.command import Call
from djqueue.exceptions import Discard, EncodeError, Fail, InvalidMessage, NotSupported, QueueError, Retry
from djqueue.flow.gates import Gate
from djqueue.flow.limits import MOST
from djqueue.flow.windows import Window, of_starts
from djqueue.policies.outcomes import Outcome, Verdict, hold_of
from djqueue.policies.policy import Policy, key_text, placed
from djqueue.registry import registry
from djqueue.running.executor import execute
from djqueue.running.settle import settle
from djqueue.testing import run_due, virtual_time
from tests.support.consumer import only, recorded_signals
from tests.support.notes import cleared_per_test

pytestmark = pytest.mark.backends("memory")

ran: list = cleared_per_test([])
told: dict[int, list] = cleared_per_test({})
"""What the next starts for a number raise."""


def by_user(user, *args, **kwargs):
    return user


def by_tenant(user, tenant=None):
    return tenant


@pytest.fixture(autouse=True)
def _no_other_commands():
    """What a test declares is all that is registered, and gone with it."""
    with only():
        yield


@pytest.fixture
def clock(queue):
    with virtual_time(datetime(2030, 1, 1, tzinfo=UTC)) as clock:
        yield clock


def tick():
    pass


def gather(calls):
    raise NotImplementedError


def work(user, number):
    ran.append((user, number))
    if told.get(number):
        raise told[number].pop(0)


def declared(**options):
    """The command ``work``, with options."""
    registry.unregister(f"{__name__}.work")
    return queue_command(**options)(work)


def calls(command, *numbers):
    """Calls of user 1."""
    for number in numbers:
        command(1, number)


def place(*args, **options):
    """The lane and the gate of a call of the command ``app.send``."""
    plan = Policy.of(**options).plan
    lane, gate = ("", "") if plan is None else placed(plan, "app.send", Call(args))
    return lane, Gate.read(gate) if gate else None


def numbers():
    return [number for _, number in ran]


FAST, DAILY = Throttle(10, 1), Throttle(1000, 86400)
PER_USER = Throttle(10, 1, key=by_user)
API = Throttle(50, 1, name="api")
TEN, THOUSAND, FIFTY = map(of_starts, (Window(10, 1.0), Window(1000, 86400.0), Window(50, 1.0)))
ORDERED = Gate(ordered=True, max_run=32)


def wide(window):
    """The gate of what several lanes share."""
    return Gate(max_run=MOST, windows=(window,))


PLACES = [
    ({}, "", None),
    ({"shard": by_user}, "app.send:7", ORDERED),
    ({"shard": by_user, "max_run": 1}, "app.send:7", Gate(ordered=True)),
    ({"shard": 0}, "app.send:0", ORDERED),
    ({"shard": "mail"}, "app.send:mail", ORDERED),
    ({"concurrency": 3}, "app.send", Gate(concurrency=3)),
    ({"concurrency": 3, "key": by_user}, "app.send:7", Gate(concurrency=3)),
    ({"throttle": FAST}, "app.send", Gate(windows=(TEN,))),
    ({"throttle": [FAST, DAILY]}, "app.send", Gate(windows=(TEN, THOUSAND))),
    ({"throttle": PER_USER}, "app.send:7", Gate(windows=(TEN,))),
    ({"throttle": API}, "app.send", Gate(parent="throttle:api", parent_gate=wide(FIFTY))),
    (
        {"throttle": Throttle(50, 1, name="api", key=by_user)},
        "app.send:7",
        Gate(parent="throttle:api:7", parent_gate=wide(FIFTY)),
    ),
    (
        {"throttle": [PER_USER, DAILY]},
        "app.send:7",
        Gate(windows=(TEN,), parent="app.send*", parent_gate=wide(THOUSAND)),
    ),
    (
        {"shard": by_user, "throttle": DAILY},
        "app.send:7",
        Gate(ordered=True, parent="app.send*", parent_gate=wide(THOUSAND)),
    ),
    (
        {"shard": by_user, "concurrency": 2, "throttle": [PER_USER, FAST]},
        "app.send:7",
        Gate(ordered=True, windows=(TEN,), parent="app.send*", parent_gate=Gate(concurrency=2, windows=(TEN,))),
    ),
    ({"concurrency": 2, "key": by_user, "throttle": PER_USER}, "app.send:7", Gate(concurrency=2, windows=(TEN,))),
    (
        {"concurrency": 2, "throttle": [FAST, API]},
        "app.send",
        Gate(concurrency=2, windows=(TEN,), parent="throttle:api", parent_gate=wide(FIFTY)),
    ),
    (
        {"shard": by_user, "throttle": API},
        "app.send:7",
        Gate(ordered=True, parent="throttle:api", parent_gate=wide(FIFTY)),
    ),
    ({"batch": 100}, "app.send", Gate(max_run=100)),
    ({"batch": True}, "app.send", Gate(max_run=128)),
    ({"batch": Batch(100, min_size=10, timeout=2)}, "app.send", Gate(max_run=100, min_batch=10, batch_timeout=2.0)),
    ({"batch": 100, "shard": by_user}, "app.send:7", Gate(ordered=True, max_run=100)),
    ({"batch": 100, "throttle": FAST}, "app.send", Gate(max_run=100, windows=(TEN,))),
]


def named(options):
    return " ".join(options) or "nothing"


@pytest.mark.parametrize(("options", "lane", "gate"), PLACES, ids=[named(options) for options, *_ in PLACES])
def test_the_options_say_in_which_lane_a_call_waits_and_by_what_gate(options, lane, gate):
    assert place(7, **options) == (lane, gate)


TOO_MUCH = [
    ({"shard": by_user, "throttle": Throttle(1, 1, key=by_tenant)}, "shard= and Throttle.1, 1, key=….* different keys"),
    ({"shard": by_user, "concurrency": 2, "key": by_tenant}, "shard= and key= .of concurrency=. say different keys"),
    ({"shard": by_user, "concurrency": 2, "key": by_user}, "a shard runs one at a time"),
    ({"shard": 1, "throttle": PER_USER}, "different keys"),
    ({"throttle": [PER_USER, Throttle(1, 1, key=by_tenant)]}, "different keys"),
    ({"shard": by_user, "throttle": [FAST, API]}, "not both. Give the limits of the command to that throttle"),
    ({"shard": by_user, "concurrency": 2, "throttle": API}, "not both"),
    ({"throttle": [API, Throttle(1, 1, name="other")]}, "throttles of different names, 'api' and 'other'"),
    ({"throttle": [API, Throttle(50, 1, name="api", key=by_user)]}, "throttles of one name, 'api', whose keys differ"),
]


@pytest.mark.parametrize(("options", "reason"), TOO_MUCH, ids=[named(options) for options, _ in TOO_MUCH])
def test_what_would_wait_in_two_lanes_or_within_two_is_refused_with_what_to_do(options, reason):
    with pytest.raises(ValueError, match=reason):
        queue_command(**options)


@pytest.mark.parametrize(("key", "text"), [(7, "7"), ("7", "7"), (-1, "-1"), ("blå", "blå"), (Route(3).thread, "3")])
def test_a_number_or_a_text_is_itself_in_the_name_of_its_lane(key, text):
    assert key_text(key) == text


@pytest.mark.parametrize("key", [True, "", "a\nb", "a\0b", "\ud800", (1, 2), 1.5, b"x", frozenset({1})])
def test_any_other_key_is_a_digest_there(key):
    assert len(key_text(key)) == 32
    assert key_text(key) == key_text(key) != key_text(repr(key))


def test_keys_that_cannot_be_told_apart_are_refused_at_the_call(queue):
    command = declared(shard=lambda user, number: object.__new__)
    with pytest.raises(EncodeError):
        command(lambda: None, 1)


def test_an_error_of_a_function_that_says_the_shard_reaches_the_caller_and_nothing_is_put(queue):
    command = declared(shard=lambda user, number: user + number)
    with pytest.raises(TypeError, match="concatenate") as caught:
        command("ann", 2)
    assert "the shard or the key of a call of tests.consumer.test_lanes.work" in caught.value.__notes__[0]
    assert len(queue) == 0


def test_long_names_of_lanes_end_in_a_digest_and_stay_different():
    lanes = {place("x" * 300 + end, shard=by_user)[0] for end in "abc"}
    assert len(lanes) == 3
    assert {len(lane) for lane in lanes} == {200}
    assert all(lane.startswith("app.send:xxx") for lane in lanes)


def test_a_key_of_none_is_free_of_what_is_for_each_key():
    assert place(None, shard=by_user) == ("", None)
    assert place(None, throttle=PER_USER) == ("", None)
    assert place(None, concurrency=2, key=by_user) == ("", None)
    assert place(None, shard=by_user, throttle=DAILY) == (
        "app.send",
        Gate(parent="app.send*", parent_gate=wide(THOUSAND)),
    )
    assert place(None, shard=by_user, batch=100) == ("app.send", Gate(max_run=100))
    assert place(None, throttle=Throttle(50, 1, name="api", key=by_user)) == ("", None)


def test_the_lanes_of_equal_keys_of_two_commands_are_two():
    policy = Policy.of(shard=by_user)
    assert placed(policy.plan, "app.send", ((7,), {})).lane != placed(policy.plan, "app.call", ((7,), {})).lane


def test_keyword_arguments_reach_the_function_that_says_the_shard(queue):
    command = declared(shard=lambda user, **_: user % 3)
    command(user=7, number=1)
    [record] = queue.peek("ready")
    assert record.entry.lane == "tests.consumer.test_lanes.work:1"


def test_the_prefix_of_lanes_and_the_size_of_batches_are_settings_read_at_the_call(settings):
    settings.QUEUE_LANE_PREFIX = "tube_"
    settings.QUEUE_BATCH_SIZE = 5
    assert place(7, shard=by_user)[0] == "tube_app.send:7"
    assert place(7, throttle=[PER_USER, DAILY])[1].parent == "tube_app.send*"
    assert place(7, throttle=API)[1].parent == "tube_throttle:api"
    assert place(7, batch=True)[1].max_run == 5
    settings.QUEUE_BATCH_SIZE = 6
    assert place(7, batch=True)[1].max_run == 6


def test_options_may_change_the_shard_of_one_call(queue):
    command = declared(shard=by_user, failure_policy="skip", max_run=5)
    command.using(shard="other")(1, 2)
    command.using(shard=None)(1, 2)
    assert {record.entry.lane for record in queue.peek("ready")} == {"tests.consumer.test_lanes.work:other", ""}


def test_taking_concurrency_back_takes_its_key_back():
    policy = Policy.of(concurrency=2, key=by_user)
    assert policy.using(concurrency=None).key is None
    assert policy.using(concurrency=None, unique=True).key is by_user


def test_batch_is_part_of_what_a_command_is():
    with pytest.raises(ValueError, match="where the command is declared"):
        declared().using(batch=5)
    command = queue_command(batch=5)(gather)
    with pytest.raises(ValueError, match="where the command is declared"):
        command.using(batch=None)
    assert command.using(batch=6).policy.batch == Batch(6)


def test_a_route_is_thread_0_and_priority_0_unless_it_says_otherwise():
    assert Route() == Route(0, 0)
    assert Route(5) == Route(thread=5, priority=0)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Throttle(0, 1), "limit is 0"),
        (lambda: Throttle(1, 0), "window is 0"),
        (lambda: Throttle(5, 1, elastic=True), "moderate=True"),
        (lambda: Throttle(5, 1, elastic_buffer=1), "elastic_buffer bounds"),
        (lambda: Throttle(5, 1, key="user"), "key='user'"),
        (lambda: Throttle(5, 1, name="a:b"), "name='a:b'"),
        (lambda: Throttle(5, 1, name=""), "name=''"),
        (lambda: Throttled(retry_after=-1), "retry_after"),
        (lambda: Throttled(retry_after="soon"), "retry_after"),
        (lambda: Throttled(retry_after=float("nan")), "retry_after"),
        (lambda: Batch(0), "batch is 0"),
        (lambda: Batch(1001), "at most 1000"),
        (lambda: Batch(5, min_size=6, timeout=1), "min_size=6"),
        (lambda: Batch(5, min_size=2), "give both"),
        (lambda: Batch(5, timeout=2), "give both"),
    ],
)
def test_a_throttle_or_a_batch_that_makes_no_sense_is_refused(make, words):
    with pytest.raises((TypeError, ValueError), match=words):
        make()


def test_a_window_may_be_a_timedelta():
    assert Throttle(5, timedelta(minutes=1)) == Throttle(5, 60)


def test_merged_calls_may_have_a_shard_of_the_same_key():
    assert Policy.of(debounce=1, merge=work, key=by_user, shard=by_user).plan.key is by_user
    assert Policy.of(debounce=1, merge=work, shard=0).shard == 0


def other(user, number):
    work(user, number)


class TestSharedThrottles:
    def test_commands_that_share_one_are_counted_together(self, clock):
        api = Throttle(2, 10, name="api")
        first, second = declared(throttle=api), queue_command(throttle=api)(other)
        for number in range(3):
            first(1, number)
            second(1, 10 + number)
        assert len(run_due()) == 2
        run_due(until=20)
        assert len(ran) == 4
        run_due(until=1)
        assert len(ran) == 6

    def test_another_throttle_by_the_same_name_is_refused_and_both_are_named(self):
        queue_command(throttle=Throttle(1, 1))(tick)  # has no name to share
        first = declared(throttle=Throttle(2, 10, name="api"))
        with pytest.raises(QueueError, match=r"other and .*work share.*'api'.*3 per 10 s and 2 per 10 s"):
            queue_command(throttle=Throttle(3, 10, name="api"))(other)
        with pytest.raises(QueueError, match="2 per 10 s for each key and 2 per 10 s"):
            queue_command(throttle=Throttle(2, 10, name="api", key=by_user))(other)
        with pytest.raises(QueueError, match="share the throttle 'api'"):
            first.using(throttle=Throttle(3, 10, name="api"))

    def test_a_module_that_is_executed_again_may_change_it(self):
        declared(throttle=Throttle(2, 10, name="api"))
        assert declared(throttle=Throttle(3, 10, name="api")).policy.throttle[0].limit == 3


RETRIED = {"shard": by_user, "retry_on": [OSError], "retries": 2, "backoff": 10}
ONCE = RETRIED | {"retries": 1}
STORIES = {
    "by default a head that waits for its retry holds its shard": (
        (RETRIED, {1: [OSError] * 2}, [(1, 1), (1, 2), (1, 3), (2, 9)]),
        ([(0, [1, 9]), (9, [1, 9]), (11, [1, 9, 1, 1, 2, 3])], 0),
    ),
    "a retry at once keeps its place too": (
        (RETRIED | {"backoff": False}, {1: [OSError] * 2}, [(1, 1), (1, 2)]),
        ([(0, [1, 1, 1, 2])], 0),
    ),
    "when the retries of a head are over its shard goes on": (
        (ONCE, {1: [OSError] * 2}, [(1, 1), (1, 2)]),
        ([(10, [1, 1, 2])], 1),
    ),
    "with skip only the failed one waits": (
        (ONCE | {"failure_policy": "skip"}, {1: [OSError]}, [(1, 1), (1, 2), (1, 3)]),
        ([(0, [1, 2, 3]), (10, [1, 2, 3, 1])], 0),
    ),
    "a retry that the command asks for holds its shard as a failure does": (
        ({"shard": by_user}, {1: [Retry(after=10)]}, [(1, 1), (1, 2)]),
        ([(9, [1]), (1, [1, 1, 2])], 0),
    ),
    "what is discarded or fails for good does not hold its shard": (
        ({"shard": by_user}, {1: [Discard], 2: [Fail], 3: [ValueError]}, [(1, 1), (1, 2), (1, 3), (1, 4)]),
        ([(0, [1, 2, 3, 4])], 2),
    ),
    "an ordered shard keeps its order under a limit": (
        ({"shard": by_user, "throttle": Throttle(3, 1)}, {}, [(1, number) for number in range(9)]),
        ([(5, [*range(9)])], 0),
    ),
    "of a command that runs alone one that waits for its retry holds up no other": (
        ({"concurrency": 1, "retry_on": [OSError], "retries": 1, "backoff": 10}, {1: [OSError]}, [(1, 1), (1, 2)]),
        ([(0, [1, 2])], 0),
    ),
    "a throttled start holds its shard too": (
        ({"shard": by_user, "failure_policy": "skip"}, {1: [Throttled(5)]}, [(1, 1), (1, 2)]),
        ([(4, [1]), (1, [1, 1, 2])], 0),
    ),
    "a throttled start in no lane waits alone": (
        ({}, {1: [Throttled(30)]}, [(1, 1), (1, 2)]),
        ([(0, [1, 2]), (30, [1, 2, 1])], 0),
    ),
}
"""The options, what starts raise by number, the calls; then the numbers that have run after each wait, and how many
have failed in the end."""


@pytest.mark.parametrize(("given", "expected"), STORIES.values(), ids=STORIES)
def test_what_waits_with_a_message_that_comes_again(queue, clock, given, expected):
    options, raised, made = given
    told.update({number: [*errors] for number, errors in raised.items()})
    command = declared(**options)
    for user, number in made:
        command(user, number)
    moments, failed = expected
    for wait, have_run in moments:
        run_due(until=wait)
        assert numbers() == have_run
    assert len(queue.failed) == failed


class TestShards:
    def test_a_shard_runs_in_order_and_others_beside_it(self, clock):
        command = declared(shard=by_user)
        for number in range(6):
            command(number % 2, number)
        run_due()
        assert [n for user, n in ran if user == 0] == [0, 2, 4]
        assert [n for user, n in ran if user == 1] == [1, 3, 5]

    def test_a_run_is_as_long_as_the_option_says(self, queue):
        command = declared(shard=by_user, max_run=3)
        calls(command, *range(5))
        claimed = queue.claim(5)
        assert len(claimed) == 3
        assert len({lease.run for lease in claimed}) == 1 and claimed[0].run
        assert len(queue.claim(5)) == 0

    def test_a_fixed_order_of_priorities_holds_inside_a_shard(self, clock):
        command = declared(shard=by_user)
        for number, priority in enumerate([0, 5, 0, 5]):
            command.using(priority=priority)(1, number)
        run_due()
        assert numbers() == [1, 3, 0, 2]

    def test_a_shard_that_waits_for_a_retry_does_not_hold_up_others_under_one_throttle(self, clock):
        command = declared(shard=by_user, throttle=Throttle(100, 1), retry_on=[OSError], retries=1, backoff=10)
        told[1] = [OSError()]
        for user, number in ((1, 1), (1, 2), (2, 8), (2, 9)):
            command(user, number)
        run_due()
        assert sorted(numbers()) == [1, 8, 9]
        run_due(until=10)
        assert numbers()[-2:] == [1, 2]

    def test_what_nobody_can_run_here_holds_its_shard(self, queue, clock):
        command = declared(shard=by_user)
        calls(command, 1, 2)
        with only():
            assert [run.outcome for run in run_due()] == ["released"]
        run_due()
        assert numbers() == []
        run_due(until=2)
        assert numbers() == [1, 2]

    def test_delayed_calls_enter_their_shard_when_they_are_due(self, clock):
        command = declared(shard=by_user)
        command.using(delay=10)(1, 1)
        command(1, 2)
        run_due()
        assert numbers() == [2]
        run_due(until=10)
        assert numbers() == [2, 1]

    def test_what_is_requeued_enters_its_shard_anew(self, queue, clock):
        command = declared(shard=by_user)
        told[1] = [ValueError()]
        first = command(1, 1)
        run_due()
        command(1, 2)
        assert queue.requeue([first.id]) == 1
        assert [record.entry.lane for record in queue.peek("ready")] == ["tests.consumer.test_lanes.work:1"] * 2
        run_due()
        assert numbers() == [1, 2, 1]

    def test_an_attempt_is_counted_once_for_each_start(self, clock):
        command = declared(shard=by_user, retry_on=[OSError], retries=2, backoff=1)
        told[1] = [OSError()] * 3
        command(1, 1)
        assert [run.attempt for run in run_due(until=5)] == [1, 2, 3]


class TestParking:
    @pytest.fixture
    def command(self, clock):
        command = declared(shard=by_user, retry_on=[OSError], retries=1, backoff=10, failure_policy="pause")
        told[1] = [OSError(), OSError()]
        calls(command, 1, 2)
        return command

    def test_when_its_retries_are_over_a_message_stays_at_the_head_of_its_shard_which_is_shut(self, queue, command):
        assert [run.outcome for run in run_due(until=10)] == ["retried", "paused"]
        [head, _] = queue.peek("ready")
        assert "OSError" in head.entry.errors  # which stays for the operator
        assert (head.entry.failures, head.entry.lost) == (0, 0)
        run_due(until=3600)
        assert numbers() == [1, 1]
        assert (len(queue.failed), len(queue)) == (0, 2)
        assert queue.lanes.get("tests.consumer.test_lanes.work:1").paused_reason

    def test_opened_by_somebody_it_begins_anew_with_its_retries(self, queue, command):
        run_due(until=10)
        told[1] = [OSError(), OSError()]
        assert queue.lanes.resume("tests.consumer.test_lanes.work:1")
        assert [run.outcome for run in run_due(until=10)] == ["retried", "paused"]
        queue.lanes.resume("tests.consumer.test_lanes.work:1")
        assert [run.outcome for run in run_due()] == ["done", "done"]
        assert numbers() == [1, 1, 1, 1, 1, 2]

    def test_a_message_whose_worker_died_too_often_pauses_its_shard_too(self, queue, command):
        lease, _ = queue.claim(1)
        verdict = execute(queue, replace(lease, entry=replace(lease.entry, lost=3)))
        assert (verdict.outcome, hold_of(lease.entry, verdict)) == (Outcome.PAUSED, "pause")

    def test_cancelled_it_gives_way_when_its_shard_is_opened(self, queue, command):
        run_due(until=10)
        [first, _] = queue.peek("ready")
        assert Result(first.entry.id, command.name, "default").cancel()
        queue.lanes.resume("tests.consumer.test_lanes.work:1")
        run_due()
        assert numbers() == [1, 1, 2]

    def test_other_shards_go_on(self, command):
        command(2, 9)
        run_due(until=10)
        assert 9 in numbers()

    def test_its_signal_says_why_and_its_result_is_not_ended(self, queue, command):
        told.clear()
        told[5] = [OSError("gone"), OSError("gone")]
        result = command.using(result_ttl=60)(5, 5)
        with recorded_signals("paused", "failed", "retried") as signals:
            run_due(until=10)
        assert [(name, named["attempt"]) for name, named in signals] == [("retried", 1), ("paused", 2)]
        assert [named["reason"] for _, named in signals] == ["OSError: gone"] * 2
        assert result.status == "ready"


@pytest.mark.parametrize(
    ("options", "change", "error", "outcome"),
    [
        ({"shard": by_user, "failure_policy": "pause"}, {}, Fail("no"), "paused"),
        ({"shard": by_user}, {"failure_policy": "pause"}, ValueError(), "paused"),
        ({"shard": lambda user, number: None, "failure_policy": "pause"}, {}, ValueError(), "failed"),
    ],
    ids=["Fail pauses as well", "of one call it can be said", "what is in no shard fails as usual"],
)
def test_what_is_paused(queue, clock, options, change, error, outcome):
    told[1] = [error]
    declared(**options).using(**change)(1, 1)
    assert [run.outcome for run in run_due()] == [outcome]
    assert len(queue.failed) == (outcome == "failed")


class TestConcurrency:
    def test_of_a_command_only_so_many_are_out(self, queue):
        command = declared(concurrency=2)
        for number in range(5):
            command(number, number)
        first = queue.claim(10)
        assert len(first) == 2
        assert len(queue.claim(10)) == 0
        queue.complete(first[:1])
        assert len(queue.claim(10)) == 1

    def test_of_each_key_only_so_many_are_out(self, queue):
        command = declared(concurrency=1, key=by_user)
        for number in range(6):
            command(number % 3, number)
        assert sorted(lease.entry.lane[-1] for lease in queue.claim(10)) == ["0", "1", "2"]


class TestThrottles:
    def test_more_than_the_limit_waits_without_costing_an_attempt(self, queue, clock):
        command = declared(throttle=Throttle(2, 10))
        calls(command, *range(5))
        assert [run.attempt for run in run_due()] == [1, 1]
        assert [run.attempt for run in run_due(until=21)] == [1, 1, 1]

    def test_two_windows_at_once_both_hold(self, clock):
        command = declared(throttle=[Throttle(2, 1, key=by_user), Throttle(5, 100)])
        for number in range(8):
            command(number % 2, number)
        assert len(run_due()) == 4
        assert len(run_due(until=10)) == 1
        assert len(run_due(until=89)) == 0
        assert len(run_due(until=2)) == 3

    def test_what_is_throttled_holds_up_nothing_else(self, queue, clock):
        command, free = declared(throttle=Throttle(1, 3600)), queue_command(other)
        calls(command, 1, 2)
        free(1, 3)
        run_due()
        assert sorted(numbers()) == [1, 3]


class TestThrottled:
    """A command that was told to come later: the 429 of another service."""

    def test_it_holds_the_whole_lane_for_as_long_as_it_says(self, clock):
        command = declared(throttle=Throttle(100, 1, key=by_user))
        told[1] = [Throttled(retry_after=30)]
        calls(command, 1, 2)
        command(2, 9)
        assert [run.outcome for run in run_due()] == ["released", "done"]
        run_due(until=29)
        assert numbers() == [1, 9]
        run_due(until=1)
        assert numbers() == [1, 9, 1, 2]

    def test_of_a_shared_throttle_it_holds_all_commands_that_share_it(self, clock):
        api = Throttle(100, 1, name="api")
        command, beside = declared(throttle=api), queue_command(throttle=api)(other)
        told[1] = [Throttled(retry_after=30)]
        command(1, 1)
        beside(1, 2)
        run_due(until=29)
        assert numbers() == [1]
        run_due(until=1)
        assert sorted(numbers()) == [1, 1, 2]

    def test_under_one_throttle_for_all_it_holds_all_of_its_shards(self, clock):
        command = declared(shard=by_user, throttle=Throttle(100, 1))
        told[1] = [Throttled(retry_after=30)]
        command(1, 1)
        command(2, 2)
        run_due(until=29)
        assert numbers() == [1]
        run_due(until=1)
        assert sorted(numbers()) == [1, 1, 2]

    def test_it_costs_neither_an_attempt_nor_a_failure(self, queue, clock):
        command = declared(throttle=Throttle(100, 1), retry_on=[OSError], max_attempts=2, max_lost=1)
        told[1] = [Throttled(retry_after=1)] * 20
        command(1, 1)
        runs = run_due(until=30)
        assert [run.attempt for run in runs] == [1] * 21
        assert runs[-1].done

    def test_without_a_time_the_backoff_of_the_command_decides(self, clock):
        command = declared(backoff=7)
        told[1] = [Throttled()]
        command(1, 1)
        assert [run.delay for run in run_due()] == [7.0]

    def test_its_signal_is_that_of_a_release_and_says_why(self, clock):
        command = declared()
        told[1], told[2] = [Throttled(30)], [Throttled(30, reason="quota of the day")]
        with recorded_signals("released", "retried", "failed") as signals:
            calls(command, 1, 2)
            run_due()
        assert [name for name, _ in signals] == ["released", "released"]
        assert [named["reason"] for _, named in signals] == ["throttled", "throttled: quota of the day"]

    def test_its_time_to_live_ends_it_all_the_same(self, clock):
        command = declared(ttl=45)
        told[1] = [Throttled(30)] * 5
        command(1, 1)
        assert [run.outcome for run in run_due(until=100)] == ["released", "released", "expired"]

    def test_a_class_of_it_that_does_not_call_its_init_works(self, clock):
        class Busy(Throttled):
            def __init__(self, why):
                Exception.__init__(self, why)

        command = declared(backoff=3)
        told[1] = [Busy("come later")]
        command(1, 1)
        assert [(run.outcome, run.delay) for run in run_due()] == [("released", 3.0)]


class TestOneAtATime:
    """Loops of one's own take one message, whatever left its lane with it."""

    @pytest.fixture
    def command(self, queue):
        command = declared(shard=by_user)
        calls(command, *range(3))
        return command

    @pytest.mark.parametrize("run_next", [invoker.dequeue, Deferrable().run_once], ids=["invoker", "deferrable"])
    def test_the_next_is_run_and_the_rest_stays_where_it_was(self, queue, command, run_next):
        assert run_next()
        assert numbers() == [0]
        assert [record.entry.attempts for record in queue.peek("ready")] == [0, 0]
        assert run_next() and run_next() and not run_next()
        assert numbers() == [0, 1, 2]

    def test_who_reads_a_queue_by_hand_loses_nothing(self, queue):
        gate = Gate(ordered=True, max_run=9).written()
        queue.put([Entry(body, body.decode(), lane="a", gate=gate) for body in (b"1", b"2", b"3")])
        assert [queue.read() for _ in range(4)] == ["1", "2", "3", None]

    def test_an_item_takes_nothing_along(self, queue, command):
        with pytest.raises(InvalidMessage):
            queue.take()
        assert (len(queue.failed), len(queue)) == (1, 2)


class TestPeriodic:
    def test_a_periodic_command_may_be_throttled_and_have_a_shard_that_depends_on_no_arguments(self, queue):
        with pytest.raises(ValueError, match="a tick has no arguments"):
            periodic_command(crontab(), shard=by_user)(tick)
        periodic_command(crontab(), shard="nightly", throttle=Throttle(1, 60))(tick)
        invoker.enqueue_periodic_commands()
        [record] = queue.peek("ready")
        assert record.entry.lane == "tests.consumer.test_lanes.tick:nightly"


class TestEager:
    @pytest.fixture(autouse=True)
    def eager(self, queue, settings):
        settings.QUEUE_ALWAYS_EAGER = True

    def test_lanes_hold_nothing_up(self):
        command = declared(shard=by_user, throttle=Throttle(1, 3600))
        calls(command, *range(3))
        assert numbers() == [0, 1, 2]

    def test_what_asks_for_patience_is_run_again_at_once_and_in_the_end_reaches_the_caller(self):
        command = declared(max_attempts=3, retry_on=[OSError])
        told[1], told[2] = [Throttled(30)], [Throttled(30)] * 9
        command(1, 1)
        with pytest.raises(Throttled):
            command(1, 2)
        assert numbers() == [1, 1, 2, 2, 2]

    def test_what_would_pause_its_shard_reaches_the_caller(self):
        command = declared(shard=by_user, failure_policy="pause")
        told[1] = [KeyError("gone")]
        with pytest.raises(KeyError):
            command(1, 1)


HOLDS = {
    "order": [Outcome.RETRY, Outcome.POSTPONED, Outcome.INTERRUPTED, Outcome.RETURNED],
    "lane": [Outcome.THROTTLED],
    "pause": [Outcome.PAUSED],
    "": [Outcome.DONE, Outcome.FAILED],
}


def test_what_waits_with_an_entry_of_an_ordered_lane_follows_from_how_its_start_ended(queue):
    declared(shard=by_user)(1, 1)
    [lease] = queue.claim(1)
    for hold, outcomes in HOLDS.items():
        assert [hold_of(lease.entry, Verdict(outcome)) for outcome in outcomes] == [hold] * len(outcomes)
    assert hold_of(lease.entry, Verdict(Outcome.RETRY, alone=True)) == ""


@pytest.mark.parametrize("outcome", [one for one in Outcome if one is not Outcome.THROTTLED])
def test_nothing_waits_with_an_entry_of_a_lane_without_order_unless_it_asks_for_patience(queue, outcome):
    declared(concurrency=1)(1, 1)
    [lease] = queue.claim(1)
    assert hold_of(lease.entry, Verdict(outcome)) == ""
    assert hold_of(lease.entry, Verdict(Outcome.THROTTLED)) == "lane"


def test_what_is_put_back_unbegun_for_a_while_holds_its_shard_for_as_long(queue, clock):
    command = declared(shard=by_user, max_run=1)
    calls(command, 1, 2)
    [lease] = queue.claim(1)
    settle(queue, [(lease, Verdict(Outcome.RETURNED, delay=10))])
    run_due(until=9)
    assert numbers() == []
    run_due(until=1)
    assert numbers() == [1, 2]


def test_what_is_put_back_for_want_of_time_keeps_its_place_in_its_shard(queue):
    command = declared(shard=by_user)
    calls(command, *range(3))
    leases = queue.claim(1)
    settle(queue, [(lease, Verdict(Outcome.RETURNED)) for lease in leases])
    run_due()
    assert numbers() == [0, 1, 2]


def test_who_says_no_priority_has_the_usual_one(queue, settings):
    command = declared()
    settings.QUEUE_DEFAULT_PRIORITY = 4
    command(1, 1)
    command.using(priority=0)(1, 2)
    assert sorted(record.entry.priority for record in queue.peek("ready")) == [0, 4]


@pytest.mark.parametrize(
    ("options", "needs"),
    [
        ({"shard": by_user}, {"shards"}),
        ({"shard": 0}, {"shards"}),
        ({"shard": by_user, "failure_policy": "skip"}, {"shards", "lanes"}),
        ({"concurrency": 1}, {"lanes"}),
        ({"throttle": FAST}, {"lanes"}),
        ({"batch": 5}, {"lanes"}),
        ({}, set()),
    ],
)
def test_what_a_backend_must_be_able_to_do_follows_from_the_options(options, needs):
    assert Policy.of(**options).needs == needs


def test_a_backend_that_knows_no_lanes_refuses_the_call(queue, monkeypatch):
    monkeypatch.setattr(type(queue), "features", queue.features - {"lanes"})
    with pytest.raises(NotSupported, match="lanes"):
        declared(throttle=FAST)(1, 1)


@pytest.mark.parametrize(
    "call", [lambda command: command(7, 5), lambda command: command(7, number=5), lambda c: c(user=7, number=5)]
)
def test_a_function_of_some_arguments_is_asked_whichever_way_they_are_given(queue, call):
    call(declared(shard=lambda user, **_: user))
    assert queue.claim(1)[0].entry.lane.endswith(":7")


@pytest.mark.parametrize(
    "limits", [{"concurrency": 4}, {"throttle": Throttle(4, 60)}, {"throttle": Throttle(4, 60, name="together")}]
)
def test_a_batch_of_a_shard_is_as_large_as_what_all_shards_share_allows(queue, limits):
    command = queue_command(batch=10, shard=0, **limits)(gather)
    for number in range(8):
        command(number)
    assert len(queue.claim(1)) == 4


def test_a_run_is_of_one_where_each_start_counts_or_there_is_a_bound_of_how_many_run(queue):
    for limit in ({"concurrency": 3}, {"throttle": Throttle(3, 60)}):
        declared(shard=by_user, **limit).enqueue_many([(1, 1)] * 5)
        [claimed] = queue.claim(1)
        queue.complete([claimed])
        queue.flush()
