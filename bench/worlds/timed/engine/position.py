"""Where the host of a rank can be seen."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Position:
    """A place in the code, as keys of frames.json, and what the process does there.

    `native` names the native frames below. `inner` are frames below that it is seen in by turns. `autograd` is where the thread of
    the backward pass is meanwhile. `cpu` are CPU seconds in a second. A rank that `waits` waits for other ranks or for its device.
    """

    frames: str
    native: str = "python"
    state: str = "R"
    wchan: str = "0"
    cpu: float = 1.0
    gil: bool = False
    inner: tuple[str, ...] = ()
    autograd: str = ""
    waits: bool = False


def working(frames: str, *inner: str, cpu: float = 1.0) -> Position:
    """A host that runs Python code."""
    return Position(frames, cpu=cpu, inner=inner)


def device_wait(frames: str, native: str = "sync") -> Position:
    """A host that spins until its device is done."""
    return Position(frames, native, waits=True)


def asleep(frames: str, native: str, cpu: float = 0.0, *, waits: bool = False, state: str = "S") -> Position:
    """A host that sleeps in a call."""
    return Position(frames, native, state, cpu=cpu, waits=waits)
