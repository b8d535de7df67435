"""Ranks in a sentence: their list, and the verb that agrees with it."""

from collections.abc import Iterable

from hangdog_models.ranks import Rank, format_ranks


def ranks_of(ranks: Iterable[Rank]) -> str:
    """`rank 3`, `ranks 3,5-7`."""
    ranks = list(ranks)
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {format_ranks(ranks)}"


def are(ranks: Iterable[Rank]) -> str:
    """`is` or `are`, to agree with these ranks."""
    return "is" if len(list(ranks)) == 1 else "are"


def wait(ranks: Iterable[Rank]) -> str:
    """`waits` or `wait`, to agree with these ranks."""
    return "waits" if len(list(ranks)) == 1 else "wait"
