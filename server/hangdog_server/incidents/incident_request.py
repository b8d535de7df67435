"""What somebody asks for, and what they are told of it."""

from dataclasses import dataclass

from hangdog_server.store.store import IncidentState
from hangdog_server.telemetry import Origin


@dataclass(frozen=True, slots=True)
class IncidentRequest:
    """What somebody asks for; 0 and empty stand for the server's own choice.

    `stood_s`: for how long the job had not got on when it was suspected; 0: nobody says.
    """

    job: str = ""
    rounds: int = 0
    interval_s: float = 0.0
    job_toml: str = ""
    why: str = ""
    light: bool = False
    suspected: bool = False
    stood_s: float = 0.0

    def origin(self) -> Origin:
        """Who wants it, as it is timed."""
        return Origin.LIGHT if self.light else Origin.SUSPECTED if self.suspected else Origin.ASKED


@dataclass(frozen=True, slots=True)
class IncidentStep:
    """One line of an incident's progress; `verdict` (JSON) stands in the last one."""

    incident: str
    state: IncidentState
    text: str
    verdict: str = ""
