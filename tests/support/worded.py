"""That a sentence names what it is about, however it is worded: tests of values hold no prose, golden files do."""

import re


def names(text: str, *words: str) -> bool:
    """Whether a text has each of these as whole words, wherever it puts them: machines, numbers, the word that tells it apart."""
    return all(re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text) for word in words)
