"""Reads the states of all ranks in the rounds of one snapshot, with what holds up a process that a rank waits for."""

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import replace

from msgspec import structs

from hangdog_models.diagnosis.observe import kernel_sleep
from hangdog_models.diagnosis.observe.activity import CHILD, HOLDER, RankState, read
from hangdog_models.diagnosis.observe.helper_threads import of_helper
from hangdog_models.diagnosis.observe.kernel_sleep import KernelWait
from hangdog_models.ranks import Rank
from hangdog_models.rules.ruleset import RuleSet
from hangdog_models.stack import TRAINER, Frame, ProcessTrace, Reason, Thread
from hangdog_models.topology import NARROWER
from hangdog_models.verdict import Activity

#: What a rank that waits for a program it started sleeps for by the kernel, and how the roles of such programs begin.
_OF_A_CHILD = (KernelWait.PIPE, KernelWait.CHILD)
_CHILDREN = "child"
#: How the roles of a data loader's workers begin.
WORKERS = "dataloader"
#: A worker with a frame of this file prepares a batch; without one it waits for an order, which takes a lock as well.
_FETCHES = "torch/utils/data/_utils/fetch.py"
#: What to call a process that prepares batches.
WORKER = "a worker of its data loader"
#: Rules of ranks whose loader has a worker asleep in a batch; and of those where most other ranks' workers sleep there, too.
WORKER_ASLEEP, WORKERS_ASLEEP = "worker asleep", "all workers asleep"


class RankStateReader:
    """Reads the rounds of one snapshot. Ranks with equal evidence share one state, in all rounds."""

    def __init__(self, rules: RuleSet, dims: Container[str] = ()) -> None:
        """`dims`: the parallel dimensions of the job's topology.

        A rule's wider dimension that the job lacks is read as the narrower one.
        """
        self._rules = rules
        self._dims = dims
        self._frames: dict[tuple[Frame, ...], int] = {}
        # keyed by the identity of a tuple of frames or threads: the snapshot keeps all of them alive
        self._number: dict[int, int] = {}
        self._written: dict[int, tuple[int, tuple[int, ...]]] = {}
        self._threads: dict[tuple[object, ...], int] = {}
        # keyed by a trace's raw fields, which compare quickly; below, by what `read` uses of them, which more ranks
        # share
        self._known: dict[tuple[object, ...], RankState] = {}
        self._states: dict[tuple[object, ...], RankState] = {}

    def look(self, traces: Sequence[ProcessTrace]) -> dict[Rank, RankState]:
        """The state of each rank's trainer; of other processes only the child counts that a trainer waits for."""
        found: dict[Rank, RankState] = {}
        for trace in traces:
            if trace.role == TRAINER:
                threads, tids = self._written.get(id(trace.threads)) or self._write(trace.threads)
                state = trace.state
                kernel = (state.state, state.wchan, state.syscall) if state is not None else None
                reported = (threads, trace.pid if tids else None, kernel, trace.missing)
                rank_state = self._known.get(reported)
                if rank_state is None:
                    rank_state = self._known[reported] = self._read(trace)
                found[trace.rank] = rank_state
        asking = {rank for rank, state in found.items() if state.operation == CHILD or state.awaits in _OF_A_CHILD}
        children: dict[Rank, list[ProcessTrace]] = {}
        for trace in traces if asking else ():
            if trace.rank in asking and trace.role.startswith(_CHILDREN):
                children.setdefault(trace.rank, []).append(trace)
        loading = {rank for rank, state in found.items() if state.activity is Activity.DATALOADER}
        workers: dict[Rank, list[ProcessTrace]] = {}
        for trace in traces if loading else ():
            if trace.role.startswith(WORKERS):
                workers.setdefault(trace.rank, []).append(trace)
        held = {
            rank: of_workers(found[rank], workers[rank], self._fetching(workers[rank]))
            for rank in loading & workers.keys()
        }
        if any(state.rule == WORKER_ASLEEP for state in held.values()):
            held = self._asleep_alike(held, workers)
        held |= self._beside_a_holder(traces, found)
        return found | {rank: of_child(found[rank], theirs) for rank, theirs in children.items()} | held

    def _beside_a_holder(
        self, traces: Sequence[ProcessTrace], found: Mapping[Rank, RankState]
    ) -> dict[Rank, RankState]:
        """The states of ranks whose main thread stands where another rank's does, though a thread beside it runs Python.

        Some thread of a tracker, a tokenizer or a checkpoint runs with the lock at any moment. It holds up nobody who waits anyway.
        """
        held = {rank for rank, state in found.items() if state.rule == HOLDER}
        if not held:
            return {}
        own = {trace.rank: self._unlocked(trace) for trace in traces if trace.role == TRAINER and trace.rank in held}
        places = Counter((own.get(rank) or state).place for rank, state in found.items())
        return {rank: state for rank, state in own.items() if places[state.place] > 1}

    def _asleep_alike(
        self, held: Mapping[Rank, RankState], workers: Mapping[Rank, Sequence[ProcessTrace]]
    ) -> dict[Rank, RankState]:
        """The same states, with one more rule: where workers of most ranks sleep at one call site, they ask for one thing.

        The rank that waits for a batch is then merely the first to have used up what was prepared.
        """
        places = {rank: asleep.place for rank, theirs in workers.items() if (asleep := _asleep(self._fetching(theirs)))}
        most = {place for place, ranks in Counter(places.values()).items() if 2 * ranks > len(workers) > 1}
        return {
            rank: replace(state, rule=WORKERS_ASLEEP) if state.rule == WORKER_ASLEEP and places[rank] in most else state
            for rank, state in held.items()
        }

    def _fetching(self, workers: Sequence[ProcessTrace]) -> list[RankState]:
        """The states of the workers that prepare a batch; thousands of workers share few states."""
        found = []
        for worker in workers:
            key = ("worker", *self._key(worker))
            state = self._states.get(key)
            if state is None:
                state = self._states[key] = read(worker, self._rules)
            if any(frame.file.endswith(_FETCHES) for frame in state.frames):
                found.append(state)
        return found

    def _read(self, trace: ProcessTrace) -> RankState:
        key = self._key(trace)
        state = self._states.get(key)
        if state is None:
            state = self._states[key] = self._narrowed(of_helper(read(trace, self._rules), trace, self._rules))
        return state

    def _unlocked(self, trace: ProcessTrace) -> RankState:
        """The state of a trace as if none of its threads ran with the interpreter's lock."""
        key = ("unlocked", *self._key(trace))
        state = self._states.get(key)
        if state is None:
            unlocked = structs.replace(
                trace, threads=tuple(structs.replace(thread, gil=False) for thread in trace.threads)
            )
            state = self._narrowed(of_helper(read(unlocked, self._rules), unlocked, self._rules))
            self._states[key] = state
        return state

    def _narrowed(self, state: RankState) -> RankState:
        if state.dim in NARROWER and state.dim not in self._dims:
            return replace(state, dim=NARROWER[state.dim])
        return state

    def _key(self, trace: ProcessTrace) -> tuple[object, ...]:
        """Everything that `read` uses of a trace: traces with equal keys have equal states."""
        threads, tids = self._written.get(id(trace.threads)) or self._write(trace.threads)
        main = tids.index(trace.pid) if trace.pid in tids else -1
        state = trace.state
        kernel = (state.state, state.wchan, state.syscall.partition(" ")[0]) if state else None
        return threads, main, kernel, trace.missing

    def _write(self, threads: tuple[Thread, ...]) -> tuple[int, tuple[int, ...]]:
        """A number for everything about the threads except their ids, and these ids."""
        key: list[object] = []
        for thread in threads:
            number = self._number.get(id(thread.frames))
            if number is None:
                number = self._frames.setdefault(thread.frames, len(self._frames))
                self._number[id(thread.frames)] = number
            key += (number, thread.name, thread.active, thread.gil)
        tids = tuple(thread.tid for thread in threads)
        written = self._threads.setdefault(tuple(key), len(self._threads)), tids if any(tids) else ()
        self._written[id(threads)] = written
        return written


