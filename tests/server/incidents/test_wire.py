"""The server over the true wire: from a request to its verdict, and agents that die, keep silent or talk nonsense."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from hangdog_models.incident import IncidentState
from hangdog_models.snapshot import Job
from hangdog_models.stack import Missing, Reason
from hangdog_models.verdict import from_json
from hangdog_proto.codec.traces import unpack
from hangdog_proto.generated import hangdog_pb2 as pb
from hangdog_server.incidents.gather import Gathering, RoundAnswer, RoundPlan, conclude, owners, placement, take
from hangdog_server.incidents.judge import triage
from hangdog_server.incidents.round_diff import explained
from hangdog_server.protocol.jobs import AnnouncedJob
from support.servers.cast import NOON, PATIENT, QUICK, Agent, Listener, cluster, failed, stage, texts, trainer, verdict
from support.worded import names


async def answer(agent: Agent, *ranks: int) -> None:
    """Answers one order with one look."""
    await agent.answer(await agent.order(), *(trainer(rank) for rank in ranks))


async def test_from_request_to_verdict(tmp_path: Path) -> None:
    listener = Listener()
    async with stage(tmp_path / "s.db", listener) as on, cluster(on, a=[0, 1], b=[2, 3]) as (a, b):
        steps, _, _ = await asyncio.gather(on.snapshot(why="page 4711"), answer(a, 0, 1), answer(b, 2, 3))
        assert texts(steps)[1] == "asked 2 machines"
        assert texts(steps)[-3:] == ["2 of 2 machines answered", "judging 4 ranks", "undetermined"]
        assert [step.state for step in steps[:2]] == ["suspected", "capturing"] and steps[-1].state == "judged"
        assert not failed(steps)
        assert listener.topology is not None and listener.topology.machines == {"a": (0, 1), "b": (2, 3)}
        found = await on.store.find(steps[0].incident[:5])
        assert (found.job, found.state, found.why, found.began) == ("llama", IncidentState.JUDGED, "page 4711", NOON)
        assert from_json(json.loads(found.verdict)) == steps[-1].verdict


async def test_what_is_stored_is_enough_to_judge_again(tmp_path: Path) -> None:
    async with stage(tmp_path / "s.db") as on, cluster(on, a=[0, 1], b=[2, 3]) as (a, b):
        await b.hang_up()
        await on.until(lambda seen: not seen[1].connected)
        steps, _ = await asyncio.gather(on.snapshot(job_toml="[topology]\ntp = 4\n"), answer(a, 0, 1))
        asked, captures = await on.store.recall(steps[0].incident)
    announced = {
        machine: AnnouncedJob(**(known | {"ranks": tuple(known["ranks"])}))
        for machine, known in (asked["asked"] | asked["absent"]).items()
    }
    there, gone = ({machine: announced[machine].ranks for machine in asked[whose]} for whose in ("asked", "absent"))
    again = Gathering(RoundPlan("again", Job("llama"), asked["rounds"], asked["interval_s"], there, gone), 0.0)
    for kept in captures:
        traces = unpack(pb.Capture.FromString(kept.packed))
        assert not take(again, RoundAnswer(kept.machine, kept.round, traces))
    why = {machine: Missing(Reason(told["reason"]), told["words"]) for machine, told in asked["gone"].items()}
    judged = triage(
        explained(conclude(again), owners(again), why), asked["job_toml"], announced, placement(again), verdict
    )
    assert judged == steps[-1].verdict


async def test_an_agent_that_dies_while_it_captures(tmp_path: Path) -> None:
    settings = replace(PATIENT, rejoin_s=0.1)
    async with stage(tmp_path / "s.db", settings=settings) as on, cluster(on, a=[0, 1]) as (a,):
        async with cluster(on, b=[2, 3]) as (b,):
            asking = asyncio.create_task(on.snapshot())
            await b.order()
        await answer(a, 0, 1)
        steps = await asking
        gone = failed(steps)
        assert gone.keys() == {"2", "3"} and gone["2"] == gone["3"]
        assert names(gone["2"], Reason.NO_AGENT, "of b", "lost")
        assert any(names(text, "1 of 2 machines", "b did not") for text in texts(steps))


async def test_an_agent_that_comes_back_is_asked_again(tmp_path: Path) -> None:
    async with stage(tmp_path / "s.db") as on, cluster(on, a=[0, 1]) as (a,):
        async with cluster(on, b=[2, 3]) as (b,):
            asking = asyncio.create_task(on.snapshot())
            await b.order()
        await answer(a, 0, 1)
        await on.until(lambda seen: not seen[1].connected)
        async with cluster(on, b=[2, 3]) as (b,):
            await answer(b, 2, 3)
            assert not failed(await asking)


async def test_a_silent_agent_is_given_up_when_patience_ends(tmp_path: Path) -> None:
    async with stage(tmp_path / "s.db", settings=QUICK) as on, cluster(on, a=[0, 1], b=[2, 3]) as (a, _):
        steps, _ = await asyncio.gather(on.snapshot(), answer(a, 0, 1))
        assert names(failed(steps)["2"], Reason.NO_AGENT, "b", "2 s")


async def test_a_machine_lost_before_the_question_is_named_and_its_ranks_are_missing(tmp_path: Path) -> None:
    async with stage(tmp_path / "s.db") as on, cluster(on, a=[0, 1]) as (a,):
        async with cluster(on, b=[2, 3]):
            pass
        await on.until(lambda seen: not seen[1].connected)
        steps, _ = await asyncio.gather(on.snapshot(), answer(a, 0, 1))
        assert any(names(text, "1 machine", "b not connected") for text in texts(steps))
        assert names(failed(steps)["3"], Reason.NO_AGENT, "of b", "not connected", "stream broke")


async def test_an_agent_that_says_goodbye_is_as_absent_as_one_that_broke(tmp_path: Path) -> None:
    async with stage(tmp_path / "s.db") as on, cluster(on, a=[0]) as (a,):
        await a.hang_up()
        assert (await a.end())[0] is grpc.StatusCode.OK
        await on.until(lambda seen: not seen[0].connected)


async def test_duplicate_late_and_foreign_answers_change_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with stage(tmp_path / "s.db") as on, cluster(on, a=[0], b=[1]) as (a, b):
        asking = asyncio.create_task(on.snapshot())
        order = await a.order()
        await a.answer(order, trainer(0))
        await a.answer(order, trainer(0, "forged"))
        await a.answer(pb.CaptureOrder(order="other"), trainer(0, "foreign"))
        await on.until(
            lambda _: sum("refused" in message for message in caplog.messages) == 2
        )  # before all have answered
        await answer(b, 1)
        steps = await asking
        await a.answer(order, trainer(0, "late"))
        await on.until(lambda _: "is over" in caplog.messages[-1])
        assert not failed(steps)
        _, captures = await on.store.recall(order.order)
        kept = [unpack(pb.Capture.FromString(capture.packed))[0].threads[0].frames[1].function for capture in captures]
        assert kept == ["step", "step"]
        refusals = [message for message in caplog.messages if "refused" in message]
        assert [refusal.partition("refused: ")[2].split(" ")[:3] for refusal in refusals[:1]] == [
            ["a", "answered", "look"]
        ]
        assert len(refusals) == 3


async def test_a_garbled_capture_is_told_and_the_stream_lives_on(tmp_path: Path) -> None:
    async with stage(tmp_path / "s.db") as on, cluster(on, a=[0], b=[1]) as (a, b):
        asking = asyncio.create_task(on.snapshot())
        garbled = pb.Capture(stacks=[pb.Stack(frames=[7])])
        await a.say(captured=pb.Captured(order=(await a.order()).order, capture=garbled))
        await answer(b, 1)
        steps = await asking
        ((rank, why),) = failed(steps).items()
        assert rank == "0" and names(why, Reason.NO_EVIDENCE, "of a", "not readable", "frame 7")
        assert steps[-1].verdict is not None and list(steps[-1].verdict.evidence.unreadable) == ["a, look 0"]
        again, _, _ = await asyncio.gather(on.snapshot(), answer(a, 0), answer(b, 1))
        assert not failed(again)


async def test_a_message_over_the_bound_ends_the_stream_and_not_the_server(tmp_path: Path) -> None:
    settings = replace(QUICK, max_message_bytes=10_000)
    async with stage(tmp_path / "s.db", settings=settings) as on, cluster(on, a=[0], b=[1]) as (a, b):
        steps, _, _ = await asyncio.gather(on.snapshot(), answer(a, 0), _flood(b))
        assert (await b.end())[0] is grpc.StatusCode.RESOURCE_EXHAUSTED
        ((rank, why),) = failed(steps).items()
        assert rank == "1" and names(why, Reason.NO_AGENT, "of b", "lost")


async def _flood(agent: Agent) -> None:
    order = await agent.order()
    await agent.answer(order, trainer(1, "f" * 20_000))


async def test_several_looks(tmp_path: Path) -> None:
    listener = Listener()
    async with stage(tmp_path / "s.db", listener) as on, cluster(on, a=[0], b=[1]) as (a, b):
        asking = asyncio.create_task(on.snapshot(rounds=3, interval_s=0.5))
        orders = [await a.order(), await b.order()]
        assert {(order.job, order.rounds, order.interval_s) for order in orders} == {("llama", 3, 0.5)}
        for look in range(3):
            await a.answer(orders[0], trainer(0), look=look, last=look == 2)
            await b.answer(orders[1], trainer(1, pid=50 + look // 2), look=look)
        steps = await asking
        ((rank, why),) = failed(steps).items()
        assert rank == "1" and names(why, Reason.RESTARTED, "pid 50", "now 51")
        assert listener.snapshot is not None and len(listener.snapshot.rounds) == 3
        assert listener.snapshot.interval_s == 0.5
