"""What other packages call things, and what djqueue calls them: for the texts of errors.

The names are those of Celery, RQ, huey, dramatiq and django-q2, and of the five systems whose samples run in the tests:
djutils, Deferrable, Scrapy Cluster, sharded-queue and the distributed timeout queue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from inspect import getattr_static
from typing import NoReturn, TypeVar

T = TypeVar("T", bound=type)

_NO_WORKFLOWS = "there are no workflows: let a command call the next one"
_NO_SIGNATURE = "there is no signature of a call: .using(...) is a copy of the command with other options"
_MANY = "use .enqueue_many([(1,), (2,)])"
_NO_APP = "there is no such object: the settings describe QUEUES, and @queue_command is imported from djqueue"
_BACKOFF = "djqueue calls it backoff=Backoff(first=seconds, factor=2, cap=seconds, jitter=0.25)"
_SIGNALS = "djqueue.signals say what became of a message"

_ANSWERS: Mapping[str, Mapping[str, str]] = {
    "command": {
        "actor_name task_name": "its name is .name",
        "apply call_local run": "use .call(...), which runs it here and now",
        "apply_async": "call it, or use .enqueue(...); .using(...).enqueue(...) takes options",
        "apply_async_on_commit delay_on_commit": "call it: in a transaction a call is sent when that commits",
        "async_ async_send defer send": "call it, or use .enqueue(...)",
        "AsyncResult": "use djqueue.Result(id)",
        "broker": "queues are in djqueue.queues by alias",
        "chunks map starmap": _MANY,
        "delay": "call it, or use .enqueue(...); .using(delay=seconds).enqueue(...) waits",
        "enqueue_at": "use .using(run_after=datetime).enqueue(...)",
        "enqueue_call": "use .enqueue(...), with the arguments as they are",
        "enqueue_in": "use .using(delay=seconds).enqueue(...)",
        "fn": "the function is .func, and .call(...) runs it here and now",
        "is_revoked revoke": (
            "manage.py queue_lanes --pause NAME holds a command that has lanes; Result.cancel() cancels one call"
        ),
        "later": "call it, or use .enqueue(...); .later(...) is for functions of a Deferrable",
        "message message_with_options s si signature subtask": _NO_SIGNATURE,
        "queue": "the queue is chosen by .using(queue_name=...)",
        "queue_name": "the alias of its queue is .policy.queue_name",
        "replace then": _NO_WORKFLOWS,
        "request": "current_message() is the message that runs",
        "restore": "manage.py queue_lanes --resume NAME lets a command go on that was paused",
        "retry": "raise Retry(after=seconds) in the function",
        "schedule": "use .using(delay=seconds).enqueue(...); djqueue.schedules.add(...) sends a call again and again",
        "send_with_options": "use .using(...).enqueue(...)",
        "task": "it is the command itself",
        "update_state": "use current_message().progress(...) in the function",
    },
    "result": {
        "abort delete revoke stop terminate": "use .cancel()",
        "args kwargs": "manage.py queue_errors show ID --arguments shows those of a failed message",
        "children dependency parent then": _NO_WORKFLOWS,
        "collect get_result join latest_result result return_value value wait": "use .get(timeout=seconds)",
        "exc_info exception traceback": "the errors of its attempts are in .errors",
        "failed get_status is_canceled is_failed is_finished is_queued is_ready is_revoked "
        "is_scheduled is_started ready state success successful": (
            "use .status, which is 'done', 'failed', 'ready', 'running', …"
        ),
        "forget": "a result goes by itself after its result_ttl: leave it out",
        "func_name name task task_name": "the name of its command is .command",
        "get_id job_id message_id task_id": "its id is .id",
        "info": "use .get(timeout=seconds), or .progress",
        "meta": "what its command reported is in .progress",
        "origin": "the alias of its queue is .queue_name",
        "refresh reset": "each .status, .errors or .get() asks the queue again: leave it out",
        "requeue reschedule retry": "manage.py queue_errors retry ID puts a failed message back into its queue",
        "restore": "a cancelled call is not restored: call the command again",
        "results": "the errors of its attempts are in .errors; use .get(timeout=seconds)",
    },
    "queue": {
        "ack acknowledge": "use .complete(lease)",
        "allowed check_elastic is_moderated test_hits": (
            "each pop decides for itself, and .refusal says why it got nothing"
        ),
        "backend": "the queue is its own backend; its class is CLASS in QUEUES",
        "clean cleaner": "use .reap(), which gives back what timed out; each take() does so too when it is due",
        "complete_batch": "use .complete(leases), which takes one lease or many",
        "count qsize size": "use len(queue), or .stats()",
        "cron every periodic_task": "use @periodic_command, or djqueue.schedules.add(...)",
        "deferred_job_registry get_job_ids get_jobs job_ids jobs pending scheduled "
        "scheduled_job_registry started_job_registry": "use .peek('ready'), 'delayed' or 'leased'",
        "delete": "use .flush()",
        "elastic_kick_in": "the store counts it, for all processes; .reset() starts it again",
        "empty": "use .flush(), which deletes what waits; len(queue) counts it",
        "enqueue enqueue_call": "use command.using(queue_name=alias).enqueue(...)",
        "enqueue_at": "use command.using(queue_name=alias, run_after=datetime).enqueue(...)",
        "enqueue_in": "use command.using(queue_name=alias, delay=seconds).enqueue(...)",
        "enqueue_many": "use command.using(queue_name=alias).enqueue_many([(1,), (2,)])",
        "error_queue failed_job_registry": (
            "failed messages are in .failed, a queue like this one; manage.py queue_errors shows them"
        ),
        "fetch_job": "use .find(id)",
        "finished_job_registry": "what is done is counted, and not kept",
        "get": "use .pop(timeout=seconds) for an item",
        "in_progress smembers": "what is in progress is leased: .peek('leased') shows it, .stats().leased counts it",
        "is_empty": "use len(queue) == 0",
        "nack": "use .release(lease), which gives it back at once",
        "pipes": "a tube is a lane: .lanes.page() lists them, and .lanes.get(name) is one",
        "pop_batch": "use .take_many(n), which returns pairs of a lease and an item",
        "push_batch": "use .push_many(items), which returns their ids",
        "register": "use Handler.enqueue(*requests), where Handler is a BatchCommand",
        "revoke": "use .remove([id]), or .cancel() of the result",
        "smove srandmember": "use .take(lease=seconds), which takes an item and leases it in one step",
        "storage": "the queue is its own storage; its class is CLASS in QUEUES",
        "task": "decorate the function with @queue_command(queue_name=alias)",
        "todos": "what waits is ready: .peek('ready') shows it, len(queue) counts it",
    },
    "queues": {
        "all values": "use [queues[alias] for alias in queues]",
        "default get get_queue": "queues are found by alias, as in queues['default']",
        "items": "use [(alias, queues[alias]) for alias in queues]",
        "keys": "use list(queues)",
    },
    "registry": {
        "get_command_for_message get_message_for_command": (
            "a message has the name of its command: registry.get(name) is the command"
        ),
        "get_periodic_commands": "use .periodic()",
    },
    "Deferrable": {
        "backend create_backend_for_group error_queue": (
            "backends are described in QUEUES; the queue is .queue, and its failed messages are in .queue.failed"
        ),
        "group": "the alias of its queue is .queue_name",
        "later": "the function has it: function.later(...)",
        "pop": "use .queue.take(), which returns (lease, item)",
        "push": "use .queue.push(item)",
        "redis_client": "debouncing needs nothing but the queue: leave it out",
    },
    "queue of a Deferrable": {
        "pop": (
            "in Deferrable it returned (envelope, item). Use .take(), which returns (lease, item), and complete "
            "the lease; an item without a lease, which nothing gives back, is djqueue.queues[alias].pop()"
        ),
    },
    "package": {
        "actor db_task job shared_task": "djqueue calls it queue_command",
        "app broker Celery celery current_app dramatiq get_broker Huey huey RedisHuey set_broker SqliteHuey": _NO_APP,
        "async_chain chain chord pipeline": _NO_WORKFLOWS,
        "async_iter group": "use .enqueue_many(...) of one command",
        "async_task": "decorate the function with @queue_command and call it",
        "AsyncResult fetch Job result": "djqueue calls it Result: Result(id)",
        "CancelExecution Ignore": "djqueue calls it Discard",
        "close_db": "connections are closed and kept as CONN_MAX_AGE says: leave it out",
        "Coordinator RedisCoordinator RedisLock RuntimeCoordinator RuntimeLock": (
            "none is needed: a worker that claims a run of a shard holds its lease"
        ),
        "cron db_periodic_task periodic_task": "djqueue calls it periodic_command, with a crontab(...)",
        "current_task CurrentMessage get_current_job": (
            "djqueue calls it current_message: current_message() is the message that runs"
        ),
        "DatabaseQueue": "it is in djqueue.backends.database",
        "defer": "djqueue.Deferrable().deferrable makes a function with .later(...)",
        "DeferredHandler": "use Handler.using(delay=seconds).enqueue(...), where Handler is a BatchCommand",
        "DocketsBackendFactory InMemoryBackendFactory SQSBackendFactory": (
            "the settings describe the backend: CLASS in QUEUES, one entry for each group"
        ),
        "enqueue": "decorate the function with @queue_command, and use its .enqueue(...)",
        "get_queue": "djqueue.queues has the queues by alias: queues['default']",
        "Handler": "djqueue calls it BatchCommand",
        "JsonTupleSerializer": "give the option serializer='json', or the setting QUEUE_SERIALIZER",
        "lock_task": "use the option concurrency=1",
        "MaxRetriesExceededError": "a message whose retries are used up is moved to the failed queue",
        "MemoryQueue": "it is in djqueue.backends.memory",
        "on_commit_task": "djqueue calls it queue_command: in a transaction a call is sent when that commits",
        "OrmQ": "djqueue.queues['default'].peek('ready') has what waits",
        "PeriodicTask Schedule": "djqueue.schedules.add(...) makes a schedule at run time",
        "Queue": f"{_NO_APP}; djqueue.queues has the queues by alias",
        "QueueException": "it is in djqueue.exceptions, and is called QueueError there",
        "RecurrentHandler": "djqueue.schedules.add(...) sends a call again and again",
        "RedisBlockingQueue RedisQueue": "it is in djqueue.backends.redis_backend",
        "RedisPriorityQueue": "each RedisQueue of djqueue.backends.redis_backend has priorities",
        "RedisStack": "use RedisQueue(name, connection, lifo=True) of djqueue.backends.redis_backend",
        "RedisStorage RuntimeStorage": (
            "the settings describe it: CLASS in QUEUES is RedisQueue, MemoryQueue or DatabaseQueue"
        ),
        "RedisThrottledQueue": "djqueue.throttle calls it ThrottledQueue: ThrottledQueue(queue, limit=10, window=5)",
        "Reject": "djqueue calls it Fail",
        "RetryTask": "djqueue calls it Retry",
        "schedule": "djqueue.schedules.add(...) sends a call again and again; .using(delay=...) sends one later",
        "signal": "the signals are in djqueue.signals",
        "signature subtask": _NO_SIGNATURE,
        "SoftTimeLimitExceeded": "djqueue calls it TimeLimitExceeded",
        "SqsQueue": "it is in djqueue.backends.sqs",
        "Task": "djqueue calls it QueueCommand",
        "ThrottledQueue": "it is in djqueue.throttle",
        "TimeLimit": "give the option time_limit",
        "Tube": "djqueue calls it a lane: manage.py queue_lanes shows them",
        "Worker": "djqueue calls it Consumer; manage.py queue_consumer runs one",
        "xmap": _MANY,
    },
    "option": {
        "ack_failure failure_ttl": (
            "failed messages stay in the failed queue until queue_errors deletes them, or for the setting "
            "QUEUE_MAX_ERROR_AGE"
        ),
        "acks_late acks_on_failure_or_timeout track_started": "it is always so here: leave it out",
        "actor_name": "a command has the name of its function",
        "args kwargs": (
            "a periodic command is given no arguments: give its parameters defaults, or use djqueue.schedules.add(...)"
        ),
        "at_front": "give a higher priority",
        "autoretry_for error_classes retry_for retry_when": "djqueue calls it retry_on",
        "backoff_factor retry_backoff retry_backoff_max retry_jitter": _BACKOFF,
        "base": "subclass QueueCommand",
        "bind": "current_message() is the message that runs, so the function gets no self",
        "broker cluster connection": "the queue is chosen by queue_name, and described in QUEUES: leave it out",
        "chain depends_on link pipe_ignore": _NO_WORKFLOWS,
        "codec": "djqueue calls it serializer",
        "context": "current_message() is the message that runs, so the function gets no task",
        "countdown defer delay_seconds": "djqueue calls it delay",
        "cron": "djqueue calls it @periodic_command(crontab.parse(...))",
        "debounce_always_delay": "djqueue calls it always_delay",
        "debounce_seconds": "djqueue calls it debounce",
        "dedup unique_for": "djqueue calls it unique",
        "default_retry_delay retry_delay retry_intervals retry_policy use_exponential_backoff": (
            "djqueue calls it backoff"
        ),
        "description": "djqueue calls it describe",
        "eta": "djqueue calls it run_after",
        "exchange queue routing_key": "djqueue calls it queue_name",
        "expires expires_in ttl_seconds": "djqueue calls it ttl",
        "group": "use .enqueue_many(...), and keep the ids of its results",
        "hard_time_limit job_timeout soft_time_limit timeout": "djqueue calls it time_limit",
        "hook link_error on_success": _SIGNALS,
        "id job_id task_id": "ids are made by djqueue; unique= and key= say which calls are the same",
        "if_not_exists": "djqueue calls it unique='queued'",
        "ignore_result": "results are not kept unless result_ttl is given: leave it out",
        "linger": "djqueue calls it idle_timeout",
        "lock": "djqueue calls it concurrency=1",
        "max_age": "djqueue calls it ttl, in seconds and not in milliseconds",
        "max_backoff min_backoff": f"{_BACKOFF}, in seconds and not in milliseconds",
        "max_retries retry_kwargs": "djqueue calls it retries",
        "name": "a command has the name of its function; of a queue it is queue_name, and describe= is for logs",
        "on_failure": f"{_SIGNALS}; what becomes of a shard is failure_policy",
        "on_failure_policy": "djqueue calls it failure_policy",
        "preserve": "results are kept for their result_ttl, however often they are read: leave it out",
        "rate rate_limit throttle_limit throttle_window throttlelimit throttlewindow": (
            "djqueue calls it throttle=Throttle(limit, window)"
        ),
        "recurrent repeat": "djqueue calls it schedules.add(name, command, every=...)",
        "reject_on_worker_lost": "give max_lost, how many attempts may be lost with their worker",
        "result_expires store_results ttl_result": "djqueue calls it result_ttl",
        "retry": "djqueue calls it retries, with retry_on",
        "save": "results are kept for result_ttl",
        "schedule schedule_type": "djqueue calls it @periodic_command(crontab(...))",
        "sync": "use .call(...), which runs it here and now, or the setting QUEUE_ALWAYS_EAGER",
        "throws": "raise Fail or Discard for an end that is expected",
        "visibility_timeout": "djqueue calls it lease",
    },
    "schedule": {
        "cron": "give crontab=crontab.parse({value!r})",
        "days hours minutes seconds weeks": "give every=timedelta({name}={value!r})",
        "eta next_run": "give start=datetime",
        "func task": "the command comes second, after the name",
        "interval": "give every=seconds",
        "q_options": "options are given with the command, as in command.using(...)",
        "repeat repeats": "give an rrule that ends, as in rrule='FREQ=DAILY;COUNT=3'",
        "schedule schedule_type": "give every=seconds, crontab=crontab(...) or rrule='FREQ=...'",
    },
    "crontab": {
        "date day_of_month days": "it is called day",
        "dow weekday weekdays": "it is called day_of_week",
        "hours": "it is called hour",
        "minutes": "it is called minute",
        "month_of_year months": "it is called month",
        "second seconds": "a minute is the shortest step; @periodic_command(every=seconds) may be due more often",
        "time": "it is called hour and minute",
        "timezone tz zone": "it is called time_zone",
    },
    "number in a crontab": {
        "hours": 'every {value} hours is crontab(hour="*/{value}", minute=0)',
        "minutes": 'every {value} minutes is crontab(minute="*/{value}")',
    },
    "setting": {
        "BACKEND ENGINE": "CLASS",
        "HOST LOCATION URL": "CONNECTION",
        "MODERATION": "moderate",
        "MODNAME": "mod_name",
        "NAME WINDOWNAME": "window_name",
        "QUEUE_ASYNC QUEUE_EAGER QUEUE_IMMEDIATE QUEUE_SYNC QUEUE_TASK_ALWAYS_EAGER": "QUEUE_ALWAYS_EAGER",
        "QUEUE_BACKEND": "QUEUE_CLASS",
        "QUEUE_BROKER QUEUE_BROKER_URL QUEUE_HOST QUEUE_LOCATION QUEUE_REDIS QUEUE_REDIS_URL QUEUE_URL": (
            "QUEUE_CONNECTION"
        ),
        "QUEUE_CODEC": "QUEUE_SERIALIZER",
        "QUEUE_COORDINATOR_DELAY": "QUEUE_MAX_POLL_INTERVAL",
        "QUEUE_COORDINATOR_PREFIX": "QUEUE_CONSUMER_PREFIX",
        "QUEUE_COORDINATOR_TIMEOUT": "QUEUE_LEASE",
        "QUEUE_FAILURE_TTL": "QUEUE_MAX_ERROR_AGE",
        "QUEUE_MAX_RETRIES QUEUE_RETRIES": "QUEUE_MAX_ATTEMPTS",
        "QUEUE_RESULT_EXPIRES": "QUEUE_RESULT_TTL",
        "QUEUE_THROTTLE QUEUES_DEFAULT": "QUEUES",
        "QUEUE_TUBE_PREFIX": "QUEUE_LANE_PREFIX",
        "QUEUE_WORKER_BATCH_SIZE": "QUEUE_BATCH_SIZE",
        "QUEUE_WORKER_EMPTY_LIMIT QUEUE_WORKER_EMPTY_PAUSE": "QUEUE_IDLE_TIMEOUT",
        "THROTTLELIMIT": "limit",
        "THROTTLEWINDOW": "window",
        "VISIBILITY_TIMEOUT": "LEASE",
    },
    "throttle as a setting": {
        "QUEUE_THROTTLE THROTTLE": "did you mean the key QUEUES[alias]['THROTTLE'], which is next to OPTIONS?",
    },
}
"""Each place: names in other packages, and the answer to all of them; it may show the name and the value given."""

HINTS: Mapping[str, Mapping[str, str]] = {
    place: {name: answer for names, answer in answers.items() for name in names.split()}
    for place, answers in _ANSWERS.items()
}
"""Each place: a name in another package, and its answer."""


def hint(name: str, *places: str, value: object = None) -> str | None:
    """What djqueue has for a name of another package, by the first place that knows it; None if none does.

    A name in lower case stands for its other forms too. ``value`` is what was given by that name.
    """
    for place in places:
        answer = HINTS[place].get(name) or HINTS[place].get(name.lower())
        if answer:
            return answer.format(name=name, value=value)
    return None


def package_hint(name: str, known: Iterable[str]) -> str | None:
    """What to say of a name that the package does not have; None if it is similar to no known name."""
    if answer := hint(name, "package"):
        return f"djqueue has no {name!r}: {answer}"
    close = get_close_matches(name, known, 1, 0.8)
    return f"djqueue has no {name!r}; did you mean {close[0]!r}?" if close else None


def answering(place: str) -> Callable[[T], T]:
    """A decorator of a class whose objects answer the names of a place with AttributeError and the hint.

    ``__getattr__`` would slow down each attribute of a class whose objects are used for every message.
    """

    def decorate(cls: T) -> T:
        for name in HINTS[place]:
            if name in vars(cls):
                raise TypeError(f"{cls.__name__} has {name}: leave it out of the hints.")
            setattr(cls, name, _Missing(name, place))
        cls.__dir__ = _present  # type: ignore[assignment,method-assign]
        return cls

    return decorate


def _present(of: object) -> list[str]:
    return [name for name in object.__dir__(of) if not isinstance(getattr_static(of, name, None), _Missing)]


class _Missing:
    """An attribute that a class and its objects do not have; a subclass may define it."""

    def __init__(self, name: str, place: str) -> None:
        self._name, self._place = name, place

    def __get__(self, of: object, owner: type) -> NoReturn:
        text = f"{owner.__name__!r} object has no attribute {self._name!r}: {hint(self._name, self._place)}."
        raise AttributeError(text, name=self._name, obj=of)
