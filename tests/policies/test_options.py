"""What each option may be, which exclude each other, and what of a call's own options travels with it."""

import functools
from datetime import UTC, datetime, timedelta

import pytest
from django.db.models import IntegerChoices, TextChoices

from djqueue import Backoff, Batch, Concurrency, Debounce, RetryPolicy, Route, Throttle, Unique
from djqueue.backends import guards
from djqueue.backends.base import Entry
from djqueue.decorators import queue_command
from djqueue.exceptions import NotSupported, TimeLimitExceeded
from djqueue.messages.failures import errors_of
from djqueue.policies.options import CONTRADICTIONS
from djqueue.policies.outcomes import Constant, Outcome, read, wait_after, written
from djqueue.policies.policy import Policy
from djqueue.running.context import open_entry
from djqueue.running.executor import policy_of
from tests.support.backends import ACROSS, ON_SQS
from tests.support.consumer import claim_one, run_one
from tests.support.notes import cleared_per_test

EVERY = pytest.mark.backends(*ACROSS)
AND_SQS = pytest.mark.backends(*ACROSS, *ON_SQS)
MEMORY = pytest.mark.backends("memory")
SOON = datetime(2100, 1, 1, tzinfo=UTC)


class Hiccup(Exception):
    pass


class Holder:
    class Inner(Exception):
        pass

    def wait(failures, exception):
        raise NotImplementedError

    def __call__(self, failures, exception):
        raise NotImplementedError


class Longer(Backoff):
    """A Backoff that is more than its fields."""

    def __call__(self, failures, exception=None):
        return 1000.0


def by_path(failures, exception):
    return 7.0


def first(waits, comes):
    return waits


def shard_of(*args, **kwargs):
    raise NotImplementedError


asked = cleared_per_test([])


def ask_delay():
    asked.append("delay")
    return len(asked)


def ask_ttl():
    asked.append("ttl")
    return 500 + len(asked)


def ask_debounce():
    asked.append("debounce")
    return timedelta(seconds=2)


@queue_command
def plain(number=0):
    return number


@queue_command(
    unique=Unique(key=lambda document, tenant: document),
    concurrency=Concurrency(2, key=lambda document, tenant: tenant),
)
def publish(document, tenant):
    raise NotImplementedError


@queue_command(delay=ask_delay, ttl=ask_ttl)
def asking(number=0):
    return number


@queue_command(debounce=ask_debounce, ttl=ask_ttl)
def asking_debounced(number=0):
    return number


@queue_command(retry_on=[Hiccup], ttl=60, time_limit=5, result_ttl=60)
def listed(number=0):
    raise Hiccup


declared = Policy.of


# ---- one by one

GOOD = [
    ("queue_name", "mail", {"queue_name": "mail"}),
    ("priority", -(2**31), {"priority": -(2**31)}),
    ("delay", 0, {"delay": 0.0}),
    ("delay", timedelta(minutes=2), {"delay": 120.0}),
    ("delay", ask_delay, {"delay": ask_delay}),
    ("run_after", SOON, {"run_at": SOON.timestamp(), "delay": 0.0}),
    ("ttl", 0.5, {"ttl": 0.5}),
    ("ttl", None, {"ttl": None}),
    ("ttl", ask_ttl, {"ttl": ask_ttl}),
    ("max_attempts", 1, {"max_attempts": 1}),
    ("max_lost", 7, {"max_lost": 7}),
    ("retry_on", [OSError, KeyError], {"retry_on": (OSError, KeyError)}),
    ("retry_on", {SystemExit}, {"retry_on": (SystemExit,)}),
    ("retry_on", ValueError, {"retry_on": (ValueError,)}),
    ("retry_on", [], {"retry_on": ()}),
    ("retry_on", {OSError: 5, KeyError: False}, {"retry_on": {OSError: RetryPolicy(5), KeyError: RetryPolicy(False)}}),
    ("backoff", False, {"backoff": Constant(0.0)}),
    ("backoff", True, {"backoff": Backoff()}),
    ("backoff", 0.25, {"backoff": Constant(0.25)}),
    ("backoff", timedelta(minutes=1), {"backoff": Constant(60.0)}),
    ("backoff", Backoff(5, factor=3, cap=60, jitter=0.5), {"backoff": Backoff(5.0, factor=3.0, cap=60.0, jitter=0.5)}),
    ("backoff", by_path, {"backoff": by_path}),
    ("debounce", 1.005, {"debounce": 1.005}),
    ("debounce", None, {"debounce": None}),
    ("unique", True, {"unique": "running"}),
    ("unique", False, {"unique": None}),
    ("unique", None, {"unique": None}),
    ("unique", "queued", {"unique": "queued"}),
    ("unique", timedelta(hours=1), {"unique": 3600.0}),
    ("retry_on", [], {"retry_on": ()}),
    ("retry_on", None, {"retry_on": None}),
    ("lease", 0.1, {"lease": 0.1}),
    ("time_limit", timedelta(seconds=3), {"time_limit": 3.0}),
    ("time_limit", None, {"time_limit": None}),
    ("result_ttl", 10**9, {"result_ttl": 1e9}),
    ("serializer", "json", {"serializer": "json"}),
    ("models", "reference", {"models": "reference"}),
]


