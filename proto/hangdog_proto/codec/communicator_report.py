"""The border between the wire's communicators and ours; what an agent says is read suspiciously."""

import math
from collections.abc import Mapping

from hangdog_models.errors import UnreadableEvidence
from hangdog_models.owner import UNKNOWN, Owner
from hangdog_models.progress.communicator_window import CommunicatorChanges, CommunicatorWindow
from hangdog_models.ranks import MAX_RANK, Rank
from hangdog_models.reading.printable import printable
from hangdog_proto.codec import owners
from hangdog_proto.codec.slow_report import MOST_JOBS
from hangdog_proto.codec.stall_signs import LONGEST_S, MOST_RANKS, JobOwners
from hangdog_proto.generated import hangdog_pb2 as pb

#: Communicators that one machine may tell of: eight trainers with rings have places for as many.
MOST_COMMUNICATORS = 512
#: Characters of a communicator's name, and of an operation's.
NAME, OPERATION = 64, 20
#: No device begins more operations in a second.
_MOST_RATE = 1e6


def pack(changes: Mapping[str, CommunicatorChanges], job_owners: JobOwners) -> pb.CommunicatorReport:
    """Writes what is new of each job; `job_owners` tells its name and owner where a job is known by another key."""
    owned = [(*job_owners.get(key, (key, UNKNOWN)), one) for key, one in list(changes.items())[:MOST_JOBS]]
    return pb.CommunicatorReport(
        jobs=[
            pb.JobCommunicators(
                job=job,
                owner=owners.pack(owner),
                changed=map(pack_window, one.windows),
                gone=sorted(one.gone),
                left_out=one.left_out,
            )
            for job, owner, one in owned
        ]
    )


def pack_window(window: CommunicatorWindow) -> pb.CommunicatorWindow:
    """Writes one window. What goes without saying takes no bytes."""
    return pb.CommunicatorWindow(
        communicator=window.communicator,
        name=_cut(window.name, NAME),
        size=window.size,
        ranks=window.ranks,
        rate=window.rate,
        lowest=window.lowest,
        highest=window.highest if window.highest != window.lowest else None,
        behind=window.behind if window.behind != window.ranks else (),
        idle_s=window.idle_s,
        age_s=window.age_s,
        operation=_cut(window.operation, OPERATION),
        completed_only=window.completed_only,
    )


def unpack(report: pb.CommunicatorReport) -> dict[tuple[str, Owner], CommunicatorChanges]:
    """Reads what `pack` wrote, by name and owner; raises UnreadableEvidence on what cannot be, or is too much."""
    if len(report.jobs) > MOST_JOBS:
        raise UnreadableEvidence(f"a machine tells of communicators of more than {MOST_JOBS} jobs", code="too-many")
    most = max(sum(len(job.changed) for job in report.jobs), sum(len(job.gone) for job in report.jobs))
    if most > MOST_COMMUNICATORS:
        raise UnreadableEvidence(f"a machine tells of more than {MOST_COMMUNICATORS} communicators", code="too-many")
    return {
        (job.job, owners.unpack(job)): CommunicatorChanges(
            tuple(map(_window, job.changed)), frozenset(job.gone), job.left_out
        )
        for job in report.jobs
    }


def _window(stated: pb.CommunicatorWindow) -> CommunicatorWindow:
    if len(stated.ranks) > MOST_RANKS or len(stated.behind) > len(stated.ranks):
        raise UnreadableEvidence(
            f"a machine tells of a communicator with more than {MOST_RANKS} ranks", code="too-many"
        )
    age_s = stated.age_s if stated.HasField("age_s") else None
    numbers = [(stated.rate, _MOST_RATE), (stated.idle_s, LONGEST_S), (age_s or 0.0, LONGEST_S)]
    lowest = stated.lowest if stated.HasField("lowest") else None
    highest = stated.highest if stated.HasField("highest") else lowest
    ranks, behind = tuple(map(Rank, stated.ranks)), tuple(map(Rank, stated.behind))
    possible = (
        all(math.isfinite(one) and 0 <= one <= most for one, most in numbers)
        and max(stated.size, *ranks, 0) <= MAX_RANK
        and (highest is None if lowest is None else highest is not None and lowest <= highest)
        and set(behind) <= set(ranks)
    )
    if not possible:
        raise UnreadableEvidence("a machine tells of an impossible communicator", code="out-of-range")
    return CommunicatorWindow(
        communicator=stated.communicator,
        name=printable(stated.name, NAME),
        size=stated.size,
        ranks=ranks,
        rate=stated.rate,
        lowest=lowest,
        highest=highest,
        behind=(behind or ranks) if lowest is not None else (),
        idle_s=stated.idle_s,
        age_s=age_s,
        operation=printable(stated.operation, OPERATION),
        completed_only=stated.completed_only,
    )


def _cut(text: str, most: int) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")[:most]
