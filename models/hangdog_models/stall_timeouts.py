"""When a stall is worth an investigation: what each rank shows, and how long it is tolerated.

A suspicion is a question, not a verdict. In a stuck job most ranks wait. A wait alone proves nothing: another rank may
be working for all. So the ranks that do not wait decide how long the others' wait is tolerated. A job of which little
is known is tolerated for longer: its first evaluation looks like an endless loop.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from hangdog_models.ranks import Rank, format_ranks

#: A job must be unsuspicious for so many seconds before a new suspicion is another stall episode.
OVER_S = 10.0
#: A job with an overdue rank is watched closely for so many seconds; the request is repeated before that ends.
RECHECK_S, ASKED_AGAIN_S = 15.0, 8.0
#: So many looping ranks do not work for the others, if they are half of all.
MANY = 3


class Doing(StrEnum):
    """What a rank shows over several seconds. A rank without a sign of a stall is not listed at all."""

    STILL = "still"  # at one and the same line: asleep, or spinning
    LOOPING = "looping"  # at work, and always at one call site
    COMPILING = "compiling"
    WRITING = "writing"  # at one call site of a checkpoint or of storage, and its bytes move
    WORKING = "working"  # at different call sites
    HELPED = "waiting for its children at work"  # asleep, while processes of its own compute or read for it


@dataclass(frozen=True, slots=True)
class Sign:
    """What a rank does and for how many seconds.

    - `overdue`: longer than it ever did at that call site, by its own baseline.
    - `crowding`: CPU contention, 1 or more: its work takes so many times longer than on free cores.
    - `waits`: it waits for other ranks or its device, so another may be the cause.
    - `stopped`: a signal has stopped its process (state T). Nothing goes on there until somebody continues it.
    """

    doing: Doing
    seconds: float
    overdue: bool = False
    place: str = ""
    crowding: float = 1.0
    waits: bool = False
    stopped: bool = False


@dataclass(frozen=True, slots=True)
class StallTimeouts:
    """How many seconds the others may wait for a rank that is seen to do something.

    An unchanged rank has the timeout of its own baseline, which its agent knows. Phases that a job went through are in
    its `PhaseHistory`.
    """

    #: Work at one call site: a function that loops for so long is an endless loop, or garbage collection.
    looping_s: float = 8.0
    #: Compiling in the middle of training. At the start no rank is overdue yet, for there is no baseline.
    compiling_s: float = 10.0
    #: A checkpoint whose bytes move is being written: the largest shards take minutes.
    writing_s: float = 120.0
    #: One rank that makes progress while all wait: evaluation, export, logging.
    working_s: float = 60.0
    #: Its own processes work for it: loading, compiling, uploading.
    helped_s: float = 60.0
    #: A job watched for less has not shown all of its phases: some evaluate or export once a day.
    young_s: float = 86400.0
    #: While the job is young, progress is tolerated for at least so long. It is half of the ten minutes after which
    #: PyTorch's own watchdog ends a job (`timeout` of `init_process_group`; `TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC` aside).
    young_patience_s: float = 300.0
    #: So many times the longest phase seen at that call site.
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
    """A job that seems to be stalled, for how long, and why."""

    seconds: float
    why: str


def suspect(signs: Mapping[Rank, Sign], going: Iterable[Rank], bears: Callable[[Sign], float]) -> Suspicion | None:
    """Whether a job is stalled: its ranks wait, and no rank that they may wait for is still tolerated.

    - `going`: ranks without a sign of a stall. With one of these the job goes on.
    - `bears`: the seconds that the others may wait for a rank with this sign.
    """
    waiting = [sign for sign in signs.values() if sign.waits and sign.doing in (Doing.STILL, Doing.LOOPING)]
    awaited = [sign for sign in signs.values() if not (sign.waits and sign.doing in (Doing.STILL, Doing.LOOPING))]
    overdue = [sign.seconds for sign in signs.values() if sign.overdue]
    # Of a stopped rank no baseline need be known. Whoever stays at one call site meanwhile may spin in a wait for it, as MPI does.
    stopped = any(sign.stopped and sign.overdue for sign in signs.values())
    # If there are ranks that the others may wait for, these decide. If all wait, the baseline of each does.
    early = not stopped and any(sign.doing is Doing.STILL and not sign.overdue for sign in awaited or waiting)
    held_up = [sign.seconds for sign in waiting] if awaited else []
    if early or not (overdue or held_up) or any(True for _ in going):
        return None
    seconds = max(*overdue, *held_up, 0.0)
    # A rank overdue in a loop polls, as in a wait. But one that others wait for, and that waits for none, may be at
    # work there. If half of all or more are overdue in a loop, all poll, even those of which it is unknown. If others
    # are seen to wait, these may wait for them: one or two may work for all, but hardly half of many.
    polling = [sign for sign in signs.values() if sign.overdue and sign.doing is Doing.LOOPING]
    half_poll = 2 * len(polling) >= len(signs)
    all_poll = half_poll and (not waiting or len(polling) >= MANY)
    for sign in awaited:
        if stopped and sign.doing is Doing.LOOPING:
            continue
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
