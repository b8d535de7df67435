"""What each step costs a job that stands still: minutes in which its GPUs wait, and how often the step helps."""

from dataclasses import dataclass, fields
from enum import StrEnum
from math import inf, isfinite

from hangdog_models.errors import WrongUse


class IsolationPolicy(StrEnum):
    """How much may be isolated where no smaller set is sure enough."""

    #: The smallest set of machines that holds the fault, and nobody without it.
    CAREFUL = "careful"
    #: A whole suspected process group, too, where that is cheaper than to wait for evidence (ByteRobust's over-eviction).
    RAPID = "rapid"


@dataclass(frozen=True, slots=True)
class Prices:
    """Minutes, unless it says otherwise. They decide which step comes first, and never how probable anything is."""

    #: Another capture, or a dump of counters: agents look three times in 10 s, and a py-spy of every worker takes Ray 25 to 30 s.
    look: float = 0.5
    #: Processes started anew on the same machines: ByteRobust's hot update takes 46 to 65 s (SOSP 2025).
    restart: float = 1.0
    #: The job queued again, on other machines: ByteRobust measures 454 to 768 s for 128 to 1,024 machines.
    requeue: float = 10.0
    #: The job on standbys that wait: ByteRobust finds that 10.87 times faster than to queue it again.
    standby: float = 1.0
    #: Until a machine is replaced that no spare replaces: by judgement, some hours of a shift; published figures are of pools.
    replacement: float = 240.0
    #: A campaign that tests machines: it ends after 600 s, and DCGM's long run takes about 15 minutes.
    test: float = 10.0
    #: Until a job that was started anew on the fault is seen to hang again, by itself: automatic attempts on 504 GPUs were
    #: 11 minutes apart (arXiv 2605.09370).
    recurrence: float = 11.0
    #: People who know what to repair, for a stack names the code or the service: by judgement, less than half of `people`.
    repair: float = 30.0
    #: People who have to find out: ByteRobust's incidents that no automatic step solved (NaN) took 4,289 s.
    people: float = 72.0
    #: Lost progress of a job that was sound and is started anew: half of a checkpoint interval of 30 minutes, by judgement.
    rework: float = 15.0
    #: An innocent machine out of use: until it is tested and people give it back, by judgement.
    innocent: float = 60.0
    #: GPUs that cost as much as one person who is called: an engineer's 100 USD an hour beside 2.50 for a GPU, by judgement.
    person_gpus: float = 40.0
    #: Share of faults that a restart alone ends: 22.70 % of ByteRobust's were settled by another attempt.
    restart_cures: float = 0.227
    #: Share of restarts on a fault that tell by what hangs again whether the machine or the code is at fault: by judgement, a
    #: third, for it must come back soon.
    restart_tells: float = 0.33
    #: Share of faults that tests find on a guilty machine: EUD finds about 70 % of silent corruption (ByteRobust).
    test_finds: float = 0.7
    #: Share of cases that the evidence asked for decides: by judgement, for nobody publishes it.
    look_decides: float = 0.5

    def __post_init__(self) -> None:
        for one in fields(self):
            value, most = getattr(self, one.name), 1.0 if one.name in SHARES else inf
            if not (isfinite(value) and 0 <= value <= most):
                raise WrongUse(f"{value:g} is no price for {one.name}", _hint(one.name))


#: Those that are shares, and no minutes.
SHARES = frozenset({"restart_cures", "restart_tells", "test_finds", "look_decides"})


def priced(settings: dict[str, float]) -> Prices:
    """The prices with some of them set; raises WrongUse where one has no such name or is impossible."""
    names = [one.name for one in fields(Prices)]
    if unknown := [name for name in settings if name not in names]:
        raise WrongUse(f"there is no price of the name {unknown[0]!r}", f"there are {', '.join(names)}")
    return Prices(**settings)


def _hint(name: str) -> str:
    return "a share is between 0 and 1" if name in SHARES else "it is 0 or more"


DEFAULTS = Prices()
