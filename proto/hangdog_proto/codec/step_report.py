"""The border between the wire's paces of jobs and ours; what an agent says is read suspiciously."""

import math
from collections.abc import Mapping

from hangdog_models.errors import UnreadableEvidence
from hangdog_models.owner import UNKNOWN, Owner
from hangdog_models.planning.slowdown import StepPace
from hangdog_proto.codec import owners
from hangdog_proto.codec.slow_report import MOST_JOBS
from hangdog_proto.codec.stall_signs import LONGEST_S, JobOwners
from hangdog_proto.generated import hangdog_pb2 as pb


def pack(paces: Mapping[str, StepPace], job_owners: JobOwners) -> pb.StepReport:
    """Writes the pace of each job; `job_owners` tells its name and owner where a job is known by another key."""
    owned = [(*job_owners.get(key, (key, UNKNOWN)), one) for key, one in list(paces.items())[:MOST_JOBS]]
    return pb.StepReport(
        jobs=[
            pb.JobPace(job=job, owner=owners.pack(owner), step_s=one.step_s, age_s=one.age_s)
            for job, owner, one in owned
        ]
    )


def unpack(report: pb.StepReport) -> dict[tuple[str, Owner], StepPace]:
    """Reads what `pack` wrote, by name and owner; raises UnreadableEvidence on what cannot be, or is too much."""
    if len(report.jobs) > MOST_JOBS:
        raise UnreadableEvidence(f"a machine reports the steps of more than {MOST_JOBS} jobs", code="too-many")
    return {(job.job, owners.unpack(job)): _pace(job) for job in report.jobs}


def _pace(job: pb.JobPace) -> StepPace:
    if not all(math.isfinite(one) and 0 <= one <= LONGEST_S for one in (job.step_s, job.age_s)):
        raise UnreadableEvidence("a machine reports an impossible pace of a job", code="out-of-range")
    return StepPace(job.step_s, job.age_s)
