"""What comes out of the corpus's logs, RAS reports and recorders, in nouns; without the corpus these tests say so and skip."""

from pathlib import Path

import pytest

from hangdog.evidence.open_bundle import open_bundle
from hangdog_models.collectives import RankCounters, RasStatus
from hangdog_models.findings import Impact
from hangdog_models.snapshot import Snapshot

CORPUS = Path(__file__).parents[3] / "shared" / "corpus" / "public"

pytestmark = pytest.mark.skipif(not CORPUS.is_dir(), reason="no corpus beside the repository (../shared/corpus)")


def opened(case: str) -> Snapshot:
    (bundle,) = CORPUS.glob(f"{case}-*")
    return open_bundle(bundle)[0]


def counters(case: str) -> dict[int, RankCounters]:
    return {record.rank: record for record in opened(case).counters}


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ("004", {("jz-a", None, "CUDA uncorrectable ECC", Impact.CONVICTS)}),
        ("010", {("", rank, "watchdog time-out", Impact.VICTIM) for rank in range(4)}),
        ("032", {("", 118, "watchdog time-out", Impact.VICTIM)}),
        ("037", {("", 0, "store barrier, too many", Impact.PROGRAM)}),
        ("057", {("", 1, "watchdog time-out", Impact.VICTIM)}),
        ("059", {("", rank, "heartbeat monitor", Impact.TELLS_NOTHING) for rank in (0, 2, 7)}),
        ("078", {("node-2", None, "IB error 12", Impact.PATH)}),
        ("082", {("iam-a", 67, "CUDA unknown error", Impact.RESET)}),
        ("084", {("jz-c", None, "NCCL system error", Impact.VICTIM)}),
    ],
)
def test_findings(case: str, expected: set[tuple[str, int | None, str, Impact]]) -> None:
    assert {(f.machine, f.rank, f.code, f.impact) for f in opened(case).findings} == expected


def test_nobody_in_009_is_accused_by_its_own_words() -> None:
    snapshot = opened("009")
    assert {f.impact for f in snapshot.findings} == {Impact.VICTIM, Impact.TELLS_NOTHING}
    counted = {c.rank: (c.enqueued["0"], c.completed["0"]) for c in snapshot.counters}
    assert counted == {rank: (77, 77) if rank in (0, 4) else (79, 77) for rank in range(8)}


def test_counters_of_first_operations() -> None:
    assert {(c.enqueued["0"], c.completed["0"]) for c in counters("010").values()} == {(1, -1)}
    (overflown,) = counters("057").values()
    assert (overflown.enqueued, overflown.completed) == ({"0": 1}, {"0": -1})
    assert overflown.entries[0].input_sizes == ()


def test_the_desync_report_of_028_counts_for_both_ranks() -> None:
    found = counters("028")
    assert [list(found[rank].enqueued.values()) for rank in (0, 1)] == [[2], [1]]
    assert found[0].enqueued.keys() == found[1].enqueued.keys()


def test_the_sides_of_035_and_053_can_be_compared() -> None:
    sizes = {rank: record.entries[0].input_sizes for rank, record in counters("035").items()}
    assert sizes == {0: ((64,),), 2: ((24084544,),)}
    called = {rank: [(e.sequence, e.operation) for e in record.entries] for rank, record in counters("053").items()}
    assert called == {
        rank: [(0x28C, f"nccl:{name}"), (0x28D, f"nccl:{name}")]
        for rank, name in ((0, "all_reduce"), (1, "all_reduce"), (2, "all_gather"), (3, "all_reduce"))
    }
    assert len({group for record in counters("053").values() for group in record.enqueued}) == 1


def test_recorders() -> None:
    missing = counters("073")
    assert [missing[rank].enqueued["0"] for rank in (0, 1)] == [5, 4]
    assert missing[0].entries[-1].created_ns > 0 and missing[0].entries[-1].output_sizes == ((3, 4),)
    matched = counters("074")
    assert [record.completed for record in matched.values()] == [{"0": 0, "1": 0}] * 2
    assert matched[0].entries[0].dtypes == ("float32",)


@pytest.mark.parametrize(
    ("case", "size", "statuses", "lost"),
    [
        ("029a", 32, dict.fromkeys((0, 2, 3, 4, 5, 7), RasStatus.RUNNING), ()),
        ("029b", 32, {21: RasStatus.UNRESPONSIVE}, (("172.16.64.213", 3487984, 5),)),
        ("029d", 2, {0: RasStatus.RUNNING, 1: RasStatus.UNRESPONSIVE}, (("172.16.64.245", 1524345, 1),)),
        ("032", 256, {}, ()),
    ],
)
def test_ras(case: str, size: int, statuses: dict[int, RasStatus], lost: tuple[tuple[str, int, int], ...]) -> None:
    (report,) = opened(case).ras
    (communicator,) = report.communicators
    assert communicator.size == size
    assert {member.number: member.status for member in communicator.members} == statuses
    assert tuple((member.host, member.pid, member.device) for member in report.lost) == lost


def test_ras_classes() -> None:
    jitter, teardown = (opened(case).ras[0].communicators for case in ("029a", "029c"))
    assert jitter[0].classes == ((6650, 26), (6649, 6)) and {m.launched[""] for m in jitter[0].members} == {6649}
    assert [communicator.size for communicator in teardown] == [32, *[4] * 8]
    assert {m.number for m in teardown[0].members if m.status is RasStatus.FINALIZE} == {4, 20}
