"""The border between the wire's slow jobs and ours; what an agent says is read suspiciously."""

import math
from collections.abc import Mapping

from hangdog_models.errors import UnreadableEvidence
from hangdog_models.numbers.work_rate import WorkUnit
from hangdog_models.owner import UNKNOWN, Owner
from hangdog_models.planning.slowdown import Slowdown
from hangdog_proto.codec import owners
from hangdog_proto.codec.stall_signs import LONGEST_S, JobOwners
from hangdog_proto.generated import hangdog_pb2 as pb

#: Jobs one machine may speak of.
MOST_JOBS = 256
#: The shortest time of a step or of a unit of work: no job does so many tokens a second.
SHORTEST_S = 1e-15


def pack(slow: Mapping[str, Slowdown], job_owners: JobOwners) -> pb.SlowReport:
    """Writes how slow each job is; `job_owners` tells its name and owner where a job is known by another key."""
    owned = [(*job_owners.get(key, (key, UNKNOWN)), one) for key, one in slow.items()]
    return pb.SlowReport(
        jobs=[
            pb.SlowJob(
                job=job,
                owner=owners.pack(owner),
                usual_s=one.usual_s,
                step_s=one.step_s,
                seconds=one.seconds,
                by_collectives=one.by_collectives,
                work=one.work or "",
            )
            for job, owner, one in owned
        ]
    )


def unpack(report: pb.SlowReport) -> dict[tuple[str, Owner], Slowdown]:
    """Reads what `pack` wrote, by name and owner; raises UnreadableEvidence on what cannot be, or is too much."""
    if len(report.jobs) > MOST_JOBS:
        raise UnreadableEvidence(f"a machine reports more than {MOST_JOBS} slow jobs", code="too-many")
    return {(job.job, owners.unpack(job)): _slowdown(job) for job in report.jobs}


def _slowdown(job: pb.SlowJob) -> Slowdown:
    times = (job.usual_s, job.step_s, job.seconds)
    if (
        not all(math.isfinite(one) and 0 <= one <= LONGEST_S for one in times)
        or not SHORTEST_S <= job.usual_s < job.step_s
    ):
        raise UnreadableEvidence("a machine reports impossible times of the steps of a job", code="out-of-range")
    try:
        work = WorkUnit(job.work) if job.work else None
    except ValueError as error:
        raise UnreadableEvidence("a machine reports a throughput of no known unit", code="out-of-range") from error
    return Slowdown(*times, job.by_collectives, work)
