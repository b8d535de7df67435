"""Ranks in a sentence: which they are, and the verb that fits."""

from collections.abc import Iterable

from hangdog_models.ranks import Rank, format_ranks


def ranks_of(ranks: Iterable[Rank]) -> str:
    """`rank 3`, `ranks 3,5-7`."""
    ranks = list(ranks)
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {format_ranks(ranks)}"


def are(ranks: Iterable[Rank]) -> str:
    """The verb that goes with these ranks."""
    return "is" if len(list(ranks)) == 1 else "are"


def wait(ranks: Iterable[Rank]) -> str:
    """The verb that goes with these ranks."""
    return "waits" if len(list(ranks)) == 1 else "wait"
