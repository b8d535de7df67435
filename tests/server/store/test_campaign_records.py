"""Campaigns in the store, on both engines: written once whoever tries, read back as they were, told of by machine and by part."""

import json
from pathlib import Path

from hangdog_models.planning.campaign.launch import LaunchResult
from hangdog_models.planning.campaign.level_planner import Conclusion
from hangdog_models.reading.hardware.test_report import Diagnosed, read_diagnosis
from hangdog_server.campaigns.campaign_request import CampaignPlanRequest, from_json
from hangdog_server.store import campaigns, test_results
from hangdog_server.store.campaigns import Campaign, CampaignState, Convict, StoredCampaign
from hangdog_server.store.store import Store
from support.refused import refused

ASKED = CampaignPlanRequest((1, 3), 600.0, {"b": 0.6, "a": 0.2}, 0.15, 0.05, 0.05, {"c": "\0 no"}, 1)
FIRST = StoredCampaign(0, 1, "one device", ("a",), 2, 10.0, 60.0)
GROUP = StoredCampaign(1, 1, "between machines", ("b", "a"), 1, 10.0, 60.0)


def reported(outcome: str, part: str) -> Diagnosed:
    convicts = [{"sort": "device", "names": ["cuda:0", "cuda:9"]}]
    result = {"test": "gemm", "outcome": outcome, "says": "so", "repetitions": 21, "convicts": convicts}
    level = {"level": 1, "name": "one device", "results": [result]}
    document = {"schema": "hangdog.diagnosis/1", "levels": [level], "parts": {"cuda:0": part}}
    return read_diagnosis(json.dumps(document))


async def test_a_campaign_is_written_once_and_read_back(where: Path | str) -> None:
    store = Store(where)
    campaign = Campaign("0a", 5.0, "alice", "it \0 hung", "1b", ASKED.to_json())
    await store.do(campaigns.begin, campaign)
    (found,) = await store.ask(campaigns.open_)
    assert from_json(found.asked) == ASKED and list(from_json(found.asked).prior) == ["b", "a"], "their order is kept"
    await store.do(campaigns.planned, "0a", [FIRST, GROUP])
    await store.do(campaigns.met, "0a", 1, "10.0.0.1:29500")
    came = Conclusion(LaunchResult.FAIL, "gemm: so")
    assert await store.do(campaigns.concluded, "0a", FIRST, came, {"a": reported("fail", "GPU-1")}, 11.0)
    assert not await store.do(campaigns.concluded, "0a", FIRST, Conclusion(LaunchResult.PASS), {}, 12.0), "once"
    silent = Conclusion(LaunchResult.INCONCLUSIVE, "a: gone", {"a": "gone"}, {}, frozenset("a"))
    assert await store.do(campaigns.concluded, "0a", GROUP, silent, {}, 13.0)
    first, group = await store.ask(campaigns.launches, "0a")
    assert (first.came, first.ended, first.parts) == (came, 11.0, {"a": ("GPU-1",)})
    assert (group.came, group.meet, group.machines) == (silent, "10.0.0.1:29500", ("b", "a"))
    convict = Convict("a", 0.99, ("GPU-1",))
    assert await store.do(campaigns.end, "0a", CampaignState.DONE, 14.0, "", "{}", [convict])
    assert not await store.do(campaigns.end, "0a", CampaignState.FAILED, 15.0, "late", "", []), "once"
    ended = await store.ask(campaigns.find, "0")
    assert (ended.state, ended.convicted, ended.note, ended.why) == (CampaignState.DONE, ("a",), "", "it \ufffd hung")
    assert await store.ask(campaigns.open_) == ()
    for name in ("", "1"):
        with refused("no-such-campaign"):
            await store.ask(campaigns.find, name)
    store.close()


async def test_the_past_follows_a_part_from_machine_to_machine_and_is_forgotten_in_time(where: Path | str) -> None:
    store = Store(where)
    for name, machine, at in (("0a", "a", 10.0), ("0b", "b", 20.0)):
        await store.do(campaigns.begin, Campaign(name, at, "", "", "", ASKED.to_json()))
        launch = StoredCampaign(0, 1, "one device", (machine,), 1, at, 60.0)
        await store.do(campaigns.planned, name, [launch])
        outcome = "fail" if machine == "a" else "pass"
        await store.do(
            campaigns.concluded,
            name,
            launch,
            Conclusion(LaunchResult(outcome)),
            {machine: reported(outcome, "GPU-1")},
            at,
        )
        convicted = [Convict("a", 0.99, ("GPU-1",)), Convict("z", 0.99)] if machine == "a" else []
        await store.do(campaigns.end, name, CampaignState.DONE, at, "", "{}", convicted)
    here = await store.ask(test_results.of, "GPU-1", 9)
    assert [(one.machine, one.test, one.outcome) for one in here.tests] == [("b", "one device: gemm", "pass")]
    assert [(one.machine, one.part) for one in here.convictions] == [("a", "GPU-1")]
    assert here.probation == 0.0 and (await store.ask(test_results.of, "GPU-1", 9, 100.0)).probation == 110.0
    assert (await store.ask(test_results.of, "a", 9)).convictions == (), "what was convicted in it is elsewhere now"
    found = await store.ask(test_results.offences, ["a", "b", "z"], 0.0)
    assert found.counts == {"GPU-1": 1, "z": 1} and found.serials["b"] == ("b", "GPU-1")
    assert (await store.ask(test_results.offences, ["b"], 11.0)).counts == {}, "its probation is over"
    everybody = ["a", "b", "z"]
    assert await store.ask(test_results.fit, everybody, 0.0, None) == {"a"}, (
        "what was convicted in it stands in the way of b now"
    )
    assert await store.ask(test_results.fit, everybody, 11.0, None) == {*everybody}
    assert await store.ask(test_results.fit, everybody, 11.0, 5.0) == {"b"}, "a failed, and z was not tested"
    assert await store.ask(test_results.fit, everybody, 11.0, 21.0) == frozenset()
    while await store.do(campaigns.forget, 15.0):
        pass
    assert [one.id for one in await store.ask(campaigns.latest, 9)] == ["0b"]
    assert (await store.ask(test_results.of, "a", 9)).tests == () and len(
        (await store.ask(test_results.of, "b", 9)).tests
    ) == 1
    store.close()
