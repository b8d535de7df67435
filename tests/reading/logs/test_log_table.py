"""The table of log lines: every row has a line that it, and no row before it, matches."""

import re

import pytest

from hangdog_models.errors import OurFault
from hangdog_models.findings import Impact
from hangdog_models.reading.logs.log_table import cluster, packaged, parse
from support.refused import refused

#: Lines as the programs write them, in the order of the table.
LINES = [
    ("CUDA uncorrectable ECC", Impact.CONVICTS, "  what():  CUDA error: uncorrectable ECC error encountered"),
    ("CUDA uncorrectable ECC", Impact.CONVICTS, "transform: failed to synchronize: cudaErrorECCUncorrectable"),
    ("CUDA uncorrectable NVLink", Impact.CONVICTS, "CUDA error: uncorrectable NVLink error detected during the execution"),
    ("GPU lost", Impact.CONVICTS, "Unable to determine the device handle for GPU0000:1B:00.0: GPU is lost."),
    ("GPU hang", Impact.RESET, "50%|####| 4/8 [0:40<0:40, 10.0s/it]HW Exception by GPU node-9 (Agent handle: 0x71) reason :GPU Hang"),
    ("CUDA unknown error", Impact.RESET, "RuntimeError: CUDA error: unknown error"),
    ("CUDA unknown error", Impact.RESET, "a:1:2 [3] NCCL WARN Cuda failure 'unknown error'"),
    ("no CUDA device", Impact.SUSPECTS, "RuntimeError: No CUDA: no CUDA-capable device is detected"),
    ("no CUDA device", Impact.SUSPECTS, "CUDA error: all CUDA-capable devices: CUDA-capable device(s) is/are busy or unavailable"),
    ("no CUDA device", Impact.SUSPECTS, "RuntimeError: No CUDA GPUs are available"),
    ("CUDA system not ready", Impact.RESET, "CUDA error: system not yet initialized"),
    ("CUDA system not ready", Impact.RESET, "Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized"),
    ("CUDA system not ready", Impact.RESET, "a:1:2 [5] transport/nvls.cc:379 NCCL WARN Failed to bind NVLink SHARP (NVLS) Multicast memory of size 4096 : CUDA error 802 'system not yet initialized'"),
    ("CUDA contained error", Impact.SUSPECTS, "CUDA error: Invalid access of peer GPU memory over nvlink or a hardware error"),
    ("CUDA illegal instruction", Impact.SUSPECTS, "CUDA error: an illegal instruction was encountered"),
    ("NVML does not answer", Impact.SUSPECTS, "Failed to initialize NVML: Driver/library version mismatch"),
    ("CUDA illegal memory access", Impact.PROGRAM, "CUDA error: an illegal memory access was encountered"),
    ("GPU memory access fault", Impact.PROGRAM, "Memory access fault by GPU node-3 (Agent handle: 0x5) on address 0x7f. Reason: Unknown."),
    ("CUDA device-side assert", Impact.PROGRAM, "CUDA error: device-side assert triggered"),
    ("HIP launch failure", Impact.SUSPECTS, "RuntimeError: HIP error: unspecified launch failure"),
    ("CUDA launch failure", Impact.PROGRAM, "CUDA error: unspecified launch failure"),
    ("CUDA installation", Impact.PROGRAM, "CUDA driver version is insufficient for CUDA runtime version"),
    ("host out of memory", Impact.PROGRAM, "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory."),
    ("GPU out of memory", Impact.PROGRAM, "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"),
    ("GPU out of memory", Impact.PROGRAM, "gpu-c:71:91 [5] include/alloc.h:178 NCCL WARN Cuda failure 2 'out of memory'"),
    ("GPU out of memory", Impact.PROGRAM, "a:1:2 [5] transport/nvls.cc:379 NCCL WARN Failed to bind NVLink SHARP (NVLS) Multicast memory of size 4096 : CUDA error 2 'out of memory'"),
    ("NVLink multicast refused", Impact.SUSPECTS, "a:1:2 [5] transport/nvls.cc:379 (nvlsAllocateMem) NCCL WARN Failed to bind NVLink SHARP (NVLS) Multicast memory of size 4096 : CUDA error 401 'the operation cannot be performed in the present state'"),
    ("NCCL failed", Impact.TELLS_NOTHING, "a:1:2 [0] include/alloc.h:185 NCCL WARN Failed to CUDA calloc async 4 bytes"),
    ("CUDA library failed", Impact.TELLS_NOTHING, "CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx`"),
    ("NPU uncorrectable memory error", Impact.CONVICTS, "RuntimeError: call aclnnAdd failed, error code is 507054"),
    ("NPU operator failed", Impact.PROGRAM, "RuntimeError: NPU function error: aclrtSynchronizeStream, error code is 507015"),
    ("NPU time-out", Impact.VICTIM, "RuntimeError: x.cpp:4 NPU function error: aclrtSynchronizeDevice, error code is 507046"),
    ("NPU time-out", Impact.VICTIM, "EH9999: wait for compute device to finish failed, runtime result = 107020.[FUNC:a]"),
    ("NPU suspects another", Impact.VICTIM, "NPU function error: aclrtSynchronizeStream, error code is 507057"),
    ("HCCL time-out", Impact.VICTIM, "EI0002: The wait execution of the Notify register times out. Reason: x from remote rank: [3]. base information: [a]. group information: [group:[hccl_world_group], rankSize[8]]"),
    ("HCCL time-out", Impact.VICTIM, "EI0002: [PID: 7] 2026-01-02 x times out. Reason: x from remote rank: [unknown]. base information: [streamID:[1]]"),
    ("HCCL time-out", Impact.VICTIM, "Notify register times out"),
    ("HCCL time-out", Impact.VICTIM, "The error from device(chipId:2, dieId:0), serial number is 9, hccl fftsplus task timeout occurred during task execution, stream_id:4, sq_id:4, task_id:71, stuck notify num:1, timeout:1836.[FUNC:x]"),
    ("HCCL no connection", Impact.VICTIM, "EI0006: [PID: 7] 2026-01-02-03:04:05.006.007 Getting socket times out. Reason: the other did not send"),
    ("HCCL transfer failed", Impact.PATH, "x(EI0013): An error CQE occurred. Local information: server 10.0.0.1, device ID 0, device IP 10.1.0.1. Peer information: server 10.0.0.2, device ID 1"),
    ("HCCL transfer failed", Impact.VICTIM, "EI0012: SDMA memory copy task exception occurred. Remote rank: 3."),
    ("HCCL operations differ", Impact.PROGRAM, "EI0005: The parameters of operator AllReduce are inconsistent between ranks, parameter count is 4"),
    ("HCCL settings", Impact.PROGRAM, "EI0004: Failed to parse the ranktable file /a"),
    ("HCCL out of memory", Impact.PROGRAM, "EI0007: Failed to allocate resource stream"),
    ("NPU still in use", Impact.PROGRAM, "EJ0001: 2026-01-02 Failed to initialize the HCCP process. Reason: x"),
    ("NPU call failed", Impact.TELLS_NOTHING, "RuntimeError: x.cpp:281 OPS function error: HcclAllreduce, error code is 6"),
    ("XLA rendezvous", Impact.TELLS_NOTHING, "E0102 rendezvous.cc:31] This thread has been waiting for `all-reduce` for 10 seconds and may be stuck."),
    ("JAX barrier", Impact.VICTIM, "jaxlib.xla_extension.XlaRuntimeError: DEADLINE_EXCEEDED: Barrier timed out. Id: sync.0"),
    ("JAX coordination lost", Impact.VICTIM, "Terminating process because the JAX distributed service detected fatal errors."),
    ("accelerator halted", Impact.TELLS_NOTHING, "INTERNAL: Accelerator device halted prematurely, perhaps due to an on-device check-failure"),
    ("Paddle RPC failed", Impact.VICTIM, "PaddleCheckError: internal error in RPCClient at [a.cc:129]"),
    ("workers do not answer", Impact.TELLS_NOTHING, "[shm_broadcast.py:1] No available shared memory broadcast block found in 60 seconds."),
    ("workers did not answer", Impact.VICTIM, "TimeoutError: RPC call to sample_tokens timed out."),
    ("scheduler stalled", Impact.VICTIM, "[2026-01-02 03:04:05 TP4] Watchdog timeout (self.watchdog_timeout=300)"),
    # NVIDIA-NeMo/Speech#14348, alibaba/Pai-Megatron-Patch#60 and #680
    ("wrong numbers", Impact.NUMBERS, "i.pretrain/0 [default2]:[rank2]: RuntimeError: Rank 2, node dcfai-xe9680-01, device 2, iteration -1: Unexpected result nan (message='found NaN in local grad norm for bucket #0 in backward pass before data-parallel communication collective')"),
    ("wrong numbers", Impact.NUMBERS, "AssertionError: Rank 3: found NaN in local grad norm in backwards pass. Device: 3, node: set-zw04-kubernetes-pc133.mt"),
    ("wrong numbers", Impact.NUMBERS, "AssertionError: Rank 114: found NaN in local forward loss calculation. Device: 2,"),
    ("loss scale at minimum", Impact.NUMBERS, "Exception: Current loss scale already at minimum - cannot decrease scale anymore. Exiting run."),
    ("IB error 12", Impact.PATH, "NET/IB : Got completion from peer 10.0.0.7<41> with error 12, opcode 0, len 0"),
    ("IB error 12", Impact.PATH, "NET/IB: Got completion from peer fd00::7%eth0<41> with status=12 opcode=129 len=0"),
    ("IB error 12", Impact.PATH, "NET/IB: Got completion from peer a<41> with status=IBV_WC_RETRY_EXC_ERR(12) opcode=0"),
    ("IB request refused", Impact.PROGRAM, "NET/IB : Got completion from peer 10.0.0.7<41> with error 4, opcode 0, len 0, vendor err 81 (Send)"),
    ("IB request refused", Impact.PROGRAM, "NET/IB : Got completion from peer 10.0.0.7<41> with status=9 opcode=0 len=0 vendor err 138 (Send)"),
    ("IB request refused", Impact.PROGRAM, "NET/IB : Got completion from peer 10.0.0.7<41> with status=IBV_WC_REM_ACCESS_ERR(10) opcode=0"),
    ("IB error 5", Impact.TELLS_NOTHING, "NET/IB : Got completion from peer 10.0.0.7<41> with error 5, opcode 0"),
    ("IB error", Impact.PATH, "NET/IB : Got completion from peer 10.0.0.7<41> with error 13, opcode 0"),
    ("collective sizes differ", Impact.PROGRAM, "transport/net_socket.cc:567 NCCL WARN NET/Socket : peer 127.0.0.1<57892> message truncated : receiving 1048576 bytes instead of 65536. If you believe your socket network is in a healthy state, there may be a mismatch in collective sizes"),
    ("collective sizes differ", Impact.PROGRAM, "NCCL WARN NET/Socket : message truncated : receiving 696320 bytes instead of 32768"),  # NVIDIA/nccl#268
    ("collective sizes differ", Impact.PROGRAM, "  what():  [enforce fail at /pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:456] op.preamble.length <= op.nbytes. 3268 vs 4. Received data size doesn't match expected size. Is there a distributed collective mismatch in your code?"),
    ("collectives differ", Impact.PROGRAM, "init.cc:1247 NCCL WARN Mismatched collective detected, please check your collective calls at and around rank 7."),
    ("collective sizes differ", Impact.PROGRAM, "transport/net_ib.cc:1038 NCCL WARN NET/IB : req 0/1 tag 0 peer 10.10.23.6<58683> collective mismatch error, local size 496640 remote size 65536"),  # NVIDIA/nccl#969
    ("collective sizes differ", Impact.PROGRAM, "NCCL WARN NET/IB : collective mismatch error local size 8192 remote 4096 addr 7f2a rkey 1b seq 3/3"),
    ("IB port news", Impact.TELLS_NOTHING, "NCCL INFO NET/IB : mlx5_3:1 Got async event : client reregistration"),
    ("IB request refused", Impact.PROGRAM, "NCCL WARN NET/IB : mlx5_0:1 Got async event : local access violation work queue error"),
    ("IB port event", Impact.SUSPECTS, "NCCL WARN NET/IB : mlx5_3:1 Got async event : port error"),
    ("IB port event", Impact.SUSPECTS, "NCCL WARN NET/IB : mlx5_3:1 async fatal event: local catastrophic error"),
    ("no path at set-up", Impact.VICTIM, "ibvwrap.c:262 NCCL WARN Call to ibv_modify_qp failed with 110 Connection timed out, on dev mlx5_1:1, curr state INIT, next state RTR, local GID ::ffff:10.0.0.1, remote GID ::ffff:10.0.9.2"),
    ("no path at set-up", Impact.VICTIM, "NCCL WARN Call to ibv_modify_qp failed with error Network is unreachable"),
    ("EFA not set up", Impact.VICTIM, "create_nccl_ofi_component:4 NCCL WARN NET/OFI Couldn't open AV. RC: -22, ERROR: Invalid argument"),
    ("EFA not set up", Impact.VICTIM, "WARN: Function: create_nccl_ofi_component Line: 459: NET/OFI Couldn't open AV. RC: -22, ERROR: Invalid argument"),
    ("EFA peer lost", Impact.VICTIM, "libfabric:71:1700000000::efa:cq:efa_rdm_txe_handle_error():737<warn> err: 5, message: Invalid address My EFA addr: fi_addr_efa://[fe80::1]:0:7 My host id: i-0aaaaaaaaaaaaaaaa Peer EFA addr: fi_addr_efa://[fe80::2]:0:9 Peer host id: i-0bbbbbbbbbbbbbbbb (7)"),
    ("RDMA operation failed", Impact.VICTIM, "mlx5: gpu-k: got completion with error:"),
    ("RDMA operation failed", Impact.VICTIM, "mlx5: host_unknown: got completion with error:"),
    ("connection tried again", Impact.TELLS_NOTHING, "socketPollConnect: connect to 10.0.0.7<41> returned Connection refused, retrying (1/34)"),
    ("no connection", Impact.PATH, "connect to 10.0.0.7<41> returned Connection refused, exceeded error retry count after 35 attempts"),
    ("no connection", Impact.PATH, "socketPollConnect: connect to 10.0.0.7<41> returned No route to host"),
    ("connection lost", Impact.VICTIM, "NCCL WARN Net : Call to recv from 10.7.0.4<58355> failed : Connection reset by peer"),
    ("connection lost", Impact.VICTIM, "[../gloo/transport/tcp/pair.cc:5] Connection closed by peer [10.0.0.7]:33"),
    ("connection lost", Impact.VICTIM, "NCCL WARN Net : Connection closed by remote peer gpu-b.cluster<41>"),
    ("connection lost", Impact.VICTIM, "recvValue failed: Connection reset by peer"),
    ("store lost", Impact.VICTIM, "recvValue failed on SocketImpl(fd=3, addr=[gpu-03]:41222, remote=[gpu-00]:29500): Connection reset by peer"),
    ("NCCL remote error", Impact.VICTIM, "ncclRemoteError: A call failed possibly due to a network error"),
    ("NCCL remote error", Impact.VICTIM, "nccl_utils.cc:211] Aborting communicator: 0x7f45 due to async NCCL error: remote process exited or there was a network error"),
    ("NCCL system error", Impact.VICTIM, "DistBackendError: NCCL error in: x.cpp:3, unhandled system error, NCCL version 2.1"),
    ("gloo time-out", Impact.VICTIM, "RuntimeError: Timed out waiting 1800000ms for recv operation to complete"),
    ("no connection to all", Impact.VICTIM, "RuntimeError: Gloo connectFullMesh failed with [../gloo/transport/tcp/pair.cc:7] no error"),
    ("two jobs on one bootstrap", Impact.PROGRAM, "Bootstrap Root : rank 3 of 8 ranks has already checked in"),
    ("NCCL refuses an operation", Impact.PROGRAM, "[Rank 2] Collective WorkNCCL(SeqNum=95, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) raised the following async exception: NCCL error: invalid usage (run with NCCL_DEBUG=WARN for details), NCCL version 2.28.9"),
    ("NCCL invalid usage", Impact.PROGRAM, "NCCL WARN Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 1b000"),
    ("NCCL failed", Impact.TELLS_NOTHING, "NCCL error in: x.cpp:3, unhandled cuda error, NCCL version 2.1"),
    ("heartbeat monitor", Impact.TELLS_NOTHING, "Heartbeat monitor timed out! Process will be terminated"),
    ("heartbeat monitor", Impact.TELLS_NOTHING, "ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress"),
    ("dump signal", Impact.TELLS_NOTHING, "Received a dump signal due to a collective timeout from  rank 1"),
    ("parameters not verified", Impact.VICTIM, "DDP expects same model across all ranks, but Rank 0 has 5 params, while rank 1 has inconsistent 0 params."),
    ("models differ", Impact.PROGRAM, "DDP expects same model across all ranks, but Rank 0 has 5 params, while rank 1 has inconsistent 6 params."),
    ("monitored barrier", Impact.VICTIM, "[Rank 0]: Ranks 1, 5 failed to pass monitoredBarrier in 5000 ms"),
    ("monitored barrier", Impact.VICTIM, "[Rank 0]: Rank 2 failed to pass monitoredBarrier in 3000 ms"),
    ("monitored barrier", Impact.VICTIM, "Rank 1 successfully reached monitoredBarrier, but received errors while waiting for send/recv from rank 0."),
    ("store key not set", Impact.VICTIM, "[1] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value store by key '0', but store->get('0') got error: wait timeout after 600000ms, keys: /default_pg/0//cuda//0"),
    ("store key not set", Impact.VICTIM, "torch.distributed.DistStoreError: wait timeout after 5000ms, keys: /default_pg/0//cpu//0/3"),
    ("store key not set", Impact.VICTIM, "DistStoreError: wait timeout after 10004ms, keys: /default_pg/0//store_based_barrier_key:x:last_worker"),
    ("rendezvous lost", Impact.VICTIM, "WARNING:torch.distributed.elastic.rendezvous.dynamic_rendezvous:The node 'n1_41_0' has failed to send a keep-alive heartbeat to the rendezvous 'job' due to an error of type RendezvousConnectionError."),
    ("rendezvous unreachable", Impact.SERVICE, '    "message": "RendezvousConnectionError: The connection to the C10d store has failed. See inner exception for details.",'),
    ("rendezvous time-out", Impact.VICTIM, "torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError"),
    ("store unreachable", Impact.PATH, "DistNetworkError: The client socket has timed out after 60000ms while trying to connect to (10.0.0.1, 29500)."),
    ("store time-out", Impact.VICTIM, "DistStoreError: Timed out after 601 seconds waiting for clients. 7/8 clients joined."),
    ("node failure", Impact.RESET, "srun: error: Node failure on jean-zay-iam37"),
    ("node failure", Impact.RESET, "salloc: error: Node failure on worker-1"),
    ("drained by a check", Impact.SUSPECTS, "salloc: Prolog failure on node gpu-k"),
    ("node failure", Impact.RESET, "The node with node id: 9f7 and address: 10.0.0.3 and node name: b has been marked dead because the detector has missed too many heartbeats"),
    ("node failure", Impact.RESET, '{"custom_fields":{"ip":"10.0.0.4"},"host_name":"head","label":"RAY_NODE_REMOVED","message":"The node with node id: ab12 and address: 10.0.0.4 and node name: 10.0.0.4 has been marked dead because it missed heartbeats"}'),
    ("node failure", Impact.RESET, '{"custom_fields":{"node_id":"ab12"},"event_id":"0a","host_name":"gpu-4","label":"RAYLET_MARKED_DEAD","message":"Exiting: marked dead"}'),
    ("TPU session error", Impact.SUSPECTS, "E0102 03:04:05.6 71 session_master.cc:505] Session is failing with the following status: Session master detected TPU session error from worker tpu-w-6.svc:8471. The reporting TPU chip locations are:tpu9:pe1:0"),
    ("TPU slice failed", Impact.VICTIM, "E0102 03:04:05.6 71 tpunetd_client.cc:311] Detected failure SLICE_FAILURE_CHIP_DRIVER_ERROR in session 7a; Start failure handling"),
    ("TPU fatal error", Impact.SUSPECTS, "driver.cc:8] [/dev/accel0 tpu7:pe1:0] !!!! FATAL ERROR !!!! for [/dev/accel0 tpu7:pe1:0] , fatal_error: true"),
    ("launcher lost a daemon", Impact.VICTIM, "Remote daemon: [[11,0],1] on node gpu-4"),
    ("peer process ended", Impact.VICTIM, "  Peer host:  gpu-4"),
    ("node failure somewhere", Impact.VICTIM, "slurmstepd: error: *** STEP 1943824.0 ON jean-zay-iam17 CANCELLED AT 2023-03-06T03:17:51 DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***"),
    ("node failure somewhere", Impact.VICTIM, "srun: error: Node failure on gpu-[3-4]"),
    ("process not killed", Impact.SUSPECTS, "slurmstepd: error: *** STEP 63532.0 STEPD TERMINATED ON gpu-4 AT 2020-12-14T09:44:56 DUE TO JOB NOT ENDING WITH SIGNALS ***"),
    ("time limit", Impact.VICTIM, "slurmstepd: error: *** JOB 494583 ON gpu-0 CANCELLED AT 2024-04-20T09:09:37 DUE TO TIME LIMIT ***"),
    ("preempted", Impact.VICTIM, "slurmstepd: error: *** STEP 7.0 ON gpu-0 CANCELLED AT 2024-04-20T09:09:37 DUE TO PREEMPTION ***"),
    ("cancelled", Impact.TELLS_NOTHING, "slurmstepd: error: *** STEP 7.0 ON gpu-0 CANCELLED AT 2024-04-20T09:09:37 ***"),
    ("host out of memory", Impact.PROGRAM, "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0. Some of the step tasks have been OOM Killed."),
    ("segmentation fault", Impact.PROGRAM, "srun: error: node-12: task 96: Segmentation fault (core dumped)"),
    ("ended by the launcher", Impact.TELLS_NOTHING, "srun: error: node-12: tasks 96-103: Terminated"),
    ("aborted", Impact.VICTIM, "srun: error: gpu-b: tasks 4-7: Aborted (core dumped)"),
    ("killed", Impact.VICTIM, "srun: error: node-12: task 96: Killed"),
    ("ended with an error", Impact.VICTIM, "srun: error: node-12: task 96: Exited with exit code 1"),
    ("shared memory exhausted", Impact.PROGRAM, "DataLoader worker (pid 71) is killed by signal: Bus error. It is possible that"),
    ("shared memory exhausted", Impact.PROGRAM, "misc/shmutils.cc:88 NCCL WARN Error: failed to extend /dev/shm/nccl-a1B2c3 to 4096 bytes, error: No space left on device (28)"),
    ("data loader worker died", Impact.PROGRAM, "RuntimeError: DataLoader worker (pid(s) 71) exited unexpectedly"),
    ("checkpoint not written", Impact.SERVICE, "RuntimeError: [enforce fail at inline_container.cc:8] . PytorchStreamWriter failed writing file data/3: file write failed"),
    ("checkpoint not written", Impact.SERVICE, "RuntimeError: [enforce fail at inline_container.cc:595] . unexpected pos 64 vs 0"),
    ("service failed", Impact.SERVICE, "requests.exceptions.HTTPError: 504 Server Error: Gateway Time-out for url: https://hub.example/api"),
    ("service failed", Impact.SERVICE, "urllib.error.HTTPError: HTTP Error 503: Service Unavailable"),
    ("service unreachable", Impact.SERVICE, "requests.exceptions.ConnectionError: HTTPSConnectionPool(host='hub.example', port=443): Max retries exceeded"),
    ("no space left", Impact.SERVICE, "OSError: [Errno 28] No space left on device"),
    ("storage error", Impact.SERVICE, "OSError: [Errno 116] Stale file handle"),
    ("host out of memory", Impact.PROGRAM, "OSError: [Errno 12] Cannot allocate memory"),
    ("host out of memory", Impact.PROGRAM, "terminate called after throwing an instance of 'std::bad_alloc'"),
    ("address in use", Impact.PROGRAM, "The server socket has failed to bind: EADDRINUSE, Address already in use"),
    ("segmentation fault", Impact.PROGRAM, "Fatal Python error: Segmentation fault"),
    ("told to stop", Impact.TELLS_NOTHING, "torch.distributed.elastic.SignalException: Process 71 got signal: 15"),
    ("told to stop", Impact.TELLS_NOTHING, "W1125 agent/server/api.py:725] Received Signals.SIGTERM death signal, shutting down workers"),
    ("interrupted", Impact.TELLS_NOTHING, "KeyboardInterrupt"),
    ("another process failed", Impact.VICTIM, "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: "),
    ("another process failed", Impact.VICTIM, "monarch._rust_bindings.monarch_hyperactor.supervision.SupervisionError: Actor unix:@a,trainer[3] exited because of the following reason: x"),
    ("workers did not answer", Impact.VICTIM, "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the root cause."),
    ("distributed call failed", Impact.VICTIM, "torch.distributed.DistBackendError: something new"),
]  # fmt: skip


