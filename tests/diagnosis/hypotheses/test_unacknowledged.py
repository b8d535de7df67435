"""Data that trainers send and nobody acknowledges was lost by the network or went to a machine that is gone: no code does that."""

import re
from dataclasses import replace

from hangdog_models.diagnosis.judge import diagnose
from hangdog_models.findings import Finding, Impact, owners_of, with_ends
from hangdog_models.snapshot import Snapshot
from hangdog_models.verdict import Kind, Verdict
from support.cases.reasons import codes, words_of
from support.cases.stories import first, job, look, snapshot

EIGHT = job(dp=8, per_machine=2)


def lost(machine: str, end: str) -> Finding:
    words = f"what rank 7 sends to {end} is not acknowledged: sent again 5 times"
    return Finding("TCP", "TCP unacknowledged", Impact.UNACKNOWLEDGED, words, machine, device=end)


#: The two sides of a network that parted tell of each other.
PARTED = (lost("node-1", "10.0.0.2"), lost("node-3", "10.0.0.1"))


def judged(story: dict[str, str], *findings: Finding) -> Verdict:
    return diagnose(replace(twice(story), findings=findings), EIGHT)


def twice(story: dict[str, str]) -> Snapshot:
    return snapshot(look(story), look(story))


def test_one_rank_ahead_of_a_collective_is_told_from_one_that_skipped_a_call() -> None:
    """A recorded gloo job: the network parted, one rank had had all of the last gradients and went on to the checkpoint."""
    ahead = {"0-6": "backward", "7": "barrier"}
    assert judged(ahead).kind is Kind.SOFTWARE  # stacks alone cannot tell
    verdict = judged(ahead, *PARTED)
    assert (verdict.kind, verdict.evict.machines) == (Kind.GROUP, ()), verdict.because
    lost_by = words_of(verdict.because, "data-unacknowledged")
    assert re.search(r"node-1\b.*\brank 7 .*\b10\.0\.0\.2\b", lost_by), "from where, who, and to whom"
    assert "kept-machine-unknown" in codes(verdict.because)


def test_all_in_one_collective_are_held_up_by_the_network_rather_than_by_code() -> None:
    before, after = judged({"0-7": "metrics"}), judged({"0-7": "metrics"}, *PARTED)
    assert (before.kind, after.kind, after.evict.machines) == (Kind.UNDETERMINED, Kind.GROUP, ())
    assert before.confidence < 0.7
    assert after.confidence > 0.9


def test_of_a_collective_in_lockstep_one_side_tells() -> None:
    """A recorded gloo job: what one half had sent was lost, and the other half had nothing to send before it came."""
    ahead = {"0-6": "backward", "7": "barrier"}
    half = (lost("node-0", "10.0.0.2"), lost("node-1", "10.0.0.2"))
    verdict = judged(ahead, *half)
    assert (verdict.kind, verdict.evict.machines) == (Kind.GROUP, ())
    by_one = judged(ahead, half[0])
    assert by_one.kind is Kind.GROUP
    assert by_one.confidence < verdict.confidence


def test_a_service_of_the_internet_that_is_away_changes_nothing() -> None:
    ahead = {"0-6": "backward", "7": "barrier"}
    tracker = "140.82.112.3"
    for findings in ((lost("node-0", tracker),), (lost("node-0", tracker), lost("node-2", tracker))):
        assert judged(ahead, *findings) == judged(ahead)
    assert judged(ahead, lost("node-0", tracker), lost("node-0", "140.82.112.4")) == judged(ahead)
    assert judged(ahead, lost("node-0", tracker), lost("node-1", "140.82.112.4")).kind is Kind.GROUP
    assert judged(ahead, lost("node-0", "no address")) == judged(ahead)


def test_one_machine_that_tells_of_it_evicts_nobody_whom_stacks_alone_would_not() -> None:
    """A tracker of experiments inside of the cluster may be away while code hangs a tensor parallel group."""
    four = job(tp=2, dp=4, per_machine=1)
    story = snapshot(*[look({"0-1": "tensor", "2-7": "backward"})] * 2)
    alone, told = diagnose(story, four), diagnose(replace(story, findings=(lost("node-0", "10.0.0.9"),)), four)
    assert (alone.evict.machines, told.evict.machines) == ((), ())
    assert told.kind is Kind.GROUP


def test_a_rank_that_stands_outside_is_the_fault_whatever_else_is_lost() -> None:
    verdict = judged({"0-4,6-7": "metrics", "5": "disk"}, *PARTED)
    assert (verdict.kind, first(verdict), verdict.suspects[0].machines) == (Kind.MACHINE, (5,), ("node-2",))


def test_a_machine_that_answers_nobody_is_named_by_those_that_send_to_it() -> None:
    verdict = judged({"0-3,6-7": "metrics", "4-5": "no agent answered"}, *PARTED)
    assert (verdict.kind, verdict.suspects[0].machines) == (Kind.MACHINE, ("node-2",)), verdict.because


def test_the_machine_to_which_alone_what_others_send_is_lost_is_named() -> None:
    """A recorded gloo job: the interface of node-3 was down, and the kernel there counts nothing of what it sends itself."""
    to_it = [replace(lost(machine, "10.0.0.4"), peers=("node-3",)) for machine in ("node-0", "node-2")]
    verdict = judged({"0-7": "metrics"}, *to_it)
    assert (verdict.kind, verdict.suspects[0].machines, verdict.evict.machines) == (Kind.MACHINE, ("node-3",), ())
    assert verdict.because[-1].code == "collect-awaited-ranks" and "node-3 itself" in verdict.because[-1].text
    unknown = judged({"0-7": "metrics"}, lost("node-0", "10.0.0.4"), lost("node-2", "10.0.0.4"))
    assert unknown.kind is Kind.GROUP


def test_the_end_that_all_lost_data_has_in_common_is_named_where_it_tells_of_others_itself() -> None:
    """A recorded gloo job: node-2 sent to the machine that was cut off, which had data for node-0."""
    ring = (
        replace(lost("node-2", "10.0.0.4"), peers=("node-3",)),
        replace(lost("node-3", "10.0.0.1"), peers=("node-0",)),
    )
    verdict = judged({"0-7": "metrics"}, *ring)
    assert (verdict.kind, verdict.suspects[0].machines, verdict.evict.machines) == (Kind.MACHINE, ("node-3",), ())
    assert verdict.because[0].code == "accused-by-several"
    assert re.match(r"node-2 .*\bnode-3\b.*\bnode-3\b", verdict.because[0].text), "each end of node-3 is told"


def test_lost_data_without_an_end_in_common_is_the_networks() -> None:
    apart = (
        replace(lost("node-2", "10.0.0.4"), peers=("node-3",)),
        replace(lost("node-1", "10.0.0.1"), peers=("node-0",)),
    )
    verdict = judged({"0-7": "metrics"}, *apart)
    assert verdict == judged({"0-7": "metrics"}, *(replace(one, peers=()) for one in apart))
    assert verdict.kind is Kind.GROUP


def test_whose_an_address_is_no_machine_says_for_another() -> None:
    owners = owners_of([("a", ("10.0.0.1", "10.0.0.9")), ("b", ("10.0.0.2", "10.0.0.9"))])
    assert owners == {"10.0.0.1": "a", "10.0.0.2": "b"}
    ends = with_ends([lost("a", "10.0.0.2"), lost("a", "10.0.0.9"), lost("a", "10.0.0.1")], owners)
    assert [one.peers for one in ends] == [("b",), (), ()]
