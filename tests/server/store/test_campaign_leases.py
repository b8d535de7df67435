"""Several servers beside one database: a campaign is led by the one that was asked, and by another once that one has ended."""

import asyncio
from contextlib import AsyncExitStack, suppress
from dataclasses import replace

from hangdog_models.errors import ServerUnreachable
from hangdog_server.store import campaigns
from hangdog_server.store.campaigns import CampaignState
from support.real.postgres import Postgres
from support.servers.cast import PATIENT, stage
from support.servers.tested import broken, campaign, machines

#: A lease that is looked after three times within its life: what stands still for a second must not lose it.
QUICK = replace(PATIENT, lease_s=2.0)


async def test_another_server_leaves_a_campaign_alone_until_its_own_has_ended(server: Postgres) -> None:
    where = server.database()
    async with AsyncExitStack() as stack:
        second = await stack.enter_async_context(stage(where, settings=QUICK))
        async with stage(where, settings=QUICK) as first, machines(first, m0=lambda order: None) as played:
            asked = asyncio.create_task(campaign(first, "m0", levels=[1], budget_s=600.0))
            order = await played["m0"].ordered()
            async with machines(second, m0=broken(1)) as elsewhere:
                await asyncio.sleep(
                    2.8
                )  # longer than a lease: had it not been prolonged, the second server would have taken it
                assert not elsewhere["m0"].orders
        with suppress(ServerUnreachable):
            await asked
        async with machines(second, m0=broken(1)) as elsewhere:
            assert (await elsewhere["m0"].ordered()).launch == order.launch
            async with asyncio.timeout(50):
                while (await second.store.ask(campaigns.latest, 1))[0].state is CampaignState.RUNNING:
                    await asyncio.sleep(0.01)
            (done,) = await second.store.ask(campaigns.latest, 9)
            assert done.convicted == ("m0",)
