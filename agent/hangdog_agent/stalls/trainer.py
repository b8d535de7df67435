"""One trainer that is watched: its rhythm, what was glanced at, and what its witnesses say together."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from hangdog_agent.stalls.baseline import Baseline
from hangdog_agent.stalls.progress.progress_signal import LEAST, ProgressSignal, SignalKind
from hangdog_agent.stalls.stack_motion import StackSample, at_one_place
from hangdog_models.planning.slowdown import StepTimes
from hangdog_models.ranks import Rank

#: Glances kept of one trainer.
_KEPT = 16
#: One that advances so many times as often as the one that steps are timed by takes its place.
_FURTHER = 2


@dataclass(slots=True)
class Trainer:
    """All times are of `time.monotonic`."""

    rank: Rank
    baseline: Baseline
    step_times: StepTimes
    samples: deque[StackSample] = field(default_factory=lambda: deque(maxlen=_KEPT))
    signals: Sequence[ProgressSignal] = ()
    timed: ProgressSignal | None = None

    @property
    def stalled_since(self) -> float | None:
        """Since when one of its witnesses that vouch has not advanced, or two of other kinds; None while they do as usual."""
        stalls = [(each, each.stalled_since) for each in self.signals]
        sure = [since for each, since in stalls if since is not None and each.vouches]
        if sure:
            return min(sure)
        kinds = {each.kind: since for each, since in stalls if since is not None}
        return max(kinds.values()) if len(kinds) > 1 else None

    def hear(self, signals: Sequence[ProgressSignal]) -> None:
        """Takes its witnesses as they stand now. Of those that count steps it is timed by the one that advances most often."""
        self.signals = signals
        counting = [each for each in signals if _counts_steps(each)]
        timed = max(counting, key=lambda each: each.advances, default=None)
        if timed is not None and (
            self.timed is None or self.timed not in counting or timed.advances > _FURTHER * self.timed.advances
        ):
            self.timed = timed
            self.step_times.begin()
        if self.timed is not None:
            self.step_times.take(self.timed.steps, self.timed.advanced_at)

    @property
    def surely_stands(self) -> bool:
        """Whether the job's own progress has stalled, no GPU computes, and it only polls, or more than one kind has stalled."""
        stalled = [each for each in self.signals if each.stalled_since is not None]
        computes = any(each.kind is SignalKind.POWER and each.advancing for each in self.signals)
        polls = not self.baseline.pinned or len({each.kind for each in stalled}) > 1
        return any(each.vouches for each in stalled) and not computes and polls

    def gets_on(self, since: float) -> bool:
        """Whether a witness shows that it has not stood still since then."""
        return any(each.speaks_against(since) for each in self.signals)

    def moved(self, before: StackSample, after: StackSample) -> bool:
        """Whether it went on in between; who polls, by all that is known, moves within its loop only."""
        if self.stalled_since is not None and at_one_place((before, after)):
            return False
        return before.state.frames != after.state.frames

    @property
    def proof_at(self) -> float:
        """The latest moment after which it is known to have got on."""
        return max((each.proof_at for each in self.signals if each.vouches), default=float("-inf"))

    def is_known(self, settle_s: float) -> bool:
        """Whether its pulse, or the job's own progress, has been followed for long enough for its rhythm to be known."""
        return self.baseline.settled or any(each.vouches and each.known_s >= settle_s for each in self.signals)


def _counts_steps(signal: ProgressSignal) -> bool:
    """Whether it advances once a step or tells how many there were; of a heartbeat in most looks nobody knows how many."""
    heartbeat = signal.kind is SignalKind.HEARTBEAT and 2 * signal.advances <= signal.looks
    return signal.advances >= LEAST and signal.vouches and (signal.kind is SignalKind.LINES or heartbeat)
