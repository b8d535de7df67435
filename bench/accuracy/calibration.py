"""How often a probability is right: the reliability curve of a run, and the map that would put it right.

Odds are fitted on the incidents with even seeds and judged on those with odd ones, so that no figure flatters itself.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import exp, log

from accuracy.figures import mean
from accuracy.trial import Trial
from hangdog_models.verdict import Kind

#: A probability given, and whether what it was given to came true.
Guess = tuple[float, bool]

#: Edges of the reliability bins: narrow at the top, where evictions are decided (a coverage target of 0.95).
EDGES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 1.0)
#: Probabilities are kept this far from 0 and 1 before odds are made of them: one in ten thousand is what a run can tell.
CLIP = 1e-4
#: Steps of Newton's method; the fit of two constants stands still after about eight.
STEPS = 50
#: The shortest step worth taking, and the smallest likelihood told from none.
SMALLEST, TINY = 1e-6, 1e-300
#: How strongly the constants are drawn to "change nothing" (slope 1, shift 0): as two imagined guesses would draw them.
PRIOR = 2.0


@dataclass(frozen=True, slots=True)
class Bin:
    """Guesses with a probability in (`low`, `high`]: their mean, how often they came true, and their number."""

    low: float
    high: float
    predicted: float
    observed: float
    count: int


@dataclass(frozen=True, slots=True)
class Temperature:
    """Corrects a probability: its log odds times `slope` plus `shift`."""

    slope: float
    shift: float

    def __call__(self, probability: float) -> float:
        return _share(self.slope * _logit(probability) + self.shift)


def of_suspects(trials: Iterable[Trial]) -> list[Guess]:
    """The first suspect's probability where the verdict accuses it, and whether it is guilty."""
    return _firsts(trial for trial in trials if trial.ours.answer.kind is not Kind.UNDETERMINED)


def of_open_cases(trials: Iterable[Trial]) -> list[Guess]:
    """The same where the verdict is open: there the number also counts what the code or a service would show on it."""
    return _firsts(trial for trial in trials if trial.ours.answer.kind is Kind.UNDETERMINED)


def _firsts(trials: Iterable[Trial]) -> list[Guess]:
    return [
        (trial.ours.answer.probability, trial.ours.score.first)
        for trial in trials
        if trial.ours.answer.probability is not None
    ]


def of_kinds(trials: Iterable[Trial]) -> list[Guess]:
    """A verdict's confidence, and whether its kind is a right one; without `undetermined`, which claims nothing."""
    return [
        (trial.ours.answer.confidence, bool(trial.ours.score.right))
        for trial in trials
        if trial.ours.answer.confidence is not None and trial.ours.answer.kind is not Kind.UNDETERMINED
    ]


def reliability(guesses: Iterable[Guess]) -> list[Bin]:
    """The curve, without empty bins."""
    listed = list(guesses)
    found = []
    for low, high in pairwise(EDGES):
        inside = [guess for guess in listed if low < guess[0] <= high or (guess[0] <= 0.0 and low == 0.0)]
        predicted, observed = mean(p for p, _ in inside), mean(true for _, true in inside)
        if predicted is not None and observed is not None:
            found.append(Bin(low, high, predicted, observed, len(inside)))
    return found


def brier(guesses: Iterable[Guess]) -> float | None:
    """Mean squared distance from the truth: 0 is best, 0.25 what a coin earns."""
    return mean((probability - true) ** 2 for probability, true in guesses)


def error(guesses: Sequence[Guess]) -> float | None:
    """Expected calibration error: how far predicted and observed lie apart, over all bins by their counts."""
    bins = reliability(guesses)
    return sum(abs(b.predicted - b.observed) * b.count for b in bins) / len(guesses) if guesses else None


def fit(guesses: Sequence[Guess]) -> Temperature:
    """The slope and shift of log odds that make these guesses most likely; monotone, so that no order changes."""
    points = [(_logit(probability), true) for probability, true in guesses]
    slope, shift = 1.0, 0.0
    for _ in range(STEPS):
        # gradient and curvature of the log likelihood, and of a prior around (1, 0)
        g0, g1 = -PRIOR * (slope - 1.0), -PRIOR * shift
        h00, h01, h11 = PRIOR, 0.0, PRIOR
        for x, true in points:
            p = _share(slope * x + shift)
            weight = p * (1.0 - p)
            g0, g1 = g0 + (true - p) * x, g1 + (true - p)
            h00, h01, h11 = h00 + weight * x * x, h01 + weight * x, h11 + weight
        det = h00 * h11 - h01 * h01
        d0, d1 = (h11 * g0 - h01 * g1) / det, (h00 * g1 - h01 * g0) / det
        now, size = _likelihood(points, slope, shift), 1.0
        # a full step overshoots where the curve is flat, and would then run away
        while size > SMALLEST and _likelihood(points, slope + size * d0, shift + size * d1) < now:
            size /= 2
        slope, shift = slope + size * d0, shift + size * d1
    return Temperature(max(slope, 0.0), shift)


def _likelihood(points: Sequence[tuple[float, bool]], slope: float, shift: float) -> float:
    """The logarithm of how likely these outcomes are, the prior included."""
    drawn = -PRIOR / 2 * ((slope - 1.0) ** 2 + shift**2)
    return drawn + sum(log(max(_share((slope * x + shift) * (1 if true else -1)), TINY)) for x, true in points)


def isotonic(guesses: Iterable[Guess]) -> list[tuple[float, float]]:
    """The monotone steps closest to these guesses (pool adjacent violators): (up to this probability, observed share)."""
    alike: dict[float, list[bool]] = {}
    for probability, true in guesses:
        alike.setdefault(probability, []).append(true)
    blocks: list[tuple[float, int, int]] = []  # highest probability, how many came true, of how many
    for probability in sorted(alike):
        top, hits, count = probability, sum(alike[probability]), len(alike[probability])
        while blocks and blocks[-1][1] * count >= hits * blocks[-1][2]:
            _, more, others = blocks.pop()
            hits, count = hits + more, count + others
        blocks.append((top, hits, count))
    return [(top, hits / count) for top, hits, count in blocks]


def advice(trials: Sequence[Trial]) -> list[str]:
    """Lines with the fitted constants, and what they would do to the Brier score of seeds they were not fitted on."""
    lines = []
    for name, of in (("the first suspect's probability", of_suspects), ("the confidence of a verdict", of_kinds)):
        learnt, held_out = of([t for t in trials if t.seed % 2 == 0]), of([t for t in trials if t.seed % 2])
        if not learnt or not held_out:
            lines.append(f"calibration of {name}: too few guesses")
            continue
        found = fit(learnt)
        mended = [(found(probability), true) for probability, true in held_out]
        before, after = f"Brier {brier(held_out):.4f}", f"{brier(mended):.4f}"
        bent, straight = f"calibration error {error(held_out):.4f}", f"{error(mended):.4f}"
        steps = " ".join(f"({top:.3f}, {seen:.3f})" for top, seen in isotonic(learnt))
        lines.append(f"calibration of {name}: log odds * {found.slope:.3f} + {found.shift:.3f}")
        lines.append(f"  on {len(held_out)} guesses of other seeds: {before} -> {after}, {bent} -> {straight}")
        lines.append(f"  isotonic (up to, observed): {steps}")
    return lines


def _logit(probability: float) -> float:
    kept = min(1.0 - CLIP, max(CLIP, probability))
    return log(kept / (1.0 - kept))


def _share(log_odds: float) -> float:
    return 1.0 / (1.0 + exp(-log_odds)) if log_odds >= 0 else exp(log_odds) / (1.0 + exp(log_odds))
