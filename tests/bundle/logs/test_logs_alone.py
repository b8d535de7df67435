"""Bundles that hold logs and tools' results only: the verdict names what these name, and counts no ranks instead."""

import json
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from hangdog.offline import triage
from hangdog_models.verdict import Kind, Verdict
from hangdog_models.views.first_line import headline
from support.cases.reasons import words_of

EIGHT = "[job]\nworld_size = 64\n[machines]\n" + "".join(f'"gpu-{k}" = "{8 * k}-{8 * k + 7}"\n' for k in range(8))
WIDE = "[job]\nworld_size = 512\n[topology]\ndp = 512\ngpus_per_node = 8\n"
IB = (
    "{host}:5776:5902 [0] transport/net_ib.cc:2453 NCCL WARN NET/IB: Got completion from peer {peer}<40554> with status=12 "
    "opcode=0 len=0 vendor err 129 (Send) hca mlx5_0\n"
)
OWN = "{host}:5776:5776 [0] NCCL INFO Bootstrap : Using eth0:{address}<0>\n"
DCGM = {"DCGM Diagnostic": {"test_categories": [{"category": "Hardware", "tests": [{"name": "memory", "results": [
    {"gpu_id": "3", "status": "{status}", "warnings": [{"warning": "{words}", "error_id": 83, "error_severity": 2}]},
]}]}]}}  # fmt: skip
TIMED_OUT = (
    "[rank{rank}]:[E1125 09:00:00.000000001 ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum=1200, OpType=ALLREDUCE, NumelIn=865, NumelOut=865, Timeout(ms)=600000) ran for 600068 "
    "milliseconds before timing out.\n"
)


def judged(folder: Path, files: Mapping[str, str], job: str = EIGHT) -> Verdict:
    for path, text in {**files, **({"job.toml": job} if job else {})}.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    verdict = triage(folder)
    assert "not captured" not in verdict.because[0].text
    return verdict


def dcgm(status: str, words: str) -> str:
    return json.dumps(DCGM).replace("{status}", status).replace("{words}", words)


def test_the_peer_of_three_machines_is_named_by_the_address_that_its_own_log_tells(tmp_path: Path) -> None:
    logs = {f"machine-gpu-{k}/nccl.log": IB.format(host=f"gpu-{k}", peer="10.0.0.12") for k in (0, 1, 3)}
    logs["machine-gpu-5/nccl.log"] = OWN.format(host="gpu-5", address="10.0.0.12")
    verdict = judged(tmp_path, logs)
    assert (verdict.kind, verdict.suspects[0].machines, verdict.evict.machines) == (Kind.MACHINE, ("gpu-5",), ())


def test_one_log_of_all_machines_tells_by_the_hosts_in_its_lines(tmp_path: Path) -> None:
    text = "".join(IB.format(host=f"gpu-{k}.cluster", peer="10.0.0.12") for k in (0, 1, 3))
    verdict = judged(tmp_path, {"job.log": text + OWN.format(host="gpu-5.cluster", address="10.0.0.12")})
    assert (verdict.kind, verdict.suspects[0].machines) == (Kind.MACHINE, ("gpu-5",))


def test_one_pair_is_a_path_with_two_ends(tmp_path: Path) -> None:
    verdict = judged(tmp_path, {"machine-gpu-0/nccl.log": IB.format(host="gpu-0", peer="gpu-5")})
    assert (verdict.kind, verdict.suspects[0].machines) == (Kind.GROUP, ("gpu-0", "gpu-5"))


def test_one_pair_is_named_by_an_address_where_nothing_tells_whose_it_is(tmp_path: Path) -> None:
    verdict = judged(tmp_path, {"job.log": IB.format(host="gpu-0", peer="10.0.0.9")}, "")
    assert (verdict.kind, verdict.evict.machines) == (Kind.GROUP, ())
    assert verdict.culprit is not None and set(verdict.culprit.machines) == {"gpu-0", "10.0.0.9"}


def test_a_request_that_an_adapter_refused_blames_no_machine(tmp_path: Path) -> None:
    refused = IB.format(host="gpu-0", peer="10.0.0.9").replace("status=12", "status=4")
    verdict = judged(tmp_path, {"job.log": refused}, "")
    assert (verdict.kind, verdict.suspects, verdict.evict.machines) == (Kind.SOFTWARE, (), ())


