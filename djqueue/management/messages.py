"""Messages as text for a terminal: the rows of a list, and all that is known of one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from djqueue.backends.entries import DELAYED, FAILED, READY, Entry
from djqueue.management.tables import Cell, Paint, shown_parts
from djqueue.messages.failures import errors_of
from djqueue.operations.clocks import Clocks
from djqueue.operations.failed import Group
from djqueue.operations.messages import RUNNING, Message, about, words_about
from djqueue.words import (
    NONE,
    age,
    cut,
    full_moment,
    moment,
    number,
    printable,
    short_ids,
    short_lane,
    short_names,
)

HEAD = ("id", "queue", "command", "state", "age", "due", "attempts", "priority", "lane", "about")
FAILED_HEAD = ("id", "queue", "command", "failed", "attempts", "reason")
SUMMARY = ("count", "command", "exception", "first", "last", "id of last")
ROLES = {FAILED: "ERROR", DELAYED: "WARNING", RUNNING: "SUCCESS"}
REASON = 120
"""Characters of a reason in a table."""


def rows(found: Sequence[Message], clocks: Clocks, full_ids: bool = False) -> list[list[str]]:
    """The cells below :data:`HEAD`."""
    ids = short_ids([one.id for one in found], full_ids)
    names = short_names(one.command for one in found)
    return [
        [
            Cell.of(printable(ids[one.id]), "SQL_KEYWORD"),
            printable(one.queue),
            printable(names[one.command]) or NONE,
            Cell.of(one.state, ROLES.get(one.state, "")),
            age(max(0.0, clocks.now(one.queue) - one.created)) if one.created else NONE,
            moment(one.at) if one.state == DELAYED else NONE,
            number(one.attempts),
            number(one.priority),
            printable(short_lane(one.lane)) or NONE,
            cut(words_about(one), REASON),
        ]
        for one in found
    ]


def empty_columns(found: Sequence[Message]) -> list[str]:
    """The columns that would say nothing of these messages."""
    says = {
        "due": any(one.state == DELAYED for one in found),
        "priority": any(one.priority for one in found),
        "lane": any(one.lane for one in found),
        "about": any(words_about(one) != NONE for one in found),
    }
    return [name for name, is_said in says.items() if not is_said]


def failed_rows(found: Sequence[Message], full_ids: bool = False) -> list[list[str]]:
    """The cells below :data:`FAILED_HEAD`."""
    ids = short_ids([one.id for one in found], full_ids)
    names = short_names(one.command for one in found)
    return [
        [
            Cell.of(printable(ids[one.id]), "SQL_KEYWORD"),
            printable(one.queue),
            printable(names[one.command]) or NONE,
            moment(one.at),
            number(one.attempts),
            cut(about(one.entry) or NONE, REASON),
        ]
        for one in found
    ]


def group_rows(groups: Sequence[Group], full_ids: bool = False) -> list[list[str]]:
    """The cells below :data:`SUMMARY`."""
    ids = short_ids([group.id for group in groups], full_ids)
    names = short_names(group.command for group in groups)
    exceptions = short_names(group.exception for group in groups if group.raised)
    return [
        [
            number(group.count),
            printable(names[group.command]) or NONE,
            cut(exceptions[group.exception] if group.raised else group.exception, REASON),
            moment(group.first),
            moment(group.last),
            Cell.of(printable(ids[group.id]), "SQL_KEYWORD"),
        ]
        for group in groups
    ]


def page(one: Message, more: Mapping[str, str], paint: Paint) -> str:
    """All that is known of a message, as text; ``more`` are further lines by their titles."""
    when = {DELAYED: "due", READY: "ready", RUNNING: "leased to", FAILED: "failed"}[one.state]
    lines = {
        "id": one.id,
        "queue": one.queue,
        "state": one.state,
        "command": one.command or NONE,
        "about": one.description,
        **more,
        "lane": one.lane,
        "consumer": one.consumer,
        "priority": number(one.priority),
        "created": full_moment(one.created),
        when: full_moment(one.at),
        "attempts": f"{one.attempts} (failed: {one.failures}, lost: {one.lost})",
        "size": f"{number(one.bytes)} bytes",
    }
    return shown_parts(lines, paint) + shown_errors(one.entry, paint)


def failed_page(one: Message, more: Mapping[str, str], paint: Paint) -> str:
    """All that is known of what has failed, as text; ``more`` are further lines by their titles."""
    lines = {
        "id": one.id,
        "queue": one.queue,
        "command": one.command or NONE,
        "about": one.description,
        **more,
        "priority": number(one.priority),
        "created": full_moment(one.created),
        "failed": full_moment(one.at),
        "attempts": f"{one.attempts} (failed: {one.failures}, lost: {one.lost})",
        "size": f"{number(one.bytes)} bytes",
    }
    return shown_parts(lines, paint) + shown_errors(one.entry, paint)


def said(call: Mapping[str, str]) -> dict[str, str]:
    """The line that shows a call, or says why it cannot be shown, if it was asked for."""
    return {"call": call["call"] or f"cannot be shown: {call['call_error']}"} if call else {}


def shown_errors(entry: Entry, paint: Paint) -> str:
    """What went wrong at each attempt, below what is known of a message."""
    return "".join(f"\n{_error(error, paint)}" for error in errors_of(entry.errors))


def _error(error: dict, paint: Paint) -> str:
    at, where = full_moment(error.get("at")), error.get("consumer") or error.get("host") or NONE
    head = f"{at}  attempt {error.get('attempt', NONE)} on {where}: {error.get('reason') or NONE}"
    trace = printable(str(error.get("traceback") or "")).rstrip()
    return "\n" + paint(printable(head), "ERROR") + (f"\n{trace}" if trace else "")
