"""Follows the logs of a job: passes on what is new, remembers the last words, and sees when the job gets on."""

import re
from collections.abc import Callable
from pathlib import Path

from hangdog_agent.stalls.progress.step_lines import StepLines

#: Bytes read of one log at a time: some tens of lines, of which each is looked at.
CHUNK = 8192
#: Times that in one go: what is written faster is passed on later.
CHUNKS = 256
#: Characters of the end of a log that are kept: the traceback that ended it.
KEPT = 8192


class JobLog:
    """The log of one machine's process over all attempts: what tells a step is learned once."""

    def __init__(self, pattern: re.Pattern[str] | None) -> None:
        self._steps = StepLines(pattern)
        self._path: Path | None = None
        self._read = 0
        self.last_lines = ""

    def switch_to(self, path: Path) -> None:
        """From now on it is this file, from its beginning."""
        self._path, self._read, self.last_lines = path, 0, ""

    def follow(self, pass_on: Callable[[bytes], None]) -> bool:
        """Takes what is new; whether it tells a step."""
        stepped = False
        for _ in range(CHUNKS):
            if not (new := self._new()):
                break
            pass_on(new)
            text = new.decode("utf-8", "replace")
            self.last_lines = (self.last_lines + text)[-KEPT:]
            stepped |= self._steps.take(text).stepped
        return stepped

    def _new(self) -> bytes:
        if self._path is None:
            return b""
        try:
            with self._path.open("rb") as file:
                file.seek(self._read)
                new = file.read(CHUNK)
        except OSError:  # not there yet, or taken away: there is nothing to be told
            return b""
        self._read += len(new)
        return new
