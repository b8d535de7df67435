"""How a program that tests says what it is at and what it found: one JSON object a line on what was its stdout."""

from __future__ import annotations

import json
import os
import sys
from typing import Any


class ReportLines:
    """Parameters come as JSON in the first argument. Whatever a library prints goes to stderr, never between the lines."""

    def __init__(self) -> None:
        self.asked: dict[str, Any] = json.loads(sys.argv[1])
        self._out = os.dup(1)
        os.dup2(2, 1)

    def at(self, step: str) -> None:
        """Names the step that begins now: where this is the last line, it was never finished."""
        self._write({"at": step})

    def found(self, report: dict[str, Any]) -> None:
        """The result; said once, at the end."""
        self._write({"found": report})

    def part(self, report: dict[str, Any]) -> None:
        """A result of its own, which holds even where the program comes to no end."""
        self._write({"part": report})

    def _write(self, document: dict[str, Any]) -> None:
        os.write(self._out, json.dumps(document, separators=(",", ":")).encode() + b"\n")
