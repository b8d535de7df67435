"""From a verdict to a job that runs elsewhere, on a real Slurm: drained with our reason, queued again, released, and away."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from hangdog_server.actions import policy
from hangdog_server.actions.backends.slurm_drain import Slurm as Actor
from hangdog_server.store.actions import ActionState
from support.real.slurm import PATIENCE_S, Slurm
from support.servers.cast_acting import World, world

pytestmark = [pytest.mark.slow, pytest.mark.parallel]  # each worker has a Slurm of its own


@pytest.fixture
async def on(cluster: Slurm, tmp_path: Path) -> AsyncIterator[World]:
    """The cluster without jobs and marks before and after, and a server that acts on it."""
    async with world(tmp_path / "s.db", tmp_path, Actor(environ=cluster.environ)) as made:
        for machine in cluster.machines:
            made.connect(machine)
        yield made
    cluster.restore()


async def until(on: World, true: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(3 * PATIENCE_S):
        while not await true():
            await on.acting.tick()
            await asyncio.sleep(0.2)


def reaches(on: World, incident: str, *states: ActionState) -> Callable[[], Awaitable[bool]]:
    async def reached() -> bool:
        found = set((await on.states(incident)).values())
        return bool(found) and found <= set(map(str, states))

    return reached


async def test_a_hung_job_gets_on_without_its_machine_which_comes_back_when_released(on: World, cluster: Slurm) -> None:
    job = cluster.submit("--nodes=1")
    machine = cluster.runs(job)
    await on.judged("0a", machine, job=job)
    await until(on, reaches(on, "0a", ActionState.DONE))
    state, reason = cluster.state(machine)
    assert "drain" in state and reason == "hangdog: 0a machine (97%), hangdog show 0a"
    assert cluster.runs(job) != machine and cluster.job(job, "Restarts") == "1"
    await on.store.do(policy.release, machine, "mended", "alice", on.now)
    await until(on, reaches(on, "0a", ActionState.RELEASED))
    state, reason = cluster.state(machine)
    assert "drain" not in state and reason == "none" and cluster.job(job, "JobState") == "RUNNING"


async def test_a_foreign_drain_is_left_alone_and_with_it_the_job(on: World, cluster: Slurm) -> None:
    job = cluster.submit("--nodes=1")
    machine = cluster.runs(job)
    cluster.say("scontrol", "update", f"nodename={machine}", "state=drain", "reason=NHC: fan 3")
    await on.judged("0a", machine, job=job)
    await until(on, reaches(on, "0a", ActionState.FAILED))
    assert cluster.state(machine)[1] == "NHC: fan 3" and cluster.job(job, "Restarts") == "0"
    assert "NHC: fan 3" in await on.words("0a")


async def test_a_controller_that_is_dead_leaves_it_pending_until_it_is_back(on: World, cluster: Slurm) -> None:
    job = cluster.submit("--nodes=1")
    machine = cluster.runs(job)
    cluster.stop_controller()
    try:
        await on.judged("0a", machine, job=job)
        await on.acting.tick()
        assert await on.states("0a") == {machine: "pending"}
        assert "Unable to contact slurm controller" in await on.words("0a")
    finally:
        cluster.start_controller()
    await until(on, reaches(on, "0a", ActionState.DONE))
    assert cluster.state(machine)[1].startswith("hangdog: 0a") and cluster.runs(job) != machine
