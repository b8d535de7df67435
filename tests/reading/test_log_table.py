"""The table of log lines: every row has a line that it, and no row before it, matches."""

import re

import pytest

from hangdog_models.errors import OurFault
from hangdog_models.findings import Bearing
from hangdog_models.reading.logs.log_table import packaged, parse

#: Lines as the programs write them, in the order of the table.
LINES = [
    ("CUDA uncorrectable ECC", Bearing.CONVICTS, "  what():  CUDA error: uncorrectable ECC error encountered"),
    ("CUDA uncorrectable ECC", Bearing.CONVICTS, "transform: failed to synchronize: cudaErrorECCUncorrectable"),
    ("CUDA uncorrectable NVLink", Bearing.CONVICTS, "CUDA error: uncorrectable NVLink error detected during the execution"),
    ("GPU lost", Bearing.CONVICTS, "Unable to determine the device handle for GPU0000:1B:00.0: GPU is lost."),
    ("CUDA unknown error", Bearing.RESET, "RuntimeError: CUDA error: unknown error"),
    ("CUDA unknown error", Bearing.RESET, "a:1:2 [3] NCCL WARN Cuda failure 'unknown error'"),
    ("no CUDA device", Bearing.SUSPECTS, "RuntimeError: No CUDA: no CUDA-capable device is detected"),
    ("no CUDA device", Bearing.SUSPECTS, "CUDA error: all CUDA-capable devices: CUDA-capable device(s) is/are busy or unavailable"),
    ("CUDA system not ready", Bearing.SUSPECTS, "CUDA error: system not yet initialized"),
    ("CUDA contained error", Bearing.SUSPECTS, "CUDA error: Invalid access of peer GPU memory over nvlink or a hardware error"),
    ("CUDA illegal instruction", Bearing.SUSPECTS, "CUDA error: an illegal instruction was encountered"),
    ("NVML does not answer", Bearing.SUSPECTS, "Failed to initialize NVML: Driver/library version mismatch"),
    ("CUDA illegal memory access", Bearing.PROGRAM, "CUDA error: an illegal memory access was encountered"),
    ("CUDA device-side assert", Bearing.PROGRAM, "CUDA error: device-side assert triggered"),
    ("CUDA launch failure", Bearing.PROGRAM, "CUDA error: unspecified launch failure"),
    ("CUDA installation", Bearing.PROGRAM, "CUDA driver version is insufficient for CUDA runtime version"),
    ("GPU out of memory", Bearing.PROGRAM, "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"),
    ("CUDA library failed", Bearing.TELLS_NOTHING, "CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx`"),
    ("IB error 12", Bearing.PATH, "NET/IB : Got completion from peer 10.0.0.7<41> with error 12, opcode 0, len 0"),
    ("IB error 12", Bearing.PATH, "NET/IB: Got completion from peer fd00::7%eth0<41> with status=12 opcode=129 len=0"),
    ("IB error 12", Bearing.PATH, "NET/IB: Got completion from peer a<41> with status=IBV_WC_RETRY_EXC_ERR(12) opcode=0"),
    ("IB error 4", Bearing.PATH, "NET/IB : Got completion from peer 10.0.0.7<41> with error 4, opcode 0, len 0"),
    ("IB error 5", Bearing.TELLS_NOTHING, "NET/IB : Got completion from peer 10.0.0.7<41> with error 5, opcode 0"),
    ("IB error", Bearing.PATH, "NET/IB : Got completion from peer 10.0.0.7<41> with error 13, opcode 0"),
    ("IB port event", Bearing.SUSPECTS, "NCCL WARN NET/IB : mlx5_3:1 async fatal event: local catastrophic error"),
    ("no connection", Bearing.PATH, "socketPollConnect: connect to 10.0.0.7<41> returned No route to host"),
    ("connection lost", Bearing.VICTIM, "[../gloo/transport/tcp/pair.cc:5] Connection closed by peer [10.0.0.7]:33"),
    ("connection lost", Bearing.VICTIM, "NCCL WARN Net : Connection closed by remote peer gpu-b.cluster<41>"),
    ("connection lost", Bearing.VICTIM, "recvValue failed: Connection reset by peer"),
    ("NCCL remote error", Bearing.VICTIM, "ncclRemoteError: A call failed possibly due to a network error"),
    ("NCCL system error", Bearing.VICTIM, "DistBackendError: NCCL error in: x.cpp:3, unhandled system error, NCCL version 2.1"),
    ("gloo time-out", Bearing.VICTIM, "RuntimeError: Timed out waiting 1800000ms for recv operation to complete"),
    ("two jobs on one bootstrap", Bearing.PROGRAM, "Bootstrap Root : rank 3 of 8 ranks has already checked in"),
    ("NCCL invalid usage", Bearing.PROGRAM, "NCCL WARN Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 1b000"),
    ("NCCL failed", Bearing.TELLS_NOTHING, "NCCL error in: x.cpp:3, unhandled cuda error, NCCL version 2.1"),
    ("heartbeat monitor", Bearing.TELLS_NOTHING, "Heartbeat monitor timed out! Process will be terminated"),
    ("heartbeat monitor", Bearing.TELLS_NOTHING, "ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress"),
    ("dump signal", Bearing.TELLS_NOTHING, "Received a dump signal due to a collective timeout from  rank 1"),
    ("parameters not verified", Bearing.VICTIM, "DDP expects same model across all ranks, but Rank 0 has 5 params, while rank 1 has inconsistent 0 params."),
    ("models differ", Bearing.PROGRAM, "DDP expects same model across all ranks, but Rank 0 has 5 params, while rank 1 has inconsistent 6 params."),
    ("monitored barrier", Bearing.VICTIM, "[Rank 0]: Ranks 1, 5 failed to pass monitoredBarrier in 5000 ms"),
    ("monitored barrier", Bearing.VICTIM, "reached monitoredBarrier, but received errors while waiting for send/recv from rank 3."),
    ("store time-out", Bearing.VICTIM, "DistStoreError: Timed out after 601 seconds waiting for clients. 7/8 clients joined."),
    ("shared memory exhausted", Bearing.PROGRAM, "DataLoader worker (pid 71) is killed by signal: Bus error. It is possible that"),
    ("data loader worker died", Bearing.PROGRAM, "RuntimeError: DataLoader worker (pid(s) 71) exited unexpectedly"),
    ("no space left", Bearing.SERVICE, "OSError: [Errno 28] No space left on device"),
    ("storage error", Bearing.SERVICE, "OSError: [Errno 116] Stale file handle"),
    ("host out of memory", Bearing.PROGRAM, "OSError: [Errno 12] Cannot allocate memory"),
    ("host out of memory", Bearing.PROGRAM, "terminate called after throwing an instance of 'std::bad_alloc'"),
    ("address in use", Bearing.PROGRAM, "The server socket has failed to bind: EADDRINUSE, Address already in use"),
    ("segmentation fault", Bearing.PROGRAM, "Fatal Python error: Segmentation fault"),
    ("ended by the launcher", Bearing.TELLS_NOTHING, "torch.distributed.elastic.SignalException: Process 71 got signal: 15"),
    ("interrupted", Bearing.TELLS_NOTHING, "KeyboardInterrupt"),
    ("another process failed", Bearing.VICTIM, "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: "),
    ("distributed call failed", Bearing.VICTIM, "torch.distributed.DistBackendError: something new"),
]  # fmt: skip


