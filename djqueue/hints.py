"""What other libraries call things, and what djqueue calls them: for the text of errors.

The names are those of Celery, RQ, huey, dramatiq and django-q2, and of the packages whose samples run here.
"""

from __future__ import annotations

_CALL = "call it, or use .enqueue(...)"
_LATER = "use .using(delay=seconds).enqueue(...)"
_AT = "use .using(run_after=datetime).enqueue(...)"
_COPY = "there is no signature of a call: .using(...) is a copy of the command with other options"
_MANY = "use .enqueue_many([(1,), (2,)])"
_COMMIT = "call it: in a transaction a call is sent when that commits"
_CHAIN = "there are no workflows: let a command call the next one"

ON_A_COMMAND: dict[str, str] = {
    "apply": "use .call(...), which runs it here and now",
    "apply_async": f"{_CALL}; .using(...).enqueue(...) takes options",
    "async_": _CALL,
    "async_send": _CALL,
    "call_local": "use .call(...), which runs it here and now",
    "chunks": _MANY,
    "delay": f"{_CALL}; .using(delay=seconds).enqueue(...) waits",
    "delay_on_commit": _COMMIT,
    "apply_async_on_commit": _COMMIT,
    "enqueue_at": _AT,
    "enqueue_call": "use .enqueue(...), with the arguments as they are",
    "enqueue_in": _LATER,
    "fn": "the function is .func, and .call(...) runs it here and now",
    "later": f"{_CALL}; .later(...) is for functions of a Deferrable",
    "map": _MANY,
    "message": _COPY,
    "message_with_options": _COPY,
    "request": "current_message() is the message that runs",
    "retry": "raise Retry(after=seconds) in the function",
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
    "then": _CHAIN,
}
"""Attributes of a command."""

_COMMAND = "djqueue calls it queue_command"
_PERIODIC = "djqueue calls it periodic_command, with a crontab(...)"
_NO_APP = "there is no such object: the settings describe QUEUES, and @queue_command is imported from djqueue"

IN_THE_PACKAGE: dict[str, str] = {
    "Celery": _NO_APP,
    "Huey": _NO_APP,
    "Queue": f"{_NO_APP}; djqueue.queues has the queues by alias",
    "RedisHuey": _NO_APP,
    "SqliteHuey": _NO_APP,
    "Task": "djqueue calls it QueueCommand",
    "Worker": "djqueue calls it Consumer; manage.py queue_consumer runs one",
    "actor": _COMMAND,
    "app": _NO_APP,
    "async_task": "decorate the function with @queue_command and call it",
    "broker": _NO_APP,
    "celery": _NO_APP,
    "chain": _CHAIN,
    "chord": _CHAIN,
    "close_db": "connections are closed and kept as CONN_MAX_AGE says: leave it out",
    "cron": _PERIODIC,
    "db_periodic_task": _PERIODIC,
    "db_task": _COMMAND,
    "defer": "djqueue.Deferrable().deferrable makes a function with .later(...)",
    "dramatiq": _NO_APP,
    "enqueue": "decorate the function with @queue_command, and use its .enqueue(...)",
    "get_queue": "djqueue.queues has the queues by alias: queues['default']",
    "group": "use .enqueue_many(...) of one command",
    "huey": _NO_APP,
    "job": _COMMAND,
    "lock_task": "use the option concurrency=1",
    "on_commit_task": "djqueue calls it queue_command: in a transaction a call is sent when that commits",
    "periodic_task": _PERIODIC,
    "result": "djqueue calls it Result: Result(id)",
    "schedule": "djqueue.schedules.add(...) sends a call again and again; .using(delay=...) sends one later",
    "shared_task": _COMMAND,
    "task": _COMMAND,
}
"""Names that are imported from a package."""

_KEPT = "failed messages stay in the failed queue until queue_errors deletes them"
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
    "cron": "@periodic_command(crontab.parse(...))",
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
    "max_age": "ttl",
    "max_backoff": _BACKOFF,
    "max_retries": "retries",
    "min_backoff": _BACKOFF,
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
    "visibility_timeout": "lease",
}
_OTHERWISE: dict[str, str] = {
    "acks_late": _ALWAYS,
    "acks_on_failure_or_timeout": _ALWAYS,
    "ack_failure": _KEPT,
    "actor_name": "a command has the name of its function",
    "at_front": "give a higher priority",
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


def option_hint(name: str) -> str | None:
    """What djqueue has for an option of another library; None if the name is not known from there."""
    return OPTIONS.get(name.lower())
