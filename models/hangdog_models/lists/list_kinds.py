"""The four lists: by which states each is filtered, and in which orders it is read."""

from dataclasses import dataclass

from hangdog_models.lists.incident_status import IncidentStatus
from hangdog_models.lists.machine_now import MachineCondition
from hangdog_models.views.job_state import JobCondition


@dataclass(frozen=True, slots=True)
class ListKind:
    """One list, by its `name` in addresses. `single` is one line of it; `sorts` are its orders, the first one its own.

    Each order can be turned around: `-name` is `name` from its end. `by_job`: its lines have jobs to be filtered by.
    """

    name: str
    single: str
    states: tuple[str, ...]
    sorts: tuple[str, ...]
    by_job: bool = True


INCIDENTS = ListKind(
    "incidents", "incident", tuple(map(str, IncidentStatus)), ("-began", "changed", "job", "confidence", "verdict")
)
JOBS = ListKind("jobs", "job", tuple(map(str, JobCondition)), ("worst", "name", "machines", "ranks"), by_job=False)
MACHINES = ListKind(
    "machines",
    "machine",
    tuple(map(str, MachineCondition)),
    ("worst", "name", "convicted", "suspected", "weight", "last"),
)
#: In the words of `hangdog_server.store.actions.ActionState`.
ACTIONS = ListKind(
    "actions", "action",
    ("waiting", "refused", "dry-run", "pending", "marked", "done", "failed", "releasing", "released", "dismissed"),
    ("-at", "changed", "machine", "job", "state"),
)  # fmt: skip
LISTS = (INCIDENTS, JOBS, MACHINES, ACTIONS)
