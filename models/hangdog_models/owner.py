"""The owner of a job: the user, Slurm job or pods of its processes, by the kernel of their machine."""

from dataclasses import dataclass
from enum import StrEnum


class OwnerKind(StrEnum):
    """What the owner's `id` is."""

    SLURM = "slurm"  # a Slurm job, by its number: the same on all of its machines
    PODS = "pods"  # the Kubernetes pods in which a user's processes run: their UIDs differ from machine to machine
    USER = "user"  # a user of the machine, outside of both
    UNKNOWN = "unknown"  # the agent reports none: it is an older one, or may not read the kernel's files


@dataclass(frozen=True, slots=True)
class Owner:
    """Two processes have one owner if all three fields are equal.

    `id`: the Slurm job's number, else the user's. `uid`: the user's number on the agent's own machine; None if unknown.
    No field comes from the process itself, neither from its environment nor its command line.
    """

    kind: OwnerKind = OwnerKind.UNKNOWN
    id: str = ""
    uid: int | None = None

    @property
    def known(self) -> bool:
        """Whether the kernel reported an owner."""
        return self.kind is not OwnerKind.UNKNOWN

    @property
    def user(self) -> str:
        """The user over all of their jobs; empty if unknown."""
        return str(self.uid) if self.uid is not None else ""

    def __str__(self) -> str:
        """`slurm-4711`, `pods-0`, `user-1000` or `unknown`, as written after a job's name."""
        return f"{self.kind}-{self.id}" if self.known else str(self.kind)


#: The owner of agents that report none.
UNKNOWN = Owner()


def owner_of(uid: int | None, slurm_job: str, pod: bool) -> Owner:
    """The owner of a process by what the kernel reports; unknown without a user id."""
    if uid is None:
        return UNKNOWN
    if slurm_job:
        return Owner(OwnerKind.SLURM, slurm_job, uid)
    return Owner(OwnerKind.PODS if pod else OwnerKind.USER, str(uid), uid)


def same_owner(one: Owner, other: Owner) -> bool:
    """Whether two claims may be of one owner. An unknown one contradicts none, and proves nothing."""
    return one == other or not (one.known and other.known)


def written(owner: Owner) -> str:
    """An owner as stored: `slurm/4711/1000`; empty for an unknown one."""
    return f"{owner.kind}/{owner.id}/{'' if owner.uid is None else owner.uid}" if owner.known else ""


def read(text: str) -> Owner:
    """Reads what `written` wrote. Raises ValueError for any other text."""
    if not text:
        return UNKNOWN
    kind, owner, uid = text.split("/")
    return Owner(OwnerKind(kind), owner, int(uid) if uid else None)
