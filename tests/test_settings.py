"""Settings that the environment may say, sharded-queue's under its names too, read when they are needed."""

import os

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed

from djqueue import Batch, Consumer, Route, conf
from djqueue.consumer import Options
from djqueue.decorators import queue_command
from djqueue.policies.policy import Policy
from tests.support.consumer import only

pytestmark = pytest.mark.backends("memory")

SAID = {
    "QUEUE_MAX_POLL_INTERVAL": ("0.25", 0.25),
    "QUEUE_CONSUMER_PREFIX": ("lock_", "lock_"),
    "QUEUE_RELEASE": ("2030.1", "2030.1"),
    "QUEUE_LOCK_DIR": ("/run/shop", "/run/shop"),
    "QUEUE_LEASE": ("86400", 86400.0),
    "QUEUE_DEFAULT_PRIORITY": ("-3", -3),
    "QUEUE_DEFAULT_THREAD": ("7", 7),
    "QUEUE_LANE_PREFIX": ("tube_", "tube_"),
    "QUEUE_BATCH_SIZE": ("64", 64),
    "QUEUE_IDLE_TIMEOUT": ("0.5", 0.5),
}


def work(user):
    pass


@pytest.fixture
def environment(monkeypatch):
    """Set variables; what was read before is forgotten, as at the start of a process."""

    def change(**variables):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        conf.forget()

    yield change
    monkeypatch.undo()
    conf.forget()


def test_the_settings_that_the_environment_may_say():
    assert {name for name, setting in conf.SETTINGS.items() if setting.parse} == set(SAID)


@pytest.mark.parametrize("name", SAID)
def test_a_variable_says_what_no_setting_says_and_has_a_type(environment, settings, name):
    text, value = SAID[name]
    assert conf.get(name) == conf.SETTINGS[name].default
    environment(**{name: text})
    assert conf.get(name) == value
    assert type(conf.get(name)) is type(value)
    setattr(settings, name, conf.SETTINGS[name].default)
    assert conf.get(name) == conf.SETTINGS[name].default


@pytest.mark.parametrize("name", [name for name, setting in conf.SETTINGS.items() if setting.parse in (int, float)])
def test_a_variable_that_cannot_be_read_is_an_error_that_names_it(environment, settings, name):
    environment(**{name: "a lot"})
    with pytest.raises(ImproperlyConfigured, match=f"environment variable {name} is 'a lot': give"):
        conf.get(name)
    setattr(settings, name, 1)
    assert conf.get(name) == 1


def test_the_idle_timeout_is_the_product_of_the_two_variables_of_sharded_queue(environment):
    environment(QUEUE_WORKER_EMPTY_LIMIT="4", QUEUE_WORKER_EMPTY_PAUSE="0.5")
    assert conf.get("QUEUE_IDLE_TIMEOUT") == 2.0
    environment(QUEUE_IDLE_TIMEOUT="3")
    assert conf.get("QUEUE_IDLE_TIMEOUT") == 3.0


@pytest.mark.parametrize(
    ("variable", "wanted"),
    [("QUEUE_WORKER_EMPTY_LIMIT", "a whole number"), ("QUEUE_WORKER_EMPTY_PAUSE", "seconds")],
)
def test_which_of_the_two_cannot_be_read_is_said(environment, variable, wanted):
    environment(QUEUE_WORKER_EMPTY_LIMIT="4", QUEUE_WORKER_EMPTY_PAUSE="0.5")
    environment(**{variable: "a lot"})
    with pytest.raises(ImproperlyConfigured, match=f"environment variable {variable} is 'a lot': give {wanted}"):
        conf.get("QUEUE_IDLE_TIMEOUT")


def test_the_usual_shard_may_be_a_text_there_too(environment):
    environment(QUEUE_DEFAULT_THREAD="mail")
    assert Route() == Route("mail", 0)


def test_no_other_setting_comes_from_the_environment(environment):
    environment(QUEUE_ALWAYS_EAGER="1", QUEUE_MAX_ATTEMPTS="9")
    assert (conf.get("QUEUE_ALWAYS_EAGER"), conf.get("QUEUE_MAX_ATTEMPTS")) == (False, 5)


def test_what_a_test_overrides_counts_at_once_and_is_over_with_it(settings):
    policy, batch = Policy(), Batch()
    assert (policy.idle_seconds, batch.limit, Options().longest_pause, Route()) == (1.6, 128, 1.0, Route(0, 0))
    settings.QUEUE_IDLE_TIMEOUT = 8
    settings.QUEUE_BATCH_SIZE, settings.QUEUE_MAX_POLL_INTERVAL = 5, 3
    settings.QUEUE_DEFAULT_THREAD, settings.QUEUE_DEFAULT_PRIORITY = "mail", 2
    assert (policy.idle_seconds, batch.limit, Options().longest_pause, Route()) == (8.0, 5, 3.0, Route("mail", 2))


def test_what_is_said_goes_before_the_setting(settings):
    settings.QUEUE_IDLE_TIMEOUT = settings.QUEUE_BATCH_SIZE = settings.QUEUE_MAX_POLL_INTERVAL = 9
    assert Policy.of(idle_timeout=2, batch=True).idle_seconds == 2.0
    assert Batch(6).limit == 6
    assert Options(max_delay=2.0).longest_pause == 2.0


def test_the_lease_of_a_queue_that_says_none_is_a_setting(queue, settings):
    assert queue.lease == 30.0
    settings.QUEUE_LEASE = 300
    assert (queue.lease, queue.claim().retry_after) == (300.0, float("inf"))
    queue.lease = 5.0
    assert queue.lease == 5.0


def test_what_a_consumer_holds_is_held_under_a_name_with_the_prefix(queue, settings):
    settings.QUEUE_CONSUMER_PREFIX = "lock_"
    assert Consumer().name.startswith(f"lock_{os.uname().nodename}:")


def test_the_usual_priority_counts_at_the_call(queue, settings):
    command = queue_command(work)
    with only(command):
        command(1)
        settings.QUEUE_DEFAULT_PRIORITY = 5
        command(2)
        assert [lease.entry.priority for lease in queue.claim(2)] == [5, 0]


@pytest.mark.parametrize(
    ("name", "value", "use"),
    [
        ("QUEUE_BATCH_SIZE", 0, lambda queue: Batch().limit),
        ("QUEUE_BATCH_SIZE", 1001, lambda queue: Batch().limit),
        ("QUEUE_IDLE_TIMEOUT", -1, lambda queue: Policy().idle_seconds),
        ("QUEUE_IDLE_TIMEOUT", "1", lambda queue: Policy().idle_seconds),
        ("QUEUE_MAX_POLL_INTERVAL", "1", lambda queue: Options().longest_pause),
        ("QUEUE_LEASE", 0, lambda queue: queue.lease),
    ],
)
def test_a_bad_value_is_refused_by_its_name_where_it_is_used(queue, settings, name, value, use):
    setattr(settings, name, value)
    with pytest.raises((TypeError, ValueError), match=name):
        use(queue)


def test_other_settings_do_not_forget_what_waits(queue):
    work.__module__ = __name__
    command = queue_command(work)
    with only(command):
        command(1)
        setting_changed.send(sender=None, setting="QUEUE_LANE_PREFIX", value="x", enter=True)
        assert len(queue) == 1
