"""The raw stacks of all ranks, each different one once: ranks that look alike in everything but their numbers are one kind."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hangdog_models.diagnosis.observe.activity import main_thread
from hangdog_models.ranks import Rank
from hangdog_models.snapshot import Round
from hangdog_models.stack import TRAINER, Frame, ProcessTrace


@dataclass(frozen=True, slots=True)
class ThreadView:
    """A thread without its id. `stack` is its place in the list of stacks; `main`: it runs the training loop."""

    name: str
    stack: int
    active: bool | None
    gil: bool | None
    main: bool


@dataclass(frozen=True, slots=True)
class ProcessView:
    """A process without its pid: what the kernel says of it, why it could not be seen, its threads."""

    role: str
    state: str
    missing: str
    threads: tuple[ThreadView, ...]


@dataclass(frozen=True, slots=True)
class StackKind:
    """Ranks whose processes all look alike, trainer first."""

    ranks: tuple[Rank, ...]
    processes: tuple[ProcessView, ...]


@dataclass(frozen=True, slots=True)
class Kinds:
    """The kinds, those with most ranks first, and the distinct stacks they name, each outermost first."""

    kinds: tuple[StackKind, ...] = ()
    stacks: tuple[tuple[Frame, ...], ...] = ()

    def trainers(self) -> dict[tuple[Frame, ...], list[Rank]]:
        """The ranks by the stack of the thread that trains; those that have none are left out."""
        found: dict[tuple[Frame, ...], list[Rank]] = {}
        for kind in self.kinds:
            for process in kind.processes:
                main = next((thread for thread in process.threads if thread.main), None)
                if process.role == TRAINER and main is not None and self.stacks[main.stack]:
                    found.setdefault(self.stacks[main.stack], []).extend(kind.ranks)
        return found


def of(rounds: Sequence[Round]) -> Kinds:
    """What the last look that saw stacks of each process shows of it."""
    writer = _Writer()
    processes: dict[Rank, dict[str, ProcessView]] = {}
    for round_ in rounds:
        for trace in round_.traces:
            views = processes.setdefault(trace.rank, {})
            if trace.threads or trace.role not in views or not views[trace.role].threads:
                views[trace.role] = writer.view(trace)
    ranks: dict[tuple[ProcessView, ...], list[Rank]] = {}
    known: dict[tuple[int, ...], tuple[ProcessView, ...]] = {}  # views are shared: by identity, hashing is once a kind
    for rank in sorted(processes):
        views = processes[rank]
        key = tuple(id(views[role]) for role in sorted(views, key=_trainer_first))
        if key not in known:
            known[key] = tuple(views[role] for role in sorted(views, key=_trainer_first))
        ranks.setdefault(known[key], []).append(rank)
    kinds = (StackKind(tuple(them), views) for views, them in ranks.items())
    return Kinds(tuple(sorted(kinds, key=lambda kind: (-len(kind.ranks), kind.ranks[0]))), tuple(writer.stacks))


def _trainer_first(role: str) -> tuple[bool, str]:
    return role != TRAINER, role


class _Writer:
    """Numbers stacks and shares views; what is known by identity lives as long as the snapshot, which outlives this."""

    def __init__(self) -> None:
        self.stacks: dict[tuple[Frame, ...], int] = {}
        self._numbers: dict[int, int] = {}
        self._views: dict[tuple[object, ...], ProcessView] = {}

    def view(self, trace: ProcessTrace) -> ProcessView:
        """The view of a trace, the same object for all traces that are alike."""
        seen = tuple(
            (thread.name or "", self._number(thread.frames), thread.active, thread.gil) for thread in trace.threads
        )
        first = next((at for at, thread in enumerate(trace.threads) if thread.tid and thread.tid == trace.pid), -1)
        state = trace.state
        kernel = (state.state, state.wchan, state.syscall.partition(" ")[0]) if state else None
        key = (trace.role, kernel, trace.missing, seen, first)  # all that the choice of the main thread looks at
        view = self._views.get(key)
        if view is None:
            main = main_thread(trace)
            them = zip(seen, trace.threads, strict=True)
            threads = tuple(ThreadView(*stated, main=thread is main) for stated, thread in them)
            view = ProcessView(trace.role, _kernel_text(kernel), str(trace.missing or ""), threads)
            self._views[key] = view
        return view

    def _number(self, frames: tuple[Frame, ...]) -> int:
        number = self._numbers.get(id(frames))
        if number is None:
            number = self._numbers[id(frames)] = self.stacks.setdefault(frames, len(self.stacks))
        return number


def _kernel_text(kernel: tuple[str, str, str] | None) -> str:
    """`state S, in futex_wait`: what the kernel says, as far as it does."""
    if kernel is None:
        return ""
    state, wchan, syscall = kernel
    parts = (f"state {state}" if state else "", f"in {wchan}" if wchan else "", f"syscall {syscall}" if syscall else "")
    return ", ".join(filter(None, parts))


def shown(
    kinds: Iterable[StackKind], suspected: frozenset[Rank], stacks: Sequence[tuple[Frame, ...]], most: int
) -> list[StackKind]:
    """As many kinds as hold `most` frames in all: those of suspects first, then the largest. Never part of one."""
    found: list[StackKind] = []
    reported: set[int] = set()
    spent = 0
    for kind in sorted(kinds, key=lambda kind: (suspected.isdisjoint(kind.ranks), -len(kind.ranks), kind.ranks[0])):
        fresh = {thread.stack for process in kind.processes for thread in process.threads} - reported
        cost = 1 + sum(len(process.threads) for process in kind.processes) + sum(len(stacks[at]) for at in fresh)
        if spent + cost <= most or not found:
            found.append(kind)
            reported |= fresh
            spent += cost
    return found
