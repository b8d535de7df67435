"""Agents that have a certificate and misbehave: each is refused with a reason, logged once, and delays nobody else."""

import asyncio
import math
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import grpc
import pytest

from hangdog_models.ranks import Rank
from hangdog_models.stall_timeouts import Doing, Sign
from hangdog_proto.client.channel_options import open_aio_channel
from hangdog_proto.client.server_address import ServerAddress
from hangdog_proto.codec import stall_signs
from hangdog_proto.codec.traces import pack
from hangdog_proto.generated import hangdog_pb2 as pb
from support.servers.cast import Agent, Listener, Stage, stage, trainer
from support.servers.cast import cluster as crowd
from support.servers.guarded import STRICT, Cluster, beside, guarded, refusal
from support.worded import names

pytestmark = [pytest.mark.slow, pytest.mark.parallel]

MIB = 1 << 20
CONNECT, LIST = "/hangdog.v1.Agents/Connect", "/hangdog.v1.Incidents/List"
#: What gRPC raises of a write to a stream that has ended.
PARTED = (grpc.aio.AioRpcError, asyncio.InvalidStateError)


@asynccontextmanager
async def raw(on: Stage, cluster: Cluster, method: str, metadata: Any = None) -> AsyncIterator[Any]:
    """A stream on which a machine with a certificate says any bytes it likes."""
    async with open_aio_channel(ServerAddress(on.address, cluster.machine("bad")), ()) as channel:
        call = cast(Any, channel.stream_stream)(method)(metadata=metadata)
        yield call
        call.cancel()


async def ended(call: Any, *said: bytes) -> tuple[grpc.StatusCode, str]:
    """Says these; how the server ends the stream."""
    try:
        for each in said:
            await call.write(each)
        while await call.read() is not cast(Any, grpc.aio).EOF:
            pass
    except grpc.aio.AioRpcError:
        pass
    return await call.code(), await call.details()


def told(caplog: pytest.LogCaptureFixture, *words: str) -> int:
    """How often something was logged that names these; nothing may ever be logged with a traceback."""
    assert "Traceback" not in caplog.text
    return sum(names(record.getMessage(), *words) for record in caplog.records)


@pytest.mark.parametrize("said", [b"\xff" * 10, b"\x0a\xff\xff\xff\xff\x0f", b"\x0a\x05\x0a\x03\xff\xfe\xfd"], ids=repr)
async def test_bytes_that_are_no_message(cluster: Cluster, caplog: pytest.LogCaptureFixture, said: bytes) -> None:
    hello = pb.FromAgent(hello=pb.Hello(machine="bad")).SerializeToString()
    async with guarded(cluster) as on, beside(on, tls=cluster.machine("good")) as served:
        for before in ((), (hello,)):
            async with raw(on, cluster, CONNECT) as call:
                code, words = await ended(call, *before, said)
                assert code is grpc.StatusCode.INVALID_ARGUMENT and names(words, "hangdog message")
        await served()
    assert told(caplog, "hangdog message") == 1


async def test_a_request_that_never_comes_or_is_garbage_holds_nothing(cluster: Cluster) -> None:
    async with guarded(cluster) as on, beside(on, tls=cluster.machine("good")) as served:
        token = on.reach.metadata() if on.reach else ()
        async with raw(on, cluster, LIST) as call:
            code, words = await ended(call)
            assert code is grpc.StatusCode.PERMISSION_DENIED and names(words, "token"), "at once, before it has asked"
        async with raw(on, cluster, LIST, token) as call, asyncio.timeout(STRICT.hello_s + 10):
            assert names((await ended(call))[1], "no request", "1 s")
        async with raw(on, cluster, LIST, token) as call:
            assert names((await ended(call, b"\xff\xff"))[1], "hangdog request")
        async with raw(on, cluster, "/hangdog.v1.Incidents/Evict", token) as call:
            code, words = await ended(call)
            assert code is grpc.StatusCode.PERMISSION_DENIED and names(words, "no /hangdog.v1.Incidents/Evict")
        async with raw(on, cluster, "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", token) as call:
            assert (await ended(call))[0] is grpc.StatusCode.PERMISSION_DENIED
        await served()


async def test_huge_metadata_is_not_read(cluster: Cluster) -> None:
    async with guarded(cluster) as on, beside(on, tls=cluster.machine("good")) as served:
        async with raw(on, cluster, LIST, (("x-huge", "x" * 200_000),)) as call:
            assert (await ended(call))[0] in (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE)
        await served()


