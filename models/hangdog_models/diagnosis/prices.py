"""What each step costs a stalled job, in minutes in which its GPUs wait, and how often the step helps."""

from dataclasses import dataclass, fields
from enum import StrEnum
from math import inf, isfinite

from hangdog_models.errors import WrongUse


class IsolationPolicy(StrEnum):
    """How much may be isolated where no smaller set is sure enough."""

    #: Only the smallest set of machines that holds the fault.
    CAREFUL = "careful"
    #: A whole suspected process group, too, where that costs less than to wait for evidence (ByteRobust's
    #: over-eviction).
    RAPID = "rapid"


@dataclass(frozen=True, slots=True)
class Prices:
    """In minutes, unless a row says otherwise. They decide which step comes first, never how probable a cause is."""

    #: Another capture, or a dump of counters. Agents take three rounds in 10 s; a py-spy of every worker takes Ray 25
    #: to 30 s.
    look: float = 0.5
    #: Processes restarted on the same machines: ByteRobust's hot update takes 46 to 65 s (SOSP 2025).
    restart: float = 1.0
    #: The job queued again, on other machines: ByteRobust measures 454 to 768 s for 128 to 1,024 machines.
    requeue: float = 10.0
    #: The job restarted on standby machines: ByteRobust finds that 10.87 times faster than to queue it again.
    standby: float = 1.0
    #: A machine replaced although there is no spare. By judgement, some hours of a shift: published figures are of
    #: pools.
    replacement: float = 240.0
    #: A campaign that tests machines: it ends after 600 s, and DCGM's long run takes about 15 minutes.
    test: float = 10.0
    #: Until a job that was restarted on the fault hangs again and is seen to. Automatic attempts on 504 GPUs were 11
    #: minutes apart (arXiv 2605.09370).
    recurrence: float = 11.0
    #: People who know what to repair, because a stack names the code or the service. By judgement, less than half of
    #: `people`.
    repair: float = 30.0
    #: People who have to find the cause. ByteRobust's incidents that no automatic step solved (NaN) took 4,289 s.
    people: float = 72.0
    #: Lost progress of a sound job that is restarted. By judgement, half of a checkpoint interval of 30 minutes.
    rework: float = 15.0
    #: An innocent machine that is isolated, until it is tested and released. By judgement.
    innocent: float = 60.0
    #: GPUs that cost as much as one person who is called. By judgement: an engineer 100 USD an hour, a GPU 2.50.
    person_gpus: float = 40.0
    #: Share of faults that a restart alone ends. Another attempt settled 22.70 % of ByteRobust's.
    restart_cures: float = 0.227
    #: Share of restarts on a fault after which the ranks that hang again show whether machine or code is at fault. By
    #: judgement, a third: the hang must come back soon.
    restart_tells: float = 0.33
    #: Share of faults that tests find on a faulty machine. EUD finds about 70 % of silent corruption (ByteRobust).
    test_finds: float = 0.7
    #: Share of cases that the collected evidence decides. By judgement: no figure is published.
    look_decides: float = 0.5

    def __post_init__(self) -> None:
        for one in fields(self):
            value, most = getattr(self, one.name), 1.0 if one.name in SHARES else inf
            if not (isfinite(value) and 0 <= value <= most):
                raise WrongUse(f"{value:g} is no price for {one.name}", _hint(one.name), code="wrong-setting")


#: Rows that are shares (0..1), not minutes.
SHARES = frozenset({"restart_cures", "restart_tells", "test_finds", "look_decides"})


def priced(settings: dict[str, float]) -> Prices:
    """The default prices with some of them replaced. Raises WrongUse for an unknown name or an impossible value."""
    names = [one.name for one in fields(Prices)]
    if unknown := [name for name in settings if name not in names]:
        raise WrongUse(
            f"there is no price of the name {unknown[0]!r}", f"there are {', '.join(names)}", code="unknown-setting"
        )
    return Prices(**settings)


def _hint(name: str) -> str:
    return "a share is between 0 and 1" if name in SHARES else "it is 0 or more"


DEFAULTS = Prices()
