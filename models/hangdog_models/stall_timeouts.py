"""When a standstill is worth a look: what each rank shows of itself, and how long that is borne before somebody asks.

A suspicion is a question and no verdict. Most ranks of a stuck job wait, and a wait alone says nothing: somebody may be
working for all. So the ranks that do not wait decide how long the wait of the others is borne. A job of which little is
known yet is borne for longer: its first evaluation looks like a loop that does not end.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from hangdog_models.ranks import Rank, format_ranks

#: A job must have been without suspicion for so long before a new one counts as another matter. Seconds.
OVER_S = 10.0
#: A job with an overdue rank is looked at closer for so long, and anew before that is over. Seconds.
RECHECK_S, ASKED_AGAIN_S = 15.0, 8.0
#: So many ranks that loop do not work for the others, if they are half of all.
MANY = 3


class Doing(StrEnum):
    """What a rank shows of itself over several seconds; one that shows no sign of a standstill is not named at all."""

    STILL = "still"  # at one and the same line: asleep, or spinning
    LOOPING = "looping"  # at work, and always at one place
    COMPILING = "compiling"
    WRITING = "writing"  # at one place of a checkpoint or of storage, and its bytes move
    WORKING = "working"  # at one place now and at another then
    HELPED = "waiting for its children at work"  # asleep, while processes of its own compute or read for it


@dataclass(frozen=True, slots=True)
class Sign:
    """What a rank does and for how long, in seconds; `overdue`: longer than it ever did at that place, by its own rhythm.

    `crowding` (1 or more): its work takes so many times longer than on free cores, by how long it waits for one.
    `waits`: for other ranks or its device, so that somebody else may be why.
    """

    doing: Doing
    seconds: float
    overdue: bool = False
    place: str = ""
    crowding: float = 1.0
    waits: bool = False


@dataclass(frozen=True, slots=True)
class StallTimeouts:
    """How long the others may wait for a rank that is seen to do something, in seconds.

    Who stands still has the patience of its own rhythm, which its agent knows. What a job was seen to survive at a place is
    in its `PhaseHistory`.
    """

    #: Work at one place: a loop of one function that lasts is a loop that does not end, or garbage collection.
    looping_s: float = 8.0
    #: Compiling in the middle of training; at the start nobody is overdue yet, for no rhythm is known.
    compiling_s: float = 10.0
    #: A checkpoint whose bytes move is being written: the largest shards take minutes.
    writing_s: float = 120.0
    #: One rank that gets on with something while all wait: evaluation, export, logging.
    working_s: float = 60.0
    #: Processes of its own that work for it: loading, compiling, uploading.
    helped_s: float = 60.0
    #: A job that was watched for less has not shown all of its phases: some evaluate or export once a day.
    young_s: float = 86400.0
    #: Anything that gets on is borne for so long at least while the job is young: half of the ten minutes after which
    #: PyTorch's own watchdog ends a job (`TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC` aside, `timeout` of `init_process_group`).
    young_patience_s: float = 300.0
    #: So many times the longest phase seen at that place.
    factor: float = 3.0

    def of(self, doing: Doing) -> float:
        """Seconds that the others may wait for a rank that does this."""
        return {
            Doing.STILL: 0.0,
            Doing.LOOPING: self.looping_s,
            Doing.COMPILING: self.compiling_s,
            Doing.WRITING: self.writing_s,
            Doing.WORKING: self.working_s,
            Doing.HELPED: self.helped_s,
        }[doing]


@dataclass(frozen=True, slots=True)
class Suspicion:
    """A job that seems to stand still, for how long, and why one thinks so."""

    seconds: float
    why: str


def suspect(signs: Mapping[Rank, Sign], going: Iterable[Rank], bears: Callable[[Sign], float]) -> Suspicion | None:
    """Whether a job stands still: its ranks wait, and none that they may wait for has a reason that is borne.

    `going` are ranks that show no sign of a standstill: a job with one of those goes on, as far as anybody can tell.
    `bears` answers for how many seconds the others may wait for a rank that shows this sign.
    """
    waiting = [sign for sign in signs.values() if sign.waits and sign.doing in (Doing.STILL, Doing.LOOPING)]
    awaited = [sign for sign in signs.values() if not (sign.waits and sign.doing in (Doing.STILL, Doing.LOOPING))]
    overdue = [sign.seconds for sign in signs.values() if sign.overdue]
    # Where somebody is seen that the others may wait for, it counts what that one does. Where all wait, the rhythm of each does.
    early = any(sign.doing is Doing.STILL and not sign.overdue for sign in awaited or waiting)
    held_up = [sign.seconds for sign in waiting] if awaited else []
    if early or not (overdue or held_up) or any(True for _ in going):
        return None
    seconds = max(*overdue, *held_up, 0.0)
    # Who is overdue in a loop polls, as in a wait; but one that others wait for, and that waits for nobody, may be at work there.
    # Where half of all, or more, are overdue in a loop, all poll, those too of which it is not known. Where others are seen to
    # wait these may wait for them: one or two may work for all, but hardly half of many.
    polling = [sign for sign in signs.values() if sign.overdue and sign.doing is Doing.LOOPING]
    half_poll = 2 * len(polling) >= len(signs)
    all_poll = half_poll and (not waiting or len(polling) >= MANY)
    for sign in awaited:
        may_poll = sign.doing is Doing.LOOPING and (sign.waits or not waiting or all_poll)
        polls = may_poll and (sign.overdue or all_poll)
        if sign.doing is not Doing.STILL and seconds < bears(replace(sign, overdue=polls)):
            return None
    still = sorted(rank for rank, sign in signs.items() if sign.doing is Doing.STILL)
    words = [f"ranks {format_ranks(still)} stand still for {seconds:.0f} s"] if still else []
    for doing in sorted({sign.doing for sign in signs.values() if sign.doing is not Doing.STILL}):
        ranks = sorted(rank for rank, sign in signs.items() if sign.doing is doing)
        words.append(f"{'ranks' if len(ranks) > 1 else 'rank'} {format_ranks(ranks)} {doing}")
    return Suspicion(seconds, "; ".join(words))
