"""One monitored trainer: its baseline, its stack samples, and what its progress signals show together."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from hangdog_agent.stalls.baseline import Baseline
from hangdog_agent.stalls.progress.progress_signal import LEAST, ProgressSignal, SignalKind
from hangdog_agent.stalls.stack_motion import StackSample, at_one_place
from hangdog_models.numbers.work_rate import WorkDone
from hangdog_models.planning.slowdown import Slowdown, StepTimes
from hangdog_models.ranks import Rank

#: Stack samples kept of one trainer.
_KEPT = 16
#: A signal that advances so many times as often as the one that times the steps takes its place.
_FURTHER = 2


@dataclass(slots=True)
class Trainer:
    """All times are of `time.monotonic`."""

    rank: Rank
    baseline: Baseline
    step_times: StepTimes
    #: The same of a unit of work, such as a token, where its log tells the throughput.
    work_times: StepTimes
    samples: deque[StackSample] = field(default_factory=lambda: deque(maxlen=_KEPT))
    signals: Sequence[ProgressSignal] = ()
    timed: ProgressSignal | None = None
    worked: WorkDone | None = None

    @property
    def stalled_since(self) -> float | None:
        """Since when an authoritative signal has not advanced, or two of other kinds; None while they do as usual."""
        stalls = [(each, each.stalled_since) for each in self.signals]
        sure = [since for each, since in stalls if since is not None and each.authoritative]
        if sure:
            return min(sure)
        kinds = {each.kind: since for each, since in stalls if since is not None}
        return max(kinds.values()) if len(kinds) > 1 else None

    def set_signals(self, signals: Sequence[ProgressSignal]) -> None:
        """Sets its signals, as they are now. Of those that count steps the one that advances most often times them.

        Where none does, counted collectives time it: a job makes the same number of them in each step.
        """
        self.signals = signals
        counting = [each for each in signals if _counts_steps(each)] or [
            each for each in signals if each.counts_collectives and each.advances >= LEAST
        ]
        timed = max(counting, key=lambda each: each.advances, default=None)
        if timed is not None and (
            self.timed is None or self.timed not in counting or timed.advances > _FURTHER * self.timed.advances
        ):
            self.timed = timed
            self.step_times.begin()
        if self.timed is not None:
            self.step_times.take(self.timed.steps, self.timed.advanced_at)
        self._set_work([each.work for each in signals if each.work is not None and each.work.unit is not None])

    def _set_work(self, logged: Sequence[WorkDone]) -> None:
        if not any(each is self.worked for each in logged):
            self.worked = logged[0] if logged else None
            self.work_times.begin()
        if self.worked is not None:
            self.work_times.take(self.worked.done, self.worked.at)

    @property
    def slowdown(self) -> Slowdown | None:
        """How much longer its steps take than they used to; None while they do not, or are unknown."""
        found = self.step_times.slowdown
        by_collectives = self.timed is not None and self.timed.counts_collectives
        return replace(found, by_collectives=by_collectives) if found is not None else None

    @property
    def less_work(self) -> Slowdown | None:
        """By how much the throughput that its log tells has fallen; None while it has not, or is unknown."""
        found = self.work_times.slowdown
        unit = self.worked.unit if self.worked is not None else None
        return replace(found, work=unit) if found is not None and unit is not None else None

    @property
    def surely_stalled(self) -> bool:
        """Whether the stall is sure: the job's own progress stalled, no GPU computes, and it polls or more than one kind stalled."""
        stalled = [each for each in self.signals if each.stalled_since is not None]
        computes = any(each.kind is SignalKind.POWER and each.advancing for each in self.signals)
        polls = not self.baseline.busy or len({each.kind for each in stalled}) > 1
        return any(each.authoritative for each in stalled) and not computes and polls

    def gets_on(self, since: float) -> bool:
        """Whether a signal shows that it has not been stalled since then."""
        return any(each.contradicts(since) for each in self.signals)

    def moved(self, before: StackSample, after: StackSample) -> bool:
        """Whether it moved in between; a rank that polls moves only within its loop."""
        if self.stalled_since is not None and at_one_place((before, after)):
            return False
        return before.state.frames != after.state.frames

    @property
    def proof_at(self) -> float:
        """The latest moment after which it is known to have made progress."""
        return max((each.proof_at for each in self.signals if each.authoritative), default=float("-inf"))

    def is_known(self, settle_s: float) -> bool:
        """Whether its CPU activity, or the job's own progress, was followed for long enough to know its baseline."""
        return self.baseline.warmed_up or any(each.authoritative and each.known_s >= settle_s for each in self.signals)


def _counts_steps(signal: ProgressSignal) -> bool:
    """Whether it advances once a step or counts the steps; a heartbeat often does not."""
    heartbeat = signal.kind is SignalKind.HEARTBEAT and 2 * signal.advances <= signal.looks
    return signal.advances >= LEAST and signal.authoritative and (signal.kind is SignalKind.LINES or heartbeat)
