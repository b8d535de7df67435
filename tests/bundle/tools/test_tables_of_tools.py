"""Bundles with tables of links and of tests: they say where to look, and evict nobody."""

from pathlib import Path

import pytest

from hangdog.offline import triage

JOB = '[job]\nworld_size = 16\n[machines]\n"gpu-a" = "0-7"\n"gpu-b" = "8-15"\n'
PORT = "CA '{name}'\n\tCA type: MT4129\n\tPort 1:\n\t\tState: {state}\n\t\tPhysical state: {physical}\n\t\tRate: 400\n\t\tLink layer: InfiniBand\n"
PORTS = "".join(
    PORT.format(name=f"mlx5_{at}", state="Down" if at == 3 else "Active", physical="Polling" if at == 3 else "LinkUp")
    for at in range(4)
)
LINKS = "|  NvLink Link Status  |\nGPUs:\n" + "".join(
    f"    gpuId {at}:\n        U U {'D' if at == 2 else 'U'} U\n" for at in range(4)
)
RUN = """# nThread 1 nGpus 2 minBytes 8 maxBytes 8 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0
#  Rank  0 Group  0 Pid  29382 on    gpu-a device  0 [0x07] NVIDIA H100 80GB HBM3
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
           8             2     float     sum      -1    41.32    0.00    0.00      4    41.02    0.00    0.00      0
# Out of bounds values : 1 FAILED
"""


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (PORTS, "InfiniBand ports of gpu-a: link down: the port mlx5_3/1 is not active"),
        (LINKS, "NVLink of gpu-a: GPU 2: 1 of 4 NVLinks are down"),
        (RUN, "the test over gpu-a gave wrong results"),
    ],
)
def test_a_table_names_its_machine_and_evicts_nobody(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "job.toml").write_text(JOB, encoding="utf-8")
    (tmp_path / "machine-gpu-a").mkdir()
    (tmp_path / "machine-gpu-a" / "collected.txt").write_text(text, encoding="utf-8")
    verdict = triage(tmp_path)
    assert not verdict.evict.machines
    assert any(says in str(why) for why in verdict.because)
