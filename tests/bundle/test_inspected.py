"""Bundles of NCCL Inspector's dumps, one file a process: whose they are, and what the first line of the verdict says."""

import json
from pathlib import Path

import pytest

from hangdog.offline import triage
from hangdog_models.verdict import Kind, Verdict
from hangdog_models.views.first_line import headline

US = 10**15


def dump(rank: int, last: int, took_us: int = 4_000, comm: str = "0x7f8c", size: int = 8) -> str:
    lines = []
    for number in range(last + 1):
        header = {"id": comm, "rank": rank, "n_ranks": size, "nnodes": 2}
        metadata = {
            "inspector_output_format_version": "v4.0", "dump_timestamp_us": US + number * 100_000,
            "hostname": f"gpu-{rank // 4}", "pid": 1000 + rank,
        }  # fmt: skip
        performance = {
            "coll": "AllReduce", "coll_sn": number, "coll_msg_size_bytes": 1 << 20, "coll_exec_time_us": took_us,
            "coll_timing_source": "kernel_gpu",
        }  # fmt: skip
        lines.append(json.dumps({"header": header, "metadata": metadata, "coll_perf": performance}))
    return "\n".join(lines) + "\n"


def judged(
    folder: Path, last: dict[int, int], took_us: dict[int, int] | None = None, looks: int = 1, job: str = ""
) -> Verdict:
    for look in range(looks):
        where = folder / f"round-{look}" if looks > 1 else folder
        where.mkdir(exist_ok=True)
        for rank in range(8):
            text = dump(rank, last.get(rank, 39), (took_us or {}).get(rank, 4_000))
            (where / f"gpu-{rank // 4}-pid{1000 + rank}.log").write_text(text, encoding="utf-8")
    if job:
        (folder / "job.toml").write_text(job, encoding="utf-8")
    return triage(folder)


def test_a_rank_alone_behind_in_a_job_that_stands_still_is_the_likeliest(tmp_path: Path) -> None:
    verdict = judged(tmp_path, {5: 38}, looks=2)
    assert (verdict.kind, verdict.suspects[0].machines) == (Kind.UNDETERMINED, ("gpu-1",))
    assert verdict.culprit is not None and verdict.culprit.ranks == (5,) and "rank 5 on gpu-1" in headline(verdict)
    assert "has not completed AllReduce 39" in verdict.because[0].text and not verdict.evict.machines
    assert not verdict.evidence.unreadable


def test_files_copied_from_a_job_that_goes_on_accuse_nobody(tmp_path: Path) -> None:
    verdict = judged(tmp_path, {0: 38})
    assert verdict.kind is Kind.UNDETERMINED and not verdict.suspects
    assert any("once more" in note for note in verdict.evidence.notes)


def test_somebody_who_says_that_it_stands_still_is_believed(tmp_path: Path) -> None:
    verdict = judged(tmp_path, {5: 38}, job="[job]\nstalled_s = 1800\n")
    assert verdict.suspects[0].ranks == (5,) and not verdict.evict.machines


def test_who_says_so_beside_the_bundle_is_believed_as_much(tmp_path: Path) -> None:
    in_file, bare = tmp_path / "in-file", tmp_path / "bare"
    in_file.mkdir()
    bare.mkdir()
    stated = judged(in_file, {5: 38}, job="[job]\nstalled_s = 1800\n")
    assert not judged(bare, {5: 38}).suspects
    assert triage(bare, stalled_s=1800).suspects == stated.suspects
    machines = [bare / name for name in ("gpu-0", "gpu-1")]
    for machine in machines:
        machine.mkdir()
        for file in bare.glob(f"{machine.name}-*.log"):
            file.rename(machine / file.name)
    assert not triage(machines).suspects
    assert triage(machines, stalled_s=1800).suspects[0].ranks == (5,)


def test_who_is_waited_for_again_and_again_holds_the_job_back(tmp_path: Path) -> None:
    verdict = judged(tmp_path, {}, dict.fromkeys((0, 1, 2, 3, 4, 6, 7), 30_000))
    (suspect,) = verdict.suspects
    assert (verdict.kind, suspect.ranks, suspect.machines) == (Kind.SLOW, (5,), ("gpu-1",))
    assert suspect.probability == pytest.approx(0.9) and "rank 5 on gpu-1" in headline(verdict)


def test_a_job_in_which_all_take_as_long_has_nobody_who_is_slow(tmp_path: Path) -> None:
    verdict = judged(tmp_path, {}, dict.fromkeys(range(8), 30_000))
    assert verdict.kind is Kind.UNDETERMINED and not verdict.suspects


def test_a_pipeline_waits_in_receives_that_are_not_recorded(tmp_path: Path) -> None:
    job = "[topology]\npp = 2\ndp = 4\ngpus_per_node = 4\n"
    verdict = judged(tmp_path, {}, dict.fromkeys((0, 1, 2, 3, 4, 6, 7), 30_000), job=job)
    assert verdict.kind is Kind.UNDETERMINED and not verdict.suspects


def test_a_dump_of_a_part_of_the_job_has_no_rank(tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text("[job]\nworld_size = 16\n", encoding="utf-8")
    (tmp_path / "gpu-0-pid1000.log").write_text(dump(0, 3), encoding="utf-8")
    (tmp_path / "rank9.log").write_text(dump(1, 3), encoding="utf-8")
    verdict = triage(tmp_path)
    assert "whole job" in verdict.evidence.unreadable["gpu-0-pid1000.log"]
    assert any(cluster.ranks == (9,) for cluster in verdict.clusters)


def test_a_flight_record_of_the_rank_tells_more(tmp_path: Path) -> None:
    entry = {
        "process_group": ["0", "default_pg"],
        "collective_seq_id": 7,
        "profiling_name": "nccl:all_reduce",
        "state": "scheduled",
    }
    record = {
        "version": "2.10",
        "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}},
        "entries": [entry],
    }
    (tmp_path / "a-rank0.log").write_text(dump(0, 3, size=2), encoding="utf-8")
    (tmp_path / "b-rank0.json").write_text(json.dumps(record), encoding="utf-8")
    verdict = triage(tmp_path)
    assert list(verdict.evidence.unreadable) == ["a-rank0.log"]
    assert "already read from b-rank0.json" in verdict.evidence.unreadable["a-rank0.log"]
