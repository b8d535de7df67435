"""How long the sentences of a page of Markdown are: code, tables, headings and pictures are no prose."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

#: From so many words a sentence is long.
LONG = 31
_BLOCK = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
#: Lines that belong to no sentence: tables, headings, pictures, indented code.
_NO_PROSE = re.compile(r"^(\||#|!\[| {4,}[^-*\d ])")
#: Where a new sentence begins whatever ended the last one: an empty line, an item of a list, a quotation.
_ITEM = re.compile(r"^\s*([-*]|\d+\.|>)\s+")
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
#: What is in code is one word, however long it is.
_CODE = re.compile(r"`[^`]*`")
_END = re.compile(r"(?<=[.!?])[\"')*_]*\s+(?=[\"'(*_`]*[A-Z0-9])")


@dataclass(frozen=True, slots=True)
class Prose:
    """`mean` words a sentence, and the share `long` of sentences of more than 30 words."""

    mean: float
    long: float
    longest: tuple[str, ...]


def measured(text: str) -> Prose:
    """Of a page; a semicolon or colon does not end a sentence."""
    counted = sorted(((len(one.split()), one) for one in sentences(text)), reverse=True)
    if not counted:
        return Prose(0.0, 0.0, ())
    long = [one for words, one in counted if words >= LONG]
    return Prose(sum(words for words, _ in counted) / len(counted), len(long) / len(counted), tuple(long))


def sentences(text: str) -> Iterator[str]:
    """The sentences of a page, without marks of emphasis and with links as their words."""
    text = _COMMENT.sub("", _BLOCK.sub("", text))
    paragraph: list[str] = []
    for line in [*text.splitlines(), ""]:
        if not line.strip() or _NO_PROSE.match(line) or _ITEM.match(line):
            yield from _split(" ".join(paragraph).strip())
            paragraph = []
        if not _NO_PROSE.match(line):
            paragraph.append(_ITEM.sub("", line).strip())


def _split(paragraph: str) -> Iterator[str]:
    plain = _LINK.sub(r"\1", _CODE.sub("code", paragraph)).replace("**", "").replace("__", "")
    yield from (one for one in _END.split(plain) if any(map(str.isalpha, one)))
