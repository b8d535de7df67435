"""Whose a job is: the user, Slurm job or pods that its processes belong to, as the kernel of their machine says."""

from dataclasses import dataclass
from enum import StrEnum


class OwnerKind(StrEnum):
    """What the owner's `id` names."""

    SLURM = "slurm"  # a Slurm job, by its number: the same on all of its machines
    PODS = "pods"  # the pods of Kubernetes in which a user's processes run: their UIDs differ from machine to machine
    USER = "user"  # a user of the machine, outside of both
    UNKNOWN = "unknown"  # the agent does not tell: it is an older one, or may not read the kernel's word


@dataclass(frozen=True, slots=True)
class Owner:
    """Two processes belong to one owner where all three are equal.

    `id` is the Slurm job's number, else the user's; `uid` is the user as the agent's own machine numbers them, None where
    it is not known. Nothing of it comes from the process itself: not from its environment, nor its command line.
    """

    kind: OwnerKind = OwnerKind.UNKNOWN
    id: str = ""
    uid: int | None = None

    @property
    def known(self) -> bool:
        """Whether the kernel was asked at all."""
        return self.kind is not OwnerKind.UNKNOWN

    @property
    def user(self) -> str:
        """Who answers for it, over all of their jobs; empty where it is not known."""
        return str(self.uid) if self.uid is not None else ""

    def __str__(self) -> str:
        """`slurm-4711`, `pods-0`, `user-1000` or `unknown`: as it stands behind a job's name."""
        return f"{self.kind}-{self.id}" if self.known else str(self.kind)


#: What agents that tell no owner are taken for.
UNKNOWN = Owner()


def owner_of(uid: int | None, slurm_job: str, pod: bool) -> Owner:
    """The owner of a process by what the kernel says of it; without a user id nothing is known."""
    if uid is None:
        return UNKNOWN
    if slurm_job:
        return Owner(OwnerKind.SLURM, slurm_job, uid)
    return Owner(OwnerKind.PODS if pod else OwnerKind.USER, str(uid), uid)


def same_owner(one: Owner, other: Owner) -> bool:
    """Whether two claims may be of one owner: an unknown one contradicts nobody, and proves nothing."""
    return one == other or not (one.known and other.known)


def written(owner: Owner) -> str:
    """An owner as it is kept: `slurm/4711/1000`; empty for an unknown one."""
    return f"{owner.kind}/{owner.id}/{'' if owner.uid is None else owner.uid}" if owner.known else ""


def read(text: str) -> Owner:
    """Reads what `written` wrote; raises ValueError on anything else."""
    if not text:
        return UNKNOWN
    kind, owner, uid = text.split("/")
    return Owner(OwnerKind(kind), owner, int(uid) if uid else None)
