"""Keeps a file of metrics fresh for node_exporter's textfile collector, which reads whatever ends with `.prom` in its folder.

prometheus_client's write_to_textfile writes in the thread of whoever calls it: a disk that hangs would hold up the agent.
"""

import contextlib
import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from hangdog_models.errors import WrongUse

log = logging.getLogger(__name__)

#: node_exporter runs as another user, and nothing in the file is secret.
_MODE = 0o644
#: How long leaving waits for a write; a disk that hangs is left behind with its thread.
_END_S = 2.0


class Textfile:
    """Writes what `text` answers every `every_s` seconds while its block lasts; the file goes when the block ends.

    Each time as a whole, under another name and then renamed. It happens in a thread of its own, so that a disk that
    hangs holds nothing else up. A file that is left behind is told from a fresh one by its time of change.
    """

    def __init__(self, path: Path, every_s: float, text: Callable[[], str]) -> None:
        """Raises WrongUse when node_exporter would not read a file of that name."""
        if path.suffix != ".prom":
            raise WrongUse(
                f"--metrics-file {path} is not read by node_exporter",
                "give it a name that ends with .prom",
                code="wrong-setting",
            )
        self._path = path
        self._new = path.with_name(f".{path.name}.{os.getpid()}.new")
        self._every_s = every_s
        self._text = text
        self._reported = False
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="hangdog-metrics", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join(_END_S)

    def _keep(self) -> None:
        while True:
            try:
                self._write(self._text())
                self._reported = False
            except OSError as error:
                if not self._reported:
                    log.warning("metrics are not written to %s: %s", self._path, error)
                self._reported = True
            if self._over.wait(self._every_s):
                break
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)

    def _write(self, text: str) -> None:
        try:
            self._new.unlink(missing_ok=True)
            fd = os.open(self._new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, _MODE)
            with open(fd, "w", encoding="ascii") as file:  # noqa: PTH123 - opened by descriptor
                os.fchmod(fd, _MODE)  # whatever the umask
                file.write(text)
            self._new.rename(self._path)
        except BaseException:
            with contextlib.suppress(OSError):
                self._new.unlink(missing_ok=True)
            raise
