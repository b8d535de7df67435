"""What a device was given, and what the flight recorder of its process keeps of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from hangdog_models.ranks import Rank
from worlds.timed.engine.position import Position

if TYPE_CHECKING:
    from worlds.timed.engine.host import Host
    from worlds.timed.engine.steps import Payload

#: A message: its group, who sends, who receives, and the how-manieth of the two it is.
Message: TypeAlias = tuple[str, Rank, Rank, int]


@dataclass(eq=False, slots=True)
class Work:
    """A kernel, a collective or an exchange on one device. `blockers`: so much must be done before it starts."""

    host: Host
    stream: str
    seconds: float
    group: str = ""
    number: int = 0
    payload: Payload | None = None
    messages: tuple[Message, ...] = ()
    started: float | None = None
    done: float | None = None
    blockers: int = 0
    then: list[Callable[[], None]] = field(default_factory=list)

    @property
    def kernel(self) -> bool:
        return self.payload is None


@dataclass(frozen=True, slots=True)
class Recorded:
    """One operation as the flight recorder of a process knows it."""

    work: Work
    payload: Payload
    number: int
    message_number: int
    operation: int
    created: float
    at: Position
    on_host: bool = False
    one_to_one: bool = False
