"""A job of which a rank crashed and the others hang: one incident tells both, and a job that was started anew is another matter."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from hangdog_models.diagnosis.judge import diagnose
from hangdog_models.incident import CRASHED_WHY, SUSPECTED_WHY, Incident
from hangdog_models.ranks import Rank
from hangdog_models.stall_timeouts import Doing, Sign
from hangdog_proto.codec import stall_signs
from hangdog_proto.generated import hangdog_pb2 as pb
from hangdog_server.cluster import session_tracker, stalls
from hangdog_server.incidents import stall_watch
from support.servers.cast import NOON, PATIENT, Agent, Stage, stage, trainer
from support.servers.spooled import handed_over, judged
from support.worded import names


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits as long as in earnest."""
    monkeypatch.setattr(stalls, "AGAIN_S", 0.05)
    monkeypatch.setattr(stall_watch, "TICK_S", 0.02)
    for module in (stalls, session_tracker):
        monkeypatch.setattr(module, "OVER_S", 0.3)


def crash(status: int = 3, age_s: float = 30.0) -> pb.Spooled:
    """Rank 1 of 3, all of machine a, ended so long ago; the others did not."""
    captured = pb.Captured(last=True, capture=pb.Capture(exits=[pb.Exit(rank=1, status=status, ran_s=60.0)]))
    job = pb.LocalJob(job="llama", ranks=[0, 1, 2], world_size=3)
    return pb.Spooled(
        id="c", stall="c", job=job, captured=captured, rounds=1, age_s=age_s, why="rank 1 ended", crash=True
    )


async def stands(agent: Agent, *ranks: int, seconds: float) -> None:
    """Announces these ranks, which stand still for so long."""
    await agent.announce(pb.LocalJob(job="llama", ranks=ranks, world_size=3))
    shown = {Rank(rank): Sign(Doing.STILL, seconds, overdue=True, place="all_reduce") for rank in ranks}
    await agent.say(stall_report=stall_signs.pack({"llama": shown}))


@asynccontextmanager
async def answering(agent: Agent, ranks: tuple[int, ...]) -> AsyncIterator[None]:
    """Answers whatever is asked; a stream that is read no more ends."""

    async def answer() -> None:
        while True:
            message = await agent.next()
            if message.HasField("capture"):
                await agent.answer(message.capture, *map(trainer, ranks), last=True)

    task = asyncio.create_task(answer())
    try:
        yield
    finally:
        task.cancel()


async def told(on: Stage) -> tuple[Incident, ...]:
    """The incidents, newest first, once the hang is told of, and a while later."""
    async with asyncio.timeout(30):
        while not any("stand still" in f"{one.why} {one.note}" and one.kind for one in await on.store.latest("", 9)):
            await asyncio.sleep(0.02)
    await asyncio.sleep(0.5)
    return await on.store.latest("", 9)


@pytest.mark.parametrize("status", [3, -9])
async def test_survivors_that_hang_are_told_in_the_incident_of_the_crash(tmp_path: Path, status: int) -> None:
    async with stage(tmp_path / "s.db", diagnose, replace(PATIENT, crash_s=0.2)) as on, on.agent("a") as a:
        await a.hello(llama=[0, 1, 2])
        assert await handed_over(a, crash(status)) == [""]
        await judged(on)
        async with answering(a, (0, 2)):
            await stands(a, 0, 2, seconds=28.0)
            (incident,) = await told(on)
            assert incident.why == f"{CRASHED_WHY} rank 1 ended" and not incident.earlier
            assert names(incident.note, "after the crash", "ranks 0,2") and re.search(r"\b2\d s\b", incident.note)
            await a.say(stall_report=stall_signs.pack({}))
            async with asyncio.timeout(30):
                while not (await on.store.find(incident.id)).went_on_s:
                    await asyncio.sleep(0.02)


@pytest.mark.parametrize(
    ("ranks", "age_s", "seconds", "named"),
    [
        ((0, 1, 2), 30.0, 6.0, True),  # started anew, and it hangs at once
        ((0, 2), 600.0, 6.0, False),  # without the rank, but it went on for long
    ],
)
async def test_another_hang_is_another_incident_that_names_the_crash_if_it_is_near(
    tmp_path: Path, ranks: tuple[int, ...], age_s: float, seconds: float, named: bool
) -> None:
    async with stage(tmp_path / "s.db", diagnose, replace(PATIENT, crash_s=0.2)) as on, on.agent("a") as a:
        await a.hello(llama=[0, 1, 2])
        assert await handed_over(a, crash(age_s=age_s)) == [""]
        (before,) = await judged(on)
        async with answering(a, ranks):
            await stands(a, *ranks, seconds=seconds)
            found = await told(on)
        assert len(found) == 2
        (hang,) = [one for one in found if one.id != before.id]
        assert hang.why.startswith(SUSPECTED_WHY) and hang.began == NOON
        assert names(hang.why, before.id) is named and names(hang.why, "crashed") is named
