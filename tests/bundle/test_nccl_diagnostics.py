"""Bundles that hold NCCL's own diagnostics: what the verdict says of them."""

from pathlib import Path

import pytest

from hangdog.offline import triage
from hangdog_models.verdict import Act, Kind, Verdict
from hangdog_models.views.first_line import headline
from support.cases.goldens import differing
from support.cases.reasons import codes

SIXTEEN = '[job]\nworld_size = 16\n[machines]\n"gpu-a" = "0-3"\n"gpu-b" = "4-7"\n"gpu-c" = "8-11"\n"gpu-d" = "12-15"\n'
GOLDEN = Path(__file__).parent / "golden"
ENDED = "gpu-a:7 NCCL DIAG NCCL diagnostics completed in 245.3 ms across 16 ranks\n"


def judged(folder: Path, text: str, name: str = "machine-gpu-a/diag.txt") -> Verdict:
    (folder / "job.toml").write_text(SIXTEEN, encoding="utf-8")
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text(text, encoding="utf-8")
    return triage(folder)


def said(verdict: Verdict) -> tuple[Kind, tuple[int, ...], tuple[str, ...], float]:
    """The kind, and the ranks, the machines and the probability of the only suspect."""
    (suspect,) = verdict.suspects
    return verdict.kind, suspect.ranks, suspect.machines, round(suspect.probability, 2)


def edge(source: int, target: int, handle: str) -> str:
    ends = (
        f"srcRank={source} srcCudaDev=0 srcNvmlDev={source % 4} dstRank={target} dstCudaDev=0 dstNvmlDev={target % 4}"
    )
    return f"gpu-a:7 NCCL DIAG [INFO] p2p: write mismatch {ends} path=NVL handle={handle} expected=0x4 got=0x5; check\n"


def test_an_xid_is_of_the_host_that_the_line_names_and_not_of_who_printed_it(tmp_path: Path) -> None:
    text = "gpu-a:7 NCCL DIAG [INFO] Xid 79 detected 1 time on host gpu-c.cluster. For the recommended response, see\n"
    verdict = judged(tmp_path, text)
    assert said(verdict) == (Kind.MACHINE, (8, 9, 10, 11), ("gpu-c",), 0.97)
    assert (verdict.evict.machines, codes(verdict.because)) == (("gpu-c",), ("xid",))


def test_a_rank_is_on_its_own_machine_and_a_hint_evicts_nobody(tmp_path: Path) -> None:
    text = "gpu-a:7 NCCL DIAG [INFO] NVLink: inactive link(s) on rank(s) {9} across 16 ranks in comm 0x12\n"
    verdict = judged(tmp_path, text)
    assert (verdict.kind, verdict.evict.machines) == (Kind.UNDETERMINED, ())
    assert (verdict.suspects[0].ranks, verdict.suspects[0].machines) == ((9,), ("gpu-c",))


@pytest.mark.parametrize(
    ("edges", "kind", "ranks", "probability", "code"),
    [
        ([(0, 3)], Kind.GROUP, (0, 3), 0.76, "path-fails"),
        ([(0, 3), (1, 3), (3, 2)], Kind.MACHINE, (3,), 0.82, "device-needs-reset"),
    ],
)
def test_gpus_of_one_machine_that_cannot_reach_each_other(
    tmp_path: Path, edges: list[tuple[int, int]], kind: Kind, ranks: tuple[int, ...], probability: float, code: str
) -> None:
    verdict = judged(tmp_path, "".join(edge(*one, "CUMEM_POSIX_FD") for one in edges) + ENDED)
    assert said(verdict) == (kind, ranks, ("gpu-a",), probability) and verdict.because[0].code == code
    assert not verdict.evict.machines and (Act.TEST, ("gpu-a",)) in [(one.do, one.machines) for one in verdict.next]


def test_one_report_of_a_far_gpu_names_a_pair_and_several_name_its_machine(tmp_path: Path) -> None:
    one = judged(tmp_path, edge(0, 9, "CUMEM_FABRIC") + ENDED)
    assert said(one) == (Kind.GROUP, (0, 9), ("gpu-a", "gpu-c"), 0.76) and not one.evict.machines
    assert one.because[0].code == "path-fails"
    assert (Act.TEST, ("gpu-a", "gpu-c")) in [(each.do, each.machines) for each in one.next]
    several = judged(tmp_path, "".join(edge(rank, 9, "CUMEM_FABRIC") for rank in (0, 4, 12)) + ENDED)
    assert said(several) == (Kind.MACHINE, (8, 9, 10, 11), ("gpu-c",), 0.91)
    assert several.because[0].code == "accused-by-several" and not several.evict.machines


def test_diagnostics_that_found_nothing_decide_nothing(tmp_path: Path) -> None:
    verdict = judged(
        tmp_path, "gpu-a:7 NCCL DIAG [OK]   ECC: no uncorrected volatile errors across 16 ranks in comm 0x1\n"
    )
    assert (verdict.kind, verdict.suspects, verdict.evict.machines) == (Kind.UNDETERMINED, (), ())
    assert verdict.because[0].code == "nothing-reported"


def test_what_the_first_lines_say_is_as_a_person_has_read_it(tmp_path: Path) -> None:
    seen = {
        "one path inside a machine": ("CUMEM_POSIX_FD", [(0, 3)]),
        "several paths of one GPU inside a machine": ("CUMEM_POSIX_FD", [(0, 3), (1, 3), (3, 2)]),
        "one path between machines": ("CUMEM_FABRIC", [(0, 9)]),
        "several paths to one GPU of another machine": ("CUMEM_FABRIC", [(0, 9), (4, 9), (12, 9)]),
    }
    lines = []
    for name, (handle, edges) in seen.items():
        (folder := tmp_path / name).mkdir()
        text = "".join(edge(*one, handle) for one in edges) + ENDED
        lines.append(f"{name}\n  {headline(judged(folder, text))}\n")
    assert not differing(GOLDEN / "first_lines_of_nccl_diagnostics.txt", "".join(lines))


def test_where_the_layout_places_ranks_it_names_their_machine(tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text("[topology]\ndp = 16\ngpus_per_node = 4\n", encoding="utf-8")
    (tmp_path / "diag.txt").write_text(edge(4, 7, "DIRECT") + edge(5, 7, "DIRECT") + ENDED, encoding="utf-8")
    verdict = triage(tmp_path)
    assert said(verdict) == (Kind.MACHINE, (7,), ("node-1",), 0.82)
    assert (verdict.next[0].do, verdict.next[0].machines) == (Act.TEST, ("node-1",))
