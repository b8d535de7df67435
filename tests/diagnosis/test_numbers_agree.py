"""All numbers of a verdict are of one posterior, so that no two of them contradict each other, whatever was captured."""

import re
from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from hangdog_models.collectives import RankCounters, RasCommunicator, RasMember, RasReport, RasStatus
from hangdog_models.diagnosis.judge import diagnose
from hangdog_models.diagnosis.options import Options
from hangdog_models.findings import Finding, Impact
from hangdog_models.ranks import Rank
from hangdog_models.snapshot import Round, Snapshot
from hangdog_models.topology import Topology
from hangdog_models.verdict import Act, Kind, StallCause, Verdict, from_json, to_json
from hangdog_models.views.answer_text import percent
from hangdog_models.views.first_line import headline, steps
from support.cases.stories import STACKS, job, snapshot, trace

EIGHT = range(8)
TOPOLOGIES = {
    "cube": job(tp=2, dp=2, pp=2),
    "flat": job(dp=8, per_machine=1),
    "pair": job(dp=8, per_machine=4),
    "one machine": job(dp=8, per_machine=8),
    "machines unknown": replace(job(dp=8), machines={}),
}
CAUSE = {
    Kind.MACHINE: StallCause.MACHINE,
    Kind.GROUP: StallCause.GROUP,
    Kind.SOFTWARE: StallCause.SOFTWARE,
    Kind.DEPENDENCY: StallCause.DEPENDENCY,
    Kind.SLOW: StallCause.SLOW,
    Kind.NONE: StallCause.HEALTHY,
}
BLAMELESS = {Kind.SOFTWARE, Kind.DEPENDENCY, Kind.NONE, Kind.UNDETERMINED}
CLOSE = 1e-6

#: Where most stand, and where a few do: as in real jobs, and not as in a lottery.
usual = st.sampled_from(["metrics", "backward", "barrier", "gather", "stage", "item", "start", "write", "loader"])
odd = st.sampled_from([*STACKS, "timed out", "exited", "no evidence", "not permitted", "stopped"])
kernel = st.sampled_from(["", "S", "R", "D", "T", "Z"])


@st.composite
def looks(draw: st.DrawFn) -> list[Round]:
    """None to four looks: most ranks at one place, a few elsewhere, some moving, some seen by no look at all."""
    common, others = draw(usual), draw(st.dictionaries(st.integers(0, 7), odd, max_size=3))
    unseen, moving = draw(st.sets(st.integers(0, 7), max_size=2)), draw(st.sets(st.integers(0, 7), max_size=3))
    states = {rank: draw(kernel) for rank in others}
    rounds = []
    for number in range(draw(st.integers(0, 4))):
        traces = [
            trace(rank, others.get(rank, common), state=states.get(rank, ""), shift=number if rank in moving else 0)
            for rank in EIGHT
            if rank not in unseen
        ]
        rounds.append(Round(number, tuple(traces)))
    return rounds


@st.composite
def dumps(draw: st.DrawFn) -> tuple[RankCounters, ...]:
    """Flight recorder dumps of all ranks or of some: most inside of one operation, a few behind it."""
    behind, lost = draw(st.sets(st.integers(0, 7), max_size=3)), draw(st.sets(st.integers(0, 7), max_size=2))
    begun = draw(st.booleans())
    world = {"0": tuple(map(Rank, EIGHT))}
    found = []
    for rank in EIGHT:
        enqueued, completed = (6 if rank in behind else 7), 6
        started = {"0": enqueued} if begun else {}
        if rank not in lost:
            found.append(RankCounters(Rank(rank), {"0": enqueued}, {"0": completed}, (), world, {}, started))
    return tuple(found)


@st.composite
def reports(draw: st.DrawFn) -> tuple[RasReport, ...]:
    """RAS: a few ranks silent, dead or behind."""
    statuses = st.sampled_from([RasStatus.UNRESPONSIVE, RasStatus.DEAD])
    lost = draw(st.dictionaries(st.integers(0, 7), statuses, max_size=3))
    late = draw(st.dictionaries(st.integers(0, 7), st.sampled_from([6600, 6649]), max_size=2))
    members = tuple(
        RasMember(
            rank,
            lost.get(rank, RasStatus.RUNNING),
            f"node-{rank // 2}",
            1000 + rank,
            launched={} if rank in lost else {"": late.get(rank, 6650)},
        )
        for rank in EIGHT
    )
    return (RasReport((RasCommunicator("27a0", 8, members),)),)


findings = st.lists(
    st.builds(
        lambda impact, machine, rank, ranks: Finding(
            "log", f"code {impact}", impact, "it says so", machine, rank, ranks=ranks
        ),
        st.sampled_from(Impact),
        st.sampled_from(["", "node-0", "node-1", "node-3", "elsewhere"]),
        st.none() | st.integers(0, 7).map(Rank),
        st.just(()) | st.sets(st.integers(0, 7).map(Rank), min_size=1, max_size=2).map(lambda one: tuple(sorted(one))),
    ),
    max_size=3,
)


