"""What is told of something that is under way: each step, as it is said, to everybody who asks, from the first one on."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

from hangdog_models.errors import HangdogError


@dataclass(frozen=True, slots=True)
class ProgressUpdate:
    """One line of the progress of an incident or a campaign of that `name`.

    `document`, its verdict or its report as JSON, stands in the last one.
    """

    name: str
    state: str
    text: str
    document: str = ""


class ProgressStream:
    """The steps of one thing; `failure` is what it failed of, and reaches who follows once it has come to its `end`."""

    def __init__(self) -> None:
        self.failure: HangdogError | None = None
        self._steps: list[ProgressUpdate] = []
        self._changed = asyncio.Event()
        self._over = False

    async def follow(self) -> AsyncIterator[ProgressUpdate]:
        """All steps from the first to the last, as they are said; raises the failure."""
        reported = 0
        while not (self._over and reported == len(self._steps)):
            changes = self._changed
            for step in self._steps[reported:]:
                reported += 1
                yield step
            if changes is self._changed and not self._over:
                await changes.wait()
        if self.failure is not None:
            raise self.failure

    def say(self, step: ProgressUpdate) -> None:
        """Adds a step."""
        self._steps.append(step)
        self._tell()

    def end(self) -> None:
        """Nothing more will be said."""
        self._over = True
        self._tell()

    def _tell(self) -> None:
        changes, self._changed = self._changed, asyncio.Event()
        changes.set()
