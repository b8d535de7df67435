"""Makes foreign text safe to show: one line, no control characters, bounded length."""

from hangdog_models.errors import UnreadableEvidence


def printable(text: str, longest: int = 500) -> str:
    """Joins lines and runs of white space, escapes what a terminal would obey and cuts after `longest` characters."""
    words = " ".join(text[: 2 * longest + 64].split())
    shown = escaped(words)
    return shown if len(shown) <= longest else shown[: max(0, longest - 1)] + "…"


def escaped(text: str) -> str:
    """The text with every character that is not printable written as a Python escape (`\\n`, `\\x1b`, `\\udcff`)."""
    if text.isprintable():  # as nearly all is, and looking at each sign takes a hundred times as long
        return text
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode("ascii") for sign in text)


def decoded(data: bytes, what: str) -> str:
    """Evidence text from its bytes; raises UnreadableEvidence where it is not UTF-8 text (`what` is what it should be)."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UnreadableEvidence(f"not {what}: byte {error.start} is not UTF-8", code="not-text") from error
