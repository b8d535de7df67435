"""NCCL's own diagnostics: a line means what the same means elsewhere, and its ranks are the job's where it numbers the whole job.

The first report is the example of NCCL's user guide (troubleshooting/ras.rst, 2.31); the other lines are written as
src/ras/diagnostics_{gpu,net,xid}.cc and src/diagnostics/p2p.cc print them (NVIDIA/nccl, 2.31 and its successors).
"""

import pytest

from hangdog_models.findings import Finding, Impact
from hangdog_models.reading.collectives import nccl_diag

SOUND = """node042:12345 NCCL DIAG === RAS Diagnostics ===
node042:12345 NCCL DIAG [OK]   GPU inventory: 8x NVIDIA H100 per node consistent across 8 ranks in comm 0x1234
node042:12345 NCCL DIAG [OK]   ECC: no uncorrected volatile errors across 8 ranks in comm 0x1234
node042:12345 NCCL DIAG [OK]   Xid/SXid: no events requiring immediate attention across 2 hosts
node042:12345 NCCL DIAG [OK]   NVLink: 18 links per GPU, all active at consistent speed across 8 ranks in comm 0x1234
node042:12345 NCCL DIAG RAS diagnostics completed in 12.3 ms across 8 RAS peers
"""
FIRST_RELEASE = """NCCL DIAG === NCCL Diagnostics ===
NCCL DIAG [OK]   p2p: verified P2P access in both directions between every GPU pair (56 peer accesses)
NCCL DIAG NCCL diagnostics completed in 245.3 ms across 8 ranks
"""


def line(words: str, host: str = "gpu-b") -> str:
    return f"{host}:77 NCCL DIAG [INFO] {words}\n"


def edge(
    source: int, target: int, what: str = "write mismatch", handle: str = "CUMEM_POSIX_FD", host: str = "gpu-b"
) -> str:
    ends = (
        f"srcRank={source + 8} srcCudaDev=0 srcNvmlDev={source} dstRank={target + 8} dstCudaDev=0 dstNvmlDev={target}"
    )
    return line(f"p2p: {what} {ends} path=NVL handle={handle} expected=0x4000000200000001 got=0x0abc; check it", host)


def ended(size: int) -> str:
    return f"gpu-a:7 NCCL DIAG NCCL diagnostics completed in 245.3 ms across {size} ranks\n"


def told(text: str, world: int = 16) -> list[tuple[str, Impact, str, int | None]]:
    assert nccl_diag.recognises(text)
    return [(one.code, one.impact, one.machine, one.rank) for one in nccl_diag.of_job(nccl_diag.read(text), world)]


@pytest.mark.parametrize("text", [SOUND, FIRST_RELEASE])
def test_diagnostics_that_find_nothing_say_so(text: str) -> None:
    assert told(text) == [("passed", Impact.TELLS_NOTHING, "", None)]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("Xid 79 detected 2 times on host gpu-c. For the recommended response, see", ("Xid 79", Impact.CONVICTS, "gpu-c", None)),
        ("Xid 43 detected at least 65535 times on host gpu-c. Restart the affected application.", ("Xid 43", Impact.TELLS_NOTHING, "gpu-c", None)),
        ("SXid 20034 detected 1 time (NVSwitch driver reported Fatal, link(s) {3}) on host gpu-c. See", ("SXid 20034", Impact.CONVICTS, "gpu-c", None)),
        ("SXid 12028 detected 1 time (NVSwitch driver reported Non-fatal, link(s) {3,7}) on host gpu-c. See", ("SXid 12028", Impact.TELLS_NOTHING, "gpu-c", None)),
        ("ECC: uncorrected volatile errors on rank(s) {3} (worst=2) across 16 ranks in comm 0x12", ("memory errors", Impact.SUSPECTS, "", 3)),
        ("NVLink: inactive link(s) on rank(s) {3} across 16 ranks in comm 0x12", ("NVLink inactive", Impact.SUSPECTS, "", 3)),
        ("NVLink: inconsistent link speeds on rank(s) {3} across 16 ranks in comm 0x12", ("NVLink speed", Impact.SLOWS, "", 3)),
        ("NVLink: link-count mismatch across 16 ranks in comm 0x12, rank(s) {9} differ from rank 0 (18)", ("NVLink missing", Impact.SUSPECTS, "", 9)),
        ("GPU inventory: count mismatch across 4 ranks in comm 0x12, rank(s) {1,2,3} differ from rank 0 (7)", ("GPU missing", Impact.SUSPECTS, "", None)),
        ("CUDA driver version: mismatch across 16 ranks in comm 0x12, rank(s) {9} differ from rank 0 (13000)", ("to be looked at", Impact.TELLS_NOTHING, "", None)),
        ("NCCL environment: NCCL_DEBUG=INFO on rank(s) {0,1}", ("to be looked at", Impact.TELLS_NOTHING, "", None)),
        ("ECC: unavailable via NVML across 16 ranks in comm 0x12", ("to be looked at", Impact.TELLS_NOTHING, "", None)),
        ("Net device mlx5_3:1: rank(s) {8,9} differ from rank 0 (net device type=Host, speed=400000 Mbps)", ("to be looked at", Impact.TELLS_NOTHING, "", None)),
    ],
)  # fmt: skip
def test_a_line_means_what_it_means_elsewhere(words: str, expected: tuple[str, Impact, str, int | None]) -> None:
    assert told(line(words)) == [expected]


