"""When a standstill is worth a look: what each rank shows of itself, and how long that is borne before somebody asks.

A suspicion is a question and no verdict. Most ranks of a stuck job wait, and a wait alone says nothing: somebody may be
working for all. So the ranks that do not wait decide how long the wait of the others is borne.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from hangdog_models.ranks import Rank, format_ranks

#: A job must have been without suspicion for so long before a new one counts as another matter. Seconds.
OVER_S = 10.0
#: A job with an overdue rank is looked at closer for so long, and anew before that is over. Seconds.
RECHECK_S, ASKED_AGAIN_S = 15.0, 8.0


class Doing(StrEnum):
    """What a rank shows of itself over several seconds; one that shows no sign of a standstill is not named at all."""

    STILL = "still"  # at one and the same line: asleep, or spinning
    LOOPING = "looping"  # at work, and always at one place
    COMPILING = "compiling"
    WRITING = "writing"  # at one place of a checkpoint or of storage, and its bytes move
    WORKING = "working"  # at one place now and at another then


@dataclass(frozen=True, slots=True)
class Sign:
    """What a rank does and for how long, in seconds; `overdue`: longer than it ever did at that place, by its own rhythm.

    `crowding` (1 or more) is how many threads want each core of its machine: work takes so many times longer there.
    """

    doing: Doing
    seconds: float
    overdue: bool = False
    place: str = ""
    crowding: float = 1.0


@dataclass(frozen=True, slots=True)
class StallTimeouts:
    """How long the others may wait for a rank that is seen to do something, in seconds.

    Who stands still has the patience of its own rhythm, which its agent knows.
    """

    #: Work at one place: a loop of one function that lasts is a loop that does not end, or garbage collection.
    looping_s: float = 8.0
    #: Compiling in the middle of training; at the start nobody is overdue yet, for no rhythm is known.
    compiling_s: float = 10.0
    #: A checkpoint whose bytes move is being written: the largest shards take minutes.
    writing_s: float = 120.0
    #: One rank that gets on with something while all wait: evaluation, export, logging.
    working_s: float = 60.0

    def of(self, doing: Doing) -> float:
        """Seconds that the others may wait for a rank that does this."""
        return {
            Doing.STILL: 0.0,
            Doing.LOOPING: self.looping_s,
            Doing.COMPILING: self.compiling_s,
            Doing.WRITING: self.writing_s,
            Doing.WORKING: self.working_s,
        }[doing]


@dataclass(frozen=True, slots=True)
class Suspicion:
    """A job that seems to stand still, for how long, and why one thinks so."""

    seconds: float
    why: str


def suspect(signs: Mapping[Rank, Sign], going: Iterable[Rank], patience: StallTimeouts) -> Suspicion | None:
    """Whether a job stands still: its ranks wait longer than they ever did, and none has a reason that is borne.

    `going` are ranks that show no sign of a standstill: a job with one of those goes on, as far as anybody can tell.
    """
    overdue = [rank for rank, sign in signs.items() if sign.overdue]
    early = any(sign.doing is Doing.STILL and not sign.overdue for sign in signs.values())
    if not overdue or early or any(True for _ in going):
        return None
    seconds = max(signs[rank].seconds for rank in overdue)
    working = [sign for sign in signs.values() if sign.doing is not Doing.STILL]
    # who is overdue in a loop waits there, and a wait takes no longer where cores are wanted
    if any(seconds < patience.of(sign.doing) * (1.0 if sign.overdue else sign.crowding) for sign in working):
        return None
    still = sorted(rank for rank, sign in signs.items() if sign.doing is Doing.STILL)
    words = [f"ranks {format_ranks(still)} stand still for {seconds:.0f} s"] if still else []
    for doing in sorted({sign.doing for sign in working}):
        ranks = sorted(rank for rank, sign in signs.items() if sign.doing is doing)
        words.append(f"{'ranks' if len(ranks) > 1 else 'rank'} {format_ranks(ranks)} {doing}")
    return Suspicion(seconds, "; ".join(words))
