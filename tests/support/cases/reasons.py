"""Reasons of a verdict: made of sentences, and asked for their codes."""

from collections.abc import Iterable

from hangdog_models.verdict import VerdictReason


def reasons(*sentences: str) -> tuple[VerdictReason, ...]:
    """Reasons that say this, all of one code."""
    return tuple(VerdictReason("waited-for", sentence) for sentence in sentences)


def words_of(because: Iterable[VerdictReason], code: str) -> str:
    """What the reasons of this kind say, for the values in it; empty where there is none of it."""
    return "\n".join(one.text for one in because if one.code == code)


def codes(because: Iterable[VerdictReason]) -> tuple[str, ...]:
    """What kinds of evidence these are."""
    return tuple(one.code for one in because)
