"""System checks: they report what is wrong with the settings and the commands of a project before anything runs.

:data:`CATALOGUE` has every id with its words. The modules of this package register the checks when they are imported.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.core.checks import CheckMessage, Error, Warning

from djqueue.hints import hint
from djqueue.utils import near

TAG = "djqueue"
"""``manage.py check --tag djqueue`` runs these checks alone."""

CATALOGUE: dict[str, tuple[str, str]] = {
    "E001": ("{where} is no setting of djqueue.", "Rename or move it: {near}"),
    "E002": ("{where} is {value}.", "Give {wanted}."),
    "E003": ("{where} has the unknown key {key!r}.", "Rename or remove it: {near}"),
    "E004": ("{where} has the unknown option {key!r}.", "Rename, move or remove it: {near}"),
    "E005": (
        "The class of the queue {alias!r} cannot be used: {error}",
        "{fix}",
    ),
    "E006": (
        "The queue {alias!r} cannot be made: {error}",
        "Correct what the message names: NAME, CONNECTION, STORE, OPTIONS or THROTTLE (or the QUEUE_… setting "
        "instead of it).",
    ),
    "E007": ("{where} is {value}.", "Give {wanted}."),
    "E008": ("{where} cannot be used: {error}", "Give at least 0.1 seconds, as a number or a timedelta."),
    "E009": ("{where} is {value}, which is no alias in DATABASES.", "Give {known}, or None to send at once."),
    "E010": (
        "{where} is set next to QUEUES['default'], which ignores it.",
        "Delete it, or move it into QUEUES['default'].",
    ),
    "E011": (
        "The command {command} goes to the queue {key!r}, which is not in QUEUES.",
        "Correct its queue_name: {near}",
    ),
    "E012": (
        "The command {command} needs what the queue {alias!r} ({backend}) cannot do: {lacking}.",
        "Drop the option that needs it, or let queue_name or QUEUES name another backend.",
    ),
    "E013": (
        "{where} is {serializer!r}, which QUEUE_ACCEPT lacks: no consumer would run it.",
        "Add {serializer!r} to QUEUE_ACCEPT.",
    ),
    "E014": (
        "{where} is weak while QUEUE_ACCEPT has 'pickle': who guesses it can run any code here.",
        "Use a long random key, or JSON alone: QUEUE_SERIALIZER = 'json' and QUEUE_ACCEPT = ['json'].",
    ),
    "E016": (
        "The commands {command} and {other} share the throttle {key!r}, but go to different queues: {aliases}.",
        "Send both to one queue: what waits in one knows nothing of the other. Or give one of them another name.",
    ),
    "E017": (
        "QUEUES[{alias!r}] and QUEUES[{other!r}] share the throttle {name!r}, which is {ours} for one and {theirs} for "
        "the other.",
        "Say the same in both, or give one another window_name.",
    ),
    "E018": (
        "QUEUES[{alias!r}] and QUEUES[{other!r}] cannot share the throttle {name!r}: they share no facts.",
        "Put both into one database, or on one server that is no cluster and under one PREFIX; or give each a name of "
        "its own.",
    ),
    "W001": (
        "{where} is no setting of djqueue.",
        "Delete it, or silence djqueue.W001 in SILENCED_SYSTEM_CHECKS if another package reads it. {near}",
    ),
    "W002": (
        "QUEUES[{alias!r}] and QUEUES[{other!r}] are one and the same queue.",
        "Give one another NAME, or delete it.",
    ),
    "W003": (
        "The queue {alias!r} is in memory: what waits there dies with its process, and no other process sees it.",
        "Let CLASS name a backend on a database, on Redis or on SQS.",
    ),
    "W004": (
        "QUEUE_ALWAYS_EAGER is on: commands run where they are called, not in a consumer.",
        "Delete it, or set it to False.",
    ),
    "W005": (
        "DATABASES[{alias!r}]['OPTIONS']['pool'] holds {size}, but {threads} threads of a consumer take {needed}.",
        "Give it a max_size of the consumer's threads (queue_consumer -t) plus {own}.",
    ),
    "W006": (
        "No consumer finds {commands}: declared in a script, or in no package of an installed app.",
        "Move it to a module of an installed app, or name the package of its module in QUEUE_IMPORT.",
    ),
    "W007": (
        "No consumer knows the schedule of {commands}: its module is not imported at the start.",
        "Import its module in {modules} of its app, or add the module's name to QUEUE_MODULES.",
    ),
    "W008": ("{where} names {names}: {why}.", "Correct it, or leave it out."),
    "W010": (
        "The schedule of {command}, {schedule}, has no minute: it is due at each minute of the times that it names.",
        "Give minute=0, or minute='*' if each minute is meant.",
    ),
}
"""Id to message and hint; E is an error, W a warning. E1… and W1… come from the Redis backend, E2… and W2… from the
database backend, E3… and W3… from the SQS backend: what they find on their servers."""


def say(id: str, **named: Any) -> CheckMessage:
    """The check message of that id, filled in with the named values."""
    message, fix = (text.format(**named) for text in CATALOGUE[id])
    kind = Error if id.startswith("E") else Warning
    return kind(message, hint=fix, id=f"djqueue.{id}")


def near_or_moved(name: object, valid: Iterable[str]) -> str:
    """:func:`~djqueue.utils.near`, for a name that may belong to another place altogether."""
    return hint(str(name).upper(), "throttle as a setting") or near(name, sorted(valid))
