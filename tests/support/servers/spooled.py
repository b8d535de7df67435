"""What tests of spooled messages share: handing them over, and waiting until they are judged."""

import asyncio

from hangdog_models.incident import Incident, IncidentState
from hangdog_proto.generated import hangdog_pb2 as pb
from support.servers.cast import Agent, Stage


async def handed_over(agent: Agent, *looks: pb.Spooled) -> list[str]:
    """Why the server refused each look; empty where it keeps it."""
    refused = []
    for one in looks:
        await agent.say(spooled=one)
        async with asyncio.timeout(30):
            while not (message := await agent.next()).HasField("ack"):
                pass
        assert message.ack.id == one.id
        refused.append(message.ack.refused)
    return refused


async def judged(on: Stage, count: int = 1) -> tuple[Incident, ...]:
    """The incidents, newest first, once so many are judged and none is open."""
    async with asyncio.timeout(30):
        while True:
            incidents = await on.store.latest("", 9)
            if len(incidents) == count and all(one.state is IncidentState.JUDGED for one in incidents):
                return incidents
            await asyncio.sleep(0.02)
