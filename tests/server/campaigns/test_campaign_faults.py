"""Campaigns whose machines die, dawdle or lie, and whose server has a bug or loses its store: they end, and convict nobody for it."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from hangdog_models.errors import OurFault, ServerUnreachable
from hangdog_proto.client.campaigns import CampaignStep
from hangdog_proto.generated import hangdog_pb2 as pb
from hangdog_server.campaigns import campaign_run
from hangdog_server.campaigns import launch as launching
from hangdog_server.cluster.fleet import Fleet
from hangdog_server.grpc_api.agent_service import Agents
from hangdog_server.incidents.round_capture import steady
from hangdog_server.protocol.commands import Abort, Diagnose
from hangdog_server.store import campaigns
from hangdog_server.store.store_errors import StoreFailed
from support.servers.cast import Stage, stage
from support.servers.tested import (
    QUICK,
    Answer,
    Machine,
    asking,
    broken,
    campaign,
    linked,
    machine,
    machines,
    report,
    sound,
)


async def test_a_store_that_is_away_for_a_while_holds_a_campaign_up_and_does_not_end_it(
    on: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = {"planned": 1, "concluded": 2, "end": 1, "met": 1}

    def sometimes(name: str) -> None:
        real = getattr(campaigns, name)

        def step(*given: Any, **named: Any) -> Any:
            if failures[name]:
                failures[name] -= 1
                raise StoreFailed("the store failed: its disk is full")
            return real(*given, **named)

        monkeypatch.setattr(campaigns, name, step)

    for name in failures:
        sometimes(name)
    monkeypatch.setattr(campaign_run, "AGAIN_S", 0.01)
    bad = linked("m1")
    async with machines(on, m0=bad, m1=bad, m2=bad):
        told = await campaign(on, "m0", "m1", "m2", levels=[3], budget_s=600.0)
    assert [one["machine"] for one in told["convicted"]] == ["m1"] and not any(failures.values())


async def test_a_bug_of_ours_ends_the_campaign_and_the_tests_and_is_told(
    on: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken_down(*_: object) -> None:
        raise ZeroDivisionError("no machines")

    async with machines(on, m0=sound, m1=lambda order: None) as played:
        monkeypatch.setattr(campaign_run, "concluded", broken_down)
        with pytest.raises(OurFault, match="ZeroDivisionError: no machines") as caught:
            await campaign(on, "m0", "m1", levels=[1], budget_s=600.0)
        assert caught.value.code == "bug"
        order = await played["m1"].ordered()
        await played["m1"].ended(order.launch)
    (line,) = await asking(on, lambda client: client.campaigns())
    assert line.state == "failed" and "ZeroDivisionError" in line.note


async def test_a_machine_that_dies_in_the_middle_is_named_and_the_others_are_tested_on(on: Stage) -> None:
    async with machines(on, m0=sound, m1=sound, m2=broken(1)):
        async with machine(on, "m3", lambda order: None) as dying:
            asked = asyncio.create_task(campaign(on, "m0", "m1", "m2", "m3", levels=[1, 3], budget_s=600.0))
            await dying.ordered()
        told = await asked
    assert [one["machine"] for one in told["convicted"]] == ["m2"]
    (untested,) = [one for one in told["untested"] if one["machine"] == "m3"]
    assert untested["why"].startswith("did not answer ") and untested["why"].endswith(" agent is gone")
    assert sum("m3" in one["machines"] for one in told["launches"]) == 1, "nobody waits for it again"


async def test_partners_of_a_machine_that_dies_are_told_to_end_and_are_no_worse_for_it(on: Stage) -> None:
    def waits(order: pb.Diagnose) -> str | None:
        return None if "m1" in order.members else sound(order)

    async with machine(on, "m0", waits) as first, machine(on, "m2", waits) as third:
        async with machine(on, "m1", lambda order: None) as dying:
            asked = asyncio.create_task(campaign(on, "m0", "m1", "m2", levels=[3], budget_s=200.0))
            order = await dying.ordered()
        await (first if "m0" in order.members else third).ended(order.launch)
        told = await asked
    assert {one["machine"] for one in told["untested"]} == {"m1"}
    assert not told["convicted"] and {one["machine"] for one in told["not_convicted"]} == {"m0", "m2"}


async def test_a_straggler_ends_with_the_deadline_and_is_told_to_end(
    on: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launching, "GRACE_S", -40.4)  # half a second is left of a deadline
    steps: list[CampaignStep] = []
    began = steady()

    def clock() -> float:  # the deadline does not come before the other one has answered
        answered = any(step.text.startswith("m0: one device") for step in steps)
        return steady() + 1.0 if answered else began

    monkeypatch.setattr(launching, "steady", clock)
    async with machines(on, m0=sound, m1=lambda order: None) as played:
        told = await campaign(on, "m0", "m1", heard=steps, levels=[1], budget_s=41.0)
        first, *_, last = [one for one in told["launches"] if one["machines"] == ["m1"]]
        await played["m1"].ended(f"{told['campaign']}-{first['launch']}")
        await played["m1"].ended(f"{told['campaign']}-{last['launch']}")
    assert told["verdict"] == "inconclusive"
    (untested,) = told["untested"]
    assert (untested["machine"], untested["by"]) == ("m1", "one device")
    last_s = played["m1"].orders[-1].deadline_s
    assert untested["why"].startswith("did not answer ") and untested["why"].endswith(f" within {last_s:.0f} s")


GARBAGE = {
    "deep": ("{" * 100_000, "cannot be read: "),
    "large": ("x" * (10 << 20), "10485760 characters is longer than 1048576"),
    "another": ('{"schema": "hangdog.verdict/1"}', "not a report"),
    "empty": (
        '{"schema": "hangdog.diagnosis/1", "levels": [{"results": 7}, "x"]}',
        "tells nothing",
    ),
}


def saying(said: str) -> Answer:
    return lambda order: said


async def test_reports_of_garbage_convict_nobody_and_hold_nothing_up(on: Stage) -> None:
    async with machines(on, m0=sound, **{name: saying(said) for name, (said, _) in GARBAGE.items()}):
        told = await campaign(on, "m0", *GARBAGE, levels=[1], budget_s=120.0)
    untested = {one["machine"]: one["why"] for one in told["untested"]}
    assert untested.keys() == GARBAGE.keys()
    assert all(GARBAGE[name][1] in why for name, why in untested.items())
    assert not told["convicted"] and told["verdict"] == "inconclusive"


async def test_what_nobody_asked_for_is_not_heard(on: Stage) -> None:
    async with machines(on, m0=sound, m1=lambda order: None) as played:
        asked = asyncio.create_task(campaign(on, "m0", "m1", levels=[1], budget_s=300.0))
        order = await played["m1"].ordered()
        for launch in (order.launch, "nothing-0", ""):
            await played["m0"].say(pb.Diagnosed(launch=launch, report=report(1, "fail", "m1 is broken, says m0")))
        played["m1"].answer = sound
        await played["m1"].say(pb.Diagnosed(launch=order.launch, report=sound(order)))
        told = await asked
    assert all(one["result"] == "pass" for one in told["launches"])


async def test_where_they_meet_is_said_by_the_first_member_alone_and_once() -> None:
    fleet, met = Fleet(QUICK), list[str]()
    lines = [fleet.connect(name, "1", f"ipv4:10.0.0.{at}:5", 0.0).line for at, name in enumerate(("m0", "m1"))]
    group = campaigns.StoredCampaign(0, 1, "between machines", ("m0", "m1"), 1, 0.0, 60.0)

    async def keep(where: str) -> None:
        met.append(where)

    async def says(machine_: str, where: str) -> None:
        assert not await launch.take_report(machine_, pb.Diagnosed(launch="c-0", meet=where))

    launch = launching.LaunchRun("c-0", group, 3, 60.0, fleet, 60.0, keep)
    answers = asyncio.create_task(launch.answers())
    assert (await lines[0].get()) == Diagnose("c-0", (3,), 1, 60.0, ("m0", "m1"), 0, "", ("10.0.0.1",))
    for who, where in (("m1", "10.6.6.6:1"), ("m0", "10.0.0.0:1\n"), ("m0", "x" * 301)):
        await says(who, where)
    assert not met and lines[1].empty()
    for _ in range(2):
        await says("m0", "10.0.0.0:29500")
    assert met == ["10.0.0.0:29500"] and lines[1].qsize() == 1
    assert (await lines[1].get()) == Diagnose("c-0", (3,), 1, 60.0, ("m0", "m1"), 1, "10.0.0.0:29500", ("10.0.0.0",))
    await says("m0", "10.0.0.0:29501")  # nobody is left where m1 waits
    ((name, answer),) = (await answers).items()
    assert name == "m0" and "started anew" in answer.silent
    assert lines[1].get_nowait() == Abort("c-0")


async def test_the_server_that_stops_says_so_to_who_follows(tmp_path: Path) -> None:
    async with stage(tmp_path / "s.db", settings=QUICK) as on, machines(on, m0=lambda order: None) as played:
        asked = asyncio.create_task(campaign(on, "m0", levels=[1], budget_s=600.0))
        await played["m0"].ordered()
        on_end = asked
    with pytest.raises(ServerUnreachable):
        await on_end


async def test_an_agent_is_ordered_once_by_a_launch_that_begins_while_it_is_welcomed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    welcome, connect = asyncio.Event(), Agents.Connect

    class Slow:
        """A stream whose Welcome takes its time."""

        def __init__(self, stream: Any) -> None:
            self._stream = stream

        def __getattr__(self, name: str) -> Any:
            return getattr(self._stream, name)

        async def write(self, message: pb.ToAgent) -> None:
            if message.HasField("welcome"):
                await welcome.wait()
            await self._stream.write(message)

    async def slow(self: Agents, said: AsyncIterator[pb.FromAgent], stream: Any) -> None:
        through: Any = Slow(stream)
        await connect(self, said, through)

    monkeypatch.setattr(Agents, "Connect", slow)
    async with stage(tmp_path / "s.db", settings=QUICK) as on, on.agent("m1") as agent:
        await agent.say(hello=pb.Hello(machine="m1", version="1", diagnoses=True))
        await on.until(lambda seen: any(line.name == "m1" for line in seen))
        steps: list[CampaignStep] = []
        asked = asyncio.create_task(campaign(on, "m1", heard=steps, levels=[1], budget_s=300.0))
        async with asyncio.timeout(50):
            while not any(step.text.startswith("round 1") for step in steps):
                await asyncio.sleep(0.01)
        welcome.set()
        assert (await agent.next()).HasField("welcome")
        played = Machine(agent, broken(1))
        playing = asyncio.create_task(played.play())
        told = await asked
        assert [one["machine"] for one in told["convicted"]] == ["m1"]
        names = [order.launch for order in played.orders]
        assert len(names) == len(set(names)) > 0
        playing.cancel()
        await asyncio.gather(playing, return_exceptions=True)
