"""What logs and hardware say by themselves becomes an explanation, as strong as its source and no stronger."""

from dataclasses import replace

import pytest

from hangdog_models.diagnosis.judge import diagnose
from hangdog_models.findings import Finding, Impact
from hangdog_models.ranks import Rank
from hangdog_models.verdict import Kind, StallCause, Verdict
from support.cases.reasons import codes
from support.cases.stories import job, look, snapshot

EIGHT = job(dp=8, per_machine=2)


def said(*findings: Finding) -> Verdict:
    return diagnose(replace(snapshot(), findings=findings), EIGHT)


def finding(bearing: Impact, machine: str = "node-1", **more: object) -> Finding:
    return Finding("kernel log", "Xid 79", bearing, "Xid 79: the GPU has fallen off the bus", machine, **more)  # type: ignore[arg-type]


def test_a_convicted_machine_is_evicted() -> None:
    verdict = said(finding(Impact.CONVICTS))
    assert (verdict.kind, verdict.evict.machines) == (Kind.MACHINE, ("node-1",))
    assert "Xid 79" in verdict.because[0].text


def test_two_convicted_machines_are_both_named() -> None:
    verdict = said(finding(Impact.CONVICTS), finding(Impact.CONVICTS, "node-3"))
    assert verdict.kind is Kind.MACHINE
    assert {suspect.machines for suspect in verdict.suspects} == {("node-1",), ("node-3",)}
    assert verdict.evict.machines == ("node-1", "node-3")


@pytest.mark.parametrize("bearing", [Impact.TELLS_NOTHING, Impact.VICTIM, Impact.SUSPECTS])
def test_what_tells_little_convicts_nobody(bearing: Impact) -> None:
    verdict = said(finding(bearing))
    assert (verdict.kind, verdict.evict.machines) == (Kind.UNDETERMINED, ())


@pytest.mark.parametrize(
    ("bearing", "kind"),
    [(Impact.SLOWS, Kind.SLOW), (Impact.PROGRAM, Kind.SOFTWARE), (Impact.SERVICE, Kind.DEPENDENCY)],
)
def test_each_bearing_has_its_verdict(bearing: Impact, kind: Kind) -> None:
    verdict = said(finding(bearing))
    assert (verdict.kind, verdict.evict.machines) == (kind, ())


@pytest.mark.parametrize("story", [{"0-7": "backward"}, {"0-3": "backward", "4-7": "metrics"}])
def test_who_tells_of_a_path_whose_other_end_is_unknown_is_not_evicted(story: dict[str, str]) -> None:
    """A port whose packets nobody acknowledges: its peer may be at fault as well."""
    told = Finding(
        "InfiniBand", "port errors", Impact.PATH, "errors since the last look: local_ack_timeout_err 3", "node-1"
    )
    verdict = diagnose(replace(snapshot(look(story), look(story)), findings=(told,)), EIGHT)
    assert (verdict.kind, verdict.suspects[0].machines) == (Kind.GROUP, ("node-1",))
    assert verdict.evict.machines == ()
    assert "kept-ends-of-paths" in codes(verdict.because)
    both = replace(told, peers=("node-2",))
    verdict = diagnose(replace(snapshot(look(story), look(story)), findings=(both,)), EIGHT)
    assert verdict.evict.machines == ("node-1", "node-2")


def test_the_program_names_the_odd_ranks_itself() -> None:
    assert said(finding(Impact.PROGRAM, ranks=(Rank(6),))).suspects[0].ranks == (6,)


def test_hardware_decides_between_two_that_stand_outside() -> None:
    story = snapshot(look({"0-3,6-7": "metrics", "4": "user", "5": "user"}))
    pairs = replace(story, findings=(finding(Impact.SUSPECTS, "node-2"),))
    assert diagnose(pairs, EIGHT).suspects[0].machines == ("node-2",)
    before = diagnose(story, EIGHT).suspects[0].probability
    assert diagnose(pairs, EIGHT).suspects[0].probability > before


def test_what_the_launch_did_blames_no_rank_whose_log_tells_of_it() -> None:
    many = Finding("log", "store barrier, too many", Impact.PROGRAM, "16 workers came", rank=Rank(3))
    verdict = said(many)
    assert (verdict.kind, verdict.suspects, verdict.culprit) == (Kind.SOFTWARE, (), None)
    assert "log of rank 3" in verdict.because[0].text


def test_a_rank_that_does_not_run_on_a_convicted_machine_is_not_named_for_it() -> None:
    """A log that lies in a machine's folder may be of a rank that the job places elsewhere."""
    verdict = said(finding(Impact.CONVICTS, rank=Rank(0)))
    assert (verdict.evict.machines, verdict.suspects[0].machines) == (("node-1",), ("node-1",))


def test_the_first_one_is_named_where_nothing_else_is_however_unlikely_it_is() -> None:
    """It is where somebody who has nothing else would begin to look: a worn device beside ranks that all wait, each elsewhere."""
    seen = look({"0,3": "tensor", "1,4-6": "item", "2,7": "stage"})
    worn = replace(finding(Impact.SUSPECTS), code="Xid 63")
    verdict = diagnose(replace(snapshot(seen), findings=(worn,)), EIGHT)
    assert (verdict.kind, verdict.culprit) == (Kind.UNDETERMINED, None)
    assert [suspect.machines for suspect in verdict.suspects] == [("node-1",)]
    assert verdict.suspects[0].probability < 0.002


@pytest.mark.parametrize("bearing", [Impact.PROGRAM, Impact.SLOWS])
def test_what_ended_another_process_of_a_machine_that_waits_explains_nothing(bearing: Impact) -> None:
    held = snapshot(look({"0-4,6-7": "metrics", "5": "user"}), look({"0-4,6-7": "metrics", "5": "user"}))
    alone = diagnose(held, EIGHT)
    for machine in ("node-0", "login01"):
        verdict = diagnose(replace(held, findings=(finding(bearing, machine),)), EIGHT)
        assert (verdict.kind, verdict.suspects[0].ranks) == (alone.kind, (5,)), machine
    there = diagnose(replace(held, findings=(finding(Impact.PROGRAM, "node-2"),)), EIGHT)
    assert there.kind is Kind.SOFTWARE, "the rank that does not wait runs there"


def test_a_machine_that_runs_slower_is_not_cleared_by_its_ranks_being_seen() -> None:
    """All wait alike: nothing tells that the one that is late is elsewhere."""
    held = snapshot(look({"0-7": "metrics"}), look({"0-7": "metrics"}))
    verdict = diagnose(replace(held, findings=(finding(Impact.SLOWS, "node-1"),)), EIGHT)
    assert verdict.causes[StallCause.SLOW] > 0.3
