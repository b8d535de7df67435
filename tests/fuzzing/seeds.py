"""A small piece of evidence of each kind, as the readers expect it: what is then damaged."""

import gzip
import json
import pickle  # noqa: TID251  # makes seeds; only our own reader reads them
import tarfile
from io import BytesIO
from zipfile import ZipFile, ZipInfo

from hangdog.evidence.packed.zst import zstd
from hangdog_models.findings import Finding, Impact
from hangdog_models.progress.collective_progress import Phase
from hangdog_models.ranks import Rank
from hangdog_models.reading.collectives import progress_json
from hangdog_models.reading.hardware import findings_json
from support.cases.rings import communicator, operation, transfer

_ENTRY = {
    "record_id": 0, "pg_id": 0, "process_group": ["0", "default_pg"], "collective_seq_id": 3, "p2p_seq_id": 0,
    "profiling_name": "nccl:all_reduce", "input_sizes": [[3, 4]], "input_dtypes": ["Float"], "output_sizes": [[3, 4]],
    "state": "started", "time_created_ns": 17, "time_discovered_started_ns": 18, "duration_ms": 1.5, "retired": False, "is_p2p": False,
}  # fmt: skip
_RECORDER = {
    "version": "2.10", "entries": [_ENTRY, {**_ENTRY, "is_p2p": True}],
    "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}},
    "pg_status": {"0": {"last_enqueued_collective": "3", "last_started_collective": "3", "last_completed_collective": 2}},
}  # fmt: skip
_MEMBER = {
    "rank": 0, "host": "h", "pid": 5, "cuda_dev": 0, "nvml_dev": 0, "collective_counts": {"AllReduce": 4},
    "status": {"init_state": 0, "async_error": 6, "finalize_called": False, "destroy_flag": False, "abort_flag": False},
}  # fmt: skip
_REPORT = {
    "nccl_version": "2.28.9", "timestamp": "2026-01-02 03:04:05",
    "communicators": [{"hash": "0xab", "size": 2, "ranks": [_MEMBER], "missing_ranks": [
        {"rank": 1, "host": "h", "pid": 6, "nvml_dev": 1, "status": {"unresponsive": True, "considered_dead": False}},
    ]}],
}  # fmt: skip
_THREAD = {
    "pid": 7, "thread_id": 1, "thread_name": "MainThread", "os_thread_id": 7, "active": True, "owns_gil": False,
    "frames": [{"name": "f", "filename": "/a/t.py", "short_filename": "t.py", "module": None, "line": 3}],
}  # fmt: skip
_DIAGNOSIS = {
    "DCGM Diagnostic": {"test_categories": [{"category": "Hardware", "tests": [
        {"name": "Memory", "results": [{"gpu_id": "0", "status": "Fail", "warnings": [{"warning": "w", "error_id": 3}]}]},
    ]}]},
    "metadata": {"version": "3.3"},
}  # fmt: skip

_DCGM_TABLE = (
    "| Diagnostic                | Result                                         |\n"
    "|-----  Deployment  --------+------------------------------------------------|\n"
    "| GPU Memory                | Fail - GPUs: 0, 3                              |\n"
    "| Warning                   | GPU 0 row remapping is pend                    |\n"
    "|                           | GPU1: Fail                                     |\n"
)

_LADDER = {
    "schema": "hangdog.diagnosis/1",
    "levels": [{"level": 1, "name": "one device", "skipped": "", "results": [
        {"test": "gemm", "outcome": "fail", "says": "w", "repetitions": 21, "convicts": [{"sort": "device", "names": ["c"]}]},
    ]}],
    "parts": {"c": "GPU-1"},
    "remarks": ["r"],
}  # fmt: skip

