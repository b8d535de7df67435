"""Reasons of a verdict: made of sentences, and asked for their codes."""

from collections.abc import Iterable

from hangdog_models.verdict import VerdictReason


def reasons(*sentences: str) -> tuple[VerdictReason, ...]:
    """Reasons that say this, all of one code."""
    return tuple(VerdictReason("waited-for", sentence) for sentence in sentences)


def codes(because: Iterable[VerdictReason]) -> tuple[str, ...]:
    """What kinds of evidence these are."""
    return tuple(one.code for one in because)
