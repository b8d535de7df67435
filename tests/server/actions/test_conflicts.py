"""Nothing acts on a job of which it is not clear whose it is: by its machines, by Slurm, and after the server's own end."""

import asyncio
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from hangdog_models.actions.caps import Mode
from hangdog_models.diagnosis.judge import diagnose
from hangdog_models.incident import RUNS_ON, SLOWED_WHY, Incident
from hangdog_models.owner import Owner, OwnerKind, read, written
from hangdog_models.ranks import Rank
from hangdog_models.verdict import ISOLATES, Act, Eviction, Kind
from hangdog_proto.generated import hangdog_pb2 as pb
from hangdog_server.actions import policy
from hangdog_server.actions.backends.backend import Backend, IsolationCase, JobPlacement
from hangdog_server.actions.backends.slurm_drain import Slurm
from hangdog_server.incidents.judge import without_eviction
from hangdog_server.protocol.jobs import AnnouncedJob
from hangdog_server.store import actions
from support.cases.stories import job, trace, twice
from support.servers.cast import PATIENT, Listener, Stage, stage, trainer
from support.servers.cast_acting import NOTHING, Played, World, body, world

SLURM, USER = Owner(OwnerKind.SLURM, "77", 1000), Owner(OwnerKind.USER, "1001", 1001)


async def suspected(on: World, name: str, owner: Owner, **machines: list[int]) -> None:
    """A verdict upon a job of this owner that would evict its first machine."""
    await on.judged(name, next(iter(machines)))
    asked, _ = await on.store.kept(name)
    told = {"job": "llama", "world_size": None, "topology": "", "owner": written(owner)}
    said = {machine: {**told, "ranks": ranks} for machine, ranks in machines.items()}
    await on.store.remember(name, {**asked, "asked": said})


async def test_nothing_is_done_for_a_job_whose_machines_contradict_each_other_now(tmp_path: Path) -> None:
    played = Played()
    async with world(tmp_path / "s.db", tmp_path, played) as on:
        liar = on.fleet.connect("liar", "1", "there", 0.0)
        on.fleet.announce(liar, {"llama": AnnouncedJob("llama", (Rank(ord("a") % 64),), 64)}, 0.0)
        await on.judged("0a", "a")
        await on.acting.tick()
        assert await on.states("0a") == {"a": "refused"} and played.told == []
        words = await on.words("0a")
        assert "liar claims rank 33" in words and " a announced" in words
        on.mode = Mode.APPROVE
        on.begin()
        await on.store.do(policy.approve, "0a", await on.acting.facts("0a"), on.acting.rule(), "alice")
        assert await on.states("0a") == {"a": "refused"}, "nor where a person approves of it"
        on.fleet.announce(liar, {}, 1.0)
        await on.store.do(policy.approve, "0a", await on.acting.facts("0a"), on.acting.rule(), "alice")
        assert await on.states("0a") == {"a": "pending"}, "a conflict that is over is none"


async def test_nothing_is_done_upon_evidence_of_a_time_of_conflict(tmp_path: Path) -> None:
    played = Played()
    async with world(tmp_path / "s.db", tmp_path, played) as on:
        await on.judged("0a", "a")
        asked, _ = await on.store.kept("0a")
        await on.store.remember("0a", {**asked, "conflicts": ["z claims rank 1, which a announced first"]})
        await on.acting.tick()
        assert await on.states("0a") == {"a": "refused"} and played.told == []


@pytest.mark.parametrize("why", [*RUNS_ON, SLOWED_WHY])
async def test_a_job_that_may_run_on_is_left_to_people(tmp_path: Path, why: str) -> None:
    played = Played()
    async with world(tmp_path / "s.db", tmp_path, played) as on:
        asked = {"asked": {"a": None}, "absent": {}, "job_toml": "", "bodies": {"a": [body("a").boot, ""]}}
        await on.store.begin(Incident("0a", "llama", on.now - 30.0, f"{why} told"), asked)
        await on.store.judged(
            "0a", replace(NOTHING, kind=Kind.SLOW, confidence=0.97, evict=Eviction(("a",), 0.97)), on.now
        )
        await on.acting.tick()
        assert await on.states("0a") == {"a": "waiting"} and played.told == []


