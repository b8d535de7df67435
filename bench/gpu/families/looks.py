"""What reading a trainer brought and cost, as figures, and what of it must not be so."""

import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from hangdog_models.stack import Frame, Missing, Reason, Thread
from hangdog_models.training import training_thread

#: A trainer that is read without being stopped stands still for less, beyond what its loop does by itself. Seconds.
MOST_PAUSE_S = 0.05
#: So many of the reads without stopping may fail, or take longer.
MOST_ODD = 1
#: Innermost native frames shown.
_NATIVE_FRAMES = 6
#: Libraries of NVIDIA's, by a part of their names.
_DEVICE_LIBRARIES = ("libcuda", "libcudart", "libnccl", "libtorch_cuda", "libc10_cuda", "libnvrtc", "libcublas")

Read = tuple[Thread, ...] | Missing


@dataclass(frozen=True, slots=True)
class Taken:
    """One read: how long it took, the longest gap between two turns of the trainer meanwhile, and what was read."""

    seconds: float
    gap: float
    read: Read


@dataclass(slots=True)
class Looks:
    """All reads of a trainer in one call; `alone` are gaps over the same times without a read, `whole` the agent's own looks."""

    nonblocking: list[Taken] = field(default_factory=list)
    alone: list[float] = field(default_factory=list)
    whole: list[Taken] = field(default_factory=list)
    blocking: list[Taken] = field(default_factory=list)
    native: list[Taken] = field(default_factory=list)
    kernel: Counter[str] = field(default_factory=Counter)


def not_permitted(looks: Looks) -> bool:
    reads = [taken.read for taken in looks.nonblocking]
    return bool(reads) and all(isinstance(read, Missing) and read.reason is Reason.NOT_PERMITTED for read in reads)


def wrong_of(looks: Looks, pauses: bool) -> Iterator[str]:
    """What must not be so; `pauses`: on a machine that does nothing else."""
    failures = [taken.read for taken in looks.nonblocking if isinstance(taken.read, Missing)]
    if len(failures) > MOST_ODD:
        yield f"{len(failures)} of {len(looks.nonblocking)} reads without stopping it failed: {failures[0]}"
    own = max(looks.alone, default=0.0)
    held = [taken.gap for taken in looks.nonblocking if taken.gap > own + MOST_PAUSE_S]
    if pauses and len(held) > MOST_ODD:
        yield f"its loop stood still for {_ms(max(held))} ms while it was read without being stopped, {_ms(own)} ms alone"


def figures_of(looks: Looks, pid: int) -> dict[str, Any]:
    """All that was seen of one call; times in milliseconds."""
    read = [taken.read for taken in looks.nonblocking if not isinstance(taken.read, Missing)]
    main = [thread for threads in read if (thread := training_thread(threads, pid)) is not None]
    native = [taken.read for taken in looks.native if not isinstance(taken.read, Missing)]
    stacks = [_native_frames(threads, pid) for threads in native]
    modules = {PurePath(frame.module or "").name for frames in stacks for frame in frames}
    return {
        "nonblocking": f"{len(read)} of {len(looks.nonblocking)}",
        "ms": _spread(taken.seconds for taken in looks.nonblocking),
        "gap ms": _spread(taken.gap for taken in looks.nonblocking),
        "gap alone ms": _spread(looks.alone),
        "top": _most(_top(thread) for thread in main),
        "active": sum(thread.active is True for thread in main),
        "kernel": dict(looks.kernel.most_common(4)),
        "agent's look ms": [_ms(taken.seconds) for taken in looks.whole],
        "blocking ms": [_ms(taken.seconds) for taken in looks.blocking],
        "blocking gap ms": [_ms(taken.gap) for taken in looks.blocking],
        "native ms": [_ms(taken.seconds) for taken in looks.native],
        "native gap ms": [_ms(taken.gap) for taken in looks.native],
        "native frames": [_shown(frame) for frame in stacks[-1][-_NATIVE_FRAMES:]] if stacks else [],
        "libraries": sorted(name for name in modules if name.startswith(_DEVICE_LIBRARIES)),
        "failures": _most(
            str(taken.read)[:200]
            for taken in (*looks.nonblocking, *looks.whole, *looks.blocking, *looks.native)
            if isinstance(taken.read, Missing)
        ),
    }


def _native_frames(threads: Sequence[Thread], pid: int) -> list[Frame]:
    thread = training_thread(threads, pid)
    return [frame for frame in thread.frames if frame.native] if thread is not None else []


def _shown(frame: Frame) -> str:
    """A native frame, its name cut: templates have long ones."""
    return f"{frame.function[:80]} ({PurePath(frame.module or '').name})"


def _top(thread: Thread) -> str:
    python = [frame for frame in thread.frames if not frame.native][-2:]
    return " > ".join(f"{frame.function} ({PurePath(frame.file).name}:{frame.line})" for frame in python)


def _most(words: Iterable[str]) -> dict[str, int]:
    return dict(Counter(words).most_common(3))


def _spread(seconds: Iterable[float]) -> dict[str, float]:
    values = list(seconds)
    return {"median": _ms(statistics.median(values)), "worst": _ms(max(values))} if values else {}


def _ms(seconds: float) -> float:
    return round(1000 * seconds, 2)
