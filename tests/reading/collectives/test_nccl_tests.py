"""Tables of nccl-tests: wrong results, a run that gave up, a machine far behind others."""

import re

import pytest

from hangdog_models.errors import UnreadableEvidence
from hangdog_models.findings import Impact
from hangdog_models.reading.collectives import nccl_tests
from support.refused import refused

HEADER = "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong\n"


def run(
    *hosts: str,
    wrong: int = 0,
    busbw: float = 361.2,
    end: str = "# Out of bounds values : 0 OK\n",
    test: str = "all_reduce_perf",
) -> str:
    ranks = "".join(
        f"#  Rank {2 * at + gpu:2} Group  0 Pid  29382 on {host:>10} device  {gpu} [0x07] NVIDIA H100 80GB HBM3\n"
        for at, host in enumerate(hosts)
        for gpu in range(2)
    )
    rows = "".join(
        f"{size:12} {size // 4:13}     float     sum      -1    41.32   {busbw / 2:.2f}  {busbw:.2f}      {wrong}    41.02   0.10  {busbw:.2f}    N/A\n"
        for size in (1 << 20, 1 << 27)
    )
    return (
        f"# Collective test starting: {test}\n# nThread 1 nGpus 2 minBytes 1048576 maxBytes 134217728 step: 2(factor) warmup iters: 5\n#\n"
        f"# Using devices\n{ranks}#\n{HEADER}{rows}{end}"
    )


#: https://github.com/NVIDIA/nccl-tests/issues/287
SOUND = """# nThread 1 nGpus 1 minBytes 33554432 maxBytes 33554432 step: 1048576(bytes) warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0
#
# Using devices
#  Rank  0 Group  0 Pid 2181762 on   GENOA-01 device  0 [0x01] NVIDIA GeForce RTX 5090
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
    33554432       8388608     float    none      -1    19.56  1715.44    0.00      0     0.78  43046.10    0.00    N/A
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 0
"""
#: https://github.com/NVIDIA/nccl-tests/issues/217: it hangs as it begins
HUNG = """$ ./build/all_reduce_perf -b 8 -e 128M -f 2 -g 1
# nThread 1 nGpus 1 minBytes 8 maxBytes 134217728 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0
#
# Using devices
#  Rank  0 Group  0 Pid  70918 on NAME device  0 [0x01] NVIDIA RTX A6000
NAME :70918:70918 [0] NCCL INFO Bootstrap : Using lo:127.0.0.1<0>
"""
#: https://github.com/NVIDIA/nccl-tests/issues/167
PLAIN = "      199680         49920     float     max      -1    125.8    1.59    2.98      0    125.1    1.60    2.99      0\n"


@pytest.mark.parametrize("text", [SOUND, run("a"), run("a", "b"), HEADER + PLAIN])
def test_a_run_without_errors_says_nothing(text: str) -> None:
    assert nccl_tests.recognises(text)
    assert nccl_tests.read(text) == ()


@pytest.mark.parametrize(
    ("hosts", "impact", "machine"),
    [(("gpu-a17",), Impact.SUSPECTS, "gpu-a17"), (("gpu-a17", "gpu-a18"), Impact.TELLS_NOTHING, "")],
)
def test_wrong_results_are_of_a_machine_only_where_it_ran_alone(
    hosts: tuple[str, ...], impact: Impact, machine: str
) -> None:
    (found,) = nccl_tests.read(run(*hosts, wrong=3, end="# Out of bounds values : 2 FAILED\n"))
    assert (found.code, found.impact, found.machine) == ("wrong results", impact, machine)
    assert all(value in found.what for value in ("1048576 bytes", "3 values", "gpu-a17"))


def test_a_run_that_gave_up_says_after_which_size() -> None:
    (found,) = nccl_tests.read(run("gpu-a17", end="gpu-a17: Test timeout (30s) /src/common.cu:301\n"))
    assert (found.code, found.impact, found.machine) == ("test stuck", Impact.SUSPECTS, "gpu-a17")
    assert "30 s" in found.what and "134217728 bytes" in found.what


@pytest.mark.parametrize(("text", "last"), [(HUNG, 0), (run("a", "b", end="").rpartition("   134217728")[0], 1 << 20)])
def test_a_table_that_ends_early_accuses_nobody(text: str, last: int) -> None:
    assert nccl_tests.recognises(text)
    (found,) = nccl_tests.read(text)
    assert (found.code, found.impact, found.machine) == ("test unfinished", Impact.TELLS_NOTHING, "")
    assert f"shown up to {last} of 134217728 bytes" in found.what


def test_a_machine_that_is_far_behind_others_slows() -> None:
    text = run("a") + run("b") + run("c", busbw=120.5) + run("d")
    (found,) = nccl_tests.read(text)
    assert (found.code, found.impact, found.machine) == ("slow test", Impact.SLOWS, "c")
    assert re.search(r"\bon c .*\b120\.5 GB/s\b.*\b3 others .*\b361\.2\b", found.what)


def test_runs_of_several_machines_or_of_other_tests_are_not_compared() -> None:
    assert (
        nccl_tests.read(run("a") + run("b") + run("c", "d", busbw=80.0) + run("e", busbw=90.0, test="alltoall_perf"))
        == ()
    )


def test_a_bandwidth_below_what_was_asked_for_slows() -> None:
    (found,) = nccl_tests.read(run("a", end="# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 120.5 FAILED\n"))
    assert (found.code, found.impact, found.machine) == ("slow test", Impact.SLOWS, "a")


@pytest.mark.parametrize("text", ["", "# size of the model: 7\n", PLAIN])
def test_any_other_text_is_none(text: str) -> None:
    assert not nccl_tests.recognises(text)
    with refused("damaged-report", UnreadableEvidence):
        nccl_tests.read(text)