@pytest.mark.parametrize(("name", "value", "fields"), GOOD)
def test_a_good_value_becomes_the_field_that_it_means(name, value, fields):
    for policy in (declared(**{name: value}), declared().using(**{name: value})):
        assert {field: getattr(policy, field) for field in fields} == fields


@pytest.mark.parametrize(("retries", "attempts"), [(0, 1), (1, 2), (5, 6)], ids=["none", "one", "five"])
def test_retries_are_starts_beyond_the_first(retries, attempts):
    assert declared(retries=retries, retry_on=[OSError]).max_attempts == attempts


NO_SPANS = {
    ValueError: [-1, -0.001, float("nan"), float("inf"), 10**10, timedelta(days=-1)],
    TypeError: [True, "5", [5]],
}
SPANS = ["delay", "ttl", "debounce", "max_wait", "lease", "time_limit", "result_ttl"]
WRONG_TYPES = {
    "delay": [None],
    "lease": [None],
    "retry_on": ["ValueError", ["ValueError"], [ValueError()], [int], {"OSError": 5}, {OSError: "fast"}],
    "backoff": ["fast", None, Backoff],
    "always_delay": [1],
    "extend": ["yes"],
    "merge": ["collect"],
    "key": [3],
    "unique": [[1], []],
    "run_after": [5.0],
    "shard": [1.5, True],
    "throttle": [5, [5]],
}
WRONG_VALUES = {
    "ttl": [0, timedelta(0)],
    "debounce": [0],
    "time_limit": [0],
    "timeout_action": ["ignore", 1],
    "result_ttl": [0],
    "lease": [0.05],
    "max_attempts": [0, True, 2.5, None],
    "max_lost": [0],
    "retries": [-1, "3"],
    "backoff": [-1],
    "unique": ["always", 0, -1],
    "serializer": [["json"]],
    "run_after": [datetime(2100, 1, 1)],
    "failure_policy": ["stop"],
    "max_run": [0, 1001],
    "idle_timeout": [-1],
    "concurrency": [0, True],
    "batch": [0, "many"],
}
WHOLE = ("priority", "max_attempts", "max_lost", "retries", "concurrency", "batch", "max_run")
BAD = [(name, value, error) for name in SPANS for error, values in NO_SPANS.items() for value in values]
BAD += [(name, value, TypeError) for name, values in WRONG_TYPES.items() for value in values]
BAD += [(name, value, ValueError) for name, values in WRONG_VALUES.items() for value in values]


@pytest.mark.parametrize("name", WHOLE)
def test_a_float_is_a_number_where_a_whole_one_is_asked_for_if_it_is_whole(name):
    more = {"max_run": {"shard": "one"}, "retries": {"retry_on": [Hiccup]}}.get(name, {})
    given, same = (Policy.of(**{name: value}, **more) for value in (3.0, 3))
    assert (repr(given), given) == (repr(same), same)
    for value in (2.5, float("nan"), float("inf"), "3"):
        with pytest.raises((TypeError, ValueError), match=name):
            Policy.of(**{name: value}, **more)


def test_whole_floats_in_the_values_of_options_are_kept_as_whole_numbers():
    values = (
        (Throttle(3.0, 60, moderate=True, elastic=True, elastic_buffer=1.0), "limit=3,", "elastic_buffer=1,"),
        (Concurrency(3.0), "limit=3,"),
        (Batch(3.0, min_size=2.0, timeout=1), "size=3,", "min_size=2,"),
        (RetryPolicy(max_attempts=3.0), "max_attempts=3)"),
        (Route(1, priority=3.0), "priority=3)"),
    )
    for value, *shown in values:
        assert [text for text in shown if text not in repr(value)] == []


@pytest.mark.parametrize(("name", "value", "error"), BAD, ids=[f"{name}={value!r:.20}" for name, value, _ in BAD])
def test_a_bad_value_is_refused_with_the_name_of_its_option(name, value, error):
    with pytest.raises(error, match=name):
        queue_command(**{name: value})
    with pytest.raises(error, match=name):
        plain.using(**{name: value})


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("factor", [0.5, True, "2", 10**4]),
        ("cap", [-1, float("inf")]),
        ("jitter", [1.5, -0.1, True, float("nan")]),
        ("first", [-1, "soon", True, 901]),
    ],
)
def test_a_backoff_that_makes_no_waits_is_refused(field, values):
    for value in values:
        with pytest.raises((TypeError, ValueError), match=field):
            Backoff(**{field: value})


