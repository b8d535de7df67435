"""From a snapshot to a verdict: read `investigate` from top to bottom for the whole pipeline, one line a noun."""

from collections.abc import Sequence
from dataclasses import replace

from hangdog_models.diagnosis.clustering.catalogue import clustering
from hangdog_models.diagnosis.findings import (
    event_dates,
    first_exits,
    incident_history,
    library_errors,
    machine_check,
    ras_reports,
    reports,
    wrong_numbers,
)
from hangdog_models.diagnosis.hypotheses import contradiction, outliers
from hangdog_models.diagnosis.hypotheses.explanations import explain
from hangdog_models.diagnosis.hypotheses.scene import Scene
from hangdog_models.diagnosis.observe import activity, call_lines, motion, store_barrier, work, writers
from hangdog_models.diagnosis.observe.motion import Look
from hangdog_models.diagnosis.observe.rank_state_reader import RankStateReader
from hangdog_models.diagnosis.options import DEFAULTS, Options
from hangdog_models.diagnosis.verdict import conclude
from hangdog_models.diagnosis.verdict.case import Case
from hangdog_models.diagnosis.waits import collective_counters, kept_records, positions, profiled, ras_waits, waits
from hangdog_models.findings import Finding, Impact
from hangdog_models.ranks import Rank
from hangdog_models.rules.ruleset import packaged
from hangdog_models.snapshot import Snapshot
from hangdog_models.stack import MERELY_FAILED
from hangdog_models.topology import Topology
from hangdog_models.verdict import Activity, Verdict

#: The code of a process that the kernel killed.
KILLED = "out of memory"


def diagnose(snapshot: Snapshot, topology: Topology, options: Options = DEFAULTS) -> Verdict:
    """Judges a snapshot: the verdict says which machines hold the job up, and why.

    Pure: equal arguments give equal verdicts, in whatever order the evidence came.
    """
    return conclude.conclude(investigate(snapshot, topology, options))


def investigate(snapshot: Snapshot, topology: Topology, options: Options = DEFAULTS) -> Case:
    """Everything that a verdict is drawn from: rank states, waits, and every hypothesis with its odds."""
    rules = packaged()
    topology = machine_check.placed(snapshot, topology)
    snapshot = replace(snapshot, findings=(*snapshot.findings, *library_errors.reported_by_ras(snapshot, topology)))
    snapshot = event_dates.dated(first_exits.with_first_failure(snapshot, topology))
    reader = RankStateReader(rules, topology.groups)
    looks = [reader.look(round_.traces) for round_ in snapshot.rounds]
    got_on = tuple(sorted({*snapshot.got_on, *profiled.moved(snapshot.progress)}))
    worked = work.count(snapshot.rounds, snapshot.interval_s, got_on)
    moved = motion.observe(looks, worked)
    stalled_s = snapshot.job.stalled_s
    if stalled_s is not None and stalled_s >= motion.STATED_S:
        moved = motion.stated(moved, looks, stalled_s)
    seen_s = (moved.rounds - 1) * (snapshot.interval_s or 0.0)
    if seen_s > (stalled_s or motion.STATED_S):  # rounds minutes apart show a stall themselves
        stalled_s = seen_s
    snapshot = kept_records.current(snapshot, stalled_s, worked.stepped)
    last, moved = writers.tell_passing(_last(looks), looks, moved)
    last = store_barrier.tell_late(call_lines.tell_apart(last, moved, topology))
    rings = profiled.count(snapshot.progress, last, topology)
    records = profiled.believed(positions.ordered(snapshot.counters), rings)
    crowd = waits.crowd_of(last, moved, topology) if records or snapshot.ras else frozenset()
    getting_on = moved.moving | moved.travelling
    counted = collective_counters.count(records, last, topology, crowd, getting_on, moved.lasting)
    # A flight recorder shows more than RAS, such as what has ended: RAS adds nothing about its ranks.
    known = {**last, **counted.states}
    counted_groups = frozenset(hold.group for hold in counted.holds)
    ras = ras_waits.hear(snapshot, known, topology, moved, counted_groups, crowd)
    contradictions = contradiction.find(records, counted.holds, last, moved)
    look = conclude.with_absent({**known, **ras.states}, topology, snapshot)
    held = waits.find(look, moved, topology, (*counted.holds, *ras.holds))
    captured = max(sum(state.activity is not Activity.MISSING for state in look.values()), ras.answered)
    clusters = clustering(options.clustering)(look, topology)
    odd = outliers.find(clusters, look, held, topology)
    scene = Scene(
        look,
        held,
        moved,
        topology,
        records,
        clusters,
        odd,
        contradictions,
        captured,
        stalled_s,
        frozenset(snapshot.stood),
    )
    seen = any(state.frames for state in look.values())
    by_reports = ras_reports.weighed(explain(scene), scene, snapshot, once=ras.once)
    found = wrong_numbers.unproven(by_reports, snapshot)
    waiting = _waiting(look, held, topology, snapshot.findings)
    hypotheses = reports.weighed(found, snapshot.findings, topology, seen=seen, waiting=waiting)
    hypotheses = (*hypotheses, *first_exits.explain(snapshot, topology), *wrong_numbers.explain(snapshot, topology))
    hypotheses = (*hypotheses, *library_errors.explain(snapshot, clusters, topology))
    hypotheses = incident_history.weighed(hypotheses, snapshot.past, clusters, snapshot.findings, topology)
    return Case(snapshot, topology, options, rules.name, looks, look, moved, held, hypotheses, clusters, contradictions)


def _waiting(look: Look, held: waits.Waits, topology: Topology, findings: Sequence[Finding]) -> frozenset[str]:
    """The machines of these findings of which each rank waits, where a rank elsewhere holds others up.

    And those that have no rank of the job, where the machines of all ranks are known. And those where a process was killed, while
    each rank was seen: it is none of them.
    """
    named = {finding.machine for finding in findings if finding.machine}
    placed = 0 < topology.world_size <= sum(map(len, topology.machines.values()))
    strangers = {machine for machine in named if topology.machine_called(machine) is None} if placed else set()
    seen = {
        machine: ranks
        for machine in named
        if (ranks := topology.machines.get(machine, ())) and all(rank in look and look[rank].frames for rank in ranks)
    }
    of_others = {one.machine for one in findings if one.impact is Impact.PROGRAM and one.code != KILLED}
    killed = {one.machine for one in findings if one.code == KILLED}
    strangers.update((seen.keys() & killed) - of_others)
    roots = {topology.machine(rank) for rank in held.roots if look[rank].frames}
    if not roots or None in roots:
        return frozenset(strangers)
    waiting = {machine for machine, ranks in seen.items() if all(look[rank].waits for rank in ranks)}
    return frozenset(strangers | (waiting - roots))


def _last(looks: Sequence[Look]) -> Look:
    """The latest state of each rank.

    A round in which a capture merely failed does not hide the state before it. A death does.
    """
    if len(looks) == 1:
        return looks[0]
    latest: dict[Rank, activity.RankState] = {}
    for look in looks:
        for rank, state in look.items():
            if latest.get(rank) is state:
                continue
            failed = state.missing is not None and state.missing.reason in MERELY_FAILED and not state.frames
            if rank not in latest or not failed or not latest[rank].frames:
                latest[rank] = state
    return latest
