"""A real agent whose server is away: it looks by itself, keeps what it saw, and hands it over once; and what it says at its end."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from hangdog_agent.capture.process_capture import Tools
from hangdog_agent.connection.offline_recording import Spooling
from hangdog_agent.connection.settings import SpoolSettings
from hangdog_agent.connection.spool import Clocks, Spool
from hangdog_agent.stalls.settings import StallSettings
from hangdog_models.findings import Finding, Impact
from hangdog_proto.codec import findings
from hangdog_proto.codec.traces import unpack
from hangdog_proto.generated import hangdog_pb2 as pb
from support.fakes.targets import WAIT, running
from support.servers.far_end import ENVIRON, Line, Server, linked, reached

SETTINGS = SpoolSettings(away_s=0.0, away_rounds=2, away_interval_s=0.1, spool_pause_s=0.01)
#: One that makes up its mind within two seconds.
HASTY = StallSettings(beat_s=0.1, settle_s=0.0, suspicious_s=0.3, patience_s=0.5)
CLOCKS = Clocks(lambda: 1_800_000_000.0, lambda: 500.0, "boot-1")
LOST = Finding("NVML", "GPU lost", Impact.CONVICTS, "GPU 3 is lost", "gpu-a17", device="0000:4b:00", at_s=5.0)


@pytest.fixture
def stoppable(tools: Tools) -> Tools:
    """Without rings and dumps: to see that there are none takes a child, and in how many messages a look is sent is told here."""
    return replace(tools, stop=threading.Event(), settings=replace(tools.settings, profiler_ring=0, recorder_pipe=0))


@contextlib.asynccontextmanager
async def absent() -> AsyncIterator[Server]:
    """A server that has a port and does not run yet; whoever starts it need not stop it."""
    async with Server() as server:
        await server.stop()
        yield server


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("spool/*.look"))


def kept(folder: Path) -> None:
    """Two looks that an agent kept in its life before."""
    spool = Spool(folder / "spool", SETTINGS, CLOCKS)
    for number in range(2):
        captured = pb.Captured(round=number, last=number == 1)
        assert spool.put(pb.Spooled(stall="s", job=pb.LocalJob(job="linked"), captured=captured, rounds=2), 6.0)


async def spooled(line: Line) -> pb.Spooled:
    message: pb.Spooled = await line.hear("spooled")
    return message


def receive(line: Line, message: pb.Spooled, refused: str = "") -> None:
    line.outbox.put_nowait(pb.ToAgent(ack=pb.Ack(id=message.id, refused=refused)))


async def test_a_standstill_without_a_server_is_recorded_once_and_handed_over_by_the_next_agent(
    stoppable: Tools, tmp_path: Path
) -> None:
    async with absent() as server:
        with running(WAIT, environ=ENVIRON):
            async with linked(
                server, stoppable, alert=HASTY, findings=(LOST,), spooling=Spooling(tmp_path, SETTINGS, CLOCKS, "S1")
            ):
                await reached(lambda: len(files(tmp_path)) >= 2)
                await asyncio.sleep(1.0)
        assert len(files(tmp_path)) == 2, "one series of two looks, though it stands on"
        await server.start()
        again = replace(stoppable, stop=threading.Event())
        later = replace(CLOCKS, boot="boot-2")
        async with linked(server, again, spooling=Spooling(tmp_path, SETTINGS, later, "S2")):
            line = await server.line()
            for number in range(2):
                message = await spooled(line)
                captured = message.captured
                assert (captured.round, captured.last, message.rounds) == (number, number == 1, 2)
                assert (message.job.job, list(message.job.ranks), message.job.world_size) == ("linked", [3], 8)
                (trace,) = unpack(captured.capture)
                assert any("stuck_here" in frame.function for thread in trace.threads for frame in thread.frames)
                assert message.age_s >= 0.5 and message.began_s == pytest.approx(1.8e9 - message.age_s)
                assert (message.boot, message.serial) == ("boot-1", "S1"), "the machine as it was then"
                assert "rank" in message.why and len(files(tmp_path)) == 2 - number, "kept until the server has it"
                assert findings.unpack(captured.capture.findings, "gpu-a17") == ((LOST,) if captured.last else ())
                receive(line, message)
            await reached(lambda: not files(tmp_path))


async def test_an_old_server_is_not_told_again_on_one_connection_but_on_the_next_one(
    stoppable: Tools, tmp_path: Path
) -> None:
    kept(tmp_path)
    async with absent() as server:
        await server.start()
        impatient = replace(SETTINGS, receipt_s=0.2)
        async with linked(server, stoppable, spooling=Spooling(tmp_path, impatient, CLOCKS)):
            line = await server.line()
            first = await spooled(line)
            await asyncio.sleep(0.6)
            assert all(message.WhichOneof("body") != "spooled" for message in heard(line))
            line.outbox.put_nowait(None)
            other = await server.line()
            assert (await spooled(other)).id == first.id
            receive(other, pb.Spooled(id="another"))
            receive(other, first)
            assert (await spooled(other)).id != first.id
        assert len(files(tmp_path)) == 1


@pytest.mark.parametrize("kind", ["crash", "numbers"])
async def test_a_report_is_told_at_once_and_waits_for_a_server_that_knows_its_kind(
    stoppable: Tools, tmp_path: Path, kind: str
) -> None:
    slow = replace(SETTINGS, spool_pause_s=60.0)
    spool = Spool(tmp_path / "spool", slow, CLOCKS)
    report = pb.Spooled(
        stall="c", job=pb.LocalJob(job="linked"), crash=kind == "crash", numbers=kind == "numbers", rounds=1
    )
    assert spool.put(report, 6.0)
    async with absent() as server:
        await server.start()
        async with linked(server, stoppable, spooling=Spooling(tmp_path, slow, CLOCKS)):
            old = await server.line()
            await asyncio.sleep(0.5)
            assert all(message.WhichOneof("body") != "spooled" for message in heard(old))
            server.crashes, server.numbers = kind == "crash", kind == "numbers"
            old.outbox.put_nowait(None)
            line = await server.line()
            receive(line, message := await spooled(line))
            assert (message.crash, message.numbers) == (report.crash, report.numbers) and message.job.job == "linked"
            await reached(lambda: not files(tmp_path))


def heard(line: Line) -> list[pb.FromAgent]:
    return [line.heard.get_nowait() for _ in range(line.heard.qsize())]


async def test_what_the_server_refuses_is_kept_no_longer(
    stoppable: Tools, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kept(tmp_path)
    async with absent() as server:
        files(tmp_path)[0].write_bytes(b"torn")
        await server.start()
        async with linked(server, stoppable, spooling=Spooling(tmp_path, SETTINGS, CLOCKS)):
            line = await server.line()
            message = await spooled(line)
            assert message.captured.round == 1, "the torn one is passed over"
            receive(line, message, "it is from the future")
            await reached(lambda: not files(tmp_path))
    assert any("it is from the future" in record.message for record in caplog.records)


async def test_orders_go_before_what_was_recorded(
    stoppable: Tools, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hangdog_agent.connection.offline_recording.random.uniform", lambda low, high: 0.75 * high)
    kept(tmp_path)
    async with absent() as server:
        await server.start()
        slowly = replace(SETTINGS, spool_pause_s=0.2)
        with running(WAIT, environ=ENVIRON):
            async with linked(server, stoppable, spooling=Spooling(tmp_path, slowly, CLOCKS)):
                line = await server.line()
                line.order("a", rounds=6, interval_s=0.1)
                bodies: list[str | None] = []
                while bodies.count("captured") < 6 or "spooled" not in bodies:
                    async with asyncio.timeout(30):
                        bodies.append((await line.heard.get()).WhichOneof("body"))
                late = [body for body in bodies if body in ("captured", "spooled")]
                assert late.count("spooled") == 1 and late.index("spooled") == 6, late


async def test_without_a_folder_memory_has_to_do(stoppable: Tools, caplog: pytest.LogCaptureFixture) -> None:
    async with absent() as server:
        with running(WAIT, environ=ENVIRON):
            async with linked(server, stoppable, alert=HASTY, spooling=Spooling(None, SETTINGS, CLOCKS)):
                await reached(lambda: any("kept in memory" in record.message for record in caplog.records))
                await server.start()
                line = await server.line()
                message = await spooled(line)
                receive(line, message)
                assert (await spooled(line)).captured.round == 1
    assert sum("kept in memory" in record.message for record in caplog.records) == 1


async def test_a_server_that_is_there_takes_the_looks_itself(stoppable: Tools, tmp_path: Path) -> None:
    spooling = Spooling(tmp_path, SETTINGS, CLOCKS)
    async with Server() as server, linked(server, stoppable, alert=HASTY, spooling=spooling):
        line = await server.line()
        with running(WAIT, environ=ENVIRON):
            while not any(sign.overdue for job in (await line.hear("stall_report")).jobs for sign in job.signs):
                pass
            await asyncio.sleep(1.0)
    assert not files(tmp_path)


async def test_what_the_checks_found_is_told_after_the_welcome_and_on_change(stoppable: Tools) -> None:
    standing = [LOST]
    async with Server() as server, linked(server, stoppable, findings=standing):
        line = await server.line()
        assert findings.unpack((await line.hear("health")).findings, "gpu-a17") == (LOST,)
        standing.append(replace(LOST, code="Xid 79"))
        assert len((await line.hear("health")).findings) == 2
        standing.clear()
        assert not (await line.hear("health")).findings
        line.outbox.put_nowait(None)
        again = await server.line()
        assert not (await again.hear("health")).findings, "an empty one too: the server may remember another"


async def test_an_agent_that_is_stopped_says_goodbye(stoppable: Tools) -> None:
    with running(WAIT, environ=ENVIRON):
        async with Server() as server, linked(server, stoppable) as kept:
            line = await server.line()
            while not (presence := await line.hear("presence")).jobs:
                pass
            assert not presence.leaving
            kept.stop.set()
            while not (last := await line.hear("presence")).leaving:
                pass
            assert [job.job for job in last.jobs] == ["linked"]