@pytest.mark.parametrize(
    ("text", "machines", "ranks"),
    [
        ("[rank5]: RuntimeError: CUDA error: uncorrectable ECC error encountered\n", (), (5,)),
        ("RuntimeError: CUDA error: uncorrectable ECC error encountered\n", ("(machine of job.log)",), ()),
        ("HW Exception by GPU node-9 (Agent handle: 0x63) reason :GPU Hang\n", ("(machine of job.log)",), ()),
        ("Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized\n", ("(machine of job.log)",), ()),
        ('{"custom_fields":{},"label":"RAY_NODE_REMOVED","message":"The node with node id: ab and address: 10.0.0.4 and name: a has been marked dead"}\n', ("10.0.0.4",), ()),
    ],
)  # fmt: skip
def test_a_device_that_failed_is_of_a_machine_whose_name_nothing_tells(
    tmp_path: Path, text: str, machines: tuple[str, ...], ranks: tuple[int, ...]
) -> None:
    verdict = judged(tmp_path, {"job.log": text}, "")
    assert (verdict.kind, verdict.evict.machines) == (Kind.MACHINE, ())
    assert (verdict.suspects[0].machines, verdict.suspects[0].ranks) == (machines, ranks)


def test_the_result_of_one_machine_is_about_that_machine(tmp_path: Path) -> None:
    failed = dcgm("Fail", "GPU 3 has uncorrectable memory errors and row remappings are pending")
    verdict = judged(tmp_path, {"machine-node-7/dcgm.json": failed}, WIDE)
    assert (verdict.kind, verdict.suspects[0].machines) == (Kind.MACHINE, ("node-7",))
    verdict = judged(tmp_path, {"machine-node-7/dcgm.json": dcgm("Pass", "")}, WIDE)
    assert verdict.kind is Kind.UNDETERMINED and verdict.evict.machines == ()
    assert verdict.because[0].code == "nothing-reported"
    assert re.search(r"\bnode-7\b.*\bpassed\b.*\bmemory\b", verdict.because[0].text)


def test_the_table_of_one_machine_is_about_that_machine(tmp_path: Path) -> None:
    table = (
        "| Diagnostic                | Result                                         |\n"
        "|-----  Deployment  --------+------------------------------------------------|\n"
        "| GPU Memory                | Fail - GPU: 3                                  |\n"
        "| Warning                   | GPU 3 has uncorrectable memory errors and row  |\n"
        "|                           |  remappings are pending                        |\n"
    )
    verdict = judged(tmp_path, {"machine-node-7/dcgmi-r2.txt": table}, WIDE)
    assert (verdict.kind, verdict.suspects[0].machines) == (Kind.MACHINE, ("node-7",))
    verdict = judged(tmp_path, {"machine-node-7/dcgmi-r2.txt": table.replace("Fail - GPU: 3", "Pass - All   ")}, WIDE)
    assert verdict.kind is Kind.UNDETERMINED and verdict.evict.machines == ()


@pytest.mark.parametrize("path", ["dcgm_gpu-3.json", "gpu-3/dcgm.json", "gpu-3.dcgm.json"])
def test_a_path_names_the_machine_by_the_name_the_job_knows(tmp_path: Path, path: str) -> None:
    verdict = judged(tmp_path, {path: dcgm("Fail", "GPU 3 failed")})
    assert verdict.suspects[0].machines == ("gpu-3",)


def test_a_result_that_nothing_places_is_of_the_machine_it_was_taken_on(tmp_path: Path) -> None:
    verdict = judged(tmp_path, {"dcgm.json": dcgm("Fail", "GPU 3 failed")}, "")
    assert (verdict.kind, verdict.suspects[0].machines) == (Kind.MACHINE, ("(machine of dcgm.json)",))
    assert verdict.evict.machines == ()


def test_the_ranks_whose_lines_name_a_group_are_not_all_its_members_where_others_name_none(tmp_path: Path) -> None:
    log = "".join(
        TIMED_OUT.format(rank=rank)
        + (
            f"[rank{rank}]:[E1125 09:00:00.1 ProcessGroupNCCL.cpp:1664] [PG 1 Rank {rank}] Exception (either an error or timeout) "
            "detected by watchdog at work: 1200, last enqueued NCCL work: 1202, last completed NCCL work: 1199.\n"
            if rank != 4
            else ""
        )
        for rank in (0, 3, 4)
    )
    verdict = judged(tmp_path, {"job.log": log}, job="")
    assert (verdict.kind, verdict.evict.machines) == (Kind.UNDETERMINED, ())


