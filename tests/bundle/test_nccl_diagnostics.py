"""Bundles that hold NCCL's own diagnostics: what the first line of the verdict says of them."""

from pathlib import Path

import pytest

from hangdog.offline import triage
from hangdog_models.views.first_line import headline

SIXTEEN = '[job]\nworld_size = 16\n[machines]\n"gpu-a" = "0-3"\n"gpu-b" = "4-7"\n"gpu-c" = "8-11"\n"gpu-d" = "12-15"\n'
ENDED = "gpu-a:7 NCCL DIAG NCCL diagnostics completed in 245.3 ms across 16 ranks\n"


def first_line(folder: Path, text: str, name: str = "machine-gpu-a/diag.txt") -> str:
    (folder / "job.toml").write_text(SIXTEEN, encoding="utf-8")
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text(text, encoding="utf-8")
    return headline(triage(folder))


def edge(source: int, target: int, handle: str) -> str:
    ends = (
        f"srcRank={source} srcCudaDev=0 srcNvmlDev={source % 4} dstRank={target} dstCudaDev=0 dstNvmlDev={target % 4}"
    )
    return f"gpu-a:7 NCCL DIAG [INFO] p2p: write mismatch {ends} path=NVL handle={handle} expected=0x4 got=0x5; check\n"


def test_an_xid_is_of_the_host_that_the_line_names_and_not_of_who_printed_it(tmp_path: Path) -> None:
    text = "gpu-a:7 NCCL DIAG [INFO] Xid 79 detected 1 time on host gpu-c.cluster. For the recommended response, see\n"
    assert first_line(tmp_path, text) == "machine: gpu-c holds the job up (97% sure). Evict gpu-c."


def test_a_rank_is_on_its_own_machine_and_a_hint_evicts_nobody(tmp_path: Path) -> None:
    text = "gpu-a:7 NCCL DIAG [INFO] NVLink: inactive link(s) on rank(s) {9} across 16 ranks in comm 0x12\n"
    assert "Don't remove anything yet" in first_line(tmp_path, text)
    verdict = triage(tmp_path)
    assert (verdict.suspects[0].ranks, verdict.suspects[0].machines) == ((9,), ("gpu-c",))


@pytest.mark.parametrize(
    ("edges", "said"),
    [
        (
            [(0, 3)],
            "group: a path at gpu-a fails (76% sure). Evict nobody yet: get stacks of all ranks, or test gpu-a.",
        ),
        ([(0, 3), (1, 3), (3, 2)], "machine: rank 3 on gpu-a holds the job up, because of its machine (82%)"),
    ],
)
def test_gpus_of_one_machine_that_cannot_reach_each_other(
    tmp_path: Path, edges: list[tuple[int, int]], said: str
) -> None:
    text = "".join(edge(*one, "CUMEM_POSIX_FD") for one in edges) + ENDED
    assert first_line(tmp_path, text).startswith(said)


def test_one_report_of_a_far_gpu_names_a_pair_and_several_name_its_machine(tmp_path: Path) -> None:
    one = first_line(tmp_path, edge(0, 9, "CUMEM_FABRIC") + ENDED)
    assert (
        one
        == "group: the path between gpu-a and gpu-c fails (76% sure). Evict nobody yet: get stacks of all ranks, or test gpu-a, gpu-c in pairs."
    )
    several = first_line(tmp_path, "".join(edge(rank, 9, "CUMEM_FABRIC") for rank in (0, 4, 12)) + ENDED)
    assert "on gpu-c hold the job up" in several and "Evict nobody yet" in several


def test_diagnostics_that_found_nothing_decide_nothing(tmp_path: Path) -> None:
    said = first_line(
        tmp_path, "gpu-a:7 NCCL DIAG [OK]   ECC: no uncorrected volatile errors across 16 ranks in comm 0x1\n"
    )
    assert said.startswith("undetermined") and "Don't remove anything yet" in said


def test_where_the_layout_places_ranks_it_names_their_machine(tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text("[topology]\ndp = 16\ngpus_per_node = 4\n", encoding="utf-8")
    (tmp_path / "diag.txt").write_text(edge(4, 7, "DIRECT") + edge(5, 7, "DIRECT") + ENDED, encoding="utf-8")
    said = headline(triage(tmp_path))
    assert said.startswith(
        "machine: rank 7 on node-1 holds the job up, because of its machine (82%)"
    ) and said.endswith("test node-1.")
