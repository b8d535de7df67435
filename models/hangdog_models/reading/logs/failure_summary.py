"""Reads torchrun's list of failures: the process whose end it saw first, how that one ended, and its traceback."""

import re
from dataclasses import dataclass, field

from hangdog_models.reading.json_document import int_of
from hangdog_models.reading.logs.traceback_lines import Traceback

_FIRST = re.compile(r"Root Cause \(first observed failure\)")
_FIELD = re.compile(r"\s{1,32}(host|rank|exitcode)\s{0,32}: (\S{1,255})")
_MESSAGE = re.compile(r"\s{1,32}traceback\s{0,32}: ?(.*)")
_BORDER = "====="
#: Lines of one entry of the list before its traceback, and of the traceback.
_ENTRY, _TRACE = 12, 400


@dataclass(slots=True)
class FirstFailure:
    """The entry that stands under `Root Cause`. `lines` of it are still to come; `error` is the exception it ends with."""

    lines: int = 0
    host: str = ""
    rank: int | None = None
    exitcode: str = ""
    error: tuple[str, str] | None = None
    traceback: Traceback = field(default_factory=Traceback)

    def take(self, line: str) -> bool:
        """Notes a line; true while the line belongs to the entry."""
        if "Root Cause" in line and _FIRST.search(line):
            self.lines, self.host, self.rank, self.exitcode, self.error = _ENTRY, "", None, "", None
            self.traceback = Traceback()
            return True
        if not self.lines:
            return False
        self.lines -= 1
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

    def _take_message(self, line: str) -> None:
        """torchrun indents the traceback by two, and writes its first line behind the word."""
        message = _MESSAGE.match(line)
        ended = self.traceback.ends_with(message[1] if message else line.removeprefix("  "))
        self.error = ended or self.error
