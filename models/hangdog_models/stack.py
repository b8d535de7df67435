"""What one process of a job looked like at one moment: frames, threads, kernel state, or why it could not be seen.

An incident makes a hundred of these for each machine. As msgspec's structures they are made seven times as fast as frozen
dataclasses, and no garbage collection visits them: what never changes is in no circle.
"""

from enum import StrEnum

import msgspec

from hangdog_models.ranks import Rank

TRAINER = "trainer"


class Frame(msgspec.Struct, frozen=True, gc=False):
    """One call: `function` as the tool names it, `file` without machine-specific prefix, `line` 0 when unknown.

    `module` is the library a native frame lives in, and None for a Python frame: it tells the two apart.
    """

    function: str
    file: str
    line: int = 0
    module: str | None = None

    @property
    def native(self) -> bool:
        return self.module is not None


class Thread(msgspec.Struct, frozen=True, gc=False):
    """One thread; `frames` run from the outermost call to the innermost. `active` and `gil` are None when unknown.

    `tid` is the kernel's id of it; 0 when unknown, or not kept so that ranks that look the same may share their threads.
    """

    name: str | None
    tid: int
    frames: tuple[Frame, ...]
    active: bool | None = None
    gil: bool | None = None


class ProcessState(msgspec.Struct, frozen=True, gc=False):
    """What the kernel says of a process without touching it (`/proc`); empty strings and None mean unknown.

    `state` is the letter of proc(5): R running, S sleeping, D uninterruptible, T stopped, t traced, Z zombie, X dead.
    `cpu_s` are seconds of processor time of all its threads so far, `ran_s` those of the thread that trains, and `wakes` how
    often that thread was put on a processor: a thread that is stuck is not. `steps`: how often the job's own progress was seen
    to advance there, by its step lines, its heartbeat file or the collectives that libraries counted.
    """

    pid: int
    state: str
    wchan: str = ""
    syscall: str = ""
    cpu_s: float | None = None
    comm: str = ""
    cmdline: str = ""
    ran_s: float | None = None
    wakes: int | None = None
    steps: int | None = None


class Reason(StrEnum):
    """Why a process could not be captured in full. Absence is evidence, so it is never just dropped."""

    NOT_PERMITTED = "not permitted"
    TRACED = "another tracer attached"
    STOPPED = "stopped"
    UNINTERRUPTIBLE = "uninterruptible sleep"
    ZOMBIE = "zombie"
    EXITED = "exited"
    RESTARTED = "restarted under a new pid"
    TIMED_OUT = "timed out"
    NOT_PYTHON = "not a Python process"
    TOOL_MISSING = "capture tool missing"
    TOOL_FAILED = "capture tool failed"
    NOT_SAFE = "not safe to hold"
    MOVED = "moved while it was read"
    NO_AGENT = "no agent answered"
    NO_EVIDENCE = "no evidence"


#: Failures of a capture that say nothing new of the process.
MERELY_FAILED = frozenset(
    {
        Reason.TOOL_FAILED,
        Reason.TIMED_OUT,
        Reason.NO_EVIDENCE,
        Reason.NOT_PERMITTED,
        Reason.TOOL_MISSING,
        Reason.NOT_SAFE,
        Reason.MOVED,
    }
)


class Missing(msgspec.Struct, frozen=True, gc=False, rename={"message": "words"}):
    """A capture that failed or had to be less than asked for, in the tool's own words."""

    reason: Reason
    message: str

    def __str__(self) -> str:
        return f"{self.reason}: {self.message}" if self.message else str(self.reason)


class ProcessTrace(msgspec.Struct, frozen=True, gc=False):
    """All stacks of one process at one moment.

    `missing` may stand beside `threads`: a stopped process is read without being attached to, and the reason is kept.
    """

    rank: Rank
    role: str = TRAINER
    pid: int | None = None
    threads: tuple[Thread, ...] = ()
    state: ProcessState | None = None
    missing: Missing | None = None
