"""Bundles that each machine made of its own part of a job are judged together."""

import json
import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner

from hangdog.evidence.open_bundle import open_bundles
from hangdog.main import main
from hangdog_models.errors import UnreadableBundle, WrongUse
from hangdog_models.reading.limits import Limits
from support.cases.evidence import flight, stacks
from support.refused import refused

Files = Mapping[str, bytes]


def written(root: Path, files: Files) -> Path:
    for path, data in files.items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    return root


def machine(folder: Path, name: str, ranks: str, files: Files, job: str = "run7", world: int = 4) -> Path:
    about = f'[job]\nid = "{job}"\nworld_size = {world}\n[machines]\n"{name}" = "{ranks}"\n'
    return written(folder / f"{name}.d", {"job.toml": about.encode(), "rounds.toml": b"interval_s = 5.0\n", **files})


def looks(ranks: range, function: str = "train", first: int = 0, pid: int = 100) -> dict[str, bytes]:
    return {
        f"round-{number}/rank{rank}.json": stacks(pid + rank, function)
        for number in range(first, first + 2)
        for rank in ranks
    }


def test_rounds_are_joined_in_their_order_and_machines_kept_apart(tmp_path: Path) -> None:
    one = machine(tmp_path, "a", "0-1", looks(range(2)))
    two = machine(tmp_path, "b", "2-3", looks(range(2, 4), first=7))
    snapshot, layout = open_bundles([one, two])
    assert [(each.number, [trace.rank for trace in each.traces]) for each in snapshot.rounds] == [
        (0, [0, 1, 2, 3]), (1, [0, 1, 2, 3]),
    ]  # fmt: skip
    assert layout.machines == {"a": (0, 1), "b": (2, 3)}
    assert (snapshot.job.id, snapshot.interval_s, layout.world_size) == ("run7", 5.0, 4)
    assert not snapshot.account.notes and not snapshot.account.unreadable


def test_the_order_of_the_paths_does_not_change_what_is_seen(tmp_path: Path) -> None:
    paths = [
        machine(tmp_path, "a", "0-1", looks(range(2))),
        machine(tmp_path, "b", "2-3", looks(range(2, 4), "other")),
    ]
    forth, back = open_bundles(paths), open_bundles(paths[::-1])
    assert forth[0].rounds == back[0].rounds and forth[1].machines == back[1].machines


def test_a_rank_on_two_machines_is_said_and_one_of_them_is_used_throughout(tmp_path: Path) -> None:
    one = machine(tmp_path, "a", "0-1", looks(range(2)))
    two = machine(tmp_path, "b", "1-3", looks(range(1, 4), "other", pid=500) | {"rank1.flight.json": flight()})
    snapshot, layout = open_bundles([one, two])
    pids = [trace.pid for each in snapshot.rounds for trace in each.traces if trace.rank == 1]
    assert pids == [101, 101]
    assert layout.machines == {"a": (0, 1), "b": (2, 3)}
    (note,) = snapshot.account.notes
    assert all(value in note for value in ("rank 1: ", "machine a (a.d)", "machine b (b.d)", " a is used"))
    assert not snapshot.counters


def test_of_a_machine_that_was_captured_twice_the_first_capture_counts(tmp_path: Path) -> None:
    one = machine(tmp_path / "first", "a", "0-1", looks(range(2)))
    two = machine(tmp_path / "again", "a", "0-1", looks(range(2), "other") | {"rank1.flight.json": flight()})
    snapshot, _ = open_bundles([one, two])
    functions = {trace.threads[0].frames[-1].function for each in snapshot.rounds for trace in each.traces}
    assert functions == {"train"} and [record.rank for record in snapshot.counters] == [1]
    (note,) = snapshot.account.notes
    assert all(value in note for value in ("ranks 0-1 of machine a: ", "a.d (1)", "a.d (2)", "first is used"))
    assert not snapshot.account.unreadable


def test_what_no_file_places_belongs_to_the_machine_of_its_bundle(tmp_path: Path) -> None:
    lost = b"[  100.000000] NVRM: Xid (PCI:0000:01:00): 79, pid=1, GPU has fallen off the bus.\n"
    one = machine(tmp_path, "a", "0-1", looks(range(2)))
    two = machine(tmp_path, "b", "2-3", looks(range(2, 4)) | {"dmesg.txt": lost})
    snapshot, _ = open_bundles([one, two])
    assert [(finding.code, finding.machine) for finding in snapshot.findings] == [("Xid 79", "b")]


def test_bundles_of_different_jobs_are_refused(tmp_path: Path) -> None:
    one = machine(tmp_path, "a", "0-1", looks(range(2)))
    two = machine(tmp_path, "b", "2-3", looks(range(2, 4)), job="run8")
    with refused("different-jobs", WrongUse, "a.d: run7", "b.d: run8"):
        open_bundles([one, two])


def test_machines_that_contradict_each_other_are_noted(tmp_path: Path) -> None:
    one = machine(tmp_path, "a", "0-1", looks(range(2)))
    two = machine(tmp_path, "b", "2-3", looks(range(2, 4)), world=8)
    snapshot, layout = open_bundles([one, two])
    assert layout.world_size == 4
    assert any(re.match(r"world size: b\.d .* a\.d, .*believed", note) for note in snapshot.account.notes)


def test_one_bundle_without_evidence_costs_nothing_else_and_all_of_them_are_an_error(tmp_path: Path) -> None:
    one = machine(tmp_path, "a", "0-1", looks(range(2)))
    (empty := tmp_path / "empty").mkdir()
    broken = written(tmp_path / "c", {"rank3.json": b"{"})
    snapshot, _ = open_bundles([one, empty, broken])
    assert len(snapshot.rounds[0].traces) == 2
    assert any(note.startswith("empty ") for note in snapshot.account.notes)
    assert list(snapshot.account.unreadable) == ["c/rank3.json"]
    with pytest.raises(UnreadableBundle):
        open_bundles([empty, broken])


def test_the_limits_hold_for_all_bundles_together(tmp_path: Path) -> None:
    paths = [machine(tmp_path, name, ranks, looks(own)) for name, ranks, own in (
        ("a", "0-1", range(2)), ("b", "2-3", range(2, 4)),
    )]  # fmt: skip
    size = sum(file.stat().st_size for file in paths[0].rglob("*") if file.is_file())
    snapshot, _ = open_bundles(paths, Limits(total_bytes=size + 500))
    assert "limit total_bytes" in snapshot.account.unreadable["b.d"]


def test_triage_judges_several_paths_as_one_job(tmp_path: Path) -> None:
    one = machine(tmp_path, "a", "0-1", looks(range(2)))
    two = machine(tmp_path, "b", "2-3", looks(range(2, 4)))
    shown = CliRunner().invoke(main, ["triage", str(one), str(two), "--format", "json"])
    verdict = json.loads(shown.stdout)
    assert verdict["coverage"]["captured"] == verdict["coverage"]["expected"] == 4
