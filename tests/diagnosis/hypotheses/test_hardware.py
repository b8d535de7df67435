"""Hardware evidence as odds: what counts, what is old, what everybody has, and that repeats add nothing."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hangdog_models.diagnosis.findings import hardware
from hangdog_models.findings import KUBERNETES, SLURM, Finding, Impact
from hangdog_models.ranks import Rank
from hangdog_models.topology import Layout, Topology, build

HOUR, DAY = 3600.0, 86_400.0


def job(machines: int) -> Topology:
    return build(Layout(world_size=2 * machines, ranks_per_machine=2), None)[0]


def found(bearing: Impact, machine: str = "node-0", code: str = "Xid 1", **more: object) -> Finding:
    made = Finding("kernel log", code, bearing, f"{code} says something", machine)
    return replace(made, **more)  # type: ignore[arg-type]


def test_only_what_speaks_against_a_machine_counts_and_the_stronger_the_more() -> None:
    factors = {}
    for bearing in Impact:
        evidence = hardware.weigh([found(bearing)], job(8))
        factors[bearing] = evidence["node-0"].factor if evidence else 1.0
    assert (
        factors.pop(Impact.CONVICTS)
        > factors.pop(Impact.RESET)
        > factors.pop(Impact.SUSPECTS)
        > factors.pop(Impact.SLOWS)
        > 1
    )
    assert set(factors.values()) == {1.0}


def test_a_finding_of_a_rank_is_placed_by_the_topology_and_one_of_nobody_is_passed_over() -> None:
    nowhere = [found(Impact.CONVICTS, ""), found(Impact.CONVICTS, "", rank=Rank(99))]
    (evidence,) = hardware.weigh([*nowhere, found(Impact.CONVICTS, "", rank=Rank(3))], job(8)).values()
    assert (evidence.machine, evidence.impact, evidence.factor) == ("node-1", Impact.CONVICTS, hardware.CONVICTING)


def test_repeats_and_companions_of_one_fault_do_not_multiply() -> None:
    lines = [found(Impact.CONVICTS, code="Xid 149", device=f"d{n}", times=5) for n in range(8)]
    lines += [found(Impact.RESET, code="Xid 154", device="d0")]
    (evidence,) = hardware.weigh(lines, job(8)).values()
    assert evidence.factor == hardware.CONVICTING
    assert evidence.reason.code == "xid" and evidence.reason.text.count("Xid 149") == 1
    assert all(one in evidence.reason.text for one in ("node-0", "Xid 149", "5 times", "7 more", "Xid 154"))


def test_a_second_tool_confirms() -> None:
    both = [
        found(Impact.SUSPECTS, code="Xid 63"),
        found(Impact.SUSPECTS, code="row remap pending", source="nvidia-smi"),
    ]
    (evidence,) = hardware.weigh(both, job(8)).values()
    assert evidence.factor == hardware.SIGN_OF_WEAR * hardware.CONFIRMED_BY_TOOL < hardware.SUSPICIOUS


def test_what_slows_is_proof_of_slowness_and_hardly_of_a_hang() -> None:
    (evidence,) = hardware.weigh([found(Impact.SLOWS)], job(8)).values()
    assert (evidence.factor, evidence.slow_factor) == (hardware.SLOWING, hardware.SLOWING_OF_SLOW)


@pytest.mark.parametrize(
    ("old", "new", "apart", "counts"),
    [
        (Impact.SUSPECTS, Impact.SUSPECTS, HOUR - 1, True),
        (Impact.SUSPECTS, Impact.SUSPECTS, HOUR + 1, False),
        (Impact.SUSPECTS, Impact.CONVICTS, HOUR + 1, False),
        (Impact.CONVICTS, Impact.RESET, HOUR + 1, False),
        (Impact.CONVICTS, Impact.SUSPECTS, HOUR + 1, True),  # still lost in the morning
        (Impact.CONVICTS, Impact.SUSPECTS, DAY + 1, False),
        (Impact.SUSPECTS, Impact.TELLS_NOTHING, DAY, True),  # noise ages nothing
    ],
)
def test_what_is_old_by_the_newest_of_its_clock_is_ignored(
    old: Impact, new: Impact, apart: float, counts: bool
) -> None:
    dated = [found(old, "node-0", "a", at_s=1e9), found(new, "node-1", "b", at_s=1e9 + apart)]
    assert ("node-0" in hardware.weigh(dated, job(8))) is counts
    here = [found(old, "node-0", "a", uptime_s=50.0), found(new, "node-0", "b", uptime_s=50.0 + apart)]
    evidence = hardware.weigh(here, job(8)).get("node-0")
    assert (evidence is not None and "a" in {f.code for f in evidence.findings}) is counts
    elsewhere = [found(old, "node-0", "a", uptime_s=50.0), found(new, "node-1", "b", uptime_s=50.0 + apart)]
    assert "node-0" in hardware.weigh(elsewhere, job(8))  # two machines count from two starts
    other = [found(old, "node-0", "a", at_s=1e9), found(new, "node-1", "b", at_s=1e9 + apart, source="DCGM")]
    assert "node-0" in hardware.weigh(other, job(8))


@pytest.mark.parametrize(
    ("bearing", "machines", "having", "shared"),
    [
        (Impact.SUSPECTS, 8, 5, True), (Impact.SUSPECTS, 8, 4, False), (Impact.SUSPECTS, 2, 2, True), (Impact.SUSPECTS, 1, 1, False),
        (Impact.CONVICTS, 3, 2, False), (Impact.CONVICTS, 3, 3, True), (Impact.CONVICTS, 6, 4, True), (Impact.SLOWS, 3, 2, True),
    ],
)  # fmt: skip
def test_what_most_machines_have_is_no_machines_fault(
    bearing: Impact, machines: int, having: int, shared: bool
) -> None:
    findings = [found(bearing, f"node-{n}") for n in range(having)]
    evidence, common = hardware.weigh(findings, job(machines)), hardware.shared(findings, job(machines))
    assert (not evidence) is shared and bool(common) is shared
    if shared:
        assert f"{having} of {machines} machines" in common[0]
    own = found(Impact.CONVICTS, "node-0", "Xid 79")
    if machines > 1:
        assert "Xid 79" in hardware.weigh([*findings, own], job(machines))["node-0"].reason.text


@pytest.mark.parametrize(
    ("source", "having", "shared"),
    [(SLURM, 3, False), (SLURM, 5, True), (KUBERNETES, 4, True), ("kernel log", 9, False)],
)
def test_many_machines_that_a_scheduler_lists_alike_are_the_clusters_where_nothing_tells_the_jobs(
    source: str, having: int, shared: bool
) -> None:
    """As `sinfo` of a whole cluster does, in elasticluster/elasticluster#272."""
    findings = [found(Impact.RESET, f"gpu-{n}", "node lost", source=source) for n in range(having)]
    nothing = build(Layout(), None)[0]
    assert (not hardware.weigh(findings, nothing)) is shared
    assert any(f"on {having} machines" in words for words in hardware.shared(findings, nothing)) is shared


