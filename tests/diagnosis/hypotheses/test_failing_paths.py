"""Paths that logs report as failing: the end they have in common, a pair, or the network between all of them."""

import re
from dataclasses import replace

from hangdog_models.collectives import RankCounters
from hangdog_models.diagnosis.judge import diagnose
from hangdog_models.findings import Finding, Impact
from hangdog_models.ranks import Rank
from hangdog_models.verdict import Kind, Verdict
from support.cases.reasons import codes
from support.cases.stories import job, look, snapshot

SIXTEEN = job(dp=16, per_machine=2)  # eight machines, node-0 to node-7


def path(reporter: str, *peers: str) -> Finding:
    return Finding("log", "IB error 12", Impact.PATH, "retries to this peer were exceeded", reporter, peers=peers)


def said(*findings: Finding) -> Verdict:
    return diagnose(replace(snapshot(), findings=findings), SIXTEEN)


def test_the_peer_of_which_three_report_is_named() -> None:
    verdict = said(*(path(reporter, "node-5") for reporter in ("node-0", "node-1", "node-3")))
    assert verdict.kind is Kind.MACHINE and verdict.confidence > 0.8
    assert [suspect.machines for suspect in verdict.suspects] == [("node-5",)]
    assert verdict.because[0].code == "accused-by-several"
    assert re.search(r"\b3 .*node-0, node-1, node-3\b.*\bnode-5\b", verdict.because[0].text)
    assert verdict.evict.machines == () and "kept-hearsay" in codes(verdict.because)


def test_a_peer_of_which_two_report_is_likelier_than_both() -> None:
    verdict = said(path("node-0", "node-5"), path("node-1", "node-5"))
    assert (verdict.kind, verdict.suspects[0].machines) == (Kind.MACHINE, ("node-5",))
    assert verdict.evict.machines == () and verdict.confidence < 0.8


def test_what_the_peer_itself_reports_back_speaks_against_nobody_else() -> None:
    back = [path("node-5", reporter) for reporter in ("node-0", "node-1", "node-3")]
    verdict = said(*back, *(path(reporter, "node-5") for reporter in ("node-0", "node-1", "node-3")))
    assert [suspect.machines for suspect in verdict.suspects] == [("node-5",)]


def test_one_pair_names_both_ends_whoever_tells() -> None:
    verdict = said(path("node-0", "node-5"), path("node-5", "node-0"))
    assert (verdict.kind, verdict.suspects[0].machines) == (Kind.GROUP, ("node-0", "node-5"))
    assert len(verdict.suspects) == 1 and verdict.groups[0].dim == "path"


def test_who_alone_tells_of_many_is_believed() -> None:
    verdict = said(*(path("node-0", peer) for peer in ("node-1", "node-2", "node-3")))
    assert verdict.kind is Kind.GROUP and verdict.evict.machines == ()


def test_paths_without_a_common_end_evict_nobody() -> None:
    ring = [path(f"node-{k}", f"node-{(k + 1) % 8}") for k in range(8)]
    every = [path(f"node-{k}", f"node-{m}") for k in range(4) for m in range(4) if k != m]
    for reports in (ring, every):
        for looks in ((), (look({"0-15": "metrics"}), look({"0-15": "metrics"}))):
            verdict = diagnose(replace(snapshot(*looks), findings=tuple(reports)), SIXTEEN)
            assert verdict.evict.machines == ()
    assert all(said(*reports).because[0].code == "paths-without-common-end" for reports in (ring, every))


def test_an_address_that_no_log_explains_is_still_named() -> None:
    verdict = said(*(path(reporter, "10.0.0.12") for reporter in ("node-0", "node-1", "node-3")))
    assert (verdict.kind, verdict.suspects[0].machines) == (Kind.MACHINE, ("10.0.0.12",))


def test_the_only_machine_that_does_not_report_is_the_address() -> None:
    verdict = said(*(path(f"node-{k}", "10.0.0.12") for k in range(8) if k != 6))
    assert verdict.suspects[0].machines == ("node-6",)


def test_a_peer_whose_own_port_reports_an_error_is_evicted() -> None:
    own = Finding("log", "IB port event", Impact.SUSPECTS, "its own port reported an error", "node-5")
    verdict = said(own, *(path(reporter, "node-5") for reporter in ("node-0", "node-1", "node-3")))
    assert verdict.evict.machines == ("node-5",)


def test_a_peer_whose_own_hardware_says_so_is_evicted() -> None:
    lost = Finding("kernel log", "Xid 79", Impact.CONVICTS, "the GPU is gone", "node-5")
    verdict = said(lost, *(path(reporter, "node-5") for reporter in ("node-0", "node-1", "node-3")))
    assert verdict.evict.machines == ("node-5",)


def test_a_path_to_a_machine_that_is_not_the_job_s_evicts_nobody() -> None:
    error = Finding("kernel log", "Xid 79", Impact.PATH, "a link is gone", "elsewhere")
    counted = [RankCounters(Rank(rank), {}, {}, (), {}, {}, {}, "flight recorder") for rank in range(7)]
    verdict = diagnose(replace(snapshot(), counters=tuple(counted), findings=(error,)), job(tp=2, dp=2, pp=2))
    assert verdict.suspects[0].machines == ("elsewhere",) and verdict.evict.machines == ()
