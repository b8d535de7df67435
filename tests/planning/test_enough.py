"""When looks at a slow job suffice: two judgements in a row that are sure and name the same."""

from dataclasses import replace

import pytest

from hangdog_models.diagnosis.judge import diagnose
from hangdog_models.planning.enough_rounds import enough
from hangdog_models.ranks import Rank
from hangdog_models.verdict import Kind, Suspect, Verdict
from support.cases.stories import job, look, snapshot

NAMED = Suspect((Rank(2),), ("node-1",), 0.99, ())
OTHER = Suspect((Rank(5),), ("node-2",), 0.99, ())
BARE = diagnose(snapshot(look({"0-7": "metrics"})), job(dp=8))


def slow(confidence: float = 0.99, kind: Kind = Kind.SLOW, suspect: Suspect = NAMED) -> Verdict:
    return replace(BARE, kind=kind, confidence=confidence, suspects=(suspect,))


def test_twice_the_same_and_sure_is_enough() -> None:
    assert enough(slow(), slow(0.95))


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (None, slow()),
        (slow(), slow(0.85)),
        (slow(0.85), slow()),
        (slow(), slow(suspect=OTHER)),
        (slow(kind=Kind.MACHINE), slow()),
        (slow(kind=Kind.NONE), slow(kind=Kind.NONE)),
        (slow(kind=Kind.UNDETERMINED), slow(kind=Kind.UNDETERMINED)),
    ],
)
def test_less_is_not(before: Verdict | None, now: Verdict) -> None:
    assert not enough(before, now)
