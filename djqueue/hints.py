"""What somebody may have meant by a name that does not exist."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from types import MappingProxyType

NOTHING: Mapping[str, str] = MappingProxyType({})


def nearest(name: object, valid: Iterable[str], elsewhere: Mapping[str, str] = NOTHING) -> str | None:
    """The valid name that was probably meant, in whatever case it was written; None if there is none like it.

    ``elsewhere`` says, in upper case, what other packages call what is meant: difflib would guess something else.
    """
    by_upper = {one.upper(): one for one in valid}
    given = str(name).upper()
    meant = elsewhere.get(given, "").upper()
    close = [meant] if meant in by_upper else get_close_matches(given, by_upper, 1)
    return by_upper[close[0]] if close else None
