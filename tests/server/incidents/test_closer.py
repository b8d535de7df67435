"""A closer look: native stacks of the ranks that decide are asked for, and change a verdict only when they come."""

import asyncio
import os
import sys
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from hangdog_models.diagnosis.judge import diagnose
from hangdog_models.stack import Frame, Missing, ProcessTrace, Reason
from hangdog_models.verdict import Kind, Verdict
from hangdog_proto.client.incidents import ProgressStep
from hangdog_proto.codec.traces import pack
from hangdog_proto.generated import hangdog_pb2 as pb
from hangdog_server.incidents.gather import FURTHER
from support.cases.stories import trace
from support.fakes import targets
from support.servers.cast import PATIENT, Agent, Listener, Stage, cluster, failed, stage, texts
from support.worded import names

pytestmark = [pytest.mark.slow, pytest.mark.parallel]

CALL = ["<module> train.py", "step train.py", "exchange binding.py"]
CLOSER = replace(PATIENT, rounds=2, native_ranks=32)
LOCK, RECV = ("take_lock", "pthread_mutex_lock"), ("receive", "recv")


def bare(ranks: Iterable[int]) -> list[ProcessTrace]:
    return [trace(rank, CALL, state="S") for rank in ranks]


def native(rank: int) -> ProcessTrace:
    seen = trace(rank, CALL, state="S")
    below = tuple(Frame(call, "call.so", 0, "/opt/call.so") for call in (LOCK if rank == 2 else RECV))
    thread = seen.threads[0]
    return structs.replace(seen, threads=(structs.replace(thread, frames=(*thread.frames, *below)),))


async def looks(agent: Agent, *ranks: int) -> None:
    """Answers the ordinary order."""
    order = await agent.order()
    assert not order.native and order.rounds == 2
    for number in range(2):
        await agent.answer(order, *bare(ranks), look=number, last=number == 1)


def judged(steps: list[ProgressStep]) -> Verdict:
    verdict = steps[-1].verdict
    assert verdict is not None, texts(steps)
    return verdict


async def test_native_stacks_are_asked_for_by_rank_and_judged_with_the_looks_before(tmp_path: Path) -> None:
    async def plays(agent: Agent, *ranks: int) -> None:
        await looks(agent, *ranks)
        order = await agent.order()
        assert tuple(order.native) == ranks and order.rounds == 1 and not order.light
        await agent.answer(order, *map(native, ranks), last=True)

    async with stage(tmp_path / "s.db", diagnose, CLOSER) as on, cluster(on, a=[0, 1], b=[2, 3]) as (a, b):
        steps, _, _ = await asyncio.gather(on.snapshot(), plays(a, 0, 1), plays(b, 2, 3))
        asked, kept = await on.store.recall(steps[0].incident)
    verdict = judged(steps)
    assert (verdict.kind, verdict.suspects[0].ranks, verdict.evict.machines) == (Kind.SOFTWARE, (2,), ())
    asking, came, kind = texts(steps)[-3:]
    assert names(asking, Kind.UNDETERMINED, "native stacks", "4 ranks") and names(came, "4 of 4", "native stacks")
    assert kind == Kind.SOFTWARE
    assert any(names(note, "native stacks", "ranks 0-3") for note in verdict.evidence.notes)
    assert {one.round for one in kept} == {0, 1, asked["rounds"] + FURTHER}, "kept behind the looks"


async def test_an_agent_that_knows_no_native_stacks_changes_nothing(tmp_path: Path) -> None:
    """It sees an order for one look at the whole job, and answers that, with what libraries counted behind it."""

    async def plays(agent: Agent, *ranks: int) -> None:
        await looks(agent, *ranks)
        order = await agent.order()
        await agent.say(captured=pb.Captured(order=order.order, capture=pack(bare(ranks)), more=True))
        await agent.say(captured=pb.Captured(order=order.order, round=1, last=True))

    async with stage(tmp_path / "s.db", diagnose, CLOSER) as on, cluster(on, a=[0, 1], b=[2, 3]) as (a, b):
        steps, _, _ = await asyncio.gather(on.snapshot(), plays(a, 0, 1), plays(b, 2, 3))
    verdict = judged(steps)
    plain = await without(tmp_path)
    assert verdict.kind is plain.kind is Kind.UNDETERMINED
    assert replace(verdict, evidence=plain.evidence) == plain, "but for a note it is the verdict that stood before"
    assert any(names(text, "0 of 4", "native stacks") for text in texts(steps))
    (note,) = verdict.evidence.notes
    assert names(note, "no native stack", "ranks 0-3", "Python frames only")