def fail_as(*errors, **options):
    """What becomes of a message whose attempts raise these, one after the other."""
    policy, verdicts = declared(**options), []
    for failures, error in enumerate(errors):
        verdicts.append(policy.on_exception(error, Entry(b"", "1", attempts=failures + 1, failures=failures)))
    return [(verdict.outcome, verdict.delay) for verdict in verdicts]


RETRY, FAILED = Outcome.RETRY, (Outcome.FAILED, 0.0)
OWN = {OSError: 5, ConnectionError: RetryPolicy(Backoff(60), max_attempts=2), LookupError: RetryPolicy(max_attempts=1)}
OWN |= {Hiccup: RetryPolicy(), ExceptionGroup: 9}


@pytest.mark.parametrize(
    ("errors", "expected"),
    [
        ([OSError(), TimeoutError(), OSError()], [(RETRY, 5), (RETRY, 5), FAILED]),
        ([ConnectionResetError(), ConnectionError()], [(RETRY, 60), FAILED]),
        ([OSError(), ConnectionError()], [(RETRY, 5), FAILED]),
        ([KeyError()], [FAILED]),
        ([Hiccup(), Hiccup(), Hiccup()], [(RETRY, 7), (RETRY, 7), FAILED]),
        ([ValueError()], [FAILED]),
        ([ExceptionGroup("two", [OSError(), Hiccup()])], [(RETRY, 9)]),
        ([BaseExceptionGroup("two", [ConnectionError(), OSError(), SystemExit()])], [FAILED]),
    ],
)
def test_each_exception_has_the_retry_policy_of_its_nearest_class(errors, expected):
    assert fail_as(*errors, retry_on=OWN, max_attempts=3, backoff=7) == expected


def test_a_group_that_is_not_listed_has_the_retry_policy_of_its_first_exception():
    group = ExceptionGroup("two", [ConnectionError(), OSError()])
    listed = {kind: one for kind, one in OWN.items() if kind is not ExceptionGroup}
    assert fail_as(group, group, retry_on=listed) == [(RETRY, 60), FAILED]


def test_a_time_limit_with_an_action_of_its_own_has_no_other_retry_policy():
    late = TimeLimitExceeded("late")  # which is an OSError, too
    options = {"retry_on": OWN, "time_limit": 1, "max_attempts": 3, "backoff": 7}
    assert fail_as(late, **options) == [(RETRY, 5)]
    assert fail_as(late, **options, timeout_action="retry") == [(RETRY, 7)]


@pytest.mark.parametrize("wrong", [{"backoff": "fast"}, {"backoff": -1}, {"max_attempts": 0}, {"max_attempts": True}])
def test_a_retry_policy_that_makes_no_sense_is_refused(wrong):
    with pytest.raises((TypeError, ValueError), match=next(iter(wrong))):
        RetryPolicy(**wrong)


# ---- what a signature tells of them


def by_account(account, **_):
    raise NotImplementedError


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"shard": "account"}, ValueError, "shard is 'account', the name of a parameter.* give shard=lambda account, "),
        ({"shard": lambda acc: acc}, TypeError, "shard cannot take.*'acc'.* as in shard=lambda account, "),
        ({"shard": lambda account: account}, TypeError, "shard cannot take.*unexpected keyword argument 'limit'"),
        (
            {"unique": True, "key": lambda acc, **_: acc},
            TypeError,
            r"key cannot take.*key=lambda account, \*\*_: account",
        ),
        ({"unique": Unique(key=lambda acc, **_: acc)}, TypeError, "key of Unique cannot take"),
        ({"debounce": Debounce(5, key=lambda: 1)}, TypeError, "key of Debounce cannot take"),
        ({"concurrency": Concurrency(5, key=lambda: 1)}, TypeError, "key of Concurrency cannot take"),
        ({"throttle": [Throttle(5, 1, key=lambda: 1)]}, TypeError, "key of Throttle cannot take"),
        ({"describe": lambda order: order}, TypeError, "describe cannot take"),
    ],
)
def test_a_function_of_the_arguments_that_calls_do_not_fit_is_refused_when_it_is_declared(options, error, words):
    with pytest.raises(error, match=rf"^{__name__}\.pay: {words}"):
        queue_command(**options)(pay)
    if "describe" not in options:
        with pytest.raises(error, match=rf"^{__name__}\.paid: {words}"):
            paid.using(**options)