def test_the_first_rank_is_the_odd_one_where_all_others_differ_from_it() -> None:
    words = "GPU inventory: count mismatch across 4 ranks in comm 0x12, rank(s) {1,2,3} differ from rank 0 (7)"
    assert told(line(words), world=4) == [("GPU missing", Impact.SUSPECTS, "", 0)]


def test_what_most_have_alike_is_no_ranks_own() -> None:
    words = "NVLink: inactive link(s) on rank(s) {0,1,2,3,...} (N=16) across 16 ranks in comm 0x12"
    assert told(line(words)) == [("to be looked at", Impact.TELLS_NOTHING, "", None)]


def test_ranks_of_a_smaller_communicator_are_nobodys() -> None:
    words = "NVLink: inactive link(s) on rank(s) {3} across 8 ranks in comm 0x12"
    assert told(line(words), world=16) == [("NVLink inactive", Impact.SUSPECTS, "", None)]


def test_one_pair_is_a_path_and_two_pairs_with_a_gpu_in_common_name_it() -> None:
    assert told(edge(4, 5) + edge(5, 4) + ended(16)) == [("P2P wrong data", Impact.PATH, "gpu-b", 12)]
    (common,) = nccl_diag.read(edge(4, 5) + edge(6, 5, "read mismatch") + ended(16))
    assert (common.finding.impact, common.finding.device, common.finding.rank) == (Impact.RESET, "5", 13)
    (isolated,) = nccl_diag.read(edge(4, 5, "peer-memory import failed") + edge(6, 5, "peer-memory import failed"))
    assert isolated.finding.impact is Impact.SUSPECTS  # a container may have kept the processes apart


def test_pairs_without_a_gpu_in_common_are_a_setting_of_the_host() -> None:
    assert told(edge(0, 1) + edge(2, 3) + edge(0, 2)) == [("P2P wrong data", Impact.SUSPECTS, "gpu-b", None)]


def test_a_pair_on_the_fabric_may_be_of_two_machines() -> None:
    text = edge(0, 1, handle="CUMEM_FABRIC") + ended(16)
    assert told(text) == [("P2P failed", Impact.PATH, "", 8)]
    assert told(text, world=64) == [("P2P failed", Impact.TELLS_NOTHING, "", None)]


def test_lines_stand_anywhere_in_a_log_and_what_they_quote_can_be_shown() -> None:
    text = f"step 3\n[rank0]: 2026-01-02 {line('rdma_topo check: failed on 1 rank: ' + chr(27) + '[31m')}step 4"
    (one,) = nccl_diag.read(text)
    assert isinstance(one.finding, Finding) and one.finding.what.isprintable() and "x1b" in one.finding.what


def test_a_huge_report_is_cut() -> None:
    text = "".join(line(f"Xid {number % 9_000 + 1} detected 1 time on host h{number}. See") for number in range(3_000))
    assert len(nccl_diag.read(text)) <= 1_000
