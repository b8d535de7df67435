"""Follows Python tracebacks through a log, so that the line that ends one can be told from a line that looks like it."""

import re
from dataclasses import dataclass

_FRAME = re.compile(r'\s{0,200}File ".{1,4000}", line \d{1,9}(?:, in |$)')
_ENDS = re.compile(
    r"((?:\w{1,128}\.){0,16}[A-Z]\w{0,128}(?:Error|Exception|Interrupt|Exit|Timeout|Fault|Failure))(?:: ?(.*))?$"
)


@dataclass(slots=True)
class Traceback:
    """Whether the lines of one process stand inside a traceback."""

    inside: bool = False

    def ends_with(self, line: str) -> tuple[str, str] | None:
        """The exception (without its module) and its message where a line ends the traceback; takes note of the others."""
        if 'File "' in line and _FRAME.match(line):
            self.inside = True
            return None
        if not self.inside or line[:1].isspace() or not line:
            return None
        found = _ENDS.match(line)
        if found is None:
            return None
        self.inside = False
        return found[1].rpartition(".")[2], found[2] or ""