@pytest.mark.parametrize(
    "shard",
    [
        "all",
        7,
        str,
        by_account,
        lambda acc, *_: acc,
        lambda **_: 1,
        lambda *args, **_: 1,
        lambda account, limit=0: account,
        shard_of,
    ],
)
def test_a_function_that_takes_every_call_and_a_fixed_key_are_accepted(shard):
    assert paid.using(shard=shard).policy.shard is shard


def pay(account, limit=5):
    raise NotImplementedError


@queue_command
def paid(account, limit=5):
    raise NotImplementedError


# ---- as values


def second(*args):
    raise NotImplementedError


VALUES = [
    ({"unique": Unique()}, {"unique": True}),
    ({"unique": Unique("finished")}, {"unique": "running"}),
    ({"unique": Unique("started")}, {"unique": "queued"}),
    ({"unique": Unique(timedelta(minutes=1))}, {"unique": 60}),
    ({"concurrency": Concurrency(3)}, {"concurrency": 3}),
    ({"debounce": Debounce(5)}, {"debounce": 5}),
    ({"debounce": Debounce(ask_debounce)}, {"debounce": ask_debounce}),
    (
        {"debounce": Debounce(timedelta(seconds=5), extend=True, max_wait=9, merge=first, always_delay=True)},
        {"debounce": 5, "extend": True, "max_wait": 9, "merge": first, "always_delay": True},
    ),
]


@pytest.mark.parametrize(("value", "options"), VALUES)
def test_a_value_is_the_same_as_the_options_that_it_stands_for(value, options):
    assert declared(**value) == declared(**options)
    assert declared().using(**value) == declared(**options)


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: Unique("queued"), ValueError, r"Unique\(until='queued'\): give 'started', 'finished', or a time"),
        (lambda: Unique(0), ValueError, r"Unique\(until=…\) is 0"),
        (lambda: Unique(True), TypeError, r"Unique\(until=…\) is True"),
        (lambda: Unique(key="document"), TypeError, r"Unique\(key=…\) is 'document': give a function"),
        (lambda: Concurrency(0), ValueError, r"Concurrency\(limit=…\) is 0"),
        (lambda: Concurrency(3, key=3), TypeError, r"Concurrency\(key=…\) is 3"),
        (lambda: Debounce("5"), TypeError, r"Debounce\(seconds=…\) is '5'"),
        (lambda: Debounce(5, extend=1), TypeError, r"Debounce\(extend=…\) is 1"),
        (lambda: Debounce(5, always_delay="yes"), TypeError, r"Debounce\(always_delay=…\) is 'yes'"),
        (lambda: Debounce(5, max_wait=-1), ValueError, r"Debounce\(max_wait=…\) is -1"),
        (lambda: Debounce(5, merge="collect"), TypeError, r"Debounce\(merge=…\) is 'collect'"),
        (lambda: Debounce(5, key=1), TypeError, r"Debounce\(key=…\) is 1"),
    ],
)
def test_a_value_that_makes_no_sense_is_refused_with_the_name_of_its_argument(make, error, words):
    with pytest.raises(error, match=words):
        make()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"unique": Unique(key=first), "key": second}, "key is for .* no key of their own"),
        ({"debounce": Debounce(5, key=first), "key": second}, "key is for .* no key of their own"),
        (
            {"unique": Unique(key=first), "concurrency": Concurrency(2, key=first), "key": second},
            "key is for .* no key of their own",
        ),
        ({"debounce": Debounce(5), "extend": True}, "extend is an argument of Debounce: give it there"),
        ({"debounce": Debounce(5, max_wait=9)}, "max_wait bounds extend"),
        ({"debounce": Debounce(5), "unique": Unique()}, "debounce and unique exclude"),
        ({"concurrency": Concurrency(2, key=first), "shard": second}, "say different keys for it"),
    ],
)
def test_what_a_value_cannot_be_together_with(options, reason):
    with pytest.raises(ValueError, match=reason):
        queue_command(**options)
    with pytest.raises(ValueError, match=reason):
        plain.using(**options)


def test_key_is_for_what_has_no_key_of_its_own():
    policy = declared(unique=Unique(key=first), concurrency=3, key=second)
    assert (policy.guard_key, policy.plan.key) == (first, second)
    policy = declared(unique=True, concurrency=Concurrency(3, key=first), key=second)
    assert (policy.guard_key, policy.plan.key) == (second, first)
    policy = declared(unique=Unique(key=first), concurrency=3)
    assert (policy.guard_key, policy.plan.key) == (first, None)
    policy = declared(unique=True, key=second).using(unique=Unique(key=first))
    assert policy.guard_key is first


