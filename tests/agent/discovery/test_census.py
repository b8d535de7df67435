"""The process table of this machine, with real processes that change, end, or are stuck while it is taken."""

import os
import shutil
import time
from pathlib import Path

import pytest

from hangdog_agent.discovery.discover import Process, ProcessRole, find
from hangdog_agent.discovery.process_table import ProcessTable
from hangdog_agent.discovery.watch import Watch, jobs
from hangdog_agent.procfs import Proc
from support.fakes import targets
from support.fakes.targets import SLEEP_IN_KERNEL, WAIT, running

#: Tells the processes of these tests from all others on this machine.
MARK = ("HANGDOG_TEST_CENSUS", str(os.getpid()))
ENVIRON = dict([MARK], RANK="3", LOCAL_RANK="1", WORLD_SIZE="8", HANGDOG_JOB="census", WANDB_API_KEY="hunter2")
#: Starts a process of the same environment, as data loader workers are started, and waits.
FORK = f"import os\nif os.fork():\n os.wait()\nelse:\n{WAIT.replace(chr(10), chr(10) + ' ')}"


def take(census: ProcessTable, pid: int) -> Process:
    return next(process for process in census.take() if process.pid == pid)


@pytest.fixture
def census() -> ProcessTable:
    return ProcessTable(targets.proc, frozenset({MARK[0]}))


def test_a_trainer_and_its_child_are_found_without_any_configuration(census: ProcessTable) -> None:
    with running(FORK, environ=ENVIRON) as target:
        members = find(census.take(), MARK)
        assert [(member.job, member.rank, member.kind, member.world_size) for member in members] == [
            ("census", 3, ProcessRole.TRAINER, 8),
            ("census", 3, ProcessRole.CHILD, 8),
        ]
        assert members[0].process.pid == target.pid
        assert "hunter2" not in repr(members)


def test_a_process_that_becomes_a_trainer_by_exec_is_found(census: ProcessTable) -> None:
    if shutil.which("sh") is None:
        pytest.skip("no shell")
    shell = f"import os; os.write(1, b'ready\\n'); os.read(0, 1); os.execvpe('sh', ['sh', '-c', 'RANK=5 exec \"$0\" -c \"$1\"', {os.path.realpath('/proc/self/exe')!r}, {WAIT!r}], dict(os.environ))"
    environ = {name: value for name, value in ENVIRON.items() if "RANK" not in name}
    with running(shell, environ=environ) as target:
        assert find(census.take(), MARK) == ()
        assert target.stdin is not None and target.stdout is not None
        target.stdin.write(b"x")
        target.stdin.flush()
        assert target.stdout.readline() == b"ready\n"
        (member,) = find(census.take(), MARK)
        assert (member.rank, member.process.pid) == (5, target.pid)


def test_a_zombie_keeps_what_it_told_while_it_lived(census: ProcessTable) -> None:
    with running(WAIT, environ=ENVIRON) as target:
        alive = take(census, target.pid)
        targets.end(target, reap=False)
        dead = take(census, target.pid)
        assert (alive.state, dead.state) == ("S", "Z")
        assert dead.environ == alive.environ
        assert [member.rank for member in find(census.take(), MARK)] == [3]


def test_a_process_stuck_in_the_kernel_is_read_by_a_child_that_can_be_killed(census: ProcessTable, hold: Path) -> None:
    with running(SLEEP_IN_KERNEL, str(hold), "other", environ=ENVIRON) as target:
        targets.until(
            lambda: (
                "D"
                in {stat.state for tid in targets.proc.tids(target.pid) if (stat := targets.proc.stat(target.pid, tid))}
            )
        )
        trainer = next(member for member in find(census.take(), MARK) if member.kind is ProcessRole.TRAINER)
        assert trainer.process.pid == target.pid
        assert trainer.process.arguments[-1] == "other"


def test_a_reading_that_hangs_is_given_up_and_not_tried_again_at_once(tmp_path: Path) -> None:
    """A pipe nobody writes into hangs its reader, as does a memory map that is locked by a thread stuck in the kernel."""
    world = tmp_path / "7"
    (world / "task" / "7").mkdir(parents=True)
    for folder in (world, world / "task" / "7"):
        (folder / "stat").write_text("7 (python) D 1 " + " ".join(map(str, range(5, 53))))
    os.mkfifo(world / "environ")
    os.mkfifo(world / "cmdline")
    census = ProcessTable(Proc(tmp_path))
    for longest_s in (10.0, 0.4):  # it is given half a second
        began = time.monotonic()
        (process,) = census.take()
        assert process.environ is None
        assert time.monotonic() - began < longest_s


def test_jobs_are_announced_with_their_living_ranks(census: ProcessTable) -> None:
    watch = Watch(census, MARK, (), forget_s=600.0)
    with running(WAIT, environ=ENVIRON), running(WAIT, environ=ENVIRON | {"RANK": "4"}) as second:
        (job,) = jobs(watch.see())
        assert (job.name, job.ranks, job.world_size, job.topology) == ("census", (3, 4), 8, "")
        targets.end(second)
        (job,) = jobs(watch.see())
        assert job.ranks == (3,)
        assert {member.rank for member in watch.known()} == {3, 4}, "a rank that ended while its job went on is missed"
        assert list(watch.ranks().values()) == [3], "whose pid may be another process's by now"


def test_a_job_started_anew_does_not_miss_the_ranks_of_its_last_life(census: ProcessTable) -> None:
    watch = Watch(census, MARK, (), forget_s=600.0)
    with running(WAIT, environ=ENVIRON) as first, running(WAIT, environ=ENVIRON | {"RANK": "4"}) as second:
        watch.see()
        targets.end(first)
        targets.end(second)
    watch.see()
    assert {member.rank for member in watch.known()} == {3, 4}
    with running(WAIT, environ=ENVIRON):
        watch.see()
        assert {member.rank for member in watch.known()} == {3}


def test_a_job_that_is_over_is_forgotten(census: ProcessTable) -> None:
    watch = Watch(census, MARK, (), forget_s=0.0)
    with running(WAIT, environ=ENVIRON) as target:
        watch.see()
        targets.end(target)
    watch.see()
    assert watch.known() == ()
