"""Bundles with the table of `nvidia-smi`: it speaks of its machine, and in a job's log it is only what the job printed."""

from pathlib import Path

from hangdog.offline import open_case, triage
from hangdog_models.verdict import Kind

JOB = '[job]\nworld_size = 16\n[machines]\n"gpu-a" = "0-7"\n"gpu-b" = "8-15"\n'
TABLE = """\
| NVIDIA-SMI 515.65.01    Driver Version: 515.65.01    CUDA Version: 11.7     |
|-------------------------------+----------------------+----------------------+
|   5  ERR!                On   | 00000000:91:00.0 Off |                 ERR! |
|ERR!  ERR! ERR!    ERR! / ERR! |      0MiB / 81920MiB |    ERR!      Default |
|                               |                      |                 ERR! |
+-------------------------------+----------------------+----------------------+
"""
LOG = "[rank3]:[E1] ProcessGroupNCCL.cpp:1] RuntimeError: CUDA error: device-side assert triggered\n"


def bundle(folder: Path, name: str, text: str) -> Path:
    (folder / "job.toml").write_text(JOB, encoding="utf-8")
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text(text, encoding="utf-8")
    return folder


def test_a_gpu_that_answers_nothing_convicts_its_machine(tmp_path: Path) -> None:
    verdict = triage(bundle(tmp_path, "machine-gpu-b/nvidia-smi.txt", TABLE))
    assert (verdict.kind, verdict.evict.machines) == (Kind.MACHINE, ("gpu-b",))


def test_a_log_below_the_table_is_read_and_the_table_in_it_is_not(tmp_path: Path) -> None:
    found = open_case(bundle(tmp_path, "machine-gpu-a/train.log", TABLE + LOG)).snapshot.findings
    assert [one.code for one in found] == ["CUDA device-side assert"]
