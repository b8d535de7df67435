"""Ranks and rank sets: the only place that reads and writes `0-3,7`."""

from collections.abc import Iterable
from typing import NewType

from hangdog_models.errors import WrongUse

Rank = NewType("Rank", int)
#: A rank set as its runs of neighbours, ascending and separate: a stage of a large job has a few hundred.
Runs = tuple[tuple[int, int], ...]

#: The largest valid rank: ten times the largest published job (about 100,000 GPUs), far below what exhausts memory.
MAX_RANK = 1 << 20


def parse_ranks(text: str) -> tuple[Rank, ...]:
    """Reads a rank set, `"0-3,7,16-31"` (inclusive ranges), into ascending distinct ranks. Raises WrongUse."""
    found: set[int] = set()
    for part in text.replace(" ", "").split(","):
        if not part:
            continue
        first, dash, last = part.partition("-")
        if not _is_number(first) or (dash and not _is_number(last)):
            raise WrongUse(f"{part!r} is no rank set", "write ranks as 0-3,7", code="bad-rank-set")
        low, high = int(first), int(last) if dash else int(first)
        if low > high or high > MAX_RANK:
            raise WrongUse(
                f"{part!r} is no rank set", f"ranges ascend and end at {MAX_RANK} at most", code="bad-rank-set"
            )
        found.update(range(low, high + 1))
    return tuple(Rank(rank) for rank in sorted(found))


def format_ranks(ranks: Iterable[int]) -> str:
    """Writes ranks as a rank set, ascending and distinct with runs joined: `"0-3,7"`; the empty set is `""`."""
    return format_runs(runs_of(ranks))


def runs_of(ranks: Iterable[int]) -> Runs:
    """The runs of neighbouring ranks in a set, ascending, each as its first and last rank."""
    runs: list[list[int]] = []
    for rank in sorted(set(ranks)):
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    return tuple((low, high) for low, high in runs)


def united(many: Iterable[Runs]) -> Runs:
    """The runs of several sets together. The cost depends on the runs, not on the ranks."""
    found: list[tuple[int, int]] = []
    for low, high in sorted(run for runs in many for run in runs):
        if found and low <= found[-1][1] + 1:
            found[-1] = found[-1][0], max(high, found[-1][1])
        else:
            found.append((low, high))
    return tuple(found)


def size(runs: Runs) -> int:
    """The number of ranks."""
    return sum(high - low + 1 for low, high in runs)


def meet(one: Runs, other: Runs) -> bool:
    """Whether two sets have a rank in common."""
    at = 0
    for low, high in one:
        while at < len(other) and other[at][1] < low:
            at += 1
        if at < len(other) and other[at][0] <= high:
            return True
    return False


def format_runs(runs: Runs) -> str:
    """Writes runs as a rank set."""
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= len(str(MAX_RANK))
