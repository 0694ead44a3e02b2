"""A guess at what is spam."""

import re

LINK = re.compile(r"https?://|www\.", re.IGNORECASE)
WORDS = re.compile(r"\b(casino|viagra|lottery|crypto|cheap|winner)\b", re.IGNORECASE)


def looks_like_spam(text: str) -> bool:
    """Links count once, words that sell something too; three of them are too many."""
    return len(LINK.findall(text)) + len(WORDS.findall(text)) >= 3
