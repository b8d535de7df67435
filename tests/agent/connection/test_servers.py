"""An agent that knows several servers: where it begins, that it goes where it is sent, and on to the next after a loss."""

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest

from hangdog_agent.capture.process_capture import Tools
from hangdog_agent.connection.servers import MOST, Servers, listed
from hangdog_proto.generated import hangdog_pb2 as pb
from support.refused import refused
from support.servers.far_end import PATIENCE_S, Line, Server, linked

THREE = ("a:1", "b:2", "c:3")


def test_agents_spread_evenly_and_each_begins_at_the_same_server_every_time() -> None:
    begun = [Servers(THREE, f"gpu-{number}").current for number in range(3000)]
    assert begun == [Servers(THREE, f"gpu-{number}").current for number in range(3000)]
    assert all(900 < count < 1100 for count in Counter(begun).values())


def test_after_a_loss_it_is_the_next_ones_turn() -> None:
    servers = Servers(THREE, "gpu-a17")
    begun = THREE.index(servers.current)
    for turn in range(1, 7):
        servers.lost()
        assert servers.current == THREE[(begun + turn) % 3]


def test_it_goes_where_it_is_sent_if_it_knows_that_server() -> None:
    servers = Servers(THREE, "gpu-a17")
    elsewhere = next(address for address in THREE if address != servers.current)
    assert not servers.send("stranger:4") and not servers.send(servers.current)
    assert servers.send(elsewhere)
    servers.lost()  # the line to where it was: it ends for that
    assert servers.current == elsewhere
    servers.lost()
    assert servers.current != elsewhere


def test_a_setting_names_one_server_or_some() -> None:
    assert listed("head:7411") == ("head:7411",)
    assert listed(" a:1, b:2,a:1,,") == ("a:1", "b:2")
    for wrong in ("", " , ", ",".join(f"s{number}:1" for number in range(MOST + 1))):
        with refused("wrong-address"):
            listed(wrong)


@pytest.fixture
async def pair() -> AsyncIterator[tuple[Server, Server]]:
    async with Server() as one, Server() as other:
        yield one, other


async def met(*servers: Server) -> tuple[Server, Line]:
    """The server that the link comes to, and its line there."""
    waiting = {asyncio.create_task(server.line()): server for server in servers}
    done, rest = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED, timeout=PATIENCE_S)
    for task in rest:
        task.cancel()
    (task,) = done
    return waiting[task], task.result()


async def test_a_link_goes_where_it_is_sent_and_on_when_that_server_is_gone(
    pair: tuple[Server, Server], tools: Tools
) -> None:
    tools = replace(tools, stop=threading.Event())
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(linked(pair[0], tools, others=pair[1:]))
        here, line = await met(*pair)
        there = pair[here is pair[0]]
        stranger = pb.ToAgent(redirect=pb.Redirect(job="llama", address="127.0.0.1:1"))
        line.outbox.put_nowait(stranger)
        line.order("still here")
        assert (await line.hear("captured")).order == "still here"
        line.outbox.put_nowait(pb.ToAgent(redirect=pb.Redirect(job="llama", address=f"127.0.0.1:{there.port}")))
        async with asyncio.timeout(PATIENCE_S):
            await there.line()
            await there.stop()
            await here.line()