def test_a_short_form_changes_one_thing_of_a_value_and_none_takes_back_all():
    policy = declared(debounce=Debounce(5, extend=True, key=first), concurrency=Concurrency(3, key=second))
    assert policy.using(debounce=2, concurrency=4).debounce_key is first
    assert policy.using(debounce=2).extend
    assert policy.using(concurrency=4).plan.key is second
    assert policy.using(debounce=Debounce(2)) == policy.using(debounce=None).using(debounce=2)
    assert policy.using(debounce=None, concurrency=None) == declared()
    assert declared(unique=Unique(key=first)).using(unique=False) == declared()


@MEMORY
def test_unique_and_concurrency_have_keys_of_their_own(queue):
    """Unique by document, two at once for each tenant."""
    handles = [publish(document, tenant) for document, tenant in ((1, "a"), (1, "a"), (2, "a"), (3, "a"), (4, "b"))]
    assert [handle.enqueued for handle in handles] == [True, False, True, True, True]
    taken = queue.claim(10)
    assert {lease.entry.lane.rpartition(":")[2]: lease.entry.id for lease in taken}.keys() == {"a", "b"}
    assert len(taken) == 3
    held = {lease.entry.id for lease in taken}
    assert handles[3].id not in held
    queue.complete(taken)
    assert [lease.entry.id for lease in queue.claim(10)] == [handles[3].id]
    assert publish(1, "c").enqueued


@MEMORY
def test_a_debounce_value_works_as_its_options_do(queue):
    value = plain.using(debounce=Debounce(60, key=lambda number: "one"))
    options = plain.using(debounce=60, key=lambda number: "other")
    for often in (value, options):
        assert [often(number).enqueued for number in (1, 2, 3)] == [True, True, False]
    bound = listed.using(debounce=Debounce(lambda: 5))
    assert [bound(1).enqueued for _ in range(3)] == [True, True, False]


# ---- together

CONTRARY = [
    ({"debounce": 1, "delay": 1}, "debounce decides when"),
    ({"debounce": 1, "delay": ask_delay}, "debounce decides when"),
    ({"debounce": ask_debounce, "delay": 1}, "debounce decides when"),
    ({"debounce": 1, "run_after": SOON}, "debounce decides when"),
    ({"debounce": 1, "unique": True}, "debounce and unique"),
    ({"always_delay": True}, "always_delay is a way to debounce"),
    ({"extend": True}, "extend is a way to debounce"),
    ({"merge": first}, "merge collects debounced calls"),
    ({"debounce": 1, "max_wait": 10}, "max_wait bounds extend"),
    ({"debounce": 5, "extend": True, "max_wait": 1}, "max_wait is shorter than debounce"),
    ({"key": first}, "key says which calls are the same"),
    ({"debounce": 1, "extend": True, "max_wait": 5, "ttl": 4}, "max_wait is not shorter than ttl"),
    ({"delay": 5, "ttl": 4}, "delay is not shorter than ttl"),
    ({"debounce": 5, "ttl": 4}, "debounce is not shorter than ttl"),
    ({"debounce": timedelta(seconds=2), "ttl": timedelta(seconds=1)}, "debounce is not shorter than ttl"),
    ({"delay": 1, "run_after": SOON}, "delay and run_after exclude"),
    ({"retries": 1, "max_attempts": 2, "retry_on": [OSError]}, "retries and max_attempts exclude"),
    ({"retries": 1}, "retries without retry_on"),
    ({"retries": 1, "retry_on": []}, "retries without retry_on"),
    ({"debounce": 1, "merge": first, "shard": shard_of}, "merge lets one call stand for several"),
    ({"debounce": 1, "merge": first, "key": first, "shard": shard_of}, "merge lets one call stand for several"),
    ({"failure_policy": "skip"}, "failure_policy says what becomes of a shard"),
    ({"max_run": 5}, "max_run says how many of a shard"),
    ({"timeout_action": "fail"}, "timeout_action says what becomes of a message"),
]
IN_A_BATCH = ({"batch": 5, "max_run": 6, "shard": 0}, "batch says how many go together, in a shard too")


@pytest.mark.parametrize(("options", "reason"), CONTRARY, ids=[" ".join(options) for options, _ in CONTRARY])
def test_df11_contradictions_are_refused_with_a_reason_at_declaration_and_in_using(options, reason):
    with pytest.raises(ValueError, match=reason):
        queue_command(**options)
    with pytest.raises(ValueError, match=reason):
        plain.using(**options)


def test_a_batch_is_its_own_run():
    options, reason = IN_A_BATCH
    with pytest.raises(ValueError, match=reason):
        queue_command(**options)


def test_every_contradiction_is_tried_here():
    tried = [words for _, words in [*CONTRARY, IN_A_BATCH]]
    reasons = [reason for rules in CONTRADICTIONS.values() for _, reason in rules]
    assert [reason for reason in reasons if not any(words in reason for words in tried)] == []


