"""What only Slurm does, on a real one: a job starts again without its machine, once, and nobody else's job is touched."""

import asyncio
import os
from collections.abc import Iterator
from dataclasses import replace

import pytest

from hangdog_models.owner import Owner, OwnerKind
from hangdog_server.actions.backends.backend import BackendFailed, IsolationCase, JobPlacement
from hangdog_server.actions.backends.slurm_drain import Slurm as Actor
from support.real.slurm import PATIENCE_S, Slurm

pytestmark = [pytest.mark.slow, pytest.mark.parallel]  # each worker has a Slurm of its own


@pytest.fixture
def idle(cluster: Slurm) -> Iterator[Slurm]:
    """The cluster without jobs and marks before and after."""
    yield cluster
    cluster.restore()


async def moved(actor: Actor, case: IsolationCase, run: str, *machines: str) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not await actor.move(case, run, machines):
            await asyncio.sleep(0.2)


async def test_a_job_starts_again_elsewhere_and_once(idle: Slurm) -> None:
    actor, job = Actor(environ=idle.environ), idle.submit("--nodes=1", "--exclude=node3")
    machine = idle.runs(job)
    case = IsolationCase("0a", machine, job, "it stands")
    await actor.mark(case)
    assert idle.job(job, "JobState") == "RUNNING", "draining ends nothing"
    run = await actor.run_of(case)
    assert run == f"{job}:0"
    await moved(actor, case, run, machine)
    assert idle.runs(job) == ({"node1", "node2"} - {machine}).pop(), "what was excluded before stays so"
    assert idle.job(job, "ExcNodeList") in (f"node3,{machine}", f"{machine},node3", "node[1,3]", "node[2-3]")
    await moved(actor, case, run, machine)
    assert (idle.job(job, "JobState"), idle.job(job, "Restarts")) == ("RUNNING", "1"), "asked for again it goes on"
    assert await actor.run_of(case) == "", "nothing runs there any more"


async def test_a_job_that_ended_meanwhile_is_not_started_again(idle: Slurm) -> None:
    actor, job = Actor(environ=idle.environ), idle.submit("--nodes=1")
    case = IsolationCase("0a", idle.runs(job), job)
    run = await actor.run_of(case)
    idle.say("scancel", job)
    await moved(actor, case, run, case.machine)
    assert idle.job(job, "Restarts") == "0" and await actor.move(case, "99999:0", [case.machine])


async def test_a_job_that_may_not_be_queued_again_says_so(idle: Slurm) -> None:
    actor, job = Actor(environ=idle.environ), idle.submit("--nodes=1", "--no-requeue")
    case = IsolationCase("0a", idle.runs(job), job)
    with pytest.raises(BackendFailed, match="scontrol requeue") as caught:
        await actor.move(case, await actor.run_of(case), [case.machine])
    assert caught.value.code == "slurm-failed"
    assert not caught.value.again and "--requeue" in caught.value.hint
    assert await Actor(requeue=False, environ=idle.environ).run_of(case) == "", "or an operator wants nothing moved"


async def test_a_job_known_by_another_name_is_the_only_one_on_the_machine(idle: Slurm) -> None:
    actor, job = Actor(environ=idle.environ), idle.submit("--nodes=1")
    assert await actor.run_of(IsolationCase("0a", idle.runs(job), "llama-70b")) == f"{job}:0"


async def test_slurm_says_where_a_job_runs_and_whose_it_is(idle: Slurm) -> None:
    """What agents say of a job is held to that before anything is done upon it."""
    actor, job = Actor(environ=idle.environ), idle.submit("--nodes=1")
    machine, uid = idle.runs(job), os.geteuid()
    other = next(name for name in ("node1", "node2", "node3") if name != machine)
    owner = Owner(OwnerKind.SLURM, job, uid)

    async def contradicted(owner: Owner, *machines: str) -> tuple[str, ...]:
        return await actor.contradicts(JobPlacement(owner, dict.fromkeys(machines, ()), machines[-1:]))

    assert await contradicted(owner, machine) == ()
    (said,) = await contradicted(owner, machine, other)
    assert said.endswith(f" not run job {job} on {other}")
    (said,) = await contradicted(replace(owner, uid=uid + 1), machine)
    assert f" job {job} is user {uid}'s" in said
    (said,) = await contradicted(replace(owner, id="99999"), machine)
    assert said.endswith(" no job 99999")
    user = Owner(OwnerKind.USER, str(uid), uid)
    assert await contradicted(user, machine) == ()
    (said,) = await contradicted(replace(user, uid=uid + 1), machine)
    assert said.endswith(f" of user {uid + 1} on {machine}")
