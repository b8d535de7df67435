"""What each failure cost, of the steps that a job made and when."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median

from ettr.failures import HANGS, WHAT, Failure

#: A step that was under way when the failure struck may end so long after it. Seconds.
_UNDER_WAY_S = 3.0
#: Times of single steps, of which the usual one is taken: a pause is none.
_USUAL = 400


@dataclass(frozen=True, slots=True)
class Lost:
    """From a failure until the job had made one step more than before it, in seconds; None: it never did."""

    failure: Failure
    seconds: float | None


@dataclass(frozen=True, slots=True)
class Kept:
    """What one side came to: from its first step to its last in seconds, the part of that in which it trained, and the losses."""

    wall_s: float
    trained_s: float
    lost: tuple[Lost, ...]

    @property
    def share(self) -> float:
        """Effective training time ratio: the time for steps that count, of all time."""
        return self.trained_s / self.wall_s if self.wall_s else 0.0


def made(folder: Path) -> list[tuple[int, float]]:
    """The steps so far, with their moments on this machine's monotonic clock."""
    try:
        lines = (folder / "steps").read_text().splitlines()
    except FileNotFoundError:
        return []
    return [(int(step), float(at)) for step, _, at in (line.partition(" ") for line in lines) if at]


def kept(steps: Sequence[tuple[int, float]], struck: Mapping[Failure, float]) -> Kept:
    """The figures of a run that made these steps, with when each failure struck."""
    if not steps:
        return Kept(0.0, 0.0, ())
    gaps = [after[1] - before[1] for before, after in pairwise(steps)][:_USUAL]
    usual_s = median(gaps) if gaps else 0.0
    lost = tuple(Lost(one, _until_further(steps, at)) for one, at in struck.items())
    return Kept(steps[-1][1] - steps[0][1] + usual_s, usual_s * len({step for step, _ in steps}), lost)


def _until_further(steps: Sequence[tuple[int, float]], at: float) -> float | None:
    reached = max((step for step, moment in steps if moment <= at + _UNDER_WAY_S), default=0)
    further = next((moment for step, moment in steps if moment > at and step > reached), None)
    return None if further is None else further - at


def table(sides: Mapping[str, Kept], failures: Sequence[Failure]) -> str:
    """Markdown: a row for each failure, and the sums."""
    rows = [["failure", "", *sides], ["---", "---", *("---:" for _ in sides)]]
    for one in failures:
        rows.append(
            [WHAT[one.what], "hang" if one.what in HANGS else "crash", *(_cell(kept, one) for kept in sides.values())]
        )
    rows.append(
        [
            "all failures",
            "",
            *(f"{sum(lost.seconds or 0.0 for lost in kept.lost) / 60:.1f} min" for kept in sides.values()),
        ]
    )
    rows.append(["from the first step to the last", "", *(f"{kept.wall_s / 60:.1f} min" for kept in sides.values())])
    rows.append(["effective training time", "", *(f"{100 * kept.share:.0f} %" for kept in sides.values())])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _cell(kept: Kept, failure: Failure) -> str:
    found = next((one for one in kept.lost if one.failure == failure), None)
    if found is None:
        return "not reached"
    return "never trained on" if found.seconds is None else f"{found.seconds:.0f} s"
