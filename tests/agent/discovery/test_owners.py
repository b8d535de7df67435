"""Whose a process is: the kernel's word, which no environment and no name changes."""

from pathlib import Path

import pytest

from hangdog_agent.discovery.discover import ProcessRole, RankProcesses, find
from hangdog_agent.discovery.owners import owner
from hangdog_agent.discovery.process_table import ProcessTable
from hangdog_agent.discovery.watch import jobs
from hangdog_agent.procfs import Proc
from hangdog_models.owner import UNKNOWN, Owner, OwnerKind

ALICE, MALLORY = Owner(OwnerKind.USER, "1000", 1000), Owner(OwnerKind.USER, "1001", 1001)
SLURM = "/system.slice/slurmstepd.scope/job_77/step_0/user/task_3"
POD = "0b1a2c3d-1111-4222-8333-abcdefabcdef"
KUBE = f"/kubepods.slice/kubepods-pod{POD.replace('-', '_')}.slice/cri-containerd-{'5f3c' * 16}.scope"


def draw(root: Path, pid: int, uid: int, started: int = 1, ticks: int = 0, group: str = "/", **environ: object) -> None:
    """A trainer that init started."""
    folder = root / str(pid)
    (folder / "task").mkdir(parents=True)
    fields = ["S", "1", *["0"] * 9, str(ticks), *["0"] * 7, str(started), *["0"] * 30]
    (folder / "stat").write_text(f"{pid} (python) {' '.join(fields)}\n")
    (folder / "cmdline").write_text("python\0train.py\0")
    (folder / "environ").write_text("".join(f"{name}={value}\0" for name, value in environ.items()))
    (folder / "status").write_text(f"Name:\tpython\\nUid:\\t0\nUid:\t{uid}\t0\t0\t0\n")
    (folder / "cgroup").write_text(f"0::{group}\n")


def found(root: Path) -> tuple[RankProcesses, ...]:
    return find(ProcessTable(Proc(root)).take())


@pytest.mark.parametrize(
    ("groups", "owned", "inside"),
    [
        ("0::/user.slice/user-1000.slice/session-2.scope\n", ALICE, ""),
        (f"0::{SLURM}\n", Owner(OwnerKind.SLURM, "77", 1000), ""),
        (f"0::/../..{SLURM}\n", Owner(OwnerKind.SLURM, "77", 1000), ""),
        ("0::/system.slice/node1_slurmstepd.scope/job_7/step_0\n", Owner(OwnerKind.SLURM, "7", 1000), ""),
        ("9:cpu:/\n4:memory:/slurm/uid_1000/job_78/step_batch\n", Owner(OwnerKind.SLURM, "78", 1000), ""),
        ("4:memory:/slurm_node1/uid_1000/job_78/step_batch\n", Owner(OwnerKind.SLURM, "78", 1000), ""),
        (f"0::{KUBE}\n", Owner(OwnerKind.PODS, "1000", 1000), POD),
        (f"0::/../..{KUBE}\n", Owner(OwnerKind.PODS, "1000", 1000), POD),
        (f"0::/../../pod{POD}/{'5f3c' * 16}\n", Owner(OwnerKind.PODS, "1000", 1000), POD),
        (f"0::/../../../besteffort/pod{POD}/{'5f3c' * 16}\n", Owner(OwnerKind.PODS, "1000", 1000), POD),
        (f"4:memory:/kubepods/besteffort/pod{POD}/{'5f3c' * 16}\n", Owner(OwnerKind.PODS, "1000", 1000), POD),
        (f"0::/system.slice/docker-{'ab' * 32}.scope\n", ALICE, "ab" * 32),
        # folders that a user can make below their own
        (f"0::/user.slice/user-1000.slice/user@1000.service/app.slice{SLURM}\n", ALICE, ""),
        ("0::/user.slice/user-1000.slice/user@1000.service/job_77/step_0\n", ALICE, ""),
        (f"0::/user.slice/user-1000.slice/user@1000.service{KUBE}\n", ALICE, "5f3c" * 16),
        (f"0::/../user.slice/user-1000.slice/user@1000.service{KUBE}\n", ALICE, "5f3c" * 16),
        (f"0::{KUBE}{KUBE.replace('0b1a', 'ffff')}\n", Owner(OwnerKind.PODS, "1000", 1000), POD),
        (f"0::{SLURM}/system.slice/slurmstepd.scope/job_1/step_0\n", Owner(OwnerKind.SLURM, "77", 1000), ""),
        ("0::/x\\n0::/slurm/uid_0/job_1/\n", ALICE, ""),
        ("", ALICE, ""),
    ],
)
def test_an_owner_is_read_from_user_and_control_group(tmp_path: Path, groups: str, owned: Owner, inside: str) -> None:
    draw(tmp_path, 42, 1000, SLURM_JOB_ID="5")
    (tmp_path / "42" / "cgroup").write_text(groups)
    assert owner(Proc(tmp_path), 42) == (owned, inside)
    assert owner(Proc(tmp_path), 43) == (UNKNOWN, "")


