"""What Slurm's commands print of machines and jobs: a machine is accused by its state and the words of its reason only.

Layouts as in the manual of Slurm 24.05 (scontrol, sinfo, sacct) and its source (src/slurmctld/node_mgr.c, ping_nodes.c).
"""

import pytest

from hangdog_models.findings import Impact
from hangdog_models.reading.logs.slurm.slurm_text import hosts_in, read, recognises

NODE = """NodeName={name} Arch=x86_64 CoresPerSocket=48
   CPUAlloc=0 CPUEfctv=192 CPUTot=192 CPULoad=0.12
   Gres=gpu:8
   State={state} ThreadsPerCore=2 TmpDisk=0 Weight=1 Owner=N/A
   Comment=(null)
   Reason={reason} [slurm@2026-11-25T09:00:00]
"""


@pytest.mark.parametrize(
    ("state", "reason", "code", "impact"),
    [
        ("DOWN*", "Not responding", "node failure", Impact.RESET),
        ("DOWN*+DRAIN+NOT_RESPONDING", "taken by an admin", "node failure", Impact.RESET),
        ("DOWN", "Node unexpectedly rebooted", "node failure", Impact.RESET),
        ("IDLE+DRAIN", "gres/gpu count reported lower than configured (7 < 8)", "GPU missing", Impact.CONVICTS),
        ("IDLE+DRAIN", "NHC: check_nvsmi: Xid 79", "drained for hardware", Impact.RESET),
        ("MIXED+DRAIN", "Kill task failed", "process not killed", Impact.SUSPECTS),
        ("IDLE+DRAIN", "Prolog error", "drained by a check", Impact.SUSPECTS),
        ("IDLE+DRAIN", "maintenance on Friday", "out of service", Impact.TELLS_NOTHING),
        ("IDLE+DRAIN", "hangdog: Xid 79 on 2026-11-24", "drained by hangdog", Impact.TELLS_NOTHING),
    ],
)
def test_a_node_out_of_service_means_what_its_reason_says(state: str, reason: str, code: str, impact: Impact) -> None:
    text = NODE.format(name="gpu-3", state=state, reason=reason)
    assert recognises(text)
    (finding,) = read(text)
    assert (finding.machine, finding.code, finding.impact) == ("gpu-3", code, impact)
    assert reason in finding.what and finding.at_s == 1795597200.0


@pytest.mark.parametrize("state", ["IDLE", "ALLOCATED", "MIXED+PLANNED", "IDLE+RESERVED"])
def test_a_node_in_service_says_nothing_whatever_an_old_reason_says(state: str) -> None:
    assert read(NODE.format(name="gpu-3", state=state, reason="Not responding")) == ()


def test_each_block_is_of_its_own_node() -> None:
    sound = NODE.format(name="gpu-4", state="ALLOCATED", reason="Not responding")
    (finding,) = read(NODE.format(name="gpu-3", state="DOWN*", reason="Not responding") + "\n" + sound)
    assert finding.machine == "gpu-3"


def test_sinfo_lists_reasons_and_machines() -> None:
    text = (
        "REASON               USER      TIMESTAMP           NODELIST\n"
        "Not responding       slurm     2026-11-25T09:00:00 gpu-[03-04]\n"
        "disk replacement     root      Unknown             gpu-9\n"
    )
    assert [(f.machine, f.impact) for f in read(text)] == [
        ("gpu-03", Impact.RESET), ("gpu-04", Impact.RESET), ("gpu-9", Impact.TELLS_NOTHING),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("state", "code", "impact"),
    [
        ("NODE_FAIL", "node failure somewhere", Impact.VICTIM),
        ("OUT_OF_ME+", "host out of memory", Impact.PROGRAM),
        ("TIMEOUT", "time limit", Impact.VICTIM),
        ("PREEMPTED", "preempted", Impact.VICTIM),
    ],
)
def test_sacct_tells_how_a_job_ended_and_of_no_machine(state: str, code: str, impact: Impact) -> None:
    text = f"JobID           JobName      State ExitCode   NodeList\n------------ ---------- ---------- -------- ----------\n123               llama {state:>10}      0:0 gpu-[0-7]\n"
    (finding,) = read(text)
    assert (finding.code, finding.impact, finding.machine) == (code, impact, "")


@pytest.mark.parametrize(
    ("header", "row", "machines"),
    [
        ("JobID    JobName     State  Elapsed  NodeList", "48      llama NODE_FAIL 00:06:51   gpu-3", ["gpu-3"]),
        ("JobID|JobName|State|NodeList", "48|llama|NODE_FAIL|gpu-3", ["gpu-3"]),
        ("JobID    JobName     State  Elapsed  NodeList", "48      llama NODE_FAIL 00:06:51   gpu-[3-4]", [""]),
        ("JobID    JobName     State  Elapsed  NodeList", "48      llama NODE_FAIL 00:06:51   gpu-3,gp+", [""]),
        ("JobID    JobName     State  ExitCode", "48      llama NODE_FAIL 0:0", [""]),
        ("JobID    NodeList    JobName  State", "48   gpu-3   llama NODE_FAIL", [""]),
    ],
)
def test_a_job_on_one_machine_tells_which_one_failed(header: str, row: str, machines: list[str]) -> None:
    found = read(f"{header}\n{row}\n")
    assert [finding.machine for finding in found] == machines
    assert [finding.impact for finding in found] == [Impact.RESET if machine else Impact.VICTIM for machine in machines]


#: https://github.com/elasticluster/elasticluster/issues/272
LONG = """Thu Jun  9 22:22:36 2016
NODELIST    NODES PARTITION       STATE CPUS    S:C:T MEMORY TMP_DISK WEIGHT FEATURES REASON
gpu-1           1     main*        idle   12   12:1:1  64267        0      1   (null) none
gpu-2           1     main*       down*   12   12:1:1  64267        0      1   (null) Not responding
gpu-3           1     main*     drained   12   12:1:1  64267        0      1   (null) Kill task failed
gpu-4           1     main*       idle~   12   12:1:1  64267        0      1   (null) Not responding
"""


def test_sinfo_lists_each_machine_with_its_reason() -> None:
    assert recognises(LONG)
    assert [(f.machine, f.code, f.impact) for f in read(LONG)] == [
        ("gpu-2", "node failure", Impact.RESET), ("gpu-3", "process not killed", Impact.SUSPECTS),
    ]  # fmt: skip


def test_a_job_that_completed_says_nothing() -> None:
    text = "JobID           JobName      State ExitCode\n123               llama  COMPLETED      0:0\n124 NODE_FAILURE  RUNNING 0:0\n"
    assert recognises(text) and read(text) == ()


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("gpu-3", ["gpu-3"]),
        ("gpu-[3-5,9]", ["gpu-3", "gpu-4", "gpu-5", "gpu-9"]),
        ("a-[01-02],b", ["a-01", "a-02", "b"]),
        ("r[1-2]n7", ["r1n7", "r2n7"]),
        ("x[1-", []),
    ],
)
def test_host_lists_are_unfolded(text: str, hosts: list[str]) -> None:
    assert hosts_in(text) == hosts


def test_a_list_without_end_is_cut() -> None:
    assert len(hosts_in("a[0-999999999]")) == 1024
