"""The looks at a job one after the other: how many ranks each saw, and what moved since the one before."""

from collections.abc import Sequence
from dataclasses import dataclass

from hangdog_models.diagnosis.observe.activity import RankState
from hangdog_models.diagnosis.observe.motion import Look, alike
from hangdog_models.ranks import Runs, runs_of


@dataclass(frozen=True, slots=True)
class LookView:
    """One look: `at_s` seconds after the first (None: not known), ranks `seen` with a stack, ranks whose stack `moved`."""

    number: int
    at_s: float | None
    seen: int
    moved: Runs


def of(looks: Sequence[Look], interval_s: float | None) -> tuple[LookView, ...]:
    """The looks, oldest first."""
    return tuple(
        LookView(
            number,
            None if interval_s is None else number * interval_s,
            sum(1 for state in look.values() if state.frames),
            _moved(looks[number - 1], look) if number else (),
        )
        for number, look in enumerate(looks)
    )


def _moved(before: Look, after: Look) -> Runs:
    known: dict[tuple[int, int], bool] = {}  # standings are shared by thousands of ranks: compared once a pair

    def differ(one: RankState, other: RankState) -> bool:
        key = id(one), id(other)
        if key not in known:
            known[key] = bool(one.frames and other.frames) and not alike(one, other)
        return known[key]

    return runs_of(rank for rank, now in after.items() if (then := before.get(rank)) is not None and differ(then, now))
