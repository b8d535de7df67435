"""Strangers to a job: machines and users that speak for ranks which are not theirs, over the true wire."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from hangdog_models.actions.caps import Mode
from hangdog_models.diagnosis.judge import diagnose
from hangdog_models.incident import SUSPECTED_WHY, Incident
from hangdog_models.owner import Owner, OwnerKind
from hangdog_models.ranks import Rank
from hangdog_models.stack import ProcessState, ProcessTrace, Thread
from hangdog_models.stall_timeouts import Doing, Sign
from hangdog_proto.codec import stall_signs
from hangdog_proto.generated import hangdog_pb2 as pb
from hangdog_server.actions.backends.actions_config import ActionsConfig
from support.cases.stalled import LOADER, REDUCE
from support.servers.cast import PATIENT, Agent, Stage, stage
from support.servers.cast_acting import WIDE, Played
from support.worded import names

STILL = Sign(Doing.STILL, 60.0, overdue=True, place="all_reduce")
#: The victim's uid, and the attacker's.
ALICE, MALLORY = 1000, 1001
LOOKS = replace(PATIENT, rounds=2)


def job(name: str, ranks: Iterable[int], world: int = 0, uid: int = ALICE, **more: Any) -> pb.LocalJob:
    owner = pb.Owner(kind="user", id=str(uid), uid=uid)
    return pb.LocalJob(job=name, ranks=ranks, world_size=world, owner=owner, **more)


def still(name: str, ranks: Iterable[int], uid: int = ALICE) -> pb.StallReport:
    whose = {name: (name, Owner(OwnerKind.USER, str(uid), uid))}
    return stall_signs.pack({name: {Rank(rank): STILL for rank in ranks}}, whose)


def waiting(rank: int) -> ProcessTrace:
    """It waits for all others."""
    state = ProcessState(1000 + rank, "S", "futex_wait", cpu_s=10.0)
    return ProcessTrace(Rank(rank), pid=1000 + rank, threads=(Thread("MainThread", 0, REDUCE, False),), state=state)


def loading(rank: int) -> ProcessTrace:
    """It is with its data loader for a moment: with all others waiting, it looks like the one that holds them up."""
    return structs.replace(waiting(rank), threads=(Thread("MainThread", 0, LOADER, False),))


@dataclass
class Cluster:
    """A server that acts by itself, and what it did."""

    on: Stage
    did: Played
    cast: AsyncExitStack

    async def machine(self, name: str, *jobs: pb.LocalJob, shows: Iterable[ProcessTrace] = ()) -> Agent:
        """A machine that runs these jobs and answers every order with these traces."""
        agent = await self.cast.enter_async_context(self.on.agent(name))
        await agent.hello()
        await agent.announce(*jobs)
        await self.on.until(
            lambda seen: any(line.name == name and bool(line.jobs) == bool(jobs) and line.connected for line in seen)
        )
        task = asyncio.create_task(answers(agent, tuple(shows)))
        self.cast.callback(task.cancel)
        return agent

    async def incidents(self) -> tuple[Incident, ...]:
        return await self.on.store.latest("", 50)

    async def settled(self) -> tuple[Incident, ...]:
        """The incidents, once the watch over the jobs had time for some thoughts and all that was begun is judged."""
        await asyncio.sleep(2.5)
        async with asyncio.timeout(60):
            while any(not one.kind and not one.note for one in await self.incidents()):
                await asyncio.sleep(0.05)
        await asyncio.sleep(0.3)  # what follows from a verdict follows at once
        return await self.incidents()


async def answers(agent: Agent, shows: tuple[ProcessTrace, ...]) -> None:
    with suppress(AssertionError):  # the stream ended
        while True:
            message = await agent.next()
            for look in range(message.capture.rounds if message.HasField("capture") and shows else 0):
                await agent.answer(message.capture, *shows, look=look, last=look == message.capture.rounds - 1)


@asynccontextmanager
async def acting(tmp_path: Path, **settings: Any) -> AsyncIterator[Cluster]:
    did = Played()
    does = ActionsConfig(Mode.AUTO, WIDE, (did,), tmp_path / "stop")
    async with (
        stage(tmp_path / "s.db", diagnose, replace(LOOKS, returned_s=0.0, **settings), does=does) as on,
        AsyncExitStack() as cast,
    ):
        cluster = Cluster(on, did, cast)
        await cluster.machine("spare")
        yield cluster


async def healthy(cluster: Cluster) -> None:
    """Alice's job goes on: its machines show nothing, and one of its ranks happens to fetch its next data."""
    await cluster.machine("m", job("run7", (0, 1, 2), 4), shows=map(waiting, (0, 1, 2)))
    await cluster.machine("c", job("run7", (3,), 4), shows=(loading(3),))


