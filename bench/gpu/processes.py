"""Starts what a part needs and ends all of it with the part: each child in a session of its own, killed with us."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from hangdog.demo.conductor import FOREIGN
from hangdog.demo.prctl import adopt_orphans, die_with
from hangdog.demo.processes import DEATH_S, reap_leftovers

#: Time to end in order. Seconds.
GRACE_S = 2.0


class Children:
    """Processes whose output goes to files of one folder; leaving the block ends them and whatever they started."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._pid = folder, os.getpid()
        self._started: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        adopt_orphans()
        return self

    def start(self, name: str, command: Sequence[str | Path], environ: Mapping[str, str]) -> subprocess.Popen[bytes]:
        """Starts a process with an environment of its own; both its outputs go to the file `log(name)`."""
        with self.log(name).open("wb") as log:
            process = subprocess.Popen(
                [str(word) for word in command], env=own_environ() | dict(environ), stdin=subprocess.DEVNULL,
                stdout=log, stderr=log, start_new_session=True, cwd=self._folder,
                preexec_fn=lambda: die_with(self._pid),  # noqa: PLW1509 - parts are run by the only thread
            )  # fmt: skip
        self._started.append(process)
        return process

    def log(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, patience_s in ((signal.SIGTERM, GRACE_S), (signal.SIGKILL, DEATH_S)):
            alive = [process for process in self._started if process.poll() is None]
            for process in alive:
                for each in (number, signal.SIGCONT):
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(process.pid, each)
            until = time.monotonic() + patience_s
            while time.monotonic() < until and any(process.poll() is None for process in alive):
                time.sleep(0.05)
        reap_leftovers(DEATH_S)


def own_environ() -> dict[str, str]:
    """Our environment without what launchers of other jobs left in it."""
    return {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
