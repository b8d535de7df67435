"""What is not a process trace finds its place in a snapshot: counters of several sources, RAS reports, findings."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from hangdog import triage
from hangdog.evidence.open_bundle import open_bundle
from hangdog_models.collectives import FLIGHT_RECORDER, WATCHDOG
from hangdog_models.findings import Impact
from hangdog_models.progress.collective_progress import Phase, RankProgress
from hangdog_models.reading.collectives.progress_json import written
from hangdog_models.verdict import Kind
from support.cases.evidence import flight, stacks
from support.cases.rings import around, held_up, hung, operation, stuck, world

Fill = Callable[[dict[str, bytes]], Path]

MACHINES = b'[machines]\na = "0-3"\nb = "4-7"\n'


def status(rank: int, enqueued: int, completed: int, group: str = "0", prefix: bool = True) -> bytes:
    whose = f"[rank{rank}]:" if prefix else ""
    counts = f"last enqueued work: {enqueued}, last completed work: {completed}"
    return f"{whose}[E1 ProcessGroupNCCL.cpp:1] [PG ID 0 PG GUID {group} Rank {rank}] PG status: {counts}\n".encode()


def ras(ranks: int) -> bytes:
    row = f"    0         1         1         {ranks}         {ranks}         {ranks}   RUNNING      OK"
    return f"Communicators... (0.00s)\n=====\n\nGroup     Comms\n{row}\n".encode()


def test_the_recorder_counts_more_than_the_log_of_the_same_group(fill: Fill) -> None:
    log = status(0, 9, 8) + status(0, 3, 2, group="17")
    snapshot, _ = open_bundle(fill({"fr/rank0.json": flight(5, 4), "rank0.log": log, "rank1.log": status(1, 9, 8)}))
    assert [(c.rank, c.source) for c in snapshot.counters] == [(0, FLIGHT_RECORDER), (1, WATCHDOG)]
    assert snapshot.counters[0].enqueued == {"0": 5, "17": 3} and snapshot.counters[0].completed == {"0": 4, "17": 2}
    assert snapshot.account.unreadable == {} and snapshot.account.files_read == 3


def test_of_several_rounds_the_latest_log_is_used_and_no_log_is_superfluous(fill: Fill) -> None:
    snapshot, _ = open_bundle(fill({f"round-{k}/rank0.log": status(0, k, k - 1) for k in (2, 10)}))
    assert snapshot.counters[0].enqueued == {"0": 10}
    assert snapshot.account.unreadable == {} and snapshot.account.files_read == 2


def test_one_log_of_a_machine_speaks_for_its_ranks(fill: Fill) -> None:
    log = status(4, 9, 8) + status(6, 8, 8) + b"[rank5]: CUDA error: uncorrectable ECC error encountered\n"
    snapshot, layout = open_bundle(fill({"machine-b/all.log": log, "rank0.json": stacks()}))
    assert [counters.rank for counters in snapshot.counters] == [4, 6]
    (finding,) = snapshot.findings
    assert (finding.machine, finding.rank, finding.impact) == ("b", 5, Impact.CONVICTS)
    assert layout.machines == {"b": (4, 5, 6)}


def test_what_is_only_reported_of_a_rank_does_not_place_it(fill: Fill) -> None:
    work = "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=2, OpType=ALLREDUCE, Timeout(ms)=8000)"
    log = f"[rank0]:[Rank 0] {work}\n - [0] Timeout at collective: ALLREDUCE, #3\n"
    log += "[rank0]: - [1] finished collective #2, but didn't join collective #3 (count from 1)\n"
    snapshot, layout = open_bundle(fill({"machine-a/x.log": log.encode()}))
    assert [counters.rank for counters in snapshot.counters] == [0, 1]
    assert layout.machines == {"a": (0,)}


def test_a_local_rank_is_found_by_its_machine(fill: Fill) -> None:
    line = b"[default2]:  what():  CUDA error: unknown error\n"
    declared, _ = open_bundle(fill({"job.toml": MACHINES, "machine-b/x.log": line}))
    assert [(f.machine, f.rank) for f in declared.findings] == [("b", 6)]
    root = fill({"job.toml": b"[topology]\ndp = 8\ngpus_per_node = 4\n", "machine-node-1/x.log": line})
    (root / "machine-b" / "x.log").unlink()
    derived, _ = open_bundle(root)
    assert [(f.machine, f.rank) for f in derived.findings] == [("node-1", 6)]


def test_a_log_without_any_rank_belongs_to_its_machine(fill: Fill) -> None:
    snapshot, _ = open_bundle(fill({"machine-a/x.log": b"NCCL error in: x, unhandled system error\n"}))
    assert [(f.machine, f.rank, f.impact) for f in snapshot.findings] == [("a", None, Impact.VICTIM)]


def test_hardware_logs_belong_to_their_machine_and_repeated_ones_count_once(fill: Fill) -> None:
    line = b"[1.0] NVRM: Xid (PCI:0000:01:00): 79, pid=1, name=python, GPU has fallen off the bus.\n"
    root = fill({f"round-{k}/machine-a/dmesg.log": line for k in (1, 2)})
    snapshot, _ = open_bundle(root)
    assert [(f.code, f.machine, f.device) for f in snapshot.findings] == [("Xid 79", "a", "0000:01:00")]


def test_a_journal_may_hold_both_the_kernel_and_the_job(fill: Fill) -> None:
    both = (
        b"Jan 02 03:04:05 a kernel: NVRM: Xid (PCI:0000:01:00): 79, pid=1, name=python, GPU has fallen off the bus.\n"
        b"Jan 02 03:04:06 a train[1]: [rank3]: CUDA error: uncorrectable ECC error encountered\n"
    )
    snapshot, _ = open_bundle(fill({"machine-a/journal.txt": both}))
    assert {(f.source, f.rank) for f in snapshot.findings} == {("kernel log", None), ("log", 3)}


def test_ras_reports_are_ordered_by_round(fill: Fill) -> None:
    root = fill({"round-10/ras.txt": ras(8), "round-9/ras.txt": ras(4), "ras.txt": ras(2) + ras(3)})
    snapshot, _ = open_bundle(root)
    assert [report.communicators[0].size for report in snapshot.ras] == [2, 3, 4, 8]


def test_malformed_ras_json_is_mended(fill: Fill) -> None:
    text = (
        b'{\n  "nccl_version": "2.28.9",\n  "communicators": [\n    {\n "hash": "0x1",\n "size": 1,\n "ranks": [],\n'
        b' "missing_ranks": [\n {\n "rank": 0,\n "host": "h",\n "pid": 5,\n "nvml_dev": 1\n "status": {\n'
        b' "unresponsive": true,\n "considered_dead": false\n }\n }\n ]\n }\n ]\n}\n'
    )
    snapshot, _ = open_bundle(fill({"ras.json": text}))
    assert [(m.host, m.pid) for m in snapshot.ras[0].lost] == [("h", 5)]


def test_a_log_of_json_lines_is_a_log(fill: Fill) -> None:
    lines = b'{"message": "[rank3]: CUDA error: uncorrectable ECC error encountered"}\n{"message": "x"}\n'
    snapshot, _ = open_bundle(fill({"machine-a/x.json": lines}))
    assert [(f.rank, f.machine) for f in snapshot.findings] == [(3, "a")]


def test_evidence_in_which_nothing_is_wrong_is_evidence(fill: Fill) -> None:
    snapshot, _ = open_bundle(fill({"rank0.log": b"NCCL version 2.21.5+cuda12.4\nepoch 1\n", "notes.md": b"hello"}))
    assert (snapshot.account.files_read, snapshot.account.ignored) == (1, ("notes.md",))
    assert (snapshot.counters, snapshot.findings) == ((), ())


LAYOUT = b"[job]\nworld_size = 4\n[topology]\ndp = 4\ngpus_per_node = 1\n"


def progress(rings: Sequence[RankProgress], function: str = "synchronize") -> dict[str, bytes]:
    """A bundle of two looks at ranks that all stand in one function, and of what their rings show."""
    files = {f"rank{one.rank}.progress.json": json.dumps(written(one.communicators)).encode() for one in rings}
    looks = {f"round-{k}/rank{one.rank}.json": stacks(100 + one.rank, function) for one in rings for k in (0, 1)}
    return {"job.toml": LAYOUT, **files, **looks}


def moment() -> Sequence[RankProgress]:
    """A healthy job: operations of some milliseconds are in flight, and ranks differ by one."""
    flights = [
        [operation(7, idle_s=0.003)],
        [],
        [operation(7, Phase.LAUNCHED, idle_s=0.001)],
        [operation(6, idle_s=0.2)],
    ]
    return world(*flights, collectives=[8, 7, 8, 7])


@pytest.mark.parametrize(
    ("rings", "kind", "ranks", "evicted"),
    [
        (hung(2), Kind.MACHINE, (2,), ("node-2",)),  # its device has not begun what its host launched
        (stuck(around(3)), Kind.MACHINE, (3,), ("node-3",)),  # it began, and neither takes nor gives any more
        (stuck(held_up(1)), Kind.GROUP, (1, 2), ("node-1", "node-2")),  # data is ready, and does not leave
        (world([], *[[operation(7)]] * 3, collectives=[7, 8, 8, 8]), Kind.MACHINE, (0,), None),  # it never launched it
        (moment(), Kind.NONE, None, ()),
    ],
)
def test_what_rings_in_a_bundle_say(
    fill: Fill,
    rings: Sequence[RankProgress],
    kind: Kind,
    ranks: tuple[int, ...] | None,
    evicted: tuple[str, ...] | None,
) -> None:
    verdict = triage(fill(progress(rings)))
    assert verdict.kind is kind
    assert ranks is None or verdict.suspects[0].ranks == ranks
    assert evicted is None or verdict.evict.machines == evicted
    assert verdict.evidence.unreadable == {} and verdict.evidence.ignored == ()


def test_of_several_rounds_the_latest_rings_are_used_and_rings_alone_are_a_bundle(fill: Fill) -> None:
    ring_of = {rank: json.dumps(written(one.communicators)).encode() for rank, one in enumerate(hung(2))}
    files = {f"round-{k}/rank{rank}.progress.json": data for rank, data in ring_of.items() for k in (0, 1)}
    snapshot, _ = open_bundle(fill({"job.toml": LAYOUT, **files}))
    assert [one.rank for one in snapshot.progress] == [0, 1, 2, 3]
    assert snapshot.account.unreadable["round-0/rank3.progress.json"].endswith("read from round-1/rank3.progress.json")
    verdict = triage(fill({"job.toml": LAYOUT, **files}))
    assert verdict.suspects[0].ranks == (2,)


def test_a_ring_that_cannot_be_read_or_is_nobodys_is_named_and_costs_no_other(fill: Fill) -> None:
    files = progress(hung(2))
    files["rank1.progress.json"] = files["rank1.progress.json"].replace(b'"launched": 8', b'"launched": -8')
    files["lost.json"] = files["rank0.progress.json"]
    snapshot, _ = open_bundle(fill(files))
    assert [one.rank for one in snapshot.progress] == [0, 2, 3]
    reasons = snapshot.account.unreadable
    assert reasons.keys() == {"rank1.progress.json", "lost.json"}
    assert "-8" in reasons["rank1.progress.json"] and "rank<N>" in reasons["lost.json"]