def test_the_end_of_a_traceback_is_read_whatever_rank_it_is_of(tmp_path: Path) -> None:
    verdict = judged(
        tmp_path,
        {"tail.log": "[rank7]:     os.replace(a, b)\n[rank7]: OSError: [Errno 116] Stale file handle: 'x'\n"},
        job="",
    )
    assert verdict.kind is Kind.DEPENDENCY


def test_of_a_log_in_which_every_rank_times_out_no_machine_is_accused(tmp_path: Path) -> None:
    text = "".join(TIMED_OUT.format(rank=rank) for rank in range(64))
    verdict = judged(tmp_path, {"job.log": text})
    assert verdict.kind in (Kind.GROUP, Kind.UNDETERMINED) and verdict.evict.machines == ()
    assert all(len(suspect.machines) != 1 for suspect in verdict.suspects)


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("slurmstepd: error: *** JOB 7 ON gpu-0 CANCELLED AT 2026-11-25T09:00:00 DUE TO TIME LIMIT ***\n", "victim-of-others", "time limit"),
        ("slurmstepd: error: *** STEP 7.0 ON gpu-0 CANCELLED AT 2026-11-25T09:00:00 DUE TO PREEMPTION ***\n", "victim-of-others", "at fault"),
        ("slurmstepd: error: *** STEP 7.0 ON gpu-0 CANCELLED AT 2026-11-25T09:00:00 DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***\n", "victim-of-others", "which failed"),
        ("srun: error: gpu-3: task 24: Killed\n", "killed", "log of gpu-3: "),
        ("ORTE has lost communication with a remote daemon.\n\nRemote daemon: [[11,0],1] on node gpu-3\n", "victim-of-others", "log of gpu-3: mpirun "),
        ("An MPI communication peer process has unexpectedly disconnected.\n\n  Local host: gpu-1\n  Peer host:  gpu-3\n", "victim-of-others", "log of gpu-3: an MPI process"),
        ("[rank0]: Exception: Current loss scale already at minimum - cannot decrease\n", "wrong-numbers-reported", "loss scale"),
        ("[rank0]: step 10, loss 2.0, torch.distributed is up\n", "nothing-reported", ""),
        ("gpu-0:1:2 [0] NCCL INFO socketPollConnect: connect to 10.0.0.7<41> returned Connection refused, retrying (1/34)\n", "nothing-reported", "log of gpu-0: NCCL "),
        ("LAST SEEN   TYPE   REASON   OBJECT   MESSAGE\n3m   Normal   NodeNotReady   node/cpu-77   Node cpu-77 status is now: NodeNotReady\n", "nothing-reported", "of the job"),
    ],
)  # fmt: skip
def test_what_decides_nothing_is_told_and_accuses_nobody(tmp_path: Path, text: str, code: str, words: str) -> None:
    verdict = judged(tmp_path, {"slurm.out": text})
    assert (verdict.kind, verdict.suspects, verdict.evict.machines) == (Kind.UNDETERMINED, (), ())
    assert verdict.because[0].code == code and words in verdict.because[0].text


@pytest.mark.parametrize(
    ("text", "kind", "machines"),
    [
        ("srun: error: Node failure on gpu-3\n", Kind.MACHINE, ("gpu-3",)),
        ("srun: error: gpu-3: task 24: Out Of Memory\n", Kind.SOFTWARE, ("gpu-3",)),
        ("srun: error: gpu-3: task 24: Segmentation fault (core dumped)\nsrun: error: gpu-0: tasks 0-7: Terminated\n", Kind.SOFTWARE, ("gpu-3",)),
    ],
)  # fmt: skip
def test_what_the_scheduler_names_is_named(tmp_path: Path, text: str, kind: Kind, machines: tuple[str, ...]) -> None:
    verdict = judged(tmp_path, {"slurm.out": text})
    assert (verdict.kind, verdict.suspects[0].machines, verdict.evict.machines) == (kind, machines, ())


