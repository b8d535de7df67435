"""Ranks and rank sets: the only place that reads and writes `0-3,7`."""

from collections.abc import Iterable
from typing import NewType

from hangdog_models.errors import WrongUse

Rank = NewType("Rank", int)

#: The largest rank we believe; ten times the largest published job (about 100,000 GPUs) and far below what exhausts memory.
MAX_RANK = 1 << 20


def parse_ranks(text: str) -> tuple[Rank, ...]:
    """Reads a rank set, `"0-3,7,16-31"` (inclusive ranges), into ascending distinct ranks; raises WrongUse."""
    found: set[int] = set()
    for part in text.replace(" ", "").split(","):
        if not part:
            continue
        first, dash, last = part.partition("-")
        if not _is_number(first) or (dash and not _is_number(last)):
            raise WrongUse(f"{part!r} is no rank set", "write ranks as 0-3,7")
        low, high = int(first), int(last) if dash else int(first)
        if low > high or high > MAX_RANK:
            raise WrongUse(f"{part!r} is no rank set", f"ranges ascend and end at {MAX_RANK} at most")
        found.update(range(low, high + 1))
    return tuple(Rank(rank) for rank in sorted(found))


def format_ranks(ranks: Iterable[int]) -> str:
    """Writes ranks as a rank set: ascending, distinct, runs joined: `"0-3,7"`; the empty set is `""`."""
    runs: list[list[int]] = []
    for rank in sorted(set(ranks)):
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= len(str(MAX_RANK))