@pytest.mark.parametrize(("code", "bearing", "line"), LINES, ids=[f"{n}" for n in range(len(LINES))])
def test_each_line_means_its_row(code: str, bearing: Bearing, line: str) -> None:
    found = packaged().find(line)
    assert found is not None and (found[0].code, found[0].bearing) == (code, bearing)


def test_every_row_has_a_line() -> None:
    found = [packaged().find(line) for *_, line in LINES]
    assert set(packaged().rows) == {match[0] for match in found if match}


def test_every_row_says_whence_and_what() -> None:
    for row in packaged().rows:
        assert row.source and row.what
        assert set(row.match.groupindex) <= {"peer", "ranks", "device"}


@pytest.mark.parametrize(
    ("line", "peer"),
    [
        ("NET/IB : Got completion from peer 10.0.0.7<41> with error 12, opcode 0", "10.0.0.7"),
        ("Connection closed by remote peer gpu-b.cluster<41>", "gpu-b.cluster"),
        ("Connection closed by peer [fd00::7]:33", "fd00::7"),
    ],
)
def test_the_other_end_is_named(line: str, peer: str) -> None:
    found = packaged().find(line)
    assert found is not None and found[1]["peer"] == peer


def test_a_healthy_log_says_nothing() -> None:
    healthy = [
        "NCCL INFO comm 0x1 rank 0 nranks 8 - Init COMPLETE", "NCCL version 2.21.5+cuda12.4", "epoch 3, loss 0.2, error 0.1",
        "saving checkpoint to /ckpt/step-400 (12.0 GB) on device cuda:0", "connection established with 8 peers",
    ]  # fmt: skip
    assert [line for line in healthy if packaged().find(line)] == []


@pytest.mark.parametrize(
    "wrong", ["x", 'name = "a"\n[[line]]\ncode = "c"', 'name = "a"\nline = 3', re.sub("suffers", "sighs", 'name="a"\n[[line]]\ncode="c"\nmatch="m"\nhints=["m"]\nbearing="suffers"\nwhat="w"\nsource="s"')]
)  # fmt: skip
def test_a_wrong_table_is_our_fault(wrong: str) -> None:
    with pytest.raises(OurFault, match="the table of log lines is wrong"):
        parse(wrong)
