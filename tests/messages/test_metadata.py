"""Metadata: what producers send along, and consumers take up around the run."""

import asyncio
import contextvars
import logging

import pytest
from django.db import transaction

from djqueue import MetadataProducerConsumer, current_message, queues, register_metadata_producer_consumer
from djqueue.decorators import queue_command
from djqueue.messages.metadata import clear_metadata_producer_consumers
from djqueue.policies.outcomes import Outcome
from tests.support.backends import ON_SQS, WITH_SQS
from tests.support.consumer import message_for, run_one, serving
from tests.support.notes import cleared_per_test
from tests.support.processes import until

AND_SQS = pytest.mark.backends(*WITH_SQS)
MEMORY_AND_SQS = pytest.mark.backends("memory", *ON_SQS)
ran = cleared_per_test([])
tenant: contextvars.ContextVar = contextvars.ContextVar("tenant", default="nobody")


@queue_command
def note(*args):
    ran.append((tenant.get(), current_message().metadata))


@queue_command
async def anote():
    await asyncio.sleep(0)
    ran.append((tenant.get(), current_message().metadata))


@queue_command(retry_on=[KeyError], backoff=0)
def stumble():
    ran.append((tenant.get(), current_message().metadata))
    if current_message().attempt < 3:
        raise KeyError("once more")


@queue_command(debounce=60)
def refresh():
    note.call()


class Tenant(MetadataProducerConsumer):
    """Carries the tenant of the producer."""

    NAMESPACE = "tenant"

    def __init__(self):
        super().__init__()
        self.consumed = []
        self.produced = 0

    def produce_metadata(self):
        self.produced += 1
        return tenant.get()

    def consume_metadata(self, metadata):
        self.consumed.append(metadata)
        tenant.set(metadata)


class Says(MetadataProducerConsumer):
    """Carries what it was made with, or raises it."""

    def __init__(self, namespace, value=None, heard=None):
        self.NAMESPACE, self.value, self.heard = namespace, value, heard
        super().__init__()
        self.consumed = []

    def produce_metadata(self):
        if isinstance(self.value, BaseException):
            raise self.value
        return self.value

    def consume_metadata(self, metadata):
        self.consumed.append(metadata)
        if self.heard is not None:
            raise self.heard


@pytest.fixture
def tenant_consumer():
    carrier = Tenant()
    register_metadata_producer_consumer(carrier)
    return carrier