async def test_a_stream_without_end_is_ended_early_and_stays_refused(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """10 GiB were to come; the server takes what its settings say."""
    settings = replace(STRICT, burst_bytes=4 * MIB, bytes_per_s=1 * MIB)
    filler = pb.FromAgent(captured=pb.Captured(order="x" * MIB))
    own = cluster.machine("bad")
    async with guarded(cluster, settings) as on, beside(on, tls=cluster.machine("good")) as served:
        async with on.agent("bad", own) as agent:
            await agent.hello()
            sent = 0
            with pytest.raises(PARTED):
                while sent < 10_240:
                    await agent.say(captured=filler.captured)
                    sent += 1
            assert sent < 64, "what lies in buffers on the way, and no more"
        async with on.agent("bad", own) as again:
            assert "sends more than" in (await refusal(again, hello=pb.Hello(machine="bad")))[1]
        await served()
    assert told(caplog, "of bad", "more than") == 1
    assert told(caplog, "answer refused") == 1


async def test_a_flood_of_small_messages_is_ended(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    settings = replace(STRICT, burst_messages=100, messages_per_s=10)
    async with guarded(cluster, settings) as on, beside(on, tls=cluster.machine("good")) as served:
        async with on.agent("bad", cluster.machine("bad")) as agent:
            await agent.hello()
            with pytest.raises(PARTED):
                for _ in range(100_000):
                    await agent.announce()
        await served()
    assert told(caplog, "of bad", "more than 10 messages") == 1


async def test_a_message_above_the_bound_is_not_read(cluster: Cluster) -> None:
    settings = replace(STRICT, max_message_bytes=MIB)
    async with guarded(cluster, settings) as on, beside(on, tls=cluster.machine("good")) as served:
        async with on.agent("bad", cluster.machine("bad")) as agent:
            await agent.hello()
            code, _ = await refusal(agent, captured=pb.Captured(order="x" * 2 * MIB))
            assert code is not grpc.StatusCode.OK
        await served()


async def test_more_recorded_looks_than_an_hour_may_bring_are_left_with_the_agent(cluster: Cluster) -> None:
    settings = replace(STRICT, recorded_bytes_per_h=100_000)
    async with guarded(cluster, settings) as on, on.agent("bad", cluster.machine("bad")) as agent:
        await agent.hello(llama=[0])
        for number in range(3):
            await agent.say(spooled=recorded(f"{number:08d}-x", why="y" * 900, cmdline="z" * 40_000))
        assert [(await agent.next()).ack.id for _ in range(2)] == ["00000000-x", "00000001-x"]
        await agent.announce()
        await agent.say(presence=pb.Presence(leaving=True))
        await agent.hang_up()


def recorded(name: str, age_s: float = 30.0, cmdline: str = "", **more: Any) -> pb.Spooled:
    """A look that an agent says it took by itself."""
    capture = pack([trainer(0)])
    capture.traces[0].state.cmdline = cmdline
    look = pb.Captured(round=0, capture=capture, last=True)
    local = pb.LocalJob(job="llama", ranks=[0], world_size=1)
    return pb.Spooled(
        id=name, stall="s", job=local, age_s=age_s, rounds=1, interval_s=2.0, captured=look, **more
    )  # fmt: skip


@pytest.mark.parametrize(
    ("age_s", "refused"),
    [
        (-3600.0, "is impossible"),
        (math.nan, "is impossible"),
        (math.inf, "is impossible"),
        (1e12, "is impossible"),
        (30.0, ""),
    ],
)
async def test_a_look_from_the_future_or_of_no_time_is_refused_with_a_reason(
    cluster: Cluster, age_s: float, refused: str
) -> None:
    """Its clock does not count: an hour ahead is as good as none."""
    async with guarded(cluster) as on, on.agent("bad", cluster.machine("bad")) as agent:
        await agent.hello()
        await agent.say(spooled=recorded("00000001-a", age_s, began_s=4e9))
        receipt = (await agent.next()).ack
        assert receipt.id == "00000001-a" and refused in receipt.refused and bool(receipt.refused) == bool(refused)


async def test_a_look_that_is_handed_over_again_is_one_look(cluster: Cluster) -> None:
    async with guarded(cluster) as on, on.agent("bad", cluster.machine("bad")) as agent:
        await agent.hello()
        for _ in range(3):
            await agent.say(spooled=recorded("00000001-a"))
            assert (await agent.next()).ack == pb.Ack(id="00000001-a")
        assert len(await on.store.latest("", 10)) == 1


async def test_an_answer_that_is_repeated_or_of_a_foreign_order_changes_nothing(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    async with guarded(cluster) as on, on.agent("bad", cluster.machine("bad")) as bad:
        await bad.hello(good=[1])
        await on.knows("bad")
        async with on.agent("good", cluster.machine("good")) as good:
            await good.hello(good=[0])
            await on.knows("good")
            asking = asyncio.create_task(on.snapshot("good"))
            order = await bad.order()
            foreign = pb.CaptureOrder(order="0123456789ab", job="good")
            await bad.answer(foreign, trainer(1))
            for _ in range(3):
                await bad.answer(order, trainer(1))
            await good.answer(await good.order(), trainer(0))
            assert (await asking)[-1].verdict is not None
    assert told(caplog, "no incident") == 1


async def test_what_nobody_waits_for_is_not_kept_while_it_names_things_that_nobody_told(cluster: Cluster) -> None:
    """Else whoever names a million things would have them all asked for, and remembered meanwhile."""
    nobodys = pb.Capture(alike=[pb.Alike(threads=bytes(range(200)) * 500)])
    async with guarded(cluster) as on, beside(on, tls=cluster.machine("good")) as served:
        async with on.agent("bad", cluster.machine("bad")) as bad:
            await bad.hello(bad=[0])
            await on.knows("bad")
            await bad.say(captured=pb.Captured(order="0123456789ab", capture=nobodys))
            asking = asyncio.create_task(on.snapshot("bad"))
            assert (await bad.next()).HasField("capture"), "an order, and no question before it"
            asking.cancel()
        await served()


async def test_nobody_takes_ranks_from_the_machine_that_announced_them(tmp_path: Any) -> None:
    """`a` comes first by name, and says that it saw the ranks of `b`, too."""
    listener = Listener()
    async with stage(tmp_path / "s.db", listener) as on, crowd(on, a=[0], b=[1]) as (a, b):
        asking = asyncio.create_task(on.snapshot("llama"))
        await a.answer(await a.order(), trainer(0), trainer(1, "lies"))
        await b.answer(await b.order(), trainer(1, "truth"))
        await asking
    assert listener.snapshot is not None
    shown = {trace.rank: trace.threads[0].frames[-1].function for trace in listener.snapshot.rounds[0].traces}
    assert shown == {0: "step", 1: "truth"}
    notes = listener.snapshot.account.notes
    assert any(names(note, "a and b", "rank 1", "b is believed") for note in notes)


async def test_a_foreign_job_that_is_announced_is_not_silently_joined(tmp_path: Any) -> None:
    """Where two machines announced a rank, the first one is asked, and the verdict's notes name both."""
    listener = Listener()
    async with stage(tmp_path / "s.db", listener) as on, on.agent("b") as b, on.agent("a") as a:
        await b.hello(llama=[0, 1])
        await on.knows("b")
        await a.hello(llama=[1])
        await on.knows("a")
        asking = asyncio.create_task(on.snapshot("llama"))
        await b.answer(await b.order(), trainer(0), trainer(1, "truth"))
        await asking
    assert listener.snapshot is not None
    notes = listener.snapshot.account.notes
    assert any(names(note, "contradict", "a claims rank 1", "b announced") for note in notes)


async def test_nobody_has_the_ranks_of_others_suspected(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    """One that says that all of a foreign job stands still has nobody look closer, and no incident opened."""
    still = Sign(Doing.STILL, 1000.0, True, "all_reduce", 1.0)
    async with guarded(cluster) as on, on.agent("good", cluster.machine("good")) as good:
        await good.hello(llama=[0, 1])
        async with on.agent("bad", cluster.machine("bad")) as bad:
            await bad.hello(qwen=[5])
            await on.knows("good", "bad")
            await bad.say(stall_report=stall_signs.pack({"llama": {Rank(0): still, Rank(1): still}}))
            await bad.say(stall_report=stall_signs.pack({"qwen": {Rank(5): still}}))
            order = await bad.next()
            while not order.HasField("capture"):
                assert order.recheck.job == "qwen", "its own ranks it may speak of"
                order = await bad.next()
        await good.announce()
        assert told(caplog, "machine bad", "not its own") == 1
        assert {line.job for line in await on.store.latest("", 10)} == {"qwen"}


async def test_a_connection_over_tls_holds_so_many_streams(cluster: Cluster) -> None:
    """As the server's first words in HTTP/2 say: SETTINGS_MAX_CONCURRENT_STREAMS."""
    async with guarded(cluster, replace(STRICT, max_streams=7)) as on:
        said = await asyncio.to_thread(settings_frame, on.address, cluster.machine("bad"))
        assert said[3] == 7


def settings_frame(address: str, shown: Path) -> dict[int, int]:
    """What a server says of itself when HTTP/2 begins."""
    context = ssl.create_default_context(cafile=shown / "ca.pem")
    context.load_cert_chain(shown / "cert.pem", shown / "key.pem")
    context.set_alpn_protocols(["h2"])
    port = int(address.rpartition(":")[2])
    with (
        socket.create_connection(("127.0.0.1", port), 10) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as tls,
    ):
        tls.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")
        frame = b""
        while len(frame) < 9 or len(frame) < 9 + int.from_bytes(frame[:3], "big"):
            frame += tls.recv(65536)
    assert frame[3] == 4, "a SETTINGS frame"
    body = frame[9 : 9 + int.from_bytes(frame[:3], "big")]
    return {
        int.from_bytes(body[at : at + 2], "big"): int.from_bytes(body[at + 2 : at + 6], "big")
        for at in range(0, len(body), 6)
    }


async def test_agents_beside_a_crowd_of_broken_ones_are_served(cluster: Cluster) -> None:
    """Ten come back again and again with another's name, nonsense and silence."""
    stop = asyncio.Event()
    own = cluster.machine("bad")

    async def pester(on: Stage) -> None:
        while not stop.is_set():
            async with Agent(on.address, "gpu-b", own) as agent:
                await refusal(agent, hello=pb.Hello(machine="gpu-b"))

    async with guarded(cluster) as on, beside(on, tls=cluster.machine("good")) as served:
        crowd = [asyncio.create_task(pester(on)) for _ in range(10)]
        for _ in range(3):
            await served()
        stop.set()
        await asyncio.gather(*crowd)
