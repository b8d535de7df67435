"""Campaigns over the wire, with machines that are played: who is convicted, who never is, and what is said of the others."""

from hangdog_proto.client.campaigns import CampaignStep
from hangdog_proto.generated import hangdog_pb2 as pb
from support.servers.cast import Stage
from support.servers.tested import Answer, asking, broken, campaign, linked, machines, report, skipped, sound


async def test_the_machine_that_computes_wrong_is_convicted_and_nobody_else(on: Stage) -> None:
    async with machines(on, m0=sound, m1=broken(1), m2=sound):
        steps: list[CampaignStep] = []
        told = await campaign(on, "m0", "m1", "m2", heard=steps, levels=[1], budget_s=300.0, why="it hung")
    assert (told["schema"], told["verdict"], told["because"]) == ("hangdog.campaign/1", "convicted", "settled")
    assert [one["machine"] for one in told["convicted"]] == ["m1"] and told["why"] == "it hung"
    assert {(one["machine"], one["by"]) for one in told["not_convicted"]} == {
        ("m0", "one device"),
        ("m2", "one device"),
    }
    assert told["not_convicted"][0]["would_have_shown"]["products"] >= 0.69
    texts = [step.text for step in steps]
    assert texts[0].startswith("campaign ") and texts[1].startswith("round 1: 3 x one device")
    assert any(text.startswith("m1: one device: fail: ") and "gemm" in text for text in texts)
    assert texts[-1].startswith("convicted: m1, ")


async def test_a_bad_network_card_is_told_from_its_links_by_other_partners(on: Stage) -> None:
    bad = linked("m2")
    async with machines(on, m0=bad, m1=bad, m2=bad, m3=bad) as played:
        told = await campaign(on, "m0", "m1", "m2", "m3", levels=[3], budget_s=600.0)
    assert [one["machine"] for one in told["convicted"]] == ["m2"]
    partners = {tuple(one["machines"]) for one in told["launches"] if one["result"] == "fail"}
    assert len(partners) >= 2, "one link alone convicts nobody"
    for one in (order for each in played.values() for order in each.orders):
        assert (one.meet == "") == (one.member == 0) and list(one.addresses) == ["127.0.0.1"] * (len(one.members) - 1)


async def test_the_part_that_failed_is_convicted_by_its_uuid_and_stays_suspicious_in_another_machine(on: Stage) -> None:
    bad = report(1, "fail", convicts=[{"sort": "device", "names": ["cuda:0"]}]).replace("GPU-of-nobody", "GPU-1")
    async with machines(on, m0=sound, m1=lambda order: bad):
        told = await campaign(on, "m0", "m1", levels=[1], budget_s=300.0)
    assert told["convicted"][0]["parts"] == ["GPU-1"]
    moved = report(1).replace("GPU-of-nobody", "GPU-1")
    async with machines(on, m2=lambda order: moved, m3=lambda order: report(1).replace("GPU-of-nobody", "GPU-3")):
        await campaign(on, "m2", "m3", levels=[1], budget_s=60.0)
        past = await asking(on, lambda client: client.test_history("GPU-1"))
        assert {test.machine for test in past.tests} == {"m2"} and past.parts == ("GPU-1",)
        ((machine_, part),) = {(one.machine, one.part) for one in past.convictions}
        assert (machine_, part) == ("m1", "GPU-1") and past.probation > past.convictions[0].at
        told = await campaign(on, "m2", "m3", levels=[1], budget_s=40.0)
        ranked = {one["names"][0]: one["probability"] for one in told["ranked"]}
        assert ranked["m2"] > 4 * ranked["m3"], "it was convicted before, wherever it was then"
    assert (await asking(on, lambda client: client.test_history("m0"))).convictions == ()


async def test_where_all_fail_nobody_is_convicted_for_what_they_share(on: Stage) -> None:
    async with machines(on, m0=broken(1), m1=broken(1), m2=broken(1), m3=broken(1)):
        told = await campaign(on, "m0", "m1", "m2", "m3", levels=[1], budget_s=2000.0)
        assert (await asking(on, lambda client: client.test_history("m0"))).convictions == ()
    assert (told["verdict"], told["convicted"]) == ("failed", [])
    assert told["because"].startswith("4 of 4 machines fail: ")


async def test_two_of_four_that_fail_are_no_crowd(on: Stage) -> None:
    async with machines(on, m0=broken(1), m1=sound, m2=broken(1), m3=sound):
        told = await campaign(on, "m0", "m1", "m2", "m3", levels=[1], budget_s=2000.0)
    assert {one["machine"] for one in told["convicted"]} == {"m0", "m2"}


async def test_a_campaign_that_convicts_nobody_says_what_was_bought_and_never_healthy(on: Stage) -> None:
    async with machines(on, m0=sound, m1=sound):
        told = await campaign(on, "m0", "m1", levels=[1], budget_s=2000.0)
    assert (told["verdict"], told["convicted"], told["untested"]) == ("not convicted", [], [])
    assert all(one["repetitions"] >= one["launches"] >= 1 for one in told["not_convicted"])
    assert "healthy" not in str(told)


async def test_who_refuses_or_has_nothing_to_test_is_told_with_the_reason(on: Stage) -> None:
    refuses: Answer = lambda order: pb.Diagnosed(launch=order.launch, refused="llama runs")
    none: Answer = lambda order: skipped(order.levels[0], "only one device")
    async with machines(on, m0=refuses, m1=none, m2=sound) as played:
        told = await campaign(on, "m0", "m1", "m2", levels=[2], budget_s=600.0)
        assert len(played["m0"].orders) == len(played["m1"].orders) == 1, "asked once"
    assert {(one["machine"], one["why"]) for one in told["untested"]} == {
        ("m0", "refused: llama runs"),
        ("m1", "only one device"),
    }