@pytest.mark.parametrize(("code", "bearing", "line"), LINES, ids=[f"{n}" for n in range(len(LINES))])
def test_each_line_means_its_row(code: str, bearing: Impact, line: str) -> None:
    found = packaged().find(line)
    assert found is not None and (found[0].code, found[0].impact) == (code, bearing)


def test_every_row_has_a_line() -> None:
    found = [packaged().find(line) for *_, line in LINES]
    assert set(packaged().rows) == {match[0] for match in found if match}


def test_every_row_says_whence_and_what() -> None:
    for row in (*packaged().rows, *cluster().rows):
        assert row.source and row.what
        assert set(row.match.groupindex) <= {"peer", "peer_gid", "ranks", "device", "host", "quote"}


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
    with refused("damaged-rules", OurFault):
        parse(wrong)


@pytest.mark.parametrize(
    ("line", "rank"),
    [
        ("Rank 2, node a, device 2, iteration -1: Unexpected result nan (message='found NaN in local grad norm'", "2"),
        (
            "Unexpected result nan on rank 3 at iteration #5 invocation #1 (message='found Inf in local forward loss",
            "3",
        ),
        ("AssertionError: found NaN in local grad norm in backward pass", None),
    ],
)
def test_whose_numbers_are_wrong_is_named(line: str, rank: str | None) -> None:
    found = packaged().find(line)
    assert found is not None and found[1]["ranks"] == rank