def test_a_fatal_event_is_not_shared_with_those_who_have_a_harmless_one_of_its_code() -> None:
    fatal, harmless = found(Impact.CONVICTS, "node-0", "Xid 149"), found(Impact.SUSPECTS, "node-1", "Xid 149")
    evidence = hardware.weigh([fatal, harmless], job(2))
    assert (evidence["node-0"].factor, evidence["node-1"].factor) == (hardware.CONVICTING, hardware.SIGN_OF_WEAR)


FINDINGS = st.lists(
    st.builds(
        Finding,
        source=st.sampled_from(["kernel log", "nvidia-smi"]),
        code=st.sampled_from(["Xid 79", "Xid 63", "x"]),
        impact=st.sampled_from(list(Impact)),
        what=st.just("words"),
        machine=st.sampled_from(["node-0", "node-1", "node-2", "elsewhere", ""]),
        rank=st.none() | st.sampled_from([Rank(0), Rank(5)]),
        device=st.sampled_from(["", "0", "1"]),
        at_s=st.none() | st.sampled_from([0.0, 5000.0, 1e6]),
        uptime_s=st.none() | st.sampled_from([0.0, 5000.0]),
    ),
    max_size=20,
)


@given(FINDINGS, st.randoms(use_true_random=False))
def test_the_order_of_findings_does_not_matter_and_no_factor_is_beyond_proof(findings: list[Finding], chance) -> None:  # type: ignore[no-untyped-def]  # fmt: skip
    shuffled = list(findings)
    chance.shuffle(shuffled)
    evidence = hardware.weigh(findings, job(3))
    again = hardware.weigh(shuffled, job(3))
    assert {m: (e.factor, e.impact) for m, e in evidence.items()} == {m: (e.factor, e.impact) for m, e in again.items()}
    for machine, one in evidence.items():
        assert one.machine == machine and 1 < one.factor <= hardware.CONVICTING * hardware.CONFIRMED_BY_TOOL
        assert one.findings and one.reason.text.startswith(one.findings[0].source)


@given(FINDINGS)
def test_seeing_everything_twice_changes_nothing(findings: list[Finding]) -> None:
    once, twice = hardware.weigh(findings, job(3)), hardware.weigh([*findings, *findings], job(3))
    assert {m: (e.factor, e.reason) for m, e in once.items()} == {m: (e.factor, e.reason) for m, e in twice.items()}


@given(FINDINGS)
def test_a_machine_whose_name_changes_changes_name_only(findings: list[Finding]) -> None:
    plain = job(3)
    named = Topology(plain.world_size, plain.groups, {f"z{name}": ranks for name, ranks in plain.machines.items()})
    renamed = [replace(f, machine=f"z{f.machine}" if f.machine else "") for f in findings]
    before, after = hardware.weigh(findings, plain), hardware.weigh(renamed, named)
    assert {f"z{m}": (e.factor, e.impact) for m, e in before.items()} == {
        m: (e.factor, e.impact) for m, e in after.items()
    }


def test_a_date_an_hour_wrong_makes_no_finding_old_where_agents_tell_ages() -> None:
    """One machine's date runs ahead, the other's behind: each has just been seen."""
    ahead = found(Impact.SUSPECTS, "node-0", at_s=DAY + 1.1 * HOUR)
    behind = found(Impact.CONVICTS, "node-1", "Xid 79", at_s=DAY - 1.1 * HOUR)
    lost = found(Impact.CONVICTS, "node-2", "Xid 48", at_s=DAY)
    dated = hardware.weigh([ahead, behind, lost], job(8))
    assert set(dated) == {"node-0", "node-2"}, "by dates alone the one behind is old"
    aged = [replace(one, age_s=float(age)) for age, one in enumerate((ahead, behind, lost))]
    assert set(hardware.weigh(aged, job(8))) == {"node-0", "node-1", "node-2"}
    old = replace(behind, impact=Impact.SUSPECTS, age_s=HOUR + 60.0)
    assert set(hardware.weigh([aged[0], old], job(8))) == {"node-0"}, "an age is an age"
