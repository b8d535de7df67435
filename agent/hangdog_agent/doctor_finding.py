"""What `hangdog doctor` says of one thing it examined."""

from dataclasses import dataclass
from enum import StrEnum


class Health(StrEnum):
    """How a finding is to be taken: `warn` limits what can be seen, `fail` means that capture does not work."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    """One thing examined: its name, how it stands, what was found, and what to change (empty when nothing)."""

    name: str
    health: Health
    what: str
    fix: str = ""