def test_a_process_without_a_log_is_missing_where_all_others_say_they_wait(tmp_path: Path) -> None:
    line = (
        "Waiting in store based barrier to initialize process group for rank: {rank}, key: store_based_barrier_key:1 "
        "(world_size=8, worker_count=7, timeout=0:30:00)\n"
    )
    logs = {f"rank{rank}.log": line.format(rank=rank) for rank in range(8) if rank != 3}
    job = "[job]\nworld_size = 8\n[topology]\ndp = 8\ngpus_per_node = 2\n"
    verdict = judged(tmp_path, logs, job)
    assert (verdict.kind, verdict.suspects[0].ranks, verdict.evict.machines) == (Kind.MACHINE, (3,), ())


def test_torchruns_folders_tell_the_rank_of_an_error_file(tmp_path: Path) -> None:
    error = {"message": {"message": "ValueError: x", "extraInfo": {"timestamp": "1700000000", "py_callstack": (
        'Traceback (most recent call last):\n  File "train.py", line 8, in main\n    step()\nValueError: x\n'
    )}}}  # fmt: skip
    verdict = judged(tmp_path, {"machine-gpu-2/run/attempt_0/3/error.json": json.dumps(error)})
    assert (verdict.kind, verdict.suspects[0].ranks) == (Kind.SOFTWARE, (19,))


def test_xid_45_follows_its_cause_and_names_nothing_itself(tmp_path: Path) -> None:
    line = "[{at}] NVRM: Xid (PCI:0000:3b:00): 45, pid=71, name=python, Ch 00000008\n"
    alone = "".join(line.format(at=f"4242.00000{n}") for n in range(6))
    verdict = judged(tmp_path, {"machine-gpu-1/dmesg.log": alone})
    assert (verdict.kind, verdict.suspects) == (Kind.UNDETERMINED, ())
    killed = "[4241.000000] Out of memory: Killed process 71 (python) total-vm:1kB, anon-rss:1kB\n"
    verdict = judged(tmp_path, {"machine-gpu-1/dmesg.log": killed + alone})
    assert verdict.evict.machines == () and verdict.because[0].code == "out-of-memory"


def test_the_folder_counts_before_the_host_in_a_line(tmp_path: Path) -> None:
    line = "Feb 23 16:24:18 ip-10-0-0-9 kernel: NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\n"
    assert judged(tmp_path / "a", {"machine-gpu-1/messages": line}).suspects[0].machines == ("gpu-1",)
    assert judged(tmp_path / "b", {"messages": line}, "").suspects[0].machines == ("ip-10-0-0-9",)


def test_dmesg_with_dates_is_a_kernel_log_however_it_begins(tmp_path: Path) -> None:
    boot = "".join(f"[Tue Nov 24 23:{minute:02}:00 2026] usb 1-1: new device number {minute}\n" for minute in range(60))
    lost = "[Wed Nov 25 09:00:00 2026] NVRM: Xid (PCI:0000:3b:00): 79, pid=71, GPU has fallen off the bus.\n"
    assert judged(tmp_path, {"machine-gpu-1/dmesg.txt": boot + lost}).evict.machines == ("gpu-1",)


def test_an_event_is_as_old_as_the_logs_of_other_machines_and_of_the_job_show(tmp_path: Path) -> None:
    fault = "[Thu Feb  5 12:10:08 2026] NVRM: Xid (PCI:0000:3a:00): 31, pid=5, name=python, MMU Fault\n"
    later = "[Thu Feb  5 18:00:00 2026] perf: interrupt took too long (2513 > 2500), lowering the rate to 79500\n"
    trained = "[rank0]: 2026-02-06 12:10:00,000 step 3\n[rank0]: Traceback (most recent call last):\n"
    alone = {"machine-gpu-1/dmesg.txt": fault}
    beside = {**alone, "machine-gpu-2/dmesg.txt": later}
    fresh = judged(tmp_path / "a", alone)
    assert fresh.kind is Kind.SOFTWARE
    assert judged(tmp_path / "b", beside).confidence < fresh.confidence / 10
    assert judged(tmp_path / "c", {**alone, "rank0.log": trained}).confidence < fresh.confidence / 10
    now = {**beside, "machine-gpu-1/dmesg.txt": fault.replace("12:10", "17:50")}
    assert judged(tmp_path / "d", now).confidence == fresh.confidence


