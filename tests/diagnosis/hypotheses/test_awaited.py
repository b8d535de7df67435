"""Whom the logs say was not heard is named and never evicted; who waits is a victim."""

import re
from dataclasses import replace

import pytest

from hangdog_models.diagnosis.judge import diagnose
from hangdog_models.findings import Finding, Impact
from hangdog_models.ranks import Rank
from hangdog_models.topology import Topology
from hangdog_models.verdict import Kind, StallCause, Verdict
from support.cases.reasons import codes
from support.cases.stories import job, look, snapshot

EIGHT = job(dp=8, per_machine=2)


def waited(reporter: int | None, *ranks: int, code: str = "monitored barrier") -> Finding:
    own = None if reporter is None else Rank(reporter)
    return Finding("log", code, Impact.VICTIM, "it waited for ranks", rank=own, ranks=tuple(map(Rank, ranks)))


def said(*findings: Finding) -> Verdict:
    return diagnose(replace(snapshot(), findings=findings), EIGHT)


def awaited(verdict: Verdict) -> tuple[str, list[str]]:
    """The code of its first reason and whom that names: who waited, and then for whom."""
    return verdict.because[0].code, re.findall(r"ranks? [\d,-]*\d", verdict.because[0].text)


def test_the_rank_that_did_not_come_to_start_up_is_named() -> None:
    verdict = said(waited(0, 5, code="store key not set"))
    assert (verdict.kind, verdict.suspects[0].ranks, verdict.evict.machines) == (Kind.MACHINE, (5,), ())
    assert awaited(verdict) == ("awaited-in-vain", ["rank 0", "rank 5"]) and verdict.confidence < 0.7


@pytest.mark.parametrize("code", ["monitored barrier", "JAX coordination", "stall inspector"])
def test_the_rank_that_a_barrier_misses_is_named(code: str) -> None:
    """It says that the rank did not come, and nothing of why: no cause is likelier than another."""
    verdict = said(waited(0, 5, code=code))
    assert (verdict.suspects[0].ranks, verdict.evict.machines) == ((5,), ())
    assert awaited(verdict) == ("awaited-in-vain", ["rank 0", "rank 5"])
    assert verdict.causes[StallCause.MACHINE] == pytest.approx(verdict.causes[StallCause.SOFTWARE])


def test_the_ranks_that_a_barrier_misses_are_named_where_nothing_tells_how_many_there_are() -> None:
    verdict = diagnose(replace(snapshot(), findings=(waited(0, 4, 5, 6, 7),)), Topology(0, {}, {}))
    assert awaited(verdict)[0] == "awaited-in-vain" and awaited(verdict)[1][-1] == "ranks 4-7"
    assert verdict.evict.machines == ()


def test_the_code_stays_possible() -> None:
    """The one who waits does not know why nobody comes: a traceback of the missing rank decides."""
    assert said(waited(0, 5)).confidence < 0.7
    wrong = Finding("log", "ValueError", Impact.PROGRAM, "the program ended with ValueError", rank=Rank(5))
    verdict = said(waited(0, 5), wrong)
    assert (verdict.kind, verdict.suspects[0].ranks) == (Kind.SOFTWARE, (5,))


def test_several_that_are_missing_are_all_named() -> None:
    assert {suspect.ranks for suspect in said(waited(0, 2, 5)).suspects} == {(2,), (5,)}
    assert {suspect.ranks for suspect in said(waited(0, 2, 5, 7)).suspects} == {(2,), (5,), (7,)}


def test_who_is_awaited_and_waits_itself_is_a_victim() -> None:
    """Ranks 1 and 3 wait for the address of rank 0, which waits for a client: of rank 2 nobody heard."""
    silent = waited(None, 2, code="not heard at start-up")
    verdict = said(waited(1, 0, code="store key not set"), waited(3, 0, code="store key not set"), waited(0), silent)
    assert [suspect.ranks for suspect in verdict.suspects] == [(2,)]


@pytest.mark.parametrize("ranks", [tuple(range(1, 8)), tuple(range(5))])
def test_most_of_the_job_is_no_answer(ranks: tuple[int, ...]) -> None:
    assert said(waited(7, *ranks)).kind is Kind.UNDETERMINED


def test_who_times_out_accuses_nobody() -> None:
    verdict = said(*(waited(rank, code="watchdog time-out") for rank in range(8)))
    assert (verdict.kind, verdict.suspects) == (Kind.UNDETERMINED, ())
    assert verdict.because[0].code == "victim-of-others" and "ranks-not-captured" not in codes(verdict.because)


def test_where_stacks_were_read_they_tell_who_is_awaited() -> None:
    story = look({"0-6": "metrics", "7": "user"})
    verdict = diagnose(replace(snapshot(story, story), findings=(waited(0, 2),)), EIGHT)
    assert verdict.suspects[0].ranks == (7,)


def test_a_machine_outside_of_the_job_is_no_news_of_it() -> None:
    lost = Finding("Kubernetes", "node not ready", Impact.RESET, "Kubernetes lost this machine", "cpu-77")
    assert said(lost).suspects == ()
    assert said(replace(lost, machine="node-3.cluster.local")).suspects[0].machines == ("node-3",)
