"""The log of Slurm's controller: a machine is accused where it was lost or taken out of service, with the words for why.

The lines are those of Slurm's source (src/slurmctld: ping_nodes.c, job_mgr.c, node_mgr.c, proc_req.c), and as others published
them: the AWS PCS user guide (an instance that rebooted), aws/aws-parallelcluster test_slurm.py (nodes that do not respond),
ArjunaCluster/ArjunaUsers#137 (a day's other lines). Names and numbers are made up.
"""

import time

import pytest

from hangdog.evidence.content import Logged, read_contents
from hangdog.evidence.naming import name_of
from hangdog_models.findings import SLURM, Finding, Impact
from hangdog_models.reading.limits import DEFAULTS
from hangdog_models.reading.logs.slurm.slurm_controller import read, recognises

DAY = """[2026-11-25T08:00:00.155] _slurm_rpc_submit_batch_job: JobId=48 InitPrio=5772 usec=1032
[2026-11-25T08:00:01.509] sched: Allocate JobId=48 NodeList=gpu-[1-8] #CPUs=64 Partition=gpu
"""


def told(text: str) -> list[tuple[str, str, Impact]]:
    found: tuple[Finding, ...] = read(text)
    assert all(finding.source == SLURM for finding in found)
    return [(finding.machine, finding.code, finding.impact) for finding in found]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("error: Nodes gpu-7 not responding, setting DOWN", [("gpu-7", "node failure", Impact.RESET)]),
        (
            "error: Nodes gpu-[3-4],b1 not responding, setting DOWN",
            [(host, "node failure", Impact.RESET) for host in ("gpu-3", "gpu-4", "b1")],
        ),
        ("Killing JobId=48 on failed node gpu-7", [("gpu-7", "node failure", Impact.RESET)]),
        ("Killing job_id 48 on failed node gpu-7", [("gpu-7", "node failure", Impact.RESET)]),
        ("requeue job JobId=48_11(62) due to failure of node gpu-7", [("gpu-7", "node failure", Impact.RESET)]),
        ("error: Removing failed node gpu-7 from JobId=48", [("gpu-7", "node failure", Impact.RESET)]),
        (
            "validate_node_specs: Node gpu-7 unexpectedly rebooted boot_time=1726123354 last response=1726123285",
            [("gpu-7", "node failure", Impact.RESET)],
        ),
        (
            "error: Setting node gpu-7 state to INVAL with reason:gres/gpu count reported lower than configured (7 < 8)",
            [("gpu-7", "GPU missing", Impact.CONVICTS)],
        ),
        (
            "error: slurmd error running JobId=48 on node(s)=gpu-7: Kill task failed\ndrain_nodes: node gpu-7 state set to DRAIN",
            [("gpu-7", "process not killed", Impact.SUSPECTS)],
        ),
        (
            "update_node: node gpu-7 reason set to: NHC: Xid 79\nupdate_node: node gpu-7 state set to DRAINED",
            [("gpu-7", "drained for hardware", Impact.RESET)],
        ),
        (
            "update_node: node gpu-7 reason set to: hangdog: Xid 79\nupdate_node: node gpu-7 state set to DRAINED",
            [("gpu-7", "drained by hangdog", Impact.TELLS_NOTHING)],
        ),
        ("update_node: node gpu-7 state set to DRAINING", [("gpu-7", "out of service", Impact.TELLS_NOTHING)]),
        (
            "error: Prolog or job env setup failure on node gpu-7, draining the node",
            [("gpu-7", "drained by a check", Impact.SUSPECTS)],
        ),
        # it comes and goes, and the controller has not given it up; a job that ends; a service that is away
        ("error: Nodes gpu-7 not responding\nNode gpu-7 now responding", []),
        ("error: Nodes gpu-7 not responding", []),
        ("_job_complete: JobId=48 WTERMSIG 9", []),
        ("agent/is_node_resp: node:gpu-7 RPC:REQUEST_PING : Communication connection failure", []),
        ("update_node: node gpu-7 state set to IDLE", []),
        ("update_node: node gpu-7 reason set to: NHC: Xid 79", []),
    ],
)
@pytest.mark.parametrize(
    "stamp", ["", "[2026-11-25T09:00:00.155] ", "Nov 25 09:00:00 head slurmctld[483]: slurmctld: "]
)
def test_a_line_of_the_controller_means_what_it_says(
    stamp: str, lines: str, expected: list[tuple[str, str, Impact]]
) -> None:
    text = DAY + "".join(f"{stamp}{line}\n" for line in lines.split("\n"))
    assert recognises(text)
    assert told(text) == expected