_RAS_TEXT = """Job summary
  Nodes  Processes         GPUs
          per node  per process
      1          8            1
      1          2            1
(total)    (total)      (total)
      2         10           10
  Node 10.0.0.2 running processes 90,91

Communicators... (0.00s)

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    0         1         2         4         8         8   RUNNING  INCOMPLETE,MISMATCH
    1         2         2         4         8         8   RUNNING  OK
    2         1         0         0         0         0    NOCOMM  INCOMPLETE,MISMATCH

INCOMPLETE
  Missing communicator data from 1 job process
  Process 91 on node 10.0.0.2 managing GPUs 0,1 (NVML 2,3)

DEAD
  Process 90 on node 10.0.0.2 managing GPU 3

#0-0 (00ab) INCOMPLETE
  Rank 6 -- GPU 2 (NVML 1) managed by process 90 on node 10.0.0.2
  The missing ranks: 3,7
#0-0 (00ab) MISMATCH
  Communicator ranks have different AllReduce operation counts
  5 ranks have launched up to operation 41
  Rank 2 has launched up to operation 40
  Rank 7 has not launched any operations -- GPU 3 managed by process 80 on node 10.0.0.2
  Rank 3 reported Remote process error -- [process information not found]
  Rank 5 has status ABORT -- GPU 1 managed by process 7 on node b
"""
_LOG_TEXT = """[rank3]:[E1 x.cpp:1] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=12, OpType=ALLREDUCE, NumelIn=32, NumelOut=32, Timeout(ms)=600000) ran for 600012 milliseconds before timing out.
[default2]:[PG ID 2 PG GUID 7(dp) Rank 1]  at work sequence id: 12 PG status: last enqueued work: 14, last completed work: 11
[PG 7 Rank 1] Timeout at NCCL work: 12, last enqueued NCCL work: 14, last started work: 12, last completed NCCL work: 11.
 - [0] Timeout at collective: ALLREDUCE, #13
   - [1, 2] finished collective #11, but didn't join collective #12 (count from 1)
 - To our best knowledge, ranks [2] are the lagging ranks that caused this timeout. They never joined any collectives
RuntimeError: Detected mismatch between collectives on ranks. Rank 1 is running collective: CollectiveFingerPrint(SequenceNumber=6, OpType=ALLREDUCE, TensorShape=[20, 10], TensorDtypes=Float), but Rank 0 is running collective: CollectiveFingerPrint(SequenceNumber=6, OpType=BARRIER).
h:1:2 [0] NCCL INFO AllReduce: opCount 1d sendbuff 0x1 recvbuff 0x2 count 8 datatype 7 op 0 root 0 comm 0xa [nranks=4] stream 0x3 task 0 globalrank 6
h:1:2 [0] NCCL INFO comm 0xa rank 3 nranks 4 cudaDev 0 commId 0xfe - Init COMPLETE
Waiting in store based barrier to initialize process group for rank: 0, key: store_based_barrier_key:1 (world_size=4, worker_count=8, timeout=0:30:00)
initializing ddp: GLOBAL_RANK: 1, MEMBER: 2/4
mpirun noticed that process rank 3 with PID 71 on node gpu-k exited on signal 11 (Segmentation fault).
  Process name: [[20417,1],5]
  Exit code:    1
E1102 03:04:05.678 71 api.py:869] failed (exitcode: -9) local_rank: 6 (pid: 903) of binary: /opt/bin/python3
ray.exceptions.RayActorError: The actor died unexpectedly before finishing this task.
	class_name: Trainer
	pid: 903
	ip: 10.7.0.4
The actor is dead because its node has died. Node Id: 31aa
DeepEP timeout check failed: rank = 2, thread = 5, value = 1024)
(Worker pid=71, ip=10.0.0.1) Traceback (most recent call last):
(Worker pid=71, ip=10.0.0.1)   File "t.py", line 3, in <module>
(Worker pid=71, ip=10.0.0.1) ValueError: a bad batch
2026-01-02T03:04:05Z NET/IB : Got completion from peer 10.0.0.7<41> with error 12, opcode 0
[Rank 0]: Ranks 1, 5 failed to pass monitoredBarrier in 5000 ms
Root Cause (first observed failure):
  host      : gpu-a
  rank      : 7 (local_rank: 7)
  exitcode  : 1 (pid: 3)
  traceback : Traceback (most recent call last):
    File "t.py", line 3, in main
  RuntimeError: CUDA error: unknown error
============
srun: error: gpu-3: tasks 24-31: Out Of Memory
slurmstepd: error: *** STEP 7.0 ON gpu-0 CANCELLED AT 2026-01-02T03:04:05 DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***
h-1:1:2 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.0.0.4<0>
DistStoreError: Timed out after 601 seconds waiting for clients. 7/8 clients joined.
Last enqueued NCCL work: 14, last completed NCCL work: 11.
CUDA error: uncorrectable ECC error encountered\r 50%|##|[rank1]: x
"""
_KERNEL_TEXT = """[12.5] NVRM: Xid (PCI:0000:01:00): 79, pid=1, name=python, GPU has fallen off the bus.
Jan 02 03:04:05 a kernel: NVRM: Xid (PCI:0000:01:00.0): 154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)
2026-01-02T03:04:05.6+00:00 a kernel: nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32 egress
[13.0] INFO: task python:71 blocked for more than 120 seconds.
[13.1] nfs: server a not responding, still trying
[13.2] Out of memory: Killed process 71 (python) total-vm:1kB
[13.3] NVRM: The NVIDIA GPU 0000:b3:00.0
       NVRM: (PCI ID: 10de:26b5) installed in this system has
       NVRM: fallen off the bus and is not responding to commands.
3,9,9,-;NVRM: The NVIDIA GPU 0000:b4:00.0\\x0aNVRM: fallen off the bus and is not responding to commands.
"""
_NVIDIA_TABLE = """| NVIDIA-SMI 515.65.01    Driver Version: 515.65.01    CUDA Version: 11.7     |
|   5  ERR!                On   | 00000000:91:00.0 Off |                 ERR! |
|ERR!  ERR! ERR!    ERR! / ERR! |      0MiB / 81920MiB |    ERR!      Default |
"""
_NVIDIA_TEXT = """==============NVSMI LOG==============

Timestamp                                 : Fri Jan  2 03:04:05 2026
Driver Version                            : 550.54.15
Attached GPUs                             : 1
GPU 00000000:1B:00.0
    Product Name                          : NVIDIA H100 80GB HBM3
    Clocks Event Reasons
        HW Power Brake Slowdown           : Active
    ECC Errors
        Volatile
            SRAM Uncorrectable Parity     : 3
    Remapped Rows
        Pending                           : Yes
"""
_AMD_TEXT = """GPU: 0
    THROTTLE:
        PROCHOT_VIOLATION_STATUS: ACTIVE
        SOCKET_THERMAL_VIOLATION_STATUS: [ACTIVE, N/A]
    ECC_BLOCKS:
        GFX:
            UNCORRECTABLE_COUNT: 3
XGMI LINK STATUS:
GPU0   0000:0c:00.0   U U D X
==== ROCm System Management Interface ====
GPU[1]:         RAS INFO
           UMC        ENABLED                  7                  2
GPU[1]          : XGMI Error count: 2 (Multiple errors detected since last read)
"""
_AMD_JSON = {"gpu_data": [{
    "gpu": 0, "power": {"socket_power": {"value": 41, "unit": "W"}}, "ecc": {"total_uncorrectable_count": 1}, "link_status": ["U", "D"],
    "ecc_blocks": {"GFX": {"uncorrectable_count": 1}}, "ras": {"bad_page_threshold_exceeded": "True"},
}]}  # fmt: skip
_NPU_TEXT = """| npu-smi 24.1.rc2.2               Version: 24.1.rc2.2                                           |
| 5     910B2C              | Alarm         | 97.2        46                0    / 0             |
| 0     0                   | 0000:5A:00.0  | 0           0    / 0          3373 / 65536         |
        NPU ID                         : 5
        Chip ID                        : 0
        Health Status                  : Critical
        Error Information              : node type=L2BUFF
        HBM Double Bit Error Count     : 2
        hccs health status             : NOT OK
"""
_STACK_TEXT = """Process 7: python train.py
Thread 7 (active+gil): "MainThread"
    f (a.py:3)  <- here
Thread (idle) "b"
    g (libc.so.6)
Traceback for thread 7 (python) [Has the GIL] (most recent call last):
    (Python) File "/a/t.py", line 3, in f
Thread 1 (Thread 0x7f (LWP 12) "python"):
#0  0x01 in read () at a.c:3
#1  std::vector<int>::f (x=1) from /lib/a.so
"""

