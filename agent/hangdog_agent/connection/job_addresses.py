"""Finds the job of this machine that a server means, and says what a server calls the jobs of this machine."""

from collections.abc import Iterable, Sequence

from hangdog_agent.capture.capture_rounds import CaptureSeries
from hangdog_agent.capture.process_capture import Tools
from hangdog_agent.connection.session import within
from hangdog_agent.discovery.discover import RankProcesses
from hangdog_agent.discovery.owners import job_key
from hangdog_agent.discovery.watch import LocalJob, Watch, jobs
from hangdog_models.owner import Owner
from hangdog_proto.codec import owners
from hangdog_proto.generated import hangdog_pb2 as pb

#: The longest a server may have us look closer without asking again. Seconds.
RECHECK_S = 60.0


def owner(stated: pb.CaptureOrder | pb.Recheck, here: Iterable[LocalJob] | None) -> Owner:
    """The owner of the job that is meant; of a server that tells none the first job of that name."""
    reported = owners.unpack(stated)
    return (
        reported
        if reported.known
        else next((local.owner for local in here or () if local.name == stated.job), reported)
    )


def recheck_of(stated: pb.Recheck, here: Iterable[LocalJob] | None) -> tuple[str, float, bool]:
    """The key of the job that is to be looked at closer, for how many seconds, and whether its steps were seen elsewhere."""
    return job_key(stated.job, owner(stated, here)), within(stated.seconds, 0.0, RECHECK_S), stated.steps


def series(order: pb.CaptureOrder, watch: Watch, tools: Tools, here: Iterable[LocalJob] | None) -> CaptureSeries:
    """The looks that are ordered at a job of this machine."""
    return CaptureSeries(order.job, watch.see, tools, watch.known(), owner(order, here))


def names(members: Sequence[RankProcesses]) -> dict[str, tuple[str, Owner]]:
    """Name and owner of the jobs of this machine, by their keys."""
    return {job.key: (job.name, job.owner) for job in jobs(members)}
