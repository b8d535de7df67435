"""What NCCL itself reports: operations that do not fit are the program's, a lost peer a victim's, and a failure is its rank's."""

from dataclasses import replace

import pytest

from hangdog_models.collectives import WATCHDOG, RankCounters, RasCommunicator, RasMember, RasReport, RasStatus
from hangdog_models.diagnosis.judge import diagnose
from hangdog_models.findings import Finding, Impact
from hangdog_models.ranks import Rank
from hangdog_models.snapshot import Snapshot
from hangdog_models.verdict import Kind, Verdict
from support.cases.stories import job, look, twice

EIGHT = job(dp=8, per_machine=2)
#: Rank 1 left out the operation that all others read a value back from, and waits for its device at the next place.
SKIPPED = twice([*look({"0,2-7": "average"}), *look({"1": "item"})])
TRUNCATED = Finding(
    "log",
    "collective sizes differ",
    Impact.PROGRAM,
    "another size (receiving 1048576 bytes instead of 65536)",
    rank=Rank(2),
)


def report(errors: dict[int, str], size: int = 8) -> RasReport:
    members = tuple(
        RasMember(number, RasStatus.ERROR if number in errors else RasStatus.RUNNING, f"node-{number // 2}",
                  1000 + number, launched={"AllReduce": 90}, error=errors.get(number, ""))
        for number in range(size)
    )  # fmt: skip
    return RasReport((RasCommunicator("27a0", size, members),))


def all_have_joined() -> tuple[RankCounters, ...]:
    """What watchdogs count of an operation that all ranks launched and none completed: by itself it speaks for a link."""
    return tuple(RankCounters(Rank(r), {"0": 95}, {"0": 94}, (), {}, {}, source=WATCHDOG) for r in range(8))


def judged(story: Snapshot, *findings: Finding, errors: dict[int, str] | None = None) -> Verdict:
    ras = () if errors is None else (report(errors),)
    return diagnose(replace(story, findings=findings, ras=ras), EIGHT)


def test_operations_that_do_not_fit_are_the_programs_and_no_links() -> None:
    joined = replace(SKIPPED, counters=all_have_joined())
    assert judged(joined).kind is Kind.GROUP
    verdict = judged(joined, TRUNCATED)
    assert (verdict.kind, verdict.evict.machines) == (Kind.SOFTWARE, ())
    assert verdict.confidence > 0.95
    assert verdict.because[0].code == "operations-refused"
    assert "1048576" in verdict.because[0].text and "65536" in verdict.because[0].text


def test_who_stands_elsewhere_is_the_first_culprit_and_not_who_noticed_it() -> None:
    for verdict in (judged(SKIPPED, TRUNCATED), judged(SKIPPED, errors={2: "Invalid usage"})):
        assert verdict.kind is Kind.SOFTWARE and verdict.culprit is not None
        assert (verdict.culprit.ranks, verdict.evict.machines) == ((1,), ())


@pytest.mark.parametrize("error", ["Invalid usage", "Invalid argument"])
def test_ras_alone_tells_of_it(error: str) -> None:
    verdict = judged(SKIPPED, errors={2: error})
    assert verdict.kind is Kind.SOFTWARE
    assert verdict.because[0].text.startswith("NCCL RAS of rank 2") and error.lower() in verdict.because[0].text


def test_where_all_stand_at_one_place_nobody_is_named() -> None:
    verdict = judged(twice(look({"0-7": "item"})), TRUNCATED)
    assert (verdict.kind, verdict.culprit, verdict.suspects) == (Kind.SOFTWARE, None, ())


def test_two_sides_of_which_neither_is_few_leave_open_who_it_was() -> None:
    verdict = judged(twice([*look({"0-4": "average"}), *look({"5-7": "item"})]), TRUNCATED)
    assert (verdict.kind, verdict.culprit) == (Kind.SOFTWARE, None)


def test_another_stage_of_the_pipeline_runs_another_program() -> None:
    """Rank 7 is the last stage, alone at its place: the ranks of the stage that noticed it are compared."""
    stages = job(dp=1, pp=8, per_machine=2)
    story = replace(twice([*look({"0-6": "average"}), *look({"7": "item"})]), findings=(TRUNCATED,))
    assert diagnose(story, stages).culprit is None


@pytest.mark.parametrize("error", ["Remote process error", "System error"])
def test_who_lost_a_peer_is_a_victim(error: str) -> None:
    verdict = judged(twice(look({"0-7": "item"})), errors={0: error, 2: error})
    assert (verdict.kind, verdict.culprit, verdict.evict.machines) == (Kind.UNDETERMINED, None, ())


def test_the_one_rank_on_which_nccl_failed_is_named_and_nobody_is_evicted() -> None:
    joined = replace(twice(look({"0-7": "item"})), counters=all_have_joined())
    verdict = judged(joined, errors={5: "Unhandled CUDA error", 6: "Remote process error"})
    assert verdict.culprit is not None
    assert (verdict.culprit.ranks, verdict.evict.machines) == ((5,), ())
    assert any("unhandled cuda error" in line.text for line in verdict.culprit.because)


def test_an_error_that_all_ranks_report_names_nobody() -> None:
    errors = dict.fromkeys(range(8), "Internal error")
    assert judged(twice(look({"0-7": "item"})), errors=errors).culprit is None
