"""What other libraries call things, and what djqueue calls them: for the text of errors.

The names are those of Celery, RQ, huey, dramatiq and django-q2, and of the five systems whose samples run in the tests:
djutils, Deferrable, Scrapy Cluster, sharded-queue and the distributed timeout queue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from inspect import getattr_static
from typing import Any, NoReturn, TypeVar

T = TypeVar("T", bound=type)

_CALL = "call it, or use .enqueue(...)"
_LATER = "use .using(delay=seconds).enqueue(...)"
_AT = "use .using(run_after=datetime).enqueue(...)"
_COPY = "there is no signature of a call: .using(...) is a copy of the command with other options"
_MANY = "use .enqueue_many([(1,), (2,)])"
_COMMIT = "call it: in a transaction a call is sent when that commits"
_CHAIN = "there are no workflows: let a command call the next one"
_STOP = "manage.py queue_lanes --pause NAME holds a command that has lanes; Result.cancel() cancels one call"

ON_A_COMMAND: dict[str, str] = {
    "AsyncResult": "use djqueue.Result(id)",
    "actor_name": "its name is .name",
    "apply": "use .call(...), which runs it here and now",
    "apply_async": f"{_CALL}; .using(...).enqueue(...) takes options",
    "async_": _CALL,
    "async_send": _CALL,
    "call_local": "use .call(...), which runs it here and now",
    "chunks": _MANY,
    "delay": f"{_CALL}; .using(delay=seconds).enqueue(...) waits",
    "defer": _CALL,
    "delay_on_commit": _COMMIT,
    "apply_async_on_commit": _COMMIT,
    "enqueue_at": _AT,
    "enqueue_call": "use .enqueue(...), with the arguments as they are",
    "enqueue_in": _LATER,
    "broker": "queues are in djqueue.queues by alias",
    "fn": "the function is .func, and .call(...) runs it here and now",
    "is_revoked": _STOP,
    "later": f"{_CALL}; .later(...) is for functions of a Deferrable",
    "map": _MANY,
    "message": _COPY,
    "message_with_options": _COPY,
    "queue": "the queue is chosen by .using(queue_name=...)",
    "queue_name": "the alias of its queue is .policy.queue_name",
    "replace": _CHAIN,
    "request": "current_message() is the message that runs",
    "restore": "manage.py queue_lanes --resume NAME lets a command go on that was paused",
    "retry": "raise Retry(after=seconds) in the function",
    "revoke": _STOP,
    "run": "use .call(...), which runs it here and now",
    "s": _COPY,
    "schedule": f"{_LATER}; djqueue.schedules.add(...) sends a call again and again",
    "send": _CALL,
    "send_with_options": "use .using(...).enqueue(...)",
    "si": _COPY,
    "signature": _COPY,
    "starmap": _MANY,
    "subtask": _COPY,
    "task": "it is the command itself",
    "task_name": "its name is .name",
    "then": _CHAIN,
    "update_state": "use current_message().progress(...) in the function",
}
"""Attributes of a command."""

_STATUS = "use .status, which is 'done', 'failed', 'ready', 'running', …"
_GET = "use .get(timeout=seconds)"
_CANCEL = "use .cancel()"
_FRESH = "each look at .status, .errors or .get() asks the queue anew: leave it out"
_AGAIN = "manage.py queue_errors retry ID puts a failed message back into its queue"
_ERRORS = "the errors of its attempts are in .errors"
_ID = "its id is .id"
_NAME = "the name of its command is .command"

ON_A_RESULT: dict[str, str] = {
    "abort": _CANCEL,
    "args": "manage.py queue_errors show ID --arguments shows those of a failed message",
    "children": _CHAIN,
    "collect": _GET,
    "delete": _CANCEL,
    "dependency": _CHAIN,
    "exc_info": _ERRORS,
    "exception": _ERRORS,
    "failed": _STATUS,
    "forget": "a result goes by itself after its result_ttl: leave it out",
    "func_name": _NAME,
    "get_id": _ID,
    "get_result": _GET,
    "get_status": _STATUS,
    "info": f"{_GET}, or .progress",
    "is_canceled": _STATUS,
    "is_failed": _STATUS,
    "is_finished": _STATUS,
    "is_queued": _STATUS,
    "is_ready": _STATUS,
    "is_revoked": _STATUS,
    "is_scheduled": _STATUS,
    "is_started": _STATUS,
    "job_id": _ID,
    "join": _GET,
    "kwargs": "manage.py queue_errors show ID --arguments shows those of a failed message",
    "latest_result": _GET,
    "message_id": _ID,
    "meta": "what its command reported is in .progress",
    "name": _NAME,
    "origin": "the alias of its queue is .queue_name",
    "parent": _CHAIN,
    "ready": _STATUS,
    "refresh": _FRESH,
    "requeue": _AGAIN,
    "reschedule": _AGAIN,
    "reset": _FRESH,
    "restore": "a cancelled call is made anew",
    "result": _GET,
    "results": f"{_ERRORS}; {_GET}",
    "retry": _AGAIN,
    "return_value": _GET,
    "revoke": _CANCEL,
    "state": _STATUS,
    "stop": _CANCEL,
    "success": _STATUS,
    "successful": _STATUS,
    "task": _NAME,
    "task_id": _ID,
    "task_name": _NAME,
    "terminate": _CANCEL,
    "then": _CHAIN,
    "traceback": _ERRORS,
    "value": _GET,
    "wait": _GET,
}
"""Attributes of the handle of a call."""

_TIMETABLE = "give every=seconds, crontab=crontab(...) or rrule='FREQ=...'"
_START = "give start=datetime"

IN_A_SCHEDULE: dict[str, str] = {
    "eta": _START,
    "func": "the command comes second, after the name",
    "interval": "give every=seconds",
    "next_run": _START,
    "q_options": "options are given with the command, as in command.using(...)",
    "repeat": "give an rrule that ends, as in rrule='FREQ=DAILY;COUNT=3'",
    "repeats": "give an rrule that ends, as in rrule='FREQ=DAILY;COUNT=3'",
    "schedule": _TIMETABLE,
    "schedule_type": _TIMETABLE,
    "task": "the command comes second, after the name",
}
"""Arguments of ``schedules.add``."""

_SEND = "use command.using(queue_name=alias).enqueue(...)"
_FAILED = "failed messages are in .failed, a queue like this one; manage.py queue_errors shows them"
_SEE = "use .peek('ready'), 'delayed' or 'leased'"
_FIND = "use .find(id)"
_DECIDES = "each pop decides for itself, and .refusal says why it got nothing"
_ITS_LANES = "a tube is a lane: .lanes() lists them, and .lane(name) is one"
_HELD = "what is in progress is leased: .peek('leased') shows it, .stats().leased counts it"
_LEASED = "use .take(lease=seconds), which takes an item and leases it in one step"
_REAP = "use .reap(), which gives back what timed out; each take() does so too when it is due"
_PERIODICALLY = "use @periodic_command, or djqueue.schedules.add(...)"

ON_A_QUEUE: dict[str, str] = {
    "ack": "use .complete(lease)",
    "acknowledge": "use .complete(lease)",
    "allowed": _DECIDES,
    "backend": "the queue is its own backend; its class is CLASS in QUEUES",
    "check_elastic": _DECIDES,
    "clean": _REAP,
    "cleaner": _REAP,
    "complete_batch": "use .complete(leases), which takes one lease or many",
    "count": "use len(queue), or .stats()",
    "cron": _PERIODICALLY,
    "deferred_job_registry": _SEE,
    "delete": "use .flush()",
    "elastic_kick_in": "the store counts it, for all processes; .reset() begins anew",
    "empty": "use .flush(), which deletes what waits; len(queue) counts it",
    "enqueue": _SEND,
    "enqueue_at": "use command.using(queue_name=alias, run_after=datetime).enqueue(...)",
    "enqueue_call": _SEND,
    "enqueue_in": "use command.using(queue_name=alias, delay=seconds).enqueue(...)",
    "enqueue_many": "use command.using(queue_name=alias).enqueue_many([(1,), (2,)])",
    "error_queue": _FAILED,
    "every": _PERIODICALLY,
    "failed_job_registry": _FAILED,
    "fetch_job": _FIND,
    "finished_job_registry": "what is done is counted, and not kept",
    "get": "use .pop(timeout=seconds) for an item",
    "get_job_ids": _SEE,
    "get_jobs": _SEE,
    "in_progress": _HELD,
    "is_empty": "use len(queue) == 0",
    "is_moderated": _DECIDES,
    "job_ids": _SEE,
    "jobs": _SEE,
    "nack": "use .release(lease), which gives it back at once",
    "pending": _SEE,
    "periodic_task": _PERIODICALLY,
    "pipes": _ITS_LANES,
    "pop_batch": "use .take_many(n), which returns pairs of a lease and an item",
    "push_batch": "use .push_many(items), which returns their ids",
    "qsize": "use len(queue), or .stats()",
    "register": "use Handler.enqueue(*requests), where Handler is a BatchCommand",
    "revoke": "use .remove([id]), or .cancel() of the result",
    "scheduled": _SEE,
    "scheduled_job_registry": _SEE,
    "size": "use len(queue), or .stats()",
    "smembers": _HELD,
    "smove": _LEASED,
    "srandmember": _LEASED,
    "started_job_registry": _SEE,
    "storage": "the queue is its own storage; its class is CLASS in QUEUES",
    "task": "decorate the function with @queue_command(queue_name=alias)",
    "test_hits": _DECIDES,
    "todos": "what waits is ready: .peek('ready') shows it, len(queue) counts it",
}
"""Attributes of a queue."""

_ALIAS = "queues are found by alias, as in queues['default']"

ON_QUEUES: dict[str, str] = {
    "all": "use [queues[alias] for alias in queues]",
    "default": _ALIAS,
    "get": _ALIAS,
    "get_queue": _ALIAS,
    "items": "use [(alias, queues[alias]) for alias in queues]",
    "keys": "use list(queues)",
    "values": "use [queues[alias] for alias in queues]",
}
"""Attributes of the queues of a project."""

_DESCRIBED = "backends are described in QUEUES; the queue is .queue, and its failed messages are in .queue.failed"

ON_A_DEFERRABLE: dict[str, str] = {
    "backend": _DESCRIBED,
    "create_backend_for_group": _DESCRIBED,
    "error_queue": _DESCRIBED,
    "group": "the alias of its queue is .queue_name",
    "later": "the function has it: function.later(...)",
    "pop": "use .queue.take(), which returns (lease, item)",
    "push": "use .queue.push(item)",
    "redis_client": "debouncing needs nothing but the queue: leave it out",
}
"""Attributes of a Deferrable."""

ON_THE_QUEUE_OF_A_DEFERRABLE: dict[str, str] = {
    "pop": "in Deferrable it returned (envelope, item). Use .take(), which returns (lease, item), and complete the "
    "lease; an item without a lease, which nothing gives back, is djqueue.queues[alias].pop()",
}
"""Attributes of the queue of a Deferrable."""

_BY_NAME = "a message has the name of its command: registry.get(name) is the command"

ON_THE_REGISTRY: dict[str, str] = {
    "get_command_for_message": _BY_NAME,
    "get_message_for_command": _BY_NAME,
    "get_periodic_commands": "use .periodic()",
}
"""Attributes of the registry of commands."""

_COMMAND = "djqueue calls it queue_command"
_PERIODIC = "djqueue calls it periodic_command, with a crontab(...)"
_NO_APP = "there is no such object: the settings describe QUEUES, and @queue_command is imported from djqueue"

_RESULT = "djqueue calls it Result: Result(id)"
_RUNNING = "djqueue calls it current_message: current_message() is the message that runs"
_FACTORY = "the settings describe the backend: CLASS in QUEUES, one entry for each group"
_STORAGE = "the settings describe it: CLASS in QUEUES is RedisQueue, MemoryQueue or DatabaseQueue"
_LOCK = "none is needed: a worker that claims a run of a shard holds its lease"
_HANDLER_LATER = "use Handler.using(delay=seconds).enqueue(...), where Handler is a BatchCommand"

IN_THE_PACKAGE: dict[str, str] = {
    "AsyncResult": _RESULT,
    "CancelExecution": "djqueue calls it Discard",
    "Celery": _NO_APP,
    "Coordinator": _LOCK,
    "CurrentMessage": _RUNNING,
    "DatabaseQueue": "it is in djqueue.backends.database",
    "DeferredHandler": _HANDLER_LATER,
    "DocketsBackendFactory": _FACTORY,
    "Handler": "djqueue calls it BatchCommand",
    "Huey": _NO_APP,
    "Ignore": "djqueue calls it Discard",
    "InMemoryBackendFactory": _FACTORY,
    "Job": _RESULT,
    "JsonTupleSerializer": "give the option serializer='json', or the setting QUEUE_SERIALIZER",
    "MaxRetriesExceededError": "a message whose retries are used up is moved to the failed queue",
    "MemoryQueue": "it is in djqueue.backends.memory",
    "OrmQ": "djqueue.queues['default'].peek('ready') has what waits",
    "PeriodicTask": "djqueue.schedules.add(...) makes a schedule at run time",
    "Queue": f"{_NO_APP}; djqueue.queues has the queues by alias",
    "QueueException": "it is in djqueue.exceptions, and is called QueueError there",
    "RecurrentHandler": "djqueue.schedules.add(...) sends a call again and again",
    "RedisBlockingQueue": "it is in djqueue.backends.redis_backend",
    "RedisCoordinator": _LOCK,
    "RedisHuey": _NO_APP,
    "RedisLock": _LOCK,
    "RedisPriorityQueue": "each RedisQueue of djqueue.backends.redis_backend has priorities",
    "RedisQueue": "it is in djqueue.backends.redis_backend",
    "RedisStack": "use RedisQueue(name, connection, lifo=True) of djqueue.backends.redis_backend",
    "RedisStorage": _STORAGE,
    "RedisThrottledQueue": "djqueue.throttle calls it ThrottledQueue: ThrottledQueue(queue, limit=10, window=5)",
    "Reject": "djqueue calls it Fail",
    "RetryTask": "djqueue calls it Retry",
    "RuntimeCoordinator": _LOCK,
    "RuntimeLock": _LOCK,
    "RuntimeStorage": _STORAGE,
    "SQSBackendFactory": _FACTORY,
    "Schedule": "djqueue.schedules.add(...) makes a schedule at run time",
    "SoftTimeLimitExceeded": "djqueue calls it TimeLimitExceeded",
    "SqliteHuey": _NO_APP,
    "SqsQueue": "it is in djqueue.backends.sqs",
    "Task": "djqueue calls it QueueCommand",
    "ThrottledQueue": "it is in djqueue.throttle",
    "TimeLimit": "give the option time_limit",
    "Tube": "djqueue calls it a lane: manage.py queue_lanes shows them",
    "Worker": "djqueue calls it Consumer; manage.py queue_consumer runs one",
    "actor": _COMMAND,
    "app": _NO_APP,
    "async_chain": _CHAIN,
    "async_iter": "use .enqueue_many(...) of one command",
    "async_task": "decorate the function with @queue_command and call it",
    "broker": _NO_APP,
    "celery": _NO_APP,
    "chain": _CHAIN,
    "chord": _CHAIN,
    "close_db": "connections are closed and kept as CONN_MAX_AGE says: leave it out",
    "cron": _PERIODIC,
    "current_app": _NO_APP,
    "current_task": _RUNNING,
    "db_periodic_task": _PERIODIC,
    "db_task": _COMMAND,
    "defer": "djqueue.Deferrable().deferrable makes a function with .later(...)",
    "dramatiq": _NO_APP,
    "enqueue": "decorate the function with @queue_command, and use its .enqueue(...)",
    "fetch": _RESULT,
    "get_broker": _NO_APP,
    "get_current_job": _RUNNING,
    "get_queue": "djqueue.queues has the queues by alias: queues['default']",
    "group": "use .enqueue_many(...) of one command",
    "huey": _NO_APP,
    "job": _COMMAND,
    "lock_task": "use the option concurrency=1",
    "on_commit_task": "djqueue calls it queue_command: in a transaction a call is sent when that commits",
    "periodic_task": _PERIODIC,
    "pipeline": _CHAIN,
    "result": _RESULT,
    "schedule": "djqueue.schedules.add(...) sends a call again and again; .using(delay=...) sends one later",
    "set_broker": _NO_APP,
    "shared_task": _COMMAND,
    "signal": "the signals are in djqueue.signals",
    "signature": _COPY,
    "subtask": _COPY,
    "xmap": _MANY,
}
"""Names that are imported from a package."""

_KEPT = (
    "failed messages stay in the failed queue until queue_errors deletes them, or for the setting QUEUE_MAX_ERROR_AGE"
)
_MILLISECONDS = ", in seconds and not in milliseconds"
_BY_CALL = "a periodic command is given no arguments: give its parameters defaults, or use djqueue.schedules.add(...)"
_SIGNAL = "djqueue.signals tell what became of a message"
_ALWAYS = "it is always so here: leave it out"
_BACKOFF = "backoff=Backoff(first=seconds, factor=2, cap=seconds, jitter=0.25)"
_HANDED = "the queue is chosen by queue_name, and described in QUEUES: leave it out"
_NO_ID = "ids are made by djqueue; unique= and key= say which calls are the same"

_CALLED: dict[str, str] = {
    "autoretry_for": "retry_on",
    "backoff_factor": _BACKOFF,
    "codec": "serializer",
    "countdown": "delay",
    "debounce_always_delay": "always_delay",
    "debounce_seconds": "debounce",
    "cron": "@periodic_command(crontab.parse(...))",
    "default_retry_delay": "backoff",
    "defer": "delay",
    "dedup": "unique",
    "delay_seconds": "delay",
    "description": "describe",
    "error_classes": "retry_on",
    "eta": "run_after",
    "exchange": "queue_name",
    "expires": "ttl",
    "expires_in": "ttl",
    "hard_time_limit": "time_limit",
    "if_not_exists": "unique='queued'",
    "job_timeout": "time_limit",
    "linger": "idle_timeout",
    "lock": "concurrency=1",
    "max_age": f"ttl{_MILLISECONDS}",
    "max_backoff": _BACKOFF + _MILLISECONDS,
    "max_retries": "retries",
    "min_backoff": _BACKOFF + _MILLISECONDS,
    "on_failure_policy": "failure_policy",
    "queue": "queue_name",
    "rate": "throttle=Throttle(limit, window)",
    "rate_limit": "throttle=Throttle(limit, window)",
    "recurrent": "schedules.add(name, command, every=...)",
    "repeat": "schedules.add(name, command, every=...)",
    "result_expires": "result_ttl",
    "retry": "retries, with retry_on",
    "retry_backoff": _BACKOFF,
    "retry_backoff_max": _BACKOFF,
    "retry_delay": "backoff",
    "retry_for": "retry_on",
    "retry_intervals": "backoff",
    "retry_jitter": _BACKOFF,
    "retry_kwargs": "retries",
    "retry_policy": "backoff",
    "retry_when": "retry_on",
    "routing_key": "queue_name",
    "schedule": "@periodic_command(crontab(...))",
    "schedule_type": "@periodic_command(crontab(...))",
    "soft_time_limit": "time_limit",
    "store_results": "result_ttl",
    "throttle_limit": "throttle=Throttle(limit, window)",
    "throttle_window": "throttle=Throttle(limit, window)",
    "throttlelimit": "throttle=Throttle(limit, window)",
    "throttlewindow": "throttle=Throttle(limit, window)",
    "timeout": "time_limit",
    "ttl_result": "result_ttl",
    "ttl_seconds": "ttl",
    "unique_for": "unique",
    "use_exponential_backoff": "backoff",
    "visibility_timeout": "lease",
}
_OTHERWISE: dict[str, str] = {
    "acks_late": _ALWAYS,
    "acks_on_failure_or_timeout": _ALWAYS,
    "ack_failure": _KEPT,
    "actor_name": "a command has the name of its function",
    "at_front": "give a higher priority",
    "args": _BY_CALL,
    "base": "subclass QueueCommand",
    "bind": "current_message() is the message that runs, so the function gets no self",
    "broker": _HANDED,
    "chain": _CHAIN,
    "cluster": _HANDED,
    "connection": _HANDED,
    "context": "current_message() is the message that runs, so the function gets no task",
    "depends_on": _CHAIN,
    "failure_ttl": _KEPT,
    "group": "use .enqueue_many(...), and keep the ids of its results",
    "hook": _SIGNAL,
    "id": _NO_ID,
    "ignore_result": "results are not kept unless result_ttl is given: leave it out",
    "job_id": _NO_ID,
    "kwargs": _BY_CALL,
    "link": _CHAIN,
    "link_error": _SIGNAL,
    "name": "a command has the name of its function; of a queue it is queue_name, and describe= is for logs",
    "on_failure": f"{_SIGNAL}; what becomes of a shard is failure_policy",
    "on_success": _SIGNAL,
    "pipe_ignore": _CHAIN,
    "preserve": "results are kept for their result_ttl, however often they are read: leave it out",
    "reject_on_worker_lost": "give max_lost, how many attempts may be lost with their worker",
    "save": "results are kept for result_ttl",
    "sync": "use .call(...), which runs it here and now, or the setting QUEUE_ALWAYS_EAGER",
    "task_id": _NO_ID,
    "throws": "raise Fail or Discard for an end that is expected",
    "track_started": _ALWAYS,
}
OPTIONS: dict[str, str] = {name: f"djqueue calls it {own}" for name, own in _CALLED.items()} | _OTHERWISE
"""Options of a command, in lower case."""


def of_a_name(name: str, known: Iterable[str]) -> str | None:
    """What to say of a name that the package has not; None if it is like no name that is known."""
    if name in IN_THE_PACKAGE:
        return f"djqueue has no {name!r}: {IN_THE_PACKAGE[name]}"
    alike = get_close_matches(name, known, 1, 0.8)
    return f"djqueue has no {name!r}; did you mean {alike[0]!r}?" if alike else None


def option_hint(name: str) -> str | None:
    """What djqueue has for an option of another library; None if the name is not known from there."""
    return OPTIONS.get(name.lower())


def missing(of: object, name: str, hints: Mapping[str, str]) -> Any:
    """For ``__getattr__``: raises AttributeError with the hint; without one as Python says it, or as a property did."""
    if name in hints and not hasattr(type(of), name):
        raise AttributeError(_said(type(of), name, hints[name]), name=name, obj=of)
    return object.__getattribute__(of, name)


def answering(hints: Mapping[str, str]) -> Callable[[T], T]:
    """A decorator of a class whose objects answer these names with AttributeError and the hint.

    It is for classes whose attributes are read for each message: ``__getattr__`` would slow down all of them.
    """

    def decorate(cls: T) -> T:
        for name, hint in hints.items():
            setattr(cls, name, _Missing(name, hint))
        cls.__dir__ = _present  # type: ignore[assignment,method-assign]
        return cls

    return decorate


def _present(of: object) -> list[str]:
    return [name for name in object.__dir__(of) if not isinstance(getattr_static(of, name, None), _Missing)]


class _Missing:
    """An attribute that there is not, for a class, its objects and its subclasses; one that a subclass has is there."""

    def __init__(self, name: str, hint: str) -> None:
        self._name, self._hint = name, hint

    def __get__(self, of: object, owner: type) -> NoReturn:
        raise AttributeError(_said(owner, self._name, self._hint), name=self._name, obj=of)


def _said(cls: type, name: str, hint: str) -> str:
    return f"{cls.__name__!r} object has no attribute {name!r}: {hint}."