def test_no_step_of_a_verdict_upon_contradicting_machines_takes_one_away() -> None:
    stopped = trace(1, "timed out", state="T")
    verdict = diagnose(twice([trace(0, "backward"), stopped, trace(2, "backward"), trace(3, "backward")]), job(dp=4))
    assert verdict.evict.machines and verdict.next[0].do in ISOLATES
    assert without_eviction(verdict, ()) == verdict
    spared = without_eviction(verdict, ["z claims rank 1, which a announced first"])
    assert not spared.evict.machines and not {step.do for step in spared.next} & set(ISOLATES)
    assert (spared.next[0].do, spared.next[0].machines) == (Act.ASK_PEOPLE, ()) and spared.next[0].why
    assert Act.TEST in {step.do for step in spared.next}, "what else was compared is left"


async def test_acts_of_one_user_are_bounded_whatever_their_jobs_are_called(tmp_path: Path) -> None:
    played = Played()
    async with world(tmp_path / "s.db", tmp_path, played) as on:
        on.caps = structs.replace(on.caps, per_user=1)
        on.begin()
        await suspected(on, "0a", USER, a=[0])
        await on.acting.tick()
        await suspected(on, "0b", USER, b=[0])
        await suspected(on, "0c", SLURM, c=[0])
        await on.acting.tick()
        assert played.told == ["mark a", "mark c"]
        assert await on.states("0b") == {"b": "refused"}
        words = await on.words("0b")
        assert "1 more " in words and " user 1001 " in words and "(per_user)" in words
        assert (await on.store.ask(actions.of, "0a"))[0].owner == USER


@pytest.mark.parametrize("owner", [SLURM, USER, Owner()])
def test_an_owner_is_kept(owner: Owner) -> None:
    assert read(written(owner)) == owner


#: What a Slurm says that runs job 77 of user 1000 on a and b, and job 78 of user 1001 on b.
SAYS = """#!/bin/sh
case "$*" in
  *"show job 77"*) echo "JobId=77 UserId=alice(1000) GroupId=x(1) JobState=RUNNING Restarts=0 NodeList=[a-b]" ;;
  *"show job 79"*) echo "JobId=79 UserId=alice(1000) JobState=PENDING NodeList=(null)" ;;
  *"show job"*) echo "slurm_load_jobs error: Invalid job id specified" >&2; exit 1 ;;
  *"show hostnames [a-b]"*) printf 'a\\nb\\n' ;;
  *"--nodelist=a"*"%A %U"*) echo "77 1000" ;;
  *"--nodelist=b"*"%A %U"*) printf '77 1000\\n78 1001\\n' ;;
  *"--nodelist=a"*) echo "77 RUNNING 1000" ;;
  *"--nodelist=b"*) printf '77 RUNNING 1000\\n78 RUNNING 1001\\n' ;;
esac
"""


