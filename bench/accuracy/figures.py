"""Figures of one method over many trials: how often it was right, what that cost, and what its probabilities are worth."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from accuracy.trial import Side, Trial

#: Which of the two methods a figure is about.
Method = Callable[[Trial], Side]


def ours(trial: Trial) -> Side:
    return trial.ours


def theirs(trial: Trial) -> Side:
    return trial.theirs


def cleaned(trial: Trial) -> Side:
    return trial.cleaned


@dataclass(frozen=True, slots=True)
class Figures:
    """Shares run from 0 to 1; None where no trial applies.

    `contained`, `named`: of the incidents with guilty machines. `per_fault`: machines evicted for each guilty one, and
    `evicted`: machines evicted, both of the incidents with guilty machines in which somebody is evicted. `wrong`: of the
    incidents without guilty machines, those in which somebody is evicted. `silent`: no cause is named. `brier`: mean
    squared distance between the first suspect's probability and the truth (0 is best, 0.25 is a coin). `seconds`: mean
    CPU time.
    """

    trials: int
    contained: float | None
    named: float | None
    per_fault: float | None
    evicted: float | None
    wrong: float | None
    silent: float | None
    right: float | None
    top1: float | None
    top3: float | None
    brier: float | None
    seconds: float | None


def figures(trials: Sequence[Trial], method: Method) -> Figures:
    """The figures of one method over these trials."""
    sides = [method(trial) for trial in trials]
    guilty = [side.score for side in sides if side.score.guilty]
    taken = [score for score in guilty if score.evicted]
    sure = [(side.answer.probability, side.score.first) for side in sides if side.answer.probability is not None]
    return Figures(
        trials=len(sides),
        contained=mean(score.contained for score in guilty),
        named=mean(score.named for score in guilty),
        per_fault=sum(score.evicted for score in taken) / sum(score.guilty for score in taken) if taken else None,
        evicted=mean(score.evicted for score in taken),
        wrong=mean(side.score.wrong for side in sides if not side.score.guilty),
        silent=mean(side.score.abstained for side in sides),
        right=mean(side.score.right for side in sides if side.score.right is not None),
        top1=mean(side.score.top1 for side in sides if side.score.top1 is not None),
        top3=mean(side.score.top3 for side in sides if side.score.top3 is not None),
        brier=mean((probability - true) ** 2 for probability, true in sure),
        seconds=mean(side.seconds for side in sides),
    )


def mean(values: Iterable[float]) -> float | None:
    """The mean, None of nothing."""
    listed = list(values)
    return sum(listed) / len(listed) if listed else None
