"""Light looks at a slow job: one order after the other, ended as soon as two judgements in a row are sure and agree."""

import asyncio
import os
import sys
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from hangdog.main import main
from hangdog_models.diagnosis.judge import diagnose
from hangdog_models.ranks import Rank
from hangdog_models.snapshot import Snapshot
from hangdog_models.stack import Reason
from hangdog_models.topology import Topology
from hangdog_models.verdict import Kind, Suspect, Verdict
from hangdog_proto.client.incidents import ProgressStep
from hangdog_proto.generated import hangdog_pb2 as pb
from support.cases.reasons import reasons
from support.fakes.slow_job import training
from support.fakes.targets import Sampler
from support.servers.cast import PATIENT, Agent, Listener, cluster, failed, stage, texts, trainer, verdict
from support.worded import names

pytestmark = [pytest.mark.slow, pytest.mark.parallel]

LIGHT = replace(PATIENT, light_rounds=5, light_interval_s=0.05)
SUSPECT = Suspect((Rank(2),), ("b",), 0.99, reasons("it is late"))


def slow_from(look: int) -> Listener:
    """A judge that is sure of the slow machine from so many looks on."""

    def judge(snapshot: Snapshot, topology: Topology) -> Verdict:
        if len(snapshot.rounds) < look:
            return verdict(snapshot, topology, Kind.NONE)
        return replace(verdict(snapshot, topology, Kind.SLOW), confidence=0.99, suspects=(SUSPECT,))

    return Listener(judge)


async def answers(agent: Agent, *ranks: int, looks: int) -> list[pb.CaptureOrder]:
    """Answers so many orders, each for one light look."""
    orders = []
    for number in range(looks):
        orders.append(await agent.order())
        assert orders[-1].light and orders[-1].rounds == 1
        await agent.answer(orders[-1], *(trainer(rank, f"layer_{number}") for rank in ranks), last=True)
    return orders


async def test_looks_end_when_two_judgements_agree(tmp_path: Path) -> None:
    judge = slow_from(3)
    async with stage(tmp_path / "s.db", judge, LIGHT) as on, cluster(on, a=[0, 1], b=[2, 3]) as (a, b):
        asking = asyncio.create_task(on.snapshot(light=True, why="slow since noon"))
        orders, _ = await asyncio.gather(answers(a, 0, 1, looks=4), answers(b, 2, 3, looks=4))
        steps = await asking
        asked, kept = await on.store.recall(steps[0].incident)
    _, begun, *taken, enough, kind = texts(steps)
    assert names(begun, "2 machines") and len(taken) == 4
    assert all(names(text, f"look {number}", "5", "2 of 2 machines") for number, text in enumerate(taken, 1))
    assert names(enough, "4 looks", "twice", Kind.SLOW) and kind == Kind.SLOW
    assert len({order.order for order in orders}) == 4, "an order each"
    assert judge.snapshot is not None and [round_.number for round_ in judge.snapshot.rounds] == [0, 1, 2, 3]
    assert [{len(round_.traces)} for round_ in judge.snapshot.rounds] == [{4}] * 4
    assert len(judge.verdicts) == 2, "two looks show no more than one step"
    assert asked["light"] and [one.round for one in kept] == [0, 1, 2, 3] * 2


async def test_while_nobody_is_named_all_looks_are_taken(tmp_path: Path) -> None:
    async with stage(tmp_path / "s.db", slow_from(9), LIGHT) as on, cluster(on, a=[0]) as (a,):
        steps, orders = await asyncio.gather(on.snapshot(light=True), answers(a, 0, looks=5))
    look, judging, kind = texts(steps)[-3:]
    assert names(look, "look 5", "most 5", "1 of 1 machine") and names(judging, "1 rank") and kind == Kind.NONE
    assert len(orders) == 5


async def test_a_judge_that_takes_long_is_not_asked_after_every_look(tmp_path: Path) -> None:
    """As of a job of ten thousand ranks, of which many looks are taken."""

    def slowly(snapshot: Snapshot, topology: Topology) -> Verdict:
        time.sleep(0.4)
        return verdict(snapshot, topology, Kind.NONE)

    judge, settings = Listener(slowly), replace(LIGHT, light_rounds=14)
    async with stage(tmp_path / "s.db", judge, settings) as on, cluster(on, a=[0]) as (a,):
        await asyncio.gather(on.snapshot(light=True), answers(a, 0, looks=14))
    assert 2 <= len(judge.verdicts) < 9
    assert judge.snapshot is not None and len(judge.snapshot.rounds) == 14, "the last look is judged"


async def test_people_say_how_many_at_most_and_how_far_apart(tmp_path: Path) -> None:
    async with stage(tmp_path / "s.db", slow_from(9), LIGHT) as on, cluster(on, a=[0]) as (a,):
        loop = asyncio.get_running_loop()
        begin = loop.time()
        steps, _ = await asyncio.gather(on.snapshot(light=True, rounds=2, interval_s=0.4), answers(a, 0, looks=2))
        assert loop.time() - begin >= 0.4
    assert texts(steps)[-1] == Kind.NONE and names(texts(steps)[-3], "look 2", "most 2")


async def test_from_the_command_line(tmp_path: Path) -> None:
    async with stage(tmp_path / "s.db", slow_from(2), LIGHT) as on, cluster(on, a=[0, 1], b=[2, 3]) as (a, b):
        words = ["snapshot", "--light", "--rounds", "4", "--interval", "0.05", "--server", on.address]
        asking = asyncio.create_task(asyncio.to_thread(CliRunner().invoke, main, words))
        await asyncio.gather(answers(a, 0, 1, looks=4), answers(b, 2, 3, looks=4))
        result = await asking
    assert result.exit_code == 1 and "SLOW" in result.stdout.upper()
    assert any(names(line, "look 2", "most 4", "2 of 2 machines") for line in result.stderr.splitlines())