@pytest.fixture
def slurm(tmp_path: Path) -> Slurm:
    for name in ("scontrol", "squeue"):
        (tmp_path / name).write_text(SAYS)
        (tmp_path / name).chmod(0o755)
    return Slurm(environ={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"})


@pytest.mark.parametrize(
    ("owner", "machines", "values"),
    [
        (SLURM, ["a", "b"], []),
        (SLURM, ["a", "b", "liar"], ["not run job 77 on liar"]),
        (replace(SLURM, uid=1001), ["a"], ["job 77 is user 1000's", "1001's"]),
        (replace(SLURM, id="5"), ["a"], ["no job 5"]),
        (replace(SLURM, id="79"), ["a"], []),  # it waits to start again: where it ran is not told
        (USER, ["b"], []),
        (USER, ["a"], ["no job of user 1001 on a"]),
        (Owner(), ["a"], []),
    ],
)
async def test_slurm_says_where_a_job_runs_and_whose_it_is(
    slurm: Slurm, owner: Owner, machines: list[str], values: list[str]
) -> None:
    found = await slurm.contradicts(JobPlacement(owner, dict.fromkeys(machines, ()), tuple(machines[:1])))
    assert len(found) == bool(values), "one sentence, which says all of it"
    assert all(value in found[0] for value in values), found


@pytest.mark.parametrize(
    ("job", "owner", "run"),
    [
        ("llama", SLURM, "77:0"),
        ("77", USER, ""),
        ("77", replace(USER, id="1000", uid=1000), "77:0"),
        ("llama", USER, ""),
    ],
)
async def test_the_job_that_is_queued_again_is_its_owner_s_and_not_one_of_that_name(
    slurm: Slurm, job: str, owner: Owner, run: str
) -> None:
    assert await slurm.run_of(IsolationCase("0a", "a", job, owner=owner)) == run


class Placing(Played):
    """A scheduler that says of every job what it does not run."""

    said: tuple[str, ...] = ()

    async def contradicts(self, said: JobPlacement) -> tuple[str, ...]:
        assert said == JobPlacement(SLURM, {"a": (), "liar": ()}, ("a",))
        return self.said


async def test_nothing_is_done_where_the_scheduler_contradicts_the_agents(tmp_path: Path) -> None:
    placing = Placing()
    placing.said = ("Slurm does not run job 77 on liar",)
    actors: tuple[Backend, ...] = (placing,)
    async with world(tmp_path / "s.db", tmp_path, *actors) as on:
        await suspected(on, "0a", SLURM, a=[0], liar=[1])
        await on.acting.tick()
        assert await on.states("0a") == {"a": "refused"} and placing.told == []
        assert placing.said[0] in await on.words("0a")
        placing.said = ()
        await suspected(on, "0b", SLURM, a=[0], liar=[1])
        await on.acting.tick()
        assert placing.told == ["mark a"]


def owned(uid: int, *ranks: int) -> pb.LocalJob:
    return pb.LocalJob(job="llama", ranks=ranks, owner=pb.Owner(kind="user", id=str(uid), uid=uid))


async def test_an_incident_is_not_taken_up_with_another_owner_s_job_of_that_name(tmp_path: Path) -> None:
    """The server ended; who comes back first under the name is somebody else."""
    listener = Listener()
    async with stage(tmp_path / "s.db", listener) as on, on.agent("a") as a, on.agent("b") as b:
        await a.hello()
        await b.hello()
        await a.announce(owned(1000, 0))
        await b.announce(owned(1000, 1))
        await on.knows("a", "b")
        task = asyncio.create_task(on.snapshot("llama"))
        order = await a.order()
        await a.answer(order, trainer(0), last=True)
        await kept(on, lambda count: count > 0)
        task.cancel()
    impatient = replace(PATIENT, returned_s=1.0, resumed_s=1e9)
    async with stage(tmp_path / "s.db", listener, impatient) as on, on.agent("mallory") as m:
        await m.hello()
        await m.announce(owned(1001, 0, 1))
        async with asyncio.timeout(30):
            while not (found := await on.store.latest("", 9))[0].kind:
                await asyncio.sleep(0.02)
        assert found[0].job == "llama"
        asked, _ = await on.store.kept(found[0].id)
        assert set(asked["asked"]) == {"a", "b"}


async def kept(on: Stage, true: Callable[[int], bool]) -> None:
    async with asyncio.timeout(30):
        while True:
            found: tuple[Incident, ...] = await on.store.latest("", 1)
            if found and true((await on.store.kept(found[0].id))[1]):
                return
            await asyncio.sleep(0.02)