def test_lines_that_somebody_grepped_are_enough() -> None:
    text = "Killing JobId=48 on failed node gpu-7\nerror: Nodes gpu-7 not responding, setting DOWN\n"
    assert recognises(text) and told(text) == [("gpu-7", "node failure", Impact.RESET)]
    assert not recognises("srun: error: Node failure on gpu-7\nslurmstepd: error: SEE SLURMCTLD LOG FOR DETAILS\n")


def test_the_time_of_a_loss_is_kept_where_the_line_has_a_year() -> None:
    line = "error: Nodes gpu-7 not responding, setting DOWN\n"
    times = [
        read(stamp + line)[0].at_s
        for stamp in ("[2026-11-25T09:00:00.155] ", "[2026-11-25T10:00:00+01:00] ", "Nov 25 09:00:00 a ")
    ]
    assert times == [1795597200.0, 1795597200.0, None]


LOST = "[2026-11-20T09:00:00.155] error: Nodes gpu-7 not responding, setting DOWN\n"
BACK = "[2026-11-20T11:00:00.155] Node gpu-7 now responding\n"


@pytest.mark.parametrize(
    ("later", "machines"),
    [
        ("", ["gpu-7"]),
        (BACK, ["gpu-7"]),  # the job was lost with it, although it is back
        (BACK + "[2026-11-25T09:00:00.155] _job_complete: JobId=62 done\n", []),  # that was another job's trouble
        ("[2026-11-25T09:00:00.155] _job_complete: JobId=62 done\n", ["gpu-7"]),  # it is still away
        (BACK + "[2026-11-25T09:00:00.155] Killing JobId=62 on failed node gpu-7\n", ["gpu-7"]),
        (
            "[2026-11-21T09:00:00.155] update_node: node gpu-7 state set to IDLE\n[2026-11-25T09:00:00.155] _job_complete: JobId=62 done\n",
            [],
        ),
    ],
)
def test_what_passed_long_ago_and_is_over_is_not_told(later: str, machines: list[str]) -> None:
    assert [finding.machine for finding in read(LOST + later)] == machines


def test_syslog_may_pass_the_end_of_a_year() -> None:
    lost = "Dec 31 23:00:00 head slurmctld[4]: slurmctld: error: Nodes gpu-7 not responding, setting DOWN\n"
    back = "Dec 31 23:10:00 head slurmctld[4]: slurmctld: Node gpu-7 now responding\n"
    assert [finding.machine for finding in read(lost + back + "Jan  1 01:00:00 head slurmctld[4]: slurmctld: x\n")] == [
        "gpu-7"
    ]
    assert read(lost + back + "Jan  9 01:00:00 head slurmctld[4]: slurmctld: x\n") == ()


def test_it_is_found_among_the_evidence() -> None:
    (logged,) = read_contents(name_of("slurmctld.log"), (DAY + LOST).encode(), DEFAULTS)
    assert isinstance(logged, Logged) and [finding.machine for finding in logged.findings] == ["gpu-7"]


@pytest.mark.parametrize(
    "piece",
    [
        "Nodes a[1-",
        "Killing a",
        " on failed node ",
        "requeue a",
        " due to failure of node ",
        "Setting node a",
        "slurmd error ",
        "update_node: node ",
    ],
)
def test_work_grows_with_the_log_only(piece: str) -> None:
    begin = time.process_time()
    read((piece * (4_000 // len(piece)) + "\n") * 50)
    assert time.process_time() - begin < 2