@pytest.mark.slow  # it waits for what is not to happen
@pytest.mark.parametrize("uid", [ALICE, MALLORY])
async def test_an_outsider_of_a_healthy_job_has_no_machine_of_it_convicted(tmp_path: Path, uid: int) -> None:
    """Its agent says that the job's ranks are its own and stand still, and shows them waiting for the honest machine."""
    async with acting(tmp_path) as cluster:
        await healthy(cluster)
        outsider = await cluster.machine("h", job("run7", range(4), 4, uid), shows=map(waiting, (0, 1, 2)))
        await outsider.say(stall_report=still("run7", range(4), uid))
        found = await cluster.settled()
        assert not [one for one in found if {"c", "m"} & set(one.evict)]
        assert cluster.did.told == []
        if (
            uid == ALICE
        ):  # a liar may say so: then the job is in conflict, and people are told whose word stands against whose
            assert found == ()
            (conflict,) = {one.conflict for line in await cluster.on.machines() for one in line.jobs}
            of_c, of_m = conflict.split("; ")
            assert names(of_c, "h claims rank 3", "c announced") and names(of_m, "h claims ranks 0-2", "m announced")


@pytest.mark.slow
async def test_an_outsider_that_was_there_first_has_nothing_done(tmp_path: Path) -> None:
    """It announced the ranks before the job began, and is believed; but the job is in conflict, so that nothing follows."""
    async with acting(tmp_path) as cluster:
        await cluster.machine("h", job("run7", (0, 1, 2), 4), shows=map(waiting, (0, 1, 2)))
        await healthy(cluster)
        steps = await cluster.on.snapshot("run7")
        verdict = steps[-1].verdict
        assert verdict is not None and verdict.evict.machines == ()
        said = [line.text for line in verdict.because if line.code == "machines-contradict"]
        assert any(names(text, "m claims ranks 0-2", "h announced") for text in said)
        (incident,) = await cluster.settled()
        assert incident.evict == () and cluster.did.told == []


@pytest.mark.slow
async def test_a_local_user_speaks_for_no_rank_of_another_user_s_job(tmp_path: Path) -> None:
    """On one of the job's own machines: its agent is honest, and the kernel tells whose each process is."""
    async with acting(tmp_path) as cluster:
        await cluster.machine("m", job("run7", (0, 1, 2), 4), shows=map(waiting, (0, 1, 2)))
        shared = await cluster.machine(
            "c", job("run7", (3,), 4), job("run7", range(4), 4, MALLORY), shows=(*map(waiting, (0, 1, 2)), loading(3))
        )
        await shared.say(stall_report=still("run7", range(4), MALLORY))
        found = await cluster.settled()
        assert {one.job for one in found} <= {"run7@user-1001"}, "mallory's own job may be asked after"
        assert not any("m" in one.evict for one in found)
        jobs = {one.job for line in await cluster.on.machines() for one in line.jobs}
        assert jobs == {"run7", "run7@user-1001"}


