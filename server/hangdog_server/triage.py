"""From what was gathered to what is judged: the snapshot in the layout that people declared or agents announced; pure."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from hangdog_models.snapshot import Snapshot
from hangdog_models.topology import Topology, build
from hangdog_models.verdict import Verdict
from hangdog_server.jobs import LocalJob, Placement, describe

Judge = Callable[[Snapshot, Topology], Verdict]


def prepared(
    snapshot: Snapshot, job_toml: str, announced: Mapping[str, LocalJob], placed: Placement
) -> tuple[Snapshot, Topology]:
    """The snapshot with its job described, and the job's layout; what did not fit is noted."""
    job, layout, odd = describe(snapshot.job.id, job_toml, announced, placed)
    topology, unfit = build(layout, snapshot.highest_rank())
    account = replace(snapshot.account, notes=(*snapshot.account.notes, *odd, *unfit))
    return replace(snapshot, job=job, account=account), topology


def triage(
    snapshot: Snapshot, job_toml: str, announced: Mapping[str, LocalJob], placed: Placement, judge: Judge
) -> Verdict:
    """Judges what was gathered."""
    return judge(*prepared(snapshot, job_toml, announced, placed))
