"""What the agent's watch would have read of a healthy job, second by second, and the file it is kept in."""

import lzma
from collections.abc import Iterable
from pathlib import Path

import msgspec

from hangdog_models.ranks import Rank
from hangdog_models.stack import TRAINER, Frame, Missing, ProcessState, ProcessTrace, Thread

#: Where recordings lie, one folder a framework and one file a phase.
RECORDINGS = Path(__file__).resolve().parents[2] / "tests" / "recordings" / "healthy"
ENDING = ".json.xz"


class Beat(msgspec.Struct, frozen=True, array_like=True):
    """The counters of one rank at the moment `at` (seconds after the recording began).

    `ran_s`, `queued_s` and `wakes` are those of the thread that trains, `io` its process's bytes, `cpu_s` the processor
    time of the whole process and `below_s` that of all processes below it that live now.
    """

    at: float
    ran_s: float
    queued_s: float
    wakes: int
    io: int | None
    cpu_s: float
    below_s: float


class Look(msgspec.Struct, frozen=True, array_like=True):
    """One look at one process; stacks, states and reasons are numbers of rows in the recording's tables, -1 for none."""

    at: float
    threads: tuple[int, ...]
    state: int
    missing: int
    io: int | None
    cpu_s: float | None = None
    ran_s: float | None = None
    wakes: int | None = None


class Row(msgspec.Struct, frozen=True, array_like=True):
    """A thread as it is kept: its frames are numbers of rows of the table of frames."""

    name: str | None
    tid: int
    frames: tuple[int, ...]
    active: bool | None
    gil: bool | None


class Process(msgspec.Struct, frozen=True):
    """One process of a rank: the looks at it in order."""

    rank: Rank
    role: str
    pid: int
    looks: list[Look]


class Recording(msgspec.Struct, frozen=True):
    """One phase of one framework's job: training, the phase from `begins` to `ends`, training again.

    `began` are the ranks that do the phase. `runnable` counts, second by second, all threads of the machine that wanted to
    run; `steps` is the lowest and the highest step of all ranks then.
    """

    framework: str
    phase: str
    made: str
    doers: tuple[int, ...]
    begins: float
    ends: float
    cores: int
    runnable: list[int]
    steps: list[tuple[int, int]]
    beats: dict[int, list[Beat]]
    processes: list[Process]
    frames: list[Frame]
    threads: list[Row]
    states: list[ProcessState]
    reasons: list[Missing]

    def trace(self, process: Process, look: Look) -> ProcessTrace:
        """What a look showed, as the agent has it."""
        state = None
        if look.state >= 0:
            kept = self.states[look.state]
            state = msgspec.structs.replace(kept, cpu_s=look.cpu_s, ran_s=look.ran_s, wakes=look.wakes)
        missing = self.reasons[look.missing] if look.missing >= 0 else None
        return ProcessTrace(process.rank, process.role, process.pid, self.threads_of(look.threads), state, missing)

    def threads_of(self, numbers: Iterable[int]) -> tuple[Thread, ...]:
        """Rows of the table as threads."""
        rows = (self.threads[number] for number in numbers)
        return tuple(
            Thread(row.name, row.tid, tuple(self.frames[frame] for frame in row.frames), row.active, row.gil)
            for row in rows
        )

    def trainers(self) -> dict[int, Process]:
        """The trainer of each rank."""
        return {one.rank: one for one in self.processes if one.role == TRAINER}


class Tables:
    """The tables of a recording while it is made: each row is written once."""

    def __init__(self) -> None:
        self._frames: dict[Frame, int] = {}
        self._threads: dict[Row, int] = {}
        self._states: dict[ProcessState, int] = {}
        self._reasons: dict[Missing, int] = {}

    def look(self, at: float, trace: ProcessTrace, io: int | None) -> Look:
        """A look, by the numbers of its rows."""
        state = trace.state
        kept = msgspec.structs.replace(state, cpu_s=None, ran_s=None, wakes=None) if state is not None else None
        return Look(
            round(at, 3),
            tuple(self._thread(thread) for thread in trace.threads),
            -1 if kept is None else self._states.setdefault(kept, len(self._states)),
            -1 if trace.missing is None else self._reasons.setdefault(trace.missing, len(self._reasons)),
            io,
            state.cpu_s if state is not None else None,
            state.ran_s if state is not None else None,
            state.wakes if state is not None else None,
        )

    def rows(self) -> tuple[list[Frame], list[Row], list[ProcessState], list[Missing]]:
        """All tables, in the order of their numbers."""
        return list(self._frames), list(self._threads), list(self._states), list(self._reasons)

    def _thread(self, thread: Thread) -> int:
        frames = tuple(self._frames.setdefault(frame, len(self._frames)) for frame in thread.frames)
        row = Row(thread.name, thread.tid, frames, thread.active, thread.gil)
        return self._threads.setdefault(row, len(self._threads))


def place_of(framework: str, phase: str) -> Path:
    """The file of a recording."""
    return RECORDINGS / framework / f"{phase}{ENDING}"


def read(path: Path) -> Recording:
    """A recording from its file."""
    return msgspec.json.decode(lzma.decompress(path.read_bytes()), type=Recording)


def packed(text: str) -> bytes:
    """The written form of a recording as it is kept."""
    return lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME)