async def without(tmp_path: Path) -> Verdict:
    """The verdict upon the same looks where no native stack is asked for."""
    settings = replace(CLOSER, native_ranks=0)
    async with stage(tmp_path / "w.db", diagnose, settings) as on, cluster(on, a=[0, 1], b=[2, 3]) as (a, b):
        steps, _, _ = await asyncio.gather(on.snapshot(), looks(a, 0, 1), looks(b, 2, 3))
    return judged(steps)


async def test_an_agent_that_keeps_silent_is_waited_for_so_long_and_no_longer(tmp_path: Path) -> None:
    settings = replace(CLOSER, native_s=0.3)

    async def refuses(agent: Agent, *ranks: int) -> None:
        await looks(agent, *ranks)
        order = await agent.order()
        gets_on = Missing(Reason.NOT_SAFE, "it gets on")
        await agent.answer(
            order, *(structs.replace(one, threads=(), missing=gets_on) for one in bare(ranks)), last=True
        )

    async with stage(tmp_path / "s.db", diagnose, settings) as on, cluster(on, a=[0, 1], b=[2, 3]) as (a, b):
        steps, _, _ = await asyncio.gather(on.snapshot(), refuses(a, 0, 1), looks(b, 2, 3))
    assert judged(steps).kind is Kind.UNDETERMINED and not failed(steps)
    unsafe, silent = sorted(judged(steps).evidence.notes)
    assert names(unsafe, "no native stack", "ranks 0-1", Reason.NOT_SAFE, "it gets on")
    assert names(silent, "no native stack", "ranks 2-3", Reason.NO_AGENT, "b", "0.3 s")


async def test_an_answer_to_an_order_that_is_over_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def late(agent: Agent) -> None:
        order = await agent.order()
        for number in range(2):
            await agent.answer(order, *bare(range(4)), look=number, last=number == 1)
        closer = await agent.order()
        await agent.answer(order, *map(native, range(4)), look=0)
        await agent.answer(closer, *bare(range(4)), last=True)

    async with stage(tmp_path / "s.db", diagnose, CLOSER) as on, cluster(on, a=[0, 1, 2, 3]) as (a,):
        steps, _ = await asyncio.gather(on.snapshot(), late(a))
    assert judged(steps).kind is Kind.UNDETERMINED and "is over" in caplog.text


async def test_real_ranks_that_only_c_can_tell_apart(tmp_path: Path) -> None:
    """Agents as they are shipped on two machines, four processes in one C call, one of them in a lock it holds itself."""
    library = targets.compiled(tmp_path, "exchange", targets.EXCHANGE)
    if library is None:
        pytest.skip("no C compiler: apt-get install gcc")
    job = f"closer-{os.getpid()}"
    settings = replace(CLOSER, rounds=3, interval_s=0.3, heartbeat_s=5.0)
    judge = Listener(diagnose)
    async with stage(tmp_path / "s.db", judge, settings) as on:
        with ExitStack() as ranks:
            for rank in range(4):
                environ = {
                    "RANK": str(rank),
                    "WORLD_SIZE": "4",
                    "HANGDOG_JOB": job,
                    "HANGDOG_TEST_HOST": f"{job}-{rank // 2}",
                }
                locked = "1" if rank == 2 else "0"
                ranks.enter_context(targets.running(targets.EXCHANGING, str(library), locked, environ=environ))
            agents = [await shipped(on, f"node-{at}", f"HANGDOG_TEST_HOST={job}-{at}") for at in range(2)]
            try:
                await on.knows("node-0", "node-1")
                first = judged(await on.snapshot(job))
            finally:
                for agent in agents:
                    agent.terminate()
                    assert await agent.wait() == 0
    unaided = judge.verdicts[0]
    assert unaided.kind is Kind.UNDETERMINED and not unaided.suspects
    assert (first.kind, first.suspects[0].ranks, first.evict.machines) == (Kind.SOFTWARE, (2,), ())
    assert first.culprit is not None and first.culprit.probability > 0.8


async def shipped(on: Stage, machine: str, match: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "hangdog_agent.main", "--server", on.address, "--machine", machine),
        *("--match-env", match),
        stderr=asyncio.subprocess.DEVNULL,
    )
