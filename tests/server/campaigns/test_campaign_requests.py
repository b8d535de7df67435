"""What people ask of campaigns: what is refused, shown before it begins, followed, and ended."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hangdog_models.errors import HangdogError, WrongUse
from hangdog_proto.client.campaigns import CampaignStep, WantedReplay
from hangdog_proto.generated import hangdog_pb2 as pb
from hangdog_server.listener import LOCAL
from support.refused import refused
from support.servers.cast import Stage, stage
from support.servers.tested import QUICK, asking, campaign, machines, sound


async def test_an_abort_ends_all_tests_and_the_campaign_with_what_is_known(tmp_path: Path) -> None:
    door = replace(LOCAL, audit=tmp_path / "audit.jsonl")
    async with (
        stage(tmp_path / "s.db", settings=QUICK, door=door) as on,
        machines(on, m0=sound, m1=lambda order: None) as played,
    ):
        steps: list[CampaignStep] = []
        asked = asyncio.create_task(campaign(on, "m0", "m1", heard=steps, levels=[1], budget_s=600.0))
        order = await played["m1"].ordered()
        line = await asking(on, lambda client: client.abort(order.launch[:6]))
        await played["m1"].ended(order.launch)
        told = await asked
        with pytest.raises(WrongUse, match="aborted") as caught:
            await asking(on, lambda client: client.abort(line.id))
        assert caught.value.code == "campaign-is-over"
    assert (line.state, told["verdict"]) == ("aborted", "inconclusive")
    assert told["because"].startswith("aborted by ") and told["because"].endswith("server's user")
    assert told["convicted"] == []
    deeds = [json.loads(deed) for deed in (tmp_path / "audit.jsonl").read_text().splitlines()]
    outcomes = [one["outcome"] for one in deeds if one["what"] == "abort diagnose"]
    assert outcomes == ["asked", "aborted", "asked", f"refused: campaign {line.id} is over: aborted"]


async def test_an_agent_of_before_campaigns_is_never_ordered_anything(on: Stage) -> None:
    async with on.agent("old") as old, machines(on, m0=sound):
        await old.hello(llama=[0])
        await on.knows("old")
        told = await campaign(on, "old", "m0", levels=[1], budget_s=60.0)
        with refused("nothing-to-test", WrongUse, "old: ", "version 1,"):
            await campaign(on, "old", levels=[1])
        waiting = asyncio.create_task(old.next())
        assert not (await asyncio.wait((waiting,), timeout=0.05))[0]
        waiting.cancel()
    (untested,) = told["untested"]
    assert (untested["machine"], untested["by"]) == ("old", None) and "version 1," in untested["why"]


NONSENSE: list[tuple[tuple[str, ...], dict[str, Any], str, str]] = [
    ((), {}, "no-machine-named", "machines"),
    (("m0",), {"levels": [5]}, "too-few-machines", "level 5 needs 3 machines"),
    (("m0",), {"levels": [1, 5]}, "conflicting-options", "level 5"),
    (("m0",), {"levels": [1], "replay": WantedReplay("llama")}, "missing-option", "level 5"),
    (("m0",), {"levels": [9]}, "unknown-choice", "level 9"),
    (("m0",), {"levels": [3]}, "too-few-machines", "level 3"),
    (("m0",), {"budget_s": float("inf")}, "out-of-range", "inf s"),
    (("m0", "x" * 300), {}, "bad-name", "machine"),
    (("m9",), {}, "nothing-to-test", "m9: "),
    ((), {"incident": "abc"}, "no-such-incident", "'abc'"),
]


async def test_requests_that_make_no_sense_test_nobody(on: Stage) -> None:
    async with machines(on, m0=sound) as played:
        for names, asked, code, value in NONSENSE:
            with pytest.raises(HangdogError, match=value) as caught:
                await campaign(on, *names, **asked)
            assert caught.value.code == code
        assert not played["m0"].orders


async def test_no_machine_is_in_two_campaigns(on: Stage) -> None:
    async with machines(on, m0=sound, m1=lambda order: None) as played:
        first = asyncio.create_task(campaign(on, "m0", "m1", levels=[1], budget_s=600.0))
        order = await played["m1"].ordered()
        with pytest.raises(WrongUse, match=r"m1.* campaign \w{12}") as caught:
            await campaign(on, "m1", levels=[1])
        assert caught.value.code == "machine-in-use"
        await asking(on, lambda client: client.abort(order.launch.partition("-")[0]))
        await first


async def test_a_campaign_goes_on_when_nobody_listens_and_can_be_followed(on: Stage) -> None:
    ready = asyncio.Event()
    async with machines(on, m0=sound, m1=lambda order: sound(order) if ready.is_set() else None) as played:

        def leave(client: object) -> str:
            steps = client.run(["m0", "m1"], levels=[1], budget_s=100.0)  # type: ignore[attr-defined]
            name = str(next(steps).campaign)
            steps.close()
            return name

        name = await asking(on, leave)
        order = await played["m1"].ordered()
        following = asyncio.create_task(asking(on, lambda client: list(client.follow(name))))
        ready.set()
        await played["m1"].say(pb.Diagnosed(launch=order.launch, report=sound(order)))
        assert (await following)[-1].report["campaign"] == name
    assert (await asking(on, lambda client: list(client.follow(name))))[-1].report["campaign"] == name
    (line,) = await asking(on, lambda client: client.campaigns())
    assert (line.id, line.state, line.machines) == (name, "done", ("m0", "m1"))


async def test_what_it_would_begin_with_is_shown_and_nobody_is_asked(on: Stage) -> None:
    async with machines(on, m0=sound, m1=sound) as played:
        named, plan = await asking(on, lambda client: client.plan(["m0", "m1"], levels=[1], budget_s=60.0))
        assert named == ("m0", "m1") and [one["machines"] for one in plan["launches"]] == [["m0"], ["m1"]]
        assert not played["m0"].orders and await asking(on, lambda client: client.campaigns()) == ()
