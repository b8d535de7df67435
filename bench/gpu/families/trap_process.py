"""A process that says what it is at, a JSON line each, and waits to be told to go on; ended with all that it started, whatever comes."""

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

_LOOK_S = 0.02
_DEATH_S = 3.0
#: Of what it says on stderr the end is kept, as the agent reads the end of a trainer's log.
_ERRORS_BYTES = 64 << 10
_SHOWN = 4


class TrapProcess:
    """It runs while its block lasts; `folder` and the name beside it hold what it says."""

    def __init__(self, command: Sequence[str], environ: Mapping[str, str], folder: Path) -> None:
        self._command, self._environ = command, environ
        self._out, self._errors = folder.with_suffix(".out"), folder.with_suffix(".err")

    def __enter__(self) -> Self:
        with self._out.open("wb") as out, self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=out, stderr=errors, env=dict(self._environ),
                start_new_session=True,
            )  # fmt: skip
        self.pid = self._process.pid
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def said(self) -> list[dict[str, Any]]:
        """The lines so far that are JSON objects."""
        found = []
        for line in self._out.read_text("utf-8", "replace").splitlines():
            with contextlib.suppress(ValueError):
                document = json.loads(line)
                if isinstance(document, dict):
                    found.append(document)
        return found

    def wait_for(self, name: str, seconds: float) -> bool:
        """Whether it says a line that has `name` within so long."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if any(name in one for one in self.said()):
                return True
            if self._process.poll() is not None:
                return any(name in one for one in self.said())
            time.sleep(_LOOK_S)
        return False

    def go(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.write(b"go\n")
            self._process.stdin.flush()

    def wait(self, seconds: float) -> int | None:
        """Its exit status; None where it did not end by itself within so long, and was killed."""
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._end()
            return None

    def errors(self) -> bytes:
        return self._errors.read_bytes()[-_ERRORS_BYTES:]

    def last(self) -> list[str]:
        """The last lines on stderr, for people; torch's first ones tell what it is, its last ones how to debug it."""
        lines = [line[:300] for line in self.errors().decode("utf-8", "replace").splitlines() if line.strip()]
        telling = [line for line in lines if "Error" in line or "Assertion" in line]
        return (telling or lines)[-_SHOWN:]

    def _end(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if self._process.poll() is None:
                os.killpg(self._process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_DEATH_S)