@pytest.mark.parametrize(
    ("declaration", "change", "reason"),
    [
        ({"delay": 5}, {"ttl": 4}, "delay is not shorter"),
        ({"ttl": 4}, {"delay": timedelta(seconds=5)}, "delay is not shorter"),
        ({"debounce": 5}, {"delay": 1}, "debounce decides when"),
        ({"debounce": 5}, {"debounce": None, "always_delay": True}, "always_delay is a way"),
        ({"unique": True, "key": first}, {"unique": False}, "key says which"),
        ({"retry_on": [OSError]}, {"retries": 1, "retry_on": []}, "retries without retry_on"),
    ],
)
def test_df11_using_is_judged_together_with_the_declaration(declaration, change, reason):
    with pytest.raises(ValueError, match=reason):
        declared(**declaration).using(**change)


@pytest.mark.parametrize(
    "options",
    [
        {"delay": 5, "ttl": 5.1},
        {"debounce": 5, "ttl": 5.1},
        {"debounce": 5, "extend": True, "max_wait": 5},
        {"debounce": 5, "always_delay": False, "extend": False},
        {"debounce": 5, "always_delay": True, "extend": True, "merge": first, "key": shard_of},
        {"delay": ask_delay, "ttl": 0.5},
        {"retries": 0},
        {"unique": False, "debounce": 1},
        {"delay": 0, "debounce": 1},
    ],
)
def test_what_does_not_contradict_is_fine(options):
    declared(**options)
    plain.using(**options)


def test_without_a_window_its_ways_count_no_more():
    """One call of a debounced command that is not to be: nothing else need be said."""
    policy = declared(debounce=5, always_delay=True, extend=True, max_wait=9, merge=first, key=first)
    assert policy.using(debounce=None) == declared()
    assert policy.using(debounce=None, unique=True).key is first


def test_run_after_and_delay_replace_each_other():
    assert declared(delay=5).using(run_after=SOON).delay == 0.0
    assert declared(run_after=SOON).using(delay=5).run_at == 0.0


def test_retries_of_one_call_need_no_second_list_of_exceptions(settings):
    assert declared(retry_on=[OSError]).using(retries=2).max_attempts == 3
    with pytest.raises(ValueError, match="retries without retry_on"):
        declared().using(retries=2)
    settings.QUEUE_RETRY_ON = [OSError]
    assert declared().using(retries=2).max_attempts == 3
    with pytest.raises(ValueError, match="retries without retry_on"):
        declared(retry_on=[], retries=2)


@MEMORY
@pytest.mark.parametrize(
    ("options", "feature"),
    [({"unique": True}, "facts, inspect"), ({"debounce": 1}, "facts"), ({"result_ttl": 1}, "facts")],
)
def test_df11_a_queue_without_a_store_refuses_what_needs_one(backend, settings, options, feature):
    settings.QUEUES = {"default": {**backend.config(), "STORE": False}}
    with pytest.raises(NotSupported, match="facts"):
        plain.using(**options).enqueue()
    assert plain().enqueued


# ---- functions are asked once per call


@EVERY
class TestAsked:
    @AND_SQS
    def test_df10_a_function_is_asked_exactly_once_per_call(self, queue):
        asking(1)
        assert asked == ["delay", "ttl"]
        asking.enqueue_many([(2,), (3,)])
        assert asked == ["delay", "ttl"] * 3
        asking.using(max_lost=4).enqueue(4)
        assert asked == ["delay", "ttl"] * 4

    @AND_SQS
    def test_df10_a_debounced_call_asks_once_whether_it_counts_or_not(self, queue):
        handles = [asking_debounced(1) for _ in range(3)]
        assert asked == ["ttl", "debounce"] * 3
        assert [handle.enqueued for handle in handles] == [True, True, False]
        asking_debounced.enqueue_many([(2,)] * 3)
        assert sorted(asked) == ["debounce"] * 6 + ["ttl"] * 6
        asked.clear()
        plain.using(debounce=ask_debounce).enqueue()
        assert asked == ["debounce"]

    def test_df10_the_run_asks_for_nothing(self, queue):
        asking.using(delay=0).enqueue(4)
        asked.clear()
        assert run_one(queue).value == 4
        assert asked == []

    def test_what_a_function_answers_counts_for_its_call_alone(self, queue):
        asking(1), asking(2)
        delays = [round(record.at - record.entry.created, 3) for record in queue.peek("delayed")]
        assert delays == [1.0, 3.0]
        ttls = [policy_of(asking, open_entry(queue, record.entry)).ttl for record in queue.peek("delayed")]
        assert ttls == [502.0, 504.0]


