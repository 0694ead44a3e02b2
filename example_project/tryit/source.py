"""Python source as HTML, coloured: enough for the few lines of a command."""

import io
import keyword
import token
import tokenize
from collections.abc import Iterator

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString


def coloured(source: str) -> SafeString:
    """The source with spans of the classes keyword, string and decorator."""
    return format_html_join("", "{}", ((_span(kind, text),) for kind, text in _pieces(source)))


def _span(kind: str, text: str) -> str | SafeString:
    return format_html('<span class="{}">{}</span>', kind, text) if kind else text


def _pieces(source: str) -> Iterator[tuple[str, str]]:
    """The kind of each token and its text; what is between two tokens has no kind."""
    lines = source.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    done, decorator = 0, False
    for found in tokenize.generate_tokens(io.StringIO(source).readline):
        begin, end = (starts[row - 1] + column for row, column in (found.start, found.end))
        if found.type in (token.NEWLINE, token.INDENT, token.DEDENT, token.ENDMARKER) or begin < done:
            decorator = False
            continue
        yield "", source[done:begin]
        decorator = decorator and found.type == token.NAME or found.string == "@"
        yield _kind(found, decorator), source[begin:end]
        done = end
    yield "", source[done:]


def _kind(found: tokenize.TokenInfo, decorator: bool) -> str:
    if decorator:
        return "decorator"
    if found.type == token.STRING:
        return "string"
    return "keyword" if found.type == token.NAME and keyword.iskeyword(found.string) else ""
