"""Campaigns that a server's end cut short: what was under way is asked for again, nothing is done twice, none is ever stuck."""

import asyncio
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import sqlalchemy as sa

from hangdog_models.errors import ServerUnreachable
from hangdog_proto.generated import hangdog_pb2 as pb
from hangdog_server.campaigns import campaign_run
from hangdog_server.store import campaigns
from hangdog_server.store.campaigns import Campaign, CampaignState
from hangdog_server.store.store import Store
from hangdog_server.store.tables import CONVICTIONS, LAUNCHES, LEDGER
from support.refused import refused
from support.servers.cast import NOON, PATIENT, Stage, stage
from support.servers.tested import asking, broken, campaign, machines, sound

#: Who is not back soon is not waited for.
QUICK = replace(PATIENT, campaign_lost_s=0.3, returned_s=0.3)


async def left(path: Path, levels: tuple[int, ...] = (1,)) -> pb.Diagnose:
    """What a server leaves that ended while m1 was tested: the order that was under way. The others had answered."""
    silent = lambda order: None if "m1" in order.members else sound(order)
    with suppress(ServerUnreachable):
        async with stage(path) as on, machines(on, m0=silent, m1=silent, m2=silent) as played:
            asked = asyncio.create_task(campaign(on, "m0", "m1", "m2", levels=levels, budget_s=600.0))
            order = await played["m1"].ordered()
            others = 2 if 1 in levels else 0
            async with asyncio.timeout(50):
                while len([one for one in await launches(on.store) if one.result]) < others or (
                    levels == (3,) and not (await launches(on.store))[0].meet
                ):
                    await asyncio.sleep(0.01)
        await asked
    return order


async def launches(store: Store) -> list[sa.Row[tuple[object, ...]]]:
    return await store.ask(lambda connection: list(connection.execute(sa.select(LAUNCHES).order_by(LAUNCHES.c.number))))


async def count(store: Store, table: sa.Table) -> int:
    def counted(connection: sa.Connection) -> int:
        return int(connection.execute(sa.select(sa.func.count()).select_from(table)).scalar_one())

    return await store.ask(counted)


async def ended(on: Stage) -> Campaign:
    """The one campaign, once it is not under way any more."""
    async with asyncio.timeout(50):
        while (await on.store.ask(campaigns.latest, 9))[0].state is CampaignState.RUNNING:
            await asyncio.sleep(0.01)
    (one,) = await on.store.ask(campaigns.latest, 9)
    return one


async def test_what_was_under_way_is_asked_for_again_by_its_name_and_convicts_once(tmp_path: Path) -> None:
    before = await left(tmp_path / "s.db")
    async with stage(tmp_path / "s.db") as on, machines(on, m0=sound, m1=broken(1), m2=sound) as played:
        order = await played["m1"].ordered()
        assert (order.launch, order.levels, order.members) == (before.launch, before.levels, before.members)
        assert order.deadline_s == before.deadline_s, "the clock of the tests stands"
        done = await ended(on)
        assert (done.id, done.state, done.convicted) == (before.launch.partition("-")[0], CampaignState.DONE, ("m1",))
        names = [one.launch for each in played.values() for one in each.orders]
        assert len(names) == len(set(names)), "what had an answer is not done again"
        assert await count(on.store, CONVICTIONS) == await count(on.store, LEDGER) == 1
        assert not await on.store.do(
            campaigns.end, done.id, CampaignState.DONE, 1.0, "", "", [campaigns.Convict("m0", 1.0)]
        )
        assert await count(on.store, CONVICTIONS) == await count(on.store, LEDGER) == 1


async def test_the_members_of_a_group_meet_where_they_had_agreed(tmp_path: Path) -> None:
    before = await left(tmp_path / "s.db", (3,))
    async with stage(tmp_path / "s.db") as on, machines(on, m0=sound, m1=sound, m2=sound) as played:
        again = [(await played[name].ordered()) for name in before.members]
        assert {one.launch for one in again} == {before.launch}
        assert {one.meet for one in again if one.member} == {"127.0.0.1:29500"}
        assert (await ended(on)).state is CampaignState.DONE


async def test_nobody_is_back_and_it_still_ends_and_blames_nobody(tmp_path: Path) -> None:
    await left(tmp_path / "s.db")
    async with stage(tmp_path / "s.db", settings=QUICK) as on:
        done = await ended(on)
        assert (done.state, done.convicted) == (CampaignState.DONE, ())
        assert all(one.result for one in await launches(on.store))


async def test_machines_that_come_back_later_than_their_server_are_waited_for(tmp_path: Path) -> None:
    before = await left(tmp_path / "s.db")
    async with stage(tmp_path / "s.db", settings=replace(PATIENT, campaign_lost_s=0.0, returned_s=60.0)) as on:
        async with asyncio.timeout(50):
            while (await on.store.ask(campaigns.open_))[0].asked["attempt"] != 1:
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)  # a server that waits as while it runs would have given m1 up
        async with machines(on, m0=sound, m1=broken(1), m2=sound) as played:
            assert (await played["m1"].ordered()).launch == before.launch
            assert (await ended(on)).convicted == ("m1",)


async def test_the_time_without_a_server_is_of_the_budget(tmp_path: Path) -> None:
    await left(tmp_path / "s.db")
    later = lambda: NOON + 600.0
    async with stage(tmp_path / "s.db", clock=later) as on, machines(on, m0=sound, m1=sound, m2=sound):
        assert "budget spent" in (await ended(on)).report
        assert [one.result for one in await launches(on.store)] == ["pass"] * 3, "nothing new is begun"


async def test_it_is_not_taken_up_for_ever(tmp_path: Path) -> None:
    await left(tmp_path / "s.db")
    for _ in range(campaign_run.ATTEMPTS):
        async with stage(tmp_path / "s.db") as on, machines(on, m1=lambda order: None) as played:
            await played["m1"].ordered()
    async with stage(tmp_path / "s.db") as on:
        failed = await ended(on)
        assert failed.state is CampaignState.FAILED and " ended 4 times " in failed.note
        with refused("campaign-is-over"):
            await asking(on, lambda client: client.abort(failed.id))
