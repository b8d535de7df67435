"""A session of a job while it lasts: who shows it, and whether it is suspected to stand still."""

from dataclasses import dataclass, field

from hangdog_models.operations.session_histories import SessionStall
from hangdog_server.store.sessions import SessionRow, SessionState


@dataclass(frozen=True, slots=True)
class StallOver:
    """A job was seen to go on, having stood for so many seconds in all, in which it was looked at in these incidents."""

    job: str
    incidents: tuple[str, ...]
    stood_s: float


@dataclass(slots=True, eq=False)
class Still:
    """A suspicion that lasts; `real` once an incident did not deny it, `asked` while one runs. `moved`: at, and now.

    `last` is when it was suspected last, `incidents` in which it was looked at, and `incident` the one for further looks.
    """

    number: int
    since: float
    noticed: float
    asked: bool = False
    real: bool = False
    moved: tuple[float, float] | None = None
    last: float = 0.0
    incidents: list[str] = field(default_factory=list)
    incident: str = ""


@dataclass(slots=True, eq=False)
class JobSession:
    """A session of a job: the machines that show it, and those that did until they fell silent.

    `until` is when it was known to be there last, once no machine shows it (`quiet` since then); `ended`: one said its end.
    """

    id: str
    job: str
    began: float
    start: bool
    here: set[str] = field(default_factory=set)
    away: set[str] = field(default_factory=set)
    until: float = 0.0
    quiet: float | None = None
    ended: bool = False
    state: SessionState = SessionState.OPEN
    stood: int = 0
    still: Still | None = None
    past: list[tuple[int, SessionStall]] = field(default_factory=list)

    @property
    def open(self) -> bool:
        """Whether it is not over, as far as is known."""
        return self.state is SessionState.OPEN

    def row(self, at: float) -> SessionRow:
        """What is to be remembered of it now."""
        until = max(self.began, at if self.quiet is None else self.until)
        stills = [*self.past]
        if self.still is not None and self.still.real:
            stills.append((self.still.number, SessionStall(self.still.since, self.still.noticed)))
        return SessionRow(self.id, self.job, self.began, until, self.start, self.state, tuple(stills))
