"""Several sets of ranks under one name, as real processes: trainers and rollout workers, two torchruns in one Slurm job."""

import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from hangdog_agent.capture.capture_rounds import CaptureSeries
from hangdog_agent.capture.process_capture import Tools
from hangdog_agent.discovery.discover import RankProcesses, find
from hangdog_agent.discovery.process_table import ProcessTable
from hangdog_agent.discovery.rank_sets import Claim, called, several
from hangdog_agent.discovery.watch import LocalJob, Watch, jobs
from hangdog_agent.procfs import Proc
from hangdog_agent.stalls.monitor import StallMonitor
from hangdog_agent.stalls.settings import StallSettings
from hangdog_models.ranks import Rank
from hangdog_models.rules.ruleset import packaged
from hangdog_models.stack import TRAINER
from hangdog_models.stall_timeouts import Doing
from hangdog_server.cluster.stalls import StallTracker
from hangdog_server.protocol.jobs import AnnouncedJob
from support.fakes.targets import WAIT, WORK, running

#: Ours among all processes of this machine.
MARK = ("HANGDOG_TEST_OF_SETS", str(os.getpid()))
NAME = f"{os.getpid()}77"
TRAINERS, ROLLOUTS = ("10.0.0.1", "29500"), ("10.0.0.1", "29501")
#: Nobody is given time to start here.
HURRIED = StallSettings(settle_s=0.0, start_s=4.0, patience_s=3.0, suspicious_s=1.0, ras_every_s=0.0, log_every_s=0.0)


def environ(rank: int, world: int, meets: tuple[str, str], **more: str) -> dict[str, str]:
    """What torchrun gives a rank that it starts in a step of a Slurm job."""
    slurm = {"SLURM_JOB_ID": NAME, "SLURM_STEP_ID": "0", "SLURM_PROCID": "0", "SLURM_NTASKS": "1"}
    place = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world), "TORCHELASTIC_RUN_ID": "none"}
    return slurm | place | {"MASTER_ADDR": meets[0], "MASTER_PORT": meets[1], MARK[0]: MARK[1]} | more


@contextmanager
def ranks(*environs: dict[str, str], program: str = WAIT) -> Iterator[list[int]]:
    """Their pids, in order."""
    with ExitStack() as stack:
        yield [stack.enter_context(running(program, environ=each, settles=program == WAIT)).pid for each in environs]


def watch() -> Watch:
    return Watch(ProcessTable(Proc(), frozenset([MARK[0]])), MARK, (), 60.0)


def told(found: Sequence[LocalJob]) -> dict[str, tuple[int, ...]]:
    return {job.name: job.ranks for job in found}


def test_two_torchruns_in_one_slurm_job_are_two_jobs_of_which_each_keeps_its_name() -> None:
    looks = watch()
    first = [environ(rank, 2, TRAINERS) for rank in range(2)]
    names = [f"{NAME}#10.0.0.1:29500", f"{NAME}#10.0.0.1:29501"]
    with ranks(*first) as trainers:
        assert told(jobs(looks.see())) == {NAME: (0, 1)}, "alone it has the job's name"
        with ranks(*(environ(rank, 3, ROLLOUTS) for rank in range(3))) as rollouts:
            members = looks.see()
            found = jobs(members)
            assert told(found) == dict(zip(names, ((0, 1), (0, 1, 2)), strict=True))
            pids = {(member.job, member.rank): member.process.pid for member in members}
            assert pids == {(names[0], rank): pid for rank, pid in enumerate(trainers)} | {
                (names[1], rank): pid for rank, pid in enumerate(rollouts)
            }
            assert [job.world_size for job in found] == [2, 3]
            (note,) = found[0].notes
            assert f" {NAME}:" in note and note.endswith(" 10.0.0.1:29500")
        assert told(jobs(looks.see())) == {names[0]: (0, 1)}, "the other one may be about to start again"


def test_ranks_that_meet_in_two_places_and_do_not_contradict_are_one_job() -> None:
    """As for a moment in an elastic restart, of which each rank is started by itself."""
    with ranks(environ(0, 2, TRAINERS), environ(1, 2, ROLLOUTS)):
        assert told(jobs(watch().see())) == {NAME: (0, 1)}