@pytest.mark.backends("memory")
class TestTravel:
    @AND_SQS
    def test_df23_it_reaches_the_consumer_of_the_same_namespace(self, queue, tenant_consumer):
        other = Says("other", {"b": [1, 2.5, None], "ü": ("tuple", b"bytes")})
        register_metadata_producer_consumer(other)
        contextvars.copy_context().run(lambda: (tenant.set("ann"), note()))
        run_one(queue)
        assert (tenant_consumer.consumed, other.consumed) == (["ann"], [other.value])
        assert ran == [("ann", {"tenant": "ann", "other": other.value})]
        assert tenant.get() == "nobody"  # it ends with the run

    @AND_SQS
    def test_df23_it_is_carried_through_retries(self, queue, tenant_consumer):
        contextvars.copy_context().run(lambda: (tenant.set("ann"), stumble()))
        outcomes = [run_one(queue).outcome for _ in range(3)]
        assert outcomes == [Outcome.RETRY, Outcome.RETRY, Outcome.DONE]
        assert (tenant_consumer.consumed, tenant_consumer.produced) == (["ann"] * 3, 1)
        assert ran == [("ann", {"tenant": "ann"})] * 3

    @pytest.mark.backends("memory", "sqlite")
    def test_df23_in_a_consumer_sync_and_async_commands_see_it(self, queue, tenant_consumer):
        def call():
            tenant.set("ann")
            note.enqueue_many([()] * 3)
            anote.enqueue_many([()] * 3)

        contextvars.copy_context().run(call)
        with serving(threads=2):
            until(lambda: len(ran) == 6)
        assert ran == [("ann", {"tenant": "ann"})] * 6

    @MEMORY_AND_SQS
    def test_df23_where_the_message_carries_none_it_is_none(self, queue, tenant_consumer):
        queue.put([message_for(queue, note.name)])
        run_one(queue)
        assert (tenant_consumer.consumed, ran) == ([None], [(None, {})])

    def test_what_nobody_consumes_here_is_no_error(self, queue):
        register_metadata_producer_consumer(Says("theirs", 1))
        note()
        clear_metadata_producer_consumers()
        run_one(queue)
        assert ran == [("nobody", {"theirs": 1})]

    def test_in_eager_mode_it_travels_too_and_leaves_the_producer_as_it_was(self, queue, tenant_consumer, settings):
        settings.QUEUE_ALWAYS_EAGER = True
        contextvars.copy_context().run(lambda: (tenant.set("ann"), note(), anote()))
        assert ran == [("ann", {"tenant": "ann"})] * 2
        assert tenant.get() == "nobody"

    def test_async_producers_send_it_along(self, queue, tenant_consumer):
        async def call():
            tenant.set("ann")
            await note.aenqueue()

        asyncio.run(call())
        run_one(queue)
        assert ran == [("ann", {"tenant": "ann"})]

    @pytest.mark.backends("memory", database=True)
    def test_it_is_that_of_the_call_and_not_of_the_commit(self, queue, tenant_consumer):
        def call():
            with transaction.atomic():
                tenant.set("ann")
                note()
                tenant.set("bob")

        contextvars.copy_context().run(call)
        run_one(queue)
        assert tenant_consumer.consumed == ["ann"]

    @pytest.mark.parametrize("serializer", ["pickle", "json"])
    def test_whichever_codec_the_arguments_have(self, queue, tenant_consumer, serializer):
        note.using(serializer=serializer)(1)
        run_one(queue)
        assert tenant_consumer.consumed == ["nobody"]

    def test_what_is_changed_later_does_not_count(self, queue):
        carrier = Says("list", [1])
        register_metadata_producer_consumer(carrier)
        note()
        carrier.value.append(2)
        run_one(queue)
        assert carrier.consumed == [[1]]


ERRORS = pytest.mark.parametrize("error", [KeyError("k"), SystemExit(3), KeyboardInterrupt()], ids=repr)


@pytest.mark.backends("memory")
class TestFailures:
    @ERRORS
    @MEMORY_AND_SQS
    def test_df19_a_consumer_of_metadata_that_raises_stops_nothing(self, queue, caplog, error):
        first, second = Says("first", 1, error), Says("second", 2)
        for carrier in (first, second):
            register_metadata_producer_consumer(carrier)
        note()
        assert run_one(queue).outcome is Outcome.DONE
        assert (first.consumed, second.consumed, len(ran), len(queue)) == ([1], [2], 1, 0)
        [told] = errors(caplog)
        assert ("Says.consume_metadata() failed" in told.getMessage(), told.exc_info[1]) == (True, error)

    @ERRORS
    def test_df19_a_producer_of_metadata_that_raises_keeps_nothing_from_being_sent(self, queue, caplog, error):
        for carrier in (Says("first", error), second := Says("second", 2)):
            register_metadata_producer_consumer(carrier)
        note()
        run_one(queue)
        assert (second.consumed, ran) == ([2], [("nobody", {"second": 2})])
        [told] = errors(caplog)
        assert "Says.produce_metadata() failed" in told.getMessage()

    def test_df19_nor_does_what_cannot_travel(self, queue, caplog):
        nested: object = 1
        for _ in range(31):
            nested = [nested]
        for number, value in enumerate([object(), float("nan"), nested, {1, 2}]):
            register_metadata_producer_consumer(Says(f"n{number}", value))
        note()
        run_one(queue)
        assert (ran, len(errors(caplog))) == ([("nobody", {"n3": {1, 2}})], 3)

    def test_df19_in_a_consumer_the_thread_goes_on(self, queue):
        register_metadata_producer_consumer(Says("exit", 1, SystemExit(3)))
        note.enqueue_many([()] * 4)
        with serving(threads=1):
            until(lambda: len(ran) == 4)
        assert (len(queue), len(queue.failed)) == (0, 0)