def test_a_path_without_ranks_is_one_suspect_with_two_ends(tmp_path: Path) -> None:
    log = "n1:1:2 [0] net_ib.cc:1295 NCCL WARN NET/IB : Got completion from peer 10.0.0.3<5486> with error 12, opcode 0, len 0, vendor err 129 (Recv)\n"
    (tmp_path / "job.log").write_text(log, encoding="utf-8")
    verdict = triage(tmp_path)
    assert [one.machines for one in verdict.suspects] == [("10.0.0.3", "n1")]
    assert verdict.evict.machines == () and "10.0.0.3 or n1" in words_of(verdict.because, "kept-not-of-job")
    assert verdict.next[0].machines == ("10.0.0.3", "n1")


def test_what_speaks_faintly_against_a_machine_stands_in_the_first_line(tmp_path: Path) -> None:
    log = "n1:1:2 [0] misc/ibvwrap.cc:190 NCCL WARN NET/IB : Got async event : port error\n"
    (tmp_path / "job.log").write_text(log, encoding="utf-8")
    verdict = triage(tmp_path)
    assert (verdict.kind, [one.machines for one in verdict.suspects]) == (Kind.UNDETERMINED, [("n1",)])
    assert " n1 " in headline(verdict)


@pytest.mark.parametrize("path", ["dmesg-gpu-2.txt", "gpu-2.dmesg", "gpu-2/dmesg.txt"])
def test_a_kernel_log_called_after_a_host_that_a_log_names_is_that_hosts(tmp_path: Path, path: str) -> None:
    xid = "[Fri Nov 27 10:20:58 2026] NVRM: Xid (PCI:0000:9b:00): 79, pid=4011, name=python, GPU has fallen off the bus.\n"
    said = "".join(OWN.format(host=f"gpu-{k}", address=f"10.0.0.{k}") for k in (1, 2))
    verdict = judged(tmp_path, {"train.log": said, path: xid}, "")
    assert (verdict.kind, verdict.suspects[0].machines) == (Kind.MACHINE, ("gpu-2",))


RESTARTED = (
    TIMED_OUT.format(rank=0)
    + TIMED_OUT.format(rank=1)
    + "[default] Worker group FAILED. 2/3 attempts left; will restart worker group\n"
)


@pytest.mark.parametrize(
    ("steps", "then", "named"), [(20, "", False), (3, "", True), (20, TIMED_OUT.format(rank=0), True)]
)
def test_a_time_out_before_a_restart_that_helped_is_void(tmp_path: Path, steps: int, then: str, named: bool) -> None:
    text = RESTARTED + "".join(f"[rank0]: step {step} loss 2.0\n" for step in range(steps)) + then
    (tmp_path / "job.log").write_text(text, encoding="utf-8")
    assert ("given up" in triage(tmp_path).because[0].text or "rank" in triage(tmp_path).because[0].text) is named


def test_a_worker_that_ray_saw_vanish_is_who_failed_first(tmp_path: Path) -> None:
    """https://github.com/OpenRLHF/OpenRLHF/issues/621, shortened."""
    text = (
        "(raylet) A worker died or was killed while executing a task by an unexpected system error. To troubleshoot the problem, check the "
        "logs for the dead worker. RayTask ID: ff Worker ID: d8 Node ID: 84 Worker IP address: 172.19.24.110 Worker port: 10185 Worker PID: "
        "90738 Worker exit type: SYSTEM_ERROR Worker exit detail: Worker unexpectedly exits with a connection error code 2. End of file.\n"
    )
    (tmp_path / "ray.log").write_text(text, encoding="utf-8")
    verdict = triage(tmp_path)
    assert verdict.crash is not None and (verdict.crash.machine, verdict.crash.rank) == ("172.19.24.110", None)
    assert verdict.evict.machines == ()


def test_workers_that_ray_killed_for_memory_are_a_matter_of_the_program(tmp_path: Path) -> None:
    text = (
        "(raylet, ip=10.0.3.7) [2026-11-27 10:00:00,000 E 120 120] (raylet) node_manager.cc:3064: 2 Workers (tasks / actors) killed due to "
        "memory pressure (OOM), 0 Workers crashed due to other reasons at node (ID: abcd, IP: 10.0.3.7) over the last time period.\n"
    )
    (tmp_path / "ray.log").write_text(text, encoding="utf-8")
    verdict = triage(tmp_path)
    assert (verdict.kind, verdict.evict.machines) == (Kind.SOFTWARE, ())