async def test_an_agent_that_knows_no_light_looks_says_more_than_it_was_asked_and_holds_nothing_up(
    tmp_path: Path,
) -> None:
    async def old(agent: Agent, looks: int) -> None:
        for _ in range(looks):
            order = await agent.order()
            await agent.say(captured=pb.Captured(order=order.order, capture=pb.Capture(), more=True))
            await agent.say(captured=pb.Captured(order=order.order, round=1, last=True))

    async with stage(tmp_path / "s.db", slow_from(2), LIGHT) as on, cluster(on, a=[0, 1], b=[2, 3]) as (a, b):
        steps, _, _ = await asyncio.gather(on.snapshot(light=True), answers(a, 0, 1, looks=4), old(b, 4))
    assert texts(steps)[-1] == "slow"


async def test_a_machine_that_is_lost_and_comes_back_is_in_the_later_looks(tmp_path: Path) -> None:
    judge = slow_from(9)
    settings = replace(LIGHT, light_rounds=3, rejoin_s=0.1, light_interval_s=0.5)
    async with stage(tmp_path / "s.db", judge, settings) as on, cluster(on, a=[0, 1]) as (a,):
        async with cluster(on, b=[2, 3]) as (b,):
            asking = asyncio.create_task(on.snapshot(light=True))
            await asyncio.gather(answers(a, 0, 1, looks=1), answers(b, 2, 3, looks=1))
        await answers(a, 0, 1, looks=1)
        await asyncio.sleep(0.3)  # longer than it is waited for, shorter than the pause
        async with on.agent("b") as b:
            await b.hello(llama=[2, 3])
            await asyncio.gather(answers(a, 0, 1, looks=1), last(b))
            steps = await asking
    assert not failed(steps)
    assert judge.snapshot is not None
    second = {trace.rank: trace.missing for trace in judge.snapshot.rounds[1].traces}
    gone = second[Rank(2)]
    assert second[Rank(0)] is None and gone is not None and gone.reason is Reason.NO_AGENT
    assert names(gone.message, "b", "look 1", "later")


async def test_an_answer_that_comes_when_the_look_is_over_is_of_another_moment(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    judge = slow_from(9)
    settings = replace(LIGHT, light_rounds=2, patience_s=0.3, light_interval_s=1.0)

    async def late(agent: Agent) -> None:
        order = await agent.order()
        while "light look 1 of" not in " ".join(step.text for step in heard):
            await asyncio.sleep(0.01)
        await agent.answer(order, trainer(2, "too_late"), last=True)
        await answers(agent, 2, looks=1)

    async with stage(tmp_path / "s.db", judge, settings) as on, cluster(on, a=[0], b=[2]) as (a, b):
        heard: list[ProgressStep] = []
        asking = asyncio.create_task(on.snapshot(light=True, heard=heard))
        await asyncio.gather(answers(a, 0, looks=2), late(b))
        await asking
    assert "is over" in caplog.text and judge.snapshot is not None
    first, second = ({trace.rank: trace for trace in round_.traces}[Rank(2)] for round_ in judge.snapshot.rounds)
    assert first.missing is not None and not first.threads and second.threads


async def last(agent: Agent) -> None:
    """Answers whatever is asked until the third look is; an agent that is back is asked again for the one it missed."""
    while True:
        order = await agent.order()
        await agent.answer(order, trainer(2), trainer(3), last=True)
        if order.order.endswith("/2"):
            return


async def test_a_real_slow_job_is_told_and_nobody_is_ever_stopped(tmp_path: Path) -> None:
    """Agents as they are shipped on two machines, four ranks that wait for the third in every layer."""
    job = f"slow-{os.getpid()}"
    environs = [
        {"RANK": str(rank), "WORLD_SIZE": "4", "HANGDOG_JOB": job, "HANGDOG_TEST_HOST": f"{job}-{rank // 2}"}
        for rank in range(4)
    ]
    settings = replace(PATIENT, heartbeat_s=5.0)
    judge = Listener(diagnose)
    async with stage(tmp_path / "s.db", judge, settings) as on:
        with ExitStack() as stack:
            ranks = stack.enter_context(training(tmp_path / "job", list(environs), 2, 0.005, 0.4))
            agents = [
                await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", "hangdog_agent.main", "--server", on.address, "--machine", f"node-{at}"),
                    *("--match-env", f"HANGDOG_TEST_HOST={job}-{at}", "--set", "light_s=0.1"),
                    stderr=asyncio.subprocess.DEVNULL,
                )
                for at in range(2)
            ]
            try:
                await on.knows("node-0", "node-1")
                with Sampler(*ranks) as states:
                    steps = await on.snapshot(job, light=True, rounds=24, interval_s=0.53)
            finally:
                for agent in agents:
                    agent.terminate()
                    assert await agent.wait() == 0
    found = steps[-1].verdict
    assert found is not None
    assert (found.kind, found.suspects[0].machines) == (Kind.SLOW, ("node-1",)), (texts(steps), found.because)
    assert found.suspects[0].ranks == (2,)
    taken = sum("light look" in text for text in texts(steps))
    assert 3 < taken < 24, "as few as suffice"
    assert names(texts(steps)[-2], "twice", Kind.SLOW)
    assert states.times > 100 and not states.seen & set("tT")
