"""Who waits around the suspects: for whom they wait themselves, and who waits for them, directly and through others."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from hangdog_models.diagnosis.hypotheses.reason_text import where
from hangdog_models.diagnosis.verdict.case import Case
from hangdog_models.diagnosis.waits.waits import GroupWait
from hangdog_models.ranks import Runs, runs_of
from hangdog_models.verdict import Suspect

#: Suspects whose surroundings are shown: the verdict orders them, and the first few hold nearly all probability.
SUSPECTS = 4
#: Kinds of waits shown on each side of a suspect.
WAITS = 8


class Known(StrEnum):
    """From what it is known that ranks wait."""

    COUNTERS = "by counters"
    FRAMES = "by frames"
    GUESSED = "guessed from who is there"
    UNKNOWN = "not known for whom"


@dataclass(frozen=True, slots=True)
class WaitView:
    """Ranks `inside` an operation of groups along `dim` that wait for `awaited`; `known` says from what."""

    dim: str
    what: str
    known: Known
    inside: Runs
    awaited: Runs


@dataclass(frozen=True, slots=True)
class Surroundings:
    """One suspect (by its place in the verdict's list): where its ranks stand, and the waits around them.

    `behind`: how many ranks wait for it, directly or through others.
    """

    suspect: int
    stands: tuple[str, ...]
    waits_for: tuple[WaitView, ...]
    waited_for_by: tuple[WaitView, ...]
    behind: int


def around(case: Case, suspects: Sequence[Suspect]) -> tuple[Surroundings, ...]:
    """The surroundings of the first suspects."""
    return tuple(_around(case, number, suspect) for number, suspect in enumerate(suspects[:SUSPECTS]))


def _around(case: Case, number: int, suspect: Suspect) -> Surroundings:
    waits, mine = case.waits, frozenset(suspect.ranks)
    places = dict.fromkeys(where(case.look[rank]) for rank in suspect.ranks if rank in case.look)
    own = [hold for hold in waits.holds if hold.dim is not None and not mine.isdisjoint(hold.inside)]
    behind = {id(hold): hold for rank in suspect.ranks for hold in waits.holds_for(rank)}
    reached = waits.reached_from(suspect.ranks) - mine
    return Surroundings(number, tuple(places)[:WAITS], _together(own), _together(behind.values()), len(reached))


def _together(holds: Iterable[GroupWait]) -> tuple[WaitView, ...]:
    """Holds of one operation in groups of one kind as one: in a wide job thousands of groups wait alike."""
    found: dict[tuple[str, str, Known], list[GroupWait]] = {}
    for hold in holds:
        found.setdefault((str(hold.dim), hold.what, known(hold)), []).append(hold)
    return tuple(
        WaitView(
            *key,
            inside=runs_of(rank for hold in them for rank in hold.inside),
            awaited=runs_of(rank for hold in them for rank in hold.awaited),
        )
        for key, them in list(found.items())[:WAITS]
    )


def known(hold: GroupWait) -> Known:
    """From what it is known that these ranks wait."""
    return Known.COUNTERS if hold.counted else Known.GUESSED if hold.inferred else Known.FRAMES
