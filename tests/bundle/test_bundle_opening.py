"""A directory of files becomes a snapshot: whose each file is, what belongs together, and what is said of the rest."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hangdog.evidence.naming import Name, name_of
from hangdog.evidence.open_bundle import open_bundle
from hangdog_models.errors import UnreadableBundle, UnreadableEvidence
from hangdog_models.ranks import Rank
from hangdog_models.snapshot import Job, Snapshot
from hangdog_models.stack import ProcessTrace, Reason
from support.cases.evidence import flight, gdb_stacks, stacks, state, text_stacks
from support.refused import refused

Fill = Callable[[dict[str, bytes]], Path]


def traces(snapshot: Snapshot) -> dict[tuple[int, int, str], ProcessTrace]:
    return {(r.number, trace.rank, trace.role): trace for r in snapshot.rounds for trace in r.traces}


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("rank12.json", Name("", Rank(12))),
        ("rank-12.txt", Name("", Rank(12))),
        ("rank_12", Name("", Rank(12))),
        ("rank012.dataloader-0.json", Name("", Rank(12), "dataloader-0")),
        ("rank12.dataloader-0.proc.json", Name("", Rank(12), "dataloader-0")),
        ("rank12_checkpoint.error.txt", Name("", Rank(12), "checkpoint")),
        ("rank12.dataloader-0", Name("", Rank(12), "dataloader-0")),
        ("py-spy.rank12.json", Name("", Rank(12))),
        ("fr/nccl_trace_rank_12", Name("", Rank(12))),
        ("rank12/stacks.json", Name("", Rank(12))),
        ("rank12/rank12.child-1.json", Name("", Rank(12), "child-1")),
        ("machine-gpu-a17/round-3/rank12.json", Name("", Rank(12), machine="gpu-a17", round=3)),
        ("machine-a/dmesg.log", Name("", machine="a")),
        ("machine-a.txt", Name("")),
        ("local_rank3.json", Name("")),
        ("node-rank-3.json", Name("")),
        ("franks3.json", Name("")),
        ("rank3a.json", Name("")),
    ],
)
def test_whose_a_file_is(path: str, name: Name) -> None:
    found = name_of(path)
    assert (found.rank, found.role, found.machine, found.round) == (name.rank, name.role, name.machine, name.round)


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("rank3/rank4.json", "unknown-rank"),
        ("rank3-rank4.json", "unknown-rank"),
        ("rank99999999.json", "out-of-range"),
        ("rank" + "9" * 5000, "out-of-range"),
    ],
)
def test_a_name_that_makes_no_sense_is_refused(path: str, code: str) -> None:
    with refused(code, UnreadableEvidence):
        name_of(path)


@given(st.text())
def test_any_path_has_a_name_or_is_refused(path: str) -> None:
    try:
        assert name_of(path).path == path
    except UnreadableEvidence as error:
        assert error.code in ("unknown-rank", "out-of-range")


def test_files_of_one_process_become_one_trace(fill: Fill) -> None:
    root = fill(
        {
            "job.toml": b'[job]\nid = "j"\n[machines]\nm = "0-1"\n',
            "rank0.json": stacks(7),
            "proc/rank0.proc.json": state(7, "D"),
            "why/rank0.error.txt": b"py-spy dump --native: no answer within 8 s, killed",
            "native/rank0.txt": gdb_stacks(7),
            "fr/rank0.json": flight(),
            "rank1.error.txt": b"Error: Failed to find python version from target process",
            "rank2.proc.json": state(9, "Z"),
        }
    )
    snapshot, layout = open_bundle(root)
    found = traces(snapshot)
    whole, failed, dead = found[0, 0, "trainer"], found[0, 1, "trainer"], found[0, 2, "trainer"]
    assert [frame.function for frame in whole.threads[0].frames] == ["train", "cudaStreamSynchronize"]
    assert [thread.name for thread in whole.threads] == ["MainThread", "helper"]
    assert whole.pid == 7 and whole.state is not None and whole.missing is not None
    assert whole.missing.reason is Reason.UNINTERRUPTIBLE
    assert failed.threads == () and failed.missing is not None and failed.missing.reason is Reason.NOT_PYTHON
    assert dead.pid == 9 and dead.missing is not None and dead.missing.reason is Reason.ZOMBIE
    assert [record.rank for record in snapshot.counters] == [0]
    assert (snapshot.job, layout.machines) == (Job("j"), {"m": (0, 1)})
    account = snapshot.account
    assert (account.files_read, account.ignored, account.unreadable, account.notes) == (8, (), {}, ())


def test_native_stacks_of_another_process_are_ignored_with_a_reason(fill: Fill) -> None:
    snapshot, _ = open_bundle(fill({"rank0.json": stacks(7), "native/rank0.txt": gdb_stacks(8)}))
    assert len(snapshot.rounds[0].traces[0].threads) == 1
    assert snapshot.account.ignored == ("native/rank0.txt",)
    assert snapshot.account.notes[0].startswith("native/rank0.txt") and "rank0.json" in snapshot.account.notes[0]


def test_rounds_are_in_order_and_evidence_outside_of_them_is_of_the_first(fill: Fill) -> None:
    root = fill({f"round-{k}/rank0.json": stacks(function=f"f{k}") for k in (10, 2)})
    fill({"rounds.toml": b"interval_s = 0.75", "rank0.proc.json": state()})
    snapshot, _ = open_bundle(root)
    assert [round_.number for round_ in snapshot.rounds] == [2, 10]
    assert snapshot.interval_s == 0.75
    assert [trace.state is not None for trace in traces(snapshot).values()] == [True, False]


def test_of_several_rounds_the_latest_flight_record_is_used(fill: Fill) -> None:
    snapshot, _ = open_bundle(fill({f"round-{k}/fr/rank0.json": flight(k) for k in (10, 2, 1)}))
    assert [record.enqueued for record in snapshot.counters] == [{"0": 10}]
    assert list(snapshot.account.unreadable) == ["round-1/fr/rank0.json"]  # that of round 2 tells what moved since


def test_a_rank_named_twice_uses_the_first_and_reports_the_second(fill: Fill) -> None:
    root = fill(
        {"b/rank3.json": stacks(function="second"), "a/rank-3.json": stacks(function="first"), "rank4.json": stacks()}
    )
    snapshot, _ = open_bundle(root)
    assert traces(snapshot)[0, 3, "trainer"].threads[0].frames[0].function == "first"
    (reason,) = snapshot.account.unreadable.items()
    assert reason[0] == "b/rank3.json" and "rank 3 " in reason[1] and "a/rank-3.json" in reason[1]
    assert snapshot.account.files_read == 2


def test_several_processes_in_one_file_are_the_rank_and_its_children(fill: Fill) -> None:
    snapshot, _ = open_bundle(fill({"rank3.txt": text_stacks(50, 60, 70, 50)}))
    assert [(t.role, t.pid) for t in snapshot.rounds[0].traces] == [("child-0", 60), ("child-1", 70), ("trainer", 50)]
    (note,) = snapshot.account.notes
    assert note.startswith("rank3.txt: ") and "process 50 " in note


def test_folders_place_ranks_that_the_declaration_does_not(fill: Fill) -> None:
    fill({"job.toml": b'[machines]\na = "0"\n', "machine-b/rank0.json": stacks(), "machine-b/rank1.json": stacks()})
    snapshot, layout = open_bundle(fill({"machine-a/rank2.json": stacks()}))
    assert layout.machines == {"a": (0, 2), "b": (1,)}
    (note,) = snapshot.account.notes
    assert note.startswith("rank 0 ") and "machine a," in note and "machine-b" in note


def test_stacks_without_ranks_are_used_where_their_number_leaves_one_way(fill: Fill) -> None:
    root = fill(
        {"job.toml": b'[machines]\na = "4-5"\n', "machine-a/all.txt": text_stacks(90, 80), "rank0.json": stacks()}
    )
    snapshot, _ = open_bundle(root)
    assert {(trace.rank, trace.pid) for trace in snapshot.rounds[0].traces} == {(0, 100), (4, 80), (5, 90)}
    note = "no rank in the name of machine-a/all.txt: taken as ranks 4-5 in the order of their process ids"
    assert snapshot.account.notes == (note,)


def test_stacks_without_ranks_are_not_guessed_otherwise(fill: Fill) -> None:
    root = fill({"job.toml": b"[job]\nworld_size = 4\n", "all.txt": text_stacks(90, 80), "rank0.json": stacks()})
    snapshot, _ = open_bundle(root)
    assert [trace.rank for trace in snapshot.rounds[0].traces] == [0]
    (reason,) = snapshot.account.unreadable.items()
    assert reason[0] == "all.txt" and "rank<N>" in reason[1]


def test_a_single_process_job_needs_no_name(fill: Fill) -> None:
    snapshot, _ = open_bundle(fill({"job.toml": b"[job]\nworld_size = 1\n", "dump.json": stacks()}))
    assert [trace.rank for trace in snapshot.rounds[0].traces] == [0]


def test_a_single_file_is_a_bundle(fill: Fill) -> None:
    snapshot, _ = open_bundle(fill({"rank3.json": stacks()}) / "rank3.json")
    assert [trace.rank for trace in snapshot.rounds[0].traces] == [3]


def test_content_decides_and_the_ending_does_not(fill: Fill) -> None:
    snapshot, _ = open_bundle(fill({"rank0.txt": stacks(), "rank1.json": text_stacks(5), "rank2.log": state()}))
    assert [len(trace.threads) for trace in snapshot.rounds[0].traces] == [1, 1, 0]


def test_the_failure_of_a_dump_may_lie_where_its_output_should(fill: Fill) -> None:
    words = (
        b"Error: Failed to get process executable name. Check that the process is running.\nReason: Permission denied\n"
    )
    snapshot, _ = open_bundle(fill({"rank0.txt": words}))
    missing = snapshot.rounds[0].traces[0].missing
    assert missing is not None and missing.reason is Reason.NOT_PERMITTED


def test_equal_stacks_are_kept_once(fill: Fill) -> None:
    snapshot, _ = open_bundle(fill({f"rank{rank}.json": stacks(100 + rank) for rank in range(3)}))
    assert len({id(trace.threads[0].frames) for trace in snapshot.rounds[0].traces}) == 1


def test_progress_counts_the_files(fill: Fill) -> None:
    told: list[tuple[int, int]] = []
    open_bundle(
        fill({f"rank{rank}.json": stacks() for rank in range(3)}),
        progress=lambda done, total: told.append((done, total)),
    )
    assert told == [(0, 3), (1, 3), (2, 3), (3, 3)]


def test_order_and_place_of_the_files_do_not_matter(fill: Fill, tmp_path: Path) -> None:
    root = fill({f"a/b/rank{rank}.json": stacks(rank + 1) for rank in range(3)})
    flat = tmp_path / "flat"
    flat.mkdir()
    for file in root.glob("a/b/*"):
        shutil.copy(file, flat / f"x_{file.name}")
    assert open_bundle(root)[0].rounds == open_bundle(flat)[0].rounds


def test_a_log_that_nobody_understands_is_refused_with_its_last_error(fill: Fill) -> None:
    log = b"starting\nwombat.OddError: the burrow is full\nbye\n"
    with refused("no-evidence", UnreadableBundle, "job.log", "wombat.OddError: the burrow is full"):
        open_bundle(fill({"job.log": log}))


def test_where_an_archive_was_unpacked_its_one_folder_is_the_bundle(fill: Fill) -> None:
    root = fill(
        {"bundle/job.toml": b'[job]\nid = "llama"\n[machines]\na = "0"\n', "bundle/rank0.json": stacks(1, "train")}
    )
    snapshot, layout = open_bundle(root)
    assert (snapshot.job.id, dict(layout.machines)) == ("llama", {"a": (Rank(0),)})
    beside = fill({"notes.txt": b"of last night"})
    assert open_bundle(beside)[0].job.id == "", "of several things in a folder none is the bundle"
