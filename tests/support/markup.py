"""Whether a page is HTML as the standard has it."""

from collections import Counter
from xml.etree.ElementTree import Element

from html5lib import HTMLParser
from html5lib.constants import E


def faults(page: str) -> list[str]:
    """What is wrong with a page: what a parser has to guess at, and ids that are there twice."""
    parser = HTMLParser(namespaceHTMLElements=False)
    tree: Element = parser.parse(page)
    lines = page.splitlines()
    found = [f"{E[code] % given}: {lines[line - 1].strip()[:200]}" for (line, _), code, given in parser.errors]
    ids = Counter(one.get("id") for one in tree.iter() if one.get("id"))
    return found + [f"the id {id} is there {count} times" for id, count in ids.items() if count > 1]
