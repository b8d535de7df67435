"""Hypothesis strategies for the nouns: what any well-formed one may hold, hostile text included."""

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from hangdog_models.numbers.wrong_number import WrongNumbers
from hangdog_models.ranks import Rank
from hangdog_models.verdict import (
    Act,
    Activity,
    ClusterView,
    Coverage,
    Culprit,
    Eviction,
    EvidenceReport,
    JobCrash,
    Kind,
    MachineCheck,
    StallCause,
    Step,
    StuckGroup,
    Suspect,
    Verdict,
    VerdictReason,
)

#: Text as evidence may bring it: control characters, direction overrides and lone surrogates among it.
TEXT = st.text(max_size=30) | st.text(st.sampled_from("ab/\x1b[31m\r\n\t\x07\u202e\ud800\u200b[bold]"), max_size=20)
NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12)
SENTENCES = st.lists(TEXT, max_size=3).map(tuple)
REASONS = st.lists(
    st.builds(VerdictReason, st.sampled_from(("", "xid", "waited-for", "seen-before-here")), TEXT), max_size=3
).map(tuple)
PROBABILITIES = st.floats(0, 1)
#: Kinds that may name machines to evict.
EVICTING = (Kind.MACHINE, Kind.GROUP, Kind.SLOW)


def rank_sets(min_size: int = 0) -> SearchStrategy[tuple[Rank, ...]]:
    return st.frozensets(st.integers(0, 70_000), min_size=min_size, max_size=12).map(
        lambda ranks: tuple(Rank(rank) for rank in sorted(ranks))
    )


MACHINES = st.lists(NAMES, unique=True, max_size=6).map(tuple)
CAUSES = st.dictionaries(st.sampled_from(StallCause), PROBABILITIES, max_size=3)
CULPRITS = st.builds(Culprit, rank_sets(), MACHINES, PROBABILITIES, REASONS, CAUSES)
CRASHES = st.builds(JobCrash, st.none() | st.integers(0, 99).map(Rank), TEXT, TEXT)
CHECKS = st.builds(MachineCheck, TEXT, SENTENCES)
NUMBERS = st.builds(
    WrongNumbers,
    TEXT,
    TEXT,
    st.floats(-1e9, 1e9),
    st.none() | st.integers(0, 1 << 53),
    st.none() | st.integers(0, 99).map(Rank),
)
STEPS = st.builds(Step, st.sampled_from([act for act in Act if act is not Act.EVICT]), MACHINES, TEXT)
SUSPECTS = st.builds(Suspect, rank_sets(), MACHINES, PROBABILITIES, REASONS)
GROUPS = st.builds(StuckGroup, TEXT, rank_sets(1), TEXT)
CLUSTERS = st.builds(
    ClusterView,
    st.integers(0, 99),
    rank_sets(1),
    st.sampled_from(Activity),
    st.none() | TEXT,
    TEXT,
    st.lists(TEXT, max_size=5).map(tuple),
)
COVERAGES = st.builds(
    Coverage, st.integers(0, 70_000), st.integers(0, 70_000), rank_sets(), st.dictionaries(TEXT, TEXT, max_size=4)
)
EVIDENCE = st.builds(EvidenceReport, st.integers(0, 99), SENTENCES, st.dictionaries(TEXT, TEXT, max_size=8), SENTENCES)


@st.composite
def verdicts(draw: st.DrawFn) -> Verdict:
    """Any verdict that keeps the contract's one law across fields: eviction only where eviction is an answer."""
    kind = draw(st.sampled_from(Kind))
    eviction = draw(st.builds(Eviction, MACHINES, PROBABILITIES)) if kind in EVICTING else Eviction()
    return Verdict(
        job_id=draw(TEXT),
        world_size=draw(st.integers(0, 70_000)),
        kind=kind,
        confidence=draw(PROBABILITIES),
        because=draw(REASONS),
        suspects=tuple(draw(st.lists(SUSPECTS, max_size=3))),
        evict=eviction,
        groups=tuple(draw(st.lists(GROUPS, max_size=3))),
        clusters=tuple(draw(st.lists(CLUSTERS, max_size=4, unique_by=lambda cluster: cluster.id))),
        coverage=draw(COVERAGES),
        evidence=draw(EVIDENCE),
        rules=draw(TEXT),
        culprit=draw(st.none() | CULPRITS),
        causes=draw(CAUSES),
        next=tuple(draw(st.lists(STEPS, max_size=3))),
        crash=draw(st.none() | CRASHES),
        check=draw(st.none() | CHECKS),
        numbers=draw(st.none() | NUMBERS),
    )