@MEMORY
class TestAnswers:
    @pytest.mark.parametrize(
        ("answer", "error", "words"),
        [
            (-1, ValueError, "delay is -1"),
            ("soon", TypeError, "delay is 'soon'"),
            (None, TypeError, "delay is None"),
            (61, ValueError, "delay is not shorter than ttl"),
            (float("nan"), ValueError, "delay is nan"),
        ],
    )
    def test_nonsense_is_refused_at_the_call(self, queue, answer, error, words):
        with pytest.raises(error, match=words):
            listed.using(delay=lambda: answer).enqueue()
        assert len(queue) == 0

    def test_what_a_function_raises_reaches_the_caller(self, queue):
        def fail():
            raise Hiccup

        with pytest.raises(Hiccup) as caught:
            plain.enqueue_many([(1,)]) and plain.using(ttl=fail).enqueue()
        assert caught.value.__notes__ == ["In the function that is the option ttl."]
        assert len(queue) == 1

    @pytest.mark.parametrize("options", [{"unique": True}, {"debounce": 5}, {"concurrency": 1}])
    def test_an_error_of_a_key_names_its_command(self, queue, options):
        def fail(*args, **kwargs):
            raise Hiccup

        with pytest.raises(Hiccup) as caught:
            plain.using(key=fail, **options).enqueue()
        assert any("the shard or the key" in note and plain.name in note for note in caught.value.__notes__)

    def test_one_nonsense_among_many_sends_none(self, queue):
        answers = iter([1, 2, "three"])
        with pytest.raises(TypeError, match="three"):
            plain.using(delay=lambda: next(answers)).enqueue_many([(1,), (2,), (3,)])
        assert len(queue) == 0

    def test_none_for_a_ttl_means_for_ever(self, queue):
        listed.using(ttl=lambda: None).enqueue()
        assert policy_of(listed, open_entry(queue, claim_one(queue).entry)).ttl is None

    def test_df10_a_window_for_some_of_many_calls(self, queue):
        """None first: those after it are debounced all the same."""
        windows = iter([None, 5, 5, 5, None])
        handles = plain.using(debounce=lambda: next(windows)).enqueue_many([(1,)] * 5)
        assert [handle.enqueued for handle in handles] == [True, True, True, False, True]


# ---- what travels


@EVERY
class TestCarried:
    def test_nothing_is_carried_of_a_call_without_options_of_its_own(self, queue):
        listed()
        assert open_entry(queue, claim_one(queue).entry).options == {}

    def test_options_that_count_at_the_run_come_back(self, queue):
        """Those that count at the call do not travel."""
        changes = {"ttl": timedelta(minutes=2), "max_attempts": 7, "max_lost": 2, "retry_on": [OSError, Hiccup]}
        changes |= {"backoff": Backoff(2, cap=50, jitter=0.25), "lease": 30, "time_limit": None, "result_ttl": None}
        given = listed.using(**changes, priority=3, delay=0, unique=True, serializer="json")
        given.enqueue()
        entry = claim_one(queue).entry
        envelope = open_entry(queue, entry)
        assert envelope.options.keys() == changes.keys()
        policy = policy_of(listed, envelope)
        for name in changes:
            assert getattr(policy, name) == getattr(given.policy, name), name
        assert policy.unique is None

    def test_a_member_of_choices_travels_as_its_value(self, queue):
        class Number(IntegerChoices):
            THREE = 3

        class Action(TextChoices):
            FAIL = "fail"

        backoff = Backoff(Number.THREE, factor=Number.THREE, cap=Number.THREE)
        numbers = {"max_attempts": Number.THREE, "max_lost": Number.THREE, "lease": Number.THREE, "backoff": backoff}
        plain.using(**numbers, time_limit=Number.THREE, timeout_action=Action.FAIL).enqueue()
        policy = policy_of(plain, open_entry(queue, claim_one(queue).entry))
        assert (policy.max_attempts, policy.max_lost, policy.lease, policy.time_limit) == (3, 3, 3.0, 3.0)
        assert (policy.timeout_action, policy.backoff) == ("fail", Backoff(3, factor=3, cap=3))

    @pytest.mark.parametrize("backoff", [False, 2.5, Backoff(jitter=0.5), by_path])
    def test_each_form_of_backoff_comes_back(self, queue, backoff):
        given = plain.using(backoff=backoff)
        given.enqueue()
        policy = policy_of(plain, open_entry(queue, claim_one(queue).entry))
        assert policy.backoff == given.policy.backoff

    def test_an_exception_that_is_gone_is_waited_for_as_a_command_is(self, queue, monkeypatch):
        handle = listed.using(retry_on=[Hiccup]).using(max_attempts=9, retry_on=[Hiccup, OSError]).enqueue()
        monkeypatch.delattr(f"{__name__}.Hiccup")
        assert run_one(queue).outcome is Outcome.POSTPONED
        [note] = errors_of(queue.find(handle.id).entry.errors)
        assert "Hiccup" in note["reason"]

    def test_a_later_declaration_counts_for_what_a_call_did_not_say(self, queue, monkeypatch):
        listed.using(max_attempts=9).enqueue()
        monkeypatch.setattr(listed, "policy", Policy.of(retry_on=[KeyError], max_attempts=2, ttl=77))
        policy = policy_of(listed, open_entry(queue, claim_one(queue).entry))
        assert (policy.max_attempts, policy.retry_on, policy.ttl) == (9, (KeyError,), 77.0)

    def test_a_message_from_before_its_ttl_was_a_function_does_not_expire(self, queue, monkeypatch):
        plain(5)
        monkeypatch.setattr(plain, "policy", Policy.of(ttl=ask_ttl))
        assert run_one(queue).value == 5
        assert asked == []

    def test_a_retry_policy_for_each_exception_comes_back(self, queue):
        own = {
            OSError: 5,
            Hiccup: Backoff(60),
            KeyError: RetryPolicy(by_path, max_attempts=2),
            LookupError: RetryPolicy(),
        }
        given = plain.using(retry_on=own)
        given.enqueue()
        policy = policy_of(plain, open_entry(queue, claim_one(queue).entry))
        assert policy.retry_on == given.policy.retry_on == {kind: RetryPolicy.of(one) for kind, one in own.items()}


