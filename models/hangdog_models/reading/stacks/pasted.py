"""Takes off what pages, mails and issue threads put around a tool's text: quote marks, fences, indentation, markup."""

import html
import re

from hangdog_models.reading.stacks.dumped_process import LONGEST_LINE

_ESCAPE = re.compile(r"\x1b\[[0-9;?]{0,32}[A-Za-z]")
_QUOTE = re.compile(r"(?:[ \t]{0,3}>[ \t]?){1,16}")
_FENCE = re.compile(r"([ \t]{0,32})(?:`{3,}|~{3,})[\w+.-]{0,32}[ \t]*")
#: The elements that such a page holds: PyTorch's debug server puts each rank's text into `<pre>` below a `<h2>`.
_TAG = re.compile(
    r"</?(?:pre|code|h[1-6]|p|div|span|br|section|body|html|head|title|nav|a|li|ul|ol|td|tr|table|details|summary|b|i|em|strong)\b[^<>]{0,500}>",
    re.IGNORECASE,
)
_PAGE = re.compile(r"<pre(?: [^<>]{0,500})?>", re.IGNORECASE)
_BLANK = " \t"
_BULLETS = ("- ", "* ")


def plain(text: str) -> str:
    """The text alone, the same where nothing is around it; each line stays a line."""
    if "\r" in text:
        text = text.replace("\r\n", "\n")
    if "\x1b" in text:
        text = _ESCAPE.sub("", text)
    if _PAGE.search(text):
        text = html.unescape(_TAG.sub("", text))
    if "\xa0" in text:
        text = text.replace("\xa0", " ")
    lines = unquoted(text).split("\n")
    if "```" in text or "~~~" in text:
        lines = _without_fences(lines)
    return "\n".join(_dedented(lines))


def unquoted(text: str) -> str:
    """The text without the marks of a quotation, where most of its lines have them, or of a list, where all have."""
    if ">" not in text and not text.lstrip().startswith(_BULLETS):
        return text
    lines = text.split("\n")
    if _quoted(lines):
        return "\n".join(_unquoted(line) for line in lines)
    for mark in _BULLETS:
        if all(line.startswith(mark) for line in lines if line.strip()):
            return "\n".join(line.removeprefix(mark) for line in lines)
    return text


def _quoted(lines: list[str]) -> bool:
    """Whether most lines that are not blank are quotations."""
    marks = sum(line.lstrip(_BLANK).startswith(">") for line in lines)
    return marks > 0 and 2 * marks > sum(bool(line.strip()) for line in lines)


def _unquoted(line: str) -> str:
    mark = _QUOTE.match(line[:LONGEST_LINE])
    return line[mark.end() :] if mark else line


def _without_fences(lines: list[str]) -> list[str]:
    """The lines with each fence made blank, and those inside of one without the fence's own indentation."""
    found: list[str] = []
    inside: str | None = None
    for line in lines:
        fence = _FENCE.fullmatch(line[:LONGEST_LINE].rstrip())
        if fence is not None:
            inside = fence[1] if inside is None else None
            found.append("")
        else:
            found.append(line.removeprefix(inside) if inside else line)
    return found


def _dedented(lines: list[str]) -> list[str]:
    """The lines without the white space that all of them begin with."""
    common: str | None = None
    for line in lines:
        if not line.strip():
            continue
        indent = line[: len(line) - len(line.lstrip(_BLANK))]
        if common is None:
            common = indent
        while not indent.startswith(common):
            common = common[:-1]
        if not common:
            return lines
    return [line.removeprefix(common or "") for line in lines]