def of_child(state: RankState, children: Sequence[ProcessTrace]) -> RankState:
    """The state of a rank that waits for a program it started, with what that one waits for.

    One that sleeps uninterruptibly, such as nvidia-smi in a driver, holds the rank up there. Of several programs nothing tells
    which is waited for, and none speaks for the rank.
    """
    if len(children) != 1:
        return state
    child = children[0]
    asleep = _held_by_kernel(child)
    if asleep is None:
        return replace(state, child=_name(child))
    return replace(
        state, activity=asleep, operation=None, awaits=None, label=_name(child), rule="child in the kernel",
        remote_storage=kernel_sleep.remote_storage(child.state), missing=child.missing, writing=kernel_sleep.writing(child.state),
        in_kernel=True,
    )  # fmt: skip


def of_workers(state: RankState, workers: Sequence[ProcessTrace], fetching: Sequence[RankState]) -> RankState:
    """The state of a rank that waits for its data loader, with what holds a worker of that one up.

    `fetching`: the states of its workers that prepare a batch.

    Batches are taken in order, so one worker is enough. One that sleeps uninterruptibly for all of a capture has its storage to
    blame, and one that waits for a lock the code. One that sleeps in a batch, as no read of a disk does, waits for what another
    process gives. What else workers do, a healthy job's do as well.
    """
    for worker in workers:
        asleep = _held_by_kernel(worker)
        if asleep is not None:
            return replace(
                state, activity=asleep, label=WORKER, rule="worker in the kernel", remote_storage=kernel_sleep.remote_storage(worker.state),
                missing=worker.missing, writing=kernel_sleep.writing(worker.state), in_kernel=True,
            )  # fmt: skip
    for at in fetching:
        if at.activity is Activity.LOCK:
            return replace(
                state, activity=Activity.LOCK, label=f"{at.label} of {WORKER}".strip(), rule="worker at a lock"
            )
    sleeper = _asleep(fetching)
    return replace(state, label=sleeper.label, rule=WORKER_ASLEEP) if sleeper is not None else state


def _asleep(fetching: Sequence[RankState]) -> RankState | None:
    """The state of the first worker that sleeps in a batch by the kernel's word, and not for a moment by its own timer."""
    return next((at for at in fetching if at.sleeping and not at.dozing), None)


def _held_by_kernel(trace: ProcessTrace) -> Activity | None:
    """What a process sleeps in that slept uninterruptibly for all of a capture; None of any other."""
    throughout = trace.missing is not None and trace.missing.reason is Reason.UNINTERRUPTIBLE
    return kernel_sleep.activity(trace.state, ()) if throughout and not kernel_sleep.frozen(trace) else None


def _name(child: ProcessTrace) -> str:
    """What to call a program that a rank started: any process chooses its own name."""
    called = child.state.comm[:15] if child.state is not None else ""
    return f"its child process {called} ({child.pid})" if called else "its child process"
