"""Joins lines that a terminal broke at its right edge, where it is certain that it did; every other line stays as it is.

The lines that it draws around a pane are taken off first.

Two things make it certain. Many lines are exactly as long as the longest one, and words go on in the lines below them. Or a
frame is broken in a place where no tool ends a line: inside of its brackets, or of a file's name.
"""

import re
from collections import Counter

#: Columns of a terminal. A shorter text was folded for a reader, a longer one comes from no screen.
_NARROWEST, _WIDEST = 40, 500
#: Characters of a text that may be a copy of a terminal; a log that a program wrote is seldom broken, and mostly larger.
LARGEST = 1 << 22
#: Full lines that must be there, of which one in three ends inside of a word; and full lines that go on for each one that does not.
_FEW, _ONE_IN, _FOR_EACH = 3, 3, 4
#: Characters by which single lines may be longer than the edge: a quotation mark, or the sign of a quoted text.
_ADDED = 2
#: How a line begins that continues none: with a time, a prefix, a header, a frame, a level, or the name of a program.
_BEGINS = re.compile(
    r"\[|\(|\||\+[-=]|[-=~+*]{3}|\d{4}[-/]\d\d|\d\d:\d\d:\d\d|[A-Z][a-z]{2} {1,2}\d{1,2} |[IWEF]\d{4} |[\w.-]{1,100}:\d{1,9}:\d{1,9} \[|File \"|Traceback |Thread |Process |Current thread"
    r"|#\d|\* thread|frame #|(?:INFO|WARN|ERROR|DEBUG|FATAL|CRITICAL)|[\w./-]{3,60}: |[A-Z]\w{0,60}(?:Error|Exception)\b"
)
#: Numbers count for nothing where ways to go on are compared.
_DIGIT = re.compile(r"\d")
_WORD, _WORD_END = re.compile(r"[A-Za-z_]{1,40}"), re.compile(r"[A-Za-z_]{1,40}$")
#: Characters beside an edge that tell one way to go on from another, and within which a word may begin or end.
_NEAR, _LETTERS = 3, 40
#: Words of lines that many ranks print alike, and that no line begins or ends in the middle of.
_WORDS = (
    "Watchdog", "caught", "collective", "operation", "timeout", "WorkNCCL", "SeqNum", "OpType", "NumelIn", "NumelOut", "Timeout", "milliseconds",
    "before", "timing", "ALLREDUCE", "BROADCAST", "ALLGATHER", "BARRIER", "SCATTER", "_ALLGATHER_BASE", "_REDUCE_SCATTER_BASE", "ProcessGroupNCCL", "exception", "terminated", "enqueued",
    "completed", "communicator", "asynchronous", "corrupted", "incomplete", "process", "thread", "torch", "distributed", "python", "packages",
)  # fmt: skip
#: Characters by which lines that begin alike are known.
_ALIKE = 5
#: Pieces of one line: a line of 8,000 characters at 80 columns.
_PIECES = 100
#: A terminal of Emacs, and some others, mark a line that goes on.
_MARK = "\\"
#: py-spy's header of a thread: only below one is a broken line with a bracket a frame.
_HEADER = re.compile(
    r"^\s{0,8}Thread (?:0x[0-9a-fA-F]{1,16}|\d{1,18})?(?:/\S{1,40})? ?\((?:active|active\+gil|idle)\)", re.MULTILINE
)
#: A frame of py-spy, and what may be its beginning.
_WHOLE = re.compile(r"\s{2,16}[^\s()][^()]{0,2000} \([^()]{1,2000}(?::\d{1,9}|\.so[\d.]{0,40})\)")
_PART = re.compile(r"\s{2,16}[^\s()][^():\"]{0,2000}(?: \([^()]{0,2000})?")
#: The same of a frame as Python itself writes it; a launcher's prefix may stand before it.
_FILE_PART = re.compile(r".{0,400}\bFile \"[^\"]{1,4000}(?:\"(?:,[ line\d]{0,20})?)?")
_FILE_WHOLE = re.compile(r".{0,400}\bFile \"[^\"]{1,4000}\", line \d{1,9},? in \S.{0,4000}")
#: Pieces of one frame.
_FRAME_PIECES = 6
#: What tmux and others draw beside a pane, and above and below it.
_BARS = "\u2502\u2503\u2551"
_BORDER = re.compile(r"[\s\u2500-\u257f]{3,1000}")


def rejoined(text: str) -> str:
    """The text with lines as they were before a terminal broke them; the same text where that is not certain."""
    if len(text) > LARGEST or "\n" not in text:
        return text
    lines = text.split("\n")
    if any(bar in text for bar in _BARS):
        lines = _unboxed(lines)
    joined = _frames(_at_edge(lines), _HEADER.search(text) is not None)
    return "\n".join(joined)


