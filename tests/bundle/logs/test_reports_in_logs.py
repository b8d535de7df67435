"""Bundles whose logs hold a report on other ranks: the verdict names whom it misses, and evicts nobody by that alone."""

from pathlib import Path

from hangdog.offline import triage
from hangdog_models.verdict import Kind, Verdict

JOB = '[job]\nworld_size = 16\n[machines]\n"gpu-a" = "0-7"\n"gpu-b" = "8-15"\n'
STALLED = "One or more tensors were submitted to be reduced, gathered or broadcasted by subset of ranks\n[0]<stderr>:Missing ranks:\n"
ANALYSIS = (
    "Not all ranks joining collective, sequence number: 44\ngroup info: 0:default_pg\ncollective: nccl:all_reduce\n"
    f"missing ranks: {{11}}\nexpected ranks: {set(range(16))}\n"
)
LATE = (
    '[rank{rank}]: Traceback (most recent call last):\n[rank{rank}]:   File "a.py", line 1, in f\n'
    "[rank{rank}]: RuntimeError: x.cpp:281 OPS function error: HcclAllreduce, error code is 6\n"
    "[rank{rank}]: EI0006: Getting socket times out. Reason: the remote did not send\n"
)


def judged(folder: Path, log: str) -> Verdict:
    (folder / "job.toml").write_text(JOB, encoding="utf-8")
    (folder / "job.log").write_text(log, encoding="utf-8")
    return triage(folder)


def test_ranks_that_time_out_in_hccl_are_victims(tmp_path: Path) -> None:
    verdict = judged(tmp_path, LATE.format(rank=1) + LATE.format(rank=9))
    assert (verdict.kind, verdict.evict.machines) == (Kind.UNDETERMINED, ())
    assert verdict.because[0].code == "victim-of-others" and "ranks 1,9" in verdict.because[0].text


def test_the_rank_that_the_analysis_misses_is_named(tmp_path: Path) -> None:
    verdict = judged(tmp_path, ANALYSIS)
    assert (verdict.suspects[0].ranks, verdict.evict.machines) == ((11,), ())


def test_the_coordinator_may_be_the_rank_that_it_misses(tmp_path: Path) -> None:
    verdict = judged(tmp_path, f"step 4\n[0]<stderr>:{STALLED}[0]<stderr>:0: [allreduce.a]\n")
    assert (verdict.suspects[0].ranks, verdict.evict.machines) == ((0,), ())


def test_sides_that_wait_for_each_other_are_code(tmp_path: Path) -> None:
    lists = "[0]<stderr>:0: [broadcast.b]\n[0]<stderr>:1: [allreduce.a]\n"
    verdict = judged(tmp_path, f"step 4\n[0]<stderr>:{STALLED}{lists}")
    assert (verdict.kind, verdict.evict.machines) == (Kind.SOFTWARE, ())


def test_a_crash_is_code_of_the_machine_that_names_itself(tmp_path: Path) -> None:
    verdict = judged(tmp_path, "[gpu-b:71  :0:71] Caught signal 11 (Segmentation fault: address not mapped)\n")
    assert (verdict.kind, verdict.evict.machines) == (Kind.SOFTWARE, ())
