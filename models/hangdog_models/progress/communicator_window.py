"""How a communicator goes on: as one machine sees it, and as all machines of its job see it together."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Self

from hangdog_models.ranks import Rank

#: A communicator rests once nothing of it was counted for so long: most steps are shorter. Seconds.
RESTS_S = 10.0
#: Machines that are named with their ranks that are behind; of more those ranks are counted.
MOST_BEHIND = 64


@dataclass(frozen=True, slots=True)
class CommunicatorWindow:
    """One communicator on one machine; `ranks` are those of the job that it has here, and `size` is how many it has in all.

    An order says how many collectives a rank has entered. It is None where the counts of ranks cannot be compared.
    """

    #: The library's number for it, the same on all of its ranks.
    communicator: int
    name: str
    size: int
    ranks: tuple[Rank, ...]
    #: Operations that the busiest rank here begins in a second, lately.
    rate: float
    lowest: int | None
    highest: int | None
    #: The ranks here at the lowest order.
    behind: tuple[Rank, ...]
    #: Since anything of it was counted here.
    idle_s: float
    #: Of the oldest operation in flight here; None where none is.
    age_s: float | None = None
    operation: str = ""
    #: Its library tells of completed operations alone (NCCL Inspector), so that one may well be in flight.
    completed_only: bool = False

    @property
    def rests(self) -> bool:
        """Whether nothing of it has moved here for a while."""
        return self.idle_s >= RESTS_S

    @property
    def waits(self) -> bool:
        """Whether it rests inside of an operation."""
        return self.rests and self.age_s is not None and self.age_s >= RESTS_S

    def later(self, seconds: float) -> Self:
        """The same so many seconds later, if nothing else was told meanwhile; of one that moves no more is known."""
        if not self.rests:
            return self
        return replace(self, idle_s=self.idle_s + seconds, age_s=None if self.age_s is None else self.age_s + seconds)


@dataclass(frozen=True, slots=True)
class CommunicatorChanges:
    """What a machine tells of a job's communicators: the windows that changed, and the numbers of those that are `gone`.

    `left_out` counts those that it has no room to tell of.
    """

    windows: tuple[CommunicatorWindow, ...] = ()
    gone: frozenset[int] = frozenset()
    left_out: int = 0

    def within(self, ranks: Collection[Rank]) -> "CommunicatorChanges":
        """Those windows alone that are of no other ranks than these."""
        return replace(self, windows=tuple(one for one in self.windows if set(one.ranks) <= set(ranks)))


class CommunicatorState(StrEnum):
    """How a communicator goes on, the worst first."""

    WAITS = "waits"  # nothing moves on any machine, and a rank is inside of an operation
    RESTS = "rests"  # nothing moves, and no operation is in flight for long
    MOVES = "moves"


@dataclass(frozen=True, slots=True)
class StragglerRanks:
    """The ranks of one machine that are behind in a communicator."""

    machine: str
    ranks: tuple[Rank, ...]


@dataclass(frozen=True, slots=True)
class JobCommunicator:
    """One communicator over all machines that tell of it. `seen` of its `size` ranks are known."""

    communicator: int
    name: str
    size: int
    seen: int
    machines: int
    state: CommunicatorState
    rate: float
    #: Of all ranks that are seen; None where orders cannot be compared, or while it moves: machines tell at different moments.
    lowest: int | None
    highest: int | None
    #: Who is at the lowest order, if others are further: of so many machines at most, and how many ranks in all.
    behind: tuple[StragglerRanks, ...]
    behind_ranks: int
    idle_s: float
    #: The oldest operation in flight, and the machine that has it.
    age_s: float | None
    operation: str
    oldest: str
    #: Of some ranks completed operations alone are known.
    completed_only: bool = False

    @property
    def unseen(self) -> int:
        """Ranks of which nothing is known: their machine has no agent, or their process no ring."""
        return max(0, self.size - self.seen)


def joined(reported: Iterable[tuple[str, CommunicatorWindow]]) -> tuple[JobCommunicator, ...]:
    """The communicators of a job by the windows of its machines: those that wait first, the longest wait before others."""
    by_number: dict[int, list[tuple[str, CommunicatorWindow]]] = {}
    for machine, window in reported:
        by_number.setdefault(window.communicator, []).append((machine, window))
    return tuple(sorted(map(_joined, by_number.values()), key=_urgency))


def _joined(reported: Sequence[tuple[str, CommunicatorWindow]]) -> JobCommunicator:
    windows = [window for _, window in reported]
    rests = all(window.rests for window in windows)
    if not rests:
        state = CommunicatorState.MOVES
    else:
        state = CommunicatorState.WAITS if any(window.waits for window in windows) else CommunicatorState.RESTS
    orders = [(one.lowest, one.highest) for one in windows if one.lowest is not None and one.highest is not None]
    comparable = rests and len(orders) == len(windows)
    lowest, highest = (min(low for low, _ in orders), max(high for _, high in orders)) if comparable else (None, None)
    late = [(machine, one) for machine, one in reported if lowest != highest and one.lowest == lowest]
    behind = [StragglerRanks(machine, one.behind) for machine, one in late]
    in_flight = [(one.age_s, one.operation, machine) for machine, one in reported if one.age_s is not None]
    age_s, operation, oldest = max(in_flight, default=(None, "", ""))
    return JobCommunicator(
        communicator=windows[0].communicator,
        name=max(window.name for window in windows),
        size=max(window.size for window in windows),
        seen=sum(len(window.ranks) for window in windows),
        machines=len(windows),
        state=state,
        rate=max(window.rate for window in windows),
        lowest=lowest,
        highest=highest,
        behind=tuple(behind[:MOST_BEHIND]),
        behind_ranks=sum(len(one.ranks) for one in behind),
        idle_s=min(window.idle_s for window in windows),
        age_s=age_s,
        operation=operation,
        oldest=oldest,
        completed_only=any(window.completed_only for window in windows),
    )


def _urgency(one: JobCommunicator) -> tuple[object, ...]:
    state = list(CommunicatorState).index(one.state)
    waited_s = (one.age_s or 0.0) if one.state is CommunicatorState.WAITS else 0.0
    return state, not one.behind, -waited_s, -one.rate, -one.size, one.communicator
