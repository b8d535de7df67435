"""Whatever counters, RAS and hardware say beside the stacks, and whatever of it is lost, there is a verdict."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from hangdog_models.collectives import (
    FLIGHT_RECORDER,
    NCCL_LOG,
    WATCHDOG,
    CollectiveRecord,
    RankCounters,
    RasCommunicator,
    RasMember,
    RasReport,
    RasStatus,
)
from hangdog_models.diagnosis.judge import diagnose
from hangdog_models.diagnosis.options import Options
from hangdog_models.findings import Finding, Impact
from hangdog_models.ranks import Rank
from hangdog_models.snapshot import Snapshot
from hangdog_models.verdict import Kind, from_json, to_json
from support.cases.stories import STACKS, job, snapshot, trace

CUBE = job(tp=2, dp=2, pp=2)
#: One more than the job has: evidence may be of another attempt.
RANKS = st.integers(0, 8).map(Rank)
GROUPS = st.sampled_from(["0", "1"])
NUMBERS = st.integers(-1, 4)
ENTRIES = st.builds(
    CollectiveRecord,
    GROUPS,
    st.integers(0, 4),
    st.sampled_from(["all_reduce", "gloo:all_gather", "send 0<-1", "recv 0<-1", "coalesced"]),
    st.booleans(),
    st.sampled_from([(), ((4,),), ((8,),)]),
    p2p=st.booleans(),
    started=st.sampled_from([None, True, False]),
    created_ns=st.integers(0, 3),
    took_ns=st.integers(0, 3),
    apart_ns=st.none() | st.lists(st.tuples(GROUPS, st.integers(0, 3)), max_size=2).map(tuple),
)
COUNTERS = st.builds(
    RankCounters,
    RANKS,
    st.dictionaries(GROUPS, NUMBERS),
    st.dictionaries(GROUPS, NUMBERS),
    st.lists(ENTRIES, max_size=3).map(tuple),
    st.dictionaries(GROUPS, st.lists(RANKS, unique=True).map(sorted).map(tuple)),
    st.just({}),
    st.dictionaries(GROUPS, NUMBERS),
    st.sampled_from([FLIGHT_RECORDER, WATCHDOG, NCCL_LOG]),
)
MEMBERS = st.builds(
    RasMember,
    st.integers(0, 8),
    st.sampled_from(RasStatus),
    st.sampled_from(["", "node-0", "elsewhere"]),
    st.sampled_from([None, 1001, 7]),
    launched=st.dictionaries(st.sampled_from(["", "AllReduce"]), st.integers(0, 3)),
)
REPORTS = st.builds(
    RasReport,
    st.lists(
        st.builds(
            RasCommunicator, st.sampled_from(["0xfeed", "0xbeef"]), st.integers(0, 9), st.lists(MEMBERS).map(tuple)
        ),
        max_size=2,
    ).map(tuple),
    st.lists(MEMBERS, max_size=1).map(tuple),
)
FINDINGS = st.builds(
    Finding,
    st.just("kernel"),
    st.sampled_from(["Xid 79", "Xid 13"]),
    st.sampled_from(Impact),
    st.just("an event"),
    st.sampled_from(["", "node-1", "elsewhere"]),
)
STORIES = st.lists(st.sampled_from([*STACKS, "timed out", "no agent answered", ""]), min_size=8, max_size=8)


@st.composite
def incidents(draw: st.DrawFn) -> Snapshot:
    """Up to two looks, some ranks absent from each, with counters, reports and findings that may contradict them."""
    looks = [
        [trace(rank, place) for rank, place in enumerate(draw(STORIES)) if place]
        for _ in range(draw(st.integers(0, 2)))
    ]
    return replace(
        snapshot(*looks),
        counters=tuple(draw(st.lists(COUNTERS, max_size=9, unique_by=lambda one: (one.rank, one.source)))),
        ras=tuple(draw(st.lists(REPORTS, max_size=1))),
        findings=tuple(draw(st.lists(FINDINGS, max_size=2))),
    )


@given(incidents())
def test_there_is_always_a_verdict_and_it_keeps_the_contract(story: Snapshot) -> None:
    verdict = diagnose(story, CUBE)
    assert 0 <= verdict.confidence <= 1
    assert all(0 <= suspect.probability <= 1 for suspect in verdict.suspects)
    assert not verdict.evict.machines or verdict.kind in (Kind.MACHINE, Kind.GROUP, Kind.SLOW)
    assert not verdict.evict.machines or verdict.evict.coverage >= Options().coverage_target
    assert set(verdict.evict.machines) <= set(CUBE.machines)
    assert to_json(from_json(to_json(verdict))) == to_json(verdict)


@given(incidents())
def test_the_order_in_which_evidence_came_does_not_matter(story: Snapshot) -> None:
    turned = replace(
        story,
        rounds=tuple(replace(round_, traces=round_.traces[::-1]) for round_ in story.rounds),
        counters=story.counters[::-1],
        findings=story.findings[::-1],
    )
    assert to_json(diagnose(turned, CUBE)) == to_json(diagnose(story, CUBE))
