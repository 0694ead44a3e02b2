"""Which messages a page shows: its filter, as an address or a form gives it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from django.core.signing import BadSignature, Signer

from djqueue.backends.entries import FAILED
from djqueue.dashboard.seeing import able
from djqueue.operations import filters
from djqueue.operations.filters import CONDITIONS, Filter
from djqueue.operations.messages import STATES
from djqueue.operations.paging import Position, Selection

FIELDS = ("queue", "state", "id", *CONDITIONS)
TITLES = {"reason": "text of the error", "older": "older than", "newer": "newer than", "id": "id, or a part"}
_SIGNER = Signer(salt="djqueue.dashboard")


class AppliedFilter(NamedTuple):
    """What a filter asks for."""

    given: Mapping[str, str]
    """The values of its fields, as they were given."""
    selection: Selection
    problems: list[str]
    """What is wrong with them, in words: then it selects nothing."""

    @property
    def words(self) -> str:
        """What the filter asks for, for people."""
        words = [f"{TITLES.get(name, name)} {value.removeprefix('builtins.')}" for name, value in self.given.items()]
        return ", ".join(words) or "all messages"


def asked(fields: Mapping[str, str]) -> AppliedFilter:
    """The filter in an address or a form."""
    given = {name: value.strip() for name in FIELDS if (value := fields.get(name, "")).strip()}
    options, problems = _options(given)
    queues = [queue for queue in able("inspect")[0] if given.get("queue", queue.alias) == queue.alias]
    states = [state for state in STATES if given.get("state", state) == state]
    if not queues and "queue" in given:
        problems.append(f"There is no queue {given['queue']!r} that can be read.")
    if not states:
        problems.append(f"There is no state {given['state']!r}: give {', '.join(STATES)}.")
    wanted = Filter(options, filters.FAILED if states == [FAILED] else filters.ENQUEUED)
    found = Selection([] if problems else queues, states, wanted, given.get("id", ""))
    return AppliedFilter(given, found, problems)


def _options(given: Mapping[str, str]) -> tuple[dict[str, Any], list[str]]:
    """The values that a filter takes, and what is wrong with those given."""
    options: dict[str, Any] = {}
    problems: list[str] = []
    for name, condition in CONDITIONS.items():
        try:
            options |= {name: condition.parse(given[name])} if name in given else {}
        except ValueError as error:
            problems.append(f"{TITLES.get(name, name)}: {error}")
    return options, problems


def written(position: Position | str) -> str:
    """A position in an address, signed because it goes into queries."""
    return _SIGNER.sign_object(position)


def position_in(text: str) -> Position | None:
    """The position that an address contains; None for the beginning, or if it was not written here."""
    given = _signed(text)
    return Position(*given) if isinstance(given, list) and len(given) == len(Position._fields) else None


def text_in(text: str) -> str:
    """The cursor that an address contains; "" for the beginning, or if it was not written here."""
    given = _signed(text)
    return given if isinstance(given, str) else ""


def _signed(text: str) -> object:
    try:
        return _SIGNER.unsign_object(text) if text else None
    except (BadSignature, ValueError):
        return None
