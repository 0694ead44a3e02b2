"""The scripts of the Redis backend: one file per verb, each of which names its keys in its first line.

A file that names no keys is a part. The part ``common`` precedes every script; another part replaces
a line ``-- with:``. In a function such a line saves time: the part is defined only when that function is called.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha1
from importlib.resources import files
from re import MULTILINE, compile

_KEYS = "-- keys:"
_WITH = compile(r"^ *-- with: (.*)$", MULTILINE)


@dataclass(frozen=True, slots=True)
class Script:
    """A script as the server gets it; ``keys`` are the parts of a queue that it wants, in order."""

    name: str
    keys: tuple[str, ...]
    source: str
    sha: str


def _load(lifo: bool) -> dict[str, Script]:
    folder = [file for file in files(__name__).iterdir() if file.name.endswith(".lua")]
    texts = {file.name.removesuffix(".lua"): file.read_text("utf-8") for file in folder}
    return {name: _script(name, text, texts, lifo) for name, text in texts.items() if text.startswith(_KEYS)}


def _script(name: str, text: str, texts: Mapping[str, str], lifo: bool) -> Script:
    first, _, body = text.partition("\n")
    keys = tuple(first.removeprefix(_KEYS).split())
    places = ", ".join(f"KEYS[{place}]" for place in range(1, len(keys) + 1))
    head = f"local {', '.join(keys)} = {places}\nlocal LIFO = {str(lifo).lower()}"
    source = f"{head}\n{texts['common']}\n{_joined(body, texts)}"
    return Script(name, keys, source, sha1(source.encode(), usedforsecurity=False).hexdigest())


def _joined(text: str, texts: Mapping[str, str]) -> str:
    """The text, with the parts in the places of the lines that name them."""
    return _WITH.sub(lambda line: "\n".join(_joined(texts[part], texts) for part in line[1].split()), text)


SCRIPTS = _load(lifo=False)
LIFO_SCRIPTS = _load(lifo=True)
"""The scripts of ``lifo`` queues, where of equal priorities the last entry comes first."""