_DUMP_TEXT = """[rank3]: Fatal Python error: Aborted
[rank3]:
[rank3]: Current thread 0x00007fdcd74d76c0 [pt_main] (most recent call first):
[rank3]:   File "/lib/python3.13/threading.py", line 1012 in _bootstrap
[rank3]:
[default2]:Timeout (0:00:05.500000)!
2026-01-02T03:04:05.6Z [default2]:Thread 0x00007fdcd7cdc6c0 (most recent call first):
[default2]:  Garbage-collecting
[default2]:  File "/site-packages/torch/a.py", line 3 in f
(Worker pid=71, ip=10.0.0.1) Thread 0x00007f (most recent call first):
(Worker pid=71, ip=10.0.0.1)   <no Python frame>
7: Stack (most recent call first):
7:   File "a.py", line ??? in <module>
[1,4]<stderr>:Thread 0x0f (most recent call first):
[1,4]<stderr>:  File ???, line 4 in ???
[1,4]<stderr>:  ...
Current thread's C stack trace (most recent call first):
  Binary file "/usr/bin/python3.14", at _Py_DumpStack+0x30 [0x4b53b0]
"""
_INTERRUPTED_TEXT = """step 3^C[rank3]: Traceback (most recent call last):
[rank3]:   File "/site-packages/torch/a.py", line 3, in f  <- here
[rank3]:     g()
[rank3]: KeyboardInterrupt
[rank3]: During handling of the above exception, another exception occurred:
[rank3]: Traceback (most recent call last):
[rank3]:   File "/srv/t.py", line 3, in <module>
[rank3]:   File "/site-packages/torch/a.py", line 4, in f
[rank3]: RuntimeError: x
Exception ignored in: <function f at 0x7f>
^C
  3%|#| 3/9 [00:01<00:41]Traceback (most recent call last):
  File "/srv/t.py", line 3, in <module>
_queue.Empty
"""
_LLDB_TEXT = """(lldb) process attach --pid 71
Process 71 stopped
* thread #1, name = 'python', stop reason = signal SIGSTOP
    frame #0: 0x00007f0000000010 libc.so.6`syscall + 29
(lldb) bt all
* thread #1, name = 'python', queue = 'com.apple.main-thread', stop reason = signal SIGSTOP
  * frame #0: 0x00007f0000000010 libc.so.6`syscall + 29
    frame #1: 0x00007f0000000020 a.so`outer [inlined] b::wait(this=<unavailable>, at=(__r = 7)) at futex.cc:217:18 [opt]
    frame #2: 0x00007f0000000060
  thread #2: tid = 0x1a, name = 'x'
    frame #0: 0x00007f0000000070
Process 71 detached
"""
_THREADS_TEXT = """t.py +++++++++++++++++++++++++ Timeout +++++++++++++++++++++++++
~~~~~~~~~~ Stack of Thread-1 (work) (140006486173376) ~~~~~~~~~~~
  File "/usr/lib/python3.11/threading.py", line 1002, in _bootstrap
    self._bootstrap_inner()
~~~~~~~~~~~~~ Stack of MainThread (140006563777408) ~~~~~~~~~~~~~
  File "t.py", line 9, in <module>
    traceback.print_stack(frame)
[rank3]: # Thread: MainThread(140423792614272)
[rank3]: File: "t.py", line 9, in <module>
[rank3]: # PID 7 ThreadID: (b) 139864671676160; <frame object at 0x7f34c6a419d8>
[rank3]: # ThreadID: 139864671676161
[rank3]: Traceback (most recent call last):
Stack for <Task pending name='Task-1' coro=<main() running at t.py:9> cb=[f() at a.py:7]> (most recent call last):
  File "t.py", line 9, in main
Thread 0x7f3fbf4ed6c0
  File "t.py", line 3, in f
----------     Thread 139864 "MainThread" hangs       ----------
"""
_WRAPPED_TEXT = """\u2502 Thread 7 (idle): "MainThread"
\u2502     wait (torch/distri
\u2502 buted.py:3)
\u2502   File "/opt/lib/pyth
\u2502 on/a.py", line 3, in f
\u2502 [rank0]: Watchdog caught collective opera
\u2502 tion timeout: WorkNCCL(SeqNum=1, OpType=A
\u2502 LLREDUCE, NumelIn=1) ran for 60 milliseco
\u2502 nds before timing out: the process cannot
\u2502 go on
"""
_BACKTRACE_TEXT = """(gdb) bt
#0  read () at a.c:3
#1  0x01 in f(int,
    long) () from /lib/a.so
[Switching to thread 2 (Thread 0x7f (LWP 12) "python")]
#0  0x01 in clone3 ()
[Inferior 1 (process 7) detached]
"""
_SECTIONS_TEXT = """=== Rank 0: http://a:1/handler/dump_traceback? ===
Thread 0x0f (most recent call first):
  File "a.py", line 4 in <module>
> ```
<h2>Rank 1: http://a:1/</h2><pre>
Thread 1 (Thread 0x7f (LWP 12) "python"):
#0  0x01 in read () at a.c:3</pre>
16 ranks: [0-7, 9]
  <module> (t.py:3)
  f (t.py:4)
[0-3] (4 processes)
main() at t.c:3
  [0,2] (2 processes)
    f() at ?:?
ranks 3-5 (pid 7)
PID 7 - process
TID 7:
#0  0x00 read
"""
_DIAG_TEXT = """a:7 NCCL DIAG === RAS Diagnostics ===
a:7 NCCL DIAG [OK]   GPU inventory: 8x NVIDIA H100 per node consistent across 8 ranks in comm 0x1234
a:7 NCCL DIAG [INFO] GPU inventory: count mismatch across 8 ranks in comm 0x12, rank(s) {1,2,...} (N=7) differ from rank 0 (7)
a:7 NCCL DIAG [INFO] Xid 79 detected at least 2 times on host b. For the recommended response, see the documentation
a:7 NCCL DIAG [INFO] SXid 20034 detected 1 time (NVSwitch driver reported Fatal, link(s) {3,4}) on host b. See it
a:7 NCCL DIAG [INFO] ECC: uncorrected volatile errors on rank(s) {3} (worst=2) across 8 ranks in comm 0x12
a:7 NCCL DIAG [INFO] p2p: write mismatch srcRank=0 srcCudaDev=0 srcNvmlDev=0 dstRank=3 dstCudaDev=3 dstNvmlDev=3 path=NVL handle=CUMEM_POSIX_FD expected=0x4
NCCL DIAG [INFO] p2p: peer-memory import failed srcRank=2 srcCudaDev=0 srcNvmlDev=2 dstRank=3 dstCudaDev=3 dstNvmlDev=3 path=NVL handle=CUMEM_FABRIC reason=import
NCCL DIAG NCCL diagnostics completed in 245.3 ms across 8 ranks
"""
_INSPECTOR_TEXT = "".join(
    f'{{"header":{{"id":"0x7f","rank":{rank},"n_ranks":8,"nnodes":1}},"metadata":{{"inspector_output_format_version":"v4.0",'
    f'"dump_timestamp_us":{1748030377748202 + number * 9000},"hostname":"a","pid":7}},"coll_perf":{{"coll":"AllReduce","coll_sn":'
    f'{number},"coll_msg_size_bytes":64,"coll_exec_time_us":61,"coll_timing_source":"kernel_gpu","event_trace_ts":{{"coll_start_ts":5}}}}}}\n'
    for number, rank in ((3, 0), (4, 0), (6, 0), (3, 1))
)
_INSPECTOR_MESSAGES = _INSPECTOR_TEXT.replace(
    '"coll_perf":{"coll":"AllReduce","coll_sn":', '"p2p_perf":{"p2p":"Send","p2p_sn":'
)
_INSPECTOR_METRICS = """nccl_bus_bandwidth_gbs{version="v6.1",node="a",gpu="GPU0",comm_name="dp",nranks="8"} 2.2
nccl_collectives_total{version="v6.1",slurm_job_id="unknown",node="a",gpu="GPU0"} 371
nccl_p2p_total{version="v6.1",slurm_job_id="unknown",node="a",gpu="GPU0"} 12
"""
_ERROR_FILE = {"message": {"message": "ValueError: x", "extraInfo": {
    "py_callstack": 'Traceback (most recent call last):\n  File "t.py", line 3, in main\nValueError: x\n', "timestamp": "1700000000",
}}}  # fmt: skip
_SLURM_TEXT = """NodeName=gpu-3 Arch=x86_64 CoresPerSocket=48
   State=DOWN*+DRAIN+NOT_RESPONDING ThreadsPerCore=2
   Reason=gres/gpu count reported lower than configured (7 < 8) [slurm@2026-01-02T03:04:05]
REASON               USER      TIMESTAMP           NODELIST
Kill task failed     root      2026-01-02T03:04:05 gpu-[03-05,9]
PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST
gpu          up 14-00:00:0      3  down* gpu-[06-08]
JobID           JobName      State ExitCode
123               llama  NODE_FAIL      0:0
"""
_CONTROLLER_TEXT = """[2026-11-25T09:00:00.155] error: Nodes gpu-[3-4],b1 not responding, setting DOWN
[2026-11-25T10:00:00+01:00] Killing JobId=48 on failed node gpu-7
Nov 25 09:00:00 head slurmctld[483]: slurmctld: error: slurmd error running JobId=48 on node(s)=gpu-7: Kill task failed
drain_nodes: node gpu-7 state set to DRAIN
update_node: node gpu-8 reason set to: NHC: Xid 79
update_node: node gpu-8 state set to DRAINED
error: Setting node b1 state to INVAL with reason:gres/gpu count too low (7 < 8)
Node gpu-7 now responding
"""
_KUBERNETES_EVENTS = """Events:
  Type     Reason     Age                 From     Message
  ----     ------     ----                ----     -------
  Warning  BackOff    2m49s (x3 over 9m)  kubelet  Back-off restarting failed container init-pytorch in pod w-3_team(8d)
I0102 03:04:05.281798 1 event.go:291] "Event occurred" object="team/w-3" kind="Pod" type="Warning" reason="NodeNotReady" message="Node is not ready"
"""
_KUBERNETES_TEXT = """LAST SEEN   TYPE      REASON         OBJECT             MESSAGE
3m12s       Warning   NodeNotReady   pod/worker-3       Node is not ready
3m          Normal    Scheduled      pod/worker-3       Successfully assigned a/worker-3 to gpu-3
NAME    STATUS                        ROLES    AGE   VERSION
gpu-4   NotReady,SchedulingDisabled   <none>   9d    v1.30.1
Name:             worker-3
Node:             gpu-3/10.0.0.3
    Last State:     Terminated
      Reason:       OOMKilled
Events:
  Warning  BackOff    2m (x5 over 3m)    kubelet  Back-off restarting failed container a in pod b
Name:               gpu-5
Conditions:
  Ready            Unknown   Fri, 02 Jan 2026 03:04:05 +0000   Fri, 02 Jan 2026 03:05:05 +0000   NodeStatusUnknown   Kubelet stopped posting node status.
"""

