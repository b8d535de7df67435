"""Which processes are captured: those of the job that is meant, and of two that claim one rank the one that was named."""

import pytest

from hangdog.capture.job_choice import choose
from hangdog_agent.discovery.discover import Process, ProcessRole, RankProcesses, find
from hangdog_models.errors import WrongUse
from support.refused import refused


def process(pid: int, parent: int, rank: int | None = None, comm: str = "python") -> Process:
    environ = {} if rank is None else {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank)}
    return Process(pid, parent, pid, "S", comm, True, ("python", "train.py"), environ, cpu_ticks=100 - pid)


LAUNCHER = Process(10, 2, 10, "S", "torchrun", True, ("python", "/venv/bin/torchrun", "train.py"), {}, cpu_ticks=0)
#: Of an earlier run, whose launcher was killed; they have worked more.
LEFT = [process(4, 1, 0), process(5, 1, 1), process(6, 4, 0, "pt_data_worker")]
NOW = [LAUNCHER, process(11, 10, 0), process(12, 10, 1), process(13, 11, 0, "pt_data_worker")]


def roles(members: list[RankProcesses]) -> list[tuple[int, ProcessRole]]:
    return [(member.process.pid, member.kind) for member in members]


def test_without_a_choice_the_run_that_somebody_looks_after_has_the_ranks() -> None:
    members = find([*LEFT, *NOW])
    assert roles(choose(members).of(members)) == [
        (11, ProcessRole.TRAINER),
        (13, ProcessRole.DATALOADER),
        (4, ProcessRole.CHILD),
        (6, ProcessRole.DATALOADER),
        (12, ProcessRole.TRAINER),
        (5, ProcessRole.CHILD),
    ]


@pytest.mark.parametrize(
    ("named", "captured"),
    [
        ([4], [(4, ProcessRole.TRAINER), (6, ProcessRole.DATALOADER)]),
        ([13], [(11, ProcessRole.TRAINER), (13, ProcessRole.DATALOADER)]),
        ([11, 5], [(11, ProcessRole.TRAINER), (13, ProcessRole.DATALOADER), (5, ProcessRole.TRAINER)]),
    ],
    ids=["of an earlier run", "by its loader", "of both runs"],
)  # fmt: skip
def test_a_process_that_is_named_stands_for_its_rank(named: list[int], captured: list[tuple[int, ProcessRole]]) -> None:
    members = find([*LEFT, *NOW])
    assert roles(choose(members, pids=named).of(members)) == captured


def test_two_processes_for_one_rank_are_refused() -> None:
    with refused("rank-named-twice", WrongUse, "rank 0"):
        choose(find([*LEFT, *NOW]), pids=[4, 11])


def test_a_process_of_no_job_is_refused() -> None:
    with refused("no-such-process", WrongUse, "99"):
        choose(find(NOW), pids=[99])
