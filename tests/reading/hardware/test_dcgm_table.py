"""The table of `dcgmi diag`, as people keep it: what it says is what the JSON would say."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hangdog_models.errors import UnreadableEvidence
from hangdog_models.findings import Impact
from hangdog_models.reading.hardware import dcgm, dcgm_table
from support.refused import refused

HEAD = """\
Successfully ran diagnostic for group.
+---------------------------+------------------------------------------------+
| Diagnostic                | Result                                         |
+===========================+================================================+
|-----  Metadata  ----------+------------------------------------------------|
| DCGM Version              | 3.3.9                                          |
| GPU Device IDs Detected   | 2237,2237,2237,2237                            |
|-----  Deployment  --------+------------------------------------------------|
| Denylist                  | Pass                                           |
"""
FOOT = "+---------------------------+------------------------------------------------+\n"
#: four A10G of one machine, DCGM 3.3.9: aws-samples of cluster checks, 2025-12
POWER = """\
+-----  Stress  ------------+------------------------------------------------+
| Targeted Stress           | Pass - All                                     |
| Targeted Power            | Pass - GPUs: 0, 2, 3                           |
|                           | Fail - GPU: 1                                  |
| Warning                   | GPU 1 Max power of 224.1 did not reach desire  |
|                           | d power minimum target_power_min_ratio of 224  |
|                           | .2 for GPU 1 Verify that the clock speeds and  |
|                           |  GPU utilization are high.                     |
| Info                      | GPU 0 GPU 0 max power: 299.5 W average power   |
|                           | usage: 299.0 W                                 |
| Memory Bandwidth          | Pass - All                                     |
| EUD Test                  | Skip - All                                     |
"""
#: https://github.com/stas00/ml-engineering, accelerators/nvidia/debug.md: a machine whose GPU 0 gets too hot
HEAT = """\
| GPU Memory                | Pass - GPUs: 1, 2, 3, 4, 5, 6, 7               |
|                           | Fail - GPU: 0                                  |
| Warning                   | GPU 0 Thermal violations totaling 13.3 second  |
|                           | s started at 9.7 seconds into the test for GP  |
|                           | U 0 Verify that the cooling on this machine i  |
|                           | s functional, including external, thermal mat  |
|                           | erial interface, fans, and any other componen  |
|                           | ts.
"""
#: the same page: a GPU with a pending remap, which no test of its own tells
REMAP = """\
+---------------------------+------------------------------------------------+
| Diagnostic                | Result                                         |
+===========================+================================================+
|-----  Deployment  --------+------------------------------------------------|
| Error                     | GPU 3 has uncorrectable memory errors and row  |
|                           |  remappings are pending                        |
"""
#: https://github.com/NVIDIA/nccl-tests/issues/264: no fabric manager, so CUDA starts on no GPU
FABRIC = """\
+-----  Integration  -------+------------------------------------------------+
| PCIe                      | Skip - All                                     |
+-----  Hardware  ----------+------------------------------------------------+
| GPU Memory                | Fail - All                                     |
| Warning                   | GPU 0 Error using CUDA API cuInit Check DCGM   |
|                           | and system logs for errors. Reset GPU. Restar  |
|                           | t DCGM. Rerun diagnostics. Unable to initiali  |
|                           | ze CUDA library: 'system not yet initialized'  |
| Warning                   | GPU 1 Error using CUDA API cuInit Check DCGM   |
|                           | and system logs for errors. Reset GPU. Restar  |
|                           | t DCGM. Rerun diagnostics. Unable to initiali  |
|                           | ze CUDA library: 'system not yet initialized'  |
"""
#: https://github.com/NVIDIA/DCGM/issues/253, DCGM 4.2.3: the test itself broke, all GPUs passed
INTERNAL = """\
+-----  Hardware  ----------+------------------------------------------------+
| memory                    | Pass                                           |
|                           | GPU0: Pass                                     |
|                           | GPU1: Pass                                     |
+-----  Integration  -------+------------------------------------------------+
| pcie                      | Fail                                           |
| Warning                   | There was an internal error during the test:   |
|                           | 'A child process (152) exited with non-zero s  |
|                           | tatus 1' Check DCGM and system logs for error  |
|                           | s. Reset GPU. Restart DCGM. Rerun diagnostics  |
|                           | .                                              |
|                           | GPU0: Pass                                     |
|                           | GPU1: Pass                                     |
"""
#: https://github.com/NVIDIA/go-dcgm/issues/52: the head is cut off, and another program had the GPU for itself
TAIL = """\
+-----  Hardware  ----------+------------------------------------------------+
| GPU Memory                | Pass - GPU: 1                                  |
|                           | Fail - GPU: 0                                  |
| Warning                   | GPU 0 Error using CUDA API cuCtxCreate Check   |
|                           | DCGM and system logs for errors. Reset GPU. R  |
|                           | estart DCGM. Rerun diagnostics. Unable to cre  |
|                           | ate CUDA context: 'CUDA-capable device(s) is/  |
|                           | are busy or unavailable'.                      |
| Info                      | GPU 1 GPU to Host bandwidth:  12.33 GB/s, GPU  |
|                           |  1 Host to GPU bandwidth:  13.15 GB/s, GPU 1   |
|                           | bidirectional bandwidth: 22.63 GB/s            |
+---------------------------+------------------------------------------------+
"""
#: https://github.com/NVIDIA/DCGM/issues/55, DCGM 3.0.4: nothing of level 3 ran
SKIPPED = """\
+-----  Integration  -------+------------------------------------------------+
| PCIe                      | Skip - All                                     |
+-----  Hardware  ----------+------------------------------------------------+
| GPU Memory                | Skip - All                                     |
| Diagnostic                | Skip - All                                     |
"""


def read(text: str) -> list[tuple[Impact, str, str]]:
    assert dcgm_table.recognises(text)
    return [(one.impact, one.code, one.device) for one in dcgm.read(dcgm_table.read(text))]


@pytest.mark.parametrize(
    ("text", "findings"),
    [
        (HEAD + FOOT, []),
        (HEAD + POWER + FOOT, [(Impact.SUSPECTS, "DCGM Targeted Power", "1")]),
        (HEAD + HEAT, [(Impact.SLOWS, "DCGM GPU Memory", "0")]),
        (REMAP, [(Impact.RESET, "DCGM Deployment", "3")]),
        (HEAD + FABRIC + FOOT, [(Impact.SUSPECTS, "DCGM GPU Memory", "0"), (Impact.SUSPECTS, "DCGM GPU Memory", "1")]),
        (HEAD + INTERNAL + FOOT, [(Impact.TELLS_NOTHING, "DCGM pcie", "")]),
        (HEAD + SKIPPED + FOOT, []),
        (TAIL, [(Impact.TELLS_NOTHING, "DCGM GPU Memory", "0")]),
    ],
)
def test_public_tables(text: str, findings: list[tuple[Impact, str, str]]) -> None:
    assert read(text) == findings
    indented = "".join(f"  {line}\n" for line in text.splitlines())
    assert read(indented) == findings, "as it stands in a list or a pasted block"


def test_a_reason_is_whole_again() -> None:
    (found,) = dcgm.read(dcgm_table.read(HEAD + POWER))
    assert "did not reach desired power minimum target_power_min_ratio of 224.2 for GPU 1 Verify" in found.what
    (found,) = dcgm.read(dcgm_table.read(REMAP))
    assert "memory errors and row remappings are pending" in found.what


def test_each_entity_of_newer_ones() -> None:
    failed = (
        "| memory                    | Fail                                           |\n"
        "|                           | GPU0: Pass                                     |\n"
        "|                           | GPU3: Fail                                     |\n"
        "| Warning: GPU3             | GPU 3 has uncorrectable memory errors and row  |\n"
        "|                           |  remappings are pending                        |\n"
    )
    assert read(HEAD + failed) == [(Impact.RESET, "DCGM memory", "3")]


def test_many_gpus_go_on_in_the_next_row() -> None:
    failed = (
        "| Diagnostic                | Fail - GPUs: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10  |\n"
        "|                           | , 11                                           |\n"
    )
    assert [device for _, _, device in read(HEAD + failed)] == [str(gpu) for gpu in range(12)]


def test_what_passed_is_told() -> None:
    document = dcgm_table.read(HEAD + POWER + FOOT)
    assert dcgm.passed(document) == ("Denylist", "Targeted Stress", "Targeted Power", "Memory Bandwidth")
    assert [one.code for one in dcgm.sound(dcgm_table.read(HEAD + SKIPPED))] == ["passed"]


def test_a_head_without_results_is_refused() -> None:
    with refused("damaged-gpu-report", UnreadableEvidence, "dcgmi"):
        dcgm_table.read(HEAD.partition("| Denylist")[0])


ROWS = st.sampled_from(
    [*(HEAD + POWER + HEAT + REMAP + FABRIC + INTERNAL + SKIPPED).splitlines(), "| Error | ", "|||", "x"]
)


@given(st.lists(ROWS | st.text(max_size=90), max_size=30))
def test_any_rows_are_read_or_refused(rows: list[str]) -> None:
    text = "\n".join([*HEAD.splitlines(), *rows, ""])
    for found in dcgm.read(dcgm_table.read(text)):
        assert found.what.isprintable() and len(found.what) <= 800