@st.composite
def scenes(draw: st.DrawFn) -> tuple[Snapshot, Topology]:
    """Anything that may be known of a job of eight ranks, one kind of evidence or several."""
    story = replace(
        snapshot(),
        rounds=tuple(draw(looks())),
        counters=draw(dumps()) if draw(st.booleans()) else (),
        ras=draw(reports()) if draw(st.integers(0, 3)) == 0 else (),
        findings=tuple(draw(findings)) if draw(st.booleans()) else (),
    )
    return story, TOPOLOGIES[draw(st.sampled_from(sorted(TOPOLOGIES)))]


@given(scenes())
def test_no_two_numbers_of_a_verdict_contradict_each_other(scene: tuple[Snapshot, Topology]) -> None:
    verdict = diagnose(*scene)
    causes_agree(verdict)
    suspects_agree(verdict)
    eviction_agrees(verdict)
    first_line_agrees(verdict)
    assert to_json(from_json(to_json(verdict))) == to_json(verdict)


def causes_agree(verdict: Verdict) -> None:
    """The kind is the likeliest cause, with its probability; nothing is open beside somebody and a reason that are known."""
    known = {cause: p for cause, p in verdict.causes.items() if cause is not StallCause.UNKNOWN}
    assert abs(sum(verdict.causes.values()) - 1) < CLOSE and all(0 <= p <= 1 + CLOSE for p in verdict.causes.values())
    assert (
        abs(
            verdict.confidence - (verdict.causes[CAUSE[verdict.kind]] if verdict.kind in CAUSE else max(known.values()))
        )
        < CLOSE
    )
    if verdict.kind is Kind.UNDETERMINED:
        assert max(known.values()) < 0.5
        assert (
            verdict.culprit is None
            or verdict.culprit.probability < 0.5
            or max(known.values()) <= verdict.causes[StallCause.UNKNOWN] + CLOSE
        )
    else:
        assert verdict.confidence >= max(known.values()) - CLOSE
        assert verdict.confidence >= 0.5 or (verdict.culprit is not None and verdict.culprit.probability >= 0.5)


def suspects_agree(verdict: Verdict) -> None:
    """Suspects are ordered; no one of them is likelier than whoever holds the job up, whatever the cause."""
    probabilities = [suspect.probability for suspect in verdict.suspects]
    assert probabilities == sorted(probabilities, reverse=True) and all(0 <= p <= 1 for p in probabilities)
    assert verdict.kind is not Kind.UNDETERMINED or all(p < 0.5 for p in probabilities)
    assert all(p <= verdict.confidence + CLOSE for p in probabilities), (
        "a suspect is one way in which the verdict is right"
    )
    found = verdict.culprit
    if found is None:
        return
    assert 0 <= found.probability <= 1 and abs(sum(found.causes.values()) - found.probability) < CLOSE
    assert all(p <= verdict.causes[cause] + CLOSE for cause, p in found.causes.items())
    assert all(p <= found.probability + CLOSE for p in probabilities)


def eviction_agrees(verdict: Verdict) -> None:
    """Whoever is evicted is suspected, and nobody is likelier who is not; it is the first step, and no step of a blameless kind."""
    evicted = set(verdict.evict.machines)
    assert verdict.next and (verdict.next[0].do is Act.EVICT) == bool(evicted)
    assert not evicted or evicted == set(verdict.next[0].machines)
    if not evicted:
        return
    assert verdict.kind not in BLAMELESS and verdict.evict.coverage >= Options().coverage_target
    inside = [suspect for suspect in verdict.suspects if evicted & set(suspect.machines)]
    assert evicted <= {machine for suspect in inside for machine in suspect.machines}
    spared = [suspect.probability for suspect in verdict.suspects if not evicted & set(suspect.machines)]
    assert not spared or max(spared) <= max(suspect.probability for suspect in inside) + CLOSE
    assert verdict.evict.coverage <= verdict.confidence + CLOSE


def first_line_agrees(verdict: Verdict) -> None:
    """The first line names who it is with its probability, evicts as the verdict does, and says nothing of its own."""
    line, found = headline(verdict), verdict.culprit
    assert line.startswith(f"{verdict.kind}: ")
    assert ("Evict nobody" in line or "Don't remove anything yet" in line) == (not verdict.evict.machines)
    shares = {percent(p) for p in stated(verdict)}
    assert set(re.findall(r"[<>]?\d+%", line)) <= shares
    if found is not None and found.probability >= 0.5 and verdict.kind is not Kind.NONE and not verdict.evict.machines:
        assert percent(found.probability) in line
    assert len(list(steps(verdict))) == len([step for step in verdict.next if step.do is not Act.WAIT])


def stated(verdict: Verdict) -> Sequence[float]:
    """All probabilities that a verdict holds."""
    found = verdict.culprit
    of_culprit = [found.probability, *found.causes.values()] if found else []
    suspected = [suspect.probability for suspect in verdict.suspects]
    return [verdict.confidence, verdict.evict.coverage, *verdict.causes.values(), *of_culprit, *suspected]
