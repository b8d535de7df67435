"""Reads torchrun's list of failures: the process whose end it saw first, how that one ended, and its traceback.

Of a list whose beginning is cut off, as by `tail`, the last entry is that process: torchrun writes it behind all others.
"""

import re
from dataclasses import dataclass, field

from hangdog_models.reading.json_document import int_of
from hangdog_models.reading.logs.traceback_lines import Traceback

_FIRST = re.compile(r"Root Cause \(first observed failure\)")
_FIELD = re.compile(r"\s{1,32}(host|rank|exitcode)\s{0,32}: (\S{1,255})")
_MESSAGE = re.compile(r"\s{1,32}traceback\s{0,32}: ?(.*)")
_BORDER = "====="
#: A line of an entry whose heading is cut off. torchrun pads the names to ten places.
_HEADLESS = re.compile(r"\s{1,32}(?:time      |host      |rank      |exitcode  ): \S")
#: What stands between the entries: another one follows, so the one before it is not the first failure.
_BETWEEN = re.compile(r"-{5,}\s{0,8}$|\[\d{1,7}\]:\s{0,8}$")
#: Lines of one entry of the list before its traceback, and of the traceback.
_ENTRY, _TRACE = 12, 400


@dataclass(slots=True)
class FirstFailure:
    """The entry that stands under `Root Cause`. `lines` of it are still to come; `error` is the exception it ends with.

    `headless`: the heading is cut off, and whether it is that entry, only its end tells.
    """

    lines: int = 0
    host: str = ""
    rank: int | None = None
    exitcode: str = ""
    error: tuple[str, str] | None = None
    headless: bool = False
    traceback: Traceback = field(default_factory=Traceback)

    def take(self, line: str) -> bool:
        """Notes a line; true while the line belongs to the entry."""
        if "Root Cause" in line and _FIRST.search(line):
            self._begin(headless=False)
            return True
        if not self.lines and not self.exitcode and ": " in line and _HEADLESS.match(line):
            self._begin(headless=True)
        if not self.lines:
            return False
        self.lines -= 1
        if self.headless and self._is_another(line):
            self.lines, self.exitcode = 0, ""
            return False
        if line.startswith(_BORDER):
            self.lines = 0
        elif self.traceback.inside or self.exitcode:
            self._take_message(line)
        elif found := _FIELD.match(line):
            key, value = found.groups()
            if key == "host":
                self.host = value
            elif key == "rank":
                self.rank = int_of(value)
            else:
                self.exitcode, self.lines = value, _TRACE
        return True

    def _is_another(self, line: str) -> bool:
        """Whether an entry without its heading turns out to be none, or not the last one."""
        ends = line.startswith(_BORDER)
        return (ends and not self.exitcode) or (not ends and not self.lines) or _BETWEEN.match(line) is not None

    def _begin(self, headless: bool) -> None:
        self.lines, self.host, self.rank, self.exitcode, self.error = _ENTRY, "", None, "", None
        self.headless, self.traceback = headless, Traceback()

    def _take_message(self, line: str) -> None:
        """torchrun indents the traceback by two, and writes its first line behind the word."""
        message = _MESSAGE.match(line)
        ended = self.traceback.ends_with(message[1] if message else line.removeprefix("  "))
        self.error = ended or self.error