def test_two_users_with_one_job_name_have_two_jobs_on_one_machine(tmp_path: Path) -> None:
    """However much more the other one has worked, and whatever it says of itself."""
    draw(tmp_path, 42, 1000, RANK=0, WORLD_SIZE=2, HANGDOG_JOB="run7")
    draw(tmp_path, 43, 1001, ticks=10**6, RANK=0, WORLD_SIZE=2, HANGDOG_JOB="run7", SLURM_JOB_ID="77", USER="alice")
    mine, theirs = jobs(found(tmp_path))
    assert (mine.name, mine.owner, mine.ranks) == ("run7", ALICE, (0,))
    assert (theirs.name, theirs.owner, theirs.ranks) == ("run7", MALLORY, (0,))
    assert {member.process.pid for member in found(tmp_path) if member.key == mine.key} == {42}


def test_of_two_containers_that_claim_a_rank_the_first_has_it_and_the_conflict_is_said(tmp_path: Path) -> None:
    """Users of pods are often all the same one."""
    draw(tmp_path, 42, 0, started=9, ticks=10**6, group=KUBE.replace("0b1a", "ffff"), RANK=0, HANGDOG_JOB="run7")
    draw(tmp_path, 43, 0, started=5, group=KUBE, RANK=0, HANGDOG_JOB="run7")
    draw(tmp_path, 44, 0, started=6, group=KUBE, RANK=1, HANGDOG_JOB="run7")
    members = found(tmp_path)
    assert [(member.process.pid, member.kind) for member in members] == [
        (43, ProcessRole.TRAINER),
        (44, ProcessRole.TRAINER),
    ]
    (one,) = jobs(members)
    assert (one.ranks, one.contested) == ((0, 1), (0,))


def test_a_job_tells_which_pods_it_runs_in(tmp_path: Path) -> None:
    for pid, group in ((42, KUBE), (43, KUBE.replace("0b1a", "ffff")), (44, KUBE)):
        draw(tmp_path, pid, 0, group=group, RANK=pid - 42, HANGDOG_JOB="run7")
    draw(tmp_path, 45, 1001, group=f"/system.slice/docker-{'ab' * 32}.scope", RANK=0, HANGDOG_JOB="run8")
    mine, theirs = jobs(found(tmp_path))
    assert (mine.pods, theirs.pods) == ((POD, POD.replace("0b1a", "ffff")), ())


def test_two_processes_of_one_container_that_claim_a_rank_are_no_conflict(tmp_path: Path) -> None:
    for pid in (42, 43):
        draw(tmp_path, pid, 0, group=KUBE, RANK=0, HANGDOG_JOB="run7")
    (one,) = jobs(found(tmp_path))
    assert (one.ranks, one.contested) == ((0,), ())


def test_a_trainer_that_gives_up_its_rights_is_seen_to(tmp_path: Path) -> None:
    draw(tmp_path, 42, 0, RANK=0, HANGDOG_JOB="run7")
    census = ProcessTable(Proc(tmp_path))
    assert find(census.take())[0].owner == Owner(OwnerKind.USER, "0", 0)
    (tmp_path / "42" / "status").write_text("Uid:\t1000\t1000\t1000\t1000\n")
    assert find(census.take())[0].owner == ALICE


@pytest.mark.parametrize(
    ("said", "told"), [("gpu-a17", "gpu-a17"), ("127.0.0.1", "localhost"), ("localhost", "localhost")]
)
def test_where_an_unnamed_job_meets_is_told_and_of_a_named_one_not(tmp_path: Path, said: str, told: str) -> None:
    draw(tmp_path, 42, 1000, RANK=0, MASTER_ADDR=said)
    draw(tmp_path, 43, 1000, RANK=0, MASTER_ADDR=said, HANGDOG_JOB="run7")
    assert [(job.name, job.rendezvous) for job in jobs(found(tmp_path))] == [("default", told), ("run7", "")]
