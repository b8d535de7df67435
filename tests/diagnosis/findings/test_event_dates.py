"""An event of a kernel log that had passed long before the job stood still is not its reason; what nothing dates counts as it did."""

from dataclasses import replace

import pytest

from hangdog_models.collectives import CollectiveRecord, RankCounters, RasReport
from hangdog_models.diagnosis.findings import event_dates
from hangdog_models.diagnosis.judge import diagnose
from hangdog_models.findings import Finding, Impact, LogEnd
from hangdog_models.ranks import Rank
from hangdog_models.snapshot import Job, Snapshot
from hangdog_models.verdict import Kind
from support.cases.stories import job, snapshot

HOUR = 3600.0
EIGHT = job(dp=8, per_machine=2)
AT = 1_770_000_000.0
FAULT = Finding("kernel log", "Xid 31", Impact.PROGRAM, "Xid 31: a kernel touched memory", "node-1", at_s=AT)


def end(after_s: float, machine: str = "node-1") -> LogEnd:
    return LogEnd("kernel log", machine, AT + after_s)


def seen(finding: Finding = FAULT, *ends: LogEnd, stalled_s: float | None = None) -> Snapshot:
    return replace(snapshot(), job=Job(stalled_s=stalled_s), findings=(finding,), log_ends=ends)


def before(scene: Snapshot) -> float:
    (finding,) = event_dates.dated(scene).findings
    return finding.before_s


def test_the_longer_it_had_passed_the_less_it_says() -> None:
    """The factors of one and of two and a half hours; a day leaves nothing of it."""
    sure = [diagnose(seen(FAULT, end(hours * HOUR)), EIGHT) for hours in (0, 1, 2, 2.5, 24)]
    assert [verdict.kind for verdict in sure[:2]] == [Kind.SOFTWARE, Kind.SOFTWARE]
    assert sure[0].confidence == sure[1].confidence > sure[2].confidence > sure[3].confidence > sure[4].confidence
    assert (sure[4].kind, sure[4].evict.machines) == (Kind.UNDETERMINED, ())


def test_the_newest_line_of_any_machine_dates_it_and_the_log_of_its_own() -> None:
    assert before(seen(FAULT, end(5 * HOUR))) == 5 * HOUR
    assert before(seen(FAULT, end(0), end(5 * HOUR, "node-3"), end(4 * HOUR, "node-2"))) == 5 * HOUR
    assert before(seen(FAULT)) == before(seen(FAULT, end(-5 * HOUR, "node-3"))) == 0


def test_one_clock_that_is_a_day_ahead_of_all_others_makes_nothing_old() -> None:
    wrong = end(40 * HOUR, "node-3")
    assert before(seen(FAULT, end(0), end(HOUR, "node-2"), wrong)) == HOUR
    assert before(seen(FAULT, end(20 * HOUR), wrong)) == 40 * HOUR


def test_seconds_since_the_start_compare_on_one_machine_only() -> None:
    started = replace(FAULT, at_s=None, uptime_s=50.0)
    assert before(seen(started, LogEnd("kernel log", "node-1", None, 50.0 + 3 * HOUR))) == 3 * HOUR
    assert before(seen(started, LogEnd("kernel log", "node-2", None, 50.0 + 3 * HOUR), end(9 * HOUR))) == 0


def test_what_is_dated_in_unix_time_or_by_a_container_may_differ_by_a_zone() -> None:
    launched = CollectiveRecord("0", 1, "all_reduce", False, created_ns=int((AT + 20 * HOUR) * 1e9))
    counters = RankCounters(Rank(0), {"0": 1}, {"0": 0}, (launched,), {"0": ()}, {})
    dated = [
        replace(seen(), counters=(counters,)),
        replace(seen(), ras=(RasReport((), (), AT + 20 * HOUR),)),
        seen(FAULT, LogEnd("log", "node-1", AT + 20 * HOUR)),
    ]
    assert [before(scene) for scene in dated] == [pytest.approx(8 * HOUR)] * 3
    # an operation is launched by a job at work; a report may come after the whole standstill
    stood = [before(replace(scene, job=Job(stalled_s=2 * HOUR))) for scene in dated]
    assert stood == [pytest.approx(8 * HOUR), 6 * HOUR, 6 * HOUR]


def test_what_came_when_the_job_stood_still_is_not_old_however_late_somebody_looks() -> None:
    assert before(seen(FAULT, end(9 * HOUR), stalled_s=9 * HOUR)) == 0


@pytest.mark.parametrize(
    "change",
    [
        {"impact": Impact.CONVICTS},  # a broken device does not mend itself
        {"impact": Impact.SERVICE, "code": "NFS not responding"},
        {"impact": Impact.SUSPECTS, "code": "link down"},  # until a later line says that it is up
        {"age_s": 60.0},  # its agent knows
        {"source": "nvidia-smi"},  # a state and no event
        {"at_s": None},
    ],
)
def test_what_lasts_or_is_dated_otherwise_stays(change: dict[str, object]) -> None:
    assert before(seen(replace(FAULT, **change), end(20 * HOUR))) == 0  # type: ignore[arg-type]


def test_an_old_event_neither_suspects_its_machine_nor_blames_its_path_or_slows() -> None:
    for impact in (Impact.SUSPECTS, Impact.PATH, Impact.SLOWS):
        scene = seen(replace(FAULT, impact=impact, code="an event"), end(20 * HOUR))
        verdict = diagnose(scene, EIGHT)
        assert verdict.kind is Kind.UNDETERMINED and verdict.confidence < 0.1