def _unboxed(lines: list[str]) -> list[str]:
    """The lines without the bar of a pane, where each of them begins with one. A tree of stacks has a root without it."""
    drawn = [line for line in lines if line.strip() and not _BORDER.fullmatch(line)]
    if len(drawn) < _FEW or any(line[0] not in _BARS for line in drawn):
        return lines
    inside = [
        line if not line.strip() or _BORDER.fullmatch(line) else line[1:].rstrip().rstrip(_BARS).rstrip()
        for line in lines
    ]
    blank = all(line[:1] == " " for line in inside if line.strip() and not _BORDER.fullmatch(line))
    return [line[1:] if blank and line[:1] == " " else line for line in inside]


def _at_edge(lines: list[str]) -> list[str]:
    """The lines joined at the edge that most tells; who pastes a text may add a sign to a line of it, which is longer then."""
    lengths = Counter(map(len, lines))
    longest = max(lengths)
    for width in sorted((n for n, often in lengths.items() if often >= _FEW and n >= longest - _ADDED), reverse=True):
        if (joined := _at_width(lines, width)) is not lines:
            return joined
    return lines


def _at_width(lines: list[str], width: int) -> list[str]:
    if not _NARROWEST <= width <= _WIDEST:
        return lines
    full = [number for number, line in enumerate(lines[:-1]) if len(line) >= width]
    if len(full) < _FEW:
        return lines
    marked = all(lines[number].endswith(_MARK) for number in full)
    below = set(full)
    starts = {
        _DIGIT.sub("0", line[:_ALIKE]) for number, line in enumerate(lines) if number - 1 not in below and line.strip()
    }
    goes_on = {number for number in full if _continues(lines[number], lines[number + 1], starts)}
    broken = {number for number in goes_on if _in_word(lines[number][-1], lines[number + 1][0])}
    others = len(full) - len(goes_on)
    if len(goes_on) < max(_FEW, _FOR_EACH * others):
        return lines
    if not marked and (len(broken) < max(_FEW, len(goes_on) // _ONE_IN) or not _is_broken(lines, broken)):
        return lines
    found: list[str] = []
    pieces = 0
    for number, line in enumerate(lines):
        piece = line[: -len(_MARK)] if marked and number in goes_on else line
        if number - 1 in goes_on and pieces < _PIECES:
            found[-1] += piece
            pieces += 1
        else:
            found.append(piece)
            pieces = 0
    return found


def _is_broken(lines: list[str], numbers: set[int]) -> bool:
    """Whether words are broken there, and not two lines printed one after the other, again and again.

    Where the lines go on in the same way each time, the words that this makes are to be known ones, or to stand elsewhere.
    """
    ways = {(_DIGIT.sub("0", lines[n][-_NEAR:]), _DIGIT.sub("0", lines[n + 1][:_NEAR])) for n in numbers}
    if len(ways) >= _FEW:
        return True
    made = {lines[n].rpartition(" ")[2][-_LETTERS:] + "|" + lines[n + 1][:_LETTERS] for n in numbers}
    known = set(_WORDS)
    for number, line in enumerate(lines):
        inside = line[1:] if number - 1 in numbers else line
        known.update(_WORD.findall(inside[:-1] if number in numbers else inside))
    words = [word for word in map(_word_at, made) if word]
    return 2 * len(words) >= len(made) and all(word in known for word in words)


def _word_at(junction: str) -> str:
    """The word that both sides of an edge make; empty where one of them is a number's."""
    first, _, second = junction.partition("|")
    end, begin = _WORD_END.search(first), _WORD.match(second)
    return end[0] + begin[0] if end and begin else ""


def _in_word(end: str, begin: str) -> bool:
    """Whether a line ends inside of a word. Between two digits it may be the end of a table's row."""
    both = all(letter.isalnum() or letter == "_" for letter in (end, begin))
    return both and not (end.isdigit() and begin.isdigit())


def _continues(line: str, below: str, starts: set[str]) -> bool:
    """Whether what stands below a full line may be the rest of it: nothing in it says that it begins a line of its own."""
    if not below.strip() or line[-1].isspace() or below[:2].isspace():
        return False
    return _DIGIT.sub("0", below[:_ALIKE]) not in starts and _BEGINS.match(below) is None


def _frames(lines: list[str], of_pyspy: bool) -> list[str]:
    """The lines with frames that are broken inside of their brackets, or of a file's name, made whole."""
    found: list[str] = []
    number = 0
    while number < len(lines):
        line = lines[number]
        taken = _rest(lines, number, of_pyspy)
        found.append(line if not taken else line + "".join(lines[number + 1 : number + 1 + taken]))
        number += 1 + taken
    return found


def _rest(lines: list[str], number: int, of_pyspy: bool) -> int:
    """How many of the lines below one are the rest of its frame."""
    line = lines[number]
    quoted = 'File "' in line and _FILE_PART.fullmatch(line) is not None
    if not quoted and not (of_pyspy and line[:2].isspace() and _PART.fullmatch(line)):
        return 0
    frame, whole = _FILE_WHOLE if quoted else _WHOLE, line
    for taken, below in enumerate(lines[number + 1 : number + 1 + _FRAME_PIECES], 1):
        if not below or below[:2].isspace() or below[0] in _BARS or _HEADER.match(below) or 'File "' in below:
            return 0
        whole += below
        if frame.fullmatch(whole):
            return taken
    return 0
