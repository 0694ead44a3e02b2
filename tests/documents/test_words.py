"""README and the guides are in plain words, and quote what djqueue says."""

import re

import pytest
from docutils import nodes
from docutils.core import publish_doctree

from tests.support.documents import ROOT, documents

MANNERED = re.compile(r"(?<!USER )\b(nobody|somebody|whoever|whom|as ever|afresh|so many)\b", re.I)
GUIDES = [path for path in documents() if path.parent in (ROOT, ROOT / "docs", ROOT / "docs" / "howto")]
OF_DATABASES = re.compile("database is locked|(?i:check constraint)")
LONGEST_SENTENCE = 30
"""Words of a sentence in behaviour.rst."""


@pytest.mark.parametrize("path", GUIDES, ids=lambda path: path.name)
def test_a_guide_is_in_plain_words(path):
    lines = enumerate(path.read_text().splitlines(), 1)
    assert [(number, word) for number, line in lines for word in MANNERED.findall(line)] == []


def test_the_sentences_of_behaviour_are_short():
    tree = publish_doctree((ROOT / "docs" / "behaviour.rst").read_text(), settings_overrides={"report_level": 5})
    texts = [" ".join(paragraph.astext().split()) for paragraph in tree.findall(nodes.paragraph)]
    sentences = [sentence for text in texts for sentence in re.split(r"(?<=[.!?]) (?=[^a-z])", text)]
    assert len(sentences) > 200
    assert [sentence for sentence in sentences if len(sentence.split()) > LONGEST_SENTENCE] == []


def test_the_messages_that_are_explained_are_those_of_djqueue():
    """Each piece of a quoted message, between its dots, is in the source."""
    source = re.sub(r'"\n\s*f?"', "", "\n".join(path.read_text() for path in (ROOT / "djqueue").rglob("*.py")))
    page = (ROOT / "docs" / "troubleshooting.rst").read_text()
    tree = publish_doctree(page, settings_overrides={"report_level": 5, "halt_level": 5})
    quoted = [literal.astext() for term in tree.findall(nodes.term) for literal in term.findall(nodes.literal)]
    pieces = [piece.strip(" ;:,.") for text in quoted if not OF_DATABASES.search(text) for piece in text.split("...")]
    assert len(pieces) > 20
    assert [piece for piece in pieces if piece not in source] == []