def test_two_steps_of_one_slurm_job_that_start_ranks_themselves() -> None:
    def task(step: int, rank: int) -> dict[str, str]:
        return {
            "SLURM_JOB_ID": NAME, "SLURM_STEP_ID": str(step), "SLURM_PROCID": str(rank), "SLURM_NTASKS": "2",
            MARK[0]: MARK[1],
        }  # fmt: skip

    with ranks(*(task(step, rank) for step in range(2) for rank in range(2))):
        assert told(jobs(watch().see())) == {f"{NAME}#step-0": (0, 1), f"{NAME}#step-1": (0, 1)}


def test_two_groups_of_ray_s_workers_that_nobody_named_are_called_by_their_ports() -> None:
    """As verl starts them: each group's actors are given RANK, WORLD_SIZE and where they meet."""
    actors = [
        {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": port, MARK[0]: MARK[1]}
        for port in ("41000", "41001")
        for rank in range(2)
    ]
    with ranks(*actors):
        found = jobs(find(ProcessTable(Proc(), frozenset([MARK[0]])).take(), MARK))
        assert told(found) == {"port-41000": (0, 1), "port-41001": (0, 1)}
        assert {job.rendezvous for job in found} == {"10.0.0.1"}


def claim(part: str, rank: int, world: int = 2, orphan: bool = False) -> Claim:
    return Claim("j", part, Rank(rank), world, orphan)


def test_what_is_left_of_an_earlier_start_is_no_set() -> None:
    left, now = [claim("a:1", 0, orphan=True)], [claim("a:2", 0), claim("a:2", 1)]
    assert not several(left + now)
    assert several([claim("a:1", 0), *now]) == {"j"}
    assert several([replace(one, orphan=True) for one in left + now]) == {"j"}, (
        "a shell that is gone started all of them"
    )
    assert not several([claim("", 0), *now]), "nothing tells that it meets elsewhere"
    assert several([claim("a:1", 0, world=1), claim("a:2", 1)]) == {"j"}
    assert not several([claim("a:1", 0), claim("a:1", 0)]), "one rank twice is no set"


def test_names_of_sets() -> None:
    assert called("4711", "10.0.0.1:29500", named=True) == "4711#10.0.0.1:29500"
    assert called("default", "10.0.0.1:29500", named=False) == "port-29500"
    assert called("default", "step 3", named=False) == "default#step-3"
    assert len(called("x" * 200, "y" * 200, named=True)) == 200


def announced(job: LocalJob) -> AnnouncedJob:
    return AnnouncedJob(job.name, job.ranks, job.world_size, owner=job.owner, rendezvous=job.rendezvous)


def test_one_set_hangs_while_the_other_works_and_neither_is_judged_by_the_other(tools: Tools) -> None:
    looks, tracker = watch(), StallTracker()
    monitor = StallMonitor(replace(tools, stop=threading.Event()), packaged(), HURRIED)
    stuck = [environ(rank, 2, TRAINERS) for rank in range(2)]
    working = [environ(rank, 2, ROLLOUTS) for rank in range(2)]
    try:
        with ranks(*stuck) as pids, ranks(*working, program=WORK):
            for pid in pids:
                os.kill(pid, signal.SIGSTOP)
            members, until = looks.see(), time.monotonic() + 40.0
            here = {job.name: job for job in jobs(members)}
            hung, lives = (f"{NAME}#10.0.0.1:{port}" for port in ("29500", "29501"))
            while time.monotonic() < until and not suspected(tracker, monitor, members, here[hung]):
                time.sleep(0.5)
            assert suspected(tracker, monitor, members, here[hung])
            assert not suspected(tracker, monitor, members, here[lives])
            seen = CaptureSeries(hung, looks.see, tools, looks.known(), here[hung].owner).look()
            traces = [one for one in seen if one.role == TRAINER]
            assert {trace.pid for trace in traces} == set(pids), "nor is it looked at with it"
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
    finally:
        monitor.close()


def suspected(tracker: StallTracker, monitor: StallMonitor, members: Sequence[RankProcesses], job: LocalJob) -> bool:
    now, signs = time.monotonic(), monitor.tick(members)
    assert all(sign.doing is Doing.STILL for sign in signs.get(job.key, {}).values())
    tracker.note("a", signs, now)
    return tracker.suspicion(job.key, {"a": announced(job)}, now) is not None
