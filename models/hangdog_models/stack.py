"""What one process of a job looked like at one moment: frames, threads, kernel state, or why it was not captured.

An incident makes a hundred of these for each machine. msgspec's structs are made seven times as fast as frozen
dataclasses. The garbage collector skips them: immutable objects form no cycles.
"""

from enum import StrEnum

import msgspec

from hangdog_models.progress.device_readings import DeviceReadings
from hangdog_models.ranks import Rank

TRAINER = "trainer"


class Frame(msgspec.Struct, frozen=True, gc=False):
    """One call: `function` as the tool names it, `file` without machine-specific prefix, `line` 0 if unknown.

    `module`: the library of a native frame; None for a Python frame, which distinguishes the two.
    """

    function: str
    file: str
    line: int = 0
    module: str | None = None

    @property
    def native(self) -> bool:
        return self.module is not None


class Thread(msgspec.Struct, frozen=True, gc=False):
    """One thread; `frames` run from the outermost call to the innermost. `active` and `gil` are None if unknown.

    `tid`: the kernel's id. It is 0 if unknown, or if dropped so that ranks with equal threads can share them.
    """

    name: str | None
    tid: int
    frames: tuple[Frame, ...]
    active: bool | None = None
    gil: bool | None = None


class ProcessState(msgspec.Struct, frozen=True, gc=False):
    """What the kernel reports of a process without touching it (`/proc`); empty strings and None mean unknown.

    - `state`: the letter of proc(5): R running, S sleeping, D uninterruptible, T stopped, t traced, Z zombie, X dead.
    - `cpu_s`: CPU seconds of all its threads so far; `ran_s`: those of the training thread.
    - `wakes`: how often the training thread was scheduled. A stuck thread is not.
    - `steps`: how often the job's own progress advanced, by step lines, heartbeat file or counted collectives.
    - `device`: what its device was seen to do inside collectives, by its profiler ring; light rounds bring it.
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
    device: DeviceReadings | None = None


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
    UNREACHABLE = "could not be reached"
    NO_EVIDENCE = "no evidence"


#: Failures of a capture that show nothing about the process.
MERELY_FAILED = frozenset(
    {
        Reason.TOOL_FAILED,
        Reason.TIMED_OUT,
        Reason.NO_EVIDENCE,
        Reason.NOT_PERMITTED,
        Reason.TRACED,
        Reason.NOT_PYTHON,
        Reason.TOOL_MISSING,
        Reason.NOT_SAFE,
        Reason.MOVED,
        Reason.UNREACHABLE,
    }
)


class Missing(msgspec.Struct, frozen=True, gc=False, rename={"message": "words"}):
    """A capture that failed or was reduced, with the tool's own message."""

    reason: Reason
    message: str

    def __str__(self) -> str:
        return f"{self.reason}: {self.message}" if self.message else str(self.reason)


class ProcessTrace(msgspec.Struct, frozen=True, gc=False):
    """All stacks of one process at one moment.

    It may have both `missing` and `threads`: a stopped process is read without attaching, and the reason is kept.
    """

    rank: Rank
    role: str = TRAINER
    pid: int | None = None
    threads: tuple[Thread, ...] = ()
    state: ProcessState | None = None
    missing: Missing | None = None
