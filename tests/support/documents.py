"""The code blocks of README.rst and docs/, and nothing that could hide a sample from the tests.

A block whose caption names another library shows how that library says it: it is compiled, and not run.
"""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LANGUAGES = {"python", "console", "ini", "docker", "yaml", "text"}
PROSE = {"note", "warning", "toctree", "list-table", "csv-table", "contents", "currentmodule", "container", "glossary"}
PICTURES = {"drawing", "image", "figure"}
TESTED = {
    "../../tests/backends/contract/file_queue.py",
    "../../tests/backends/contract/test_file_queue.py",
    "../../tests/tasks/peers/example.py",
    "../CHANGELOG.rst",
}
"""Files that a page may include, as other tests look at them."""
OTHERS = {"Celery", "RQ", "huey", "django-q2", "Dramatiq", "django-tasks-db", "django-tasks-rq"}
"""Captions of samples that belong to another library."""
AUTODOC = {"autofunction", "autoclass", "automodule", "autoexception", "autodata", "automethod", "autoattribute"}

_DIRECTIVE = re.compile(r"\s*\.\. (?P<name>[\w:-]+)::(?: (?P<argument>.*))?$")
_OPTION = re.compile(r"\s+:(?P<name>[\w-]+):(?: (?P<value>.*)|$)")
_FILE = re.compile(r"# (?P<file>[\w/]+\.py)$")


class UnknownBlock(AssertionError):
    """A block that no test would run."""


@dataclass(frozen=True)
class Block:
    """One sample."""

    path: Path
    line: int
    language: str
    text: str
    caption: str = ""

    @property
    def file(self) -> str:
        """The file that a Python sample belongs to, from its first line (``# shop/commands.py``), or ""."""
        found = _FILE.match(self.text.partition("\n")[0])
        return found["file"] if found and self.language == "python" else ""

    @property
    def is_script(self) -> bool:
        """Whether it configures Django by itself, and so runs in a process of its own: in test_first_code.py."""
        return bool(self.file) and "settings.configure(" in self.text

    @property
    def where(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}"

    @property
    def code(self) -> str:
        """The text behind as many empty lines as it has in its document, so that errors name the line there."""
        return "\n" * self.line + self.text


def documents() -> list[Path]:
    """README, CHANGELOG and all of docs/."""
    pages = [page for page in (ROOT / "docs").rglob("*.rst") if "_build" not in page.parts]
    return [ROOT / "README.rst", ROOT / "CHANGELOG.rst", *sorted(pages)]


def blocks(path: Path, *languages: str) -> list[Block]:
    """The samples of a document, in order. UnknownBlock for anything that might be one and is of no known kind."""
    found = [block for block in parse(path, path.read_text()) if block.caption not in OTHERS]
    return [block for block in found if not languages or block.language in languages]


def scripts() -> list[Block]:
    """The samples that are scripts."""
    return [block for path in documents() for block in blocks(path, "python") if block.is_script]


def blocks_of_others(path: Path) -> list[Block]:
    """The samples of a document that belong to another library."""
    return [block for block in parse(path, path.read_text()) if block.caption in OTHERS]


def parse(path: Path, text: str) -> list[Block]:
    lines, found, number = text.split("\n"), [], 0
    while number < len(lines):
        directive = _DIRECTIVE.match(lines[number])
        if directive and directive["name"] == "code-block":
            block, number = _block(path, lines, number, directive["argument"])
            found.append(block)
        else:
            _refuse_samples(path, number + 1, lines[number], directive)
            number += 1
    return found


def _block(path: Path, lines: list[str], start: int, language: str | None) -> tuple[Block, int]:
    if language not in LANGUAGES:
        raise UnknownBlock(f"{path.name}:{start + 1}: the language {language!r} is not one of {sorted(LANGUAGES)}")
    margin = _indent(lines[start])
    end = start + 1
    while end < len(lines) and (not lines[end].strip() or _indent(lines[end]) > margin):
        end += 1
    begin, options = start + 1, {}
    while begin < end and (not lines[begin].strip() or (option := _OPTION.match(lines[begin]))):
        if lines[begin].strip():
            options[option["name"]] = option["value"]
        begin += 1
    body = lines[begin:end]
    if not any(line.strip() for line in body):
        raise UnknownBlock(f"{path.name}:{start + 1}: an empty block")
    inner = min(_indent(line) for line in body if line.strip())
    text = "\n".join(line[inner:] for line in body).rstrip() + "\n"
    return Block(path, begin, language, text, options.get("caption", "")), end


def _refuse_samples(path: Path, number: int, line: str, directive: re.Match | None) -> None:
    if directive is not None:
        is_tested = directive["name"] in ("literalinclude", "include") and directive["argument"] in TESTED
        if directive["name"] not in PROSE | PICTURES | AUTODOC and not is_tested:
            raise UnknownBlock(f"{path.name}:{number}: nobody runs what is in a {directive['name']!r} directive")
    elif line.rstrip().endswith("::"):
        raise UnknownBlock(f"{path.name}:{number}: a literal block; write a code-block")
    elif line.lstrip().startswith((">>> ", "$ ")):
        raise UnknownBlock(f"{path.name}:{number}: a sample outside of a code-block")


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
