"""The scripts of the Redis backend: one file per verb, each of which names its keys in its first line.

A file that names no keys is a part. The part ``common`` precedes every script; another part replaces
a line ``-- with:``. In a function such a line saves time: the part is defined only when that function is called.
A function that nothing in a script names is left out of it, as the server defines them all at every call.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha1
from importlib.resources import files
from re import DOTALL, MULTILINE, compile, findall

_KEYS = "-- keys:"
_WITH = compile(r"^ *-- with: (.*)$", MULTILINE)
_COMMENT = compile(r"^ *--.*\n", MULTILINE)
_FUNCTION = compile(r"^local function (\w+)\(.*?^end\n", MULTILINE | DOTALL)


@dataclass(frozen=True, slots=True)
class Script:
    """A script as the server gets it; ``keys`` are the parts of a queue that it wants, in order."""

    name: str
    keys: tuple[str, ...]
    source: str
    sha: str


@cache
def script(name: str, lifo: bool = False) -> Script:
    """The script of that name, made when it is first asked for.

    For queues that are ``lifo`` it is the one where of equal priorities the last entry comes first.
    """
    texts = _texts()
    first, _, body = texts[name].partition("\n")
    keys = tuple(first.removeprefix(_KEYS).split())
    places = ", ".join(f"KEYS[{place}]" for place in range(1, len(keys) + 1))
    head = f"local {', '.join(keys)} = {places}\nlocal LIFO = {str(lifo).lower()}"
    source = _used(_COMMENT.sub("", f"{head}\n{texts['common']}\n{_joined(body, texts)}"))
    return Script(name, keys, source, sha1(source.encode(), usedforsecurity=False).hexdigest())


@cache
def _texts() -> dict[str, str]:
    folder = [file for file in files(__name__).iterdir() if file.name.endswith(".lua")]
    return {file.name.removesuffix(".lua"): file.read_text("utf-8") for file in folder}


def _joined(text: str, texts: Mapping[str, str]) -> str:
    """The text, with the parts in the places of the lines that name them."""
    return _WITH.sub(lambda line: "\n".join(_joined(texts[part], texts) for part in line[1].split()), text)


def _used(source: str) -> str:
    """The source without the functions that nothing in it names."""
    words = Counter(findall(r"\w+", source))
    unused = [function[0] for function in _FUNCTION.finditer(source) if words[function[1]] == 1]
    for function in unused:
        source = source.replace(function, "")
    return _used(source) if unused else source
