"""Keeps the checks of this machine going in a thread of their own, and says what holds."""

import logging
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from hangdog_agent.checks.check_result import CheckVerdict
from hangdog_agent.checks.check_scheduler import Checks
from hangdog_models.findings import Finding

log = logging.getLogger(__name__)

#: How long leaving waits for a tick to end; it returns within a fraction of that.
_END_S = 2.0


class ChecksThread:
    """The checks while its block lasts. `clock` gives Unix seconds; `machine` is the name findings are made on."""

    def __init__(self, checks: Checks, machine: str, clock: Callable[[], float]) -> None:
        self._checks = checks
        self._machine = machine
        self._clock = clock
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="hangdog-checks", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join(_END_S)
        self._checks.close()

    def findings(self) -> tuple[Finding, ...]:
        """Everything that holds now, as diagnosis weighs it."""
        now = time.monotonic()
        return tuple(result.on(self._machine, now) for result in self._checks.results(now))

    def _keep(self) -> None:
        while not self._over.is_set():
            for result in self._checks.tick(time.monotonic(), self._clock()):
                level = logging.INFO if result.kind is CheckVerdict.TELEMETRY else logging.WARNING
                log.log(level, "%s: %s (%s)", result.code, result.words, result.kind)
            self._over.wait(self._checks.pause_s(time.monotonic()))
