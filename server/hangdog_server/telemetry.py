"""What the server tells of itself while it works: events that are counted, and how long things take.

An event is a member of an enum, so that no label ever takes a value that somebody outside chose: what can be counted is
written down here, in `refusals`, and in the states of incidents and the kinds of verdicts.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from enum import StrEnum
from typing import Protocol


class Agent(StrEnum):
    """How agents come and go."""

    CONNECTED = "connected"
    LOST = "lost"
    STOPPED = "stopped"


class RequestCount(StrEnum):
    """What the server asks agents for."""

    FULL = "full"
    LIGHT = "light"
    NATIVE = "native"


class Recorded(StrEnum):
    """What becomes of a look that an agent took while no server was there."""

    KEPT = "kept"
    AGAIN = "again"
    REFUSED = "refused"
    FAILED = "failed"


class Notified(StrEnum):
    """What becomes of a message to one receiver; one that failed is tried again until it is sent or given up."""

    SENT = "sent"
    FAILED = "failed"
    GIVEN_UP = "given_up"
    LEFT_OUT = "left_out"


class WentOn(StrEnum):
    """A job that stood still went on: had its incident named machines to evict, or had any been taken out of use for it?"""

    BY_ITSELF = "by_itself"
    NAMED = "named"
    ACTED = "acted"


class Origin(StrEnum):
    """Who wanted an incident: each has its own patience, so they are timed apart."""

    SUSPECTED = "suspected"
    ASKED = "asked"
    LIGHT = "light"


class IncidentStage(StrEnum):
    """A part of an incident's way to its verdict."""

    ASKING = "asking"
    GATHERING = "gathering"
    JUDGING = "judging"
    STORING = "storing"


class Delay(StrEnum):
    """What is worth knowing how long it took."""

    SUSPICION = "suspicion"
    LOOP = "loop"


class Telemetry(Protocol):
    """Who hears of it; none of these may fail or wait."""

    def count(self, event: StrEnum, by: int = 1) -> None:
        """Something happened, `by` times."""

    def lasted(self, what: Delay | Origin, seconds: float) -> None:
        """Something took so long; of an Origin, that is its way from the first thought to the stored verdict."""

    def incident(self, name: str, job: str) -> AbstractContextManager[None]:
        """Lasts as long as an incident does."""

    def stage(self, stage: IncidentStage) -> AbstractContextManager[None]:
        """Lasts as long as a stage of the incident that this task leads."""

    def stored(self, step: str) -> AbstractContextManager[None]:
        """Lasts as long as one transaction of the store, named after its function."""


class Silent:
    """Tells nobody."""

    def count(self, event: StrEnum, by: int = 1) -> None: ...

    def lasted(self, what: Delay | Origin, seconds: float) -> None: ...

    def incident(self, name: str, job: str) -> AbstractContextManager[None]:
        return nullcontext()

    def stage(self, stage: IncidentStage) -> AbstractContextManager[None]:
        return nullcontext()

    def stored(self, step: str) -> AbstractContextManager[None]:
        return nullcontext()


class Several:
    """Tells each of several."""

    def __init__(self, all_: Sequence[Telemetry]) -> None:
        self._all = tuple(all_)

    def count(self, event: StrEnum, by: int = 1) -> None:
        for one in self._all:
            one.count(event, by)

    def lasted(self, what: Delay | Origin, seconds: float) -> None:
        for one in self._all:
            one.lasted(what, seconds)

    def incident(self, name: str, job: str) -> AbstractContextManager[None]:
        return _together([one.incident(name, job) for one in self._all])

    def stage(self, stage: IncidentStage) -> AbstractContextManager[None]:
        return _together([one.stage(stage) for one in self._all])

    def stored(self, step: str) -> AbstractContextManager[None]:
        return _together([one.stored(step) for one in self._all])


SILENT = Silent()


@contextmanager
def _together(contexts: Sequence[AbstractContextManager[None]]) -> Iterator[None]:
    with ExitStack() as stack:
        for context in contexts:
            stack.enter_context(context)
        yield