class TestByName:
    """What cannot travel by its name is refused in using(), and fine in a declaration."""

    def nested(failures, exception):
        raise NotImplementedError

    @pytest.mark.parametrize(
        "backoff",
        [
            lambda failures, exception: 1,
            Holder.wait,
            Holder(),
            Holder().__call__,
            functools.partial(by_path),
            Longer(),
            nested,
        ],
        ids=["lambda", "class body", "instance", "method", "partial", "subclass", "in a class"],
    )
    def test_a_backoff_without_a_name_of_its_own(self, backoff):
        declared(backoff=backoff)
        with pytest.raises(ValueError, match=r"backoff is .*top level"):
            plain.using(backoff=backoff)

    def test_an_exception_of_a_class_body(self):
        class Local(Exception):
            pass

        for error in (Holder.Inner, Local):
            declared(retry_on=[error])
            for listed in ([error], {error: 5}):
                with pytest.raises(ValueError, match=r"retry_on is .*top level"):
                    plain.using(retry_on=listed)

    def test_what_is_not_found_under_its_own_name(self, monkeypatch):
        """As a function has it that another one has replaced."""
        before = by_path
        monkeypatch.setattr(f"{__name__}.by_path", lambda failures, exception: 1)
        with pytest.raises(ValueError, match=r"backoff is .*top level"):
            plain.using(backoff=before)

    @pytest.mark.parametrize("error", [ValueError, TimeoutError, OSError, KeyError, SystemExit, Hiccup])
    def test_exceptions_of_modules_travel(self, error):
        assert plain.using(retry_on=[error]).policy.retry_on == (error,)

    def test_what_is_only_asked_here_needs_no_name(self):
        assert plain.using(delay=lambda: 1, ttl=lambda: 5)
        assert plain.using(debounce=lambda: 1, key=lambda number: 1)


@pytest.mark.parametrize(
    "backoff", [Constant(0.0), Constant(3.25), Backoff(), Backoff(factor=1.5, cap=30, jitter=1), Backoff(60), by_path]
)
def test_a_backoff_is_read_as_it_was_written(backoff):
    assert read(written(backoff)) == backoff


@pytest.mark.parametrize("value", [{"factor": 0}, {"no": 1}, "no.such.path", None, [1]])
def test_a_backoff_that_cannot_be_read_raises(value):
    with pytest.raises((ImportError, TypeError, ValueError)):
        read(value)


# ---- what they mean


def test_the_guard_is_what_the_options_say():
    def guard(**options):
        return declared(**options).condition("app.f", {"a": 1}, None)

    assert guard(unique=True).running and not guard(unique="queued").running
    assert isinstance(guard(unique=5), guards.OnceGuard) and isinstance(guard(unique=True), guards.UniqueGuard)
    assert guard(unique=5).ttl == 5.0
    one = guard(debounce=2)
    assert isinstance(one, guards.DebounceGuard)
    assert (one.window, one.always_delay, one.extend) == (2.0, False, False)
    assert guard(debounce=2, extend=True).max_wait == 20.0
    assert guard(debounce=2, extend=True, max_wait=3).max_wait == 3.0


def test_any_callable_may_be_the_backoff_of_a_declaration():
    assert wait_after(declared(backoff=Longer()).backoff, 1, None) == 1000.0
    assert wait_after(declared(backoff=lambda failures, exception: failures / 2).backoff, 3, None) == 1.5