@pytest.mark.parametrize("rank", [900, 2])
@pytest.mark.parametrize("world", [4, 1000])
async def test_a_foreign_rank_that_goes_on_is_no_reason_against_a_suspicion(
    tmp_path: Path, rank: int, world: int
) -> None:
    """A rank beyond the job's size, one that another machine has, and one of a job that is said to be larger."""
    async with acting(tmp_path) as cluster:
        m = await cluster.machine("m", job("run7", (0, 1, 2), 4))
        c = await cluster.machine("c", job("run7", (3,), 4))
        await cluster.machine("lively", job("run7", (rank,), world))
        await m.say(stall_report=still("run7", (0, 1, 2)))
        await c.say(stall_report=still("run7", (3,)))
        async with asyncio.timeout(20):
            while not await cluster.incidents():
                await asyncio.sleep(0.02)
        (incident,) = await cluster.incidents()
        assert incident.why.startswith(SUSPECTED_WHY) and names(incident.why, "ranks 0-3", "stand still")


async def test_many_jobs_of_one_user_do_not_delay_the_first_capture_of_another_s(tmp_path: Path) -> None:
    """None of mallory's machines ever answers, so no turn of theirs ends: alice's job gets one nevertheless."""
    async with acting(tmp_path, max_running=8) as cluster:
        fakes = [job(f"fake{number}", (0,), 1, MALLORY) for number in range(32)]
        busy = await cluster.machine("busy", *fakes)
        for fake in fakes:
            await busy.say(stall_report=still(fake.job, (0,), MALLORY))
        whose = {fake.job: (fake.job, Owner(OwnerKind.USER, str(MALLORY), MALLORY)) for fake in fakes}
        await busy.say(stall_report=stall_signs.pack({fake.job: {Rank(0): STILL} for fake in fakes}, whose))
        async with asyncio.timeout(20):
            while len(await cluster.incidents()) < 5:
                await asyncio.sleep(0.02)
        m = await cluster.machine("m", job("run7", (0,), 1), shows=(waiting(0),))
        await m.say(stall_report=still("run7", (0,)))
        async with asyncio.timeout(20):
            while not any(one.job == "run7" and one.kind for one in await cluster.incidents()):
                await asyncio.sleep(0.02)
        began = sorted(await cluster.incidents(), key=lambda one: one.job == "run7")
        assert len(began) == 6, "five of mallory's have begun, and alice's is the next"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (job("default", (0, 1), 4, ALICE, rendezvous="m"), job("default", (2, 3), 4, MALLORY, rendezvous="m")),
        (job("default", (0, 1), 2), job("default", (0, 1), 2)),
        (job("default", (0, 1), 4, rendezvous="m"), job("default", (2, 3), 4, rendezvous="c")),
        (job("default", (0,), 0, rendezvous="localhost"), job("default", (1,), 0, rendezvous="localhost")),
    ],
    ids=["two users", "each whole", "two meeting points", "each meets at home"],
)
async def test_unnamed_jobs_of_two_owners_or_machines_are_two(
    tmp_path: Path, one: pb.LocalJob, other: pb.LocalJob
) -> None:
    async with acting(tmp_path) as cluster:
        await cluster.machine("m", one)
        await cluster.machine("c", other)
        names = {line.name: [told.job for told in line.jobs] for line in await cluster.on.machines() if line.jobs}
        assert names == {"m": ["default"], "c": ["default@c"]}


async def test_an_unnamed_job_of_several_machines_is_one(tmp_path: Path) -> None:
    async with acting(tmp_path) as cluster:
        for machine, ranks in (("m", (0, 1)), ("c", (2, 3))):
            await cluster.machine(machine, job("default", ranks, 4, rendezvous="m"), shows=map(waiting, ranks))
        steps = await cluster.on.snapshot()
        verdict = steps[-1].verdict
        assert verdict is not None and verdict.coverage.captured == 4
        assert (verdict.job_id, verdict.world_size) == ("default", 4)
