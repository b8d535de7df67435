"""A command that runs beside the job: it is looked at now and then, never waited for, and ended when its time is up."""

import contextlib
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from hangdog.supervising.descendants import pause

#: What a command that is told to end has for it: `hangdog test run` ends its campaign meanwhile. Seconds.
END_S = 5.0
#: The kernel carries out SIGKILL within milliseconds, unless a driver holds the process; then nobody waits for it. Seconds.
KILL_S = 2.0
#: Bytes of what it printed that are read for its reason.
PRINTED = 64 << 10


class BackgroundCommand:
    """A command that was started; its words go to `log`, its output to `out`, of `most` bytes each. Raises OSError."""

    def __init__(
        self, command: Sequence[str], environ: Mapping[str, str], out: Path, log: Path, limit_s: float, most: int = 0
    ) -> None:
        out.parent.mkdir(parents=True, exist_ok=True)
        self._log = log
        with out.open("wb" if out != log else "ab") as output, log.open("ab") as words:
            self._began = words.tell()
            self._process = subprocess.Popen(
                (sys.executable, "-P", "-m", "hangdog.supervising.parent_death", str(os.getpid()), *command),
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=words,
                start_new_session=True,
            )
        if most:  # whom it asks may answer without an end
            with contextlib.suppress(ProcessLookupError):
                resource.prlimit(self._process.pid, resource.RLIMIT_FSIZE, (self._began + most, self._began + most))
        self._limit_s = limit_s
        self._until = time.monotonic() + limit_s
        self._interrupted = False
        self.pid = self._process.pid

    def result(self) -> str | None:
        """None while it runs; then the empty text, or why it failed. One that the kernel holds is not waited for."""
        status, late = self._process.poll(), time.monotonic() - self._until
        if status is None and late < 0:
            return None
        if status is None and late < END_S:
            self.interrupt()
            return None
        if status is None:
            self._signal(signal.SIGKILL)
            if late < END_S + KILL_S:
                return None
        if self._interrupted:
            return f"it did not end within {self._limit_s:g} s"
        return f"status {status}: {self._last_line()}" if status else ""

    @property
    def status(self) -> int | None:
        """Its exit status, once it has ended."""
        return self._process.returncode

    def printed(self) -> list[str]:
        """The last lines that it wrote to its log."""
        try:
            with self._log.open("rb") as file:
                file.seek(max(self._began, self._log.stat().st_size - PRINTED))
                lines = file.read(PRINTED).decode("utf-8", "replace").splitlines()
        except OSError:
            return []
        return [line.strip()[:1000] for line in lines if line.strip()]

    def interrupt(self) -> None:
        """Tells it to end, once, without waiting for that; `result` sees to the rest."""
        if not self._interrupted:
            self._interrupted, self._until = True, min(self._until, time.monotonic())
            self._signal(signal.SIGINT)

    def end(self) -> None:
        """Ends it and all of its process group, within some seconds."""
        self.interrupt()
        while self.result() is None:
            pause()

    def _signal(self, number: signal.Signals) -> None:
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)

    def _last_line(self) -> str:
        return (self.printed() or ["it printed nothing"])[-1]
