"""Level 5 over a server: every machine trains in groups, regrouped each phase, and only a name of what to replay is sent."""

import asyncio
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hangdog_models.errors import ServerUnreachable, WrongUse
from hangdog_models.planning.campaign.level_planner import REPLAY
from hangdog_proto.client.campaigns import CampaignStep, WantedReplay
from hangdog_proto.generated import hangdog_pb2 as pb
from hangdog_server.campaigns.campaign_request import from_json
from support.refused import refused
from support.servers.cast import PATIENT, Stage, stage
from support.servers.tested import Answer, asking, campaign, machines, report, sound

SIX = tuple(f"m{at}" for at in range(6))


def beside(bad: str) -> Answer:
    """A machine of a cluster in which every group fails that this one is in."""
    return lambda order: report(REPLAY, "fail" if bad in order.members else "pass", "hangs: rank 1 did not answer")


def unknown(order: pb.Diagnose) -> pb.Diagnosed:
    return pb.Diagnosed(launch=order.launch, refused=f"this agent's settings name no replay {order.replay!r}")


def results(document: Mapping[str, Any], number: int) -> dict[tuple[str, ...], str]:
    return {tuple(one["machines"]): one["result"] for one in document["launches"] if one["round"] == number}


async def test_failed_groups_cross_at_the_faulty_machine(on: Stage) -> None:
    heard: list[CampaignStep] = []
    async with machines(on, **dict.fromkeys(SIX, beside("m4"))) as played:
        document = await campaign(on, *SIX, levels=[5], heard=heard)
        orders = [order for one in played.values() for order in one.orders]
    assert results(document, 1) == {("m0", "m1"): "pass", ("m2", "m3"): "pass", ("m4", "m5"): "fail"}
    assert results(document, 2) == {("m0", "m3"): "pass", ("m1", "m4"): "fail", ("m2", "m5"): "pass"}
    assert (document["verdict"], [one["machine"] for one in document["convicted"]]) == ("convicted", ["m4"])
    assert document["replay"] == {
        "name": None,
        "group_size": 2,
        "seconds": 180.0,
        "phases": ["neighbours", "strides", "diagonals"],
        "crossed": ["m4"],
    }
    (second,) = (step.text for step in heard if step.text.startswith("round 2: "))
    assert "phase 2 of 3, strides, " in second and second.endswith(" 2")
    assert {(tuple(order.levels), order.replay) for order in orders} == {((5,), "")}
    assert all(order.deadline_s <= 180.0 for order in orders), "a replay that hangs is not waited for four times"


async def test_a_sound_set_is_cleared(on: Stage) -> None:
    async with machines(on, **dict.fromkeys(SIX, sound)):
        document = await campaign(on, *SIX, levels=[5])
    assert (document["verdict"], document["convicted"], document["untested"]) == ("not convicted", [], [])
    assert {one["machine"] for one in document["not_convicted"]} == {*SIX} and document["replay"]["crossed"] == []


async def test_a_program_that_fails_everywhere_convicts_nobody(on: Stage) -> None:
    async with machines(on, **dict.fromkeys(SIX, lambda order: report(REPLAY, "fail", "crashes"))):
        document = await campaign(on, *SIX, levels=[5])
    assert (document["verdict"], document["convicted"]) == ("failed", [])
    assert document["because"].startswith("every group failed") and len(document["replay"]["crossed"]) == 6


async def test_the_name_is_sent_and_who_does_not_know_it_is_named_in_words(on: Stage) -> None:
    answers: dict[str, Answer] = {**dict.fromkeys(SIX, sound), "m5": unknown}
    async with machines(on, **answers) as played:
        document = await campaign(on, *SIX, levels=[5], replay=WantedReplay("llama", seconds=60.0))
        orders = [order for one in played.values() for order in one.orders]
    assert {order.replay for order in orders} == {"llama"} and len(played["m5"].orders) == 1
    (silent,) = document["untested"]
    assert silent["machine"] == "m5" and re.match("refused: .* 'llama'", silent["why"])
    assert document["verdict"] == "inconclusive" and document["replay"]["name"] == "llama"
    assert {one["machine"] for one in document["not_convicted"]} == {*SIX} - {"m5"}


async def test_what_it_would_begin_with_are_the_groups_of_the_first_phase(on: Stage) -> None:
    async with machines(on, **dict.fromkeys(SIX, sound)) as played:
        named, plan = await asking(on, lambda client: client.plan(SIX, levels=[5], replay=WantedReplay(size=2)))
        assert named == SIX and plan["because"].startswith("phase 1 of 3, neighbours, ")
        assert [one["machines"] for one in plan["launches"]] == [["m0", "m1"], ["m2", "m3"], ["m4", "m5"]]
        assert not any(one.orders for one in played.values())


WRONG: list[tuple[WantedReplay, str, str]] = [
    (WantedReplay(size=3), "too-few-machines", "7 machines"),
    (WantedReplay("x" * 200), "bad-name", "name"),
    (WantedReplay("a\nb"), "bad-name", "name"),
    (WantedReplay(seconds=1.0), "out-of-range", "1 s"),
    (WantedReplay(seconds=7200.0), "out-of-range", "7200 s"),
    (WantedReplay(seconds=200.0), "out-of-range", "budget is 100 s"),
]


async def test_replays_that_make_no_sense_are_refused(on: Stage) -> None:
    async with machines(on, **dict.fromkeys(SIX, sound)) as played:
        for replay, code, value in WRONG:
            with refused(code, WrongUse, value):
                await campaign(on, *SIX, levels=[5], budget_s=100.0 if replay.seconds == 200.0 else 0.0, replay=replay)
        assert not any(one.orders for one in played.values())


@pytest.mark.parametrize("phase", [1, 2, 3])
async def test_a_server_that_ends_in_a_phase_is_followed_by_one_that_goes_on(tmp_path: Path, phase: int) -> None:
    first = 3 * (phase - 1)
    silent = lambda order: None if number(order) >= first else beside("m2")(order)
    with suppress(ServerUnreachable):
        async with stage(tmp_path / "s.db") as on, machines(on, **dict.fromkeys(SIX, silent)) as played:
            asked = asyncio.create_task(campaign(on, *SIX, levels=[5], replay=WantedReplay("llama")))
            order = await played["m0"].ordered(phase)
            assert number(order) >= first
        await asked
    async with (
        stage(tmp_path / "s.db", settings=PATIENT) as on,
        machines(on, **dict.fromkeys(SIX, beside("m2"))) as played,
    ):
        name = order.launch.partition("-")[0]
        document = (await asking(on, lambda client: list(client.follow(name))))[-1].report
        orders = [order for one in played.values() for order in one.orders]
    assert [one["machine"] for one in document["convicted"]] == ["m2"]
    assert {order.replay for order in orders} == {"llama"}
    assert min(map(number, orders)) >= first, "what had ended is not asked for again"
    assert [one["launch"] for one in document["launches"]] == [*range(9)]
    assert document["replay"]["crossed"] == ["m2"]


def number(order: pb.Diagnose) -> int:
    """Of a launch in its campaign."""
    return int(order.launch.partition("-")[2])


def test_a_campaign_that_an_older_server_began_goes_on() -> None:
    believed = {"prior": [["m0", 0.5]], "none": 0.5, "link": 0.0, "further": 0.05, "unable": {}}
    asked = {"levels": [1], "budget_s": 9.0, **believed}
    assert from_json(asked).replay.name == "" and not from_json(asked).replays
    again = replace(from_json(asked), levels=(5,))
    assert from_json(again.to_json()) == again
