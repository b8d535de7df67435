"""From what was gathered to a verdict, and what must be remembered so that it can be judged again."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace

import msgspec

from hangdog_models.actions.action_history import Body
from hangdog_models.findings import Finding
from hangdog_models.owner import written
from hangdog_models.process_groups import with_seen
from hangdog_models.reading.hardware import findings_json
from hangdog_models.snapshot import Snapshot
from hangdog_models.stack import Missing
from hangdog_models.topology import Topology, build
from hangdog_models.verdict import ISOLATES, Act, Eviction, Step, Verdict, VerdictReason
from hangdog_server.incidents.gather import RoundPlan
from hangdog_server.protocol.jobs import AnnouncedJob, Placement, describe

Judge = Callable[[Snapshot, Topology], Verdict]
#: Why no machine is evicted while machines contradict each other.
UNCLEAR = "it has to be clear first whose ranks these are"


def prepared(
    snapshot: Snapshot, job_toml: str, announced: Mapping[str, AnnouncedJob], placed: Placement
) -> tuple[Snapshot, Topology]:
    """The snapshot with its job described, in the layout that people declared or agents announced; misfits are noted."""
    job, layout, odd = describe(snapshot.job.id, job_toml, announced, placed, snapshot.job.stalled_s)
    topology, unfit = build(with_seen(layout, snapshot.counters, snapshot.ras), snapshot.highest_rank())
    account = replace(snapshot.account, notes=(*snapshot.account.notes, *odd, *unfit))
    return replace(snapshot, job=job, account=account), topology


def triage(
    snapshot: Snapshot, job_toml: str, announced: Mapping[str, AnnouncedJob], placed: Placement, judge: Judge
) -> Verdict:
    """Judges what was gathered."""
    return judge(*prepared(snapshot, job_toml, announced, placed))


def without_eviction(verdict: Verdict, conflicts: Collection[str]) -> Verdict:
    """The verdict upon a job about which machines contradict each other: what is seen is told, and no machine is evicted."""
    if not conflicts:
        return verdict
    reported = tuple(
        VerdictReason("machines-contradict", f"machines contradict each other: {conflict}") for conflict in conflicts
    )
    text = f"{', '.join(verdict.evict.machines)} is not evicted: {UNCLEAR}"
    left = VerdictReason("kept-machines-contradict", text)
    because = (*verdict.because, *reported, *([left] if verdict.evict.machines else []))
    if not verdict.evict.machines:
        return replace(verdict, because=because)
    ask = Step(Act.ASK_PEOPLE, (), UNCLEAR)
    others = [step for step in verdict.compared if step.do not in ISOLATES]
    return replace(verdict, because=because, evict=Eviction(), next=(ask, *others))


def remembered(
    plan: RoundPlan,
    job_toml: str,
    announced: Mapping[str, AnnouncedJob],
    gone: Mapping[str, Missing] | None = None,
    findings: Iterable[Finding] = (),
    light: bool = False,
    done: Iterable[str] = (),
    lost: Iterable[str] = (),
    attempt: int = 0,
    first: int = 0,
    bodies: Mapping[str, Body] | None = None,
    conflicts: Iterable[str] = (),
) -> dict[str, object]:
    """All it takes, beside the captures, to judge an incident again, as JSON.

    `gone` says why machines are missing, `findings` what was known of those that did not tell it with their last look.
    `bodies` are the machines that were looked at, as their agents told it before.
    `conflicts` is what machines contradict each other about: nothing is done by itself.
    `done` gave their last answer, `lost` their stream while they captured. `attempt` and `first` are as in `About`.
    """
    return {
        "light": light,
        "rounds": plan.rounds,
        "interval_s": plan.interval_s,
        "patience_s": plan.patience_s,
        "job_toml": job_toml,
        "asked": {machine: _written(announced[machine]) for machine in plan.asked},
        "absent": {machine: _written(announced[machine]) for machine in plan.absent},
        "gone": {machine: msgspec.to_builtins(missing) for machine, missing in (gone or {}).items()},
        "findings": [findings_json.row(finding) for finding in findings],
        "done": sorted(done),
        "lost": sorted(lost),
        "attempt": attempt,
        "first": first,
        "bodies": {machine: [body.boot, body.serial] for machine, body in (bodies or {}).items()},
        "conflicts": list(conflicts),
    }


def _written(local: AnnouncedJob) -> dict[str, object]:
    """As `asdict` does, which copies deeply and takes a second for a large cluster."""
    reported: dict[str, object] = {
        "job": local.job, "ranks": local.ranks, "world_size": local.world_size, "topology": local.topology,
    }  # fmt: skip
    if local.owner.known:
        reported["owner"] = written(local.owner)
    if local.pods:
        reported["pods"] = local.pods
    if local.notes:
        reported["notes"] = local.notes
    if local.switch:
        reported["switch"] = local.switch
    if local.domains:
        reported["domains"] = local.domains
    return reported
