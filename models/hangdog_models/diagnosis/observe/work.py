"""What trainers did between the rounds, by counts of the kernel and of their own progress: CPU time, wakes, steps."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from hangdog_models.ranks import Rank
from hangdog_models.snapshot import Round
from hangdog_models.stack import TRAINER, ProcessState, ProcessTrace

#: A collective that completes frees at least two ranks. One alone may be a torn non-blocking read of its stack.
FREED_AT_LEAST = 2
#: A process works if it used this share of a CPU between two rounds, or so many seconds where the interval is not
#: known. Blocked writers of recorded jobs used 1 % at most, active ones 12 % at least.
WORKED_SHARE, WORKED_S = 0.05, 0.1
#: A thread that reads or writes is woken for each piece. A stuck one is woken by a timer at most, as data loaders are
#: every five seconds. Times a second, and times in all where the interval is not known.
WOKEN_PER_S, WOKEN = 3.0, 10
#: The same of a thread in a read or a write, which only data wakes. A capture that has to stop it wakes it twice.
FED_PER_S = 1.5
#: The same of a thread that sleeps by its own timer: each wake that no capture causes is a sleep that ended. A recorded
#: job's sleeps ended once a second, but ranks at a lock, a reply or a pipe were not woken in five. A retry that waits
#: for minutes ends none.
TICKS_PER_S, TICKS = 0.5, 3


@dataclass(frozen=True, slots=True)
class Work:
    """The ranks whose trainer used CPU between the last two rounds, or was woken again and again.

    - `counted`: ranks whose wakes are known.
    - `stepped`: the job's own progress advanced there.
    - `helped`: other processes of theirs were at work.
    - `working_before`: they used CPU between two rounds of which the later is not the last.
    - `halted`: another process of theirs was stopped by a signal, such as a worker of a data loader.
    - `helpers_too`: CPU seconds between the last two rounds, where only those of all threads are known.
    """

    working: frozenset[Rank] = frozenset()
    woken: frozenset[Rank] = frozenset()
    counted: frozenset[Rank] = frozenset()
    stepped: tuple[Rank, ...] = ()
    helped: frozenset[Rank] = frozenset()
    fed: frozenset[Rank] = frozenset()
    ticking: frozenset[Rank] = frozenset()
    working_before: frozenset[Rank] = frozenset()
    helpers_too: Mapping[Rank, float] = field(default_factory=dict)
    halted: frozenset[Rank] = frozenset()


#: No count is known.
NO_WORK = Work()


def count(rounds: Sequence[Round], interval_s: float | None, got_on: Sequence[Rank] = ()) -> Work:
    """What trainers did between the last two rounds that count it: by the training thread if it is counted, else by all
    threads.

    `got_on`: the ranks whose flight records show that they completed operations.
    """
    counted = {*got_on} if len(got_on) >= FREED_AT_LEAST else set[Rank]()
    halted = _halted(rounds[-1]) if rounds else frozenset()
    if len(rounds) < 2:
        return Work(stepped=tuple(sorted(counted)), halted=halted)
    wakes, by_thread = _spent(rounds, _wakes), _spent(rounds, _ran_s)
    worked, woken = (WORKED_SHARE * interval_s, WOKEN_PER_S * interval_s) if interval_s else (WORKED_S, WOKEN)
    fed, ticks = (FED_PER_S * interval_s, max(TICKS, TICKS_PER_S * interval_s)) if interval_s else (WOKEN, TICKS)
    dozing = {trace.rank for trace in rounds[-1].traces if trace.role == TRAINER and _dozes(trace)}
    return Work(
        frozenset(rank for rank, used in _seconds(rounds).items() if used >= worked),
        frozenset(rank for rank, times in wakes.items() if times >= woken and rank not in dozing),
        frozenset(wakes),
        tuple(sorted(counted.union(rank for rank, times in _spent(rounds, _steps).items() if times > 0))),
        frozenset(rank for rank, used in _of_children(rounds).items() if used >= worked),
        frozenset(rank for rank, times in wakes.items() if times >= fed and rank not in dozing),
        frozenset(rank for rank, times in wakes.items() if times >= ticks and rank in dozing),
        frozenset(
            rank
            for at in range(1, len(rounds) - 1)
            for rank, used in _seconds(rounds[at - 1 : at + 1]).items()
            if used >= worked
        ),
        {rank: used for rank, used in _spent(rounds, _cpu_s).items() if rank not in by_thread},
        halted,
    )


def stepped_between(rounds: Sequence[Round]) -> tuple[bool, ...]:
    """Whether the job's own progress advanced before each of the rounds but the first: that one then shows another step."""
    return tuple(
        any(times > 0 for times in _spent(rounds[at - 1 : at + 1], _steps).values()) for at in range(1, len(rounds))
    )


def _halted(last: Round) -> frozenset[Rank]:
    stopped = (trace for trace in last.traces if trace.state is not None and trace.state.state == "T")
    return frozenset(trace.rank for trace in stopped if trace.role != TRAINER)


def _dozes(trace: ProcessTrace) -> bool:
    return trace.state is not None and "nanosleep" in trace.state.wchan


def _of_children(rounds: Sequence[Round]) -> dict[Rank, float]:
    """The CPU seconds that each rank's other processes used between the last two rounds.

    Processes that began in between are included.
    """
    before = {(trace.rank, trace.pid): _cpu(trace) for trace in rounds[-2].traces if _is_child(trace)}
    spent: dict[Rank, float] = {}
    for trace in rounds[-1].traces:
        if _is_child(trace):
            used = _cpu(trace) - before.get((trace.rank, trace.pid), 0.0)
            spent[trace.rank] = spent.get(trace.rank, 0.0) + max(0.0, used)
    return spent


def _cpu(trace: ProcessTrace) -> float:
    return (trace.state.cpu_s if trace.state is not None else None) or 0.0


def _is_child(trace: ProcessTrace) -> bool:
    return trace.role != TRAINER and trace.state is not None


def _ran_s(state: ProcessState) -> float | None:
    return state.ran_s


def _wakes(state: ProcessState) -> float | None:
    return state.wakes


def _steps(state: ProcessState) -> float | None:
    return state.steps


def _cpu_s(state: ProcessState) -> float | None:
    return state.cpu_s


def _seconds(rounds: Sequence[Round]) -> dict[Rank, float]:
    """The CPU seconds of each trainer between the last two rounds: of the training thread if known, else of all."""
    return {**_spent(rounds, _cpu_s), **_spent(rounds, _ran_s)}


def _spent(rounds: Sequence[Round], count: Callable[[ProcessState], float | None]) -> dict[Rank, float]:
    """The growth of one count of each trainer between the last two rounds that have it."""
    last: dict[Rank, float] = {}
    spent: dict[Rank, float] = {}
    for round_ in reversed(rounds):
        for trace in round_.traces:
            now = count(trace.state) if trace.state is not None and trace.role == TRAINER else None
            if now is None or trace.rank in spent:
                continue
            if trace.rank in last:
                spent[trace.rank] = last[trace.rank] - now
            else:
                last[trace.rank] = now
    return spent
