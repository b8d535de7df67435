"""What the ranks themselves tell of their progress: one line of JSON on stdout for each finished step."""

import json
import os
import selectors
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import IO

from hangdog_models.errors import OurFault

#: No rank finished a step for so long: the job stands still. Seconds.
STALL_S = 4.0
#: On a slow machine a step takes longer: then so many of its slowest recent steps.
STALL_STEPS = 5
#: Steps that tell how long a step takes here; the first ones, which set things up, are forgotten soon.
RECENT = 4
#: Ranks that lose a peer fall within moments of it. Seconds.
FALL_S = 0.5


@dataclass(frozen=True, slots=True)
class TrainingStep:
    """A step that every rank has finished: `loss` is the mean of those that know it, `seconds` what the slowest took."""

    number: int
    loss: float
    seconds: float


class StepReports:
    """Follows the stdout of all ranks; `last_words` tells what a rank that ended said of it.

    The job stands still when no rank finished a step for `quiet_s` seconds, or for `QUIET_STEPS` steps where those take longer.
    """

    def __init__(
        self, ranks: Mapping[int, IO[bytes] | None], last_words: Callable[[int], str], stall_s: float = STALL_S
    ) -> None:
        self._final_lines = last_words
        self._stall_s = stall_s
        self._selector = selectors.DefaultSelector()
        self._unread = dict.fromkeys(ranks, b"")
        self._finished: dict[int, dict[int, tuple[float | None, float]]] = {}
        self._recent: list[float] = []
        self._last_step_at = time.monotonic()
        for rank, stdout in ranks.items():
            assert stdout is not None
            os.set_blocking(stdout.fileno(), False)
            self._selector.register(stdout, selectors.EVENT_READ, rank)

    def follow(self, seconds: float) -> Iterator[TrainingStep]:
        """Waits up to `seconds` for news and yields the steps that became complete; raises OurFault if a rank ended."""
        for key, _ in self._selector.select(seconds):
            rank: int = key.data
            chunk = os.read(key.fd, 1 << 16)
            if not chunk:
                raise self._fault(rank)
            *lines, self._unread[rank] = (self._unread[rank] + chunk).split(b"\n")
            for line in lines:
                self._last_step_at = time.monotonic()
                yield from self._take(rank, line)

    def stalled(self) -> bool:
        """Whether no rank has finished a step for longer than steps take here."""
        return self.since_step_s() > max(self._stall_s, STALL_STEPS * max(self._recent, default=0.0))

    def since_step_s(self) -> float:
        """Seconds since any rank finished a step."""
        return time.monotonic() - self._last_step_at

    def _fault(self, rank: int) -> OurFault:
        """A rank ended, and what it and those that fell with it say of that: often it is another one that fell first."""
        ended, until = {rank}, time.monotonic() + FALL_S
        while (left := until - time.monotonic()) > 0 and len(ended) < len(self._unread):
            for key, _ in self._selector.select(left):
                if not os.read(key.fd, 1 << 16):
                    self._selector.unregister(key.fd)
                    ended.add(key.data)
        words = [f"rank {one} of the demo's job ended by itself: {self._final_lines(one)}" for one in sorted(ended)]
        return OurFault("; ".join(words), code="demo-failed")

    def _take(self, rank: int, line: bytes) -> Iterator[TrainingStep]:
        report = json.loads(line)
        number: int = report["step"]
        ranks = self._finished.setdefault(number, {})
        ranks[rank] = (report["loss"], report["seconds"])
        if len(ranks) == len(self._unread):
            del self._finished[number]
            losses = [loss for loss, _ in ranks.values() if loss is not None]
            step = TrainingStep(number, statistics.fmean(losses), max(seconds for _, seconds in ranks.values()))
            self._recent = [*self._recent, step.seconds][-RECENT:]
            yield step
