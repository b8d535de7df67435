"""What the program of a host does next: the steps that it yields."""

from collections.abc import Generator
from dataclasses import dataclass
from typing import TypeAlias

from hangdog_models.ranks import Rank
from worlds.timed.engine.position import Position
from worlds.timed.engine.work import Work


@dataclass(frozen=True, slots=True)
class Run:
    """The host is busy, or sleeps, for some seconds."""

    seconds: float
    at: Position


@dataclass(frozen=True, slots=True)
class Kernel:
    """The host gives a kernel to its device, which takes `seconds`; giving it takes `host_s`."""

    seconds: float
    at: Position
    host_s: float


@dataclass(frozen=True, slots=True)
class Payload:
    """What a collective moves: its name in a flight recorder, the numbers of elements, and their type."""

    name: str
    inputs: tuple[tuple[int, ...], ...] = ((1,),)
    outputs: tuple[tuple[int, ...], ...] = ((1,),)
    dtype: str = "Float"


@dataclass(frozen=True, slots=True)
class Collective:
    """A collective of the rank's group along `dim`, on the device; kernels that follow wait for it unless it is `apart`."""

    dim: str
    payload: Payload
    at: Position
    seconds: float
    host_s: float = 0.0005
    apart: bool = False


@dataclass(frozen=True, slots=True)
class Exchange:
    """Messages to and from single ranks of a group, given to the device as one."""

    dim: str
    payload: Payload
    at: Position
    seconds: float
    sends: tuple[Rank, ...] = ()
    receives: tuple[Rank, ...] = ()
    host_s: float = 0.0006


@dataclass(frozen=True, slots=True)
class HostCollective:
    """A collective in which the host itself waits: gloo, a store, the connection of a communicator."""

    dim: str
    payload: Payload
    at: Position
    seconds: float


@dataclass(frozen=True, slots=True)
class Synchronise:
    """The host waits for one piece of work, or for all that its device was given."""

    at: Position
    work: Work | None = None


@dataclass(frozen=True, slots=True)
class Join:
    """Kernels that follow wait for a collective that was started apart."""

    work: Work | None


@dataclass(frozen=True, slots=True)
class Await:
    """The host waits for a flag, which another process raises."""

    flag: str
    at: Position


@dataclass(frozen=True, slots=True)
class Mark:
    """A phase begins or ends: nothing that anybody sees."""

    name: str


@dataclass(frozen=True, slots=True)
class StepDone:
    """The rank finished a step of training."""

    step: int


@dataclass(frozen=True, slots=True)
class Forever:
    """The host never gets on."""

    at: Position


@dataclass(frozen=True, slots=True)
class Die:
    """The process ends without anybody's knowing."""

    at: Position


Step: TypeAlias = (
    Run | Kernel | Collective | Exchange | HostCollective | Synchronise | Join | Await | Mark | StepDone | Forever | Die
)
#: A program yields steps, and is sent the work that a step gave to the device.
Program: TypeAlias = Generator[Step, Work | None, None]