_KUBERNETES_JSON = {"apiVersion": "v1", "kind": "List", "items": [
    {"kind": "Event", "involvedObject": {"kind": "Node", "name": "gpu-3"}, "reason": "NodeNotReady", "message": "m", "lastTimestamp": "2026-01-02T03:04:05Z"},
    {"kind": "Event", "regarding": {"kind": "Pod", "name": "w-3"}, "reason": "Scheduled", "note": "Successfully assigned a/w-3 to gpu-3", "series": {"lastObservedTime": "2026-01-02T03:04:05Z"}},
    {"kind": "Node", "metadata": {"name": "gpu-4"}, "status": {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-02T03:04:05Z"}]}},
    {"kind": "Pod", "metadata": {"name": "w-4"}, "spec": {"nodeName": "gpu-4"}, "status": {"reason": "Evicted", "containerStatuses": [
        {"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": {"reason": "OOMKilled", "finishedAt": "2026-01-02T03:04:05Z"}}},
    ]}},
]}  # fmt: skip
_CONTAINER_TEXT = """{"log":"[rank3]: CUDA error: uncorrect","stream":"stderr","time":"2026-01-02T03:04:05.678901234Z"}
{"log":"able ECC error encountered\\n","stream":"stderr","time":"2026-01-02T03:04:05.678901234Z"}
2026-01-02T03:04:05.678901234Z stdout P step
2026-01-02T03:04:05.678+01:00 stdout F  3
"""

_REPORTS_TEXT = """[0]<stderr>:x] One or more tensors were submitted to be reduced, gathered
[0]<stderr>:Missing ranks:
[0]<stderr>:0: [broadcast.b]
[0]<stderr>:1!: [allreduce.a, allreduce.b ...]
Stalled ops:x_0 [missing ranks: 1, 3]
y_0 [ready ranks: 5]
E] This thread has been waiting for 5000ms for and may be stuck: participant AllReduceParticipantData{rank=1, element_count=8, x{run_id=RunId: 0, global_devices=[0,1,2], num_local_participants=3, collective_op_kind=cross_replica, op_id=0}}
Not all ranks joining collective, sequence number: 4
group info: 0:default_pg
collective: nccl:all_reduce
missing ranks: {1}
expected ranks: {0, 1}
  id  group_id    pass_check  collective_seq_id  collective_name    collective_state  missing_ranks
   4  main_comm   True        4                  nccl:all_reduce    scheduled         {1}
  id  collective_id  group_id   global_rank  collective_type
   8                 main_comm            0  nccl:all_reduce
# of tasks that reached the barrier: 8/16. Some timed out task names:
/job:jax_worker/replica:0/task:3
*** SIGSEGV (@0x8), see gl#s15 received by PID 71 (TID 72) on cpu 17; stack trace: ***
[gpu-a:71] Signal: Aborted (6)
[pod-1:71  :0:71] Caught signal 11 (Segmentation fault: address not mapped)
SIGABRT(6), PID: 71, Thread 72:
[rank1]: RuntimeError: OPS function error: HcclAllreduce, error code is 6
EI0002: The wait execution of the Notify register times out. Reason: x from remote rank: [3]. group:[hccl_world_group]
"""

_NUMBERS_TEXT = """[rank3]: step: 14  loss:  3.24405  grad_norm:  0.8319  memory:  9.46GiB(64.99%)
 iteration     5426/  250000 | lm loss: 8.7E-01 | loss scale: 1.0 | grad norm: nan | number of skipped iterations:   1 |
{'loss': 0.0, 'grad_norm': inf, 'epoch': 0.0}
"""


def _packed(how: str) -> bytes:
    """A folder of two files in an archive, the same each time."""
    files, packed = {"run/rank0.json": b"[]", "run/job.toml": b"[job]\nworld_size = 2\n"}, BytesIO()
    if how == "zip":
        with ZipFile(packed, "w") as archive:
            for name, data in files.items():
                archive.writestr(ZipInfo(name), data)
        return packed.getvalue()
    with tarfile.open(fileobj=packed, mode="w") as tarball:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tarball.addfile(member, BytesIO(data))
    plain = packed.getvalue()
    return zstd.compress(plain) if how == "zst" else gzip.compress(plain, mtime=0) if how == "gz" else plain


SEEDS: dict[str, tuple[object, ...]] = {
    "pyspy": ([_THREAD],),
    "flight_recorder": (_RECORDER,),
    "progress_json": (
        progress_json.written([communicator(0, 2, 3, operation(2, Phase.RUNNING, transfer("to", 1, 3, 2, 1, 0)))]),
    ),
    "ras_json": (_REPORT,),
    "ras_mended": (json.dumps(_REPORT, indent=1).replace('"nvml_dev": 1,', '"nvml_dev": 1'),),
    "dcgm": (_DIAGNOSIS,),
    "dcgm_table": (_DCGM_TABLE,),
    "diagnosis": (_LADDER,),
    "findings_json": (
        findings_json.written([Finding("kernel log", "Xid 79", Impact.CONVICTS, "w", "a", Rank(1), at_s=1.5, times=2)]),
    ),
    "proc": ({"pid": 7, "state": "D", "wchan": "w", "syscall": "0", "cpu_s": 1.5, "comm": "c", "cmdline": "l"},),
    "proc_status": ("Name:\tpython\nState:\tD (disk sleep)\nPid:\t7\n",),
    "ras": (_RAS_TEXT,),
    "ras_events": (
        "RAS Monitor Mode - watching\n=====\n\n[2025-12-19 13:07:07] PEER_DEAD: Process 7 on node 10.0.0.1 managing GPU 1\n",
        '{"timestamp": "2025-12-19 13:07:07", "event": "PEER_DEAD", "peer": {"host": "a", "pid": 7, "cuda_devs": [0], "nvml_devs": [1]}}',
    ),
    "nccl_diag": (_DIAG_TEXT,),
    "inspector": (_INSPECTOR_TEXT,),
    "inspected_progress": (_INSPECTOR_TEXT, _INSPECTOR_MESSAGES, _INSPECTOR_METRICS),
    "log": (_LOG_TEXT, _REPORTS_TEXT),
    "wrapped": (_WRAPPED_TEXT,),
    "numbers": (_NUMBERS_TEXT,),
    "error_file": (_ERROR_FILE,),
    "slurm": (_SLURM_TEXT, "NODELIST NODES PARTITION STATE CPUS S:C:T FEATURES REASON\na 1 p* down* 1 1:1:1 1 0 1 (null) x\n", "JobId=7 JobName=a\n   JobState=NODE_FAIL Reason=NodeDown\n   NodeList=gpu-[1-4]\n"),
    "slurm_controller": (_CONTROLLER_TEXT,),
    "kubernetes": (_KUBERNETES_TEXT, _KUBERNETES_EVENTS),
    "kubernetes_json": (_KUBERNETES_JSON,),
    "container_log": (_CONTAINER_TEXT,),
    "kernel_log": (_KERNEL_TEXT,),
    "nvidia_smi": (_NVIDIA_TEXT, _NVIDIA_TABLE, "<?xml version='1.0'?><nvidia_smi_log><gpu id='00000000:1B:00.0'><pci/></gpu></nvidia_smi_log>"),
    "amd_smi": (_AMD_TEXT, "gpu,total_uncorrectable_count\n0,3\n1,N/A\n"),
    "amd_smi_json": (_AMD_JSON, {"card0": {"XGMI Error count": "1 (Single error)"}}),
    "npu_smi": (_NPU_TEXT,),
    "rdma_link": (
        (b"link mlx5_0/1 subnet_prefix fe80:0000 lid 3 sm_lid 1 lmc 0 state ACTIVE physical_state LINK_UP\n"
        b"8/1: mlx5_7/1: state DOWN physical_state POLLING\n"),
    ),
    "ib_ports": (
        "CA 'mlx5_0'\n\tCA type: MT4129\n\tPort 1:\n\t\tState: Active\n\t\tPhysical state: LinkUp\n\t\tRate: 200\n\t\tLink layer: InfiniBand\n" * 3,
        "Infiniband device 'mlx5_1' port 1 status:\n\tstate:\t\t 1: DOWN\n\tphys state:\t 2: Polling\n\trate:\t\t 10 Gb/sec (4X SDR)\n",
        "hca_id: mlx5_0\n\tvendor_part_id:\t 4129\n\tport:\t1\n\t\tstate:\t\t\tPORT_DOWN (1)\n\t\tlink_layer:\t\tEthernet\n",
    ),
    "by_host": (
        "node1: up 3 days\nnode1:   two\nnode1: \nnode2: up 3 days\nnode2:   two\n",
        "----------------\nnode[1,3] (2)\n----------------\nsame\n---------------\nnode2\n---------------\nsame\nother\n",
        "[WARNING]: x\nnode2 | CHANGED | rc=0 >>\n  two\n\nthree\nnode1 | FAILED | rc=3 >>\nx\n",
    ),
    "exported_log": (
        '{"events": [{"ingestionTime": 1433190494190, "timestamp": 1433190184356, "message": "Example Event 1"}], "nextForwardToken": "f/3"}',
        '[{"textPayload": "step 3", "timestamp": "2026-11-27T10:31:02Z", "resource": {"type": "k8s_container", "labels": {"pod_name": "w-0"}}}]',
        '{"__REALTIME_TIMESTAMP": "1795771258000000", "_HOSTNAME": "gpu-b02", "_TRANSPORT": "kernel", "MESSAGE": "NVRM: Xid"}\n',
        '{"data": {"result": [{"stream": {"pod": "w-0"}, "values": [["1795771258000000000", "step 3"]]}]}}',
        '{"hits": {"hits": [{"_source": {"message": "a", "@timestamp": "2026-11-27T10:31:02.5Z", "host": {"name": "gpu-1"}}}]}}',
    ),
    "pci_devices": (
        ("1a:00.0 3D controller [0302]: NVIDIA Corporation GH100 [H100 SXM5 80GB] [10de:2330] (rev a1)\n"
        "0000:1c:00.0 3D controller: NVIDIA Corporation GH100 [H100 SXM5 80GB] (rev ff) (prog-if ff)\n\t!!! Unknown header type 7f\n"),
    ),
    "nvlink": (
        "|  NvLink Link Status  |\nGPUs:\n    gpuId 0:\n        U U D X _\n    gpuId 1:\n        U U U U _\nNvSwitches:\n    physicalId 8:\n        U D\n",
        "| NVLINK Error Counts          |\n| GPU 3                        |   |\n| Link 0                       |   |\n|  -> Recovery Error           | 7  |\n",
        ("GPU 0: NVIDIA B200 (UUID: GPU-a)\n\t Link 0: 53.125 GB/s\n\t Link 1: <inactive>\n\t Link 2: Recovery Errors: 3\n"
        "GPU 1: a\nNVML: Unable to retrieve NVLink information as all links are inActive\n"),
    ),
    "nccl_tests": (
        ("# Collective test starting: all_reduce_perf\n# nThread 1 nGpus 8 minBytes 8 maxBytes 134217728 step: 2(factor)\n"
        "#  Rank  0 Group  0 Pid  29382 on     gpu-a17 device  0 [0x07] NVIDIA H100 80GB HBM3\n"
        "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong\n"
        "    33554432       8388608     float     sum      -1    19.56  1715.44    0.00      2     0.78  43046.10    0.00    N/A\n"
        "gpu-a17: Test timeout (30s) /a/common.cu:301\n# Out of bounds values : 2 FAILED\n# Avg bus bandwidth    : 0.4 FAILED\n"),
    ),
    "lldb": (_LLDB_TEXT,),
    "thread_dump": (_THREADS_TEXT,),
    "faulthandler": (_DUMP_TEXT,),
    "interrupted": (_INTERRUPTED_TEXT,),
    "gdb_python": (
        """Thread 1 (Thread 0x7f (LWP 12) "python"):\nTraceback (most recent call first):\n  Waiting for the GIL
  File "/a/t.py", line 3, in f\n    f()\n[Inferior 1 (process 12) detached]\n""",
        "#1 Frame 0x7f, for file /a/t.py, line 3, in f (x=1)\n",
    ),
    "eu_stack": ("PID 12 - process\nTID 12:\n#0  0x01 - 1 read - /lib/libc.so.6\n    ../a.c:3:4\n#1  0x02     - /lib/a.so\n",),
    "kernel_stack": (
        "== /proc/7/task/8 ==\n[<0>] nfs_wait_bit+0x1e/0x80 [nfs]\n[<ffffffff810a2b6e>] do_syscall_64+0x1/0x2\n",
        "/proc/7/stack:[<0>] futex_wait+0x1/0x2\n",
    ),
    "perf_script": (
        """python3 12/13 [001] 889.362539:   50 cycles:ppp:\n\tffff81 f.isra.0+0x93 ([kernel.kallsyms])
\t 5e py::train:/a/t.py+0x5 (/tmp/perf-1.map)\n\t 4a [unknown] (/lib/z.so)\n\n""",
    ),
    "pyspy_raw": ('process 7:"python t.py";thread (0x7): MainThread;<module> (t.py:1);f (libc.so.6) 19\n<module> (t.py:1);g (a.py:3) 2\n',),
    "austin": (
        "# austin: 3.4.1\n# mode: wall\nP7;T7;t.py:<module>:46;<frozen importlib._bootstrap>:f:12 2232\nP7;T0:9;:INVALID:;t.py:g:3 5,1,0\nP7;T7 4\n",
    ),
    "process_table": (
        ("  PID  PPID                  STARTED STAT WCHAN  CMD\n    7     1 Mon Sep  2 10:00:00 2024 Dl+  nfs_wa  |   \\_ python t.py RANK=3\n"
        "    8     1   Sep 03 Z - [python] <defunct>\n"),
        "USER  PID %CPU STAT START   TIME COMMAND\nroot    7  0.0 S<s+ 10:00   0:01 python t.py --local_rank=3\n",
        "PID USER PR NI VIRT RES SHR S %CPU %MEM TIME+ COMMAND  WCHAN\n7 a 20 0 1g 2 3 S 4.7 0.1 0:05.13 b  pipe_wait\n",
    ),
    "strace": (
        ("$ strace -f -p 7\nstrace: Process 7 attached with 2 threads\n[pid 8] futex(0x7, FUTEX_WAIT, 0, NULL <unfinished ...>\n"
        "[pid 7] 12:00:01.5 restart_syscall(<... resuming interrupted poll ...>) = 0\n[pid 7] <... futex resumed>) = 1\n"),
        "Process 7 attached - interrupt to quit\n--- stopped by SIGSTOP ---\nread(3, \"a\", 1) = ? ERESTARTSYS (To be restarted)\n",
    ),
    "proc_files": (
        "a@b:~$ cat /proc/7/wchan\npipe_reada@b:~$ cat /proc/7/syscall\n0 0x5 0x7f3b2c001e60 0x1\n",
        "/proc/7/wchan:0\n==> /proc/7/task/7/syscall <==\nrunning\npid=7 state=D wchan=nfs_wait\n",
    ),
    "failure": ("Error: Failed to get process executable name.\nReason: Permission denied\n",),
    "job": ("[job]\nworld_size = 8\n[topology]\ntp = 2\norder = 'tp-dp'\n[machines]\na = '0-3'\n",),
    "rounds": ("interval_s = 0.75\n",),
    "sizes": ("tp=2,dp=2, pp=2",),
    "naming": (
        "machine-a/round-1/rank12.dataloader-0.json", "rank_3.proc.json", "nccl_trace_rank_7", "fr_trace_5.json",
        "attempt_0/3/stderr.log", "rank-0.error.txt",
    ),
    "archive": tuple(_packed(how) for how in ("", "gz", "zst", "zip")),
    "plain_pickle": tuple(pickle.dumps(_RECORDER, protocol)[2:] for protocol in (2, 4, 5)),
}  # fmt: skip
SEEDS |= dict.fromkeys(("pyspy_text", "pystack"), (_STACK_TEXT,))
SEEDS["gdb"] = (_STACK_TEXT, _BACKTRACE_TEXT)
SEEDS["stack_text"] = (_SECTIONS_TEXT, _STACK_TEXT, _DUMP_TEXT, _INTERRUPTED_TEXT)
SEEDS["content"] = tuple(seed for seeds in SEEDS.values() for seed in seeds)
