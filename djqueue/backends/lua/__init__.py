"""The scripts of the Redis backend: one file per verb, each of which names its keys in its first line."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha1
from importlib.resources import files

_KEYS = "-- keys:"
_COMMON = "common"


@dataclass(frozen=True, slots=True)
class Script:
    """A script as the server gets it; ``keys`` are the parts of a queue that it wants, in order."""

    name: str
    keys: tuple[str, ...]
    source: str
    sha: str


def _load() -> dict[str, Script]:
    texts = {file.name.removesuffix(".lua"): file.read_text("utf-8") for file in _files()}
    common = texts.pop(_COMMON)
    return {name: _script(name, text, common) for name, text in texts.items()}


def _files() -> list:
    return [file for file in files(__name__).iterdir() if file.name.endswith(".lua")]


def _script(name: str, text: str, common: str) -> Script:
    first, _, body = text.partition("\n")
    keys = tuple(first.removeprefix(_KEYS).split())
    places = ", ".join(f"KEYS[{place}]" for place in range(1, len(keys) + 1))
    source = f"local {', '.join(keys)} = {places}\n{common}\n{body}"
    return Script(name, keys, source, sha1(source.encode(), usedforsecurity=False).hexdigest())


SCRIPTS = _load()