@pytest.mark.backends("memory")
class TestRegistering:
    def test_df23_a_namespace_is_taken_once(self, queue, tenant_consumer):
        with pytest.raises(ValueError, match="The NAMESPACE 'tenant' is taken by Tenant"):
            register_metadata_producer_consumer(Tenant())
        with pytest.raises(ValueError, match="is taken"):
            register_metadata_producer_consumer(Tenant(), "default")

    def test_df23_two_queues_may_have_it_each(self, queue):
        register_metadata_producer_consumer(Tenant(), "default")
        register_metadata_producer_consumer(Tenant(), "mail")
        with pytest.raises(ValueError, match="is taken"):
            register_metadata_producer_consumer(Tenant(), "mail")
        with pytest.raises(ValueError, match="is taken"):
            register_metadata_producer_consumer(Tenant())

    def test_it_carries_for_its_queue_alone(self, backend, settings):
        settings.QUEUES = backend.queues("default", "mail")
        mail = Says("mail", 1)
        register_metadata_producer_consumer(mail, "mail")
        note(), note.using(queue_name="mail")()
        run_one(queues["default"]), run_one(queues["mail"])
        assert ([metadata for _, metadata in ran], mail.consumed) == ([{}, {"mail": 1}], [1])

    def test_one_without_a_namespace_is_refused(self):
        with pytest.raises(ValueError, match="MetadataProducerConsumer has no NAMESPACE"):
            MetadataProducerConsumer()

        class Nameless(MetadataProducerConsumer):
            NAMESPACE = ""

            def __init__(self):
                pass

        with pytest.raises(ValueError, match="Nameless has no NAMESPACE"):
            register_metadata_producer_consumer(Nameless())
        with pytest.raises(TypeError, match="give an object of a MetadataProducerConsumer class"):
            register_metadata_producer_consumer(object())

    def test_by_default_it_produces_none(self, queue):
        class Silent(MetadataProducerConsumer):
            NAMESPACE = "silent"

        register_metadata_producer_consumer(Silent())
        note()
        run_one(queue)
        assert ran == [("nobody", {"silent": None})]

    def test_those_of_one_queue_can_be_cleared(self, queue, tenant_consumer):
        register_metadata_producer_consumer(Says("here", 1), "default")
        register_metadata_producer_consumer(Says("there", 1), "mail")
        clear_metadata_producer_consumers("default")
        register_metadata_producer_consumer(Says("here", 2), "default")
        note()
        run_one(queue)
        assert ran == [("nobody", {"tenant": "nobody", "here": 2})]

    def test_a_skipped_call_has_asked_too_as_it_was_ready_to_go(self, queue, tenant_consumer):
        refresh(), refresh(), refresh()
        assert tenant_consumer.produced == 3


def errors(caplog):
    return [one for one in caplog.records if one.levelno == logging.ERROR and one.name == "djqueue.messages.metadata"]


@pytest.mark.backends("memory")
@pytest.mark.parametrize("around", [contextvars.copy_context, contextvars.Context], ids=["some", "empty"])
@pytest.mark.parametrize("command", [note, stumble])
def test_what_is_logged_of_a_start_has_its_context(queue, caplog, command, around):
    """A filter of logs finds there what a carrier has set, and which message it is about. A thread begins with none."""
    seen = []

    class Tenant(MetadataProducerConsumer):
        NAMESPACE = "tenant"

        def produce_metadata(self):
            return "ann"

        def consume_metadata(self, metadata):
            tenant.set(metadata)

    def listen(record):
        seen.append((tenant.get(), current_message() and current_message().id))
        return True

    tenant = contextvars.ContextVar("tenant", default="-")
    register_metadata_producer_consumer(Tenant())
    handle = command()
    logger = logging.getLogger("djqueue.running.reporting")
    logger.addFilter(listen)
    try:
        with caplog.at_level(logging.INFO, "djqueue"):
            around().run(run_one, queue)
    finally:
        logger.removeFilter(listen)
    assert seen == [("ann", handle.id)]
    assert tenant.get() == "-"
